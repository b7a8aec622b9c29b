"""A log of a shared directory while its node releases it: flushed and closed before another node may acquire it."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.disk import SimDisk
from storage import AppendFailed, HeldBy, LogId
from storage.owners import NO_TOPIC
from tests.stores.nodes import NodesOverOsDisk, NodesOverSimDisk, append, append_to_topic

LOG = LogId("__consumer_offsets", 3)
NOTES = LogId("__coordinator_notes", 3)

NodesOfDirectory = NodesOverSimDisk | NodesOverOsDisk


@pytest.fixture(params=["simulated disk", "directory"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> NodesOfDirectory:
    return NodesOverSimDisk() if request.param == "simulated disk" else NodesOverOsDisk(tmp_path)


def test_a_log_that_is_being_released_has_no_owner_until_its_files_are_closed(nodes: NodesOfDirectory) -> None:
    first, second = nodes.start(1), nodes.start(2)
    append(first, first.own(LOG), b"a")
    released: list[str] = []
    first.store.release(LOG, lambda: released.append("once"))
    assert first.store.lock_log(LOG, NO_TOPIC, 0) == HeldBy("node 1")
    first.store.release(LOG, lambda: released.append("twice"))
    assert second.acquire(LOG) == HeldBy("node 1")
    assert released == []
    first.run()
    assert released == ["once", "twice"]
    assert second.keys(second.own(LOG)) == [b"a"]


def test_notes_are_not_opened_any_more_once_their_partition_is_being_released(nodes: NodesOfDirectory) -> None:
    first = nodes.start(1)
    first.own(LOG)
    append(first, first.own(NOTES), b"note")
    first.release(LOG)
    first.own(LOG)
    results: list[object] = []
    released: list[bool] = []
    first.store.acquire(NOTES, results.append)
    first.store.release(LOG, lambda: released.append(True))
    first.store.acquire(NOTES, results.append)
    while not released:
        first.run()
        first.loop.jump(0.05)
    assert results == [HeldBy("another node")] * 2
    assert first.store.owned_log(NOTES) is None


TOPIC_LOG = LogId("orders", 0)


@pytest.mark.parametrize("fails", ["", ".log", "checkpoint"])
def test_a_hand_over_is_clean_only_if_everything_was_flushed_and_its_checkpoints_are_stored(fails: str) -> None:
    """The next owner reads only a log that was not closed in order; the recovery point is that of the last flush."""
    nodes = NodesOverSimDisk()
    first, second = nodes.start(1), nodes.start(2)
    log = first.acquired_topic(TOPIC_LOG)
    append_to_topic(first, log, b"a")
    disk = first.disk
    assert isinstance(disk, SimDisk)
    if fails:
        disk.fail_syncs, disk.fails_in, disk.failed_sync_loses = 9, fails, False
    first.release(TOPIC_LOG)
    disk.fail_syncs = 0
    assert not isinstance(second.store.lock_log(TOPIC_LOG, bytes(range(16)), 0), HeldBy)
    inherited = second.store.inherited(TOPIC_LOG)
    assert inherited.clean is not bool(fails)
    assert inherited.recovery_point == (0 if fails else 1)


def test_a_flush_that_fails_is_not_hidden_by_one_that_succeeds() -> None:
    """A partition of groups is released with its notes."""
    nodes = NodesOverSimDisk()
    first, second = nodes.start(1, "never"), nodes.start(2)
    assert not isinstance(append(first, first.own(LOG), b"a"), AppendFailed)
    assert not isinstance(append(first, first.own(NOTES), b"note"), AppendFailed)
    disk = first.disk
    assert isinstance(disk, SimDisk)
    disk.fail_syncs, disk.fails_in, disk.failed_sync_loses = 9, "__consumer_offsets-3", False
    first.release(LOG)
    disk.fail_syncs = 0
    assert not isinstance(second.store.lock_log(LOG, NO_TOPIC, 0), HeldBy)
    assert not second.store.inherited(LOG).clean


def test_a_release_that_ends_after_its_store_was_closed_writes_nothing(nodes: NodesOfDirectory) -> None:
    first, second = nodes.start(1), nodes.start(2)
    append(first, first.own(LOG), b"a")
    locked = first.store.locked_log(LOG)
    assert locked is not None
    first.store.close()
    second.own(LOG)
    slot = second.store._table.read(LOG)
    first.store.unlock(LOG, locked)
    assert second.store._table.read(LOG) == slot
