"""The nodes to torture: over one directory under their supervisor, or over JetStream, where the test itself restarts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from tests.jetstream.cluster import StreamNodes
from tests.nodes.cluster import Nodes
from tests.running import PACKAGES, Broker, environment

CLOCKS = Path(__file__).parent / "clocks"
RESTART_SECONDS = 0.5
COMMAND_SECONDS = 10  # for `tenure node drain` and `undrain`


class TorturedNodes(Protocol):
    data: Path
    ids: range

    def start(self) -> None: ...
    def close(self) -> None: ...
    def port(self, id: int) -> int: ...
    def pid(self, id: int) -> int: ...
    def texts(self) -> list[str]: ...

    def end(self, id: int, number: signal.Signals) -> None:
        """End the node's process with a signal; another process follows it."""

    def end_all(self) -> None: ...

    def await_settled(self, *without: int) -> None: ...

    @property
    def bootstrap(self) -> str: ...


def clocks_path(skews_ms: dict[int, int]) -> dict[str, str]:
    """The environment that gives each node its clock."""
    return {"PYTHONPATH": f"{PACKAGES}{os.pathsep}{CLOCKS}", "NODE_CLOCKS": ",".join(f"{id}={skew}" for id, skew in skews_ms.items())}


class DirectoryNodes(Nodes):
    """Nodes over one directory; their supervisor restarts them."""

    def __init__(self, data: Path, count: int, skews_ms: dict[int, int], *settings: str) -> None:
        super().__init__(data, count, *settings)
        self._clocks = clocks_path(skews_ms)

    def start(self) -> None:
        self.start_processes()
        self.await_settled()

    def start_processes(self) -> None:
        """Without waiting: nodes that cannot open a log are never settled."""
        self.close()
        self.supervisor = Broker(*self._arguments, **self._clocks)  # type: ignore[arg-type]

    def texts(self) -> list[str]:
        return [] if self.supervisor is None else list(self.supervisor.lines)

    def pid(self, id: int) -> int:
        assert self.supervisor is not None
        started = (json.loads(line) for line in reversed(self.supervisor.lines) if '"node is started"' in line)
        return next(int(line["pid"]) for line in started if line["node"] == id)

    def end(self, id: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid(id), number)

    def end_all(self) -> None:
        for id in self.ids:
            self.end(id, signal.SIGKILL)


class StreamedNodes(StreamNodes):
    """Nodes over JetStream; a thread restarts those that have ended."""

    def __init__(self, data: Path, count: int, skews_ms: dict[int, int], *settings: str, servers: int) -> None:
        super().__init__(data, count, *settings, servers=servers)
        self._environment = clocks_path(skews_ms)
        self._restarts: list[threading.Thread] = []
        self._restarting: set[int] = set()
        self.failed: list[str] = []

    def texts(self) -> list[str]:
        texts = [*self._ended, *(broker.errors() for broker in list(self._processes.values()))]
        return [line for text in texts for line in text.split("\n")]

    def end(self, id: int, number: signal.Signals) -> None:
        if id in self._restarting or id not in self._processes:
            return
        self._restarting.add(id)
        thread = threading.Thread(target=self._restart, args=(id, number), daemon=True)
        self._restarts.append(thread)
        thread.start()

    def _restart(self, id: int, number: signal.Signals) -> None:
        try:
            self.end_node(id, number)
            time.sleep(RESTART_SECONDS)
            self.start_node(id)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            self.failed.append(f"node {id} was not restarted: {error}")
        finally:
            self._restarting.discard(id)

    def end_all(self) -> None:
        for id in self.ids:
            self.end(id, signal.SIGKILL)

    def await_settled(self, *without: int) -> None:
        for thread in self._restarts:
            thread.join(60)
        super().await_settled(*without)

    def close(self) -> None:
        for thread in self._restarts:
            thread.join(60)
        super().close()


def node_command(nodes: TorturedNodes, action: str, id: int, seconds: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "tenure", "node", action, str(id), "--bootstrap", nodes.bootstrap, "--timeout", str(seconds)]
    return subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        thaw(pid)


def thaw(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
