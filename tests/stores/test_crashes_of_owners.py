"""Owners that end at any step, and power that fails at any step: no acknowledged record is lost, and no epoch is used twice."""

from __future__ import annotations

from random import Random

import pytest

from broker.stores.turn_flushes import LOGS_MIN
from protocol.batch import build_facts
from simulator.disk import Crashed, SimDisk
from storage import HeldBy, LogId, OwnedLog, Unreadable
from tests.stores.nodes import DirectoryNode, NodesOverSimDisk, keys

LOGS = [LogId("__consumer_offsets", number) for number in range(LOGS_MIN + 1)]
ROUNDS = 12
SEEDS = 24


class Run:
    """Random owners, in turn or at once, and the records that they acknowledged."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.nodes = NodesOverSimDisk(seed)
        self.live: dict[int, DirectoryNode] = {}
        self.owned: dict[LogId, tuple[DirectoryNode, OwnedLog]] = {}
        self.appended: dict[LogId, list[bytes]] = {id: [] for id in LOGS}  # all appended records in order, acknowledged or not
        self.acknowledged: dict[LogId, set[bytes]] = {id: set() for id in LOGS}
        self.epoch = dict.fromkeys(LOGS, -1)
        self.count = 0

    def round(self) -> None:
        node = self.node()
        assert isinstance(node.disk, SimDisk)
        node.disk.stays_down = True
        if self.random.random() < 0.6:
            node.disk.changes_until_crash = self.random.randint(0, 40)
        try:
            self.work(node)
        except Crashed:
            if self.random.random() < 0.5:
                self.nodes.lose_power()
                self.ended(*self.live.values())
            else:
                self.nodes.kill(node)
                self.ended(node)
        else:
            node.disk.changes_until_crash = -1

    def node(self) -> DirectoryNode:
        id = self.random.randint(1, 3)
        if id not in self.live:
            self.live[id] = self.nodes.start(id)
        return self.live[id]

    def ended(self, *nodes: DirectoryNode) -> None:
        for node in nodes:
            self.live.pop(node.id, None)
        self.owned = {id: (owner, log) for id, (owner, log) in self.owned.items() if owner in self.live.values()}

    def work(self, node: DirectoryNode) -> None:
        for _ in range(self.random.randint(1, 4)):
            choice = self.random.random()
            if choice < 0.5:
                self.acquire(node)
            elif choice < 0.6:
                self.release(node)
            elif choice < 0.65:
                node.stop()
                self.ended(node)
                return
            self.append(node)

    def acquire(self, node: DirectoryNode) -> None:
        ids = self.random.sample(LOGS, self.random.randint(1, len(LOGS)))
        for id, result in zip(ids, node.acquire_all(ids), strict=True):
            owner = self.owned.get(id, (None, None))[0]
            assert not isinstance(result, Unreadable), result
            if isinstance(result, HeldBy):
                assert owner is not None
                assert result.holder == f"node {owner.id}"
                continue
            assert owner in (None, node), "two owners"
            self.owned[id] = node, result
            assert result.epoch > self.epoch[id]
            self.epoch[id] = result.epoch
            self.check(id, result)

    def check(self, id: LogId, log: OwnedLog) -> None:
        log_keys = keys(log)
        assert self.acknowledged[id] <= set(log_keys), "an acknowledged record is gone"
        assert [key for key in self.appended[id] if key in set(log_keys)] == log_keys, "the order has changed"
        self.appended[id] = log_keys

    def release(self, node: DirectoryNode) -> None:
        own_logs = [id for id, (owner, _) in self.owned.items() if owner is node]
        for id in self.random.sample(own_logs, min(len(own_logs), 2)):
            del self.owned[id]
            node.release(id)

    def append(self, node: DirectoryNode) -> None:
        for id, (owner, log) in self.owned.items():
            if owner is node and self.random.random() < 0.8:
                self.count += 1
                key = b"%d" % self.count
                self.appended[id].append(key)

                def done(result: object, id: LogId = id, key: bytes = key) -> None:
                    if isinstance(result, int):
                        self.acknowledged[id].add(key)

                log.append(build_facts([(key, b"1")], 1), 1, done)
        node.run()

    def finish(self) -> None:
        """Kill all nodes, and check that one node can open every log."""
        for node in list(self.live.values()):
            self.nodes.kill(node)
        self.ended(*self.live.values())
        node = self.nodes.start(9)
        for id in LOGS:
            self.check(id, node.own(id))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_acknowledged_record_is_lost_whenever_owners_end(seed: int) -> None:
    run = Run(seed)
    for _ in range(ROUNDS):
        run.round()
    run.finish()
