"""The guarantees of every store for several nodes: at most one node writes a log, and the next node finds all acknowledged records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import AppendFailed, HeldBy, LogId
from tests.stores.jetstream_nodes import over_jetstream
from tests.stores.nodes import TOPIC_ID, Nodes, NodesOverOsDisk, NodesOverSimDisk, append, append_to_topic, delete_before, delete_topic

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


def test_an_owned_log_has_the_appended_records(nodes: Nodes, flush: str) -> None:
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


def test_another_node_gets_a_released_log_with_all_its_records_at_a_newer_epoch(nodes: Nodes, flush: str) -> None:
    first, second = nodes.start(1, flush), nodes.start(2, flush)
    log = first.own(LOG)
    append(first, log, b"a")
    first.release(LOG)
    acquired = second.own(LOG)
    assert second.keys(acquired) == [b"a"]
    assert acquired.epoch > log.epoch
    assert first.acquire(LOG) == HeldBy("node 2")


def test_another_node_gets_the_log_of_a_killed_node_with_all_its_records(nodes: Nodes, flush: str) -> None:
    first, second = nodes.start(1, flush), nodes.start(2, flush)
    log = first.own(LOG)
    append(first, log, b"a")
    nodes.kill(first)
    acquired = second.own(LOG)
    assert second.keys(acquired) == [b"a"]
    assert acquired.epoch > log.epoch
    assert append(second, acquired, b"b") == 1


def test_a_stale_writer_is_refused_after_a_take_over(nodes: Nodes, flush: str) -> None:
    first, second = nodes.start(1, flush), nodes.start(2, flush)
    stale = first.own(LOG)
    append(first, stale, b"a")
    first.release(LOG)
    acquired = second.own(LOG)
    assert not stale.usable()
    assert isinstance(append(first, stale, b"stale"), AppendFailed)
    append(second, acquired, b"b")
    assert second.keys(acquired) == [b"a", b"b"]
    nodes.kill(second)
    assert first.keys(first.own(LOG)) == [b"a", b"b"]


def test_epochs_grow_with_each_of_many_owners(nodes: Nodes, flush: str) -> None:
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
    acquired = second.own(LOG)
    assert second.keys(acquired) == [b"a"]
    append(second, acquired, b"b")
    owned = second.store.owned_log(LOG)
    assert owned is not None
    assert [owned.records.epoch_at(0), owned.records.epoch_at(1)] == [log.epoch, acquired.epoch]


def test_notes_have_the_owner_of_their_offsets_partition(nodes: Nodes) -> None:
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


def test_a_restarted_node_has_its_records(nodes: Nodes, flush: str) -> None:
    first = nodes.start(1, flush)
    log = first.own(LOG)
    append(first, log, b"a")
    nodes.kill(first)
    restarted = nodes.start(1, flush)
    assert restarted.store.view().owner(LOG) is None
    acquired = restarted.own(LOG)
    assert restarted.keys(acquired) == [b"a"]
    assert acquired.epoch > log.epoch


# Logs of topics.


@pytest.mark.parametrize("way", ["released", "stopped"])
def test_a_log_that_its_node_hands_over_has_not_failed(nodes: Nodes, way: str) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log, topic = first.own(LOG), first.acquired_topic(TOPIC)
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
    taken = second.acquired_topic(TOPIC)
    assert taken.epoch > topic.epoch
    assert failures == []


def test_the_log_of_a_topic_has_one_owner(nodes: Nodes) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.acquired_topic(TOPIC)
    assert append_to_topic(first, log, b"a") == 0
    assert second.acquire_topic(TOPIC) == HeldBy("node 1")
    nodes.kill(first)
    acquired = second.acquired_topic(TOPIC)
    assert acquired.records.next_offset == 1
    assert acquired.epoch > log.epoch


def test_deleted_records_stay_deleted_with_the_next_owner(nodes: Nodes) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.acquired_topic(TOPIC)
    for _ in range(4):
        append_to_topic(first, log, b"a")
    delete_before(first, TOPIC, log, 3)
    nodes.kill(first)
    acquired = second.acquired_topic(TOPIC)
    assert acquired.records.start_offset == 3
    nodes.kill(second)
    third = nodes.start(3).acquired_topic(TOPIC)
    assert third.records.start_offset == 3


def test_a_recreated_topic_does_not_inherit_the_log_start_of_the_deleted_topic(nodes: Nodes) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.acquired_topic(TOPIC)
    for _ in range(4):
        append_to_topic(first, log, b"a")
    delete_before(first, TOPIC, log, 3)
    first.release(TOPIC)
    delete_topic(second, TOPIC, TOPIC_ID, second.acquired_topic(TOPIC))
    new_id = bytes(range(100, 116))
    new = second.acquired_topic(TOPIC, new_id)
    append_to_topic(second, new, b"new")
    second.release(TOPIC)
    reacquired = first.acquired_topic(TOPIC, new_id)  # this node's checkpoint still has the log start of the deleted topic
    assert (reacquired.records.start_offset, reacquired.records.next_offset) == (0, 1)
    nodes.kill(first)
    last = second.acquired_topic(TOPIC, new_id)
    assert (last.records.start_offset, last.records.next_offset) == (0, 1)


def test_a_node_that_reacquires_a_log_reads_the_files_of_its_last_owner(nodes: Nodes) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.acquired_topic(TOPIC)
    append_to_topic(first, log, b"old")
    first.release(TOPIC)
    second.topics.set_aside(TOPIC, TOPIC_ID, second.acquired_topic(TOPIC), False, 0)
    second.run()
    new_id = bytes(range(100, 116))
    new = second.acquired_topic(TOPIC, new_id)
    append_to_topic(second, new, b"new")
    second.release(TOPIC)
    reacquired = first.acquired_topic(TOPIC, new_id)
    assert b"new" in reacquired.records.read(0, 1_000)


def test_an_open_log_is_not_released_for_the_deletion_of_an_older_topic(nodes: Nodes) -> None:
    first, second = nodes.start(1), nodes.start(2)
    first.acquired_topic(TOPIC)
    first.topics.set_aside(TOPIC, bytes(range(100, 116)), None, True, 0)
    assert second.acquire_topic(TOPIC) == HeldBy("node 1")
