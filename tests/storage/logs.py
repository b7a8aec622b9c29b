"""What the tests of logs share: batches that can be told apart, and a log that is opened again and again."""

from __future__ import annotations

from protocol.batch import BatchHeader, Record, build, facts_of, iterate
from storage import Disk, Handles, Log, Recovery

FOLDER = "orders-0"


def batch(name: str, records: int = 1, padding: int = 0, timestamp: int = 1_000) -> bytes:
    """Records NAME.0, NAME.1, ...; `padding` makes the batch larger."""
    return build([Record(n, timestamp + n, f"{name}.{n}".encode(), bytes(padding), []) for n in range(records)])


def reopen(disk: Disk, path: str, *, clean: bool = False, recovery_point: int = 0, segment_bytes: int = 1 << 20) -> tuple[Log, Recovery]:
    return Log.open(Handles(disk), f"{path}/{FOLDER}", segment_bytes, recovery_point, clean)


def names(log: Log, offset: int = 0, end: int | None = None) -> list[str]:
    """The keys of what the log holds."""
    return [key.decode() for chunk in log.scan(offset, end) for key, _ in facts_of(chunk)]


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
