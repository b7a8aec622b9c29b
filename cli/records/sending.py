"""Sends batches to the leaders of their partitions.

With acks=all, batches have sequence numbers (an idempotent producer), so that a batch can be sent again after its reply was lost. A batch
without sequence numbers is not sent again, and the caller learns that it may have been written.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.client import Exit, Failure, check, failure
from cli.client.effects import Unanswered
from cli.client.words import json_code_of
from cli.records.drafts import Draft
from protocol.batch import Compression, build
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from cli.client import Cluster

E = ErrorCode
BATCH_BYTES: Final = 256 * 1024  # before compression; a larger record gets its own batch
RECORDS_MAX: Final = 10_000  # in one batch
PAUSE_SECONDS: Final = 0.1
ATTEMPT_SHARE: Final = 0.5  # of the time limit: what may be sent again leaves time for the next leader
SEQUENCE_LIMIT: Final = 1 << 31
OFFSET_UNKNOWN: Final = -1

# Errors of batches that were not written.
NOT_WRITTEN: Final = frozenset({E.LEADER_NOT_AVAILABLE, E.NOT_LEADER_OR_FOLLOWER, E.NOT_ENOUGH_REPLICAS, E.UNKNOWN_TOPIC_OR_PARTITION})
# Errors of batches that may have been written; only those with sequence numbers may be sent again.
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
    """The number of records sent to one partition, and their offsets."""

    __slots__ = ("first", "last", "records")

    def __init__(self) -> None:
        self.records = 0
        self.first = OFFSET_UNKNOWN
        self.last = OFFSET_UNKNOWN


class Batch(NamedTuple):
    drafts: list[Draft]
    sequence: int  # sequence number of the first record; -1 without sequence numbers


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
        self._producer_requested = False
        self._next_sequence: dict[int, int] = {}
        self._queues: dict[int, list[Batch]] = {}
        self._waiting: set[int] = set()  # partitions without a final reply in this round
        self._in_doubt: list[Draft] = []

    def send(self, drafts: Iterable[tuple[int, Draft]]) -> None:
        """Send each draft to its partition, in order within a partition. Raises Stopped if some were not written."""
        if self.records:
            self._cluster.patience.renew()
        self._request_producer_id()
        for partition, batch in batches_of(drafts):
            self._queues.setdefault(partition, []).append(Batch(batch, self._next_sequences(partition, len(batch))))
        try:
            while self._queues:
                self._send_first_batches()
        except Failure as reason:
            ids_in_doubt = set(map(id, self._in_doubt))
            unsent = [draft for batches in self._queues.values() for batch in batches for draft in batch.drafts]
            raise Stopped(reason, [draft for draft in unsent if id(draft) not in ids_in_doubt], self._in_doubt) from reason

    def _request_producer_id(self) -> None:
        """Request a producer id, once. Before Kafka 2.8 this needs a separate permission; if it is refused, batches have no sequence numbers."""
        if self._producer_requested or self._acks != -1:
            return
        self._producer_requested = True
        wait = self._cluster.wait()
        while True:
            try:
                reply = self._cluster.send_to_any(InitProducerIdRequest(None, 60_000))
            except Failure as refused:
                if refused.exit_code != Exit.UNSUPPORTED:
                    raise
                return
            # A broker that has just started may have no producer ids yet.
            if reply.error_code not in NO_IDS_YET or not wait.again():
                break
        if reply.error_code != E.CLUSTER_AUTHORIZATION_FAILED:
            check(reply.error_code, "a producer id")
            self._producer = (reply.producer_id, reply.producer_epoch)

    def _next_sequences(self, partition: int, count: int) -> int:
        if self._producer is None:
            return -1
        first = self._next_sequence.get(partition, 0)
        self._next_sequence[partition] = (first + count) % SEQUENCE_LIMIT
        return first

    def _send_first_batches(self) -> None:
        """Send the first batch of every partition, until each is written or split."""
        deadline = time.monotonic() + self._cluster.patience.for_broker(answering=True)
        self._waiting = set(self._queues)
        while self._waiting:
            self._cluster.patience.renew()  # the deadline here is that of all attempts
            by_leader: dict[int, list[int]] = {}
            for partition in sorted(self._waiting):
                leader = self._cluster.leader(self.topic, partition, timeout=deadline - time.monotonic())
                by_leader.setdefault(leader, []).append(partition)
            retriable: Failure | None = None
            for leader, partitions in by_leader.items():
                retriable = self._send_to(leader, {partition: self._queues[partition][0] for partition in partitions}) or retriable
            if retriable:
                if time.monotonic() + PAUSE_SECONDS >= deadline:
                    raise retriable
                time.sleep(PAUSE_SECONDS)
                self._cluster.topics([self.topic], refresh=True)

    def _send_to(self, leader: int, batches: dict[int, Batch]) -> Failure | None:
        """Send one Produce request; return a retriable error, if any."""
        data = [PartitionProduceData(partition, self._build(batch)) for partition, batch in batches.items()]
        request = ProduceRequest(None, self._acks, int(self._cluster.timeout * 1000), [TopicProduceData(self.topic, data)])
        if self._acks == 0:
            try:
                self._cluster.send_without_reply(leader, request)
            except Failure as lost:
                return unreachable(lost)
            for partition in batches:
                self._finish_batch(partition, OFFSET_UNKNOWN)
            return None
        drafts = [draft for batch in batches.values() for draft in batch.drafts]
        try:
            timeout = self._cluster.patience.share(ATTEMPT_SHARE) if self._producer is not None else None
            reply = self._cluster.send_to_broker(leader, request, retry=False, timeout=timeout)
        except Unanswered as lost:
            add_missing(self._in_doubt, drafts)
            if self._producer is not None:
                return lost.problem
            raise lost.problem from lost
        except Failure as lost:
            return unreachable(lost)
        except KeyboardInterrupt:
            add_missing(self._in_doubt, drafts)
            raise
        retriable: Failure | None = None
        for topic in reply.responses:
            for answer in topic.partition_responses:
                retriable = self._handle_response(answer, batches[answer.index]) or retriable
        return retriable

    def _handle_response(self, answer: PartitionProduceResponse, batch: Batch) -> Failure | None:
        code = answer.error_code
        partition = answer.index
        if code in (E.NONE, E.DUPLICATE_SEQUENCE_NUMBER):
            remove_from(self._in_doubt, batch.drafts)
            self._finish_batch(partition, answer.base_offset if code == E.NONE else OFFSET_UNKNOWN)
            return None
        if code in TOO_LARGE and len(batch.drafts) > 1:
            self._queues[partition][:1] = halves(batch)
            return None
        reason = failure(code, f"{self.topic}-{partition}", error_message(answer, batch))
        if code in TOO_LARGE:
            reason = too_large(self.topic, batch.drafts[0])
        if code == E.INVALID_TOPIC_EXCEPTION:
            reason = Failure(Exit.REFUSED, f"topic {self.topic} is internal: clients cannot write to it", kind=json_code_of(code))
        if code in IN_DOUBT:
            add_missing(self._in_doubt, batch.drafts)
        elif code in NOT_WRITTEN and self._producer is None:
            remove_from(self._in_doubt, batch.drafts)
        if code in NOT_WRITTEN or (code in IN_DOUBT and self._producer is not None):
            return reason
        raise reason

    def _build(self, batch: Batch) -> bytes:
        now = time.time_ns() // 1_000_000
        records = [draft.record(number, now) for number, draft in enumerate(batch.drafts)]
        producer_id, epoch = self._producer or (-1, -1)
        return build(records, compression=self._compression, producer_id=producer_id, producer_epoch=epoch, base_sequence=batch.sequence)

    def _finish_batch(self, partition: int, base_offset: int) -> None:
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


def unreachable(lost: Failure) -> Failure:
    """Return the failure if the broker is unreachable: it is retriable, as another broker may lead soon. Raise any other failure."""
    if lost.exit_code != Exit.UNREACHABLE:
        raise lost
    return lost


def batches_of(drafts: Iterable[tuple[int, Draft]]) -> list[tuple[int, list[Draft]]]:
    """Divide drafts into batches, in order within a partition."""
    batches: list[tuple[int, list[Draft]]] = []
    open_batches: dict[int, tuple[list[Draft], int]] = {}
    for partition, draft in drafts:
        batch, size = open_batches.get(partition, ([], 0))
        if not batch or size + draft.size > BATCH_BYTES or len(batch) >= RECORDS_MAX:
            batch, size = [], 0
            batches.append((partition, batch))
        batch.append(draft)
        open_batches[partition] = (batch, size + draft.size)
    return batches


def halves(batch: Batch) -> list[Batch]:
    """Split a refused batch; the sequence numbers of its records stay valid."""
    middle = len(batch.drafts) // 2
    sequence = -1 if batch.sequence < 0 else (batch.sequence + middle) % SEQUENCE_LIMIT
    return [Batch(batch.drafts[:middle], batch.sequence), Batch(batch.drafts[middle:], sequence)]


def error_message(answer: PartitionProduceResponse, batch: Batch) -> str | None:
    """The broker's message for the first record that it names, with the place of that record in the input; else its message for the batch."""
    for error in answer.record_errors:
        if 0 <= error.batch_index < len(batch.drafts):
            return f"{batch.drafts[error.batch_index].source}: {error.batch_index_error_message or answer.error_message or 'refused'}"
    return answer.error_message


def too_large(topic: str, draft: Draft, limit: int | None = None) -> Failure:
    size = len(draft.key or b"") + len(draft.value or b"")
    limit_text = "" if limit is None else f" of {limit} bytes"
    return Failure(
        Exit.REFUSED,
        f"{draft.source}: {size} bytes are more than topic {topic} accepts in one record: raise its max.message.bytes{limit_text} "
        f"(tenure topic config set {topic} max.message.bytes=...), or try --compression zstd",
    )


def add_missing(in_doubt: list[Draft], drafts: Sequence[Draft]) -> None:
    known = set(map(id, in_doubt))
    in_doubt += [draft for draft in drafts if id(draft) not in known]


def remove_from(in_doubt: list[Draft], drafts: Sequence[Draft]) -> None:
    removed = set(map(id, drafts))
    in_doubt[:] = [draft for draft in in_doubt if id(draft) not in removed]
