"""The records in the bytes of a Fetch reply: whole, verified batches, without control records and aborted transactions."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from cli.failure import EXIT, Failure
from cli.records.layout import Found
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
    found: Sequence[Found]
    next_offset: int


def chunk_of(topic: str, partition: int, position: int, data: bytes, aborted: Sequence[AbortedTransaction] | None) -> Chunk:
    """The records from `position` on; the last batch may be cut short, for the next fetch. `aborted`: leave these transactions out."""
    found: list[Found] = []
    ahead = sorted(aborted or (), key=lambda one: one.first_offset, reverse=True)
    rolled_back: set[int] = set()
    at = 0
    while len(data) - at > MAGIC_AT:
        if data[at + MAGIC_AT] != MAGIC:
            raise Failure(EXIT.LACKING, f"{topic}-{partition}: records in the format of before Kafka 0.11, which this command does not read")
        if len(data) - at < HEADER_BYTES:
            break
        try:
            end = batch_end(data, at)
            if end > len(data):
                break
            header = validate(data, at, end)
            if header.is_control:
                end_of_transaction(data, at, header, rolled_back)
            elif header.next_offset > position and not is_aborted(header, ahead, rolled_back):
                append_time = header.timestamp_type == TimestampType.LOG_APPEND_TIME
                found += [Found(topic, partition, record, append_time) for record in records(data, at) if record.offset >= position]
        except CorruptBatch as error:
            offset, _ = OFFSET_AND_LENGTH.unpack_from(data, at)
            raise Failure(EXIT.DAMAGED, f"{topic}-{partition}: the batch at offset {offset} is damaged: {error}") from error
        position = max(position, header.next_offset)
        at = end
    return Chunk(topic, partition, found, position)


def is_aborted(header: BatchHeader, ahead: list[AbortedTransaction], rolled_back: set[int]) -> bool:
    while ahead and ahead[-1].first_offset <= header.last_offset:
        rolled_back.add(ahead.pop().producer_id)
    return header.is_transactional and header.producer_id in rolled_back


def end_of_transaction(data: bytes, at: int, header: BatchHeader, rolled_back: set[int]) -> None:
    for record in records(data, at):
        if record.key is not None and len(record.key) >= MARKER.size and MARKER.unpack_from(record.key)[1] == ABORT:
            rolled_back.discard(header.producer_id)
