"""Many, silent, greedy or hostile peers, and the log lines and resource use of a started broker."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from struct import unpack
from typing import Any

from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest
from tests.running import ANSWER_SECONDS, PACKAGES, Broker, Client
from tests.support.headers import encode_request

LOOPS = ("uvloop", "asyncio")
STOP_SECONDS = 3.0  # the time limit of an orderly stop

# Code that a broker's Python imports first: while the file `gate` exists, no fdatasync returns.
SLOW_DISK = """\
import os, time
flush = os.fdatasync
def fdatasync(descriptor):
    while os.path.exists({gate!r}):
        time.sleep(0.005)
    flush(descriptor)
os.fdatasync = fdatasync
"""


def serve_options(loop: str, *settings: str) -> tuple[str, ...]:
    """Command-line arguments: the test profile, this event loop, and further settings."""
    return ("--profile", "test", *(part for setting in (f"event.loop={loop}", *settings) for part in ("--set", setting)))


def arguments_for(directory: Path, *settings: str) -> tuple[str, ...]:
    """Command-line arguments for a broker on a free port, with its data in `directory` and these settings."""
    return ("--listen", "127.0.0.1:0", "--data", str(directory), *(part for setting in settings for part in ("--set", setting)))


def bytes_of(request: Any, version: int, correlation_id: int = 1) -> bytes:
    """A request as sent over the wire, with its length."""
    return encode_request(request.API_KEY, version, correlation_id, "peer", request.encode(version))


def creating(name: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], [])], 5000)


EVERY_TOPIC = bytes_of(MetadataRequest(None), 12)
NO_TOPIC = bytes_of(MetadataRequest([]), 12)


def is_served(client: Client, version: int = 12) -> bool:
    """Whether the broker still serves this client."""
    return bool(client.ask(MetadataRequest([]), version).brokers[0].node_id == 1)


@contextmanager
def clients(count: int, port: int) -> Iterator[list[Client]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Client(port)) for _ in range(count)]


def raise_open_files_limit(descriptors: int) -> bool:
    """Raise the open-file limit of this process; False if the system does not allow that many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < descriptors <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= descriptors


def send_until_stuck(sock: socket.socket, data: bytes, bytes_max: int, quiet: float = 0.3) -> int:
    """Send `data` repeatedly until the peer reads no more for a while; returns the number of bytes sent."""
    sock.setblocking(False)
    sent = 0
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_WRITE)
        while sent < bytes_max and selector.select(quiet):
            with contextlib.suppress(BlockingIOError):
                sent += sock.send(data[sent % len(data) :])
    return sent


def frames_until_end(sock: socket.socket) -> tuple[list[bytes], bytes]:
    """Read until the broker closes the connection: the whole frames, and the bytes of an incomplete last frame."""
    sock.settimeout(ANSWER_SECONDS)
    data = bytearray()
    while chunk := sock.recv(1 << 20):
        data += chunk
    frames, at = [], 0
    while len(data) - at >= 4:
        (size,) = unpack(">i", data[at : at + 4])
        if at + 4 + size > len(data):
            break
        frames.append(bytes(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return frames, bytes(data[at:])


def has_ipv6() -> bool:
    """Whether this machine can listen on the IPv6 loopback address."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def becomes_true(true: Callable[[], bool], seconds: float = 10) -> bool:
    """Wait for a condition that the broker reaches in its own time."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def readable(peers: Iterable[socket.socket], seconds: float = 0) -> list[socket.socket]:
    """The sockets that have data within `seconds`. Uses poll(), as select() refuses descriptors above 1,023."""
    with selectors.PollSelector() as selector:
        for peer in peers:
            selector.register(peer, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(seconds)]  # type: ignore[misc]


def refused(port: int) -> bool:
    """Whether connections are refused."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionError:
        return True
    return False


def log_lines(broker: Broker, event: str = "") -> list[dict[str, Any]]:
    """The broker's log lines so far, oldest first: of one event, or all."""
    entries_read = [json.loads(line) for line in list(broker.lines) if line.startswith("{")]
    return [entry for entry in entries_read if not event or entry["event"] == event]


def close_reasons(broker: Broker) -> list[str]:
    """The logged reasons for which the broker closed connections; the broker logs a repeated reason once, with a count."""
    return [entry["reason"] for entry in log_lines(broker, "connection closed") for _ in range(entry.get("repeated", 1))]


def defects(broker: Broker) -> list[str]:
    """Log lines that only a defect of the broker causes: exceptions and errors."""
    return [line for line in list(broker.lines) if '"exception"' in line or "Traceback" in line or '"level": "error"' in line]


def cpu_seconds(broker: Broker) -> float:
    """The processor time used by the broker so far."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class SlowDisk:
    """A disk whose flushes do not return between `stick` and `resume`. A broker started with `environment` uses it."""

    def __init__(self, directory: Path) -> None:
        self._gate = directory / "stuck"
        code = directory / "code"
        code.mkdir()
        (code / "sitecustomize.py").write_text(SLOW_DISK.format(gate=str(self._gate)))
        self.environment: dict[str, Any] = {"PYTHONPATH": f"{code}{os.pathsep}{PACKAGES}"}

    def stick(self) -> None:
        self._gate.touch()

    def resume(self) -> None:
        self._gate.unlink()
