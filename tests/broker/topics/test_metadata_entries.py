"""Metadata replies are assembled from encoded entries, and equal a new encoding."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.api.described_partitions import described_epoch, described_partitions
from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG
from broker.net.dispatch import Call
from broker.net.long_requests import run_to_end
from broker.runtime.node import Address
from broker.security.authorizer import OPERATIONS_NOT_REQUESTED, Authorizer, Operation, ResourceType, is_allowed, topic_operations
from broker.topics.partitions import Partitions
from broker.topics.registry import Topic, _fact
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from storage import AppendFailed, LogId, Unreadable
from tests.support.group_harness import GroupClient, refusing
from tests.support.memory_logs import MemoryTopicLog, MemoryTopicStore
from tests.support.topic_harness import TopicHarness

pytestmark = pytest.mark.once  # does not depend on the Python version

LISTENERS = (Address("PLAIN", "here.example", 9092), Address("INSIDE", "10.0.0.1", 19092))
NAMES = [f"topic.{number}" for number in range(6)]
NO_ID = bytes(16)


class Folders:
    """A stand-in for the folders of deleted topics: only those in `existing` exist."""

    def __init__(self) -> None:
        self.existing: set[LogId] = set()

    def existing_logs(self, delete_delay_ms: int) -> set[LogId]:
        return self.existing

    def finish_deletion(self, deleted: Any, ids: list[LogId], delete_delay_ms: int) -> tuple[list[LogId], OSError | None]:
        return [], None

    def free_names(self, ids: list[LogId]) -> list[LogId]:
        return ids

    def set_aside(self, *arguments: Any) -> None: ...

    def forget(self, topic_id: bytes, ids: Any, done: Any) -> None:
        done()


class Store(MemoryTopicStore):
    """A store whose logs the test opens and recovers."""

    def __init__(self) -> None:
        super().__init__()
        self.opening: list[Any] = []
        self.recovering: list[Any] = []

    def open_topic_log(self, id: LogId, topic: Any, done: Any) -> None:
        self.opening.append(done)

    def log(self, epoch: int) -> MemoryTopicLog:
        log = MemoryTopicLog(LogId("", 0), epoch=epoch)
        log.recovering = self.recovering
        return log


class Opened(TopicHarness):
    """A harness with the real partitions, over a `Store`."""

    def __init__(self, authorizer: Authorizer | None = None, topics: dict[str, int] | None = None) -> None:
        self.logs = Store()
        self.folders = Folders()
        self.later: list[Any] = []
        super().__init__(authorizer or Authorizer(), topics or {}, Opened._partitions)
        ids = iter(range(1, 1 << 30))
        self.topics._new_id = lambda: next(ids).to_bytes(16, "big")

    def _partitions(self) -> Partitions:
        store: Any = self.logs
        loop: Any = SimpleNamespace(
            call_soon=self.loop.call_soon, call_later=lambda seconds, call, *more: self.later.append((call, more)), time=lambda: 0.0
        )
        partitions = Partitions(self.topics, self.registry, store, loop, {})
        folders: Any = self.folders
        partitions._folders = folders
        return partitions

    def expected_entries(self, request: MetadataRequest, version: int, listener: Address, allowed: Authorizer) -> MetadataResponse:
        """The reply for existing topics, built directly from the state of the registry and the partitions."""
        call: Any = None
        topics: list[Topic | None]
        if request.topics is None or (version == 0 and not request.topics):
            topics = [topic for topic in self.topics.listed() if is_allowed(allowed, call, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)]
        elif any(requested.topic_id != NO_ID for requested in request.topics):
            topics = [self.topics.by_id[requested.topic_id] for requested in request.topics]
        else:
            topics = [self.topics.by_name[requested.name or ""] for requested in request.topics]
        response = MetadataResponse(
            brokers=[MetadataResponseBroker(1, listener.host, listener.port)],
            cluster_id="cluster",
            controller_id=1,
            topics=[
                MetadataResponseTopic(
                    0,
                    topic.name,
                    topic.id,
                    topic.name in (CONSUMER_OFFSETS, NOTES_LOG),
                    [
                        MetadataResponsePartition(0, described_partition.index, 1, described_epoch(self.partitions, None, described_partition), [1], [1], [])
                        for described_partition in described_partitions(self.partitions, topic)
                    ],
                    topic_operations(allowed, call, topic.name)
                    if request.include_topic_authorized_operations and version >= 8
                    else OPERATIONS_NOT_REQUESTED,
                )
                for topic in topics
                if topic is not None
            ],
        )
        decoded: MetadataResponse
        decoded, _ = MetadataResponse.decode(response.encode(version), 0, version)
        return decoded


class RandomTopicEvents:
    """Random events of topics and their partitions."""

    def __init__(self, seed: int, authorizer: Authorizer) -> None:
        self.random = random.Random(seed)
        self.harness = Opened(authorizer)
        self.authorizer = authorizer

    def step(self) -> None:
        harness, chance = self.harness, self.random
        name = chance.choice(NAMES)
        topic = harness.topics.by_name.get(name)
        match chance.randrange(13):
            case 0 | 1 if topic is None:
                harness.partitions.created(harness.topics.create(name, chance.randrange(1, 5), {}, 0))
            case 2 if topic is not None and topic.partition_count < 200:
                harness.partitions.partitions_added(harness.topics.add_partitions(name, topic.partition_count + chance.choice((1, 2, 3, 130))))
            case 3 if topic is not None:
                harness.partitions.altered(harness.topics.alter(name, {"segment.bytes": str(chance.randrange(1 << 20, 1 << 30))}))
            case 4 if topic is not None:
                harness.partitions.deleted(harness.topics.delete(name, 0))
            case 5 | 6 if topic is not None:
                harness.partitions.find(name, chance.randrange(topic.partition_count))
            case 7 | 8 if harness.logs.opening:
                done = harness.logs.opening.pop(chance.randrange(len(harness.logs.opening)))
                done(harness.logs.log(chance.randrange(9)) if chance.random() < 0.8 else Unreadable("a defect", chance.random() < 0.2))
            case 9 if harness.later:
                call, more = harness.later.pop(chance.randrange(len(harness.later)))
                call(*more)
            case 10 if topic is not None:
                partition = chance.choice(harness.partitions.of_topic(topic))
                if partition.opened and not partition.error:
                    cast(MemoryTopicLog, partition.owned_log).unusable_reason = "the disk is full"
                    partition.failed(AppendFailed("the disk is full"))
            case 11 if harness.logs.recovering:
                harness.logs.recovering.pop()(None if chance.random() < 0.7 else AppendFailed("it is full still"))
            case 12:
                id = LogId(chance.choice((CONSUMER_OFFSETS, NOTES_LOG)), chance.randrange(5))
                if id in harness.logs.internal and chance.random() < 0.7:
                    harness.logs.internal[id].records.epoch += 1
                else:
                    harness.logs.internal[id] = harness.logs.log(chance.randrange(9))
            case _ if chance.random() < 0.1:
                harness.registry_log.immediate = not harness.registry_log.immediate
        if harness.registry_log.pending and chance.random() < 0.3:
            harness.registry_log.succeed()
        if chance.random() < 0.02:
            harness.folders.existing = {LogId(topic.name, index) for topic in harness.topics.by_name.values() for index in range(topic.partition_count)}
            harness.partitions.open_all()
        harness.loop.run()

    def check_reply(self) -> None:
        """Check that the reply to a random request for existing topics equals a new encoding."""
        chance, version = self.random, self.random.randrange(14)
        listener = chance.randrange(len(LISTENERS))
        connection = GroupClient(self.harness, listener=LISTENERS[listener]).connection
        call = Call(connection, self.harness.dispatch.routes[MetadataRequest.API_KEY], version, 0, None, b"")
        describe = (self.authorizer, call, Operation.DESCRIBE, ResourceType.TOPIC)
        visible = [topic for topic in self.harness.topics.by_name.values() if is_allowed(*describe, topic.name)]
        sampled = chance.sample(visible, chance.randrange(1, len(visible) + 1))
        requested: list[MetadataRequestTopic] | None
        match chance.randrange(4):
            case 0 if version >= 12:
                requested = [MetadataRequestTopic(topic.id, None) for topic in sampled]
            case 1:
                requested = [MetadataRequestTopic(name=topic.name) for topic in sampled]
            case _:
                requested = None if version else []
        request = MetadataRequest(requested, chance.random() < 0.5, False, chance.random() < 0.5 and version >= 8)
        assert run_to_end(self.harness.metadata(call, request)) is None
        assert call.reply is not None
        decoded, end = MetadataResponse.decode(call.reply.encode(version), 0, version)
        assert end == len(call.reply.encode(version))
        assert repr(decoded) == repr(self.harness.expected_entries(request, version, LISTENERS[listener], self.authorizer))
        if version == 13:
            assert repr(call.reply) == repr(decoded)


@pytest.mark.parametrize("seed", range(8))
def test_every_cached_metadata_reply_equals_a_new_encoding(seed: int) -> None:
    # For every fourth seed, Describe is denied on one topic, and Write on another.
    authorizer: Authorizer = Authorizer()
    if seed % 4 == 3:
        authorizer = refusing((Operation.DESCRIBE, ResourceType.TOPIC, NAMES[0]), (Operation.WRITE, ResourceType.TOPIC, NAMES[1]))
    play = RandomTopicEvents(seed, authorizer)
    for _ in range(120):
        play.step()
        play.check_reply()


def ask_metadata(harness: TopicHarness) -> Any:
    return GroupClient(harness).ask(MetadataRequest(None), 12)


def test_after_one_change_one_topic_is_encoded_again() -> None:
    harness = Opened(topics={f"t{number}": 3 for number in range(50)})
    entries = harness.metadata.__self__._entries
    ask_metadata(harness)
    before = entries.encoded
    ask_metadata(harness)
    assert entries.encoded == before
    harness.partitions.partitions_added(harness.topics.add_partitions("t7", 5))
    assert [len(topic.partitions) for topic in ask_metadata(harness).topics if topic.name == "t7"] == [5]
    assert entries.encoded == before + 1
    harness.partitions.created(harness.topics.create("another", 1, {}, 0))
    ask_metadata(harness)
    assert entries.encoded == before + 2
    harness.topics.delete("t8", 0)
    assert "t8" not in [topic.name for topic in ask_metadata(harness).topics]
    assert entries.encoded == before + 2


def test_opening_a_log_encodes_no_topic_again_and_shows_its_epoch() -> None:
    harness = Opened(topics={f"t{number}": 3 for number in range(50)})
    ask_metadata(harness)
    before = harness.metadata.__self__._entries.encoded
    assert harness.partitions.find("t7", 1).error
    harness.logs.opening.pop()(harness.logs.log(4))
    (topic,) = [topic for topic in ask_metadata(harness).topics if topic.name == "t7"]
    assert [partition.leader_epoch for partition in topic.partitions] == [0, 4, 0]
    assert harness.metadata.__self__._entries.encoded == before


def epochs(harness: TopicHarness, name: str) -> list[int]:
    (topic,) = [topic for topic in ask_metadata(harness).topics if topic.name == name]
    return [partition.leader_epoch for partition in topic.partitions]


def test_a_topic_whose_deletion_was_refused_is_listed_again() -> None:
    harness = Opened(topics={"t": 2})
    fact = _fact(harness.topics.by_name["t"])
    harness.registry_log.replay = lambda: iter([[fact]])  # type: ignore[method-assign]
    harness.partitions.find("t", 0)
    harness.registry_log.immediate = False
    harness.partitions.deleted(harness.topics.delete("t", 0))
    harness.loop.run()
    harness.registry_log.refuse()
    # The registry has the topic again, but its partitions do not know of it yet.
    assert epochs(harness, "t") == [-1, -1]
    harness.loop.run()
    assert epochs(harness, "t") == [-1, 0]
    assert not any(partition.refusal_reason for partition in harness.partitions.of_topic(harness.topics.by_name["t"]))


def test_a_partition_waiting_for_an_old_folder_has_no_leader_epoch_yet() -> None:
    harness = Opened(topics={"t": 1, "busy": 3})
    for index in range(3):
        harness.partitions.find("busy", index)
    harness.registry_log.immediate = False
    harness.partitions.deleted(harness.topics.delete("t", 0))
    harness.partitions.created(harness.topics.create("t", 1, {}, 0))
    harness.partitions.find("t", 0)  # its log is opened after those of "busy", which are being opened
    assert harness.metadata.__self__._entries.entry_of(harness.topics.by_name["t"], 12).endswith(partition_bytes(-1))
    for done in list(harness.logs.opening):
        done(harness.logs.log(0))
    assert harness.metadata.__self__._entries.entry_of(harness.topics.by_name["t"], 12).endswith(partition_bytes(0))


def partition_bytes(epoch: int) -> bytes:
    """Partition 0, as it is encoded from version 9 on."""
    parts: list[bytes] = []
    MetadataResponsePartition.write_array(parts, [MetadataResponsePartition(0, 0, 1, epoch, [1], [1], [])], 12)
    return b"".join(parts[1:])


def test_deleted_topics_leave_no_cached_entries() -> None:
    harness = Opened()
    for number in range(20):
        harness.partitions.created(harness.topics.create(f"t{number}", 1, {}, 0))
        ask_metadata(harness)
        harness.partitions.deleted(harness.topics.delete(f"t{number}", 0))
        harness.loop.run()
    ask_metadata(harness)
    assert len(harness.metadata.__self__._entries._entries) <= len(harness.topics.by_id)
    for operations in (False, True):
        for version in range(8, 14):
            GroupClient(harness).ask(MetadataRequest(None, include_topic_authorized_operations=operations), version)
    assert len(harness.metadata.__self__._entries._listings) <= 4
