"""A bounded queue of log lines and a thread that writes them, so that an unread log does not block the broker.

Standard error is shared with the parent process, so it cannot be made non-blocking: that would change the parent's descriptor too.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections import deque
from collections.abc import Callable

from broker.logging.repeated_lines import Repeats

QUEUE_BYTES_MAX = 1 << 20
FLUSH_SECONDS_MAX = 0.5
# Up to this size a write to a pipe is atomic.
WRITE_BYTES = select.PIPE_BUF


class LineSink:
    """`write` never blocks. Lines are dropped while the queue is full; their number is logged when there is room again."""

    def __init__(
        self,
        fd: int,
        dropped_line: Callable[[int], bytes],
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        repeats: Repeats | None = None,
        first: Callable[[LineSink], None] | None = None,
    ) -> None:
        """`first`: called on the thread before it writes."""
        self.dropped = 0
        self._repeats = repeats
        self._fd = fd
        self._dropped_line = dropped_line
        self._first = first
        self._queue_bytes_max = queue_bytes_max
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._writing = False
        self._closed = False
        self._changed = threading.Condition(threading.Lock())
        self._unreported = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        # The main thread blocks signals while the broker starts (stopping.py). The log thread must block them too: otherwise the
        # kernel would deliver them to it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._thread.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def write(self, line: bytes) -> None:
        with self._changed:
            if self._closed or self._bytes + len(line) > self._queue_bytes_max:
                self.dropped += 1
                self._unreported += 1
                return
            self._lines.append(line)
            self._bytes += len(line)
            self._changed.notify_all()

    def flush(self, seconds_max: float = FLUSH_SECONDS_MAX) -> bool:
        """Wait until everything is written, at most `seconds_max`: a stuck pipe must not delay the exit."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._lines and not self._writing, seconds_max)

    def close(self, seconds_max: float = FLUSH_SECONDS_MAX) -> bool:
        """Flush, then drop everything that is still queued or logged later."""
        if self._repeats is not None:
            for line in self._repeats.due_lines(at_end=True):
                self.write(line)
        written = self.flush(seconds_max)
        with self._changed:
            self._closed = True
            self.dropped += len(self._lines)
            self._lines.clear()
            self._changed.notify_all()
        return written

    def _run(self) -> None:
        if self._first is not None:
            self._first(self)
        while (chunk := self._next_chunk()) is not None:
            self._write_out(chunk)

    def _next_chunk(self) -> bytes | None:
        """Dequeue whole lines up to WRITE_BYTES, or one longer line; None when closed."""
        repeats = self._repeats
        with self._changed:
            self._writing = False
            self._changed.notify_all()
        while True:
            seconds = repeats.wait_seconds() if repeats is not None else None
            if seconds == 0 and repeats is not None:
                for line in repeats.due_lines():
                    self.write(line)
            elif self._wait_for_lines(seconds):
                break
            elif self._closed:
                return None
        with self._changed:
            if not self._lines:
                return None  # closed meanwhile
            chunk = self._lines.popleft()
            while self._lines and len(chunk) + len(self._lines[0]) <= WRITE_BYTES:
                chunk += self._lines.popleft()
            self._bytes -= len(chunk)
            self._writing = True
            if self._unreported and not self._lines:
                chunk += self._dropped_line(self._unreported)
                self._unreported = 0
            return chunk

    def _wait_for_lines(self, seconds_max: float | None) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closed, seconds_max)
            return bool(self._lines)

    def _write_out(self, chunk: bytes) -> None:
        while chunk and not self._closed:
            try:
                chunk = chunk[os.write(self._fd, chunk) :]
            except BlockingIOError:
                # Another process made the descriptor non-blocking: wait until it is writable.
                select.select([], [self._fd], [])
            except OSError:
                # The reader is gone (a closed pipe or terminal); the broker goes on.
                with self._changed:
                    self.dropped += chunk.count(b"\n")
                return
