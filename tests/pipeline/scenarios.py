"""Scripted histories with their expected events, which an analysis of the logs must find.

    played = play("rolling restart of dynamic members")           # in memory
    played.note_records, played.group_records                            # what the fold reads
    played.scenario.episodes, .avoidable, .saved                  # the truth, written by hand
    write("rolling restart of dynamic members", directory)        # the same as a data directory (`notes=False`: as a Kafka leaves it)

Each scenario has one partition and the group "g"; its clients are p0, p1, ... on hosts /10.0.0.0, ... (instance ids i0, i1, ...).
`test_scenarios.py` plays them all and compares their events with the expected ones.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from coordinator.facts import offset_key, offset_key_prefix, offset_value
from history import GroupRecord, NoteRecord
from pipeline.demo.directory import Directory
from pipeline.virtual import Client, MemoryRecorder, Recorder, World
from protocol.batch import Record, build

GROUP = "g"
TOPICS = {"t": 12}
BEGIN_MS = 1_700_000_000_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
SESSION_MS = 10_000


class Expected(NamedTuple):
    """One rebalance. Members by the names of their clients, sorted."""

    cause: str
    before: int
    after: int
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    rounds: int = 1
    end: str = "stable"


class Scenario(NamedTuple):
    name: str
    script: Callable[[World], None]
    episodes: tuple[Expected, ...]
    avoidable: int  # rebalances that only restarted processes caused
    saved: int  # restarts of static members without a rebalance


class Played(NamedTuple):
    scenario: Scenario
    world: World
    memory: MemoryRecorder

    @property
    def note_records(self) -> list[NoteRecord]:
        return self.memory.note_records()

    @property
    def group_records(self) -> list[GroupRecord]:
        return self.memory.group_records(GROUP)


SCENARIOS: dict[str, Scenario] = {}


def play(name: str) -> Played:
    memory = MemoryRecorder()
    return Played(SCENARIOS[name], _run(SCENARIOS[name].script, memory), memory)


def write(name: str, directory: Path, notes: bool = True) -> Scenario:
    write_script(SCENARIOS[name].script, directory, notes)
    return SCENARIOS[name]


def write_script(script: Callable[[World], None], directory: Path, notes: bool = True) -> World:
    recorder = Directory(str(directory), 1, BEGIN_MS, ours=notes)
    recorder.add_topic("t", 12)
    world = _run(script, recorder)
    recorder.close(world.now)
    return world


def _run(script: Callable[[World], None], recorder: Recorder) -> World:
    world = World(BEGIN_MS, recorder=recorder)
    script(world)
    world.run(HOUR_MS)
    return world


def scenario(
    name: str, *episodes: Expected, avoidable: int = 0, saved: int = 0
) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    def put(script: Callable[[World], None]) -> Callable[[World], None]:
        SCENARIOS[name] = Scenario(name, script, episodes, avoidable, saved)
        return script

    return put


# Actions of scripts.


def pod(world: World, number: int, static: bool = False, **settings: object) -> Client:
    instance = f"i{number}" if static else None
    defaults: dict[str, object] = {"topics": TOPICS, "host": f"/10.0.0.{number}", "session_ms": SESSION_MS, "instance": instance}
    client = world.client(GROUP, f"p{number}", **(defaults | settings))
    client.start()
    _commit_each_minute(client)
    return client


def pods(world: World, count: int, static: bool = False, **settings: object) -> list[Client]:
    pods_started = [pod(world, number, static, **settings) for number in range(count)]
    world.run(10 * MINUTE_MS)
    return pods_started


def names(*numbers: int) -> tuple[str, ...]:
    return tuple(f"p{number}" for number in numbers)


def formed(count: int) -> Expected:
    return Expected("new_member", 0, count, joined=names(*range(count)))


def left(number: int, before: int) -> Expected:
    return Expected("member_left", before, before - 1, left=names(number))


def expired(number: int, before: int) -> Expected:
    return Expected("session_expired", before, before - 1, expired=names(number))


def came(number: int, before: int) -> Expected:
    return Expected("new_member", before, before + 1, joined=names(number))


def _commit_each_minute(client: Client) -> None:
    if client.working:
        done = (client.world.now - BEGIN_MS) // 1_000
        client.commit({topic: [(number, done) for name, number in client.owned if name == topic] for topic in client.topics})
    client.world.at(client.world.now + MINUTE_MS, _commit_each_minute, client)


# The scenarios.


@scenario("formation", formed(3))
def formation(world: World) -> None:
    pods(world, 3)


@scenario("scale out and in", formed(2), came(2, 2), came(3, 3), left(0, 4), left(2, 3))
def scale_out_and_in(world: World) -> None:
    running = pods(world, 2)
    for number in (2, 3):
        running.append(pod(world, number))
        world.run(10 * MINUTE_MS)
    for number in (0, 2):
        running[number].stop()
        world.run(10 * MINUTE_MS)


@scenario(
    "rolling restart of dynamic members", formed(3), left(0, 3), came(0, 2), left(1, 3), came(1, 2), left(2, 3), came(2, 2), avoidable=6
)
def rolling_restart_dynamic(world: World) -> None:
    for client in pods(world, 3):
        client.restart(20_000)
        world.run(MINUTE_MS)


@scenario("rolling restart of static members", formed(3), saved=3)
def rolling_restart_static(world: World) -> None:
    for client in pods(world, 3, static=True):
        client.restart(5_000)
        world.run(MINUTE_MS)


@scenario(
    "restarts longer than the session of static members",
    formed(3),
    expired(0, 3),
    came(0, 2),
    expired(1, 3),
    came(1, 2),
    avoidable=4,
)
def static_restart_too_long(world: World) -> None:
    for client in pods(world, 3, static=True)[:2]:
        client.restart(30_000)
        world.run(2 * MINUTE_MS)


@scenario("a member that crashes for good", formed(3), expired(1, 3))
def death(world: World) -> None:
    pods(world, 3)[1].crash()


@scenario("a member that crashes and comes back later", formed(3), expired(1, 3), came(1, 2), avoidable=2)
def crash_and_return(world: World) -> None:
    pods(world, 3)[1].restart(5 * MINUTE_MS, graceful=False)


@scenario(
    "a member that crashes and is back before its session ends",
    formed(3),
    Expected("new_member", 3, 3, joined=names(1), expired=names(1)),
    avoidable=1,
)
def crash_and_return_before_expiry(world: World) -> None:
    pods(world, 3, rebalance_ms=60_000)[1].restart(2_000, graceful=False)


@scenario(
    "a static member returns while the leader computes",
    formed(3),
    Expected("new_member", 3, 4, joined=names(3), replaced=names(1), also=("static_during_completing",), rounds=2),
)
def replaced_while_completing(world: World) -> None:
    running = pods(world, 3, static=True, assign_ms=5_000, heartbeat_ms=1_000)
    pod(world, 3, static=True)
    world.at(world.now + 2_000, running[1].restart, 1_000)


@scenario("a static member returns while the others join", formed(3), Expected("new_member", 3, 4, joined=names(3), replaced=names(1)))
def replaced_while_preparing(world: World) -> None:
    running = pods(world, 3, static=True)
    running[2].busy(20_000)
    pod(world, 3, static=True)
    world.at(world.now + 4_000, running[1].restart, 2_000)


@scenario("a static leader restarts, JoinGroup 9", formed(3), saved=1)
def leader_restart_v9(world: World) -> None:
    _restart_leader(world, True)


@scenario("a static leader restarts, JoinGroup 8", formed(3), saved=1)
def leader_restart_v8(world: World) -> None:
    _restart_leader(world, False)


def _restart_leader(world: World, knows: bool) -> None:
    running = pods(world, 3, static=True, knows_skip_assignment=knows)
    group = world.group(GROUP)
    assert group is not None
    next(client for client in running if client.member_id == group.leader).restart(4_000)


@scenario(
    "static members return with another protocol",  # the vote of the first returned member decides
    formed(2),
    Expected("static_protocol_changed", 2, 2, replaced=names(0)),
    saved=1,
)
def protocol_change(world: World) -> None:
    for client in pods(world, 2, static=True, assignors=("range", "sticky")):
        client.assignors = ("sticky", "range")
        client.restart(4_000)
        world.run(MINUTE_MS)


@scenario("a member subscribes to another topic", formed(3), Expected("member_metadata_changed", 3, 3))
def subscription_change(world: World) -> None:
    pods(world, 3)[1].change_topics({"t": 12, "u": 4})


@scenario("the leader sees new partitions", formed(3), Expected("leader_rejoined", 3, 3))
def leader_rejoins(world: World) -> None:
    running = pods(world, 3)
    group = world.group(GROUP)
    assert group is not None
    for client in running:
        client.topics = {"t": 16}
    next(client for client in running if client.member_id == group.leader).rejoin("cached metadata has changed")


@scenario(
    "a crash loop",
    formed(3),
    *[change for _ in range(6) for change in (expired(2, 3), came(2, 2))],
    avoidable=12,
)
def crash_loop(world: World) -> None:
    crashing = pods(world, 3)[2]
    for _ in range(6):
        crashing.restart(20_000, graceful=False)
        world.run(50_000)


@scenario("a poll that takes too long", formed(3), left(1, 3), came(1, 2), avoidable=2)
def slow_poll(world: World) -> None:
    pods(world, 3, rebalance_ms=MINUTE_MS)[1].busy(2 * MINUTE_MS)


@scenario(
    "a member that does not rejoin in time",
    formed(3),
    Expected("member_left", 3, 1, left=names(0), evicted=names(1)),
    came(1, 1),
    avoidable=1,
)
def evicted(world: World) -> None:
    running = pods(world, 3, rebalance_ms=MINUTE_MS)
    running[1].rebalance_ms = 10 * MINUTE_MS  # longer than the rebalance timeout in its JoinGroup
    running[1].busy(3 * MINUTE_MS)
    running[0].stop()


@scenario("a member that stands still, and wakes", formed(3), expired(0, 3), came(0, 2), avoidable=2)
def frozen(world: World) -> None:
    running = pods(world, 3)
    running[0].freeze(30_000)
    world.at(world.now + 29_999, running[0].commit, {"t": [(0, 1)]})


@scenario("an administrator removes a static member", formed(3), Expected("admin_removed", 3, 2, removed=names(1)))
def admin_removes(world: World) -> None:
    running = pods(world, 3, static=True)
    running[1].crash()
    world.remove_instance(GROUP, "i1", "it is not coming back")


@scenario("two processes of one instance id", formed(3), saved=1)
def duplicate_instance(world: World) -> None:
    pods(world, 3, static=True)
    pod(world, 9, instance="i0")


@scenario(
    "everybody leaves and comes back",
    formed(2),
    left(0, 2),
    Expected("member_left", 1, 0, left=names(1), end="empty"),
    Expected("new_member", 0, 2, joined=names(0, 1)),
    avoidable=3,
)
def emptied(world: World) -> None:
    running = pods(world, 2)
    running[0].restart(5 * MINUTE_MS)
    world.run(MINUTE_MS)
    running[1].restart(4 * MINUTE_MS)


@scenario("cooperative members", formed(2), came(2, 2), Expected("member_metadata_changed", 3, 3))
def cooperative(world: World) -> None:
    pods(world, 2, assignors=("cooperative-sticky",))
    pod(world, 2, assignors=("cooperative-sticky",))


@scenario("offsets are deleted", formed(2), left(0, 2), Expected("member_left", 1, 0, left=names(1), end="empty"))
def offsets_deleted(world: World) -> None:
    for client in pods(world, 2):
        client.stop()
        world.run(MINUTE_MS)
    assert world.delete_offsets(GROUP, [("t", 0), ("t", 1)]) == 0


@scenario(
    "a group is deleted and made again",
    formed(2),
    left(0, 2),
    Expected("member_left", 1, 0, left=names(1), end="empty"),
    Expected("new_member", 0, 2, joined=names(0, 1)),
)
def group_deleted(world: World) -> None:
    running = pods(world, 2)
    for client in running:
        client.stop()
        world.run(MINUTE_MS)
    assert world.delete_group(GROUP) == 0
    world.run(MINUTE_MS)
    for client in running:
        client.start()


@scenario("the coordinator is restarted", formed(3), left(0, 3), came(0, 2), avoidable=2)
def coordinator_restart(world: World) -> None:
    running = pods(world, 3)
    world.restart_coordinator(4_000)
    world.run(10 * MINUTE_MS)
    running[0].restart(20_000)


@scenario("the coordinator is killed, and nothing else happens", formed(3))
def coordinator_killed(world: World) -> None:
    pods(world, 3)
    world.kill_coordinator(4_000)


@scenario(
    "the coordinator is killed within a rebalance",
    formed(3),
    Expected("member_left", 3, 2, left=names(0), end="interrupted"),
    expired(0, 3),
)
def killed_in_a_rebalance(world: World) -> None:
    """The departure was not stored, so the next coordinator still has the member, until its session ends."""
    running = pods(world, 3)
    running[0].stop()
    world.at(world.now + 210, world.kill_coordinator, 4_000)


@scenario(
    "notes are lost when the coordinator is killed",
    formed(3),
    Expected("member_left", 3, 2, left=names(0), end="interrupted"),
    expired(0, 3),
)
def killed_before_its_notes_were_written(world: World) -> None:
    """Notes are written every 200 ms. The coordinator is killed before that, so no log mentions the departure."""
    running = pods(world, 3)
    running[0].stop()
    world.at(world.now + 50, world.kill_coordinator, 4_000)


@scenario("notes are lost over a restart", formed(3), left(1, 3), came(1, 2), left(2, 3), came(2, 2), avoidable=4)
def notes_lost(world: World) -> None:
    running = pods(world, 3)
    partition = world.coordinator_of(GROUP)
    partition.loses_notes = True
    running[1].restart(20_000)
    world.run(5 * MINUTE_MS)
    partition.loses_notes = False
    running[2].restart(20_000)


@scenario("nothing at all while notes are lost", formed(3), left(1, 3), came(1, 2), avoidable=2)
def notes_lost_at_the_end(world: World) -> None:
    running = pods(world, 3)
    world.coordinator_of(GROUP).loses_notes = True
    running[1].restart(20_000)


@scenario("static and dynamic members restarted alike", formed(4), left(1, 4), came(1, 3), left(3, 4), came(3, 3), avoidable=4, saved=2)
def mixed_members(world: World) -> None:
    running = [pod(world, number, static=number % 2 == 0) for number in range(4)]
    world.run(10 * MINUTE_MS)
    for client in running:
        client.restart(6_000)
        world.run(MINUTE_MS)


@scenario("a deploy with surge", formed(2), came(2, 2), left(0, 3), came(3, 2), left(1, 3))
def surge(world: World) -> None:
    """Each new process joins before an old process leaves: no member is restarted."""
    for number, client in enumerate(pods(world, 2)):
        pod(world, 2 + number)
        world.run(20_000)
        client.stop()
        world.run(20_000)


@scenario(
    "two deploys back to back",
    formed(2),
    *[change for _ in range(2) for number in range(2) for change in (left(number, 2), came(number, 1))],
    avoidable=8,
)
def two_deploys(world: World) -> None:
    running = pods(world, 2)
    for _ in range(2):
        for client in running:
            client.restart(15_000)
            world.run(45_000)


@scenario(
    "a member leaves while another one has crashed",
    formed(3),
    Expected("member_left", 3, 1, left=names(0), expired=names(1)),
    came(0, 1),
    avoidable=1,
)
def crash_within_a_departure(world: World) -> None:
    """The crashed member does not return, so static membership could have saved only the rebalances that the restarted member caused."""
    running = pods(world, 3)
    running[1].crash()
    world.run(1_000)
    running[0].restart(30_000)


# Random histories, for comparing the analyses with and without notes.


def random_script(seed: int, members: int = 6, steps: int = 30) -> Callable[[World], None]:
    """A script of random events of a group."""

    def script(world: World) -> None:
        random = Random(seed)
        running = pods(world, members, static=random.random() < 0.4, assignors=(random.choice(["range", "sticky", "cooperative-sticky"]),))
        for number in range(steps):
            client = random.choice(running)
            if not client.alive:
                client.start()
            else:
                _random_action(world, random, client, running, number)
            world.run(random.choice([500, 3_000, 20_000, 120_000, 1_200_000]))

    return script


def _random_action(world: World, random: Random, client: Client, running: list[Client], number: int) -> None:
    match random.randrange(12):
        case 0 | 1 | 2 | 3:
            client.restart(random.choice([1_000, 8_000, 25_000, 400_000]), graceful=random.random() < 0.7)
        case 4:
            client.stop()
        case 5:
            client.crash()
        case 6:
            client.freeze(random.choice([2_000, 9_000, 40_000]))
        case 7:
            client.busy(random.choice([5_000, 60_000, 400_000]))
        case 8:
            running.append(pod(world, 100 + number, static=client.instance is not None, assignors=client.assignors))
        case 9:
            if world.coordinator_of(GROUP).shard is not None:
                random.choice([world.restart_coordinator, world.kill_coordinator])(random.choice([500, 5_000]))
        case 10:
            client.change_topics({"t": 12, "u": random.randrange(1, 5)})
        case _:
            world.coordinator_of(GROUP).loses_notes = random.random() < 0.3


# Records that Apache Kafka writes and our coordinator does not: offsets committed in transactions.


def write_transactions(directory: Path) -> dict[tuple[str, int], int]:
    """A producer commits its first transaction, aborts its second, and leaves its third open; a consumer commits between them.

    Returns the offsets that count, by topic and partition.
    """
    recorder = Directory(str(directory), 1, BEGIN_MS, ours=False)
    at = BEGIN_MS

    def commit(offsets: dict[int, int], sequence: int = -1) -> None:
        nonlocal at
        at += MINUTE_MS
        prefix = offset_key_prefix(GROUP, "t")
        records = [
            Record(number, at, offset_key(prefix, partition), offset_value(offset, -1, b"", at), [])
            for number, (partition, offset) in enumerate(offsets.items())
        ]
        batch_fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence, "transactional": True} if sequence >= 0 else {}
        recorder.append(0, bytearray(build(records, **batch_fields)), len(records), at, 0)

    def end(committed: bool) -> None:
        nonlocal at
        at += 100
        marker = Record(0, at, bytes([0, 0, 0, int(committed)]), bytes(6), [])  # key: version and type; value: version and coordinator epoch
        recorder.append(0, bytearray(build([marker], producer_id=7, producer_epoch=0, control=True, transactional=True)), 1, at, 0)

    commit({0: 10, 1: 10}, sequence=0)
    commit({2: 5})
    end(committed=True)
    commit({0: 99, 1: 99}, sequence=2)
    commit({2: 6})
    end(committed=False)
    commit({0: 500}, sequence=4)
    commit({2: 7})
    recorder.close(at)
    return {("t", 0): 10, ("t", 1): 10, ("t", 2): 7}
