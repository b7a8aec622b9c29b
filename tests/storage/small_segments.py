"""A log of many small segments, for the tests of cleaned and promoted segments."""

from __future__ import annotations

from storage import Log
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.logs import FOLDER, keyed_batch, reopen

SEGMENT_BYTES = 400
KEYS = 4
COUNT = 30


def filled(disk: FaultyDisk, keys: int = KEYS) -> Log:
    """Many small segments; the last record of a key, and the log's last one, differ from all others."""
    log, _ = reopen(disk, "/data", segment_bytes=SEGMENT_BYTES)
    for number in range(COUNT):
        log.append(keyed_batch((f"k{number % keys}", None if number % 7 == 0 else f"v{number}")), log.epoch)
    log.flush()
    return log


def left_over(disk: FaultyDisk) -> list[str]:
    return [name for name in disk.list(f"/data/{FOLDER}") if not name.endswith((".log", "index", "leader-epoch-checkpoint"))]
