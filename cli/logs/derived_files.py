"""Checks the index files of a segment and the leader-epoch checkpoint of a log against the batches.

Indexes are read a few KiB at a time, during the scan of their segment.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from cli.logs.files import Batch, open_for_reading
from cli.logs.problems import Problems
from cli.logs.text import shown
from storage.epochs import EPOCHS

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
READ_BYTES = 12 << 10  # a multiple of both entry sizes


def entries(path: str, layout: Struct) -> Iterator[tuple[int, int] | str]:
    """The entries of an index, up to the zeros that Kafka preallocates. If the file is damaged, the last item is a text about that."""
    file = open_for_reading(path)
    try:
        at, end = 0, file.size()
        while at < end:
            data = file.read(at, min(READ_BYTES, end - at))
            at += len(data)
            complete_size = len(data) - len(data) % layout.size
            for entry in layout.iter_unpack(data[:complete_size]):
                if not any(entry):
                    return
                yield entry
            if complete_size < len(data):
                yield f"it ends in {len(data) - complete_size} bytes that are no entry"
                return
    finally:
        file.close()


class IndexCheck:
    """Checks one index of a segment, batch by batch; reports only its first problem."""

    layout = OFFSET_ENTRY
    ending = ".index"

    def __init__(self, segment_path: str, base: int, problems: Problems) -> None:
        self.path = segment_path.removesuffix(".log") + self.ending
        self.base = base
        self.exists = os.path.lexists(self.path)
        self._problems = problems
        self._entries = entries(self.path, self.layout) if self.exists else iter(())
        self._last = (-1, -1)
        self._entry: tuple[int, int] | None = None
        self._number = 0
        self._advance()

    def check_batch(self, batch: Batch) -> None:
        raise NotImplementedError

    def in_order(self, last: tuple[int, int], entry: tuple[int, int]) -> bool:
        raise NotImplementedError

    def missing_target(self, entry: tuple[int, int]) -> str:
        raise NotImplementedError

    def stop(self) -> None:
        """Leave the other entries unchecked: the segment is damaged, or a broker is writing to it."""
        self._entries = iter(())
        self._entry = None

    def finish(self) -> None:
        if self._entry is not None:
            self.report(self.missing_target(self._entry))
        self.stop()

    def report(self, problem: str) -> None:
        self._problems.add("index-wrong", self.path, max(0, self._number - 1) * self.layout.size, problem)
        self.stop()

    def _advance(self) -> None:
        try:
            entry = next(self._entries, None)
        except FileNotFoundError:  # removed since `exists` was set
            self.exists = False
            entry = None
        except OSError as error:
            self._problems.add("read-failed", self.path, None, error.strerror or str(error))
            entry = None
        self._number += 1
        self._entry = None
        if isinstance(entry, str):
            self.report(entry)
        elif entry is not None:
            if not self.in_order(self._last, entry):
                self.report(f"entry {entry} after {self._last} is out of order")
                return
            self._last = self._entry = entry


class OffsetIndexCheck(IndexCheck):
    """An entry (relative offset, position) has the position of a batch, and the batch's last offset.

    Older Kafka versions wrote the last offset of several batches that were appended together. So the offset may be that of any batch before
    the next entry.
    """

    def __init__(self, segment_path: str, base: int, problems: Problems) -> None:
        self._expected_offset = -1
        super().__init__(segment_path, base, problems)

    def in_order(self, last: tuple[int, int], entry: tuple[int, int]) -> bool:
        return entry[0] > last[0] and entry[1] > last[1]

    def missing_target(self, entry: tuple[int, int]) -> str:
        return f"it points to byte {entry[1]}, after the end of the segment"

    def stop(self) -> None:
        self._expected_offset = -1
        super().stop()

    def check_batch(self, batch: Batch) -> None:
        entry = self._entry
        if entry is not None and entry[1] <= batch.position:
            if entry[1] < batch.position:
                self.report(f"it points to byte {entry[1]}, where no batch begins")
                return
            if self._expected_offset >= 0:
                self.report(f"it has offset {self._expected_offset}, where no batch before the next entry ends")
                return
            self._expected_offset = self.base + entry[0]
            self._advance()
        if self._expected_offset >= 0 and batch.header.last_offset >= self._expected_offset:
            if batch.header.last_offset > self._expected_offset:
                self.report(f"it has offset {self._expected_offset}, but its batch ends at {batch.header.last_offset}")
            self._expected_offset = -1

    def finish(self) -> None:
        if self._expected_offset >= 0 and self._entry is None:
            self.report(f"it has offset {self._expected_offset}, which the segment does not contain")
        super().finish()


class TimeIndexCheck(IndexCheck):
    """An entry (timestamp, relative offset) has the largest timestamp so far, and an offset in the batch with that timestamp."""

    layout = TIME_ENTRY
    ending = ".timeindex"

    def in_order(self, last: tuple[int, int], entry: tuple[int, int]) -> bool:
        return entry[0] > last[0] and entry[1] >= last[1] and entry[1] >= 0

    def missing_target(self, entry: tuple[int, int]) -> str:
        return f"it has offset {self.base + entry[1]}, which the segment does not contain"

    def check_batch(self, batch: Batch) -> None:
        header = batch.header
        while self._entry is not None and self.base + self._entry[1] <= header.last_offset:
            timestamp, offset = self._entry[0], self.base + self._entry[1]
            if offset < header.base_offset:
                self.report(f"it has offset {offset}, which the segment does not contain")
            elif timestamp != header.max_timestamp:
                self.report(f"it has {timestamp} as the largest timestamp up to offset {offset}, but the batch has {header.max_timestamp}")
            else:
                self._advance()


class EpochRun(NamedTuple):
    """Consecutive batches under one leader epoch."""

    epoch: int
    first: int  # base offset of the first batch
    last: int  # base offset of the last batch
    end: int  # last offset of the last batch


class EpochCheck:
    """Collects runs of consecutive batches with one leader epoch, and at the end compares them with the leader-epoch checkpoint."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._runs: list[EpochRun] = []

    def check_batch(self, file: str, batch: Batch) -> None:
        epoch, offset, end = batch.header.leader_epoch, batch.header.base_offset, batch.header.last_offset
        if epoch < 0:
            return
        before = self._runs[-1] if self._runs else None
        if before is None or before.epoch < epoch:
            self._runs.append(EpochRun(epoch, offset, offset, end))
        elif before.epoch == epoch:
            self._runs[-1] = EpochRun(epoch, before.first, offset, end)
        else:
            self._problems.add("epoch-order", file, batch.position, f"offset {offset} has epoch {epoch}, but follows epoch {before.epoch}")

    def compare(self, folder: str, log_start: int) -> None:
        """Report differences. Batches before the log start need no entry, since Tenure drops such entries, as Kafka does. `log_start`: -1 if unknown."""
        path = os.path.join(folder, EPOCHS)
        if not os.path.lexists(path):
            if self._runs:
                self._problems.add("epochs-behind", path, None, "there is no such file")
            return
        epochs = read_checkpoint(path, 2)
        if isinstance(epochs, str):
            self._problems.add("epochs-damaged", path, None, epochs)
            return
        known = [(int(epoch), int(start)) for epoch, start in epochs]
        if any(late[0] <= early[0] or late[1] < early[1] for early, late in pairwise(known)):
            self._problems.add("epochs-damaged", path, None, "epochs and offsets are not ascending")
            return
        starts = [start for _, start in known]
        for run in self._runs:
            epoch, first, last = run.epoch, run.first, run.last
            if not known or epoch > known[-1][0]:
                self._problems.add("epochs-behind", path, None, f"it lacks epoch {epoch}, which begins at offset {first}")
                return
            if run.end < starts[0]:
                if run.end >= log_start >= 0:
                    text = f"it begins at offset {starts[0]}, after offsets {first} to {run.end} of epoch {epoch}"
                    self._problems.add("epochs-behind", path, None, text)
                continue
            at_first, at_last = bisect_right(starts, max(first, starts[0])) - 1, bisect_right(starts, max(last, starts[0])) - 1
            if known[at_first][0] != epoch or at_first != at_last:
                other_epoch = known[at_first if known[at_first][0] != epoch else at_last][0]
                self._problems.add("epochs-wrong", path, None, f"offsets {first} to {last} have epoch {epoch}, but it has epoch {other_epoch} for them")
                return


def read_checkpoint(path: str, words: int) -> list[list[str]] | str:
    """The entries of one of Kafka's checkpoint files, or why it is invalid. Each entry has two numbers; with `words=3` a topic precedes them."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError as error:
        return error.strerror or str(error)
    if not text:  # Kafka creates it empty
        return []
    lines = text.split("\n")
    if lines[0] != "0":
        return f"its version is {shown(lines[0])}, not 0"
    if len(lines) < 2 or not lines[1].isdigit() or [line for line in lines[2:] if line] != lines[2 : 2 + int(lines[1])]:
        return "its number of lines is not the declared one"
    entries = [line.rsplit(" ", words - 1) for line in lines[2 : 2 + int(lines[1])]]
    for line in entries:
        numbers = line if words == 2 else line[1:]
        if len(line) != words or not all(number.removeprefix("-").isdigit() for number in numbers):
            return f"it has the line {shown(' '.join(line))}"
    return entries
