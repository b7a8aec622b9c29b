"""Which simulated nodes are live: a process locks its node's file until it ends, and then the other nodes are notified."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final

from broker.stores.node_files import Change, Noticed, node_ids, read_node
from simulator.disk import SimDisk, SimLock
from simulator.world import MS, World
from storage import NodeInfo

NOTICED_NS: Final = 5 * MS  # the longest delay until the thread that waits for a lock runs
LATE_NS: Final = 400 * MS  # the same on a busy machine
LATE: Final = 0.02  # probability of a delay up to LATE_NS


Ended = Callable[[int], None]


class Census:
    """All nodes of one simulated machine."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.version = 0  # changes with each file of addresses
        self.versions: dict[str, int] = {}  # the version of each file of addresses, by its path
        self._watchers: dict[str, list[Ended]] = {}  # by the path of the lock file

    def watch(self, path: str, ended: Ended) -> None:
        self._watchers.setdefault(path, []).append(ended)

    def later(self, moment: int, ended: Ended, node: int) -> bool:
        """If `moment` is in the future, call `ended` at that moment and return True."""
        if moment > self._world.now:
            self._world.at(moment, ended, node)
        return moment > self._world.now

    def ended(self, path: str, node: int) -> None:
        """The process of `node` has released its lock file: notify each waiting node, each after its own delay."""
        world = self._world
        for ended in self._watchers.pop(path, []):
            world.after(world.between(0, LATE_NS if world.chance(LATE) else NOTICED_NS), ended, node)


class SimNodeFiles:
    """The port `LiveNodes` for one process."""

    def __init__(self, census: Census, disk: SimDisk, folder: str, node_id: int, noticed: Noticed, runs_at: Callable[[], int]) -> None:
        """`runs_at`: returns the moment at which the process runs again after a freeze (SIGSTOP)."""
        self._census = census
        self._runs_at = runs_at
        self._disk = disk
        self._folder = folder
        self._node_id = node_id
        self._noticed = noticed
        self._life = disk.life
        self._own_lock: SimLock | None = None
        self._watched: dict[int, int] = {}  # the version of the address file of each watched node
        self._ended_nodes: set[int] = set()  # watched nodes whose end was noticed
        self._seen_version = -1

    def _lock(self, node: int) -> str:
        return f"{self._folder}/{node}.lock"

    def _addresses(self, node: int) -> str:
        return f"{self._folder}/{node}.json"

    def enter(self) -> bool:
        if self._own_lock is None:
            lock = self._disk.lock(self._lock(self._node_id), f"node {self._node_id}")
            self._own_lock = lock if isinstance(lock, SimLock) else None
        return self._own_lock is not None

    def publish(self, me: NodeInfo) -> None:
        self._disk.replace_text(self._addresses(me.id), json.dumps({"addresses": me.addresses, "rack": me.rack}), durable=False)
        self._census.version += 1
        self._census.versions[self._addresses(me.id)] = self._census.version

    def changed(self) -> bool:
        return bool(self._ended_nodes) or self._seen_version != self._census.version

    def find_changes(self) -> Iterator[Change]:
        self._seen_version = self._census.version
        for id in sorted({*self._watched, *node_ids(self._disk.list(self._folder))} - {self._node_id}):
            if id in self._ended_nodes:
                self._ended_nodes.discard(id)
                del self._watched[id]
                yield id, None
            if id not in self._watched:
                node = self._node_if_live(id)
                if node is not None:
                    self._census.watch(self._lock(id), self._ended)
                    yield id, node
            elif self._census.versions[self._addresses(id)] != self._watched[id]:
                node = self._node_if_live(id)
                if node is not None:
                    yield id, None
                    yield id, node

    def _node_if_live(self, id: int) -> NodeInfo | None:
        if not self._disk.is_locked(self._lock(id)):
            return None
        try:
            node = read_node(id, self._disk.read_text(self._addresses(id)))
        except (OSError, ValueError, KeyError):
            return None
        self._watched[id] = self._census.versions.get(self._addresses(id), 0)
        return node

    def _ended(self, node: int) -> None:
        if self._census.later(self._runs_at(), self._ended, node):
            return
        if self._disk.is_locked(self._lock(node)):  # the ended node has restarted before this thread ran
            self._census.watch(self._lock(node), self._ended)
            return
        self._ended_nodes.add(node)
        self._noticed()

    def close(self) -> None:
        """Remove the addresses and release the lock; without effect in a killed process."""
        if self._own_lock is not None and self._life == self._disk.life:
            if self._disk.exists(self._addresses(self._node_id)):
                self._disk.remove(self._addresses(self._node_id))
            self._own_lock.release()
            self._own_lock = None
            self._census.ended(self._lock(self._node_id), self._node_id)
