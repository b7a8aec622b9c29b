"""Idempotent producers: the newest batches of each producer id, so that a batch sent twice is stored once.

The rules are Kafka's. A repetition of one of the producer's newest five batches gets the first reply again; a batch out of sequence is
refused. From an unknown producer (for example a new or expired one) any sequence is accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader
from protocol.errors import ErrorCode

NEWEST_BATCHES: Final = 5  # a producer has at most this many requests in flight
SEQUENCE_MAX: Final = (1 << 31) - 1
NO_SEQUENCE: Final = -1
NO_EPOCH: Final = -1


class ProducerVerdict:
    """The result of checking a batch: an error, the offset of the stored duplicate, or -1 for a new batch."""

    __slots__ = ("error", "offset", "timestamp")

    def __init__(self, error: ErrorCode, offset: int, timestamp: int) -> None:
        self.error = error
        self.offset = offset
        self.timestamp = timestamp  # of the stored duplicate


FRESH: Final = ProducerVerdict(ErrorCode.NONE, -1, -1)
OUT_OF_ORDER: Final = ProducerVerdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, -1)
OLD_EPOCH: Final = ProducerVerdict(ErrorCode.INVALID_PRODUCER_EPOCH, -1, -1)

Written = tuple[int, int, int, int]  # a batch: first and last sequence, base offset, newest timestamp


class Producer:
    """One producer id. `coordinator_epoch` and `transaction_offset` come from transactions in Kafka's logs and are stored unchanged.

    `last_timestamp`: of the producer's newest record. The producer counts as idle since `seen_ms`, when `expire` first saw its newest
    batch, with base offset `seen_offset`.
    """

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "seen_ms", "seen_offset", "transaction_offset")

    def __init__(self, epoch: int = NO_EPOCH, last_timestamp: int = -1, coordinator_epoch: int = -1, transaction_offset: int = -1) -> None:
        self.epoch = epoch
        self.last_timestamp = last_timestamp
        self.batches: list[Written] = []  # newest batches of this epoch, the newest last
        self.coordinator_epoch = coordinator_epoch
        self.transaction_offset = transaction_offset
        self.seen_ms = -1
        self.seen_offset = -1

    @property
    def last_offset(self) -> int:
        """The base offset of its newest batch."""
        return self.batches[-1][2] if self.batches else -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][1] if self.batches else NO_SEQUENCE


class Producers:
    """The producers of one log. For each batch: `check` it, append it, then `note` it."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._known))

    def get(self, producer_id: int) -> Producer | None:
        return self._known.get(producer_id)

    def put(self, producer_id: int, producer: Producer) -> None:
        self._known[producer_id] = producer

    def clear(self) -> None:
        self._known.clear()

    def check(self, header: BatchHeader) -> ProducerVerdict:
        """Check a batch that has a producer id, without changing anything."""
        producer = self._known.get(header.producer_id)
        if producer is None:
            return FRESH if header.producer_epoch >= NO_EPOCH else OLD_EPOCH
        first = header.base_sequence
        if header.producer_epoch == producer.epoch:
            last = producer.last_sequence
            has_epoch = producer.epoch != NO_EPOCH
            if has_epoch and (first == last + 1 or (first == 0 and last == SEQUENCE_MAX)):
                return FRESH
            last = last_sequence(header)
            for batch in producer.batches:
                if batch[0] == first and batch[1] == last:
                    return ProducerVerdict(ErrorCode.NONE, batch[2], batch[3])
            return OUT_OF_ORDER if has_epoch else FRESH  # without an epoch any sequence may follow
        if header.producer_epoch < producer.epoch:
            return OLD_EPOCH
        return FRESH if first == 0 or producer.epoch == NO_EPOCH else OUT_OF_ORDER

    def note(self, header: BatchHeader, base_offset: int) -> None:
        """Record a batch that was appended at `base_offset`."""
        self.note_batch(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta,
            base_offset,
            header.max_timestamp,
            header.attributes,
        )

    def note_batch(self, id: int, epoch: int, sequence: int, delta: int, base_offset: int, timestamp: int, attributes: int) -> None:
        """Like `note`, but without a header object: an opening notes many batches."""
        producer = self._known.get(id)
        if producer is None:
            producer = self._known[id] = Producer(epoch)
        elif epoch != producer.epoch:
            producer.epoch = epoch
            producer.batches = []
        producer.last_timestamp = timestamp
        if attributes & (CONTROL | TRANSACTIONAL):
            if attributes & CONTROL:
                producer.transaction_offset = -1  # the end of a transaction has no sequence
                return
            if producer.transaction_offset < 0:
                producer.transaction_offset = base_offset
        last = sequence + delta
        batches = producer.batches
        batches.append((sequence, last if last <= SEQUENCE_MAX else last - SEQUENCE_MAX - 1, base_offset, timestamp))
        if len(batches) > NEWEST_BATCHES:
            del batches[0]

    def expire(self, monotonic: int, expiration_ms: int) -> int:
        """Drop producers that were idle for `expiration_ms` and have no open transaction; return their number. Call it at intervals.

        Record timestamps do not count, since an active producer may write old ones. After an opening the idle time begins at zero.
        """
        expired = []
        for id, producer in self._known.items():
            if producer.seen_ms < 0 or producer.seen_offset != producer.last_offset:
                producer.seen_ms = monotonic
                producer.seen_offset = producer.last_offset
            elif monotonic - producer.seen_ms >= expiration_ms and producer.transaction_offset < 0:
                expired.append(id)
        for id in expired:
            del self._known[id]
        return len(expired)

    def last_offsets(self) -> dict[int, int]:
        """The base offset of each producer's last batch: a compaction keeps at least the header of that batch."""
        return {id: producer.last_offset for id, producer in self._known.items() if producer.batches}


def last_sequence(header: BatchHeader) -> int:
    """The last sequence of the batch; sequences wrap to 0."""
    last = header.base_sequence + header.last_offset_delta
    return last if last <= SEQUENCE_MAX else last - SEQUENCE_MAX - 1
