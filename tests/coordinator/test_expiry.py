"""Expiry of offsets and groups: section 17 of the conformance catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from coordinator import Commit, GroupConfig, Shard, expiry
from coordinator.deadlines import NEVER
from coordinator.expiry import GROUPS_PER_SWEEP_STEP
from coordinator.facts import deletions_fact, expiring_offset_value, group_key, offset_key, offset_key_prefix, offset_value, read_offset
from coordinator.hold import BATCH_OVERHEAD_BYTES, facts_bytes
from coordinator.states import State
from protocol.batch import facts_of
from protocol.errors import ErrorCode
from protocol.messages.consumer_offsets import GroupMetadataValue
from protocol.messages.kinds import NoteKind
from protocol.messages.offset_commit import OffsetCommitRequestPartition
from protocol.records import with_version
from tests.coordinator.playbook import Play, row, scenario

pytestmark = pytest.mark.once  # no dependence on the Python version

RETENTION = 100_000
SWEEP = 10_000
DAY = 24 * 3_600_000


@pytest.fixture
def play(play: Play) -> Play:
    """Retention of 100 s, a sweep every 10 s from the load of the shard on, and sessions of up to a day."""
    play.configure(offsets_retention_ms=RETENTION, offsets_retention_check_interval_ms=SWEEP, group_max_session_timeout_ms=DAY)
    play.load()
    return play


def age(play: Play, ms: int) -> Play:
    """Advance by this time, then to the end of the next sweep."""
    play.after(ms)
    return play.after(SWEEP)


def sweep_until(play: Play, moment: int) -> None:
    """Advance sweep by sweep to the last sweep before this moment."""
    while play.now + SWEEP < moment:
        play.after(SWEEP)


@scenario("EX-01")
def test_offsets_of_a_group_are_kept_until_it_has_been_empty_for_the_retention(play: Play) -> None:
    play.one_dynamic(session=DAY)
    play.commit("a", {("t0", 0): 5})
    play.after(3 * RETENTION)
    play.leave("a").expect(ErrorCode.NONE)
    emptied = play.now
    play.expect_records("offset", "empty group")
    sweep_until(play, emptied + RETENTION)
    play.after(emptied + RETENTION - 1 - play.now)
    play.fetch().expect(5)
    play.after(SWEEP)
    play.expect_records("offset tombstone", "group tombstone")
    play.group_is_absent()


@scenario("EX-01")
@pytest.mark.parametrize(("early_ms", "expires"), [(1, False), (0, True)])
def test_the_retention_ends_to_the_millisecond(play: Play, early_ms: int, expires: bool) -> None:
    """The sweep runs `early_ms` before the end of the retention."""
    play.at(0)
    play.after(early_ms)
    play.commit(None, {("t0", 0): 5})
    play.at(RETENTION)
    assert play.fetch_all() == ({} if expires else {("t0", 0): 5})


@scenario("EX-02")
def test_a_new_offset_of_a_group_empty_past_its_retention_expires_with_the_next_sweep(play: Play) -> None:
    play.one_dynamic(session=DAY)
    play.leave("a").expect(ErrorCode.NONE)
    play.commit(None, {("t0", 0): 5})
    play.at(RETENTION - SWEEP)
    play.commit(None, {("t0", 1): 6}).expect(ErrorCode.NONE)
    age(play, SWEEP)
    play.group_is_absent()


@scenario("EX-03")
def test_a_simple_group_lives_as_long_as_its_newest_commit(play: Play) -> None:
    play.commit(None, {("t0", 0): 5})
    play.at(50_000).commit(None, {("t0", 1): 6})
    play.at(RETENTION)
    play.expect_records("offset", "offset", "offset tombstone")
    assert play.fetch_all() == {("t0", 1): 6}
    play.at(RETENTION + 50_000)
    play.expect_records("offset tombstone", "group tombstone")
    play.group_is_absent()


def old_offsets(play: Play, **options: object) -> Play:
    """A Stable group whose member subscribes to t0, with offsets of t0 and t1 as old as the retention."""
    play.one_dynamic(session=DAY, rebalance=DAY, **options)
    play.commit("a", {("t0", 0): 5, ("t1", 0): 6})
    play.expect_records("offset", "offset")
    return play


@scenario("EX-04")
def test_offsets_of_unsubscribed_topics_expire_in_a_live_group(play: Play) -> None:
    age(old_offsets(play), RETENTION)
    (record,) = play.expect_records("offset tombstone")
    assert record.topic == "t1"
    assert play.fetch_all() == {("t0", 0): 5}
    play.group_is(State.STABLE)


@pytest.mark.parametrize(("joins", "state"), [row("EX-05", "b", State.PREPARING), row("EX-05", "a", State.COMPLETING)])
def test_nothing_expires_during_a_rebalance(play: Play, joins: str, state: State) -> None:
    old_offsets(play)
    play.join(joins, version=3)
    play.group_is(state)
    age(play, RETENTION)
    play.group_is(state)
    play.expect_records()


@pytest.mark.parametrize("how", [row("EX-06", {"type": "connect"}), row("EX-07", {"metadata": b"?"})])
def test_nothing_expires_in_a_live_group_whose_topics_are_unknown(play: Play, how: dict[str, object]) -> None:
    """The topics are unknown if the protocol type is not `consumer`, or a subscription cannot be read."""
    age(old_offsets(play, **how), RETENTION)
    play.expect_records()


@scenario("EX-08")
@pytest.mark.parametrize("topic", ["t0", "t1"])
def test_an_offset_with_its_own_retention_expires_unless_its_topic_is_subscribed(play: Play, topic: str) -> None:
    play.one_dynamic(session=DAY)
    play.commit("a", {(topic, 0): 5}, retention=1_000)
    play.after(SWEEP)
    assert play.fetch_all() == ({("t0", 0): 5} if topic == "t0" else {})


@scenario("EX-08")
def test_an_offsets_own_retention_may_exceed_the_default(play: Play) -> None:
    play.commit(None, {("t0", 0): 5}, retention=2 * RETENTION)
    play.at(RETENTION + SWEEP)
    assert play.fetch_all() == {("t0", 0): 5}
    play.at(2 * RETENTION)
    play.group_is_absent()


@scenario("EX-09")
def test_an_empty_group_without_offsets_ends_with_the_first_sweep(play: Play) -> None:
    play.one_dynamic(session=DAY)
    play.leave("a").expect(ErrorCode.NONE)
    play.expect_records("empty group")
    play.after(SWEEP)
    play.expect_records("group tombstone")
    play.group_is_absent()


@scenario("EX-10", "JR-10")
def test_a_pending_member_id_does_not_keep_a_group_from_expiring(play: Play) -> None:
    play.join("p", session=60_000).expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.expect_records("new group")
    play.after(SWEEP)
    play.expect_records("group tombstone")
    play.group_is_absent()
    play.join("p").expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.after(60_000)  # past the deadline of the pending id, which went with the group


@scenario("EX-11")
def test_a_group_stays_until_its_last_offset_expires(play: Play) -> None:
    play.commit(None, {("t0", 0): 5}, retention=1_000)
    play.commit(None, {("t0", 1): 6})
    play.expect_records("offset", "offset")
    play.after(SWEEP)
    play.expect_records("offset tombstone")
    play.group_is(State.EMPTY)
    assert play.fetch_all() == {("t0", 1): 6}


@scenario("EX-12")
@pytest.mark.parametrize("version", [0, 1])
def test_without_a_stored_empty_since_time_retention_counts_from_the_commit(play: Play, version: int) -> None:
    group_record = with_version(GroupMetadataValue("consumer", 3, None, None, -1, []), version)
    prefix = offset_key_prefix("g", "t0")
    play.load(
        (group_key("g"), group_record),
        (offset_key(prefix, 0), offset_value(5, -1, b"", play.now - RETENTION)),
        (offset_key(prefix, 1), offset_value(6, -1, b"", play.now)),
    )
    play.after(SWEEP)
    assert play.fetch_all() == {("t0", 1): 6}


@scenario("EX-13")
def test_a_deleted_topics_offsets_are_removed_from_all_groups(play: Play) -> None:
    play.one_dynamic()
    play.commit("a", {("t0", 0): 1, ("t0", 1): 2, ("t1", 0): 3})
    play.commit(None, {("t0", 0): 4}, group="simple")
    play.expect_records("offset", "offset", "offset", "offset")
    play.forget_topics("t0")
    records = play.expect_records("offset tombstone", "offset tombstone", "offset tombstone")
    assert [(record.group, record.topic, record.partition) for record in records] == [("g", "t0", 0), ("g", "t0", 1), ("simple", "t0", 0)]
    assert play.fetch_all() == {("t1", 0): 3}
    play.group_is(State.STABLE)
    play.group_is(State.EMPTY, group="simple")


def test_the_number_of_the_last_applied_deletion_survives_a_load(play: Play) -> None:
    play.one_dynamic()
    play.note_deletions(7)
    play.note_deletions(9)
    (_, record) = play.expect_records("deletions", "deletions")
    fact = deletions_fact(9)
    assert record.value == fact[1]
    shard = opened_shard()
    assert shard.deletions_applied == 0
    for facts in ([deletions_fact(7), fact], [fact]):
        shard.clear()
        shard.replay(facts)
        for _ in shard.open_groups(lambda: (0, 0)):
            pass
        assert shard.deletions_applied == 9
    shard.clear()
    assert shard.deletions_applied == 0


TOMBSTONE_BYTES = facts_bytes([(offset_key(offset_key_prefix("g", "t0"), 0), None)])


def batches_of(shard: Shard) -> list[int]:
    """Take all batches that wait to be appended; return the number of facts in each."""
    batches = []
    while shard.hold.has_untaken:
        batches.append(len(list(facts_of(bytes(shard.hold.take_batch(0))))))
    return batches


def opened_shard(retention_ms: int = 5_000, **config: Any) -> Shard:
    """A shard that is open since 0 and sweeps every 10 s."""
    shard = Shard(GroupConfig(offsets_retention_ms=retention_ms, offsets_retention_check_interval_ms=10_000, **config), lambda: "id")
    for _ in shard.open_groups(lambda: (0, 0)):
        pass
    return shard


def commit(shard: Shard, group: str = "g", topic: str = "t0", partitions: Sequence[int] = (0,), at: int = 1_000) -> None:
    offsets = [OffsetCommitRequestPartition(partition, 5) for partition in partitions]
    assert shard.commit(Commit(group, -1, "", None, [(topic, offsets)]), at, at) == 0


def with_offsets(batch_bytes_max: int) -> Shard:
    """A group with ten offsets, half of them of each topic, all committed at 1,000."""
    shard = opened_shard(batch_bytes_max=batch_bytes_max)
    for partition in range(10):
        commit(shard, topic="t0" if partition % 2 else "t1", partitions=[partition])
    batches_of(shard)
    return shard


@pytest.mark.parametrize(("spare", "batches"), [(0, [4, 4, 2]), (-1, [3, 3, 3, 1]), (TOMBSTONE_BYTES - 1, [4, 4, 2]), (TOMBSTONE_BYTES, [5, 5])])
def test_offsets_of_deleted_topics_fill_batches_to_the_byte(spare: int, batches: list[int]) -> None:
    shard = with_offsets(BATCH_OVERHEAD_BYTES + 4 * TOMBSTONE_BYTES + spare)
    shard.forget_topics({"t0", "t1"}, 2_000, 2_000)
    assert batches_of(shard) == batches
    assert not shard.groups["g"].offsets


@pytest.mark.parametrize(("spare", "batches"), [(0, [4, 4, 3]), (-1, [3, 3, 3, 2]), (TOMBSTONE_BYTES, [5, 5, 1])])
def test_expired_offsets_fill_batches_to_the_byte_and_the_group_ends_last(spare: int, batches: list[int]) -> None:
    shard = with_offsets(BATCH_OVERHEAD_BYTES + 4 * TOMBSTONE_BYTES + spare)
    shard.advance(10_000, 10_000, 0)
    assert batches_of(shard) == batches
    assert not shard.groups


def test_an_unfinished_sweep_continues_a_millisecond_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of a sweep has a limit of groups and one of offsets, and ends after the group that reaches either."""
    monkeypatch.setattr(expiry, "GROUPS_PER_SWEEP_STEP", 3)
    monkeypatch.setattr(expiry, "OFFSETS_PER_SWEEP_STEP", 4)
    for offsets, groups_per_step in ((1, 3), (2, 2), (3, 2), (4, 1)):  # offsets of each group, groups that a step then checks
        shard = opened_shard()
        for number in range(7):
            commit(shard, f"g{number}", partitions=range(offsets))
        remaining = 7
        moment = 10_000
        while remaining > groups_per_step:
            remaining -= groups_per_step
            for _ in range(2):
                shard.advance(moment, moment, 0)
                assert len(shard.groups) == remaining
            moment += 1
        shard.advance(moment, moment, 0)
        assert not shard.groups
        assert shard.wake_at == (moment + 10_000) // 100 * 100


def test_a_sweep_in_steps_checks_each_group_once_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "GROUPS_PER_SWEEP_STEP", 1)
    shard = opened_shard(50_000)
    for number in range(3):
        commit(shard, f"g{number}", at=9_000)
    for moment in range(10_000, 10_003):
        assert shard.wake_at <= moment
        shard.advance(moment, moment, 0)
    assert len(shard.groups) == 3
    assert shard.wake_at == 20_000


@pytest.mark.parametrize("state", ["stable", "completing", "preparing"])
def test_a_sweep_ignores_groups_with_members_and_no_offsets(play: Play, state: str) -> None:
    if state == "completing":
        play.two_awaiting_assignment(session=DAY, rebalance=DAY)
    else:
        play.two_static(session=DAY, rebalance=DAY)
    if state == "preparing":
        play.join("a").expect_parked()
    play._ready()
    play.after(3 * SWEEP)
    play.expect_records()
    play.group_is({"stable": State.STABLE, "completing": State.COMPLETING, "preparing": State.PREPARING}[state])


def test_a_group_deleted_between_two_steps_of_a_sweep_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "GROUPS_PER_SWEEP_STEP", 1)
    shard = opened_shard()
    for number in range(4):
        commit(shard, f"g{number}")
    shard.advance(10_000, 10_000, 0)
    assert list(shard.groups) == ["g0", "g1", "g2"]
    assert shard.delete("g2", 10_000, 10_000) == 0
    shard.advance(10_001, 10_001, 0)
    assert list(shard.groups) == ["g0"]
    shard.advance(10_002, 10_002, 0)
    assert not shard.groups


@scenario("EX-14")
def test_an_expiry_that_the_log_refuses_happens_with_the_next_sweep(play: Play) -> None:
    """The failed append makes the shard replay its log, so the offset is back, and the next sweep finds it."""
    play.commit(None, {("t0", 0): 5}, retention=1_000)
    play.hold_appends()
    play.after(SWEEP)
    play.group_is_absent()
    held = play.delete()
    held.expect_parked()
    play.fail_log(ErrorCode.NOT_COORDINATOR)
    held.expect(ErrorCode.NOT_COORDINATOR)
    play.fetch().expect(5, expire_ms=play.now - SWEEP + 1_000)
    play.after(SWEEP)
    play.group_is_absent()


def test_a_sweep_over_many_groups_runs_in_parts_and_visits_each_group_once(play: Play) -> None:
    names = [f"g{number}" for number in range(2 * GROUPS_PER_SWEEP_STEP + 500)]
    play.load(*[(offset_key(offset_key_prefix(name, "t0"), 0), expiring_offset_value(1, b"", 0, play.now + 1)) for name in names])
    play.after(SWEEP)
    assert len(play.listed()) == GROUPS_PER_SWEEP_STEP + 500
    play.after(1)
    assert len(play.listed()) == 500
    play.after(1)
    assert play.listed() == []
    assert len(play.expect_records(*["offset tombstone", "group tombstone"] * len(names))) == 2 * len(names)


# A wrong wall clock.


def test_nothing_expires_while_the_wall_clock_is_unsteady(play: Play) -> None:
    play.commit(None, {("t0", 0): 5})
    play.steady_since_ms = -1
    play.skew_ms = 8 * DAY
    age(play, 2 * RETENTION)
    play.fetch().expect(5)
    play.skew_ms = 0
    play.steady_since_ms = play.now
    age(play, SWEEP)
    play.group_is_absent()


def test_a_briefly_wrong_clock_expires_no_offset(play: Play) -> None:
    play.commit(None, {("t0", 0): 5})
    play.steady_since_ms = -1
    for skew_ms in (8 * DAY, -8 * DAY):
        play.skew_ms = skew_ms
        play.after(2 * SWEEP)
    play.skew_ms = 0
    play.after(SWEEP)
    play.steady_since_ms = play.now
    play.after(SWEEP)
    play.fetch().expect(5)
    age(play, RETENTION)
    play.group_is_absent()


@pytest.mark.parametrize("retention", [-1, RETENTION])
def test_an_offset_from_the_future_ages_from_the_correction_of_the_clock(play: Play, retention: int) -> None:
    """Its retention begins when the clock is corrected: the offset is neither kept forever nor expired at once."""
    play.after(10 * RETENTION)
    play.skew_ms = 8 * DAY
    play.commit(None, {("t0", 0): 5}, retention=retention, version=2 if retention > 0 else 9)
    play.skew_ms = 0
    play.steady_since_ms = play.now
    sweep_until(play, play.now + RETENTION)
    assert play.fetch_all()
    play.after(2 * SWEEP)
    play.group_is_absent()


def test_a_group_emptied_in_the_future_ages_from_the_correction_of_the_clock(play: Play) -> None:
    play.one_dynamic(session=DAY)
    play.commit("a", {("t0", 0): 5})
    play.after(2 * RETENTION)
    play.skew_ms = 8 * DAY
    play.leave("a").expect(ErrorCode.NONE)
    play.skew_ms = 0
    play.steady_since_ms = play.now
    sweep_until(play, play.now + RETENTION)
    play.fetch().expect(5)
    play.after(2 * SWEEP)
    play.group_is_absent()


def test_an_offset_from_the_future_ages_after_a_restart_too(play: Play) -> None:
    play.skew_ms = 8 * DAY
    play.commit(None, {("t0", 0): 5})
    play.skew_ms = 0
    play.failover()
    play.steady_since_ms = play.now
    age(play, RETENTION - 2 * SWEEP)
    play.fetch().expect(5)
    age(play, SWEEP)
    play.group_is_absent()


def test_a_commit_slightly_ahead_of_the_clock_keeps_its_timestamp(play: Play) -> None:
    """A clock step of at most a minute does not count as a wrong clock."""
    play.after(10 * RETENTION)
    play.skew_ms = 60_000
    play.commit(None, {("t0", 0): 5})
    play.skew_ms = -60_000
    age(play, SWEEP)
    play.fetch().expect(5)
    age(play, RETENTION + 120_000)
    play.group_is_absent()


def test_commits_and_notes_have_the_wall_time_and_durations_do_not(play: Play) -> None:
    play.skew_ms = 5 * DAY
    play.commit(None, {("t1", 0): 7}, group="h")
    (value,) = [value for _, _, value in play._serving.groups["h"].all_offsets()]
    assert read_offset(value).commit_ms == play.now + 5 * DAY
    play.one_dynamic(session=DAY)
    play.skew_ms = -5 * DAY
    play.after(1_000)
    play.leave("a").expect(ErrorCode.NONE)
    assert play.group().state_ms == play.now - 5 * DAY
    removal = play.expect_note(NoteKind.MEMBER_GONE)
    assert removal.at_ms == play.now - 5 * DAY
    assert removal.body.since_heartbeat_ms == 1_000  # type: ignore[attr-defined]


# Deadlines of deleted groups, and timestamps ahead of the clock.


def test_a_deleted_group_leaves_the_wheel_at_once(play: Play) -> None:
    play.one_dynamic(session=DAY)
    play.leave("a").expect(ErrorCode.NONE)
    group = play.group()
    play.delete().expect(ErrorCode.NONE)
    wheel = play._serving.deadlines
    assert group not in [item for slot in wheel._slots.values() for item in slot]
    assert group.scheduled_at == NEVER


@pytest.mark.parametrize(("ahead_ms", "expires"), [(120_000, False), (120_001, True)])
def test_a_commit_up_to_two_minutes_ahead_keeps_its_timestamp(play: Play, ahead_ms: int, expires: bool) -> None:
    """A timestamp further ahead is from a wrong clock.

    The age then counts from when the clock became steady, which is longer ago than the retention in this test: the offset expires.
    """
    play.steady_since_ms = play.now - 2 * RETENTION
    sweep_at = play.now + SWEEP
    play.load((offset_key(offset_key_prefix("h", "t0"), 0), offset_value(5, -1, b"", sweep_at + ahead_ms)))
    play.after(SWEEP)
    assert play.fetch_all(group="h") == ({} if expires else {("t0", 0): 5})
