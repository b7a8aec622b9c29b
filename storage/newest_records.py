"""Select the records that a compacted log retains: the newest record of each key.

First pass: `gather` the keys of the dirty part of the log. Second pass: `filter` the log from its first batch on. As in Kafka, tombstones
are retained for some time, so that slow consumers read them: the first cleaning sets the delete horizon of the batch, and the first
cleaning after that horizon removes the tombstone. Control and transactional batches are copied unchanged, and their records do not
replace older records.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import google_crc32c

from protocol.batch import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_FROM,
    MAGIC,
    TRANSACTIONAL,
    CorruptBatch,
    Record,
    read_header,
    records,
    rewrite,
    validate,
)
from protocol.batch_record import read_keys

KEY_COST_BYTES: Final = 180  # memory for a key in the map, besides its bytes: object, offset, share of the table

# Base offset, length, magic, checksum, attributes, last offset delta, producer id, record count.
_HEAD: Final = Struct(">qi4xbIhi16xq6xi")
_crc32c: Final = google_crc32c.value


class NewestRecords:
    """The newest offset of each key in one log."""

    def __init__(
        self,
        end: int,
        *,
        first_dirty: int,
        now: int,
        delete_retention_ms: int,
        map_bytes_max: int,
        producers: dict[int, int] | None = None,
    ) -> None:
        """`end`, `now` and `producers`: as in `Compaction`."""
        self.clean_to = end  # offset before which each key will have one record; less than `end` if the map of keys was full
        self.changes = 0  # batches dropped or rewritten
        self.last_dropped_header = b""  # the header of the last batch, if that was dropped
        self._first_dirty = first_dirty
        self._now = now
        self._horizon = now + delete_retention_ms if now >= 0 else -1
        self._map_bytes_max = map_bytes_max
        self._newest: dict[bytes, int] = {}
        self._key_bytes = 0
        self._active_producers = producers
        self._producers: dict[int, int] = {}  # producer id -> base offset of its last batch read so far
        self._gathered_to = first_dirty
        self._last = -1  # last offset of the last batch read

    # First pass: the newest offset of each key.

    def is_full(self) -> bool:
        """Whether the map has reached its memory limit, which ends the first pass."""
        if len(self._newest) * KEY_COST_BYTES + self._key_bytes <= self._map_bytes_max:
            return False
        self.clean_to = self._gathered_to
        return True

    def gather(self, chunk: bytes) -> int:
        """Collect the keys of the whole batches in `chunk` and return their size. Checksums are verified in the second pass."""
        unpack = _HEAD.unpack_from
        first_dirty = self._first_dirty
        end = len(chunk)
        at = 0
        while end - at >= HEADER_BYTES:
            base, length, magic, _, attributes, delta, producer, count = unpack(chunk, at)
            after = at + LENGTH_FROM + length
            if magic != MAGIC or after < at + HEADER_BYTES:
                read_header(chunk, at)  # raises with the reason
            if after > end:
                break
            self._gathered_to = base + delta + 1
            self._producers[producer] = base  # -1, no producer, is never looked up
            if base + delta >= first_dirty and not attributes & (CONTROL | TRANSACTIONAL):
                if not attributes & COMPRESSION_MASK:
                    for number, key, _ in _keys(chunk, at, after, count):
                        if key is not None:
                            self._note_key(key, base + number)
                else:
                    for record in records(chunk, at):
                        if record.key is not None:
                            self._note_key(record.key, record.offset)
            at = after
        return at

    def _note_key(self, key: bytes, offset: int) -> None:
        if key not in self._newest:
            self._key_bytes += len(key)
        self._newest[key] = offset

    # Second pass: the retained records.

    def filter(self, chunk: bytes, out: bytearray) -> int:
        """Append the retained records of the whole batches in `chunk` to `out`; return the batches' size. Raises CorruptBatch."""
        unpack = _HEAD.unpack_from
        newest = self._newest
        clean_to = self.clean_to
        end = len(chunk)
        at = 0
        copied = 0  # position up to which batches are dropped or in `out`
        while end - at >= HEADER_BYTES:
            base, length, magic, crc, attributes, delta, producer, count = unpack(chunk, at)
            after = at + LENGTH_FROM + length
            if magic != MAGIC or after < at + HEADER_BYTES:
                read_header(chunk, at)  # raises with the reason
            if after > end:
                break
            if _crc32c(chunk[at + CRC_FROM : after]) != crc or delta < 0 or not 0 <= count <= delta + 1:
                validate(chunk, at, after)
            if base <= self._last:
                raise CorruptBatch(f"offset {base} after {self._last}")
            self._last = base + delta
            replacement: bytes | None = None  # b"" drops the batch; None keeps it unchanged
            if base < clean_to and not attributes & (CONTROL | TRANSACTIONAL):
                newer = tombstones = 0
                if not attributes & COMPRESSION_MASK:
                    for number, key, tombstone in _keys(chunk, at, after, count):
                        if key is None or newest.get(key, -1) > base + number:
                            newer += 1
                        elif tombstone:
                            tombstones += 1
                else:
                    tombstones = count
                if newer == count and not self._is_last(producer, base):
                    replacement = b""
                elif newer or tombstones:
                    replacement = self._rewrite(chunk, at)
            self.last_dropped_header = b""
            if replacement is not None:
                out += chunk[copied:at]
                out += replacement
                copied = after
                self.changes += 1
                if not replacement:
                    self.last_dropped_header = chunk[at : at + HEADER_BYTES]
            at = after
        out += chunk[copied:at]
        return at

    def _rewrite(self, chunk: bytes, at: int) -> bytes | None:
        """The batch with its retained records only; b"" drops the batch, None keeps it unchanged."""
        header = read_header(chunk, at)
        horizon = -1 if not header.attributes & DELETE_HORIZON else header.base_timestamp
        expired = 0 <= horizon <= self._now
        all_records = records(chunk, at)
        retained: list[Record] = []
        for record in all_records:
            # Records without a key are dropped, as in Kafka.
            if record.key is None or self._newest.get(record.key, -1) > record.offset:
                continue
            if record.value is not None:
                retained.append(record)
            elif not expired:
                retained.append(record)
                horizon = self._horizon  # used if the batch has none yet
        if not retained:
            if not self._is_last(header.producer_id, header.base_offset):
                return b""
            return rewrite(header, []) if all_records else None
        if len(retained) == len(all_records) and (horizon < 0 or header.attributes & DELETE_HORIZON):
            return None
        return rewrite(header, retained, horizon)

    def _is_last(self, producer: int, base_offset: int) -> bool:
        """Whether the batch at `base_offset` is the last one of an active producer, so that its header must stay."""
        if producer < 0:
            return False
        if self._active_producers is not None:
            return self._active_producers.get(producer, -1) == base_offset
        return self._producers.get(producer, -1) <= base_offset


def _keys(chunk: bytes, at: int, after: int, count: int) -> list[tuple[int, bytes | None, bool]]:
    try:
        return read_keys(chunk, at + HEADER_BYTES, after, count)
    except IndexError:
        raise CorruptBatch("a record is cut short") from None
