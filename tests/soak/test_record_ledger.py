"""Each guarantee for records, broken once in a made-up history: a checker that has never fired is not yet a test."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from tests.soak.record_ledger import Mark, RecordLedger


@pytest.fixture
def ledger() -> RecordLedger:
    """A ledger in which producers a and b have each sent ten records to partition 0."""
    ledger = RecordLedger(2)
    ledger.sent(0, Mark("a", 0), 10)
    ledger.sent(0, Mark("b", 0), 10)
    return ledger


def check_single_violation(ledger: RecordLedger, words: str) -> None:
    assert len(ledger.violations) == 1, ledger.violations
    assert words in ledger.violations[0]


def read(ledger: RecordLedger, *marks: tuple[str, int], begin: int = 0) -> None:
    for offset, (producer, number) in enumerate(marks, begin):
        ledger.read(0, offset, Mark(producer, number))


def test_records_of_two_producers_may_mix_and_some_may_not_be_acknowledged(ledger: RecordLedger) -> None:
    ledger.acknowledged(0, Mark("a", 0), 2, 0)
    read(ledger, ("a", 0), ("a", 1), ("b", 0), ("a", 2), ("b", 1))
    ledger.acknowledged(0, Mark("a", 2), 1, 3)
    ledger.high_watermark(0, 5, ledger.end(0))
    assert not ledger.violations
    assert ledger.all_read([5, 0])


def test_acknowledged_or_read_records_must_be_below_the_high_watermark(ledger: RecordLedger) -> None:
    ledger.acknowledged(0, Mark("a", 0), 2, 0)
    assert not ledger.all_read([1, 0])
    ledger.high_watermark(0, 2, ledger.end(0))
    assert not ledger.violations
    ledger.high_watermark(0, 1, ledger.end(0))
    check_single_violation(ledger, "lost records: partition 0 ends at 1, 2 was acknowledged or read")


def test_a_record_that_was_read_must_stay_although_unacknowledged(ledger: RecordLedger) -> None:
    read(ledger, ("a", 0))
    ledger.high_watermark(0, 0, ledger.end(0))
    check_single_violation(ledger, "lost records")


def test_another_record_at_the_offset_of_an_acknowledged_one_is_a_loss(ledger: RecordLedger) -> None:
    ledger.acknowledged(0, Mark("a", 0), 1, 0)
    read(ledger, ("b", 0))
    check_single_violation(ledger, "lost record: Mark(producer='a', number=0) was acknowledged at 0")


def test_an_acknowledgement_for_the_offset_of_another_record_is_found(ledger: RecordLedger) -> None:
    read(ledger, ("b", 0))
    ledger.acknowledged(0, Mark("a", 0), 1, 0)
    check_single_violation(ledger, "two at one offset")


def test_two_records_acknowledged_at_one_offset_are_found_without_a_read(ledger: RecordLedger) -> None:
    ledger.acknowledged(0, Mark("a", 0), 2, 0)
    ledger.acknowledged(0, Mark("b", 0), 1, 1)
    check_single_violation(ledger, "two at one offset")


def test_a_record_that_is_stored_twice_is_found(ledger: RecordLedger) -> None:
    read(ledger, ("a", 0), ("a", 1), ("a", 0))
    check_single_violation(ledger, "twice: Mark(producer='a', number=0) is at 2 of partition 0 again")


def test_a_missing_record_is_found_by_the_next_record(ledger: RecordLedger) -> None:
    read(ledger, ("a", 0), ("a", 2))
    check_single_violation(ledger, "left out: Mark(producer='a', number=2) is at 1 of partition 0, without number 1 before it")


def test_offsets_of_a_producer_grow_with_its_numbers(ledger: RecordLedger) -> None:
    ledger.acknowledged(0, Mark("a", 2), 2, 4)
    ledger.acknowledged(0, Mark("a", 0), 2, 1)  # this acknowledgement arrives after the read, as after a kill
    ledger.acknowledged(0, Mark("a", 4), 1, 6)
    assert not ledger.violations
    ledger.acknowledged(0, Mark("a", 5), 1, 3)
    check_single_violation(ledger, "order: Mark(producer='a', number=5) is at 3 of partition 0, and its producer's records before number 5 end at offset 7")


def test_an_earlier_record_after_a_later_one_is_found(ledger: RecordLedger) -> None:
    ledger.acknowledged(0, Mark("a", 2), 2, 4)
    ledger.acknowledged(0, Mark("a", 0), 2, 6)
    check_single_violation(ledger, "order: ")


def test_a_record_that_was_never_sent_is_invented(ledger: RecordLedger) -> None:
    read(ledger, ("c", 0))
    check_single_violation(ledger, "invented record")


def test_a_record_that_is_read_again_must_be_the_same(ledger: RecordLedger) -> None:
    read(ledger, ("a", 0), ("b", 0))
    read(ledger, ("a", 0), ("b", 0))
    assert not ledger.violations
    read(ledger, ("b", 0))
    check_single_violation(ledger, "changed record")


def test_a_missing_offset_is_a_gap(ledger: RecordLedger) -> None:
    read(ledger, ("a", 0), begin=1)
    check_single_violation(ledger, "a gap")


def test_an_id_is_assigned_to_one_producer_only(ledger: RecordLedger) -> None:
    ledger.producer_id_assigned("a", (7, 0))
    ledger.producer_id_assigned("a", (7, 0))
    ledger.producer_id_assigned("b", (7, 1))
    assert not ledger.violations
    ledger.producer_id_assigned("b", (7, 0))
    check_single_violation(ledger, "producer id assigned twice")


def test_records_acknowledged_before_a_restart_must_be_read_after_it(ledger: RecordLedger) -> None:
    ledger.acknowledged(0, Mark("a", 0), 2, 0)
    assert ledger.read_up_to_the_restart([0, 0])
    ledger.restarted()
    ledger.acknowledged(0, Mark("a", 2), 2, 2)
    assert not ledger.read_up_to_the_restart([1, 0])
    assert ledger.read_up_to_the_restart([2, 0])


@pytest.mark.parametrize(
    ("api", "code"), [("Produce", 56), ("Produce", 46), ("Produce", 59), ("Produce", -1), ("Fetch", 1), ("Fetch", 3), ("InitProducerId", -1)]
)
def test_a_final_error_code_is_a_violation(ledger: RecordLedger, api: str, code: int) -> None:
    ledger.answered("a", api, code)
    check_single_violation(ledger, "unexpected code")


@pytest.mark.parametrize("api", ["Produce", "Fetch"])
def test_a_partition_that_is_not_open_yet_is_no_fault(ledger: RecordLedger, api: str) -> None:
    ledger.answered("a", api, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not ledger.violations
    assert ledger.counts == {f"{api} 6": 1}
