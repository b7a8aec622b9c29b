"""A log of many small segments, for the tests of cleaned and promoted segments."""

from __future__ import annotations

from simulator.disk import SimDisk
from storage import Log
from tests.storage.logs import FOLDER, append_flushed, keyed_batch, reopen

SEGMENT_BYTES = 400
KEYS = 4
COUNT = 30


def filled(disk: SimDisk, keys: int = KEYS) -> Log:
    """Many small segments; each record is a tombstone or has a unique value."""
    log, _ = reopen(disk, "/data", segment_bytes=SEGMENT_BYTES)
    for number in range(COUNT):
        append_flushed(log, keyed_batch((f"k{number % keys}", None if number % 7 == 0 else f"v{number}")), log.epoch)
    return log


def left_over(disk: SimDisk) -> list[str]:
    return [name for name in disk.list(f"/data/{FOLDER}") if not name.endswith((".log", "index", "leader-epoch-checkpoint"))]
