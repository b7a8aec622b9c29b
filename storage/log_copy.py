"""A log's folder that is written as a copy: batches keep their offsets, epochs and the gaps between them."""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol.batch import BatchHeader
from storage.disk import Disk
from storage.epochs import Epochs, from_offset, with_epoch, write_epochs
from storage.flush import write_topic_id
from storage.handles import Handles
from storage.index import RELATIVE_OFFSET_MAX
from storage.opening import remove_segments
from storage.producers import Producers
from storage.rebuilding import save_producers
from storage.segment import Segment, segment_bases

SEGMENT_BYTES_MAX: Final = 1 << 30  # of what was not divided into segments before


class LogEnd(NamedTuple):
    """Where a log ended at some moment. Of a log in a stream, also its last entry and that one's epoch, and its newest `state` entry."""

    next_offset: int
    seq: int = 0
    epoch: int = 0
    state_seq: int = 0


class LogState:
    """The metadata of a log: offsets, leader epochs and producer states. `epoch`: the one at which it was served last."""

    __slots__ = ("epoch", "epochs", "next_offset", "producers", "start_offset")

    def __init__(self, start_offset: int = 0, next_offset: int = 0, epoch: int = 0) -> None:
        self.start_offset = start_offset
        self.next_offset = next_offset
        self.epoch = epoch
        self.epochs: Epochs = []
        self.producers = Producers()

    def note_epoch(self, epoch: int, offset: int) -> None:
        """Records from the offset on are of this epoch, if it is a newer one."""
        if epoch > (self.epochs[-1][0] if self.epochs else -1):
            self.epochs = with_epoch(self.epochs, epoch, offset)

    @property
    def epochs_of_records(self) -> Epochs:
        return from_offset([known for known in self.epochs if known[1] < self.next_offset], self.start_offset)


class LogCopy:
    """The copy of one log. What a killed process has written of it is kept, but for the last segment."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._handles = Handles(disk, 8)
        self._segment: Segment | None = None
        self._copied_base = -1  # of the segment from which the last batch came
        disk.make_folder(folder)
        bases = segment_bases(disk, folder)
        remove_segments(self._handles, folder, bases[-1:])
        self.next_offset = bases[-1] if bases else 0  # batches before it are there

    def append(self, segment_base: int, header: BatchHeader, batch: bytes) -> None:
        """The next batch, from a segment that begins at `segment_base`. Raises OSError."""
        if header.base_offset < self.next_offset:
            return
        segment = self._segment
        if segment is None or segment_base != self._copied_base:
            segment = self._begin(segment_base if segment_base >= self.next_offset else header.base_offset)
        elif header.last_offset - segment.base > RELATIVE_OFFSET_MAX or segment.size + header.size > SEGMENT_BYTES_MAX:
            segment = self._begin(header.base_offset)
        self._copied_base = segment_base
        segment.append_stamped(batch, header)
        self.next_offset = header.next_offset

    def _begin(self, base: int) -> Segment:
        self._complete()
        self._segment = segment = Segment(self._handles, self._folder, base)
        self._handles.file(segment.log_path, create=True)
        return segment

    def _complete(self) -> None:
        segment = self._segment
        if segment is not None:
            segment.save_index()
            self._handles.file(segment.log_path).sync()
            segment.close()

    def finish(self, state: LogState, topic_id: str) -> None:
        """Every batch is there: write what the log is besides, and sync."""
        if self._segment is None or self.next_offset < state.next_offset:
            self._begin(state.next_offset)
        self._complete()
        # The epoch without records too: the next one has to be higher.
        epochs = state.epochs_of_records
        if state.epoch > (epochs[-1][0] if epochs else -1):
            epochs = with_epoch(epochs, state.epoch, state.next_offset)
        write_epochs(self._disk, self._folder, epochs)
        if topic_id:
            write_topic_id(self._disk, self._folder, topic_id)
        save_producers(self._disk, self._folder, state.next_offset, state.producers)
        self._disk.sync_folder(self._folder)

    def close(self) -> None:
        self._handles.close()
