"""The journal of an export: `tenure.export` in the target, an append-only file of JSON lines. Incomplete lines are ignored.

The first line names the source. The line `plan` has the end of each topic's logs. Each completely copied log has a line with the checksum of
its batches. An export that is repeated after an interruption continues if the journal has a plan, and starts over otherwise.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final, NamedTuple

import google_crc32c

from cli.store.logs import LogToCopy
from protocol.batch import BatchHeader
from storage import LogId
from storage.log_copy import LogEnd, LogState

JOURNAL: Final = "tenure.export"
VERSION: Final = 1


class BatchTotals:
    """Number, size and checksum of a log's batches."""

    def __init__(self) -> None:
        self.batches = 0
        self.bytes = 0
        self.compacted_to = 0  # offset after the last gap between batches: compaction, which alone leaves gaps, has reached it
        self._next_offset = -1
        self._crc = 0

    def add(self, header: BatchHeader, batch: bytes) -> None:
        if 0 <= self._next_offset < header.base_offset:
            self.compacted_to = header.base_offset
        self._next_offset = header.next_offset
        self.batches += 1
        self.bytes += len(batch)
        self._crc = google_crc32c.extend(self._crc, batch)

    @property
    def crc32c(self) -> str:
        return f"{self._crc:08x}"


class FinishedLog(NamedTuple):
    """A log that was copied completely."""

    log: str
    start: int
    next: int
    epoch: int
    batches: int
    bytes: int
    compacted_to: int
    crc32c: str


def done(log: LogToCopy, state: LogState, copied: BatchTotals) -> FinishedLog:
    return FinishedLog(
        str(log), state.start_offset, state.next_offset, state.epoch, copied.batches, copied.bytes, copied.compacted_to, copied.crc32c
    )


class PlannedLog(NamedTuple):
    log: LogToCopy
    end: LogEnd


class Journal:
    def __init__(self, path: str) -> None:
        """Read the journal, if it exists."""
        self.header: dict[str, Any] = {}
        self.plan: list[PlannedLog] | None = None
        self.done: dict[str, FinishedLog] = {}
        self._path = path
        for line in self._lines():
            if "export" in line:
                self.header = line
            elif "plan" in line:
                self.plan = [PlannedLog(LogToCopy(LogId(name, number), bytes.fromhex(id)), LogEnd(*end)) for name, number, id, end in line["plan"]]
            elif "log" in line:
                self.done[line["log"]] = FinishedLog(**line)

    def _lines(self) -> list[dict[str, Any]]:
        parsed: list[dict[str, Any]] = []
        try:
            with open(self._path, "rb") as file:
                lines = file.read().split(b"\n")[:-1]
        except FileNotFoundError:
            return parsed
        for line in lines:
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                parsed.append(value)
        return parsed

    def begin(self, source: str, cluster_id: str, began: str) -> None:
        """Replace the journal by one that has only this header."""
        self.header = {"export": VERSION, "source": source, "cluster_id": cluster_id, "began": began}
        self.plan, self.done = None, {}
        new = f"{self._path}.new"
        with open(new, "wb") as file:
            file.write(_line(self.header))
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self._path)

    def add_plan(self, plan: list[PlannedLog]) -> None:
        self.plan = plan
        self._append({"plan": [[planned.log.id.name, planned.log.id.partition, planned.log.topic_id.hex(), list(planned.end)] for planned in plan]})

    def add_done(self, done: FinishedLog) -> None:
        self.done[done.log] = done
        self._append(done._asdict())

    def _append(self, value: dict[str, Any]) -> None:
        with open(self._path, "ab") as file:
            file.write(b"\n" + _line(value))  # begin with a line feed: a killed process may have left the last line incomplete
            file.flush()
            os.fsync(file.fileno())


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
