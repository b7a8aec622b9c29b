from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from broker.logging.sink import LineSink
from tests.running import environment

LINE = b"x" * 99 + b"\n"


def dropped_line(count: int) -> bytes:
    return b"%d dropped\n" % count


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    # The thread of a stuck sink must end before its descriptor is closed: the number will be reused.
    with suppress(OSError):
        os.close(reader)
    for thread in threading.enumerate():
        if thread.name == "log":
            thread.join(10)
            assert not thread.is_alive()
    with suppress(OSError):
        os.close(writer)


class Reader(threading.Thread):
    """Reads until the last writer closes."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(daemon=True)
        self._descriptor = descriptor
        self._text = b""
        self.start()

    def run(self) -> None:
        while piece := os.read(self._descriptor, 1 << 16):
            self._text += piece

    def text(self, sink: LineSink, writer: int) -> bytes:
        """All log text, once the sink and the pipe are closed."""
        assert sink.close(10)
        os.close(writer)
        self.join(10)
        return self._text


def test_log_lines_are_written_whole_and_in_order(pipe: tuple[int, int]) -> None:
    sink = LineSink(pipe[1], dropped_line)
    lines = [b"%d" % number * (number % 50) + b"\n" for number in range(1000)]
    for line in lines:
        sink.write(line)
    assert Reader(pipe[0]).text(sink, pipe[1]) == b"".join(lines)


def fill(writer: int) -> int:
    """Fill the pipe completely; returns the number of bytes in it."""
    size = 0
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            size += os.write(writer, b"." * 512)
    os.set_blocking(writer, True)
    return size


def test_a_pipe_without_a_reader_drops_lines_without_blocking(pipe: tuple[int, int]) -> None:
    filled = fill(pipe[1])
    sink = LineSink(pipe[1], dropped_line, queue_bytes_max=10_000)
    slowest = 0.0
    for _ in range(1000):
        start = time.perf_counter()
        sink.write(LINE)
        slowest = max(slowest, time.perf_counter() - start)
    assert slowest < 1
    dropped = sink.dropped
    assert 1000 - (10_000 + 4096) // 100 <= dropped < 1000  # the queued line and the line being written
    # Once the pipe is read again, the reader gets the count, and logging continues.
    reader = Reader(pipe[0])
    assert sink.flush(10)
    sink.write(b"after\n")
    *lines, summary, after = reader.text(sink, pipe[1])[filled:].splitlines()
    assert (summary, after) == (b"%d dropped" % dropped, b"after")
    assert len(lines) == 1000 - dropped
    assert sink.dropped == dropped


def test_the_end_waits_a_limited_time_for_a_stuck_pipe(pipe: tuple[int, int]) -> None:
    sink = LineSink(pipe[1], dropped_line)
    for _ in range(3000):
        sink.write(LINE)
    start = time.perf_counter()
    assert not sink.close(0.05)
    assert time.perf_counter() - start < 1
    dropped = sink.dropped
    assert dropped > 2000
    sink.write(LINE)
    assert sink.dropped == dropped + 1  # closed: no line is accepted


def test_a_closed_reader_does_not_stop_the_broker(pipe: tuple[int, int]) -> None:
    sink = LineSink(pipe[1], dropped_line)
    os.close(pipe[0])
    sink.write(LINE)
    assert sink.flush(10)
    sink.write(LINE)
    assert sink.close(10)
    assert sink.dropped == 2


def test_a_full_non_blocking_descriptor_is_waited_for(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    sink = LineSink(pipe[1], dropped_line)
    for _ in range(3000):
        sink.write(LINE)
    assert Reader(pipe[0]).text(sink, pipe[1]) == LINE * 3000


def test_a_process_ends_although_its_log_is_not_read() -> None:
    code = """
from broker.logging import logs
from broker.logging.logs import log
logs.configure("info", "json")
for number in range(5000):
    log.info("a line that nobody reads", number=number)
print("worked", flush=True)
logs.close()
"""
    root = Path(__file__).parents[3]
    process = subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"worked\n"
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_signal_blocked_in_the_main_thread_is_blocked_in_the_writer_thread() -> None:
    code = """
import os, signal, time
from broker.logging.sink import LineSink
from tests.running import environment
signal.signal(signal.SIGTERM, lambda number, frame: print("came"))
sink = LineSink(2, lambda count: b"")
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0.2)
print(*(signal.Signals(number).name for number in signal.sigpending()))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
sink.close()
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, env=environment(), timeout=20, check=True)
    assert done.stdout == "SIGTERM\ncame\n"
