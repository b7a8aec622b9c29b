"""Files beside the batches of a log, checked against the batches: offset and time indexes, and the checkpoint of leader epochs.

Indexes are read a few KiB at a time, along with the scan of their segment.
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
READ_BYTES = 12 << 10  # whole entries of both kinds


def entries(path: str, layout: Struct) -> Iterator[tuple[int, int] | str]:
    """Entries up to the zeros that Kafka preallocates; then a complaint, if there is one."""
    file = open_for_reading(path)
    try:
        at, end = 0, file.size()
        while at < end:
            data = file.read(at, min(READ_BYTES, end - at))
            at += len(data)
            whole = len(data) - len(data) % layout.size
            for entry in layout.iter_unpack(data[:whole]):
                if not any(entry):
                    return
                yield entry
            if whole < len(data):
                yield f"it ends in {len(data) - whole} bytes that are no entry"
                return
    finally:
        file.close()


class IndexCheck:
    """One index of a segment; it sees each batch. It reports only its first problem."""

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

    def batch(self, batch: Batch) -> None:
        raise NotImplementedError

    def in_order(self, last: tuple[int, int], entry: tuple[int, int]) -> bool:
        raise NotImplementedError

    def behind(self, entry: tuple[int, int]) -> str:
        raise NotImplementedError

    def stop(self) -> None:
        """Nothing can be said of the rest: the segment is damaged, or still being written."""
        self._entries = iter(())
        self._entry = None

    def finish(self) -> None:
        if self._entry is not None:
            self.wrong(self.behind(self._entry))
        self.stop()

    def wrong(self, what: str) -> None:
        self._problems.add("index-wrong", self.path, max(0, self._number - 1) * self.layout.size, what)
        self.stop()

    def _advance(self) -> None:
        try:
            entry = next(self._entries, None)
        except OSError as error:
            self._problems.add("read-failed", self.path, None, error.strerror or str(error))
            entry = None
        self._number += 1
        self._entry = None
        if isinstance(entry, str):
            self.wrong(entry)
        elif entry is not None:
            if not self.in_order(self._last, entry):
                self.wrong(f"entry {entry} behind {self._last} is out of order")
                return
            self._last = self._entry = entry


class OffsetIndexCheck(IndexCheck):
    """An entry (relative offset, position) leads to a batch, and names its last offset.

    Older Kafkas named the last offset of several batches that came at once: what may not be is that it names none of those
    up to the next entry.
    """

    def __init__(self, segment_path: str, base: int, problems: Problems) -> None:
        self._wanted = -1
        super().__init__(segment_path, base, problems)

    def in_order(self, last: tuple[int, int], entry: tuple[int, int]) -> bool:
        return entry[0] > last[0] and entry[1] > last[1]

    def behind(self, entry: tuple[int, int]) -> str:
        return f"it leads to byte {entry[1]}, behind the end of the segment"

    def stop(self) -> None:
        self._wanted = -1
        super().stop()

    def batch(self, batch: Batch) -> None:
        entry = self._entry
        if entry is not None and entry[1] <= batch.position:
            if entry[1] < batch.position:
                self.wrong(f"it leads to byte {entry[1]}, where no batch begins")
                return
            if self._wanted >= 0:
                self.wrong(f"it names offset {self._wanted}, which ends no batch up to the next entry")
                return
            self._wanted = self.base + entry[0]
            self._advance()
        if self._wanted >= 0 and batch.header.last_offset >= self._wanted:
            if batch.header.last_offset > self._wanted:
                self.wrong(f"it names offset {self._wanted}, but the batch that it leads to ends in {batch.header.last_offset}")
            self._wanted = -1

    def finish(self) -> None:
        if self._wanted >= 0 and self._entry is None:
            self.wrong(f"it names offset {self._wanted}, which the segment does not have")
        super().finish()


class TimeIndexCheck(IndexCheck):
    """An entry (timestamp, relative offset): the batch with this offset has the largest timestamp so far."""

    layout = TIME_ENTRY
    ending = ".timeindex"

    def in_order(self, last: tuple[int, int], entry: tuple[int, int]) -> bool:
        return entry[0] > last[0] and entry[1] >= last[1] and entry[1] >= 0

    def behind(self, entry: tuple[int, int]) -> str:
        return f"it names offset {self.base + entry[1]}, which the segment does not have"

    def batch(self, batch: Batch) -> None:
        header = batch.header
        while self._entry is not None and self.base + self._entry[1] <= header.last_offset:
            timestamp, offset = self._entry[0], self.base + self._entry[1]
            if offset < header.base_offset:
                self.wrong(f"it names offset {offset}, which the segment does not have")
            elif timestamp != header.max_timestamp:
                self.wrong(f"it has {timestamp} as the largest time up to offset {offset}, where the batch has {header.max_timestamp}")
            else:
                self._advance()


class Stretch(NamedTuple):
    """Consecutive batches under one leader epoch."""

    epoch: int
    first: int  # base offsets of the first and the last of them
    last: int
    end: int  # last offset of the last batch


class EpochCheck:
    """Stretches of batches under one leader epoch, compared with the checkpoint at the end."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._stretches: list[Stretch] = []

    def batch(self, file: str, batch: Batch) -> None:
        epoch, offset, end = batch.header.leader_epoch, batch.header.base_offset, batch.header.last_offset
        if epoch < 0:
            return
        before = self._stretches[-1] if self._stretches else None
        if before is None or before.epoch < epoch:
            self._stretches.append(Stretch(epoch, offset, offset, end))
        elif before.epoch == epoch:
            self._stretches[-1] = Stretch(epoch, before.first, offset, end)
        else:
            self._problems.add("epoch-order", file, batch.position, f"offset {offset} is of epoch {epoch}, written behind epoch {before.epoch}")

    def compare(self, folder: str, log_start: int) -> None:
        """As Kafka, a broker raises the checkpoint's first entry to the log start and drops those before it: batches that are
        kept from before the log start need no entry. `log_start`: -1 where that is not known.
        """
        path = os.path.join(folder, EPOCHS)
        if not os.path.lexists(path):
            if self._stretches:
                self._problems.add("epochs-behind", path, None, "there is no such file")
            return
        epochs = read_checkpoint(path, 2)
        if isinstance(epochs, str):
            self._problems.add("epochs-damaged", path, None, epochs)
            return
        known = [(int(epoch), int(start)) for epoch, start in epochs]
        if any(late[0] <= early[0] or late[1] < early[1] for early, late in pairwise(known)):
            self._problems.add("epochs-damaged", path, None, "epochs and offsets do not grow")
            return
        starts = [start for _, start in known]
        for stretch in self._stretches:
            epoch, first, last = stretch.epoch, stretch.first, stretch.last
            if not known or epoch > known[-1][0]:
                self._problems.add("epochs-behind", path, None, f"it does not have epoch {epoch}, which begins at offset {first}")
                return
            if stretch.end < starts[0]:
                if stretch.end >= log_start >= 0:
                    what = f"it begins at offset {starts[0]}, and offsets {first} to {stretch.end} of epoch {epoch} are before that"
                    self._problems.add("epochs-behind", path, None, what)
                continue
            at_first, at_last = bisect_right(starts, max(first, starts[0])) - 1, bisect_right(starts, max(last, starts[0])) - 1
            if known[at_first][0] != epoch or at_first != at_last:
                says = known[at_first if known[at_first][0] != epoch else at_last][0]
                self._problems.add("epochs-wrong", path, None, f"offsets {first} to {last} are of epoch {epoch}, and it says epoch {says} there")
                return


def read_checkpoint(path: str, words: int) -> list[list[str]] | str:
    """The lines of one of Kafka's checkpoint files, numbers at the end of each; or the reason why it is invalid."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError as error:
        return error.strerror or str(error)
    if not text:  # as Kafka makes it before it has anything to say
        return []
    lines = text.split("\n")
    if lines[0] != "0":
        return f"its version is {shown(lines[0])}, not 0"
    if len(lines) < 2 or not lines[1].isdigit() or [line for line in lines[2:] if line] != lines[2 : 2 + int(lines[1])]:
        return "it does not have as many lines as it says"
    found = [line.rsplit(" ", words - 1) for line in lines[2 : 2 + int(lines[1])]]
    for line in found:
        numbers = line if words == 2 else line[1:]
        if len(line) != words or not all(number.removeprefix("-").isdigit() for number in numbers):
            return f"a line of it is {shown(' '.join(line))}"
    return found
