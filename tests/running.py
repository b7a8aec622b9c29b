"""A broker as its own process, and a client that sends exactly the bytes of a test."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import pack, unpack
from typing import Any, Self, TypeVar

import cli
from broker.runtime.build import compiled
from protocol.apis import APIS
from tests.support.headers import encode_request, response_header_version

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = Path(cli.__file__).resolve().parents[1]  # the code under test: this checkout's, or a compiled copy of it
if "COMPILED" in os.environ and not compiled():
    raise RuntimeError(f"COMPILED is set, and {PACKAGES} is not compiled")
START_SECONDS = 20
ANSWER_SECONDS = 10
T = TypeVar("T")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in background jobs of a shell; child processes of tests would inherit it, but must react to Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


def environment(**more: str) -> dict[str, str]:
    """The test run's environment without its settings of Tenure and Python; PYTHONPATH is the code under test."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("TENURE_", "PYTHON"))}
    return plain | {"PYTHONPATH": str(PACKAGES), "PYTHONWARNINGS": "error"} | more


def wait_until(condition: Callable[[], T | None], seconds: float = ANSWER_SECONDS, pause: float = 0.01, state: Callable[[], object] = str) -> T:
    """Check the condition repeatedly; returns its first true value. `state` is shown on a failure."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {value} {state()}"
        time.sleep(pause)
    return value


def start(*arguments: str, command: tuple[str, ...] = (), **more: str) -> subprocess.Popen[str]:
    """Start `tenure serve`, without waiting until it listens."""
    return subprocess.Popen(
        (*command, sys.executable, "-P", "-m", "tenure", "serve", *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**more),
        cwd=os.sep,
    )


class Broker:
    """A started `tenure serve`, which has announced its `listeners`; collects its standard error."""

    def __init__(self, *arguments: str, command: tuple[str, ...] = (), listeners: int = 1, **more: str) -> None:
        begin = time.monotonic()
        self.process = start(*arguments, command=command, **more)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.listeners: dict[str, tuple[str, int]] = {}
        try:
            self._await_listening(begin, listeners)
        except BaseException:
            self.kill()
            raise
        self.started_after = time.monotonic() - begin

    def _await_listening(self, begin: float, count: int) -> None:
        assert self.process.stdout is not None
        while len(self.listeners) < count:
            line = self.process.stdout.readline()
            match = re.fullmatch(r"listening (\S+) (.*):(\d+)\n", line)
            assert match, f"instead of listening: {line!r}; exit {self.process.poll()}; {self.errors()}"
            self.listeners[match[1]] = (match[2].strip("[]"), int(match[3]))
            assert time.monotonic() - begin < START_SECONDS

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    @property
    def port(self) -> int:
        return next(iter(self.listeners.values()))[1]

    @property
    def pid(self) -> int:
        return self.process.pid

    def errors(self) -> str:
        """The standard error so far; complete if the process has ended."""
        if self.process.poll() is not None:
            self._reader.join(5)
        return "\n".join(self.lines)

    def await_line(self, part: str, seconds: float = ANSWER_SECONDS) -> str:
        try:
            return wait_until(lambda: next((line for line in list(self.lines) if part in line), None), seconds)
        except AssertionError:
            raise AssertionError(f"no line with {part!r} in: {self.errors()}") from None

    def memory_kib(self) -> int:
        """Resident memory; Linux only, like the tests that use it."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])  # type: ignore[index]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = ANSWER_SECONDS) -> int:
        code = self.process.wait(seconds)
        self._reader.join(5)
        return code

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """kill -9, if it still runs, and remove the temporary data of the test profile."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(ANSWER_SECONDS)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                self._reader.join(5)
                stream.close()
        for left_behind in Path(tempfile.gettempdir()).glob(f"tenure-test-{self.pid}-*"):
            shutil.rmtree(left_behind, ignore_errors=True)


@contextmanager
def broker(*arguments: str, command: tuple[str, ...] = (), listeners: int = 1, **more: str) -> Iterator[Broker]:
    started = Broker(*arguments, command=command, listeners=listeners, **more)
    try:
        yield started
    finally:
        started.kill()


class Client:
    """One connection; requests and replies are our messages, or bytes."""

    def __init__(self, port: int, host: str = "127.0.0.1", client_id: str | None = "test", source: str | None = None) -> None:
        came_from = None if source is None else (source, 0)
        self.socket = socket.create_connection((host, port), timeout=ANSWER_SECONDS, source_address=came_from)
        self.client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def send(self, request: Any, version: int) -> int:
        self._correlation_id += 1
        self.socket.sendall(encode_request(request.API_KEY, version, self._correlation_id, self.client_id, request.encode(version)))
        return self._correlation_id

    def receive(self, request: Any, version: int) -> Any:
        frame = self.frame()
        api = APIS[request.API_KEY]
        at = 4 + response_header_version(api.key, version)  # a flexible header ends in an empty section of tags
        reply, end = api.response.decode(frame, at, version)
        assert end == len(frame)
        return reply

    def ask(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return self.receive(request, version)

    def send_frame(self, frame: bytes) -> None:
        self.socket.sendall(pack(">i", len(frame)) + frame)

    def frame(self) -> bytes:
        (size,) = unpack(">i", self.exactly(4))
        return self.exactly(size)

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError(f"closed after {len(data)} of {size} bytes")
            data += chunk
        return data

    def await_close(self) -> bool:
        """Wait until the broker closes the connection or sends something; returns whether it closed."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
