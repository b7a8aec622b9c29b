"""Partitions of one of several nodes: what is opened, refused, released and lost, and what their owner hears of it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.cluster import partitions as module
from broker.cluster.partitions import BUSY_SECONDS, SharedPartitions
from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG
from broker.topics.partition import FAILED, GONE, NOT_SERVED, Partition
from broker.topics.registry import Topic, TopicRegistry
from storage import AppendFailed, Fenced, HeldBy, LogId, TopicLog, Unreadable
from tests.support.memory_logs import MemoryTopicLog, MemoryTopicStore
from tests.support.stepped_loop import SteppedLoop

pytestmark = pytest.mark.plain  # replaces methods and the log

ORDERS = LogId("orders", 0)


class Owners:
    """The logs that this node may open, and what it heard of them."""

    def __init__(self) -> None:
        self.mine: set[LogId] = {ORDERS}
        self.is_controller = False
        self.heard: list[tuple[Any, ...]] = []
        self.released: list[Callable[[], None]] = []

    def may_open(self, log: LogId) -> bool:
        return log in self.mine

    def added(self, topic: Topic) -> None:
        self.heard.append(("added", topic.name, topic.partition_count))

    def deleted(self, logs: list[LogId]) -> None:
        self.heard.append(("deleted", logs))

    def opened(self, log: LogId, result: HeldBy | str) -> None:
        self.heard.append(("opened", log, result))

    def release(self, log: LogId, done: Callable[[], None]) -> None:
        self.heard.append(("release", log))
        self.released.append(done)

    def release_unopened(self, log: LogId, topic_id: bytes) -> None:
        self.heard.append(("release_unopened", log, topic_id))

    def lost(self, log: LogId) -> None:
        self.heard.append(("lost", log))


class World:
    def __init__(self) -> None:
        self.loop = SteppedLoop()
        self.owners = Owners()
        self.store = MemoryTopicStore(held=True)
        self.ids = iter(range(1, 100))
        self.topics = TopicRegistry(lambda: next(self.ids).to_bytes(16, "big"))
        self.deletions: list[Any] = []  # replies that wait until a deletion is durable
        journal = SimpleNamespace(hold_reply=self.deletions.append, readable=True)
        self.notes_opened: list[int] = []
        self.partitions = SharedPartitions(self.topics, cast(Any, journal), cast(Any, self.store), cast(Any, self.loop), {}, self.notes_opened.append)
        self.partitions.owners = self.owners
        self.changed: list[Partition] = []
        self.partitions.epoch_changed = self.changed.append
        self.orders = self.create("orders", 2)
        self.owners.heard.clear()

    def create(self, name: str, partitions: int = 1) -> Topic:
        topic = self.topics.create(name, partitions, {}, 0)
        self.partitions.created(topic)
        return topic

    def partition(self, index: int = 0) -> Partition:
        return self.partitions.of_topic(self.orders)[index]

    def run(self) -> None:
        while self.store.waiting:
            self.store.waiting.pop(0)()
        self.loop.run()

    def serve(self) -> MemoryTopicLog:
        """Acquire and open the log; returns it."""
        self.partitions.acquire(ORDERS)
        self.run()
        assert self.owners.heard[-1] == ("opened", ORDERS, "")
        self.owners.heard.clear()
        self.changed.clear()
        return self.store.logs[ORDERS]

    def delete(self) -> None:
        self.partitions.deleted(self.topics.delete("orders", 0))


@pytest.fixture
def world() -> World:
    return World()


# Acquiring.


def test_a_nodes_own_log_is_opened_and_its_owner_told(world: World) -> None:
    world.partitions.acquire(ORDERS)
    assert world.owners.heard == []
    assert world.partition().error == NOT_SERVED
    world.run()
    assert (world.owners.heard, world.partition().error, world.partition().opened) == ([("opened", ORDERS, "")], 0, True)
    world.partitions.acquire(ORDERS)
    assert (world.owners.heard, world.store.waiting) == ([("opened", ORDERS, "")] * 2, [])


def test_a_request_of_a_client_opens_no_log_of_another_node(world: World) -> None:
    world.owners.mine = set()
    assert world.partitions.find("orders", 0) is world.partition()
    assert world.store.waiting == []
    world.owners.mine = {ORDERS}
    world.partitions.find("orders", 0)
    world.partitions.find("orders", 1)
    assert len(world.store.waiting) == 1


def test_a_start_opens_no_log_by_itself(world: World) -> None:
    world.store.logs[ORDERS] = MemoryTopicLog(ORDERS)
    world.partitions.open_all()
    assert world.store.waiting == []
    world.partitions.finish_deletions()
    assert world.store.waiting == []


@pytest.mark.parametrize("id", [LogId("unknown", 0), LogId("orders", 2)])
def test_a_log_that_does_not_exist_any_more_is_no_longer_acquired_or_released(world: World, id: LogId) -> None:
    world.partitions.acquire(id)
    assert world.owners.heard == [("opened", id, "the partition does not exist any more")]
    done: list[bool] = []
    world.partitions.leave(id, lambda: done.append(True))
    assert done == [True]
    assert len(world.owners.heard) == 1
    world.partitions.refuse_internal(id)


@pytest.mark.parametrize(
    ("result", "heard", "reason"),
    [(HeldBy("node 2"), HeldBy("node 2"), ""), (Unreadable("a hole", True), "a hole", "a hole"), (Unreadable("no file", False), "no file", "no file")],
)
def test_a_log_that_cannot_be_opened_is_left_to_its_owner(world: World, result: Any, heard: Any, reason: str) -> None:
    """There is no retry of the partition itself: another node may acquire the log next."""
    world.store.unreadable[ORDERS] = result
    world.partitions.acquire(ORDERS)
    world.run()
    assert world.owners.heard == [("opened", ORDERS, heard)]
    assert (world.partition().error, world.partition().refusal_reason, world.partition().opened) == (NOT_SERVED, reason, False)
    assert world.loop.delays() == []
    del world.store.unreadable[ORDERS]
    world.serve()


def test_the_reason_of_the_last_failure_is_not_that_of_the_next_attempt(world: World) -> None:
    world.partition().error = FAILED
    world.partition().refusal_reason = "a hole"
    world.partitions.acquire(ORDERS)
    assert (world.partition().error, world.partition().refusal_reason) == (NOT_SERVED, "")
    world.run()
    assert world.owners.heard == [("opened", ORDERS, "")]


def test_the_next_log_is_opened_after_one_that_another_node_holds(world: World) -> None:
    world.partitions.open_concurrency = 1
    world.owners.mine.add(LogId("orders", 1))
    world.store.unreadable[ORDERS] = cast(Any, HeldBy("node 2"))
    for index in (0, 1):
        world.partitions.acquire(LogId("orders", index))
    world.run()
    assert [heard[1:] for heard in world.owners.heard] == [(ORDERS, HeldBy("node 2")), (LogId("orders", 1), "")]


def test_a_defect_while_a_log_is_opened_is_told_to_its_owner(world: World, planted_defect: None) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("a defect")

    cast(Any, world.store).open_topic_log = fail
    world.partitions.acquire(ORDERS)
    assert world.owners.heard == [("opened", ORDERS, "a defect in this version")]
    assert world.partition().error == NOT_SERVED


def test_a_log_whose_topic_was_deleted_while_it_was_opened_is_reported_to_nobody(world: World) -> None:
    world.partitions.acquire(ORDERS)
    partition = world.partition()
    world.delete()
    world.owners.heard.clear()
    world.run()
    assert (world.owners.heard, partition.error) == ([], GONE)


def test_a_log_waits_for_the_folder_of_a_deleted_topic_of_its_name(world: World) -> None:
    assert not world.partitions.awaits_deletion(ORDERS)
    world.delete()
    assert world.partitions.awaits_deletion(ORDERS)
    assert not world.partitions.awaits_deletion(LogId("other", 0))


def test_a_log_that_was_never_written_is_one_of_this_nodes_own(world: World) -> None:
    assert world.partitions.was_never_written(world.partition())
    assert not world.partitions.was_never_written(world.partition(1))
    world.partitions.acquire(ORDERS)
    assert not world.partitions.was_never_written(world.partition())


# Leaving.


def test_a_log_that_leaves_is_refused_at_once_and_released(world: World) -> None:
    world.serve()
    producers = world.partition().producers
    done: list[bool] = []
    world.partitions.leave(ORDERS, lambda: done.append(True))
    partition = world.partition()
    assert (partition.error, partition.refusal_reason, partition.opened) == (NOT_SERVED, "", False)
    assert partition.producers is not producers  # those of the next owner may be others
    assert (world.owners.heard, world.changed, done) == ([("release", ORDERS)], [partition], [])
    world.owners.released[0]()
    assert done == [True]


def test_a_log_in_use_is_interrupted_and_released_when_it_is_idle(world: World) -> None:
    log = world.serve()
    log.busy = True
    interrupted: list[bool] = []
    cast(Any, log).interrupt = lambda: interrupted.append(True)
    done: list[bool] = []
    world.partitions.leave(ORDERS, lambda: done.append(True))
    assert (world.owners.heard, world.loop.delays(), interrupted) == ([], [BUSY_SECONDS], [True])
    assert world.partition().error == NOT_SERVED
    world.loop.jump(BUSY_SECONDS)
    assert (world.owners.heard, interrupted) == ([], [True, True])
    log.busy = False
    world.loop.jump(BUSY_SECONDS)
    assert world.owners.heard == [("release", ORDERS)]
    assert world.loop.delays() == []


def test_a_log_that_is_being_opened_is_released_after_that(world: World) -> None:
    world.partitions.acquire(ORDERS)
    world.partitions.leave(ORDERS, lambda: None)
    assert ("release", ORDERS) not in world.owners.heard
    world.run()
    world.owners.heard.clear()
    world.loop.jump(BUSY_SECONDS)
    assert world.owners.heard == [("release", ORDERS)]
    assert (world.partition().error, world.partition().opened) == (NOT_SERVED, False)


def test_a_log_that_is_being_repaired_is_released_after_that(world: World) -> None:
    log = world.serve()
    log.unusable_reason = "the disk is full"
    world.partitions.append_failed(world.partition(), AppendFailed("the disk is full"))
    world.loop.jump(1.0)
    assert len(log.recovering) == 1
    world.partitions.leave(ORDERS, lambda: None)
    assert world.owners.heard == []
    log.unusable_reason = ""
    log.recovering.pop()(None)
    world.loop.jump(BUSY_SECONDS)
    assert world.owners.heard == [("release", ORDERS)]
    assert world.partition().error == NOT_SERVED


@pytest.mark.parametrize("queued", ["requested", "queued"])
def test_a_log_that_was_not_opened_yet_is_not_opened_any_more(world: World, queued: str) -> None:
    world.partitions.open_concurrency = 0
    if queued == "requested":
        world.partitions.acquire(ORDERS)
    else:
        world.partitions._queue[world.partition()] = None
    world.partitions.leave(ORDERS, lambda: None)
    world.partitions.open_concurrency = 3
    world.partitions._open_next()
    assert world.store.waiting == []
    assert world.owners.heard == [("release", ORDERS)]


def test_a_log_whose_topic_was_deleted_meanwhile_is_not_released(world: World) -> None:
    """Its folder is being renamed, under the log's lock."""
    log = world.serve()
    log.busy = True
    cast(Any, log).interrupt = lambda: None
    done: list[bool] = []
    world.partitions.leave(ORDERS, lambda: done.append(True))
    world.delete()
    world.owners.heard.clear()
    log.busy = False
    world.loop.jump(BUSY_SECONDS)
    assert (done, world.owners.heard) == ([True], [])


def test_a_failing_release_ends_the_wait_for_it(world: World, planted_defect: None) -> None:
    log = world.serve()
    log.busy = True
    done: list[bool] = []
    world.partitions.leave(ORDERS, lambda: done.append(True))

    def fail(*arguments: object) -> None:
        raise RuntimeError("a defect")

    cast(Any, world.owners).release = fail
    world.loop.jump(BUSY_SECONDS)
    assert done == [True]


# Losing.


def fenced(world: World, log: MemoryTopicLog, usable: bool = False) -> None:
    log.unusable_reason = "" if usable else "another node has claimed it"
    world.partitions.append_failed(world.partition(), Fenced("another node has claimed it"))


def test_a_log_that_another_node_has_claimed_is_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(module, "log", SimpleNamespace(warning=lambda event, **fields: lines.append((event, fields))))
    log = world.serve()
    producers = world.partition().producers
    fenced(world, log)
    partition = world.partition()
    assert (partition.error, partition.opened, partition.producers is producers) == (NOT_SERVED, False, False)
    assert (world.owners.heard, world.changed) == ([("lost", ORDERS)], [partition])
    assert lines == [("partition was lost", {"log": "orders-0", "reason": "another node has claimed it"})]
    fenced(world, log)
    assert world.owners.heard == [("lost", ORDERS)]
    assert world.loop.delays() == []


def test_a_log_that_is_handed_over_is_not_lost(world: World) -> None:
    log = world.serve()
    world.owners.mine = set()
    fenced(world, log)
    assert (world.owners.heard, world.partition().opened) == ([], True)


def test_a_refused_append_to_a_usable_log_loses_nothing(world: World) -> None:
    """The append was one of an earlier epoch of this node."""
    log = world.serve()
    fenced(world, log, usable=True)
    assert (world.owners.heard, world.partition().error) == ([], 0)


def test_another_failure_suspends_the_log_until_it_is_repaired(world: World) -> None:
    log = world.serve()
    log.unusable_reason = "the disk is full"
    world.partitions.append_failed(world.partition(), AppendFailed("the disk is full"))
    assert (world.partition().error, world.owners.heard) == (FAILED, [])
    world.loop.jump(1.0)
    log.unusable_reason = ""
    log.recovering.pop()(None)
    assert world.partition().error == 0
    assert world.partition() not in world.partitions._recovering


def test_a_log_that_another_node_has_claimed_during_its_repair_is_lost(world: World) -> None:
    log = world.serve()
    log.unusable_reason = "the disk is full"
    world.partitions.append_failed(world.partition(), AppendFailed("the disk is full"))
    world.loop.jump(1.0)
    log.recovering.pop()(Fenced("another node has claimed it"))
    assert (world.owners.heard, world.partition().error) == ([("lost", ORDERS)], NOT_SERVED)
    assert world.partition() not in world.partitions._recovering


@pytest.mark.parametrize("during_repair", [False, True])
def test_a_deleted_log_is_not_lost(world: World, during_repair: bool) -> None:
    log = world.serve()
    partition = world.partition()
    if during_repair:
        log.unusable_reason = "the disk is full"
        world.partitions.append_failed(partition, AppendFailed("the disk is full"))
        world.loop.jump(1.0)
    world.delete()
    world.owners.heard.clear()
    if during_repair:
        log.recovering.pop()(Fenced("another node has claimed it"))
        assert partition not in world.partitions._recovering
    else:
        log.unusable_reason = "renamed"
        world.partitions.append_failed(partition, Fenced("another node has claimed it"))
    assert (world.owners.heard, partition.error) == ([], GONE)


# Topics.


def test_the_owner_hears_of_new_and_deleted_topics(world: World) -> None:
    world.create("new", 3)
    world.partitions.partitions_added(world.topics.add_partitions("new", 5))
    assert len(world.partitions.of_topic(world.topics.by_name["new"])) == 5
    world.delete()
    assert world.owners.heard == [("added", "new", 3), ("added", "new", 5), ("deleted", [ORDERS, LogId("orders", 1)])]


@pytest.mark.parametrize(("opened", "controller"), [(True, False), (True, True), (False, True), (False, False)])
def test_the_owner_of_a_deleted_log_or_the_controller_renames_its_folder(world: World, opened: bool, controller: bool) -> None:
    if opened:
        world.serve()
    world.owners.is_controller = controller
    set_aside: list[tuple[LogId, TopicLog | None]] = []
    cast(Any, world.store).set_aside = lambda id, topic_id, log, *rest: set_aside.append((id, log))
    partition = world.partition()
    log = partition.owned_log if opened else None
    assert world.partitions._set_folder_aside(partition, world.orders, log)
    assert set_aside == ([(ORDERS, log)] if opened or controller else [])
    assert world.owners.heard == ([] if opened or controller else [("release_unopened", ORDERS, world.orders.id)])


def test_a_folder_in_use_by_another_node_is_renamed_later(world: World) -> None:
    world.owners.is_controller = True

    def busy(*arguments: object) -> None:
        raise BlockingIOError("another node has its log open")

    cast(Any, world.store).set_aside = busy
    assert not world.partitions._set_folder_aside(world.partition(), world.orders, None)

    def fail(*arguments: object) -> None:
        raise OSError(30, "Read-only file system")

    cast(Any, world.store).set_aside = fail
    with pytest.raises(OSError, match="Read-only"):
        world.partitions._set_folder_aside(world.partition(), world.orders, None)


# Internal topics.


def test_notes_belong_to_the_owner_of_their_groups(world: World) -> None:
    world.create(NOTES_LOG, 2)
    world.owners.mine = {LogId(CONSUMER_OFFSETS, 1)}
    for index in (0, 1):
        world.partitions.find(NOTES_LOG, index)
    assert world.notes_opened == [1]


def test_an_internal_log_that_leaves_is_refused(world: World) -> None:
    topic = world.create(NOTES_LOG, 2)
    partition = world.partitions.of_topic(topic)[1]
    partition.opened = True
    partition.error = 0
    world.partitions.refuse_internal(LogId(NOTES_LOG, 2))
    world.partitions.refuse_internal(LogId(NOTES_LOG, 0))
    assert (partition.opened, partition.error) == (True, 0)
    world.partitions.refuse_internal(LogId(NOTES_LOG, 1))
    assert (partition.opened, partition.error, partition.refusal_reason) == (False, NOT_SERVED, "")
    first = world.partitions.of_topic(topic)[0]
    first.refuse(FAILED, "a reason")
    world.partitions.refuse_internal(LogId(NOTES_LOG, 0))
    assert first.refusal_reason == "a reason"
