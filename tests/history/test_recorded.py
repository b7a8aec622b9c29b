"""Rebalances of a group without notes: what two of its records tell, and what they do not."""

from __future__ import annotations

from coordinator.facts import group_key
from history import GroupRecord, RebalancesMissing, moves_of, read_group_record, story_of
from history.inferred import InferenceCache
from history.newer import NewerRecord, beside_newer
from history.recorded import RecordedCauses
from protocol.messages.consumer_offsets import MemberMetadata
from tests.cli.group_members import assignment
from tests.coordinator.playbook import group_record
from tests.coordinator.stage import T0

BEGIN_MS = 1_700_000_000_000


def member(id: str, *partitions: int) -> MemberMetadata:
    return MemberMetadata(id, None, id, f"/{id}", 300_000, 45_000, T0, assignment({"t0": partitions}))


def record(generation: int, *members: MemberMetadata) -> GroupRecord:
    at_ms = BEGIN_MS + generation * 60_000
    read = read_group_record("g", generation, at_ms, 0, group_key("g"), group_record(generation, members, state_ms=at_ms))
    assert read is not None
    return read


def missing_of(*records: GroupRecord, complete: bool) -> list[RebalancesMissing]:
    entries = story_of("g", [], records, from_start=True, records_complete=complete)
    return [entry for entry in entries if isinstance(entry, RebalancesMissing)]


def causes_of(*records: GroupRecord, whole: bool = True) -> RecordedCauses:
    causes = RecordedCauses(InferenceCache({}), lambda first, last: whole)
    for each in records:
        causes.generations.add(each)
    return causes


FORMED, GROWN, SHRUNK = record(1, member("a", 0, 1)), record(2, member("a", 0), member("b", 1)), record(3, member("b", 0, 1))


def test_records_of_consecutive_generations_are_one_rebalance_each_with_its_cause() -> None:
    entries = missing_of(FORMED, GROWN, SHRUNK, complete=True)
    causes = causes_of(FORMED, GROWN, SHRUNK)
    assert [(entry.from_generation, entry.to_generation, entry.is_one) for entry in entries] == [(0, 1, True), (1, 2, True), (2, 3, True)]
    inferred = [causes.of(entry) for entry in entries]
    assert [known and (known.cause, known.confidence) for known in inferred] == [("formation", "strong"), ("new_member", "strong"), ("member_gone", "weak")]
    assert [[(move.partition[1], move.before and move.before.member_id) for move in moves_of(entry) or ()] for entry in entries] == [
        [(0, None), (1, None)],
        [(1, "a")],
        [(0, "a")],
    ]


def test_the_owners_before_the_first_record_that_compaction_left_are_unknown() -> None:
    first, second = missing_of(GROWN, SHRUNK, complete=False)
    causes = causes_of(GROWN, SHRUNK)
    assert (first.to_generation, first.is_one, moves_of(first), causes.of(first)) == (2, False, None, None)
    assert second.is_one
    assert causes.of(second) is not None


def test_a_cause_is_weak_if_records_are_missing_in_between() -> None:
    entries = missing_of(FORMED, GROWN, complete=True)
    inferred = causes_of(FORMED, GROWN, whole=False).of(entries[1])
    assert inferred is not None
    assert (inferred.cause, inferred.confidence) == ("new_member", "weak")
    assert inferred.evidence.endswith("; records between them are missing")


def test_a_tombstone_before_records_of_a_newer_protocol_is_no_deletion() -> None:
    tombstone = GroupRecord(5, BEGIN_MS, None)
    deleted, back = beside_newer([tombstone, record(7)], [NewerRecord("consumer", 6, BEGIN_MS + 1)])
    assert (deleted.taken_over, back.newer_since_ms) == (True, BEGIN_MS + 1)
    (alone,) = beside_newer([tombstone], [])
    assert not alone.taken_over
