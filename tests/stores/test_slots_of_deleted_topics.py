"""Logs of topics that have one name after the other: each has its own lock and its own state, and inherits nothing."""

from __future__ import annotations

from itertools import count
from typing import cast

import pytest

from broker.stores.shared import LockedLog
from storage import HeldBy, LogId, Producers, TopicInfo, TopicLog, Unreadable
from storage.checkpoints import LOG_STARTS, read_offsets
from storage.owners import SLOTS, lock_byte_of
from tests.stores.nodes import TOPIC_ID, DirectoryNode, NodesOverSimDisk, append_to_topic, delete_before, delete_topic
from tests.stores.test_conversion import Alone

TOPIC = LogId("orders", 0)
RECORDS, DELETED = 4, 3
OTHER_ID, NEW_ID = bytes(range(50, 66)), bytes(range(100, 116))


def same_slot(id: LogId) -> LogId:
    """A log with the same slot as this log."""
    ids = (LogId(f"topic-{number}", 0) for number in count())
    return next(log_id for log_id in ids if lock_byte_of(log_id) % SLOTS == lock_byte_of(id) % SLOTS)


def written_alone(nodes: NodesOverSimDisk) -> None:
    """Let a single broker store records in the topic and delete the first of them."""
    alone = Alone(1, nodes.disk.for_another_process())
    log = alone.acquired_topic(TOPIC, TOPIC_ID)
    for _ in range(RECORDS):
        append_to_topic(alone, log, b"a")
    delete_before(alone, TOPIC, log, DELETED)
    alone.stop()


def test_a_topic_that_is_created_again_begins_empty_although_its_slot_is_another_logs() -> None:
    nodes = NodesOverSimDisk()
    written_alone(nodes)
    first = nodes.start(1)
    log = first.acquired_topic(TOPIC, TOPIC_ID)
    assert log.records.start_offset == DELETED
    delete_topic(first, TOPIC, TOPIC_ID, log)
    colliding = same_slot(TOPIC)
    append_to_topic(first, first.acquired_topic(colliding, OTHER_ID), b"other")
    new = first.acquired_topic(TOPIC, NEW_ID)
    assert (new.records.start_offset, new.records.next_offset) == (0, 0)
    append_to_topic(first, new, b"new")
    nodes.kill(first)
    second = nodes.start(2)
    for id, topic_id in ((TOPIC, NEW_ID), (colliding, OTHER_ID)):
        log = second.acquired_topic(id, topic_id)
        assert (log.records.start_offset, log.records.next_offset) == (0, 1)


def test_a_broker_alone_again_has_no_log_start_of_a_deleted_topic() -> None:
    nodes = NodesOverSimDisk()
    written_alone(nodes)
    first = nodes.start(1)
    delete_topic(first, TOPIC, TOPIC_ID, first.acquired_topic(TOPIC, TOPIC_ID))
    first.acquired_topic(same_slot(TOPIC), OTHER_ID)
    first.stop()
    alone = Alone(1, nodes.disk.for_another_process())
    assert TOPIC not in read_offsets(alone.disk, f"/data/{LOG_STARTS}")
    assert alone.acquired_topic(TOPIC, NEW_ID).records.start_offset == 0


def opened_by(node: DirectoryNode, topic_id: bytes) -> list[TopicLog | HeldBy | Unreadable]:
    """Begin to open the log of this topic; returns the list that gets the result."""
    results: list[TopicLog | HeldBy | Unreadable] = []
    node.topics.open_topic_log(TOPIC, TopicInfo(topic_id, 1 << 20, Producers(), 0, lambda folder: None), results.append)
    return results


def recreated(nodes: NodesOverSimDisk) -> DirectoryNode:
    """A node whose log of a topic that was created again has records, of which the first are deleted; the log is free."""
    first = nodes.start(1)
    delete_topic(first, TOPIC, TOPIC_ID, first.acquired_topic(TOPIC, TOPIC_ID))
    log = first.acquired_topic(TOPIC, NEW_ID)
    for _ in range(RECORDS):
        append_to_topic(first, log, b"new")
    delete_before(first, TOPIC, log, DELETED)
    first.release(TOPIC)
    return first


@pytest.mark.parametrize("steps", range(4))
def test_the_deletion_of_an_older_topic_leaves_the_lock_on_a_log_that_is_being_opened(steps: int) -> None:
    nodes = NodesOverSimDisk()
    recreated(nodes)
    second, third = nodes.start(2), nodes.start(3)
    results = opened_by(second, NEW_ID)
    for _ in range(steps):
        second.loop.run()
        if second.threads.jobs:
            second.threads.run()
    second.topics.set_aside(TOPIC, TOPIC_ID, None, True, 0)
    assert third.acquire_topic(TOPIC, NEW_ID) == HeldBy("node 2")
    second.run()
    (log,) = results
    assert not isinstance(log, HeldBy | Unreadable)
    assert (log.records.start_offset, append_to_topic(second, log, b"new")) == (DELETED, RECORDS)
    assert third.acquire_topic(TOPIC, NEW_ID) == HeldBy("node 2")


@pytest.mark.parametrize("way", ["free", "its owner was killed"])
def test_the_deletion_of_an_older_topic_leaves_the_state_of_a_log_without_owner(way: str) -> None:
    nodes = NodesOverSimDisk()
    first = recreated(nodes)
    if way != "free":
        first.acquired_topic(TOPIC, NEW_ID)
        nodes.kill(first)
    second, third = nodes.start(2), nodes.start(3)
    second.topics.set_aside(TOPIC, TOPIC_ID, None, True, 0)
    log = third.acquired_topic(TOPIC, NEW_ID)
    assert (log.records.start_offset, log.records.next_offset) == (DELETED, RECORDS)


def test_a_log_whose_lock_was_given_up_while_it_was_opened_is_not_reported_as_opened() -> None:
    nodes = NodesOverSimDisk()
    recreated(nodes)
    second = nodes.start(2)
    results = opened_by(second, NEW_ID)
    second.loop.run()
    second.threads.run()
    locked = second.store.locked_log(TOPIC)
    assert locked is not None
    second.store.unlock(TOPIC, locked)
    second.run()
    (result,) = results
    assert isinstance(result, Unreadable)
    assert "given up" in result.reason
    assert second.store.owned_log(TOPIC) is None
    assert nodes.start(3).acquired_topic(TOPIC, NEW_ID).records.next_offset == RECORDS


def test_a_lock_is_not_given_up_by_who_held_an_earlier_one() -> None:
    nodes = NodesOverSimDisk()
    first = recreated(nodes)
    former = first.store.lock(TOPIC, TOPIC_ID)
    assert isinstance(former, LockedLog)
    first.store.unlock(TOPIC, former)
    first.acquired_topic(TOPIC, NEW_ID)
    first.store.unlock(TOPIC, former)
    assert nodes.start(2).acquire_topic(TOPIC, NEW_ID) == HeldBy("node 1")


def test_a_log_locked_for_one_topic_is_not_opened_for_another_of_its_name() -> None:
    nodes = NodesOverSimDisk()
    first, second = nodes.start(1), nodes.start(2)
    assert isinstance(first.store.lock_log(TOPIC, TOPIC_ID, 0), int)
    assert first.acquire_topic(TOPIC, NEW_ID) == HeldBy("node 1")
    first.store.release_unopened(TOPIC, NEW_ID)
    assert second.acquire_topic(TOPIC, NEW_ID) == HeldBy("node 1")
    first.store.release_unopened(TOPIC, TOPIC_ID)
    second.acquired_topic(TOPIC, NEW_ID)


def test_the_next_topic_of_a_name_inherits_nothing_from_a_deleted_one_that_no_node_set_aside() -> None:
    nodes = NodesOverSimDisk()
    first = nodes.start(1)
    log = first.acquired_topic(TOPIC, TOPIC_ID)
    for _ in range(RECORDS):
        append_to_topic(first, log, b"old")
    delete_before(first, TOPIC, log, DELETED)
    nodes.kill(first)
    second = nodes.start(2)
    log = second.acquired_topic(TOPIC, NEW_ID)  # moves the folder of the other topic away
    assert (log.records.start_offset, log.records.next_offset) == (0, 0)
    append_to_topic(second, log, b"new")
    nodes.kill(second)
    log = nodes.start(3).acquired_topic(TOPIC, NEW_ID)
    assert (log.records.start_offset, log.records.next_offset) == (0, 1)


def test_a_deleted_log_that_is_being_closed_is_set_aside_later() -> None:
    nodes = NodesOverSimDisk()
    first = nodes.start(1)
    append_to_topic(first, first.acquired_topic(TOPIC, TOPIC_ID), b"old")
    released: list[bool] = []
    first.store.release(TOPIC, lambda: released.append(True))
    opened = first.topics.served_log(TOPIC)
    with pytest.raises(BlockingIOError):
        first.topics.set_aside(TOPIC, TOPIC_ID, cast(TopicLog, opened), False, 0)
    first.run()
    first.topics.set_aside(TOPIC, TOPIC_ID, None, False, 0)
    assert not first.topics.exists(TOPIC)


@pytest.mark.parametrize("known", ["the deletion", "nothing"])
def test_a_node_behind_a_deletion_does_not_open_the_new_topics_log_for_the_deleted_topic(known: str) -> None:
    """It would move the folder of the new topic away, with all its records."""
    nodes = NodesOverSimDisk()
    first = recreated(nodes)
    first.store.set_last_deletion(1)
    nodes.kill(first)
    second = nodes.start(2)
    results: list[TopicLog | HeldBy | Unreadable] = []
    topic_id, last_deletion = (NEW_ID, 1) if known == "the deletion" else (TOPIC_ID, 0)
    assert isinstance(second.store.lock_log(TOPIC, topic_id, last_deletion), HeldBy if known == "nothing" else int)
    second.topics.open_topic_log(TOPIC, TopicInfo(topic_id, 1 << 20, Producers(), last_deletion, lambda folder: None), results.append)
    second.run()
    assert isinstance(results[0], HeldBy) is (known == "nothing")
    if known == "nothing":  # no slot was written, and the log is free for a node that knows the deletion
        third = nodes.start(3)
        third.topics.open_topic_log(TOPIC, TopicInfo(NEW_ID, 1 << 20, Producers(), 1, lambda folder: None), results.append)
        third.run()
    log = results[-1]
    assert not isinstance(log, HeldBy | Unreadable)
    assert (log.records.start_offset, log.records.next_offset) == (DELETED, RECORDS)


def test_a_release_waits_for_the_opening_of_the_log() -> None:
    """Otherwise another node could change the files while the opening still repairs them."""
    nodes = NodesOverSimDisk()
    recreated(nodes)
    second, third = nodes.start(2), nodes.start(3)
    results = opened_by(second, NEW_ID)
    opening, second.threads.jobs = second.threads.jobs, []
    assert len(opening) == 1
    released: list[bool] = []
    second.store.release(TOPIC, lambda: released.append(True))
    second.run()
    assert not released
    assert third.acquire_topic(TOPIC, NEW_ID) == HeldBy("node 2")
    second.threads.jobs = opening
    second.run()
    second.loop.jump(1.0)
    second.run()
    assert released == [True]
    assert isinstance(results[0], HeldBy)
    assert second.store.owned_log(TOPIC) is None
    assert third.acquired_topic(TOPIC, NEW_ID).records.next_offset == RECORDS
