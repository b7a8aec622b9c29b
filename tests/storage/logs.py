"""What the tests of logs share: batches that can be told apart, and a log that is opened again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocol.batch import BatchHeader, Record, build, facts_of, iterate
from storage import Disk, Found, Handles, Log, Recovery
from storage.compaction import Compaction
from storage.swap import promote, remove_deleted

FOLDER = "orders-0"


def batch(name: str, records: int = 1, padding: int = 0, timestamp: int = 1_000) -> bytes:
    """Records NAME.0, NAME.1, ...; `padding` makes the batch larger."""
    return build([Record(n, timestamp + n, f"{name}.{n}".encode(), bytes(padding), []) for n in range(records)])


def reopen(disk: Disk, path: str, *, clean: bool = False, recovery_point: int = 0, segment_bytes: int = 1 << 20) -> tuple[Log, Recovery]:
    return Log.open(Handles(disk), f"{path}/{FOLDER}", segment_bytes, recovery_point, clean)


def names(log: Log, offset: int = 0, end: int | None = None) -> list[str]:
    """The keys of what the log holds."""
    return [key.decode() for chunk in log.scan(offset, end) for key, _ in facts_of(chunk)]


def found(steps: Iterator[Found | None]) -> Found | None:
    """What a look comes to in the end."""
    return next((one for one in steps if one is not None), None)


def headers(log: Log, offset: int = 0) -> list[BatchHeader]:
    return [header for chunk in log.scan(offset) for header in iterate(chunk, 0, len(chunk))]


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
    """A whole cleaning, here and now."""
    job = compaction(disk, log, **settings)
    for _ in job.steps():
        pass
    promoted = promote(disk, log.folder, job.cleaned, "0")
    remove_deleted(disk, log.folder, log.exchange(job.cleaned, promoted))
    return job


def compaction(disk: Disk, log: Log, **settings: Any) -> Compaction:
    given: dict[str, Any] = {
        "first_dirty": 0,
        "now": 10_000,
        "delete_retention_ms": 1_000,
        "segment_bytes": 1 << 20,
        "map_bytes_max": 1 << 20,
    } | settings
    return Compaction(disk, log.folder, log.closed, log.last_base, **given)
