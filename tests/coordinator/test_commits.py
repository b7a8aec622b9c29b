"""OffsetCommit: section 14 of the conformance catalogue. Topics, authorization and versions are tested in tests/broker."""

from __future__ import annotations

import pytest

from coordinator import Commit
from coordinator.hold import BATCH_OVERHEAD_BYTES, facts_bytes
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequestPartition
from tests.coordinator.playbook import Play, row, scenario

T00 = ("t0", 0)


def commit_error(play: Play, generation: int, member: str, instance: str | None, version: int = 9) -> int:
    """The error code of a commit with exactly these fields."""
    topics = [("t0", [OffsetCommitRequestPartition(0, 1)])]
    commit = Commit("g", generation, play.id_of(member), instance, topics, unknown_group_error=69 if version >= 9 else 22)
    sent = play.commit_as_is(commit)
    assert sent.answered
    return int(sent.reply)


@scenario("OC-01")
def test_a_commit_without_a_generation_makes_a_simple_group(play: Play) -> None:
    play.commit(None, {T00: 42}).expect(ErrorCode.NONE)
    play.expect_records("offset")
    play.group_is(State.EMPTY, generation=0, members=[])
    assert play.group().protocol_type is None
    play.fetch().expect(42)


@pytest.mark.parametrize(("version", "code"), [row("OC-02", 9, ErrorCode.GROUP_ID_NOT_FOUND), row("OC-02", 8, ErrorCode.ILLEGAL_GENERATION)])
def test_a_commit_with_a_generation_does_not_make_a_group(play: Play, version: int, code: int) -> None:
    assert commit_error(play, 5, "m", None, version) == code
    play.group_is_absent()
    play.expect_records()


@scenario("OC-04")
def test_a_commit_without_a_generation_to_an_empty_group_ignores_member_ids(play: Play) -> None:
    play.one_dynamic().leave("a").expect(ErrorCode.NONE)
    assert commit_error(play, -1, "m", None) == ErrorCode.NONE
    assert commit_error(play, -1, "", "i") == ErrorCode.NONE
    assert commit_error(play, -1, "a", "ia") == ErrorCode.NONE


@scenario("OC-05")
def test_a_commit_with_a_generation_to_an_empty_group_is_refused(play: Play) -> None:
    play.one_dynamic().leave("a").expect(ErrorCode.NONE)
    assert commit_error(play, 0, "m", None) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_error(play, 2, "a", None) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("generation", "member", "instance", "code"),
    [
        row("OC-06", 0, "m", "i", ErrorCode.NONE),
        row("OC-06", 0, "m", None, ErrorCode.NONE),
        row("OC-06", 1, "m", "i", ErrorCode.ILLEGAL_GENERATION),
        row("OC-06", -1, "m", "i", ErrorCode.ILLEGAL_GENERATION),
        row("OC-06", -1, "m", None, ErrorCode.ILLEGAL_GENERATION),
        row("OC-06", -1, "", None, ErrorCode.UNKNOWN_MEMBER_ID),
        row("OC-06", -1, "", "i", ErrorCode.FENCED_INSTANCE_ID),
        row("OC-06", 0, "old", "i", ErrorCode.FENCED_INSTANCE_ID),
        row("OC-06", 0, "m", "unmapped", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits_during_the_join_phase(play: Play, generation: int, member: str, instance: str | None, code: int) -> None:
    play.join("m", instance="i").expect_parked()
    play.group_is(State.PREPARING, generation=0)
    assert commit_error(play, generation, member, instance) == code


@pytest.mark.parametrize(
    ("generation", "member", "instance", "code"),
    [
        row("OC-07", 1, "m", "i", ErrorCode.REBALANCE_IN_PROGRESS),
        row("OC-07", 1, "m", None, ErrorCode.REBALANCE_IN_PROGRESS),
        row("OC-07", 0, "m", "i", ErrorCode.ILLEGAL_GENERATION),
        row("OC-07", 1, "zz", "i", ErrorCode.FENCED_INSTANCE_ID),
        row("OC-07", 1, "m", "q", ErrorCode.UNKNOWN_MEMBER_ID),
        row("OC-07", -1, "", None, ErrorCode.UNKNOWN_MEMBER_ID),
        row("OC-07", -1, "m", None, ErrorCode.ILLEGAL_GENERATION),
        row("OC-07", -1, "", "i", ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_commits_between_join_and_sync_are_refused(play: Play, generation: int, member: str, instance: str | None, code: int) -> None:
    play.join("m", instance="i").expect_parked()
    play.after(3_000).group_is(State.COMPLETING, generation=1)
    assert commit_error(play, generation, member, instance) == code
    assert play.fetch_all() == {}


@pytest.mark.parametrize(
    ("generation", "member", "instance", "code"),
    [
        row("OC-08", 1, "m", "i", ErrorCode.NONE),
        row("OC-08", 1, "m", None, ErrorCode.NONE),
        row("OC-08", 1, "zz", None, ErrorCode.UNKNOWN_MEMBER_ID),
        row("OC-08", 1, "zz", "i", ErrorCode.FENCED_INSTANCE_ID),
        row("OC-08", 0, "m", "i", ErrorCode.ILLEGAL_GENERATION),
        row("OC-08", 1, "m", "unmapped", ErrorCode.UNKNOWN_MEMBER_ID),
        row("OC-08", -1, "m", None, ErrorCode.ILLEGAL_GENERATION),
        row("OC-08", -1, "", "i", ErrorCode.FENCED_INSTANCE_ID),
        row("OC-26", -1, "", None, ErrorCode.UNKNOWN_MEMBER_ID),  # an administrator, while the group lives
    ],
)
def test_commits_to_a_stable_group(play: Play, generation: int, member: str, instance: str | None, code: int) -> None:
    play.join("m", instance="i").expect_parked()
    play.after(3_000).sync("m", {"m": 1}).expect(ErrorCode.NONE)
    play.group_is(State.STABLE, generation=1)
    assert commit_error(play, generation, member, instance) == code
    assert play.fetch_all() == ({T00: 1} if code == ErrorCode.NONE else {})


@scenario("OC-09")
def test_an_id_that_has_not_joined_may_not_commit(play: Play) -> None:
    play.one_dynamic()
    play.join("p").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.commit("p", generation=1).expect(ErrorCode.UNKNOWN_MEMBER_ID)


@pytest.mark.parametrize(
    ("text", "count", "fits"),
    [
        row("OC-10", "m", 4_096, True),
        row("OC-10", "m", 4_097, False),
        row("OC-11", "\N{GRINNING FACE}", 2_048, True),
        row("OC-11", "\N{GRINNING FACE}", 2_049, False),
        row("OC-11", "\N{LATIN SMALL LETTER E WITH ACUTE}", 4_096, True),
        row("OC-11", "\N{LATIN SMALL LETTER E WITH ACUTE}", 4_097, False),
    ],
)
def test_metadata_is_counted_in_utf_16(play: Play, text: str, count: int, fits: bool) -> None:
    play.commit(None, {T00: 5}, metadata=text * count).expect(ErrorCode.NONE, too_large=[] if fits else [T00])
    if fits:
        play.expect_records("offset")
        play.fetch().expect(5, metadata=text * count)
    else:
        play.expect_records()
        play.fetch().expect(-1)


@scenario("OC-12")
def test_oversized_metadata_fails_only_its_own_partition(play: Play) -> None:
    play.commit(None, {("t0", 0): 5, ("t0", 1): 6}, metadata={("t0", 0): "m" * 4_097}).expect(ErrorCode.NONE, too_large=[("t0", 0)])
    (record,) = play.expect_records("offset")
    assert (record.topic, record.partition) == ("t0", 1)


@scenario("OC-13")
def test_no_metadata_is_empty_metadata(play: Play) -> None:
    play.commit(None, {T00: 5}, metadata=None)
    play.fetch().expect(5, metadata="")
    play.failover()
    play.fetch().expect(5, metadata="")


@scenario("OC-14")
def test_a_retention_is_stored_with_the_offset(play: Play) -> None:
    play.commit(None, {T00: 5}, retention=1_000)
    (record,) = play.expect_records("offset")
    assert record.value is not None
    assert record.value[:2] == b"\0\1"
    play.fetch().expect(5, epoch=-1, commit_ms=play.now, expire_ms=play.now + 1_000)


@scenario("OC-14")
@pytest.mark.parametrize("retention", [(1 << 63) - 1, -(1 << 63), 0, -2])
def test_any_retention_can_be_stored(play: Play, retention: int) -> None:
    """As in Kafka, where the sum of time and retention overflows: an offset with the largest retention expires with the next sweep."""
    play.load()  # sweeps are scheduled once the shard serves
    play.commit(None, {T00: 5}, retention=retention).expect(ErrorCode.NONE)
    play.expect_records("offset")
    play.after(play.config.offsets_retention_check_interval_ms)
    play.group_is_absent()


@pytest.mark.parametrize("retention", [1, 1_000])
def test_an_offset_with_a_retention_and_null_metadata_is_stored_with_empty_metadata(play: Play, retention: int) -> None:
    play.commit(None, {T00: 5}, retention=retention, metadata=None)
    play.fetch().expect(5, metadata="", expire_ms=play.now + retention)


@scenario("OC-15", "OF-11")
def test_a_leader_epoch_is_stored_with_the_offset(play: Play) -> None:
    play.commit(None, {T00: 5}, epoch=9)
    (record,) = play.expect_records("offset")
    assert record.value is not None
    assert record.value[:2] == b"\0\3"
    play.fetch().expect(5, epoch=9, commit_ms=play.now)


@scenario("OC-17")
def test_a_record_with_a_retention_has_no_room_for_the_leader_epoch(play: Play) -> None:
    play.commit(None, {T00: 5}, retention=1_000, epoch=9)
    play.expect_records("offset")
    play.fetch().expect(5, epoch=-1, expire_ms=play.now + 1_000)


@scenario("OC-20")
def test_offsets_may_belong_to_the_group_without_a_name(play: Play) -> None:
    play.commit(None, {T00: 5}, group="").expect(ErrorCode.NONE)
    play.fetch(group="").expect(5)


@scenario("OC-21")
def test_the_last_of_several_offsets_for_one_partition_counts(play: Play) -> None:
    twice = [("t0", [OffsetCommitRequestPartition(0, 5), OffsetCommitRequestPartition(0, 4)])]
    play.commit_as_is(Commit("g", -1, "", None, twice)).expect(ErrorCode.NONE)
    play.expect_records("offset", "offset")
    play.fetch().expect(4)
    play.failover()
    play.fetch().expect(4)


@scenario("OC-22", "HB-14")
def test_a_commit_renews_the_session(play: Play) -> None:
    play.one_static()
    play.at(9_999).commit("a").expect(ErrorCode.NONE)
    assert play.session_left("a") == 10_000


@scenario("OC-22")
def test_a_commit_whose_offsets_are_all_refused_still_renews_the_session(play: Play) -> None:
    play.one_static()
    play.at(9_999).commit("a", {T00: 5}, metadata="m" * 4_097).expect(ErrorCode.NONE, too_large=[T00])
    assert play.session_left("a") == 10_000


@scenario("OC-23")
def test_a_commit_between_join_and_sync_does_not_renew_the_session(play: Play) -> None:
    play.two_awaiting_assignment(session=10_000)
    play.at(5_000).commit("a").expect(ErrorCode.REBALANCE_IN_PROGRESS)
    assert play.session_left("a") == 5_000


@scenario("OC-25")
def test_an_administrator_resets_the_offsets_of_a_group_that_is_empty(play: Play) -> None:
    play.one_dynamic()
    play.commit("a", {T00: 42})
    play.leave("a").expect(ErrorCode.NONE)
    play.commit(None, {T00: 0}).expect(ErrorCode.NONE)
    play.fetch().expect(0)
    play.group_is(State.EMPTY, generation=2)


@scenario("OF-09")
def test_an_offset_fetch_after_a_commit_in_flight_waits_and_returns_the_new_offset(play: Play) -> None:
    """Unlike in Kafka, every fetch waits for the log, whether or not it requires stable offsets."""
    play.commit(None, {T00: 5})
    play.hold_appends()
    play.commit(None, {T00: 6}).expect_parked()
    fetched = play.fetch()
    fetched.expect_parked()
    play.confirm()
    fetched.expect(6)


@pytest.mark.parametrize("retention", [-1, 1_000])
def test_a_commit_fills_a_batch_to_the_byte_and_one_that_is_larger_is_refused_whole(play: Play, retention: int) -> None:
    offsets = {("t0", 0): 5, ("t0", 1): 6, ("u", 0): 7}
    play.commit(None, offsets, metadata="m", retention=retention).expect(ErrorCode.NONE)
    size = BATCH_OVERHEAD_BYTES + facts_bytes(play.log)
    for room, code in ((size, ErrorCode.NONE), (size - 1, ErrorCode.UNKNOWN_SERVER_ERROR)):
        other_play = Play()
        other_play.configure(batch_bytes_max=room)
        other_play.commit(None, offsets, metadata="m", retention=retention).expect(code)
        assert other_play.fetch_all() == ({} if code else offsets)
        other_play.close()


def test_oversized_metadata_and_other_errors_of_one_commit_are_reported_per_partition(play: Play) -> None:
    long = "m" * 4_097
    wrong = [("t0", 0), ("t0", 2), ("u", 0)]
    play.commit(None, {("t0", 0): 5, ("t0", 1): 6, ("t0", 2): 7, ("u", 0): 8}, metadata=dict.fromkeys(wrong, long)).expect(ErrorCode.NONE, too_large=wrong)
    assert play.fetch_all() == {("t0", 1): 6}
