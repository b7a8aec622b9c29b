"""What every store for several nodes must keep: at most one node writes a log, and the next one finds all that was acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import AppendFailed, HeldBy, LogId, Unreadable
from tests.stores.jetstream_nodes import over_jetstream
from tests.stores.nodes import Nodes, NodesOverOsDisk, NodesOverSimDisk, append, append_to_topic

LOG = LogId("__consumer_offsets", 3)
OTHER = LogId("__consumer_offsets", 4)
NOTES = LogId("__coordinator_notes", 3)
TOPIC = LogId("orders", 0)


STORES = [
    "simulated disk",
    "directory",
    pytest.param("jetstream", marks=pytest.mark.jetstream),
    pytest.param("jetstream, three servers", marks=pytest.mark.jetstream),
]


@pytest.fixture(params=STORES)
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nodes]:
    if request.param == "simulated disk":
        yield NodesOverSimDisk()
    elif request.param == "directory":
        yield NodesOverOsDisk(tmp_path)
    else:
        yield from over_jetstream(request.getfixturevalue("one_server" if request.param == "jetstream" else "three_servers"))


@pytest.fixture(params=["always", "interval"])
def flush(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_an_owned_log_keeps_what_was_appended(nodes: Nodes, flush: str) -> None:
    node = nodes.start(1, flush)
    log = node.own(LOG)
    assert [append(node, log, b"a"), append(node, log, b"b")] == [0, 1]
    assert node.keys(log) == [b"a", b"b"]


def test_only_one_of_two_claimants_gets_a_log(nodes: Nodes) -> None:
    first, second = nodes.start(1), nodes.start(2)
    first.own(LOG)
    assert second.acquire(LOG) == HeldBy("node 1")
    second.own(OTHER)
    assert first.acquire(OTHER) == HeldBy("node 2")


def test_the_view_of_every_node_names_the_owner_and_its_epoch(nodes: Nodes) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    assert first.store.view().epoch(LOG) == second.store.view().epoch(LOG) == log.epoch
    before = second.store.view().version
    first.release(LOG)
    assert second.store.view().version != before
    assert second.own(LOG).epoch > log.epoch


def test_a_released_log_is_another_nodes_with_all_its_records_at_a_newer_epoch(nodes: Nodes, flush: str) -> None:
    first, second = nodes.start(1, flush), nodes.start(2, flush)
    log = first.own(LOG)
    append(first, log, b"a")
    first.release(LOG)
    taken = second.own(LOG)
    assert second.keys(taken) == [b"a"]
    assert taken.epoch > log.epoch
    assert first.acquire(LOG) == HeldBy("node 2")


def test_the_log_of_a_killed_node_is_another_nodes_with_all_its_records(nodes: Nodes, flush: str) -> None:
    first, second = nodes.start(1, flush), nodes.start(2, flush)
    log = first.own(LOG)
    append(first, log, b"a")
    nodes.kill(first)
    taken = second.own(LOG)
    assert second.keys(taken) == [b"a"]
    assert taken.epoch > log.epoch
    assert append(second, taken, b"b") == 1


def test_a_stale_writer_is_refused_after_a_take_over(nodes: Nodes, flush: str) -> None:
    first, second = nodes.start(1, flush), nodes.start(2, flush)
    stale = first.own(LOG)
    append(first, stale, b"a")
    first.release(LOG)
    taken = second.own(LOG)
    assert not stale.usable()
    assert isinstance(append(first, stale, b"stale"), AppendFailed)
    append(second, taken, b"b")
    assert second.keys(taken) == [b"a", b"b"]
    nodes.kill(second)
    assert first.keys(first.own(LOG)) == [b"a", b"b"]


def test_a_log_goes_round_many_owners_and_epochs_only_grow(nodes: Nodes, flush: str) -> None:
    epochs = []
    for turn in range(9):
        node = nodes.start(turn % 3 + 1, flush)
        log = node.own(LOG)
        assert len(node.keys(log)) == turn
        assert append(node, log, b"%d" % turn) == turn
        epochs.append(log.epoch)
        if turn % 4 == 0:
            nodes.kill(node)
        elif turn % 4 == 1:
            node.stop()
        else:
            node.release(LOG)
            nodes.kill(node)
    assert epochs == sorted(set(epochs))


def test_batches_carry_the_epoch_of_their_owner(nodes: Nodes) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    nodes.kill(first)
    taken = second.own(LOG)
    assert second.keys(taken) == [b"a"]
    append(second, taken, b"b")
    owned = second.store.owned(LOG)
    assert owned is not None
    assert [owned.records.epoch_at(0), owned.records.epoch_at(1)] == [log.epoch, taken.epoch]


def test_notes_go_with_the_offsets_of_their_partition(nodes: Nodes) -> None:
    first, second = nodes.start(1), nodes.start(2)
    assert isinstance(first.acquire(NOTES), HeldBy)
    first.own(LOG)
    notes = first.own(NOTES)
    append(first, notes, b"note")
    assert isinstance(second.acquire(NOTES), HeldBy)
    first.release(LOG)
    assert isinstance(first.acquire(NOTES), HeldBy)
    second.own(LOG)
    assert second.keys(second.own(NOTES)) == [b"note"]


def test_a_node_that_starts_again_has_what_it_wrote(nodes: Nodes, flush: str) -> None:
    first = nodes.start(1, flush)
    log = first.own(LOG)
    append(first, log, b"a")
    nodes.kill(first)
    again = nodes.start(1, flush)
    assert again.store.view().owner(LOG) is None
    taken = again.own(LOG)
    assert again.keys(taken) == [b"a"]
    assert taken.epoch > log.epoch


# Logs of topics.


@pytest.mark.parametrize("way", ["released", "stopped"])
def test_a_log_that_its_node_hands_over_has_not_failed(nodes: Nodes, way: str) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log, topic = first.own(LOG), first.own_topic(TOPIC)
    assert not isinstance(topic, HeldBy | Unreadable)
    append(first, log, b"a")
    append_to_topic(first, topic, b"a")
    failures: list[AppendFailed] = []
    log.watch(failures.append)
    topic.watch(failures.append)
    if way == "stopped":
        first.stop()
    else:
        first.release(LOG)
        first.release(TOPIC)
    assert second.own(LOG).epoch > log.epoch
    taken = second.own_topic(TOPIC)
    assert not isinstance(taken, HeldBy | Unreadable)
    assert taken.epoch > topic.epoch
    assert failures == []


def test_the_log_of_a_topic_has_one_owner(nodes: Nodes) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own_topic(TOPIC)
    assert not isinstance(log, HeldBy | Unreadable)
    assert append_to_topic(first, log, b"a") == 0
    assert second.own_topic(TOPIC) == HeldBy("node 1")
    nodes.kill(first)
    taken = second.own_topic(TOPIC)
    assert not isinstance(taken, HeldBy | Unreadable)
    assert taken.records.next_offset == 1
    assert taken.epoch > log.epoch


def test_deleted_records_stay_deleted_with_the_next_owner(nodes: Nodes) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own_topic(TOPIC)
    assert not isinstance(log, HeldBy | Unreadable)
    for _ in range(4):
        append_to_topic(first, log, b"a")
    log.delete_before(3)
    saved: list[object] = []
    first.topics.save_start_offsets({TOPIC: 3}, lambda failure: saved.append(failure is None))
    assert first.wait(lambda: saved) == [True]
    nodes.kill(first)
    taken = second.own_topic(TOPIC)
    assert not isinstance(taken, HeldBy | Unreadable)
    assert taken.records.start_offset == 3
    nodes.kill(second)
    third = nodes.start(3).own_topic(TOPIC)
    assert not isinstance(third, HeldBy | Unreadable)
    assert third.records.start_offset == 3


def test_a_topic_of_the_same_name_does_not_inherit_the_deleted_ones_start(nodes: Nodes) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own_topic(TOPIC)
    assert not isinstance(log, HeldBy | Unreadable)
    for _ in range(4):
        append_to_topic(first, log, b"a")
    log.delete_before(3)
    saved: list[object] = []
    first.topics.save_start_offsets({TOPIC: 3}, lambda failure: saved.append(failure is None))
    assert first.wait(lambda: saved) == [True]
    first.release(TOPIC)
    other = second.own_topic(TOPIC)
    assert not isinstance(other, HeldBy | Unreadable)
    second.topics.set_aside(TOPIC, bytes(range(16)), other, False, 0)
    forgotten: list[object] = []
    second.topics.forget_topics([TOPIC], lambda failure: forgotten.append(failure is None))
    assert second.wait(lambda: forgotten) == [True]
    new_id = bytes(range(100, 116))
    new = second.own_topic(TOPIC, new_id)
    assert not isinstance(new, HeldBy | Unreadable)
    append_to_topic(second, new, b"new")
    second.release(TOPIC)
    again = first.own_topic(TOPIC, new_id)  # its checkpoint still had the start of the deleted topic
    assert not isinstance(again, HeldBy | Unreadable)
    assert (again.records.start_offset, again.records.next_offset) == (0, 1)
    nodes.kill(first)
    last = second.own_topic(TOPIC, new_id)
    assert not isinstance(last, HeldBy | Unreadable)
    assert (last.records.start_offset, last.records.next_offset) == (0, 1)


def test_a_node_that_has_a_log_again_reads_the_files_that_another_one_put_there(nodes: Nodes) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own_topic(TOPIC)
    assert not isinstance(log, HeldBy | Unreadable)
    append_to_topic(first, log, b"old")
    first.release(TOPIC)
    other = second.own_topic(TOPIC)
    assert not isinstance(other, HeldBy | Unreadable)
    second.topics.set_aside(TOPIC, bytes(range(16)), other, False, 0)
    second.run()
    new_id = bytes(range(100, 116))
    new = second.own_topic(TOPIC, new_id)
    assert not isinstance(new, HeldBy | Unreadable)
    append_to_topic(second, new, b"new")
    second.release(TOPIC)
    again = first.own_topic(TOPIC, new_id)
    assert not isinstance(again, HeldBy | Unreadable)
    assert b"new" in again.records.read(0, 1_000)


def test_a_log_that_is_open_is_not_given_up_for_an_older_topics_deletion(nodes: Nodes) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own_topic(TOPIC)
    assert not isinstance(log, HeldBy | Unreadable)
    first.topics.set_aside(TOPIC, bytes(range(100, 116)), None, True, 0)
    assert second.own_topic(TOPIC) == HeldBy("node 1")
