"""The threads of a run: each repeats one step over its own connections until the run ends."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random

from protocol.batch import Record, build, build_facts, iterate_headers, records
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage import LogId
from tests.nodes.cluster import LATEST, LIST_OFFSETS_VERSION, OFFSET_FETCH_VERSION, PRODUCE_VERSION
from tests.nodes.torture.accounts import Account
from tests.nodes.torture.links import Links, NotSent
from tests.nodes.torture.nodes import TorturedNodes
from tests.nodes.torture.owners import held_bytes, wrong_owners
from tests.nodes.torture.topics import Incarnation, Topic, Wrong

FETCH_VERSION, COMMIT_VERSION, CREATE_VERSION, DELETE_VERSION, DELETE_RECORDS_VERSION, PRODUCER_ID_VERSION = 13, 8, 7, 6, 2, 4
EARLIEST = -2
PARTITION_BYTES = 1 << 20
CHANGE_SECONDS = 5.0  # for the reply to a change of topics
# A producer whose request was refused with one of these sends it again.
REPEATED = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR}


class Worker:
    """A thread that repeats `step` until it is stopped."""

    pause_seconds = 0.02

    def __init__(self, nodes: TorturedNodes, wrong: Wrong, random: Random, reply_seconds: float = 1.5) -> None:
        self.nodes = nodes
        self.links = Links(nodes, wrong, reply_seconds)
        self.random = random
        self.wrong = wrong
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def step(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.links.close()

    def _run(self) -> None:
        while not self._stopping.wait(self.pause_seconds):
            try:
                self.step()
            except Exception:
                self.wrong("a defect of the test", traceback.format_exc())
                return


class Producer(Worker):
    """Sends each record once."""

    def __init__(self, nodes: TorturedNodes, wrong: Wrong, random: Random, topics: Sequence[Topic]) -> None:
        super().__init__(nodes, wrong, random)
        self._topics = topics

    def step(self) -> None:
        with self.random.choice(self._topics).shared() as incarnation:
            if incarnation is not None:
                by_leader = self.links.leaders(incarnation.name, incarnation.id)
                if by_leader:
                    leader = self.random.choice(sorted(by_leader))
                    send(self.links, incarnation, leader, self.random.sample(by_leader[leader], min(6, len(by_leader[leader]))), self.random.randint(1, 3))


def send(links: Links, incarnation: Incarnation, leader: int, partitions: Iterable[int], count: int = 1) -> set[int]:
    """Send `count` records to each partition; returns the partitions that have acknowledged them."""
    values = {partition: incarnation.new_values(partition, count) for partition in partitions}
    data = [PartitionProduceData(partition, build_facts([(b"", value) for value in sent], now_ms())) for partition, sent in values.items()]
    try:
        reply = links.ask(leader, ProduceRequest(None, -1, 1_000, [TopicProduceData(incarnation.name, data)]), PRODUCE_VERSION)
    except NotSent:
        for sent in values.values():
            incarnation.not_sent(sent)
        return set()
    except OSError:
        for sent in values.values():
            incarnation.unanswered(sent)
        return set()
    acknowledged = set()
    for partition_reply in reply.responses[0].partition_responses:
        sent = values[partition_reply.index]
        if partition_reply.error_code:
            incarnation.unanswered(sent)
        else:
            incarnation.acknowledge(partition_reply.index, partition_reply.base_offset, sent, leader)
            acknowledged.add(partition_reply.index)
    return acknowledged


class IdempotentProducer(Worker):
    """Sends a record to each partition of a topic in turn, and again with the same sequence until it is acknowledged."""

    def __init__(self, nodes: TorturedNodes, wrong: Wrong, random: Random, topic: Topic) -> None:
        super().__init__(nodes, wrong, random)
        self._topic = topic
        self._producer = (-1, -1)  # id and epoch
        self._sequences = [0] * topic.partitions
        self._pending: dict[int, bytes] = {}  # the record that each partition has not acknowledged

    def step(self) -> None:
        incarnation = self._topic.current
        if self._producer[0] < 0:
            reply = self.links.ask_any(InitProducerIdRequest(None, 60_000), PRODUCER_ID_VERSION)
            if reply is not None and not reply.error_code:
                self._producer = reply.producer_id, reply.producer_epoch
            return
        for leader, partitions in self.links.leaders(incarnation.name, incarnation.id).items():
            self._send(incarnation, leader, self.random.sample(partitions, min(4, len(partitions))))

    def _send(self, incarnation: Incarnation, leader: int, partitions: Sequence[int]) -> None:
        for partition in partitions:
            if partition not in self._pending:
                (self._pending[partition],) = incarnation.new_values(partition, 1)
        data = [PartitionProduceData(partition, self._batch(partition)) for partition in partitions]
        try:
            reply = self.links.ask(leader, ProduceRequest(None, -1, 1_000, [TopicProduceData(incarnation.name, data)]), PRODUCE_VERSION)
        except OSError:
            return
        for partition_reply in reply.responses[0].partition_responses:
            partition, error = partition_reply.index, partition_reply.error_code
            if error and error not in REPEATED:
                self.wrong("an idempotent producer was refused", f"{incarnation} partition {partition} sequence {self._sequences[partition]}: {ErrorCode(error).name} by node {leader}")
            if not error:
                incarnation.acknowledge(partition, partition_reply.base_offset, [self._pending.pop(partition)], leader)
                self._sequences[partition] += 1

    def _batch(self, partition: int) -> bytes:
        id, epoch = self._producer
        record = Record(0, now_ms(), None, self._pending[partition])
        return build([record], producer_id=id, producer_epoch=epoch, base_sequence=self._sequences[partition])


class Reader(Worker):
    """Reads what each log has got since the last time, and compares its start and end with what was promised."""

    def __init__(self, nodes: TorturedNodes, wrong: Wrong, random: Random, topics: Sequence[Topic]) -> None:
        super().__init__(nodes, wrong, random)
        self._topics = topics

    def step(self) -> None:
        for topic in self._topics:
            with topic.shared() as incarnation:
                if incarnation is not None:
                    for leader, partitions in self.links.leaders(incarnation.name, incarnation.id).items():
                        self._read(incarnation, leader, partitions)

    def _read(self, incarnation: Incarnation, leader: int, partitions: Sequence[int]) -> None:
        promised = {partition: incarnation.promised(partition) for partition in partitions}
        positions = {partition: max(incarnation.partitions[partition].position, promised[partition][0]) for partition in partitions}
        for partition, (error, start, end, found) in fetch(self.links, incarnation, leader, positions).items():
            if error == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._look(incarnation, leader, partition)
            elif not error:
                incarnation.bounds_seen(partition, promised[partition], start, end, leader)
                incarnation.read(partition, found)
                if found:
                    incarnation.partitions[partition].position = max(found) + 1

    def _look(self, incarnation: Incarnation, leader: int, partition: int) -> None:
        """The position is outside of the log: compare the log's bounds."""
        promised = incarnation.promised(partition)
        position = incarnation.partitions[partition].position
        start, end = (bounds(self.links, incarnation, leader, [partition], timestamp).get(partition, -1) for timestamp in (EARLIEST, LATEST))
        incarnation.bounds_seen(partition, promised, start, end, leader)
        if 0 <= end < position:
            self.wrong("the end of the log went back", f"{incarnation} partition {partition}: read up to {position}, and its end is {end} on node {leader}")
            incarnation.partitions[partition].position = end
        elif start > position:
            incarnation.partitions[partition].position = start


def fetch(links: Links, incarnation: Incarnation, leader: int, positions: Mapping[int, int]) -> dict[int, tuple[int, int, int, dict[int, bytes]]]:
    """By partition: error code, start offset, end offset, and records; nothing if the node does not answer."""
    asked = [FetchPartition(partition, fetch_offset=at, partition_max_bytes=PARTITION_BYTES) for partition, at in positions.items()]
    try:
        reply = links.ask(leader, FetchRequest(topics=[FetchTopic(topic_id=incarnation.id, partitions=asked)]), FETCH_VERSION)
    except OSError:
        return {}
    return {
        part.partition_index: (part.error_code, part.log_start_offset, part.high_watermark, values_of(part.records or b"", positions[part.partition_index]))
        for topic in reply.responses
        for part in topic.partitions
    }


def values_of(data: bytes, position: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    for header in iterate_headers(data, 0, len(data)):
        found.update((record.offset, record.value or b"") for record in records(data, at) if record.offset >= position)
        at += header.size
    return found


def bounds(links: Links, incarnation: Incarnation, leader: int, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
    """The start or end offsets of those partitions that the node serves."""
    asked = [ListOffsetsTopic(incarnation.name, [ListOffsetsPartition(partition, -1, timestamp) for partition in partitions])]
    try:
        reply = links.ask(leader, ListOffsetsRequest(-1, 0, asked), LIST_OFFSETS_VERSION)
    except OSError:
        return {}
    return {part.partition_index: part.offset for part in reply.topics[0].partitions if not part.error_code}


class RecordsDeleter(Worker):
    pause_seconds = 0.15

    def __init__(self, nodes: TorturedNodes, wrong: Wrong, random: Random, topics: Sequence[Topic]) -> None:
        super().__init__(nodes, wrong, random)
        self._topics = topics

    def step(self) -> None:
        with self.random.choice(self._topics).shared() as incarnation:
            by_leader = {} if incarnation is None else self.links.leaders(incarnation.name, incarnation.id)
            if incarnation is not None and by_leader:
                leader = self.random.choice(sorted(by_leader))
                self._delete(incarnation, leader, self.random.sample(by_leader[leader], min(4, len(by_leader[leader]))))

    def _delete(self, incarnation: Incarnation, leader: int, partitions: Sequence[int]) -> None:
        offsets: dict[int, int] = {}
        for partition in partitions:
            start, end = incarnation.promised(partition)
            if end > start:
                offsets[partition] = self.random.randint(start + 1, end)
                incarnation.deletion_asked(partition, offsets[partition])
        if not offsets:
            return
        asked = [DeleteRecordsPartition(partition, offset) for partition, offset in offsets.items()]
        try:
            reply = self.links.ask(leader, DeleteRecordsRequest([DeleteRecordsTopic(incarnation.name, asked)], 1_000), DELETE_RECORDS_VERSION)
        except OSError:
            return
        for part in reply.topics[0].partitions:
            if not part.error_code:
                incarnation.deleted_before(part.partition_index, part.low_watermark)


class Committer(Worker):
    """Fetches the offset of each account, and commits the next one."""

    def __init__(self, nodes: TorturedNodes, wrong: Wrong, random: Random, topics: Sequence[Topic], groups: Sequence[str]) -> None:
        super().__init__(nodes, wrong, random)
        self._topics = {topic.name: topic for topic in topics}
        self.accounts = [
            Account(group, topic.name, number % topic.partitions, wrong) for number, group in enumerate(groups) for topic in topics
        ]
        self.groups = list(groups)

    def step(self) -> None:
        coordinators = self.links.coordinators(self.groups)
        for account in self.random.sample(self.accounts, len(self.accounts) // 3):
            node = coordinators.get(account.group)
            if node is not None:
                self.check(account, node)
                self._commit(account, node)

    def check(self, account: Account, node: int) -> bool:
        """Compare with what the coordinator has; returns whether it answered."""
        with self._topics[account.topic].shared() as incarnation:
            if incarnation is None:
                return False
            asked = OffsetFetchRequestGroup(account.group, topics=[OffsetFetchRequestTopics(account.topic, [account.partition])])
            try:
                reply = self.links.ask(node, OffsetFetchRequest(groups=[asked]), OFFSET_FETCH_VERSION).groups[0]
            except OSError:
                return False
            if reply.error_code or reply.topics[0].partitions[0].error_code:
                return False
            account.fetched(incarnation, reply.topics[0].partitions[0].committed_offset, node)
            return True

    def _commit(self, account: Account, node: int) -> None:
        with self._topics[account.topic].shared() as incarnation:
            if incarnation is None:
                return
            offset = account.begin(incarnation)
            topics = [OffsetCommitRequestTopic(account.topic, [OffsetCommitRequestPartition(account.partition, offset, -1, "")])]
            try:
                reply = self.links.ask(node, OffsetCommitRequest(account.group, -1, "", None, topics=topics), COMMIT_VERSION)
            except NotSent:
                return
            except OSError:
                account.unanswered(offset)
                return
            if reply.topics[0].partitions[0].error_code:
                account.unanswered(offset)
            else:
                account.acknowledged(offset)


class Recreator(Worker):
    """Creates the topics, and deletes and creates them again and again."""

    def __init__(self, nodes: TorturedNodes, wrong: Wrong, random: Random, topics: Sequence[Topic]) -> None:
        super().__init__(nodes, wrong, random, CHANGE_SECONDS)
        self._topics = topics
        self._seen: set[bytes] = set()  # the ids of topics that were created and, but for the newest of each name, deleted
        self._next = 0.0

    def step(self) -> None:
        if time.monotonic() >= self._next:
            self.recreate(self.random.choice(self._topics))
            self._next = time.monotonic() + self.random.uniform(1.0, 5.0)

    def recreate(self, topic: Topic) -> None:
        with topic.alone():
            while not self._delete(topic.current.id):
                if self._stopping.wait(0.1):
                    return
            while not self.create(topic):
                if self._stopping.wait(0.1):
                    return

    def _delete(self, id: bytes) -> bool:
        """A deletion names the topic by its id, so one that has its effect late, or twice, is harmless."""
        try:
            reply = self.links.ask(self.random.choice(self.nodes.ids), DeleteTopicsRequest([DeleteTopicState(None, id)], timeout_ms=5_000), DELETE_VERSION)
        except OSError:
            return False
        return reply.responses[0].error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID)

    def create(self, topic: Topic) -> bool:
        try:
            created = self.links.ask(self.random.choice(self.nodes.ids), CreateTopicsRequest([CreatableTopic(topic.name, topic.partitions, 1)], 5_000), CREATE_VERSION).topics[0]
        except OSError:
            return False
        id = created.topic_id
        if created.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:  # by an earlier request, which was not answered
            described = self.links.described(topic.name)
            if described is None:
                return False
            id = described.topic_id
        elif created.error_code:
            return False
        if id in self._seen:
            return False
        self._seen.add(id)
        topic.created(id)
        return True


class Observer(Worker):
    """Compares who holds, claims and serves each log. A log may look wrong once while it moves; what stays until the next look is reported."""

    pause_seconds = 0.25

    def __init__(self, nodes: TorturedNodes, wrong: Wrong, random: Random, topics: Sequence[Topic], directory: Path | None) -> None:
        super().__init__(nodes, wrong, random, 0.5)
        self._topics = {topic.name: topic.partitions for topic in topics}
        self._directory = directory
        self._before: set[tuple[str, LogId]] = set()
        self.looks = 0

    def step(self) -> None:
        seen = wrong_owners(self.links, self.nodes.ids, self._topics, None if self._directory is None else self._held)
        for what, log in sorted(seen & self._before):
            self.wrong("a log without exactly one owner", f"{log}: {what}")
        self._before = seen
        self.looks += 1

    def _held(self, id: int) -> set[int]:
        assert self._directory is not None
        return held_bytes(self.nodes.pid(id), self._directory)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
