"""The outcomes of an append to JetStream: stored, refused, or unknown, in which case the chain finds out whether it is stored."""

from __future__ import annotations

import pytest

from broker.stores.jetstream.chain import SHARED_BYTES_MAX
from broker.stores.jetstream.entry import parse_entry
from storage import AppendFailed, Fenced, Undecided
from tests.broker.stores.jetstream.fake_engine import ChainHarness


def test_appends_get_the_sequences_after_the_claim_in_order() -> None:
    log = ChainHarness()
    log.append(b"a", 2)
    log.append(b"b", 3)
    assert log.results == [2, 3]
    entries = [parse_entry(text) for text, _ in log.connection.entries[1:]]
    assert [(entry.epoch, entry.base_offset, entry.records) for entry in entries] == [(3, 0, 2), (3, 2, 3)]


def test_an_append_is_sent_when_the_previous_append_is_acknowledged() -> None:
    log = ChainHarness()
    log.connection.held = []
    log.append(b"a")
    log.append(b"b")
    assert log.payloads == [b"a"]
    log.connection.held[0]()
    assert log.results == [2]
    assert log.payloads == [b"a", b"b"]
    log.connection.held[1]()
    assert log.results == [2, 3]


def test_batches_that_wait_share_the_next_entry_up_to_its_limit() -> None:
    log = ChainHarness()
    log.connection.held = []
    log.append(b"a", 1)
    log.append(b"b", 2)
    log.append(b"c", 3)
    log.append(bytes(SHARED_BYTES_MAX), 1)
    for answer in range(3):
        log.connection.held[answer]()
    assert log.payloads == [b"a", b"bc", bytes(SHARED_BYTES_MAX)]
    assert log.results == [2, 3, 3, 4]
    entries = [parse_entry(text) for text, _ in log.connection.entries[1:]]
    assert [(entry.base_offset, entry.records) for entry in entries] == [(0, 1), (1, 5), (6, 1)]


def test_an_entry_that_was_sent_takes_no_more_batches() -> None:
    """The server may have stored the entry already, so its retry must have the same content."""
    log = ChainHarness()
    log.connection.acknowledges = False
    log.append(b"a")
    log.append(b"b")
    log.append(b"c")
    log.connection.acknowledges = True
    log.seconds(1.5)
    log.seconds(1.5)
    assert log.results == [2, 3, 3]
    assert log.payloads == [b"a", b"bc"]


def test_no_append_is_stored_after_the_claim_of_another_node() -> None:
    """The claim took the sequence of the first append. So the second append expects the right last sequence, and still must not be stored."""
    log = ChainHarness()
    log.connection.held = []
    log.connection.claim_by_another(epoch=4)
    log.append(b"a")
    log.append(b"b")
    log.connection.held[0]()
    assert [type(result) for result in log.results] == [Fenced, Fenced]
    assert log.payloads == [b""]


def test_a_claim_of_another_node_fences_the_writer_for_good() -> None:
    log = ChainHarness()
    log.connection.claim_by_another(epoch=4)
    log.append()
    log.append()
    assert [type(result) for result in log.results] == [Fenced, Fenced]
    assert [type(failure) for failure in log.failures] == [Fenced]
    assert len(log.connection.entries) == 2


def test_an_append_that_got_lost_is_sent_again_and_stored_once() -> None:
    log = ChainHarness()
    log.connection.delivers = False
    log.append(b"a")
    log.connection.delivers = True
    log.seconds(1.5)
    assert log.results == [2]
    assert log.payloads == [b"a"]


def test_an_append_whose_acknowledgement_got_lost_is_found_by_its_id() -> None:
    log = ChainHarness()
    log.connection.acknowledges = False
    log.append(b"a")
    log.append(b"b")
    log.connection.acknowledges = True
    log.seconds(1.5)
    log.seconds(1.5)
    assert log.results == [2, 3]
    assert log.payloads == [b"a", b"b"]


def test_an_unacknowledged_append_whose_sequence_another_node_took_is_undecided() -> None:
    log = ChainHarness()
    log.connection.delivers = False
    log.append(b"a")
    log.connection.delivers = True
    log.connection.claim_by_another(epoch=4)
    log.seconds(1.5)
    assert [type(result) for result in log.results] == [Undecided]
    assert [type(failure) for failure in log.failures] == [Fenced]
    assert log.payloads == [b""]


def test_an_append_after_a_lost_append_does_not_end_the_chain() -> None:
    log = ChainHarness()
    log.connection.delivers = False
    log.append(b"a")
    log.connection.delivers = True
    log.append(b"b")
    log.seconds(1.5)
    assert log.results == [2, 3]
    assert log.payloads == [b"a", b"b"]


def test_an_engine_without_a_leader_is_asked_again() -> None:
    log = ChainHarness()
    log.connection.error = {"code": 503, "err_code": 10008, "description": "JetStream system temporarily unavailable"}
    log.append(b"a")
    assert log.results == []
    log.connection.error = None
    log.seconds(0.2)
    assert log.results == [2]


def test_a_batch_larger_than_max_payload_fails_alone() -> None:
    log = ChainHarness()
    log.append(bytes(2 << 20))
    log.append(b"a")
    assert isinstance(log.results[0], AppendFailed)
    assert log.results[1:] == [2]
    assert log.chain.failure is None


def test_the_end_of_the_lease_fails_unacknowledged_appends() -> None:
    log = ChainHarness()
    log.connection.acknowledges = False
    log.append(b"a")
    log.chain.fail(Undecided("the lease is over"))
    log.connection.acknowledges = True
    log.seconds(5)
    assert [type(result) for result in log.results] == [Undecided]
    assert log.connection.copies == 1


def test_a_refusal_by_a_stream_that_lacks_acknowledged_entries_is_no_claim_and_is_suspected_at_once() -> None:
    log = ChainHarness()
    log.append(b"a")
    del log.connection.entries[1:]
    log.append(b"b")
    assert (log.results, log.suspected) == ([2], 1)
    assert log.chain.failure is None


def test_an_entry_that_was_removed_after_its_reply_was_lost_is_suspected() -> None:
    log = ChainHarness()
    log.connection.acknowledges = False
    log.append(b"a")
    log.connection.acknowledges = True
    log.connection.lacks = 2
    log.seconds(1.5)
    assert (log.results, log.suspected) == ([], 1)


def test_an_append_to_a_stream_without_a_leader_is_suspected() -> None:
    log = ChainHarness()
    log.connection.receives = False
    log.append(b"a")
    assert (log.results, log.suspected) == ([], 1)
    log.connection.receives = True
    log.seconds(1.5)
    assert (log.results, log.suspected) == ([2], 1)


@pytest.mark.usefixtures("planted_defect")
@pytest.mark.plain
def test_a_defect_in_the_timer_does_not_end_the_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    log = ChainHarness()
    log.connection.delivers = False
    log.append(b"a")
    log.connection.delivers = True
    with monkeypatch.context() as planted:
        planted.setattr(log.chain, "resend", lambda: 1 / 0)
        log.seconds(1.5)
    log.seconds(1.5)
    assert log.results == [2]


def test_an_entry_that_a_new_server_does_not_accept_is_not_sent_to_it() -> None:
    log = ChainHarness()
    log.connection.delivers = False
    log.append(bytes(100_000))
    log.append(bytes(10))
    log.connection.delivers = True
    log.connection.payload_max = 64 << 10
    log.seconds(1.5)
    assert [type(result) for result in log.results] == [Undecided, Undecided]
    assert "max_payload" in str(log.failures[0])
    assert (log.connection.copies, log.payloads) == (1, [])
