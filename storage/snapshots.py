"""Snapshots of a log's producer state in Kafka's `.snapshot` files, so that an opening need not read the whole log.

    version  CRC-32C of count and entries  count  entries
    2        4                             4      47 each

The name of a file is the log's end offset at that time. An opening skips a torn or wrong snapshot, uses an older one, and reads the
batches after it.

Kafka writes one entry for each producer, its last batch, and refuses retries of older batches after a crash. Tenure writes an entry for
every known batch, so that it recognizes such retries. The newest entry is last, since Kafka keeps the last one of a producer id.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error
from typing import Final

import google_crc32c

from storage.disk import Disk
from storage.producers import NEWEST_BATCHES, NO_SEQUENCE, SEQUENCE_MAX, Producer, Producers, Written
from storage.segment import NAME_DIGITS, segment_name

SNAPSHOT: Final = ".snapshot"
VERSION: Final = 1
NO_BATCH: Final[Written] = (NO_SEQUENCE, NO_SEQUENCE, -1, -1)

_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
# Producer id, epoch, last sequence, last offset, offset delta, newest timestamp, coordinator epoch, transaction's offset.
_ENTRY: Final = Struct(">qhiqiqiq")


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """The offsets of the snapshots among these file names, sorted."""
    digits = [name[:NAME_DIGITS] for name in names if name.endswith(SNAPSHOT) and len(name) == NAME_DIGITS + len(SNAPSHOT)]
    return sorted(int(name) for name in digits if name.isascii() and name.isdigit())


def snapshot_path(folder: str, offset: int) -> str:
    return f"{folder}/{segment_name(offset)}{SNAPSHOT}"


def write_snapshot(disk: Disk, folder: str, offset: int, producers: Producers) -> None:
    """Write a snapshot unless an equal one exists. Not synced, since readers verify the checksum. Raises OSError."""
    data = snapshot_bytes(producers)
    file = disk.open(snapshot_path(folder, offset), create=True)
    try:
        size = file.size()
        if size != len(data) or file.read(0, size) != data:
            file.truncate(0)
            file.write(0, data)
    finally:
        file.close()


def snapshot_bytes(producers: Producers) -> bytes:
    entries: list[bytes] = []
    for id in producers:
        producer = producers.get(id)
        assert producer is not None
        if not producer.batches:
            entries.append(_entry(id, producer, NO_BATCH, producer.last_timestamp, producer.transaction_offset))
            continue
        entries += [_entry(id, producer, batch, batch[3], -1) for batch in producer.batches[:-1]]
        entries.append(_entry(id, producer, producer.batches[-1], producer.last_timestamp, producer.transaction_offset))
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEAD.pack(VERSION, google_crc32c.value(body)) + body


def _entry(id: int, producer: Producer, batch: Written, timestamp: int, transaction: int) -> bytes:
    first, sequence, base, _ = batch
    delta = sequence - first if sequence >= first else sequence + SEQUENCE_MAX + 1 - first
    offset = base + delta if base >= 0 else -1
    return _ENTRY.pack(id, producer.epoch, sequence, offset, delta, timestamp, producer.coordinator_epoch, transaction)


def read_snapshot(disk: Disk, folder: str, offset: int, producers: Producers) -> bool:
    """Fill `producers`; False if the file is torn, cannot be read, or has an unknown version."""
    try:
        file = disk.open(snapshot_path(folder, offset))
        try:
            data = file.read(0, file.size())
        finally:
            file.close()
    except OSError:
        return False
    return parse_snapshot(data, producers)


def parse_snapshot(data: bytes, producers: Producers) -> bool:
    try:
        version, crc = _HEAD.unpack_from(data)
        (count,) = _COUNT.unpack_from(data, _HEAD.size)
    except error:
        return False
    entries_at = _HEAD.size + _COUNT.size
    if version != VERSION or google_crc32c.value(data[_HEAD.size :]) != crc or len(data) != entries_at + count * _ENTRY.size:
        return False
    producers.clear()
    for id, epoch, sequence, last, delta, timestamp, coordinator_epoch, transaction in _ENTRY.iter_unpack(data[entries_at:]):
        producer = Producer(epoch, timestamp, coordinator_epoch, transaction)
        before = producers.get(id)
        if before is not None and before.epoch == epoch:
            producer.batches = before.batches
        if last >= 0:
            first = sequence - delta if sequence >= delta else sequence + SEQUENCE_MAX + 1 - delta
            producer.batches.append((first, sequence, last - delta, timestamp))
            del producer.batches[:-NEWEST_BATCHES]
        producers.put(id, producer)
    return True
