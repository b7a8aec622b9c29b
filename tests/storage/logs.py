"""Builders of batches and logs for the storage tests, and shorthands for flushing, stopping and cleaning."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Self

import pytest

from protocol.batch import BatchHeader, Record, build, build_facts, facts_of, iterate_headers, records
from protocol.compression import Compression
from simulator.disk import Crashed, SimDisk
from storage import AppendFailed, Disk, FoundRecord, Handles, Log, Truncation
from storage.compaction import Compaction
from storage.flush import Flush
from storage.reading import PinnedIterator
from storage.segment import Segment
from storage.swap import promote, remove_deleted
from storage.times import SearchStep

FOLDER = "orders-0"
DUMP = "org.apache.kafka.tools.DumpLogSegments"


def batch(name: str, records: int = 1, padding: int = 0, timestamp: int = 1_000) -> bytes:
    """Records NAME.0, NAME.1, ...; `padding` makes the batch larger."""
    return build([Record(n, timestamp + n, f"{name}.{n}".encode(), bytes(padding), []) for n in range(records)])


def keyed_batch(*facts: tuple[str, str | None], timestamp: int = 5_000, codec: Compression = Compression.NONE) -> bytes:
    """A batch of facts as the coordinator builds it, or, with a codec, as Kafka's clients do."""
    pairs = [(key.encode(), None if value is None else value.encode()) for key, value in facts]
    if codec:
        return build([Record(n, timestamp + n, key, value) for n, (key, value) in enumerate(pairs)], compression=codec)
    return build_facts(pairs, timestamp)


def bases(log: Log) -> list[int]:
    return [segment.base for segment in log._segments]


def append_all(log: Log, names: str | int, records: int = 1, **fields: int) -> None:
    """Append a batch named after each letter of `names`; if `names` is a number, append that many batches, named b0, b1, ...

    `fields` are those of `batch`.
    """
    for name in names if isinstance(names, str) else [f"b{number}" for number in range(names)]:
        log.append(batch(name, records, **fields), log.epoch)


def append_flushed(log: Log, data: bytes, epoch: int = 0) -> None:
    log.append(data, epoch)
    log.flush()


def reopen(disk: Disk, path: str, *, clean: bool = False, recovery_point: int = 0, segment_bytes: int = 1 << 20) -> tuple[Log, Truncation]:
    return Log.open(Handles(disk), f"{path}/{FOLDER}", segment_bytes, recovery_point, clean)


class CrashAt:
    """The process dies at this step of the `with` block. Its changes are there until the power fails (`disk.crash`)."""

    def __init__(self, disk: SimDisk, step: int) -> None:
        self._disk = disk
        self.happened = False
        disk.changes_until_crash = step

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._disk.changes_until_crash = -1
        self.happened = isinstance(error, Crashed)
        return self.happened


def stop(log: Log) -> None:
    """Stop in order: flush everything and store the indexes."""
    log.flush()
    log.close()


def run_flush(log: Log, flush: Flush) -> None:
    flush.run()
    log.finish_flush(flush, None)


def fail_flush(disk: SimDisk, log: Log) -> None:
    """Let the next sync fail, and with it the flush."""
    disk.fail_syncs = 1
    with pytest.raises(AppendFailed):
        log.flush()


def scan(log: Log, offset: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Whole batches from the batch with `offset` up to `end`, or to the end of the log; about a MiB at a time."""
    stop = log.next_offset if end is None else end
    segments = log._between(offset, stop)
    return PinnedIterator(segments, chain.from_iterable([segment.chunks(offset, stop) for segment in segments]))


def recover(log: Log, keep_unflushed: bool) -> None:
    """Repair the log at once, in all its steps; raises as `Repair.run` does."""
    repair = log.start_repair(log.next_offset if keep_unflushed else log.flushed_offset)
    repair.run()
    log.finish_repair(repair)


def names(log: Log, offset: int = 0, end: int | None = None) -> list[str]:
    """The keys of all records from `offset` on."""
    return [key.decode() for chunk in scan(log, offset, end) for key, _ in facts_of(chunk)]


def result_of(steps: Iterator[SearchStep]) -> FoundRecord | None:
    """Run a time lookup to its end; None: no such record."""
    return next((step for step in steps if isinstance(step, FoundRecord)), None)


def headers(log: Log, offset: int = 0) -> list[BatchHeader]:
    return [header for chunk in scan(log, offset) for header in iterate_headers(chunk, 0, len(chunk))]


def newest_timestamp(log: Log) -> int:
    return max((segment.max_timestamp for segment in log._segments), default=-1)


def read(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def overwrite(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.write(0, data)
        file.sync()
    finally:
        file.close()
    disk.sync_folder(path.rpartition("/")[0])


def clean(disk: Disk, log: Log, **settings: Any) -> Compaction:
    """Clean the log and swap its segments."""
    job = compaction(disk, log, **settings)
    for _ in job.steps():
        pass
    promoted = promote(disk, log.folder, job.cleaned, "0")
    remove_deleted(disk, log.folder, log.exchange(job.cleaned, promoted))
    return job


def compaction(disk: Disk, log: Log, **settings: Any) -> Compaction:
    fields: dict[str, Any] = {
        "first_dirty": 0,
        "now": 10_000,
        "delete_retention_ms": 1_000,
        "segment_bytes": 1 << 20,
        "map_bytes_max": 1 << 20,
    } | settings
    return Compaction(disk, log.folder, log.closed_segments, log.active_base, **fields)


def all_records(log: Log) -> list[Record]:
    decoded = []
    for chunk in scan(log):
        at = 0
        for header in iterate_headers(chunk, 0, len(chunk)):
            if not header.is_control:
                decoded += records(chunk, at)
            at += header.size
    return decoded


def records_by_offset(log: Log) -> dict[int, tuple[str, str | None]]:
    return {
        record.offset: ((record.key or b"").decode(), None if record.value is None else record.value.decode()) for record in all_records(log)
    }


def values_by_key(log: Log) -> dict[str, str]:
    state: dict[str, str] = {}
    for batch_facts in log.facts():
        for key, value in batch_facts:
            if value is None:
                state.pop(key.decode(), None)
            else:
                state[key.decode()] = value.decode()
    return state


def flush_and_roll(log: Log) -> Log:
    log.flush()
    assert log.roll(0)
    return log


def clean_and_promote(disk: Disk, log: Log, **settings: Any) -> tuple[Compaction, list[Segment]]:
    """Clean and promote, without swapping the segments."""
    job = compaction(disk, log, **settings)
    assert list(job.steps())
    return job, promote(disk, log.folder, job.cleaned, "0")
