"""Flushing of a log's segments, and the offset up to which they are durable.

`append` only writes to the operating system; a flush makes the records durable. `start_flush` and `finish_flush` run in the
owner's thread; `Flush.run` between them blocks and runs in another thread. Appends may continue meanwhile.
"""

from __future__ import annotations

from storage.errors import AppendFailed, describe_error
from storage.flush import Flush, mark_flush_failed, sync_names
from storage.handles import Handles
from storage.segment import Segment
from storage.segments import Segments


class FlushedSegments(Segments):
    """A log's segments and their flushes. After a failed flush the log is not `usable` until it is repaired."""

    __slots__ = (
        "_flush_failed",
        "_flushed_size",
        "_flushing",
        "_is_new",
        "_names_unsynced",
        "_topic_id",
        "flushed_offset",
    )

    def __init__(self, handles: Handles, folder: str) -> None:
        super().__init__(handles, folder)
        self.flushed_offset = 0
        self._topic_id = ""
        self._flushing = False
        self._flush_failed = False  # unflushed bytes may never reach the disk
        self._flushed_size = 0  # flushed bytes of the last segment
        self._names_unsynced = False
        self._is_new = False  # the folder was created, and its name is not synced yet

    @property
    def busy(self) -> bool:
        """Whether a flush or compaction uses the log's folder."""
        return self._flushing or self.folder_users > 0

    def start_flush(self, closed: bool = False) -> Flush:
        """Begin a flush; `closed`: without the active segment. Raises AppendFailed if the log needs a repair.

        A failed flush is never repeated: the system may have dropped the pages and would not report the failure again.
        """
        assert not self._flushing, "one flush at a time"
        if not self.usable:
            raise AppendFailed(f"{self.folder} waits to be repaired")
        flush = Flush(
            self.active_base if closed else self.next_offset,
            self.flushed_offset,
            self._disk,
            self.folder,
            self._names_unsynced,
            self._is_new,
            self._topic_id,
        )
        try:
            for segment in self._segments[:-1] if closed else self._segments:
                if segment.unsynced:
                    flush.files.append(self._handles.pin(segment.log_path))
                    flush.segments.append(segment)
                    flush.sizes.append(segment.size)
        except OSError as error:
            self._unpin(flush)
            self.usable = False
            raise AppendFailed(describe_error(error, self.folder)) from error
        self._flushing = True
        self._names_unsynced = self._is_new = False  # later segments belong to the next flush
        return flush

    def finish_flush(self, flush: Flush, failure: Exception | None) -> None:
        """Take the result of `flush.run`. On `failure` the log becomes unusable, and AppendFailed is raised."""
        self._flushing = False
        self._unpin(flush)
        if failure is not None:
            self.usable = False
            self._flush_failed = True
            raise AppendFailed(describe_error(failure, self.folder)) from failure
        self.flushed_offset = max(self.flushed_offset, flush.offset)
        for segment, size in zip(flush.segments, flush.sizes, strict=True):
            if segment.size == size:
                segment.unsynced = False
            if segment is self._segments[-1]:
                self._flushed_size = size

    def _unpin(self, flush: Flush) -> None:
        for file in flush.files:
            self._handles.unpin(file)

    def mark_flushed(self, end: int) -> None:
        """Count the log as flushed up to `end`: the whole file system was synced after the log had reached this offset."""
        for segment in self._segments:
            if segment.next_offset <= end:
                segment.unsynced = False
        if self._segments and self._segments[-1].base < end:  # no segment was added after `end`
            self._names_unsynced = self._is_new = False
        self.flushed_offset = max(self.flushed_offset, end)

    def flush(self) -> int:
        """Flush at once, blocking; return the flushed offset."""
        flush = self.start_flush()
        failure: OSError | None = None
        try:
            flush.run()
        except OSError as error:
            failure = error
        self.finish_flush(flush, failure)
        return self.flushed_offset

    def _sync_all(self, active: Segment) -> None:
        """Sync the active segment and the file names. Blocks."""
        if active.unsynced:
            try:
                self._handles.file(active.log_path).sync()
            except OSError:
                self._flush_failed = True
                mark_flush_failed(self._disk, self.folder, self.flushed_offset)
                raise
            active.unsynced = False
        if self._names_unsynced:
            sync_names(self._disk, self.folder, self._is_new, self._topic_id)
            self._names_unsynced = self._is_new = False
        self.flushed_offset = self.next_offset
