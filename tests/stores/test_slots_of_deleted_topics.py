"""A deleted topic's slot in the table of owners goes to another log: a topic of the same name still begins empty."""

from __future__ import annotations

from itertools import count

from storage import HeldBy, LogId, TopicLog, Unreadable
from storage.checkpoints import LOG_STARTS, read_offsets
from storage.owners import SLOTS, byte_of
from tests.stores.nodes import TOPIC_ID, DirectoryNode, NodesOverSimDisk, append_to_topic
from tests.stores.test_conversion import Alone

TOPIC = LogId("orders", 0)
RECORDS, DELETED = 4, 3
OTHER_ID, NEW_ID = bytes(range(50, 66)), bytes(range(100, 116))


def same_slot(id: LogId) -> LogId:
    """Another log that would have this one's slot."""
    found = (LogId(f"topic-{number}", 0) for number in count())
    return next(one for one in found if byte_of(one) % SLOTS == byte_of(id) % SLOTS)


def own(node: DirectoryNode, id: LogId, topic_id: bytes) -> TopicLog:
    log = node.own_topic(id, topic_id)
    assert not isinstance(log, HeldBy | Unreadable)
    return log


def delete(node: DirectoryNode, id: LogId, topic_id: bytes, log: TopicLog) -> None:
    node.topics.set_aside(id, topic_id, log, False, 0)
    forgotten: list[Exception | None] = []
    node.topics.forget_topics([id], forgotten.append)
    assert node.wait(lambda: forgotten) == [None]


def written_alone(nodes: NodesOverSimDisk) -> None:
    """A broker that is alone stores records in the topic and deletes the first of them."""
    alone = Alone(1, nodes.disk.for_another_process())
    log = own(alone, TOPIC, TOPIC_ID)
    for _ in range(RECORDS):
        append_to_topic(alone, log, b"a")
    log.delete_before(DELETED)
    saved: list[Exception | None] = []
    alone.topics.save_start_offsets({TOPIC: DELETED}, saved.append)
    assert alone.wait(lambda: saved) == [None]
    alone.stop()


def test_a_topic_that_is_created_again_begins_empty_although_its_slot_is_another_logs() -> None:
    nodes = NodesOverSimDisk()
    written_alone(nodes)
    first = nodes.start(1)
    log = own(first, TOPIC, TOPIC_ID)
    assert log.records.start_offset == DELETED
    delete(first, TOPIC, TOPIC_ID, log)
    other = same_slot(TOPIC)
    append_to_topic(first, own(first, other, OTHER_ID), b"other")
    new = own(first, TOPIC, NEW_ID)
    assert (new.records.start_offset, new.records.next_offset) == (0, 0)
    append_to_topic(first, new, b"new")
    nodes.kill(first)
    second = nodes.start(2)
    for id, topic_id in ((TOPIC, NEW_ID), (other, OTHER_ID)):
        log = own(second, id, topic_id)
        assert (log.records.start_offset, log.records.next_offset) == (0, 1)


def test_a_broker_that_is_alone_again_has_no_start_of_a_deleted_topic() -> None:
    nodes = NodesOverSimDisk()
    written_alone(nodes)
    first = nodes.start(1)
    delete(first, TOPIC, TOPIC_ID, own(first, TOPIC, TOPIC_ID))
    own(first, same_slot(TOPIC), OTHER_ID)
    first.stop()
    alone = Alone(1, nodes.disk.for_another_process())
    assert TOPIC not in read_offsets(alone.disk, f"/data/{LOG_STARTS}")
    assert own(alone, TOPIC, NEW_ID).records.start_offset == 0
