"""What two group records and the commits around them tell about a rebalance without notes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from coordinator.facts import group_key
from history import GroupRecord, read_group_record
from history.commits import NearbyCommits
from history.inferred import MAX_POLL_INTERVAL, infer
from history.stalls import stall_bounds
from protocol.messages.consumer_offsets import MemberMetadata
from tests.cli.group_members import assignment
from tests.coordinator.playbook import group_record
from tests.coordinator.stage import T0

BEGIN_MS = 1_700_000_000_000
SESSION_MS, POLL_MS = 45_000, 300_000
GAP_MS = 5_000  # between two commits of a partition


def member(id: str, *partitions: int, static: bool = False) -> MemberMetadata:
    return MemberMetadata(id, f"i{id}" if static else None, id, f"/{id}", POLL_MS, SESSION_MS, T0, assignment({"t0": partitions}))


def record(generation: int, at_ms: int, *members: MemberMetadata) -> GroupRecord:
    read = read_group_record("g", generation, at_ms, 0, group_key("g"), group_record(generation, members, state_ms=at_ms))
    assert read is not None
    return read


def commits(last: Mapping[int, int], first: Mapping[int, int] = {}) -> NearbyCommits:
    names = {f"t0-{number}": ms for number, ms in last.items()}
    return NearbyCommits(names, {f"t0-{number}": ms for number, ms in first.items()}, dict.fromkeys(names, GAP_MS))


@pytest.mark.parametrize(
    ("silent_ms", "cause", "polled_late"),
    [
        (GAP_MS, "member_left", False),
        (SESSION_MS + GAP_MS, "session_expired", False),
        (SESSION_MS + GAP_MS + SESSION_MS // 3, "session_expired", False),
        (2 * SESSION_MS, "member_gone", False),  # it had nothing to commit before it crashed, or left
        (POLL_MS // 2, "member_gone", False),
        (POLL_MS, "member_left", True),
        (POLL_MS + GAP_MS, "member_left", True),
        (2 * POLL_MS, "member_gone", False),
    ],
)
def test_a_member_without_commits_for_the_poll_interval_left(silent_ms: int, cause: str, polled_late: bool) -> None:
    """A client whose application does not poll keeps its session until max.poll.interval.ms ends, then leaves."""
    end_ms = BEGIN_MS + 3 * POLL_MS
    before, after = record(1, BEGIN_MS, member("a", 0), member("b", 1)), record(2, end_ms, member("a", 0, 1))
    inferred = infer(before, after, commits({0: end_ms - 1_000, 1: end_ms - silent_ms}))
    assert (inferred.cause, inferred.strong, MAX_POLL_INTERVAL in inferred.evidence) == (cause, False, polled_late)
    assert [gone.member_id for gone in inferred.expired] == (["b"] if cause == "session_expired" else [])
    assert inferred.trigger_member is not None
    assert inferred.trigger_member.member_id == "b"


def test_without_commits_of_other_members_the_length_of_a_silence_tells_no_poll_interval() -> None:
    """The join phase may be a part of the silence."""
    end_ms = BEGIN_MS + 3 * POLL_MS
    before, after = record(1, BEGIN_MS, member("a"), member("b", 1)), record(2, end_ms, member("a", 1))
    for silent_ms in (SESSION_MS + GAP_MS, POLL_MS, 2 * POLL_MS):
        assert infer(before, after, commits({1: end_ms - silent_ms})).cause == "member_gone"
    assert infer(before, after, commits({1: end_ms - GAP_MS})).cause == "member_left"


@pytest.mark.parametrize("poll_ms", [SESSION_MS, SESSION_MS + 10_000, SESSION_MS + SESSION_MS // 3])
def test_a_poll_interval_about_as_long_as_the_session_cannot_be_told_from_it(poll_ms: int) -> None:
    end_ms = BEGIN_MS + 3 * POLL_MS
    before, after = record(1, BEGIN_MS, member("a", 0), member("b", 1)), record(2, end_ms, member("a", 0, 1))
    assert before.stored is not None
    for stored in before.stored.members:
        stored.rebalance_timeout = poll_ms
    around = commits({0: end_ms - 1_000, 1: end_ms - max(poll_ms, SESSION_MS) - GAP_MS})
    assert infer(before, after, around).cause == "member_gone"


@pytest.mark.parametrize("quiet_ms", [SESSION_MS, SESSION_MS + GAP_MS, 2 * SESSION_MS, POLL_MS, 20 * POLL_MS])
@pytest.mark.parametrize("others_ms", [0, SESSION_MS - GAP_MS, SESSION_MS, SESSION_MS + GAP_MS])
def test_a_close_in_a_group_that_commits_nothing_any_more_is_not_told_from_an_expiry(quiet_ms: int, others_ms: int) -> None:
    """All members committed every five seconds, long ago; perhaps the others a little longer."""
    begin_ms, end_ms = BEGIN_MS, BEGIN_MS + 30 * POLL_MS
    before, after = record(1, begin_ms, member("a", 0), member("b", 1)), record(2, end_ms, member("a", 0, 1))
    last_ms = end_ms - quiet_ms - others_ms - SESSION_MS
    assert infer(before, after, commits({0: last_ms + others_ms, 1: last_ms})).cause == "member_gone"


def test_only_partitions_with_regular_commits_until_the_last_one_tell_the_usual_gap() -> None:
    """Partition 1 had a burst of commits an hour ago; since then its owner commits partition 2 every 90 seconds."""
    end_ms = BEGIN_MS + 30 * POLL_MS
    before, after = record(1, BEGIN_MS, member("a", 0), member("b", 1, 2)), record(2, end_ms, member("a", 0, 1, 2))
    around = commits({0: end_ms - 1_000, 1: end_ms - 12 * POLL_MS, 2: end_ms - SESSION_MS - GAP_MS})
    assert infer(before, after, around._replace(usual_gap={**around.usual_gap, "t0-2": 90_000})).cause == "member_gone"


@pytest.mark.parametrize(("before_ms", "cause"), [(GAP_MS, "session_expired"), (POLL_MS, "member_gone")])
def test_a_member_without_a_commit_since_its_assignment_expired_only_if_its_partitions_were_committed_until_then(before_ms: int, cause: str) -> None:
    end_ms = BEGIN_MS + SESSION_MS + GAP_MS
    before, after = record(1, BEGIN_MS, member("a", 0), member("b", 1)), record(2, end_ms, member("a", 0, 1))
    assert infer(before, after, commits({0: end_ms - 1_000, 1: BEGIN_MS - before_ms})).cause == cause


@pytest.mark.parametrize(("static", "cause"), [(True, "member_gone"), (False, "member_left")])
def test_a_static_member_without_silence_may_have_been_removed(static: bool, cause: str) -> None:
    end_ms = BEGIN_MS + POLL_MS
    before, after = record(1, BEGIN_MS, member("a", 0), member("b", 1, static=static)), record(2, end_ms, member("a", 0, 1))
    inferred = infer(before, after, commits({0: end_ms - 1_000, 1: end_ms - 1_000}))
    assert (inferred.cause, inferred.expired) == (cause, [])
    assert ("an administrator removed the instance id" in inferred.evidence) == static


def test_a_silence_of_several_rebalances_does_not_count_in_each() -> None:
    around = commits({0: BEGIN_MS, 1: BEGIN_MS}, {0: BEGIN_MS + 60_000, 1: BEGIN_MS + 60_000})
    assert stall_bounds(["t0-0", "t0-1"], 10, None, 6_000, around) == (20, 12_000)
    assert stall_bounds(["t0-0", "t0-1"], 10, 4_000, 6_000, around) == (20, 8_000)
    assert stall_bounds(["t0-0", "t0-1"], 10, None, 600_000, around) == (20, 130_000)
    assert stall_bounds(["t0-0", "t0-1"], 10, None, 600_000, commits({})) == (20, None)  # the group may have been stable for most of the time
