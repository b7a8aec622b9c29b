"""Histories by chance in which anything may happen to a group: mixed members, deploys with and without surge, several at once.

More than `scenarios.random_script` has: groups deleted and made again, two processes of one instance id, instances removed by an
administrator, everybody stopped at once, members with the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from history import GroupRecord
from pipeline.advice import AdviceTables, advise
from pipeline.rows import GroupTables
from pipeline.virtual import Client, Memory, TrueRebalance, World
from tests.pipeline.playing import CLUSTER, GROUP, commits_of, edges_of, fold
from tests.pipeline.scenarios import BEGIN_MS, HOUR_MS, MINUTE_MS, pod

BETWEEN_MS = (200, 500, 3_000, 20_000, 120_000, 1_200_000)


class Told(NamedTuple):
    folded: GroupTables
    advised: AdviceTables


class Lived(NamedTuple):
    world: World
    noted: Told
    plain: Told

    @property
    def truth(self) -> list[TrueRebalance]:
        return self.world.episodes(GROUP)

    @property
    def settled(self) -> list[TrueRebalance]:
        """The rebalances that left a group record: an interrupted one leaves none."""
        return [one for one in self.truth if one.end in ("stable", "empty")]

    @property
    def avoidable(self) -> set[int]:
        """By when they began. A rebalance in which topics or assignors changed besides is none."""
        changed = {row.start_lo_ms for row in self.noted.folded.episodes if row.protocol_change or row.subscription_change}
        return {one.start_ms for one in self.world.avoidable(GROUP)} - changed


def live(seed: int, steps: int = 30, *, alike: bool = True) -> Lived:
    """`alike`: members may share client id and host."""
    memory = Memory()
    world = World(BEGIN_MS, recorder=memory, seed=seed)
    Everything(world, seed, alike).play(steps)
    world.run(2 * HOUR_MS)
    images: list[GroupRecord] = memory.images(GROUP)
    edges = edges_of(images, commits_of((*one.fact, one.at_ms) for one in memory.records[0]))
    noted = fold(memory.note_records(), images, edges, now_ms=world.now)
    return Lived(world, truth_of(noted, world), truth_of(fold([], images, edges, now_ms=world.now), world))


def truth_of(tables: GroupTables, world: World) -> Told:
    return Told(tables, advise(CLUSTER, GROUP, tables, world.now))



class Everything:
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
        self.made = 0
        self.running: list[Client] = [self.new() for _ in range(self.random.randrange(1, 7))]
        world.run(10 * MINUTE_MS)

    def new(self, static: bool | None = None, instance: str | None = None) -> Client:
        number, self.made = self.made, self.made + 1
        settings = dict(self.settings)
        if self.alike:
            settings["client_id"] = "app"
        if instance is not None:
            settings["instance"] = instance
        return pod(self.world, number, self.random.random() < self.static_share if static is None else static, **settings)

    def play(self, steps: int) -> None:
        deeds: list[Callable[[Client], None]] = [
            *[self.restart] * 5, self.stop, self.crash, self.freeze, self.busy, self.scale_out, self.subscribe, self.surge, self.deploy,
            self.duplicate, self.remove, self.stop_all, self.coordinator, self.change_assignors, self.leader, lambda _: None,
        ]  # fmt: skip
        for _ in range(steps):
            some = self.random.choice(self.running) if self.running else self.add()
            if some.alive:
                self.random.choice(deeds)(some)
            else:
                some.start()
            self.wait(*BETWEEN_MS)

    def wait(self, *ms: int) -> None:
        self.world.run(self.random.choice(ms))

    def add(self) -> Client:
        self.running.append(self.new())
        return self.running[-1]

    # Events of one member, or of all.

    def restart(self, some: Client) -> None:
        some.restart(self.random.choice([500, 4_000, 8_000, 25_000, 70_000, 400_000]), graceful=self.random.random() < 0.6)

    def stop(self, some: Client) -> None:
        some.stop()

    def crash(self, some: Client) -> None:
        some.crash()

    def freeze(self, some: Client) -> None:
        some.freeze(self.random.choice([2_000, 9_000, 40_000]))

    def busy(self, some: Client) -> None:
        some.busy(self.random.choice([5_000, 60_000, 400_000]))

    def scale_out(self, _: Client) -> None:
        self.add()

    def subscribe(self, some: Client) -> None:
        some.change_topics({"t": 12, f"u{self.random.randrange(3)}": self.random.randrange(1, 5)})

    def surge(self, _: Client) -> None:
        """A deploy that starts each new process before it stops the old one."""
        for one in [one for one in self.running if one.alive and one.instance is None]:
            self.running.append(self.new(static=False))
            self.wait(1_000, 15_000)
            if one.alive:
                one.stop()
            self.running.remove(one)
            self.wait(1_000, 15_000)

    def deploy(self, _: Client) -> None:
        for one in [one for one in self.running if one.alive]:
            if one.alive:
                one.restart(self.random.choice([2_000, 12_000]), graceful=self.random.random() < 0.8)
            self.wait(3_000, 20_000)

    def duplicate(self, some: Client) -> None:
        if some.instance is not None:
            self.running.append(self.new(instance=some.instance))

    def remove(self, some: Client) -> None:
        if some.instance is not None and self.world.partition(GROUP).shard is not None:
            self.world.remove_instance(GROUP, some.instance, "not needed")

    def stop_all(self, _: Client) -> None:
        gone = [one for one in self.running if one.alive]
        for one in gone:
            one.stop()
            self.wait(0, 100, 5_000)
        self.wait(1_000, 60_000)
        group = self.world.group(GROUP)
        if self.random.random() < 0.5 and group is not None and not group.members:
            self.world.delete_group(GROUP)
            self.world.run(10)
        for one in gone:
            if not one.alive:
                one.start()
                self.wait(0, 1_000)

    def coordinator(self, _: Client) -> None:
        partition = self.world.partition(GROUP)
        if partition.shard is not None:
            partition.write_notes()
            self.random.choice([self.world.restart_coordinator, self.world.kill_coordinator])(self.random.choice([500, 5_000]))

    def change_assignors(self, some: Client) -> None:
        if len(self.assignors) > 1:
            some.assignors = ("range", "sticky")
            some.restart(4_000)

    def leader(self, _: Client) -> None:
        group = self.world.group(GROUP)
        for one in self.running:
            if group is not None and one.alive and one.member_id == group.leader:
                if self.random.random() < 0.5:
                    one.restart(2_000)
                else:
                    one.rejoin("cached metadata has changed")
