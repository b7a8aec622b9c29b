"""Test control under many starts and many clusters: nothing is left behind.

`make soak ARGS="--only control"`: 200 brokers killed at random moments, 10,000 clusters in one process; tests/soak/test_control.py has short forms.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tenure.testing import Cluster, Control, Process
from tests.running import environment

BROKERS: Final = 200
CLUSTERS: Final = 10_000
WARM: Final = 300  # clusters made and deleted before memory is measured: what they import and cache stays
GROWTH_KIB_MAX: Final = 2 * 1024
START_SECONDS: Final = 1.0  # from the start of a process until it is killed, at most
END_SECONDS: Final = 30.0
KILLED: Final = ("broker", "parent", "asked")  # kill -9 of the broker, kill -9 of the process that started it, SIGTERM
SERVE: Final = ("-P", "-m", "tenure", "serve", "--profile", "test", "--test-control", "127.0.0.1:0")
PARENT: Final = (
    "import subprocess, sys\n"
    "broker = subprocess.Popen([sys.executable, *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
    "print(broker.pid, flush=True)\n"
    "for line in broker.stdout: print(line.decode(), end='', flush=True)\n"
)


class Started:
    """A broker of a run, and what it has said."""

    def __init__(self, folder: Path, by_parent: bool) -> None:
        inherited = environment() | {"TMPDIR": str(folder)}
        command = [sys.executable, *(("-P", "-c", PARENT) if by_parent else ()), *SERVE]
        self.process = subprocess.Popen(command, env=inherited, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    @property
    def ports(self) -> list[int]:
        said = [line.split() for line in self.lines]
        return [int(words[2 if words[0] == "listening" else 1].rpartition(":")[2]) for words in said if words and words[0] in ("listening", "control")]

    def use(self) -> None:
        """A cluster and a topic, if it has come so far."""
        control = next((line.split() for line in self.lines if line.startswith("control ")), None)
        if control is not None:
            client = Control(control[1], control[2])
            try:
                Cluster.make(client, topics={"orders": 3}).write("orders", "paid")
            finally:
                client.close_all()

    def end(self, how: str) -> None:
        if how == "asked":
            self.process.terminate()
        else:
            self.process.kill()
        self.process.wait(END_SECONDS)

    def close(self) -> None:
        self._reading.join(END_SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def brokers_leave_something(count: int, seed: int, tell: Callable[[str], None]) -> list[str]:
    """Start so many brokers, end each at a random moment, and name what is left of them: processes, ports, folders."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="tenure-control-") as name:
        folder = Path(name)
        ports: set[int] = set()
        for number in range(count):
            how = rng.choice(KILLED)
            started = Started(folder, by_parent=how == "parent")
            try:
                time.sleep(rng.random() * START_SECONDS)
                if rng.random() < 0.5:
                    started.use()
            finally:
                started.end(how)
            ports |= set(started.ports)
            started.close()
            if number % 20 == 19:
                tell(f"control: {number + 1} brokers, {len(ports)} ports")
        deadline = time.monotonic() + END_SECONDS
        while (left := [*processes_with(str(folder)), *open_ports(ports), *map(str, folder.iterdir())]) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left


def processes_with(mark: str) -> list[str]:
    """The processes whose environment has this text (Linux)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(f"process {entry.name}: {(entry / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()}")
            except OSError:
                continue  # it has ended, or belongs to another user
    return found


def open_ports(ports: set[int]) -> list[str]:
    found = []
    for port in ports:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            continue
        found.append(f"port {port}")
    return found


def growth_of_clusters(count: int, tell: Callable[[str], None], *, warm: int = WARM) -> int:
    """By how many KiB the memory of a process grows while so many clusters are made, used and deleted in it (Linux)."""
    process = Process()
    try:
        for number in range(warm + count):
            if number == warm:
                before = memory_kib(process.pid)
            with Cluster.make(process.control, topics={"orders": 2}) as cluster:
                if number % 50 == 0:
                    cluster.write("orders", "paid")
                    cluster.fault(api="Fetch", drop=True, may_not_fire=True)
            if number % 1000 == 999:
                tell(f"control: {number + 1} clusters, {memory_kib(process.pid)} KiB")
        return memory_kib(process.pid) - before
    finally:
        process.stop()


def memory_kib(pid: int) -> int:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1])


def control_breaks_promise(brokers: int, clusters: int, seed: int, tell: Callable[[str], None]) -> bool:
    left = brokers_leave_something(brokers, seed, tell)
    tell(f"soak: control, {brokers} brokers ended at random moments, seed {seed}; left behind: {', '.join(left) or 'nothing'}")
    growth = growth_of_clusters(clusters, tell)
    tell(f"soak: control, {clusters} clusters made and deleted; memory grew by {growth} KiB (at most {GROWTH_KIB_MAX})")
    return bool(left) or growth > GROWTH_KIB_MAX
