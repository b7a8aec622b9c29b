"""Builders of turn-log files (`storage/turn_log.py`), in the current format and in the first one."""

from __future__ import annotations

import google_crc32c

from protocol.batch import read_header
from simulator.disk import SimDisk
from storage import Handles, Log
from storage.turn_format import AppendedBatch
from storage.turn_log import PREFIX, TurnLog
from tests.storage.logs import batch, overwrite, read

FOLDER = "/data"
LOGS = ("a-0", "b-0", "c-0")
# The logs in each turn; the last turn has all of them again.
TURNS = (("a-0", "b-0"), ("a-0", "b-0", "c-0"), ("b-0",), ("a-0", "b-0", "c-0"))


def stamped_batch(name: str, base: int, records: int = 1, epoch: int = 0) -> bytes:
    """A batch as a log stores it at this offset."""
    disk = SimDisk()
    log, _ = Log.open(Handles(disk), "/log-0", 1 << 20, 0, True)
    for number in range(base):
        log.append(batch(f"before {number}"), 0)
    for _ in range(epoch):
        log.claim()
    data = bytearray(batch(name, records))
    log.append(data, epoch)
    return bytes(data)


def turn_of(*appended: tuple[str, bytes]) -> list[AppendedBatch]:
    headers = [read_header(batch, 0) for _, batch in appended]
    return [(name, batch, header.base_offset, header.next_offset) for (name, batch), header in zip(appended, headers, strict=True)]


def keys(log: Log) -> list[bytes]:
    return [key for batch_facts in log.facts() for key, _ in batch_facts if key is not None]


class TurnFile:
    """The bytes of a turn file, and the number of batches of each log after each turn."""

    def __init__(self, turns: tuple[tuple[str, ...], ...] = TURNS) -> None:
        disk = disk_with_turns()
        file = TurnLog(disk, FOLDER, 1)
        self.acknowledged: list[dict[str, int]] = [dict.fromkeys((*LOGS, "d-0"), 0)]  # batches of each log: before the first turn, after each
        self.starts = [0]
        for names in turns:
            count = dict(self.acknowledged[-1])
            file.write(turn_of(*[(name, stamped_batch(f"{name} {count[name]}", count[name])) for name in names]))
            for name in names:
                count[name] += 1
            self.acknowledged.append(count)
            self.starts.append(file.size)
        self.data = read(disk, f"{FOLDER}/{PREFIX}1")

    def keys(self, name: str) -> list[bytes]:
        return [f"{name} {number}.0".encode() for number in range(self.acknowledged[-1][name])]


def disk_with_turns(*files: bytes) -> SimDisk:
    disk = SimDisk()
    disk.make_folder(FOLDER)
    for number, data in enumerate(files, 1):
        overwrite(disk, f"{FOLDER}/{PREFIX}{number}", data)
    return disk


def first_version(*turns: list[tuple[str, bytes]]) -> bytes:
    """Turns in the format of the first version, which had no file header."""
    data = b""
    for appended in turns:
        body = b"".join(len(name).to_bytes(2, "big") + len(content).to_bytes(4, "big") + name.encode() + content for name, content in appended)
        data += google_crc32c.value(body).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body
    return data


OLD = [[("a-0", stamped_batch("a-0 0", 0)), ("b-0", stamped_batch("b-0 0", 0))], [("b-0", stamped_batch("b-0 1", 1))], [("a-0", stamped_batch("a-0 1", 1))]]
