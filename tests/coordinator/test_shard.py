"""A shard: its limits, the time that counts for each call, loading, and the abandoning of parked requests."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator import Commit, GroupConfig, JoinRequest, Leaver, Shard, SyncRequest
from coordinator.deadlines import NEVER
from coordinator.facts import group_key, offset_key, offset_key_prefix, offset_value, read_offset
from coordinator.shard import GROUPS_PER_STEP
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.kinds import NoteKind
from protocol.messages.offset_commit import OffsetCommitRequestPartition
from tests.coordinator.playbook import Play
from tests.coordinator.stage import T0

LONG = "x" * 32_768
LONGEST = "x" * 32_767


class Waiter:
    """Accepts a reply."""

    member_id = ""
    reply: Any = None
    assignment = b""

    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1

    def fail(self, error: int) -> None:
        self.released += 1


def opened(facts: list[tuple[bytes, bytes | None]] | None = None, now: int = 0, **config: Any) -> tuple[Shard, int]:
    """A shard that has replayed these facts, and the number of steps in which it opened their groups."""
    shard = Shard(GroupConfig(**config), iter(map(str, range(1, 1_000))).__next__)
    shard.clear()
    shard.replay(facts or [])
    return shard, 1 + sum(1 for _ in shard.open_groups(lambda: (now, now)))


def joining(member_id: str = "", group: str = "g", instance: str | None = None, session_ms: int = 10_000) -> JoinRequest:
    return JoinRequest(group, member_id, instance, "consumer", (("range", T0),), session_ms, 20_000, "c", "/127.0.0.1", needs_member_id=False)


# Names too long for a record.


@pytest.mark.parametrize(
    "how", [{"group": LONG}, {"client": LONG}, {"type": LONG}, {"protocols": (LONG,)}, {"instance": LONGEST}, {"client": LONGEST, "version": 3}]
)
def test_a_join_with_a_name_too_long_for_a_record_is_refused_without_a_group(play: Play, how: dict[str, Any]) -> None:
    play.join("a", **how).expect(ErrorCode.UNKNOWN_SERVER_ERROR, id="")
    group = how.get("group", "g")
    if group == LONG:
        play.group_is_absent(group)
        play.expect_records()
    else:
        play.group_is(State.EMPTY, members=[], pending=[])


def test_the_longest_storable_names_are_accepted(play: Play) -> None:
    play.join("a", group=LONGEST, instance="x" * 32_765).expect_parked()  # its id has a dash and one more character
    play.group_is(State.PREPARING, members=["a"], group=LONGEST)


def test_a_commit_to_a_group_name_too_long_for_a_record_is_refused(play: Play) -> None:
    play.commit(None, group=LONG).expect(ErrorCode.UNKNOWN_SERVER_ERROR)
    play.group_is_absent(LONG)
    play.commit(None, group=LONGEST).expect(ErrorCode.NONE)
    play.group_is(State.EMPTY, group=LONGEST)


def test_a_commit_with_a_topic_name_too_long_for_a_record_is_refused_whole(play: Play) -> None:
    play.commit(None, {("t0", 0): 1, (LONG, 0): 2}).expect(ErrorCode.UNKNOWN_SERVER_ERROR)
    play.group_is_absent()
    play.expect_records()


def test_generation_0_is_a_generation_and_makes_no_group(play: Play) -> None:
    play.commit("a", generation=0).expect(69)
    play.group_is_absent()
    play.commit("a", generation=-1).expect(ErrorCode.NONE)
    play.group_is(State.EMPTY)


# Times.


def test_each_call_uses_its_own_time() -> None:
    """Each call has its own times, without advance() between them; sessions use the monotonic time, `state_ms` and commits the wall time."""
    shard, _ = opened(group_initial_rebalance_delay_ms=0)
    shard.join(joining(), Waiter(), 1_000, 71_000)
    shard.advance(1_000, 71_000, 0)
    group = shard.groups["g"]
    (id,) = group.members
    assert (group.generation, group.members[id].deadline) == (1, 11_000)
    shard.sync(SyncRequest("g", 1, id, None, {id: b"A"}), Waiter(), 2_000, 72_000)
    assert (group.state_ms, group.members[id].deadline) == (72_000, 12_000)
    assert shard.heartbeat("g", 1, id, None, 3_000) == 0
    assert (group.members[id].seen_ms, group.members[id].deadline) == (3_000, 13_000)
    commit = Commit("g", 1, id, None, [("t0", [OffsetCommitRequestPartition(0, 5)])])
    assert shard.commit(commit, 4_000, 74_000) == 0
    assert (group.members[id].seen_ms, group.members[id].deadline) == (4_000, 14_000)
    assert read_offset(group.offsets["t0"].values[0]).commit_ms == 74_000
    assert shard.leave("g", [Leaver(id, None, None)], 5_000, 75_000) == [0]
    assert (group.state.name, group.state_ms) == ("EMPTY", 75_000)


@pytest.mark.parametrize(("gap", "late"), [(3_000, False), (3_001, True)])
def test_a_heartbeat_is_late_from_more_than_a_third_of_the_session_on(play: Play, gap: int, late: bool) -> None:
    play.one_dynamic(session=9_000)
    play.heartbeat("a").expect()
    play.after(gap).heartbeat("a").expect()
    play.heartbeat("a").expect()
    play.keep_alive("a").after(60_000)
    assert bool([note for note in play.notes if note.kind == NoteKind.HEARTBEATS]) == late


@pytest.mark.parametrize(("gap", "late"), [(3_000, False), (3_001, True)])
@pytest.mark.parametrize("api", ["heartbeat", "commit"])
def test_heartbeat_and_commit_are_late_only_after_a_third_of_the_session(play: Play, api: str, gap: int, late: bool) -> None:
    """Calls the shard directly, without the fast path for repeated requests."""
    play.one_dynamic(session=9_000)
    play.after(gap)
    shard, id = play._serving, play.id_of("a")
    if api == "heartbeat":
        assert shard.heartbeat("g", 1, id, None, play.now) == ErrorCode.NONE
    else:
        assert shard.commit(Commit("g", 1, id, None, []), play.now, play.wall) == ErrorCode.NONE
    play.keep_alive("a").after(70_000)
    assert bool([note for note in play.notes if note.kind == NoteKind.HEARTBEATS]) == late


def test_a_join_phase_begun_by_a_leave_counts_from_the_leave() -> None:
    shard, _ = opened(group_initial_rebalance_delay_ms=0)
    for _ in range(2):
        shard.join(joining(), Waiter(), 1_000, 71_000)
    shard.advance(1_000, 71_000, 0)
    group = shard.groups["g"]
    assert shard.leave("g", [Leaver(next(iter(group.members)), None, None)], 5_000, 75_000) == [0]
    assert (group.state.name, group.deadline) == ("PREPARING", 25_000)


def test_a_join_repeated_unchanged_is_evaluated_again_in_a_rebalance(play: Play) -> None:
    """A follower's new rebalance timeout applies from the next rebalance on, also if its JoinGroup is passed as the same object again."""
    play.two_static(rebalance=20_000)
    play.join("b", rebalance=99_000).expect(generation=1)
    play.join("a").expect_parked()
    play.join("b", rebalance=99_000).expect(generation=2)
    assert play.group().rebalance_timeout_ms == 99_000


def test_a_pending_id_cannot_be_used_by_a_static_member(play: Play) -> None:
    play.join("p").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.join("p", instance="ip").expect(ErrorCode.UNKNOWN_SERVER_ERROR, id="")


@pytest.mark.parametrize(("type", "protocol"), [("consumer", "other"), ("other", "range")])
def test_a_sync_that_names_another_protocol_is_refused(play: Play, type: str, protocol: str) -> None:
    play.two_static()
    play.sync("b", type="consumer", protocol="range").expect()
    play.sync("b", type=type, protocol=protocol).expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def test_refused_commits_to_a_missing_group_are_not_counted_for_its_successor(play: Play) -> None:
    play.commit("x", generation=5).expect(69)
    play.join("a", version=3).expect_parked()
    play.after(20_000)
    assert not [note for note in play.notes if note.kind == NoteKind.COMMIT_REFUSED]


def test_a_session_begun_by_a_load_counts_no_heartbeat_gap(play: Play) -> None:
    play.two_loaded()
    play.after(1_000).heartbeat("m0").expect()
    play.keep_alive("m0", "m1").after(60_000)
    assert not [note for note in play.notes if note.kind == NoteKind.HEARTBEATS]


# Begin and end.


@pytest.mark.parametrize(
    ("groups", "parts"),
    [(0, 1), (1, 1), (GROUPS_PER_STEP - 1, 1), (GROUPS_PER_STEP, 2), (2 * GROUPS_PER_STEP - 1, 2), (2 * GROUPS_PER_STEP, 3), (120, 3)],
)
def test_groups_are_opened_fifty_at_a_time(groups: int, parts: int) -> None:
    facts = [(offset_key(offset_key_prefix(f"g{number}", "t"), 0), offset_value(1, -1, b"", 1)) for number in range(groups)]
    shard, offset_parts = opened(list(facts))
    assert (len(shard.groups), offset_parts) == (groups, parts)


def test_offsets_that_outlive_a_group_belong_to_its_successor(play: Play) -> None:
    """Another writer may have stored a tombstone for the group, but none for its offsets."""
    offset = offset_key(offset_key_prefix("g", "t0"), 0), offset_value(7, -1, b"", play.now)
    for make in (lambda: play.join("a", version=3), lambda: play.commit(None, {("t1", 0): 1})):
        play.log.clear()
        play.ids.clear()
        play.load(offset, (group_key("g"), None))
        play.group_is_absent()
        make()
        assert play.fetch_all()[("t0", 0)] == 7


def test_loading_a_group_above_its_maximum_size_begins_a_rebalance(play: Play) -> None:
    play.configure(group_max_size=1)
    play.two_loaded()
    play.group_is(State.PREPARING)
    assert play.shard is not None
    assert not play.shard._out.notes


def test_a_shard_without_a_note_sink_serves() -> None:
    shard, _ = opened(group_initial_rebalance_delay_ms=0)
    waiter = Waiter()
    shard.join(joining(), waiter, 0, 0)
    shard.advance(0, 0, 0)
    shard.hold.take_batch(0)
    shard.hold.confirm(shard.hold.emitted)
    assert waiter.released == 1
    assert waiter.reply.generation == 1


def test_a_released_shard_answers_each_request_once() -> None:
    shard, _ = opened()
    waiters = [Waiter(), Waiter()]
    for waiter in waiters:
        shard.join(joining(), waiter, 0, 0)
    assert shard.wake_at != NEVER
    shard.abandon()
    assert shard.wake_at == NEVER
    assert [waiter.released for waiter in waiters] == [1, 1]
    assert not shard.groups
    shard.abandon()
    assert [waiter.released for waiter in waiters] == [1, 1]
    assert shard.heartbeat("g", 0, "1", None, 0) == ErrorCode.UNKNOWN_MEMBER_ID
