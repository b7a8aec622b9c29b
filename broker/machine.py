"""The machine that a broker runs on, besides its event loop: clocks, random bytes, files, threads and child processes.

The simulator supplies its own machine.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from broker.net.reply_writer import OS_SOCKETS, Sockets
from broker.net.sockets import open_sockets
from broker.runtime.clock import boot_clock
from broker.runtime.collector import GarbageCollector
from broker.runtime.workers import Workers
from broker.settings.listeners import Listener
from broker.stores.compaction_process import RunCleaner, run_cleaner
from broker.topics.batch_checker import Checker, Job
from storage import OsDisk, SharedDisk

if TYPE_CHECKING:
    from broker.stores.node_files import LiveNodes, Noticed


class BatchChecker(Protocol):
    """Checks large batches outside the event loop (`broker/topics/batch_checker.py`)."""

    def submit(self, job: Job) -> None: ...

    async def stop(self) -> None: ...


class Machine(Protocol):
    @property
    def disk(self) -> SharedDisk: ...

    @property
    def garbage(self) -> GarbageCollector: ...

    @property
    def run_cleaner(self) -> RunCleaner: ...

    @property
    def random_bytes(self) -> Callable[[int], bytes]: ...

    @property
    def sockets(self) -> Sockets: ...

    def monotonic(self) -> float: ...

    def monotonic_ns(self) -> int: ...

    def wall_ns(self) -> int: ...

    def boot_ns(self) -> int:
        """Like `monotonic_ns`, but time that the machine sleeps counts."""
        ...

    def workers(self, loop: asyncio.AbstractEventLoop, count: int, yielding: bool = False) -> Workers: ...

    def batch_checker(self, loop: asyncio.AbstractEventLoop) -> BatchChecker: ...

    def open_sockets(self, listener: Listener, backlog: int) -> tuple[list[socket.socket], int]: ...

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        ...

    def listen_for_nodes(self, folder: str, node_id: int) -> socket.socket:
        """The listening socket of this node, whose lock the caller holds. Raises OSError."""
        ...

    async def connect_to_node(self, loop: asyncio.AbstractEventLoop, folder: str, node_id: int, new_protocol: Callable[[], Any]) -> None:
        """Connect a protocol to the socket of another node. Raises OSError."""
        ...

    def live_nodes(self, folder: str, node_id: int, noticed: Noticed) -> LiveNodes:
        """The nodes of the data directory; when a node ends, `noticed` is called, in any thread."""
        ...


class RealMachine:
    def __init__(self) -> None:
        self.disk: SharedDisk = OsDisk()
        self.garbage: GarbageCollector = gc
        self.run_cleaner: RunCleaner = run_cleaner
        self.monotonic: Callable[[], float] = time.monotonic
        self.monotonic_ns: Callable[[], int] = time.monotonic_ns
        self.wall_ns: Callable[[], int] = time.time_ns
        self.boot_ns = boot_clock()
        self.random_bytes: Callable[[int], bytes] = os.urandom
        self.sockets = OS_SOCKETS
        self.sleep: Callable[[float], None] = time.sleep

    def workers(self, loop: asyncio.AbstractEventLoop, count: int, yielding: bool = False) -> Workers:
        return Workers(loop, count, yielding)

    def batch_checker(self, loop: asyncio.AbstractEventLoop) -> BatchChecker:
        return Checker(loop)

    def open_sockets(self, listener: Listener, backlog: int) -> tuple[list[socket.socket], int]:
        return open_sockets(listener, backlog)

    def listen_for_nodes(self, folder: str, node_id: int) -> socket.socket:
        from broker.stores.node_sockets import listen

        return listen(folder, node_id)

    async def connect_to_node(self, loop: asyncio.AbstractEventLoop, folder: str, node_id: int, new_protocol: Callable[[], Any]) -> None:
        from broker.stores.node_sockets import connect_protocol

        await connect_protocol(loop, new_protocol, folder, node_id)

    def live_nodes(self, folder: str, node_id: int, noticed: Noticed) -> LiveNodes:
        from broker.stores.node_files import NodeFiles  # not needed by a single broker

        return NodeFiles(folder, node_id, noticed)
