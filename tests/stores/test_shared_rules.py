"""The rules of the store in a shared directory: what the table of owners says after each step, and what a failure leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from broker.runtime.start import ExitCode, StartError
from broker.runtime.workers import Workers
from broker.settings.load import load_config
from broker.stores import shared as module
from broker.stores.shared import BUSY_SECONDS, FIND_NODES_SECONDS, START_PAUSE_SECONDS, WARN_SECONDS, LockedLog, SharedStore
from simulator.disk import SimDisk
from storage import DirectoryLocked, HeldBy, LogId, NodeInfo, Producers, SharedDisk, TopicInfo, Unreadable
from storage.node_directory import NodeDirectory
from storage.owners import FREE, GONE, NO_TOPIC, NO_WRITER, OWNED, OwnerTable, lock_byte_of, writer_closed, writer_open
from tests.stores.nodes import TOPIC_ID, DirectoryNode, NodesOverSimDisk, append, append_to_topic
from tests.support.local_stores import Threads
from tests.support.stepped_loop import SteppedLoop

pytestmark = pytest.mark.plain  # replaces methods of stores

LOG, OTHER = LogId("__consumer_offsets", 3), LogId("__consumer_offsets", 4)
NOTES = LogId("__coordinator_notes", 3)
TOPIC = LogId("orders", 0)
NEW_ID = bytes(range(100, 116))
WALL_MS = 1_700_000_000_000
ME = NodeInfo(1, (("PLAINTEXT", "localhost", 9092),))


class LiveNodes:
    """Files of nodes, scripted by the test."""

    def __init__(self, entered_after: int = 0) -> None:
        self.refusals = entered_after
        self.published: list[NodeInfo] = []
        self.changes: list[tuple[int, NodeInfo | None]] = []
        self.searches = 0
        self.has_changed = False
        self.failing = False
        self.closed = False

    def enter(self) -> bool:
        self.refusals -= 1
        return self.refusals < 0

    def publish(self, me: NodeInfo) -> None:
        self.published.append(me)

    def changed(self) -> bool:
        if self.failing:
            raise OSError(24, "Too many open files")
        return self.has_changed

    def find_changes(self) -> Iterator[tuple[int, NodeInfo | None]]:
        self.searches += 1
        if self.failing:
            raise OSError(24, "Too many open files")
        changes, self.changes = self.changes, []
        yield from changes

    def close(self) -> None:
        self.closed = True


class Opened:
    """A store whose clock, sleep and files of nodes are the test's."""

    def __init__(self, disk: SimDisk, live_nodes: LiveNodes | None = None, id: int = 1) -> None:
        self.loop = SteppedLoop()
        self.threads = Threads()
        self.slept: list[float] = []
        self.now = 50.0
        self.live = live_nodes or LiveNodes()
        self.noticed: Callable[[], None] = lambda: None
        config = load_config(data=["/data"], settings=["offsets.flush=always", f"node.id={id}", "cluster.nodes=3"], environ={})

        def new_live_nodes(folder: str, node_id: int, noticed: Callable[[], None]) -> LiveNodes:
            assert (folder, node_id) == ("/data/nodes", id)
            self.noticed = noticed
            return self.live

        def sleep(seconds: float) -> None:
            self.slept.append(seconds)
            self.now += seconds

        self.store = SharedStore(
            config,
            cast(asyncio.AbstractEventLoop, self.loop),
            cast(SharedDisk, disk),
            new_workers=cast(Callable[[asyncio.AbstractEventLoop, int, bool], Workers], lambda loop, count, yielding: self.threads),
            monotonic=lambda: self.now,
            wall_ns=lambda: WALL_MS * 1_000_000,
            sleep=sleep,
            new_live_nodes=new_live_nodes,
        )


@pytest.fixture
def nodes() -> NodesOverSimDisk:
    return NodesOverSimDisk()


def opened(nodes: NodesOverSimDisk, live_nodes: LiveNodes | None = None) -> Opened:
    return Opened(nodes.disk.for_another_process(), live_nodes)


def table(node: DirectoryNode) -> OwnerTable:
    return node.store._table


def counted_syncs(node: DirectoryNode, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A list that grows with each sync of the table."""
    synced: list[bool] = []
    sync = table(node).sync

    def count() -> None:
        synced.append(True)
        sync()

    monkeypatch.setattr(table(node), "sync", count)
    return synced


def version(node: DirectoryNode) -> object:
    """That of the table, as another process sees it."""
    return table(node).version


# The start.


def test_a_node_waits_for_the_watchers_of_its_previous_process(nodes: NodesOverSimDisk) -> None:
    assert opened(nodes, LiveNodes(3)).slept == [START_PAUSE_SECONDS] * 3


def test_a_node_that_runs_already_is_refused_after_five_seconds(nodes: NodesOverSimDisk) -> None:
    live = LiveNodes(1_000)
    with pytest.raises(StartError, match="node 1 of data directory /data runs already") as refused:
        opened(nodes, live)
    assert refused.value.code == ExitCode.LOCKED
    assert 1_000 - live.refusals in (102, 103)  # one attempt each 50 ms, also just before the end of the five seconds
    opened(nodes)  # the refused start has left no lock


def test_a_directory_that_another_node_prepares_is_waited_for(nodes: NodesOverSimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    open_node = NodeDirectory.open_node
    attempts: list[int] = []
    refusals = 3

    def locked_at_first(*arguments: Any) -> Any:
        attempts.append(1)
        if len(attempts) <= refusals:
            raise DirectoryLocked("another process")
        return open_node(*arguments)

    monkeypatch.setattr(NodeDirectory, "open_node", locked_at_first)
    assert opened(nodes).slept == [START_PAUSE_SECONDS] * 3
    refusals = 1_000
    attempts.clear()
    with pytest.raises(StartError) as refused:
        opened(nodes)
    assert refused.value.code == ExitCode.LOCKED
    assert len(attempts) in (102, 103)


def test_a_table_that_cannot_be_opened_ends_the_start(nodes: NodesOverSimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(disk: SharedDisk, root: str) -> OwnerTable:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module, "OwnerTable", fail)
        with pytest.raises(StartError, match=r"^data directory /data: No space left on device$") as refused:
            opened(nodes)
    assert refused.value.code == ExitCode.DIRECTORY
    opened(nodes)


def test_a_started_node_frees_the_logs_of_its_previous_process(nodes: NodesOverSimDisk) -> None:
    """Also for nodes that did not notice its end: they would send clients to a node that does not serve the log."""
    first, second = nodes.start(1), nodes.start(2)
    first.own(LOG)
    first.own(OTHER)
    second.store.view().live[1] = ME
    nodes.kill(first)
    assert second.store.view().owner(LOG) == ME
    assert second.store._locks.lock(lock_byte_of(OTHER))  # another node takes it over at this moment
    before = version(second)
    restarted = nodes.start(1)
    assert version(second) != before
    assert [second.store.view().owner(log) for log in (LOG, OTHER)] == [None, ME]
    assert [table(second).read(log).writer for log in (LOG, OTHER)] == [writer_open(1)] * 2
    second.own(LOG)
    assert isinstance(restarted.acquire(LOG), HeldBy)


# Nodes.


def test_a_node_publishes_itself_and_sees_itself(nodes: NodesOverSimDisk) -> None:
    node = opened(nodes)
    assert node.store.view().nodes() == []
    node.store.start(ME)
    assert (node.store.view().nodes(), node.live.published) == ([ME], [ME])
    node.store.view().live[0] = other = NodeInfo(0, ())
    assert node.store.view().nodes() == [other, ME]


def watched(nodes: NodesOverSimDisk) -> tuple[Opened, list[tuple[int, bool]]]:
    node = opened(nodes)
    changes: list[tuple[int, bool]] = []
    node.live.has_changed = True
    node.live.changes = [(2, NodeInfo(2, ()))]
    node.store.watch_nodes(lambda id, alive: changes.append((id, alive)))
    return node, changes


def test_nodes_are_looked_for_at_once_and_twice_a_second_when_something_changed(nodes: NodesOverSimDisk) -> None:
    node, changes = watched(nodes)
    view = node.store.view()
    assert (changes, view.changes, node.live.searches) == ([(2, True)], 1, 1)
    node.live.changes = [(2, None), (3, NodeInfo(3, ()))]
    before = view.version
    node.loop.pass_ms(FIND_NODES_SECONDS * 1_000)
    assert (changes, view.changes, node.live.searches) == ([(2, True), (2, False), (3, True)], 3, 2)
    assert list(view.live) == [3]
    assert view.version != before
    node.live.has_changed = False
    node.loop.pass_ms(10 * FIND_NODES_SECONDS * 1_000)
    assert node.live.searches == 2


def test_a_node_that_is_found_before_anyone_watches_is_in_the_view(nodes: NodesOverSimDisk) -> None:
    node = opened(nodes)
    node.live.changes = [(2, NodeInfo(2, ()))]
    node.store.find_new_nodes()
    assert list(node.store.view().live) == [2]


def test_the_end_of_a_node_that_a_thread_has_noticed_is_looked_up_at_once(nodes: NodesOverSimDisk) -> None:
    node, changes = watched(nodes)
    node.live.has_changed = False
    node.live.changes = [(2, None)]
    node.noticed()
    node.loop.pass_once()
    assert changes == [(2, True), (2, False)]


@pytest.mark.parametrize("closed", [False, True])
def test_a_node_that_stops_looks_for_no_other_nodes(nodes: NodesOverSimDisk, closed: bool) -> None:
    node, changes = watched(nodes)
    if closed:
        node.store.close()
        assert node.live.closed
    node.store.finishing = True
    node.live.changes = [(2, None)]
    node.noticed()
    node.loop.pass_ms(10_000)
    assert (changes, node.live.searches) == ([(2, True)], 1)
    if closed:

        def refuse(callback: object) -> None:
            raise RuntimeError("Event loop is closed")

        cast(Any, node.loop).call_soon_threadsafe = refuse
        node.noticed()


def test_a_closed_store_has_no_timer_and_no_lock(nodes: NodesOverSimDisk) -> None:
    node, _ = watched(nodes)
    assert isinstance(node.store.lock(LOG, NO_TOPIC), LockedLog)
    node.store.finishing = False
    node.store.close()
    node.loop.pass_ms(10_000)
    assert node.live.searches == 1
    assert node.store.locked_log(LOG) is None
    assert isinstance(nodes.start(2).store.lock(LOG, NO_TOPIC), LockedLog)


@pytest.mark.parametrize("by_request", [False, True])
def test_failed_searches_are_logged_every_fifteen_seconds(nodes: NodesOverSimDisk, monkeypatch: pytest.MonkeyPatch, by_request: bool) -> None:
    warned: list[tuple[float, dict[str, Any]]] = []
    node, _ = watched(nodes)
    monkeypatch.setattr("broker.stores.shared.log.warning", lambda event, **fields: warned.append((node.loop.time(), fields)))
    node.live.failing = True
    begin = node.loop.time()
    for _ in range(61):
        if by_request:
            node.live.has_changed = False
            node.store.find_new_nodes()
        node.loop.pass_ms(FIND_NODES_SECONDS * 1_000)
    assert len(warned) == 3 if by_request else 2
    assert warned[1][0] - warned[0][0] == WARN_SECONDS
    assert warned[0][0] - begin <= FIND_NODES_SECONDS
    assert warned[0][1] == {"reason": "Too many open files", "again_seconds": FIND_NODES_SECONDS}


# Locks and slots.


def test_the_table_names_the_owner_since_it_locked_the_log(nodes: NodesOverSimDisk) -> None:
    node, other = opened(nodes), nodes.start(2)
    node.store.view().live[1] = ME
    before = version(other)
    locked = node.store.lock(LOG, NO_TOPIC)
    assert isinstance(locked, LockedLog)
    assert version(other) != before
    assert (table(other).read(LOG).state, table(other).read(LOG).node) == (OWNED, 1)
    view = node.store.view()
    assert (view.owner(LOG), view.owner(NOTES)) == (ME, ME)
    assert (view.epoch(LOG), view.epoch(NOTES)) == (locked.epoch, locked.epoch) == (0, 0)
    assert (view.since_ms(LOG), view.since_ms(NOTES)) == (WALL_MS, WALL_MS)
    before = version(other)
    node.store.unlock(LOG, locked)
    assert version(other) != before
    assert (table(other).read(LOG).state, table(other).read(LOG).since_ms) == (FREE, WALL_MS)
    assert view.owner(LOG) is None
    assert other.store.lock_log(LOG, NO_TOPIC, 0) == 1


def test_a_lock_whose_slot_cannot_be_written_is_given_up(nodes: NodesOverSimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    node, other = nodes.start(1), nodes.start(2)

    def full(id: LogId, slot: object) -> None:
        raise OSError(28, "there are more logs than the table of owners has slots")

    with monkeypatch.context() as patched:
        patched.setattr(table(node), "write", full)
        for result in (node.store.lock_log(LOG, NO_TOPIC, 0), node.acquire(LOG)):
            assert result == Unreadable("/data: there are more logs than the table of owners has slots", False)
    assert node.store.locked_log(LOG) is None
    other.own(LOG)


def test_a_lock_names_the_epoch_each_time_it_is_asked_for(nodes: NodesOverSimDisk) -> None:
    node = nodes.start(1)
    assert [node.store.lock_log(TOPIC, TOPIC_ID, 0) for _ in range(2)] == [0, 0]
    assert node.store.lock_log(TOPIC, NEW_ID, 0) == HeldBy("node 1")


def test_a_topics_log_is_not_locked_by_who_names_no_deletion_if_there_was_one(nodes: NodesOverSimDisk) -> None:
    node = nodes.start(1)
    node.store.set_last_deletion(1)
    assert isinstance(node.store.lock(TOPIC, TOPIC_ID), HeldBy)
    assert isinstance(node.store.lock(LOG, NO_TOPIC), LockedLog)


@pytest.mark.parametrize(("known", "locked"), [(4, False), (5, True), (6, True)])
def test_a_node_locks_a_topics_log_if_it_knows_the_last_deletion(nodes: NodesOverSimDisk, known: int, locked: bool) -> None:
    node, other = nodes.start(1), nodes.start(2)
    other.store.set_last_deletion(5)
    assert node.store.last_deletion == 5
    assert isinstance(node.store.lock(TOPIC, TOPIC_ID, known), LockedLog if locked else HeldBy)
    assert isinstance(other.store.lock(TOPIC, TOPIC_ID, 5), HeldBy if locked else LockedLog)
    assert isinstance(node.store.lock(LOG, NO_TOPIC), LockedLog)  # a log that is no topic's


def test_a_new_log_is_not_one_that_was_closed_in_order(nodes: NodesOverSimDisk) -> None:
    """The opening of a clean log reads nothing of its end: it would trust files that somebody else has put there."""
    node = nodes.start(1)
    node.store.lock_log(TOPIC, TOPIC_ID, 0)
    for is_new in (False, True):
        inherited = node.store.inherited(TOPIC, is_new)
        assert (inherited.recovery_point, inherited.start_offset, inherited.clean) == (0, 0, False)
        locked = node.store.locked_log(TOPIC)
        assert locked is not None
        assert locked.inherited is inherited


def test_an_opened_log_names_its_node_as_the_writer_and_a_closed_one_too(nodes: NodesOverSimDisk) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log, topic = first.own(LOG), first.acquired_topic(TOPIC)
    for id, owned in ((LOG, log), (TOPIC, topic)):
        slot = table(second).read(id)
        assert (slot.node, slot.epoch, slot.state, slot.writer) == (1, owned.epoch, OWNED, writer_open(1))
        before = version(second)
        first.release(id)
        assert version(second) != before
        slot = table(second).read(id)
        assert (slot.node, slot.state, slot.writer) == (1, FREE, writer_closed(1))


def test_a_locked_log_that_was_never_opened_keeps_the_writer_that_the_table_names(nodes: NodesOverSimDisk) -> None:
    """Its files are as the dead writer left them."""
    first, second = nodes.start(1), nodes.start(2)
    append(first, first.own(LOG), b"a")
    nodes.kill(first)
    second.store.lock_log(LOG, NO_TOPIC, 0)
    assert table(second).read(LOG).writer == writer_open(1)
    second.release(LOG)
    assert (table(second).read(LOG).writer, table(second).read(LOG).state) == (writer_open(1), FREE)
    third = nodes.start(3)
    assert not third.store.inherited(LOG).clean
    assert third.keys(third.own(LOG)) == [b"a"]


def test_a_stop_in_order_leaves_all_logs_closed_and_free(nodes: NodesOverSimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = nodes.start(1), nodes.start(2)
    append(first, first.own(LOG), b"a")
    append_to_topic(first, first.acquired_topic(TOPIC), b"a")
    first.store.lock_log(OTHER, NO_TOPIC, 0)
    synced = counted_syncs(first, monkeypatch)
    before = version(second)
    first.stop()
    assert synced
    assert version(second) != before
    for id in (LOG, TOPIC):
        assert (table(second).read(id).state, table(second).read(id).writer) == (FREE, writer_closed(1))
    assert second.store.inherited(LOG).clean
    assert not second.store.inherited(NOTES).clean  # notes are not flushed before the others


@pytest.mark.parametrize("fails", ["write", "sync"])
def test_a_stop_whose_end_cannot_be_written_is_not_in_order(nodes: NodesOverSimDisk, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    node = nodes.start(1)
    append(node, node.own(LOG), b"a")

    def fail(*arguments: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(table(node), fails, fail)
    problems: list[str] = []
    node.store.finish(True, problems.append)
    node.run()
    assert problems == ["/data: [Errno 5] Input/output error"]


# Opening.


@pytest.mark.parametrize("fails", ["adopt", "sync"])
@pytest.mark.parametrize("id", [LOG, TOPIC])
def test_a_log_whose_writer_cannot_be_stored_is_not_opened(nodes: NodesOverSimDisk, monkeypatch: pytest.MonkeyPatch, fails: str, id: LogId) -> None:
    """Otherwise the next owner would trust the state of an earlier writer, without the records of this one."""
    first, second = nodes.start(1), nodes.start(2)

    def fail(*arguments: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(first.store.directory if fails == "adopt" else table(first), fails, fail, raising=False)
    result = first.acquire(id) if id == LOG else first.acquire_topic(id)
    assert result == Unreadable("/data: [Errno 5] Input/output error", False)
    assert (first.store.owned_log(id), first.store.locked_log(id)) == (None, None)
    monkeypatch.undo()
    results = [second.acquire(id) if id == LOG else second.acquire_topic(id)]
    assert not isinstance(results[0], HeldBy | Unreadable)
    second.release(id)
    assert not isinstance(first.acquire(id) if id == LOG else first.acquire_topic(id), HeldBy | Unreadable)


def test_logs_that_are_opened_together_share_one_write_of_the_table(nodes: NodesOverSimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    node = nodes.start(1)
    syncs = counted_syncs(node, monkeypatch)
    logs = [LogId("__consumer_offsets", number) for number in range(8)]
    assert not any(isinstance(result, HeldBy | Unreadable) for result in node.acquire_all(logs))
    assert len(syncs) < len(logs)
    for log in logs:
        assert table(node).read(log).writer == writer_open(1)
    node.own(LogId("__consumer_offsets", 9))


def test_a_log_that_is_opened_during_a_write_of_the_table_is_written_by_the_next(nodes: NodesOverSimDisk) -> None:
    node = nodes.start(1)
    results: list[object] = []
    node.store.acquire(LOG, results.append)
    while not node.store._registering:
        node.threads.run() if node.threads.jobs else node.loop.run()
    node.loop.run()
    node.store.acquire(OTHER, results.append)
    node.run()
    assert len(results) == 2
    assert not any(isinstance(result, HeldBy | Unreadable) for result in results)
    assert table(node).read(OTHER).writer == writer_open(1)


def test_no_log_is_opened_any_more_once_the_store_stops(nodes: NodesOverSimDisk) -> None:
    node = nodes.start(1)
    results: list[object] = []
    node.store.acquire(LOG, results.append)
    while not node.store._registering:
        node.threads.run() if node.threads.jobs else node.loop.run()
    node.store.finishing = True
    node.run()
    assert results == []


def test_a_log_with_a_newer_epoch_in_its_records_is_opened_with_that_one(nodes: NodesOverSimDisk) -> None:
    """The table of a copied or restored directory may be older than the logs."""
    first, second = nodes.start(1), nodes.start(2)
    append(first, first.own(LOG), b"a")
    first.release(LOG)
    for _ in range(3):
        append(first, first.own(LOG), b"b")
        first.release(LOG)
    slot = table(first).read(LOG)
    assert slot.epoch == 3
    table(first).write(LOG, slot._replace(epoch=0))
    taken = second.own(LOG)
    assert taken.epoch >= 3
    assert table(second).read(LOG).epoch == taken.epoch
    second.release(LOG)
    assert first.own(LOG).epoch > taken.epoch


def test_notes_are_refused_without_their_offsets_log(nodes: NodesOverSimDisk) -> None:
    first = nodes.start(1)
    assert first.acquire(NOTES) == HeldBy("another node")
    first.own(OTHER)
    assert first.acquire(NOTES) == HeldBy("another node")
    assert not first.store.opens_notes(LOG)
    first.own(LOG)
    append(first, first.own(NOTES), b"note")
    first.release(LOG)
    first.own(LOG)
    results: list[object] = []
    first.store.acquire(NOTES, results.append)
    assert (first.store.opens_notes(LOG), first.store.opens_notes(OTHER)) == (True, False)
    first.run()
    assert not first.store.opens_notes(LOG)
    assert not isinstance(results[0], HeldBy | Unreadable)


def test_notes_that_were_opened_while_their_partition_left_are_closed(nodes: NodesOverSimDisk) -> None:
    first, second = nodes.start(1), nodes.start(2)
    append(first, first.own(LOG), b"a")
    append(first, first.own(NOTES), b"note")
    first.release(LOG)
    first.own(LOG)
    results: list[object] = []
    first.store.acquire(NOTES, results.append)
    jobs, first.threads.jobs = first.threads.jobs, []
    released: list[bool] = []
    first.store.release(LOG, lambda: released.append(True))
    first.run()
    assert released == []
    assert second.acquire(LOG) == HeldBy("node 1")
    first.threads.jobs = jobs
    first.run()
    assert results == [HeldBy("another node")]
    assert first.store.owned_log(NOTES) is None
    assert first.loop.delays()[-1:] == [BUSY_SECONDS]
    first.loop.jump(BUSY_SECONDS)
    first.run()
    assert released == [True]
    second.own(LOG)
    assert second.keys(second.own(NOTES)) == [b"note"]


def test_an_opening_that_raises_does_not_hold_back_the_release(nodes: NodesOverSimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    node = nodes.start(1)

    def fail(*arguments: object) -> None:
        raise RuntimeError("a defect")

    with monkeypatch.context() as patched:
        patched.setattr("broker.stores.topic_logs.LocalTopicStore.open_topic_log", fail)
        with pytest.raises(RuntimeError, match="a defect"):
            node.topics.open_topic_log(TOPIC, TopicInfo(TOPIC_ID, 1 << 20, Producers(), 0, lambda folder: None), lambda result: None)
    locked = node.store.locked_log(TOPIC)
    assert locked is not None
    assert not locked.opening
    released: list[bool] = []
    node.store.release(TOPIC, lambda: released.append(True))
    node.run()
    assert released == [True]
    nodes.start(2).acquired_topic(TOPIC)


# Releases.


def test_a_release_waits_for_a_compaction_and_cancels_it(nodes: NodesOverSimDisk) -> None:
    first, second = nodes.start(1), nodes.start(2)
    append(first, first.own(LOG), b"a")
    owned = first.store.owned_log(LOG)
    assert owned is not None
    owned.log.begin_compaction()
    cancelled: list[object] = []
    cast(Any, first.store).cancel_compaction = cancelled.append
    released: list[bool] = []
    first.store.release(LOG, lambda: released.append(True))
    first.run()
    assert (cancelled, released, first.loop.delays()[-1:]) == ([owned.log], [], [BUSY_SECONDS])
    assert second.acquire(LOG) == HeldBy("node 1")
    owned.log.end_compaction()
    first.loop.jump(BUSY_SECONDS)
    first.run()
    assert released == [True]
    assert second.keys(second.own(LOG)) == [b"a"]


def test_both_logs_of_a_partition_are_flushed_before_it_is_free(nodes: NodesOverSimDisk) -> None:
    first, second = nodes.start(1, "never"), nodes.start(2)
    append(first, first.own(LOG), b"a")
    append(first, first.own(NOTES), b"note")
    released: list[bool] = []
    first.store.release(LOG, lambda: released.append(True))
    (work, done), second_job = first.threads.jobs
    first.threads.jobs = [second_job]
    first.run()
    assert released == []
    assert second.acquire(LOG) == HeldBy("node 1")
    first.threads.jobs.append((work, done))
    first.run()
    assert released == [True]
    for id in (LOG, NOTES):
        assert first.store.owned_log(id) is None
        assert first.store.directory.recovery_points.get(id) == 1
    assert second.store.inherited(LOG).clean


def test_a_failed_waiter_does_not_keep_the_others_from_hearing_of_a_release(nodes: NodesOverSimDisk) -> None:
    node = nodes.start(1)
    node.own(LOG)
    released: list[str] = []

    def fail() -> None:
        raise RuntimeError("a defect")

    node.store.release(LOG, fail)
    node.store.release(LOG, lambda: released.append("second"))
    node.run()
    assert released == ["second"]
    node.own(LOG)


@pytest.mark.parametrize("state", ["unopened", "of another topic", "opened", "leaving"])
def test_only_an_unopened_log_of_the_deleted_topic_is_given_up(nodes: NodesOverSimDisk, state: str) -> None:
    node, other = nodes.start(1), nodes.start(2)
    if state == "opened":
        node.acquired_topic(TOPIC)
    else:
        node.store.lock_log(TOPIC, NEW_ID if state == "of another topic" else TOPIC_ID, 0)
    if state == "leaving":
        node.store.release(TOPIC, lambda: None)
    node.store.release_unopened(TOPIC, TOPIC_ID)
    assert isinstance(other.store.lock(TOPIC, TOPIC_ID), LockedLog if state == "unopened" else HeldBy)


# Deleted topics.


def test_a_deleted_log_is_gone_and_its_lock_free(nodes: NodesOverSimDisk) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.acquired_topic(TOPIC)
    append_to_topic(first, log, b"a")
    before = version(second)
    first.topics.set_aside(TOPIC, TOPIC_ID, log, False, 0)
    assert version(second) != before
    slot = table(second).read(TOPIC)
    assert (slot.state, slot.writer) == (GONE, NO_WRITER)
    assert second.acquired_topic(TOPIC, NEW_ID).records.next_offset == 0


@pytest.mark.parametrize("had_folder", [True, False])
@pytest.mark.parametrize("topic_id", [TOPIC_ID, NEW_ID])
def test_the_controller_sets_a_free_log_of_the_deleted_topic_aside(nodes: NodesOverSimDisk, topic_id: bytes, had_folder: bool) -> None:
    """The slot of a new topic's log is left as it is."""
    first, second = nodes.start(1), nodes.start(2)
    append_to_topic(first, first.acquired_topic(TOPIC), b"a")
    first.release(TOPIC)
    before = version(first), table(first).read(TOPIC)
    calls: list[bool] = []

    def set_aside() -> bool:
        assert isinstance(first.store.lock(TOPIC, TOPIC_ID), HeldBy)  # under the log's lock
        calls.append(True)
        return had_folder

    second.store.set_deleted_aside(TOPIC, topic_id, set_aside)
    assert calls == [True]
    slot = table(first).read(TOPIC)
    if topic_id == TOPIC_ID:
        assert (slot.state, slot.writer) == (GONE, NO_WRITER)
        assert version(first) != before[0]
        assert slot.since_ms >= before[1].since_ms
    else:
        assert (version(first), slot) == before
    assert isinstance(first.store.lock(TOPIC, TOPIC_ID), LockedLog)


@pytest.mark.parametrize("had_folder", [True, False])
def test_a_log_of_a_single_broker_is_gone_if_its_folder_was_set_aside(nodes: NodesOverSimDisk, had_folder: bool) -> None:
    node = nodes.start(1)
    assert isinstance(node.store.lock(TOPIC, TOPIC_ID), LockedLog)
    node.store.release_unopened(TOPIC, TOPIC_ID)
    table(node).write(TOPIC, table(node).read(TOPIC)._replace(topic_id=NO_TOPIC))
    node.store.set_deleted_aside(TOPIC, TOPIC_ID, lambda: had_folder)
    assert (table(node).read(TOPIC).state == GONE) is had_folder


def test_a_log_that_another_node_has_open_is_not_set_aside(nodes: NodesOverSimDisk) -> None:
    first, second = nodes.start(1), nodes.start(2)
    append_to_topic(first, first.acquired_topic(TOPIC), b"a")
    slot = table(first).read(TOPIC)
    with pytest.raises(BlockingIOError):
        second.topics.set_aside(TOPIC, TOPIC_ID, None, False, 0)
    assert second.topics.exists(TOPIC)
    assert table(first).read(TOPIC) == slot
    second.topics.set_aside(TOPIC, NEW_ID, None, True, 0)  # a topic without a folder: the lock is that of a new topic's log
    assert second.topics.exists(TOPIC)


def test_a_failed_rename_gives_the_lock_back(nodes: NodesOverSimDisk) -> None:
    first, second = nodes.start(1), nodes.start(2)

    def fail() -> bool:
        raise OSError(30, "Read-only file system")

    with pytest.raises(OSError, match="Read-only"):
        first.store.set_deleted_aside(TOPIC, TOPIC_ID, fail)
    assert isinstance(second.store.lock(TOPIC, TOPIC_ID), LockedLog)


def test_a_log_of_another_object_is_not_set_aside(nodes: NodesOverSimDisk) -> None:
    node = nodes.start(1)
    log = node.acquired_topic(TOPIC)
    append_to_topic(node, log, b"a")
    node.topics.set_aside(TOPIC, TOPIC_ID, None, False, 0)
    assert node.topics.served_log(TOPIC) is log
    assert node.topics.exists(TOPIC)


# Turn files of other nodes.


def test_the_turn_files_of_a_dead_node_are_read_again_only_if_they_have_changed(nodes: NodesOverSimDisk) -> None:
    first, second = nodes.start(1), nodes.start(2)
    append(first, first.own(LOG), b"a")
    folder = "/data/nodes/1"
    leftover = second.store._leftover(folder)
    assert leftover is not second.store.turn_flushes.leftover
    assert second.store._leftover(folder) is leftover
    second.store._leftovers[folder] = (("other sizes",), leftover)
    assert second.store._leftover(folder) is not leftover
    assert second.store._leftover("/data/nodes/77") is second.store.turn_flushes.leftover


def test_every_node_sees_the_whole_table_at_once_and_checks_no_log_of_others(nodes: NodesOverSimDisk) -> None:
    node = nodes.start(1)
    node.own(LOG)
    assert node.store.data_path == "/data"
    done: list[bool] = []
    node.store.when_current(lambda: done.append(True))
    assert done == [True]
    assert node.store.unchecked_logs() == []
