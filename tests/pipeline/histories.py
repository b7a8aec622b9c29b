"""Random histories of a group: static and dynamic members, deploys with and without surge, several events at once.

More than `scenarios.random_script` has: groups deleted and recreated, two processes of one instance id, instances removed by an
administrator, all members stopped at once, members with the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from history import GroupRecord
from pipeline.advice import AdviceTables, advise
from pipeline.rows import GroupTables
from pipeline.virtual import Client, MemoryRecorder, TrueRebalance, World
from tests.pipeline.playing import CLUSTER, GROUP, commits_of, edges_of, fold
from tests.pipeline.scenarios import BEGIN_MS, HOUR_MS, MINUTE_MS, pod

BETWEEN_MS = (200, 500, 3_000, 20_000, 120_000, 1_200_000)


class Reported(NamedTuple):
    folded: GroupTables
    advised: AdviceTables


class HistoryWithTruth(NamedTuple):
    world: World
    with_notes: Reported
    without_notes: Reported

    @property
    def truth(self) -> list[TrueRebalance]:
        return self.world.episodes(GROUP)

    @property
    def settled(self) -> list[TrueRebalance]:
        """The rebalances that stored a group record: an interrupted rebalance stores none."""
        return [episode for episode in self.truth if episode.end in ("stable", "empty")]

    @property
    def avoidable(self) -> set[int]:
        """The beginnings of avoidable rebalances. One in which topics or assignors also changed does not count as avoidable."""
        changed = {row.start_lo_ms for row in self.with_notes.folded.episodes if row.protocol_change or row.subscription_change}
        return {episode.start_ms for episode in self.world.avoidable(GROUP)} - changed


def random_history(seed: int, steps: int = 30, *, alike: bool = True) -> HistoryWithTruth:
    """`alike`: several members may have the same client id and host."""
    memory = MemoryRecorder()
    world = World(BEGIN_MS, recorder=memory, seed=seed)
    RandomHistory(world, seed, alike).play(steps)
    world.run(2 * HOUR_MS)
    group_records: list[GroupRecord] = memory.group_records(GROUP)
    edges = edges_of(group_records, commits_of((*record.fact, record.at_ms) for record in memory.records[0]))
    noted = fold(memory.note_records(), group_records, edges, now_ms=world.now)
    return HistoryWithTruth(world, truth_of(noted, world), truth_of(fold([], group_records, edges, now_ms=world.now), world))


def truth_of(tables: GroupTables, world: World) -> Reported:
    return Reported(tables, advise(CLUSTER, GROUP, tables, world.now))



class RandomHistory:
    def __init__(self, world: World, seed: int, alike: bool) -> None:
        self.world = world
        self.random = Random(seed)
        choice = self.random.choice
        self.assignors = choice([("range",), ("sticky", "range"), ("cooperative-sticky",)])
        self.static_share = choice([0, 0, 0.5, 1])
        self.alike = self.random.random() < 0.3 and alike
        self.settings: dict[str, object] = {
            "assignors": self.assignors,
            "rebalance_ms": choice([20_000, 60_000, 300_000]),
            "session_ms": choice([6_000, 10_000, 45_000]),
            "knows_skip_assignment": self.random.random() < 0.5,
            "assign_ms": choice([0, 0, 700, 5_000]),
        }
        self.next_number = 0
        self.running: list[Client] = [self.new() for _ in range(self.random.randrange(1, 7))]
        world.run(10 * MINUTE_MS)

    def new(self, static: bool | None = None, instance: str | None = None) -> Client:
        number, self.next_number = self.next_number, self.next_number + 1
        settings = dict(self.settings)
        if self.alike:
            settings["client_id"] = "app"
        if instance is not None:
            settings["instance"] = instance
        return pod(self.world, number, self.random.random() < self.static_share if static is None else static, **settings)

    def play(self, steps: int) -> None:
        actions: list[Callable[[Client], None]] = [
            *[self.restart] * 5, self.stop, self.crash, self.freeze, self.busy, self.scale_out, self.subscribe, self.surge, self.deploy,
            self.duplicate, self.remove, self.restart_all, self.restart_or_kill_coordinator, self.change_assignors, self.restart_or_rejoin_leader, lambda _: None,
        ]  # fmt: skip
        for _ in range(steps):
            client = self.random.choice(self.running) if self.running else self.add()
            if client.alive:
                self.random.choice(actions)(client)
            else:
                client.start()
            self.wait(*BETWEEN_MS)

    def wait(self, *ms: int) -> None:
        self.world.run(self.random.choice(ms))

    def add(self) -> Client:
        self.running.append(self.new())
        return self.running[-1]

    # Events of a member, or of all members.

    def restart(self, client: Client) -> None:
        client.restart(self.random.choice([500, 4_000, 8_000, 25_000, 70_000, 400_000]), graceful=self.random.random() < 0.6)

    def stop(self, client: Client) -> None:
        client.stop()

    def crash(self, client: Client) -> None:
        client.crash()

    def freeze(self, client: Client) -> None:
        client.freeze(self.random.choice([2_000, 9_000, 40_000]))

    def busy(self, client: Client) -> None:
        client.busy(self.random.choice([5_000, 60_000, 400_000]))

    def scale_out(self, _: Client) -> None:
        self.add()

    def subscribe(self, client: Client) -> None:
        client.change_topics({"t": 12, f"u{self.random.randrange(3)}": self.random.randrange(1, 5)})

    def surge(self, _: Client) -> None:
        """A deploy that starts each new process before it stops the old one."""
        for consumer in [consumer for consumer in self.running if consumer.alive and consumer.instance is None]:
            self.running.append(self.new(static=False))
            self.wait(1_000, 15_000)
            if consumer.alive:
                consumer.stop()
            self.running.remove(consumer)
            self.wait(1_000, 15_000)

    def deploy(self, _: Client) -> None:
        for consumer in [consumer for consumer in self.running if consumer.alive]:
            if consumer.alive:
                consumer.restart(self.random.choice([2_000, 12_000]), graceful=self.random.random() < 0.8)
            self.wait(3_000, 20_000)

    def duplicate(self, client: Client) -> None:
        if client.instance is not None:
            self.running.append(self.new(instance=client.instance))

    def remove(self, client: Client) -> None:
        if client.instance is not None and self.world.coordinator_of(GROUP).shard is not None:
            self.world.remove_instance(GROUP, client.instance, "not needed")

    def restart_all(self, _: Client) -> None:
        stopped = [consumer for consumer in self.running if consumer.alive]
        for consumer in stopped:
            consumer.stop()
            self.wait(0, 100, 5_000)
        self.wait(1_000, 60_000)
        group = self.world.group(GROUP)
        if self.random.random() < 0.5 and group is not None and not group.members:
            self.world.delete_group(GROUP)
            self.world.run(10)
        for consumer in stopped:
            if not consumer.alive:
                consumer.start()
                self.wait(0, 1_000)

    def restart_or_kill_coordinator(self, _: Client) -> None:
        partition = self.world.coordinator_of(GROUP)
        if partition.shard is not None:
            partition.write_notes()
            self.random.choice([self.world.restart_coordinator, self.world.kill_coordinator])(self.random.choice([500, 5_000]))

    def change_assignors(self, client: Client) -> None:
        if len(self.assignors) > 1:
            client.assignors = ("range", "sticky")
            client.restart(4_000)

    def restart_or_rejoin_leader(self, _: Client) -> None:
        group = self.world.group(GROUP)
        for consumer in self.running:
            if group is not None and consumer.alive and consumer.member_id == group.leader:
                if self.random.random() < 0.5:
                    consumer.restart(2_000)
                else:
                    consumer.rejoin("cached metadata has changed")
