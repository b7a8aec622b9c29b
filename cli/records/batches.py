"""Decodes the records of a Fetch reply, without control records and aborted transactions."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from cli.failure import Exit, Failure
from cli.records.layout import ConsumedRecord
from protocol.batch import HEADER_BYTES, BatchHeader, CorruptBatch, TimestampType, batch_end, records, validate
from protocol.messages.fetch import AbortedTransaction

MAGIC_AT: Final = 16
MAGIC: Final = 2
OFFSET_AND_LENGTH: Final = Struct(">qi")
MARKER: Final = Struct(">hh")  # a control record's key: version, type
ABORT: Final = 0


class Chunk(NamedTuple):
    """The records fetched for a partition, and its next offset."""

    topic: str
    partition: int
    records: Sequence[ConsumedRecord]
    next_offset: int


def chunk_of(topic: str, partition: int, position: int, data: bytes, aborted: Sequence[AbortedTransaction] | None) -> Chunk:
    """The records from `position` on, without those of `aborted` transactions. An incomplete last batch is left for the next fetch."""
    consumed: list[ConsumedRecord] = []
    pending = sorted(aborted or (), key=lambda transaction: transaction.first_offset, reverse=True)
    aborted_producers: set[int] = set()
    at = 0
    while len(data) - at > MAGIC_AT:
        if data[at + MAGIC_AT] != MAGIC:
            raise Failure(Exit.UNSUPPORTED, f"{topic}-{partition}: records in a format from before Kafka 0.11, which this command does not read")
        if len(data) - at < HEADER_BYTES:
            break
        try:
            end = batch_end(data, at)
            if end > len(data):
                break
            header = validate(data, at, end)
            if header.is_control:
                end_aborted_transaction(data, at, header, aborted_producers)
            elif header.next_offset > position and not is_aborted(header, pending, aborted_producers):
                append_time = header.timestamp_type == TimestampType.LOG_APPEND_TIME
                consumed += [ConsumedRecord(topic, partition, record, append_time) for record in records(data, at) if record.offset >= position]
        except CorruptBatch as error:
            offset, _ = OFFSET_AND_LENGTH.unpack_from(data, at)
            raise Failure(Exit.DAMAGED, f"{topic}-{partition}: the batch at offset {offset} is damaged: {error}") from error
        position = max(position, header.next_offset)
        at = end
    return Chunk(topic, partition, consumed, position)


def is_aborted(header: BatchHeader, pending: list[AbortedTransaction], aborted_producers: set[int]) -> bool:
    while pending and pending[-1].first_offset <= header.last_offset:
        aborted_producers.add(pending.pop().producer_id)
    return header.is_transactional and header.producer_id in aborted_producers


def end_aborted_transaction(data: bytes, at: int, header: BatchHeader, aborted_producers: set[int]) -> None:
    for record in records(data, at):
        if record.key is not None and len(record.key) >= MARKER.size and MARKER.unpack_from(record.key)[1] == ABORT:
            aborted_producers.discard(header.producer_id)
