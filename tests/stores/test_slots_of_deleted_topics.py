"""A deleted topic's slot in the table of owners goes to another log: a topic of the same name still begins empty."""

from __future__ import annotations

from itertools import count

from storage import LogId
from storage.checkpoints import LOG_STARTS, read_offsets
from storage.owners import SLOTS, lock_byte_of
from tests.stores.nodes import TOPIC_ID, NodesOverSimDisk, append_to_topic, delete_before, delete_topic
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
