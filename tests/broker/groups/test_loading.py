"""Loading of offsets partitions: one after the other, in slices; a failure concerns only its partition."""

from __future__ import annotations

from itertools import pairwise

import pytest

from broker.groups.group_journal import LOADING, NOT_OURS, SERVING, SUSPENDED
from broker.groups.journal import RETRY_MS_MIN
from broker.groups.shards import PROGRESS_SECONDS, SLICE_SECONDS, UNREADABLE_RETRY_SECONDS
from broker.runtime.contain import DEFECTS
from coordinator import Fact
from coordinator.consumer.changes import TargetChange
from coordinator.consumer.facts import fact_of
from coordinator.facts import offset_key, offset_key_prefix, offset_value
from coordinator.policies.door import resolve
from coordinator.states import State
from protocol.errors import ErrorCode, ProtocolError
from simulator.loop import TimerHandle
from storage import AppendFailed, DamagedLog, Fenced, HeldBy, LogId, Undecided, Unreadable
from tests.coordinator.playbook import T0
from tests.support.group_logs import CONFIG, SESSION_MS, START_MS, GroupWorld, make_stable_group

DAMAGE = DamagedLog("/data/__consumer_offsets-0/00000000000000000000.log", 7, "a batch's checksum is wrong")


def commits(group: str, count: int) -> list[Fact]:
    prefix = offset_key_prefix(group, "topic")
    return [(offset_key(prefix, number), offset_value(number, -1, b"", START_MS)) for number in range(count)]


def state(world: GroupWorld) -> list[int]:
    return [journal.refusal for journal in world.shards.journals]


def test_new_partitions_serve_at_once() -> None:
    world = GroupWorld(50, load=False)
    assert set(state(world)) == {NOT_OURS}
    world.shards.load_all()
    assert set(state(world)) == {SERVING}
    assert not world.shards.progress


def test_a_partition_loads_in_slices_and_the_loop_runs_between_them() -> None:
    world = GroupWorld(2, load=False)
    for number in range(20):
        world.log().stored.append(commits(f"group-{number}", 3))
    assert SLICE_SECONDS <= 0.01  # heartbeats wait no longer than that
    world.slice_seconds = SLICE_SECONDS / 4  # the time of each slice, by the clock
    world.shards.load_all()
    turns = 0
    while world.shards.journals[0].refusal:
        assert world.journal.refusal == LOADING
        world.loop.pass_once()
        turns += 1
    assert 3 <= turns <= 6
    assert world.shards.journals[0].replayed == world.shards.journals[0].offsets == 60


@pytest.mark.parametrize("failed", ["before the replay", "during the replay"])
@pytest.mark.parametrize(("failure", "refusal"), [(Fenced("another node has claimed the log"), NOT_OURS), (Undecided("the lease has ended"), SUSPENDED)])
def test_a_partition_whose_log_fails_while_it_loads_is_not_served(failed: str, failure: AppendFailed, refusal: int) -> None:
    world = GroupWorld(load=False)
    world.log().stored += [commits(f"group-{number}", 3) for number in range(20)]
    world.slice_seconds = SLICE_SECONDS / 4
    served: list[int] = []
    world.journal.on_serving = lambda journal: served.append(journal.partition)
    if failed == "before the replay":
        world.log().fail(failure)
    world.shards.load_all()
    world.loop.pass_once()
    assert world.journal.refusal == LOADING
    if failed == "during the replay":
        world.log().fail(failure)
    world.loop.run()
    assert world.journal.refusal == refusal
    assert served == []
    assert world.journal.owns_log is (refusal == SUSPENDED)
    if refusal == SUSPENDED:
        assert world.journal.refusal_reason == str(failure)
        world.loop.pass_ms(RETRY_MS_MIN)
        world.complete_recovery()
        assert world.journal.refusal == SERVING
        assert world.journal.offsets == 60


def test_a_failure_that_a_log_does_not_report_is_found_at_the_end_of_the_load() -> None:
    world = GroupWorld()
    world.log().fail(Undecided("reported"))
    world.loop.pass_ms(RETRY_MS_MIN)
    world.log().failed(Undecided("while it is suspended"))
    world.complete_recovery()
    assert world.journal.refusal == SERVING
    world.log().failure = Undecided("never reported")
    world.fail_step()
    assert world.journal.refusal == SUSPENDED
    assert world.journal.refusal_reason == "the log failed while it was read"


def test_loaded_partitions_serve_while_others_load() -> None:
    world = GroupWorld(3, load=False)
    world.store.waiting = True
    world.shards.load_all()
    assert state(world) == [LOADING] * 3
    assert world.shards.progress == "0 of 3 partitions loaded"
    world.store.open()
    world.loop.run()
    assert state(world) == [SERVING, LOADING, LOADING]
    assert world.shards.progress == "1 of 3 partitions loaded"
    assert world.shards.progress
    assert world.store.acquired == [LogId("__consumer_offsets", 0), LogId("__consumer_offsets", 1)]  # one at a time
    for _ in range(2):
        world.store.open()
        world.loop.run()
    assert (world.shards.progress, world.loaded) == ("", 1)


@pytest.mark.parametrize("topic", ["t0", "other"])
def test_a_topic_change_during_loading_causes_the_rebalance_after_loading(topic: str) -> None:
    config = CONFIG._replace(default_policies=resolve({"topics.watch": "true"}))
    world = GroupWorld(config=config)
    make_stable_group(world, metadata=T0)
    restarted = GroupWorld(load=False, config=config)
    restarted.store.logs = world.store.logs
    restarted.store.waiting = True
    restarted.shards.load_all()
    assert restarted.journal.refusal == LOADING
    restarted.shards.topic_changed(topic)
    restarted.loop.run()
    restarted.store.open()
    restarted.loop.run()
    assert restarted.journal.refusal == SERVING
    assert restarted.journal.shard.groups["g"].state is (State.PREPARING if topic == "t0" else State.STABLE)


def test_loaded_members_have_a_full_session() -> None:
    world = GroupWorld()
    member_id = make_stable_group(world)
    world.loop.pass_ms(SESSION_MS - 100)
    restarted = GroupWorld(load=False)
    restarted.store.logs = world.store.logs
    restarted.shards.load_all()
    restarted.loop.pass_ms(SESSION_MS - 100)
    assert restarted.journal.shard.heartbeat("g", 1, member_id, "i", restarted.clock.tick()) == ErrorCode.NONE
    restarted.loop.pass_ms(SESSION_MS + 200)
    assert restarted.journal.shard.heartbeat("g", 1, member_id, "i", restarted.clock.tick()) == ErrorCode.UNKNOWN_MEMBER_ID


def group_in(world: GroupWorld, partition: int) -> str:
    return next(name for name in map(str, range(1000)) if world.shards.journal_of(name).partition == partition)


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (Unreadable(str(DAMAGE), True), "partition 0 (cannot be read: 00000000000000000000.log is damaged at byte 7"),
        (HeldBy("process 7"), "partition 0 (cannot be read: it is held by process 7)"),
    ],
)
def test_a_partition_that_cannot_be_opened_does_not_affect_others(result: HeldBy | Unreadable, line: str) -> None:
    world = GroupWorld(3, load=False)
    world.store.results[LogId("__consumer_offsets", 0)] = result
    world.shards.load_all()
    world.loop.pass_ms(10 * UNREADABLE_RETRY_SECONDS * 1000)
    assert state(world) == [NOT_OURS, SERVING, SERVING]
    assert world.shards.progress.startswith(line)
    assert "/data" not in world.shards.progress
    assert world.loaded == 1
    assert len(world.store.acquired) == 3


@pytest.mark.parametrize(
    ("damage", "advice"),
    [
        (DAMAGE, "restore the file from a backup"),
        (ProtocolError("a key of version -1"), "start the version that wrote it"),
        (ZeroDivisionError("a defect"), "defect"),
    ],
)
def test_a_partition_that_cannot_be_replayed_does_not_affect_others(damage: Exception, advice: str) -> None:
    world = GroupWorld(2, load=False)
    world.log().stored.append(commits("g", 3))
    world.log().damage = damage
    world.load_all()
    assert state(world) == [NOT_OURS, SERVING]
    assert world.shards.progress.startswith("partition 0 (cannot be read: ")
    assert advice in world.shards.progress
    assert not world.journal.shard.groups


def test_loading_is_retried_after_a_read_error() -> None:
    world = GroupWorld(2, load=False)
    world.store.results[LogId("__consumer_offsets", 0)] = Unreadable("/data/__consumer_offsets-0: Input/output error", False)
    world.load_all()
    assert state(world) == [NOT_OURS, SERVING]
    del world.store.results[LogId("__consumer_offsets", 0)]
    group = group_in(world, 0)
    world.log().stored.append(commits(group, 3))
    world.log().unreadable = True  # it opens, but cannot be read
    world.loop.pass_ms(UNREADABLE_RETRY_SECONDS * 1000)
    assert state(world) == [NOT_OURS, SERVING]
    world.log().unreadable = False
    world.loop.pass_ms(UNREADABLE_RETRY_SECONDS * 1000)
    assert state(world) == [SERVING, SERVING]
    assert world.offset(group) == 0


def test_loading_a_loaded_or_loading_partition_has_no_effect() -> None:
    world = GroupWorld(2, load=False)
    world.store.waiting = True
    for _ in range(3):
        world.load_first()
    world.store.open()
    world.loop.run()
    world.load_first()
    assert state(world) == [SERVING, NOT_OURS]
    assert world.recorded_notes.changes == [(0, "LOADED")]


def test_no_partition_is_loaded_after_the_stop() -> None:
    world = GroupWorld(2, load=False)
    world.store.waiting = True
    world.shards.load_all()
    world.shards.stop()
    world.store.open()
    world.loop.run()
    assert state(world) == [LOADING, LOADING]
    assert len(world.store.acquired) == 1


def test_loading_progress_is_logged_periodically(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    moments: list[float] = []

    def say(event: str, **values: object) -> None:
        lines.append(str(values.get("progress", event)))
        moments.append(world.loop.time())

    monkeypatch.setattr("broker.groups.shards.log.info", say)
    world = GroupWorld(2, load=False)
    for number in range(10):
        world.log().stored.append(commits(f"group-{number}", 3))
    world.slice_seconds = PROGRESS_SECONDS / 4
    world.load_all()
    assert lines[0] == "0 of 2 partitions loaded"
    assert lines[-1] == "offsets loaded"
    assert len(lines) < 12
    assert min(later - earlier for earlier, later in pairwise(moments[:-1])) == PROGRESS_SECONDS


def test_a_defect_in_a_load_slice_refuses_only_its_partition_until_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    world = GroupWorld(3)
    for number in (0, 1):
        world.shards.journals[number].unload(lambda: None)

    def raising(log: LogId, done: object) -> None:
        monkeypatch.undo()
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(world.store, "acquire", raising)
    defects = DEFECTS.count
    for number in (0, 1):
        world.shards.load(number)
    world.loop.run()
    assert DEFECTS.count == defects + 1
    assert state(world) == [NOT_OURS, SERVING, SERVING]
    assert world.shards.progress == "partition 0 (cannot be read: there is a defect in this version)"
    world.loop.pass_ms(14_999)
    assert world.shards.progress
    world.loop.pass_ms(1)
    assert not world.shards.progress


def test_several_suspended_partitions_are_reported_by_the_first_and_a_number() -> None:
    world = GroupWorld(4, load=False)
    world.store.waiting = True
    world.shards.load_all()
    for number, partition in enumerate((0, 1, 2)):
        world.store.results[LogId("__consumer_offsets", partition)] = HeldBy(f"process {number}")
        world.store.open()
        world.loop.run()
        more = f" and {number} more" if number else ""
        assert world.shards.progress == f"0 of 4 partitions loaded; partition 0 (cannot be read: it is held by process 0){more}"


def test_a_released_partition_is_not_retried() -> None:
    world = GroupWorld(1, load=False)
    world.store.results[LogId("__consumer_offsets", 0)] = Unreadable("Input/output error", False)
    world.load_all()
    world.unload_first()
    world.loop.pass_ms(60_000)
    assert (state(world), len(world.store.acquired)) == ([NOT_OURS], 1)


def fire(timer: TimerHandle) -> None:
    assert timer.handle.call is not None
    timer.handle.call(*timer.handle.arguments)


@pytest.mark.parametrize("begun", [False, True])
def test_a_partition_requested_twice_is_read_once(begun: bool) -> None:
    """The partition waits for a reload after a defect, is released, loads, and has a second defect: two timers are set."""
    world = GroupWorld()
    for _ in range(2):
        world.fail_step()
    world.unload_first()
    world.load_first()
    world.journal.handle_defect()
    world.log().stored += [commits("g", 3), commits("g", 4)]
    reads = world.log().reads
    world.slice_seconds = SLICE_SECONDS  # it is read in slices
    world.loop.advance(500 / 1000)  # both are due
    first, second = [timer for timer in world.loop.timers if timer.when() <= world.loop.time()]
    fire(first)
    if begun:
        world.loop.pass_once()
    fire(second)
    world.loop.run()
    assert (world.journal.refusal, world.journal.replayed, world.log().reads) == (SERVING, 7, reads + 1)


@pytest.mark.parametrize("waits", ["after a defect", "for its disk"])
def test_a_partition_waiting_for_its_reload_does_not_delay_the_stop(waits: str) -> None:
    world = GroupWorld(load=False)
    if waits == "for its disk":
        world.store.results[LogId("__consumer_offsets", 0)] = Unreadable("Input/output error", False)
    world.load_all()
    if waits == "after a defect":
        for _ in range(2):
            world.fail_step()
    begun, reads = world.begun, world.log().reads
    assert world.journal.refusal
    world.store.results.clear()
    world.shards.stop()
    world.loop.pass_ms(60_000)
    assert world.journal.refusal
    assert (world.begun, world.loaded, world.log().reads) == (begun, begun, reads)


class LogLines:
    """The log lines about loading: the event, and its values."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []
        for level in ("info", "error"):
            monkeypatch.setattr(f"broker.groups.shards.log.{level}", lambda event, **values: self.lines.append((event, values)))


def test_the_begin_and_end_of_loading_are_logged_with_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = LogLines(monkeypatch)
    world = GroupWorld(3, load=False)
    world.log(0).stored.append(commits("g", 3))
    world.log(1).stored += [commits("h", 2), commits("i", 1)]
    world.store.waiting = True
    for number in range(3):
        world.shards.load(number)
    assert (world.begun, world.loaded) == (1, 0)
    for _ in range(3):
        world.loop.pass_ms(1_000)
        world.store.open()
    world.loop.run()
    assert (world.begun, world.loaded) == (1, 1)
    assert lines.lines == [("offsets loaded", {"partitions": 3, "groups": 3, "offsets": 6, "ms": 3_000})]
    assert [journal.load_ms for journal in world.shards.journals] == [1_000] * 3
    lines.lines.clear()
    world.shards.journals[2].handle_defect()
    world.loop.run()
    assert (world.begun, world.loaded, lines.lines) == (2, 2, [])  # no record was read
    world.shards.journals[1].handle_defect()
    world.loop.run()
    assert lines.lines == [("offsets loaded", {"partitions": 1, "groups": 2, "offsets": 3, "ms": 0})]


@pytest.mark.parametrize(
    ("result", "retries"),
    [
        (HeldBy("process 7"), "after a restart"),
        (Unreadable("/data/x is damaged", True), "after a restart"),
        (Unreadable("Input/output error", False), "in 15 s"),
    ],
)
def test_a_load_failure_is_logged_with_its_reason_and_retry_time(
    monkeypatch: pytest.MonkeyPatch, result: HeldBy | Unreadable, retries: str
) -> None:
    lines = LogLines(monkeypatch)
    world = GroupWorld(1, load=False)
    world.store.results[LogId("__consumer_offsets", 0)] = result
    world.load_all()
    reason = result.reason if isinstance(result, Unreadable) else "it is held by process 7"
    assert lines.lines == [("partition of groups cannot be read", {"log": "__consumer_offsets-0", "reason": reason, "again": retries})]


@pytest.mark.parametrize(
    ("damage", "is_retried"), [(DAMAGE, False), (ProtocolError("a key of version -1"), False), (ZeroDivisionError("a defect"), False), (OSError(5, "I/O"), True)]
)
def test_only_read_errors_are_retried_automatically(damage: Exception, is_retried: bool) -> None:
    world = GroupWorld(1, load=False)
    world.log().stored.append(commits("g", 3))
    world.log().damage = damage
    defects = DEFECTS.count
    world.load_all()
    assert world.log().reads == 1
    assert DEFECTS.count == defects + isinstance(damage, ZeroDivisionError)
    assert DEFECTS.count == defects or ", an offsets partition failed to load: ZeroDivisionError: a defect" in DEFECTS.last
    world.log().damage = None
    world.loop.pass_ms(60_000)
    assert (world.journal.refusal == SERVING, world.log().reads) == (is_retried, 1 + is_retried)


def test_a_defect_at_the_end_of_a_load_refuses_the_partition_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    world = GroupWorld(2, load=False)
    defects = DEFECTS.count

    def raising(*arguments: object) -> None:
        monkeypatch.undo()
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(world.recorded_notes, "write_change", raising)
    world.load_all()
    assert DEFECTS.count == defects + 1
    assert ", an offsets partition failed to load: ZeroDivisionError: planted" in DEFECTS.last
    assert state(world) == [NOT_OURS, SERVING]
    assert world.shards.progress == "partition 0 (cannot be read: there is a defect in this version)"
    world.loop.pass_ms(UNREADABLE_RETRY_SECONDS * 1000)
    assert state(world) == [SERVING, SERVING]


def test_loaded_members_are_counted_over_all_partitions() -> None:
    world = GroupWorld(3)
    assert world.shards.member_count == 0
    for number in range(3):
        for instance in ("i", "j") if number else ("i",):
            world.join(group_in(world, number), instance=instance)
    assert world.shards.member_count == 5


def test_a_defect_in_the_callback_of_loading_is_counted_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = GroupWorld(2)
    defects = DEFECTS.count

    def raising() -> None:
        monkeypatch.undo()
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(world.shards, "_loaded", raising)
    world.fail_step()
    assert (DEFECTS.count, state(world)) == (defects + 1, [SERVING, SERVING])
    world.shards.journals[1].handle_defect()
    world.loop.run()
    assert (DEFECTS.count, state(world), world.loaded) == (defects + 1, [SERVING, SERVING], 2)


def test_one_line_names_the_groups_of_which_only_assignments_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[str, object]] = []
    monkeypatch.setattr("broker.groups.shards.log.warning", lambda event, **fields: lines.append((event, fields)))
    world = GroupWorld(1, load=False)
    world.log().stored.append([fact_of(f"group-{number}", TargetChange("member", {})) for number in range(7)])
    world.log().stored.append(commits("group-0", 3))
    world.shards.load_all()
    world.loop.run()
    assert state(world) == [SERVING]
    fields = {"log": "__consumer_offsets-0", "groups": 7, "examples": [f"group-{number}" for number in range(5)]}
    assert lines == [("assignments of members that are not in the log are ignored", fields)]
    assert [group.id for group in world.journal.shard.all_groups()] == ["group-0"]
