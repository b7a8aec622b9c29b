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

Noticed = Callable[[], None]
Change = tuple[int, NodeInfo | None]  # a node that has arrived, or None: the node has ended


class LiveNodes(Protocol):
    """The port by which a node finds and reaches the other live nodes. The operating system detects the end of a node."""

    def enter(self) -> bool:
        """Register this process as its node; other nodes find it once `publish` has written its addresses.

        False: another process runs with this id, or nodes that watched the previous process have not released its file yet.
        """
        ...

    def publish(self, me: NodeInfo) -> None:
        """Publish the addresses of this node."""
        ...

    def changed(self) -> bool:
        """Whether a node may have arrived or ended since the last `find_changes`."""
        ...

    def find_changes(self) -> Iterator[Change]:
        """The nodes that have ended or arrived since the last call; from now on the end of the arrived nodes is detected.

        Raises OSError after all changes that could be found; the next call finds the others.
        """
        ...

    def close(self) -> None: ...


NewLiveNodes = Callable[[str, int, Noticed], LiveNodes]  # the folder, this node's id, and the callback for the end of a node


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
    return NodeInfo(id, addresses, stored["rack"])


class Watch:
    """The process of another node: its version of the address file, and whether the process has ended."""

    def __init__(self, version: tuple[int, int, str]) -> None:
        self.version = version
        self.ended = False  # set in the thread that waits for the lock


class NodeFiles:
    """The files of live nodes."""

    def __init__(self, folder: str, node_id: int, noticed: Noticed) -> None:
        """`noticed` is called when a node has ended, in any thread; `find_changes` then returns it."""
        self._folder = folder
        self._node_id = node_id
        self._noticed = noticed
        self._own_lock = -1
        self._locked = False
        self._watched: dict[int, Watch] = {}
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
            json.dump({"id": me.id, "addresses": me.addresses, "rack": me.rack, "pid": os.getpid()}, file)
        os.replace(f"{path}.new", path)

    def changed(self) -> bool:
        """Costs one system call."""
        return any(watch.ended for watch in self._watched.values()) or os.stat(self._folder).st_mtime_ns != self._folder_mtime_ns

    def find_changes(self) -> Iterator[Change]:
        """A process that was frozen while another node restarted has missed the end of that node's earlier process: the thread that waits
        for its lock did not run, and now waits for the new process. So a new address file, too, means a new process.
        """
        folder_mtime_ns = os.stat(self._folder).st_mtime_ns
        failure: OSError | None = None
        for id in {*self._watched, *node_ids(os.listdir(self._folder))} - {self._node_id}:
            try:
                yield from self._changes_of(id)
            except OSError as error:
                failure = error
        if failure is not None:
            raise failure
        self._folder_mtime_ns = folder_mtime_ns

    def _changes_of(self, id: int) -> Iterator[Change]:
        watch = self._watched.get(id)
        if watch is not None and watch.ended:
            del self._watched[id]
            yield id, None
            watch = None
        if watch is None:
            node = self._watch_if_live(id)
            if node is not None:
                yield id, node
            return
        read = self._read(id)
        if read is not None and read[0] != watch.version:
            watch.version = read[0]
            yield id, None
            yield id, read[1]

    def _watch_if_live(self, id: int) -> NodeInfo | None:
        """The node, if it is live, else None. From now on the end of a live node is detected."""
        descriptor = os.open(f"{self._folder}/{id}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            read = self._read(id)
            if read is not None:
                watch = self._watched[id] = Watch(read[0])
                threading.Thread(target=self._wait_for_end, args=(watch, descriptor), daemon=True, name=f"node-{id}").start()
                return read[1]
        os.close(descriptor)
        return None

    def _read(self, id: int) -> tuple[tuple[int, int, str], NodeInfo] | None:
        """The version of the node's address file, and the node; None if it cannot be read."""
        try:
            with open(f"{self._folder}/{id}.json", encoding="utf-8") as file:
                status, text = os.fstat(file.fileno()), file.read()
            return (status.st_ino, status.st_mtime_ns, text), read_node(id, text)
        except (FileNotFoundError, ValueError, KeyError):
            return None

    def _wait_for_end(self, watch: Watch, descriptor: int) -> None:
        """Wait until the node's process has ended: the operating system then releases its lock."""
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        watch.ended = True  # before other processes can lock the file
        os.close(descriptor)
        self._noticed()

    def close(self) -> None:
        if self._own_lock >= 0:
            if self._locked:
                with contextlib.suppress(OSError):
                    os.remove(f"{self._folder}/{self._node_id}.json")
            os.close(self._own_lock)
            self._own_lock = -1
