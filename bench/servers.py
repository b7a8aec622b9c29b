"""The measured servers, floor and broker, each in its own process, which is always ended, by its process id."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from bench.machine import pinned
from bench.native import ROOT

START_SECONDS = 20.0
VALGRIND_START_SECONDS = 180.0
STOP_SECONDS = 5.0
ERROR_CHARACTERS_MAX = 300
FLOOR_SECONDS = 900  # after this time the floor ends by itself, if nothing has stopped it

# The targets assume these: replies do not wait for an fsync, as in Kafka by default, and there is no initial rebalance delay.
SETTINGS = ("offsets.flush=interval", "group.initial.rebalance.delay.ms=0")


class ServerError(Exception):
    """A server did not start, or ended while it was measured."""


class Server(NamedTuple):
    process: subprocess.Popen[str]
    port: int
    born: float  # monotonic seconds, before the process was started

    @property
    def pid(self) -> int:
        return self.process.pid


@contextmanager
def floor(program: Path, core: int | None) -> Iterator[Server]:
    with started("the floor", [str(program), "0", str(FLOOR_SECONDS)], core, r"listening (\d+)\n") as server:
        yield server


@contextmanager
def broker(
    core: int | None, *settings: str, packages: Path = ROOT, prefix: tuple[str, ...] = (), may_end: bool = False
) -> Iterator[Server]:
    """`tenure serve` from these packages, on a free port and with a temporary data directory."""
    data = tempfile.mkdtemp(prefix="tenure-bench-")
    try:
        with broker_on(Path(data), core, *settings, packages=packages, prefix=prefix, may_end=may_end) as server:
            yield server
    finally:
        shutil.rmtree(data, ignore_errors=True)


@contextmanager
def broker_on(
    data: Path, core: int | None, *settings: str, packages: Path = ROOT, prefix: tuple[str, ...] = (), may_end: bool = False
) -> Iterator[Server]:
    """`tenure serve` on an existing data directory. `prefix`: a command that runs it, such as valgrind."""
    command = [*prefix, sys.executable, "-P", "-m", "tenure", "serve", "--listen", "127.0.0.1:0", "--data", str(data)]
    for setting in (*SETTINGS, *settings):
        command += ["--set", setting]
    seconds = VALGRIND_START_SECONDS if prefix else START_SECONDS
    with started("the broker", command, core, r"listening \S+ .*:(\d+)\n", may_end, packages, seconds) as server:
        yield server


@contextmanager
def started(
    name: str, command: list[str], core: int | None, announcement: str, may_end: bool = False, packages: Path = ROOT,
    seconds: float = START_SECONDS,
) -> Iterator[Server]:  # fmt: skip
    """Run a process that prints its port on standard output, and stop it at the end of the context.

    Errors get a note with the last line of the process's error output. Unless `may_end`, an early end of the process is an error.
    """
    with tempfile.TemporaryFile("w+") as stderr:
        born = time.monotonic()
        with pinned(core):
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=environment(packages),
                cwd=os.sep,
            )
        try:
            announced = re.fullmatch(announcement, first_line(process, seconds))
            if announced is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_SECONDS)
                raise ServerError(f"{name} did not start")
            yield Server(process, int(announced[1]), born)
            if process.poll() is not None and not may_end:
                raise ServerError(f"{name} ended while it was measured")
        except Exception as error:
            if process.poll() is not None:
                error.add_note(f"({name}: exit {process.returncode}) {last_line(stderr)}")
            raise
        finally:
            stop(process)


def environment(packages: Path = ROOT) -> dict[str, str]:
    """The environment for a server: without variables of Tenure and Python, except PYTHONPATH, which names these packages."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TENURE_", "PYTHON"))}
    return inherited | {"PYTHONPATH": str(packages)}


def last_line(stderr: IO[str]) -> str:
    stderr.seek(0)
    return "".join(stderr.read().splitlines()[-1:])[-ERROR_CHARACTERS_MAX:]


def first_line(process: subprocess.Popen[str], seconds: float) -> str:
    """The first line that the process prints; "" if it ends, or prints nothing in time."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        return process.stdout.readline() if selector.select(seconds) else ""


def stop(process: subprocess.Popen[str], seconds: float = STOP_SECONDS) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)
    if process.stdout is not None:
        process.stdout.close()


def served_versions(port: int, seconds: float = START_SECONDS) -> dict[int, tuple[int, int]]:
    """The lowest and highest version of each API key that the server supports, from ApiVersions v0."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as client:
        client.sendall(struct.pack(">ihhih5s", 15, 18, 0, 7, 5, b"bench"))
        (size,) = struct.unpack(">i", _read_exactly(client, 4))
        frame = _read_exactly(client, size)
    correlation_id, error, count = struct.unpack_from(">ihi", frame.ljust(10, b"\0"))
    if correlation_id != 7 or error != 0 or len(frame) != 10 + 6 * count:
        raise ServerError(f"ApiVersions v0 was answered with error {error} in {len(frame)} bytes")
    return {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", frame[10:])}


def _read_exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = client.recv(size - len(data))
        if not chunk:
            raise ServerError("the server closed the connection of an ApiVersions request")
        data += chunk
    return data


def resident_mib(pid: int) -> float:
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024
    result = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, timeout=STOP_SECONDS, check=True)
    return int(result.stdout) / 1024
