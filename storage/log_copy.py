"""Write a copy of a log as a folder: batches keep their offsets and epochs, and gaps of offsets remain."""

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

SEGMENT_BYTES_MAX: Final = 1 << 30  # maximum size of a segment, for sources without segments


class LogEnd(NamedTuple):
    """The end of a log at one moment.

    All fields but `next_offset` are only for a log in a JetStream stream: sequence and epoch of its last entry, and the sequence of its
    newest `state` entry, a snapshot of the log's metadata.
    """

    next_offset: int
    seq: int = 0
    epoch: int = 0
    state_seq: int = 0


class LogState:
    """The metadata of a log: offsets, leader epochs and producer states. `epoch`: of its last owner."""

    __slots__ = ("epoch", "epochs", "next_offset", "producers", "start_offset")

    def __init__(self, start_offset: int = 0, next_offset: int = 0, epoch: int = 0) -> None:
        self.start_offset = start_offset
        self.next_offset = next_offset
        self.epoch = epoch
        self.epochs: Epochs = []
        self.producers = Producers()

    def note_epoch(self, epoch: int, offset: int) -> None:
        """Add the epoch, which begins at the offset, if it is newer than the known epochs."""
        if epoch > (self.epochs[-1][0] if self.epochs else -1):
            self.epochs = with_epoch(self.epochs, epoch, offset)

    @property
    def epochs_of_records(self) -> Epochs:
        return from_offset([entry for entry in self.epochs if entry[1] < self.next_offset], self.start_offset)


class LogCopy:
    """The copy of one log. If a killed process left a part of the copy, its last segment is removed and the rest is kept."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._handles = Handles(disk, 8)
        self._segment: Segment | None = None
        self._source_base = -1  # base offset of the source segment of the last batch
        disk.make_folder(folder)
        bases = segment_bases(disk, folder)
        remove_segments(self._handles, folder, bases[-1:])
        self.next_offset = bases[-1] if bases else 0  # earlier batches are copied already

    def append(self, segment_base: int, header: BatchHeader, batch: bytes) -> None:
        """Append the next batch; `segment_base`: the base offset of its source segment. Raises OSError."""
        if header.base_offset < self.next_offset:
            return
        segment = self._segment
        if segment is None or segment_base != self._source_base:
            segment = self._begin_segment(segment_base if segment_base >= self.next_offset else header.base_offset)
        elif header.last_offset - segment.base > RELATIVE_OFFSET_MAX or segment.size + header.size > SEGMENT_BYTES_MAX:
            segment = self._begin_segment(header.base_offset)
        self._source_base = segment_base
        segment.append_stamped(batch, header)
        self.next_offset = header.next_offset

    def _begin_segment(self, base: int) -> Segment:
        self._complete_segment()
        self._segment = segment = Segment(self._handles, self._folder, base)
        self._handles.file(segment.log_path, create=True)
        return segment

    def _complete_segment(self) -> None:
        segment = self._segment
        if segment is not None:
            segment.save_index()
            self._handles.file(segment.log_path).sync()
            segment.close()

    def finish(self, state: LogState, topic_id: str) -> None:
        """After the last batch: write the log's metadata, and sync."""
        if self._segment is None or self.next_offset < state.next_offset:
            self._begin_segment(state.next_offset)
        self._complete_segment()
        # Include an epoch without records: the next epoch must be higher.
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
