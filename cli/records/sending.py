"""Batches on their way to the leaders of their partitions; nothing is sent twice without the broker noticing.

With acks=all the batches are numbered (an idempotent producer), so that one whose reply was lost can be sent again. Without
numbers it is not sent again: then it is not known whether it was written, and whoever asked is told so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.client import EXIT, Failure, check, failure
from cli.client.connection import Broken
from cli.records.drafts import Draft
from protocol.batch import Compression, build
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from cli.client import Cluster

E = ErrorCode
BATCH_BYTES: Final = 256 * 1024  # before compression; a larger record has a batch of its own
RECORDS_MAX: Final = 10_000  # in one batch
PAUSE_SECONDS: Final = 0.1
GOING_TIMEOUTS: Final = 3  # that a stream waits which has been going: a Kafka misses a killed broker after 9 s, and only then others lead
SEQUENCE_LIMIT: Final = 1 << 31
OFFSET_UNKNOWN: Final = -1

# Refused before anything was written.
NOT_WRITTEN: Final = frozenset({E.LEADER_NOT_AVAILABLE, E.NOT_LEADER_OR_FOLLOWER, E.NOT_ENOUGH_REPLICAS, E.UNKNOWN_TOPIC_OR_PARTITION})
# Perhaps written; only numbered batches may be sent again.
IN_DOUBT: Final = frozenset({E.REQUEST_TIMED_OUT, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.KAFKA_STORAGE_ERROR, E.NETWORK_EXCEPTION, E.CORRUPT_MESSAGE})
NO_IDS_YET: Final = frozenset({E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.REQUEST_TIMED_OUT})
TOO_LARGE: Final = frozenset({E.MESSAGE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE})


class Stopped(Exception):
    """Sending ended early."""

    def __init__(self, reason: Failure, refused: Sequence[Draft], in_doubt: Sequence[Draft] = ()) -> None:
        super().__init__(reason.line)
        self.reason = reason
        self.refused = list(refused)  # not written
        self.in_doubt = list(in_doubt)  # perhaps written


class Sent:
    """The result for one partition's records."""

    __slots__ = ("first", "last", "records")

    def __init__(self) -> None:
        self.records = 0
        self.first = OFFSET_UNKNOWN
        self.last = OFFSET_UNKNOWN


class Batch(NamedTuple):
    drafts: list[Draft]
    sequence: int  # of its first record; -1 where batches are not numbered


class Sender:
    """Sends to one topic."""

    def __init__(self, cluster: Cluster, topic: str, *, acks: int = -1, compression: Compression = Compression.NONE) -> None:
        self.topic = topic
        self.sent: dict[int, Sent] = {}
        self.records = 0
        self._cluster = cluster
        self._acks = acks
        self._compression = compression
        self._producer: tuple[int, int] | None = None
        self._asked = False
        self._next_sequence: dict[int, int] = {}
        self._queues: dict[int, list[Batch]] = {}
        self._waiting: set[int] = set()  # partitions whose first batch has not been answered in this round
        self._in_doubt: list[Draft] = []

    def send(self, drafts: Iterable[tuple[int, Draft]]) -> None:
        """Send each draft to its partition, in order within a partition. Stopped: some were not written."""
        self._number()
        for partition, some in cut(drafts):
            self._queues.setdefault(partition, []).append(Batch(some, self._take(partition, len(some))))
        try:
            while self._queues:
                self._round()
        except Failure as reason:
            doubtful = set(map(id, self._in_doubt))
            left = [draft for batches in self._queues.values() for batch in batches for draft in batch.drafts]
            raise Stopped(reason, [draft for draft in left if id(draft) not in doubtful], self._in_doubt) from reason

    def _number(self) -> None:
        """Once: a producer id, if the cluster grants one (before Kafka 2.8 that needed a separate right)."""
        if self._asked or self._acks != -1:
            return
        self._asked = True
        deadline = time.monotonic() + self._cluster.timeout
        while True:
            try:
                reply = self._cluster.any(InitProducerIdRequest(None, 60_000))
            except Failure as refused:
                if refused.code != EXIT.LACKING:
                    raise
                return
            # A broker that has just started may have no ids yet.
            if reply.error_code not in NO_IDS_YET or time.monotonic() + PAUSE_SECONDS >= deadline:
                break
            time.sleep(PAUSE_SECONDS)
        if reply.error_code != E.CLUSTER_AUTHORIZATION_FAILED:
            check(reply.error_code, "a producer id")
            self._producer = (reply.producer_id, reply.producer_epoch)

    def _take(self, partition: int, count: int) -> int:
        if self._producer is None:
            return -1
        first = self._next_sequence.get(partition, 0)
        self._next_sequence[partition] = (first + count) % SEQUENCE_LIMIT
        return first

    def _round(self) -> None:
        """The first batch of every partition, until each is written or split."""
        deadline = time.monotonic() + self._cluster.timeout * (GOING_TIMEOUTS if self.records else 1)
        self._waiting = set(self._queues)
        while self._waiting:
            by_leader: dict[int, list[int]] = {}
            for partition in sorted(self._waiting):
                leader = self._cluster.leader(self.topic, partition, timeout=deadline - time.monotonic())
                by_leader.setdefault(leader, []).append(partition)
            trouble: Failure | None = None
            for leader, partitions in by_leader.items():
                trouble = self._ask(leader, {partition: self._queues[partition][0] for partition in partitions}) or trouble
            if trouble:
                if time.monotonic() + PAUSE_SECONDS >= deadline:
                    raise trouble
                time.sleep(PAUSE_SECONDS)
                self._cluster.topics([self.topic], refresh=True)

    def _ask(self, leader: int, batches: dict[int, Batch]) -> Failure | None:
        """Send one request. Transient errors are returned."""
        data = [PartitionProduceData(partition, self._build(batch)) for partition, batch in batches.items()]
        request = ProduceRequest(None, self._acks, int(self._cluster.timeout * 1000), [TopicProduceData(self.topic, data)])
        if self._acks == 0:
            try:
                self._cluster.tell(leader, request)
            except Failure as lost:
                return passing(lost)
            for partition in batches:
                self._done(partition, OFFSET_UNKNOWN)
            return None
        doubtful = [draft for batch in batches.values() for draft in batch.drafts]
        try:
            reply = self._cluster.node(leader, request, patient=False)
        except Failure as lost:
            was_sent = isinstance(lost.__cause__, Broken) and lost.__cause__.sent
            if was_sent:
                remember(self._in_doubt, doubtful)
                trouble = Failure(EXIT.UNREACHABLE, lost.line.partition("; it may have been done")[0])
                if self._producer is not None:
                    return trouble
                raise trouble from lost
            return passing(lost)
        except KeyboardInterrupt:
            remember(self._in_doubt, doubtful)
            raise
        passing_trouble: Failure | None = None
        for topic in reply.responses:
            for answer in topic.partition_responses:
                passing_trouble = self._answered(answer, batches[answer.index]) or passing_trouble
        return passing_trouble

    def _answered(self, answer: PartitionProduceResponse, batch: Batch) -> Failure | None:
        code = answer.error_code
        partition = answer.index
        if code in (E.NONE, E.DUPLICATE_SEQUENCE_NUMBER):
            forget(self._in_doubt, batch.drafts)
            self._done(partition, answer.base_offset if code == E.NONE else OFFSET_UNKNOWN)
            return None
        if code in TOO_LARGE and len(batch.drafts) > 1:
            self._queues[partition][:1] = halves(batch)
            return None
        reason = failure(code, f"{self.topic}-{partition}", explained(answer, batch))
        if code in TOO_LARGE:
            reason = too_large(self.topic, batch.drafts[0])
        if code in IN_DOUBT:
            remember(self._in_doubt, batch.drafts)
        elif code in NOT_WRITTEN and self._producer is None:
            forget(self._in_doubt, batch.drafts)
        if code in NOT_WRITTEN or (code in IN_DOUBT and self._producer is not None):
            return reason
        raise reason

    def _build(self, batch: Batch) -> bytes:
        now = time.time_ns() // 1_000_000
        records = [draft.record(number, now) for number, draft in enumerate(batch.drafts)]
        producer_id, epoch = self._producer or (-1, -1)
        return build(records, compression=self._compression, producer_id=producer_id, producer_epoch=epoch, base_sequence=batch.sequence)

    def _done(self, partition: int, base_offset: int) -> None:
        batch = self._queues[partition].pop(0)
        if not self._queues[partition]:
            del self._queues[partition]
        self._waiting.discard(partition)
        sent = self.sent.setdefault(partition, Sent())
        sent.records += len(batch.drafts)
        self.records += len(batch.drafts)
        if base_offset >= 0:
            sent.last = base_offset + len(batch.drafts) - 1
            if sent.first < 0:
                sent.first = base_offset


def passing(lost: Failure) -> Failure:
    """An unreachable broker: another may lead soon."""
    if lost.code != EXIT.UNREACHABLE:
        raise lost
    return lost


def cut(drafts: Iterable[tuple[int, Draft]]) -> list[tuple[int, list[Draft]]]:
    """Batches of drafts, in order within a partition."""
    batches: list[tuple[int, list[Draft]]] = []
    open_batches: dict[int, tuple[list[Draft], int]] = {}
    for partition, draft in drafts:
        some, size = open_batches.get(partition, ([], 0))
        if not some or size + draft.size > BATCH_BYTES or len(some) >= RECORDS_MAX:
            some, size = [], 0
            batches.append((partition, some))
        some.append(draft)
        open_batches[partition] = (some, size + draft.size)
    return batches


def halves(batch: Batch) -> list[Batch]:
    """The numbers of its records stay: those of a batch that was refused are free."""
    middle = len(batch.drafts) // 2
    sequence = -1 if batch.sequence < 0 else (batch.sequence + middle) % SEQUENCE_LIMIT
    return [Batch(batch.drafts[:middle], batch.sequence), Batch(batch.drafts[middle:], sequence)]


def explained(answer: PartitionProduceResponse, batch: Batch) -> str | None:
    """The broker's words, with the line that they are about."""
    for error in answer.record_errors:
        if 0 <= error.batch_index < len(batch.drafts):
            return f"{batch.drafts[error.batch_index].place}: {error.batch_index_error_message or answer.error_message or 'refused'}"
    return answer.error_message


def too_large(topic: str, draft: Draft, limit: int | None = None) -> Failure:
    size = len(draft.key or b"") + len(draft.value or b"")
    may = "" if limit is None else f" of {limit} bytes"
    return Failure(
        EXIT.REFUSED,
        f"{draft.place}: {size} bytes are more than topic {topic} takes in one record: raise its max.message.bytes{may} "
        f"(tenure topic alter {topic} --set max.message.bytes=...), or try --compression zstd",
    )


def remember(in_doubt: list[Draft], drafts: Sequence[Draft]) -> None:
    known = set(map(id, in_doubt))
    in_doubt += [draft for draft in drafts if id(draft) not in known]


def forget(in_doubt: list[Draft], drafts: Sequence[Draft]) -> None:
    gone = set(map(id, drafts))
    in_doubt[:] = [draft for draft in in_doubt if id(draft) not in gone]
