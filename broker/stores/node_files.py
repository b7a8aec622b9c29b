"""The files of live nodes: the node's process holds a lock on `nodes/<id>.lock`; `nodes/<id>.json` has its addresses."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from storage import NodeInfo

NodeEnded = Callable[[int], None]


class LiveNodes(Protocol):
    """The port by which a node finds the other live nodes. The operating system detects the end of a node."""

    def enter(self) -> bool:
        """Register this process as its node; other nodes find it once `publish` has written its addresses.

        False: another process runs with this id, or nodes that watched the previous process have not released its file yet.
        """
        ...

    def publish(self, me: NodeInfo) -> None:
        """Publish the addresses of this node."""
        ...

    def changed(self) -> bool:
        """Whether a node may have arrived since the last `find_new`."""
        ...

    def find_new(self) -> list[NodeInfo]:
        """The nodes that have arrived since the last call, or have other addresses; from now on their end is detected. Raises OSError."""
        ...

    def close(self) -> None: ...


NewLiveNodes = Callable[[str, int, NodeEnded], LiveNodes]  # the folder, this node's id, and the callback for a node's end


def node_ids(names: Iterable[str]) -> Iterator[int]:
    """The ids of the nodes whose address files (`ID.json`) are among these file names."""
    for name in names:
        text, ending = os.path.splitext(name)
        if ending == ".json" and text.isdigit():
            yield int(text)


def read_node(id: int, text: str) -> NodeInfo:
    """Parse the file of a node. Raises ValueError or KeyError if it is malformed."""
    stored = json.loads(text)
    addresses = tuple((str(name), str(host), int(port)) for name, host, port in stored["addresses"])
    peer_address = None
    if stored.get("peer_address") and stored["network"] == network():  # a node of an older version writes neither
        host, port = stored["peer_address"]
        peer_address = str(host), int(port)
    return NodeInfo(id, addresses, stored["rack"], peer_address)


def network() -> int:
    """The network namespace of this process: in another container the same loopback address reaches other processes."""
    try:
        return os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return 0


class NodeFiles:
    """The files of live nodes. `ended` is called in a separate thread."""

    def __init__(self, folder: str, node_id: int, ended: NodeEnded) -> None:
        self._folder = folder
        self._node_id = node_id
        self._ended = ended
        self._own_lock = -1
        self._locked = False
        self._watched: dict[int, NodeInfo] = {}
        self._folder_mtime_ns = -1  # modification time of the folder

    def enter(self) -> bool:
        """Lock this node's file. False: another process with this id has it, or nodes that watched the previous one still do."""
        if self._own_lock < 0:
            self._own_lock = os.open(f"{self._folder}/{self._node_id}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._own_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._locked = True
        with contextlib.suppress(FileNotFoundError):
            os.remove(f"{self._folder}/{self._node_id}.json")  # written by this node's previous process, or, in a copied directory, by another node
        return True

    def publish(self, me: NodeInfo) -> None:
        path = f"{self._folder}/{me.id}.json"
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            stored = {"id": me.id, "addresses": me.addresses, "rack": me.rack, "pid": os.getpid()}
            json.dump(stored | {"peer_address": me.peer_address, "network": network()}, file)
        os.replace(f"{path}.new", path)

    def changed(self) -> bool:
        """Whether a node may have arrived since the last `find_new`; costs one system call."""
        return os.stat(self._folder).st_mtime_ns != self._folder_mtime_ns

    def find_new(self) -> list[NodeInfo]:
        """A process that was frozen while another node restarted may miss the end of that node's earlier process: the thread that waits for its
        lock did not run meanwhile, and then waits for the new process. So a changed address counts as an arrival.
        """
        folder_mtime_ns = os.stat(self._folder).st_mtime_ns
        arrived = []
        for id in node_ids(os.listdir(self._folder)):
            if id == self._node_id:
                continue
            known = self._watched.get(id)
            node = self._watch_if_live(id) if known is None else self._read(id)
            if node is not None and node != known:
                self._watched[id] = node
                arrived.append(node)
        self._folder_mtime_ns = folder_mtime_ns  # after a failure the next call looks again
        return arrived

    def _watch_if_live(self, id: int) -> NodeInfo | None:
        """The node, if it is live, else None. From now on the end of a live node is detected."""
        descriptor = os.open(f"{self._folder}/{id}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            node = self._read(id)
            if node is not None:
                threading.Thread(target=self._watch, args=(id, descriptor), daemon=True, name=f"node-{id}").start()
                return node
        os.close(descriptor)
        return None

    def _read(self, id: int) -> NodeInfo | None:
        try:
            with open(f"{self._folder}/{id}.json", encoding="utf-8") as file:
                return read_node(id, file.read())
        except (OSError, ValueError, KeyError):
            return None

    def _watch(self, id: int, descriptor: int) -> None:
        """Wait until the node's process has ended: the operating system then releases its lock."""
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        os.close(descriptor)
        self._watched.pop(id, None)
        self._folder_mtime_ns = -1
        self._ended(id)

    def close(self) -> None:
        if self._own_lock >= 0:
            if self._locked:
                with contextlib.suppress(OSError):
                    os.remove(f"{self._folder}/{self._node_id}.json")
            os.close(self._own_lock)
            self._own_lock = -1
