"""A directory used by one broker and by several nodes in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import cast

import pytest

from broker.runtime.start import StartError
from broker.runtime.workers import Workers
from broker.settings.load import load_config
from broker.stores.local import LocalStore
from broker.stores.topic_logs import LocalTopicStore
from broker.stores.turn_flushes import LOGS_MIN
from protocol.batch import build_facts
from simulator.disk import Crashed, SimDisk
from storage import HeldBy, LogId, OwnedLog, Unreadable
from tests.stores.nodes import DirectoryNode, NodesOverSimDisk, append, keys
from tests.support.local_stores import Threads
from tests.support.stepped_loop import SteppedLoop

LOG = LogId("__consumer_offsets", 0)
LOGS = [LogId("__consumer_offsets", number) for number in range(LOGS_MIN + 1)]
SEEDS = 16


class Alone(DirectoryNode):
    """A single broker on the directory, without other nodes."""

    def __init__(self, id: int, disk: SimDisk, root: str = "/data") -> None:
        self.id = id
        self.disk = disk
        self.loop = SteppedLoop()
        self.threads = Threads()
        config = load_config(data=[root], settings=["offsets.flush=always", f"node.id={id}"], environ={})
        workers = cast(Callable[[asyncio.AbstractEventLoop, int, bool], Workers], lambda loop, count, yielding: self.threads)
        self.store = LocalStore(config, cast(asyncio.AbstractEventLoop, self.loop), disk, new_workers=workers)  # type: ignore[assignment]
        self.topics = LocalTopicStore(self.store)  # type: ignore[assignment]


def test_nodes_serve_the_logs_of_one_broker_and_one_broker_those_of_nodes() -> None:
    nodes = NodesOverSimDisk()
    written: list[bytes] = []
    for turn in range(8):
        node = Alone(1, nodes.disk.for_another_process()) if turn % 2 else nodes.start(turn % 3 + 1)
        log = node.own(LOG)
        assert keys(log) == written
        append(node, log, b"%d" % turn)
        written.append(b"%d" % turn)
        if turn in (2, 3, 6):
            nodes.kill(node)
        else:
            node.stop()


def test_epochs_of_leaders_do_not_fall_when_nodes_are_gone() -> None:
    """The epoch must not fall even if the last owners stored no record, because clients that still run refuse a lower leader epoch."""
    nodes = NodesOverSimDisk()
    topic = LogId("orders", 0)
    for turn in range(4):
        node = nodes.start(turn % 2 + 1)
        log = node.own(LOG)
        opened = node.acquired_topic(topic)
        epochs = log.epoch, opened.epoch
        if not turn:
            append(node, log, b"key")
        node.stop()
    assert min(epochs) == 3
    for _ in range(2):
        alone = Alone(1, nodes.disk.for_another_process())
        reopened = alone.acquired_topic(topic)
        assert alone.own(LOG).epoch >= epochs[0]
        assert reopened.epoch >= epochs[1]
        assert keys(alone.own(LOG)) == [b"key"]
        alone.stop()


def test_one_broker_and_a_node_do_not_run_on_one_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.stores.shared.START_SECONDS", 0.0)
    nodes = NodesOverSimDisk()
    node = nodes.start(2)
    with pytest.raises(StartError, match="in use by several nodes: /data/nodes/2"):
        Alone(1, nodes.disk.for_another_process())
    node.own(LOG)
    node.stop()
    alone = Alone(1, nodes.disk.for_another_process())
    with pytest.raises(StartError, match="is in use by"):
        nodes.start(2)
    alone.stop()
    nodes.start(2)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_acknowledged_record_is_lost_when_a_conversion_is_interrupted(seed: int) -> None:
    random = Random(seed)
    nodes = NodesOverSimDisk(seed)
    acknowledged: dict[LogId, set[bytes]] = {id: set() for id in LOGS}
    count = 0
    for _ in range(14):
        disk = nodes.disk.for_another_process()
        disk.recording, disk.stays_down = False, True
        if random.random() < 0.7:
            disk.changes_until_crash = random.randint(0, 60)
        try:
            node = Alone(1, disk) if random.random() < 0.5 else DirectoryNode(random.randint(1, 2), disk, "/data", "always")
            for id, log in zip(LOGS, node.acquire_all(LOGS), strict=True):
                assert not isinstance(log, HeldBy | Unreadable), log
                assert acknowledged[id] <= set(keys(log)), "an acknowledged record is gone"
                count += 1
                _append_later(log, b"%d" % count, acknowledged[id])
            node.run()
            if random.random() < 0.3:
                node.stop()
        except Crashed:
            pass
        if random.random() < 0.6:
            nodes.lose_power()
        else:
            disk.kill()


def _append_later(log: OwnedLog, key: bytes, acknowledged: set[bytes]) -> None:
    def done(result: object) -> None:
        if isinstance(result, int):
            acknowledged.add(key)

    log.append(build_facts([(key, b"1")], 1), 1, done)
