"""How the store opens, replaces and removes the logs of topics: in which thread, with which checkpoints, and what a failure leaves."""

from __future__ import annotations

from typing import Any, cast

import pytest

from broker.internal_topics import REGISTRY_LOG
from broker.stores.tokens import id_text
from broker.stores.topic_logs import BUSY_SECONDS, LocalTopicStore
from simulator.disk import SimDisk
from storage import HeldBy, LogId, Producers, TopicInfo, TopicLog, Unreadable
from storage.removal import folders_set_aside
from tests.support.topic_broker import TopicBroker

pytestmark = pytest.mark.plain  # replaces methods of stores

LOG = LogId("orders", 0)
OTHER_ID = bytes(range(100, 116))


class World:
    """A broker that was started again after its topic `orders` was written, with no log of it open."""

    def __init__(self, written: bool = True) -> None:
        self.broker = TopicBroker(SimDisk())
        if written:
            self.topic_id = self.broker.written_topic().id
            self.broker.restart(clean_stop=True)
        self.broker.threads.jobs.clear()
        self.store = self.broker.store
        self.topics = LocalTopicStore(self.store)
        self.results: list[TopicLog | HeldBy | Unreadable] = []
        self.strayed: list[str] = []

    def open(self, topic_id: bytes = b"", id: LogId = LOG) -> None:
        topic = TopicInfo(topic_id or self.topic_id, 1 << 20, Producers(), 0, self.strayed.append)
        self.topics.open_topic_log(id, topic, self.results.append)


def test_an_existing_log_is_opened_in_a_thread_with_handles_of_its_own() -> None:
    """The loop's handles are not for threads; and an opened log is served."""
    world = World()
    made: list[Any] = []
    new_handles = world.store.new_handles

    def make() -> Any:
        made.append(new_handles())
        return made[-1]

    cast(Any, world.store).new_handles = make
    world.open()
    assert (len(world.broker.threads.jobs), world.results) == (1, [])
    closed: list[bool] = []
    close = made[0].close

    def note() -> None:
        closed.append(True)
        close()

    made[0].close = note
    world.broker.threads.run_all()
    (log,) = world.results
    assert not isinstance(log, HeldBy | Unreadable)
    assert log.records.next_offset == 1
    assert world.topics.served_log(LOG) is log
    assert closed == [True]


def test_a_new_log_is_opened_at_once_with_the_handles_of_the_loop() -> None:
    world = World()
    closed: list[bool] = []
    cast(Any, world.store.handles).close = lambda: closed.append(True)
    world.open(OTHER_ID, LogId("new", 0))
    assert (len(world.results), world.broker.threads.jobs, closed) == (1, [], [])
    assert world.topics.served_log(LogId("new", 0)) is world.results[0]
    assert not world.topics.exists(LogId("new", 0))
    assert world.topics.exists(LOG)


def test_a_log_is_not_opened_while_the_store_stops() -> None:
    world = World()
    world.open()
    world.store.finishing = True
    world.broker.threads.run_all()
    world.open()
    assert (world.results, world.broker.threads.jobs) == ([], [])
    assert world.topics.served_log(LOG) is None


def test_an_unreadable_log_is_reported_and_not_served() -> None:
    world = World()
    opened = LocalTopicStore._open

    def fail(*arguments: object) -> None:
        raise OSError(5, "Input/output error")

    cast(Any, world.topics)._open = fail
    world.open()
    world.broker.threads.run_all()
    (result,) = world.results
    assert isinstance(result, Unreadable)
    assert (result.damaged, world.topics.served_log(LOG)) == (False, None)
    cast(Any, world.topics)._open = lambda *arguments: opened(world.topics, *arguments)
    world.open()
    world.broker.threads.run_all()
    assert not isinstance(world.results[1], Unreadable | HeldBy)


def test_the_folder_of_another_topic_is_moved_once_no_checkpoint_has_its_entries() -> None:
    """Otherwise the new log would begin at the log start of the other topic after a crash."""
    world = World()
    forgotten: list[list[LogId]] = []
    forget = world.store.directory.forget

    def record(ids: Any) -> None:
        assert world.strayed == []
        assert world.broker.disk.exists("/data/orders-0")
        forgotten.append(list(ids))
        forget(ids)

    cast(Any, world.store.directory).forget = record
    world.open(OTHER_ID)
    world.broker.threads.run_all()
    (log,) = world.results
    assert not isinstance(log, HeldBy | Unreadable)
    assert (log.records.start_offset, log.records.next_offset) == (0, 0)
    assert forgotten == [[LOG]]
    assert len(world.strayed) == 1
    assert world.strayed[0].endswith("-stray")
    assert world.broker.disk.exists(world.strayed[0] if world.strayed[0].startswith("/") else f"/data/{world.strayed[0]}")


def test_a_folder_of_another_topic_stays_if_its_checkpoints_cannot_be_removed() -> None:
    world = World()

    def fail(ids: object) -> None:
        raise OSError(28, "No space left on device")

    cast(Any, world.store.directory).forget = fail
    world.open(OTHER_ID)
    world.broker.threads.run_all()
    (result,) = world.results
    assert isinstance(result, Unreadable)
    assert (result.reason, result.damaged) == ("the disk of /data is full", False)
    assert world.strayed == []
    world.results.clear()
    world.open()
    world.broker.threads.run_all()
    assert cast(TopicLog, world.results[0]).records.next_offset == 1


@pytest.mark.parametrize("busy", [False, True])
def test_a_log_is_replaced_once_it_is_idle(busy: bool) -> None:
    """The registry could not store the creation of its topic."""
    world = World()
    world.open()
    world.broker.threads.run_all()
    first = world.store.owned_log(LOG)
    assert first is not None
    cancelled: list[object] = []
    cast(Any, world.store).cancel_compaction = cancelled.append
    if busy:
        first.log.begin_compaction()
    world.open(OTHER_ID)
    assert not first.usable()
    if busy:
        assert (cancelled, world.broker.threads.jobs, world.store.owned_log(LOG)) == ([first.log], [], first)
        assert BUSY_SECONDS in world.broker.loop.delays()
        first.log.end_compaction()
        world.broker.loop.jump(BUSY_SECONDS)
    assert world.store.owned_log(LOG) is None
    world.broker.threads.run_all()
    assert len(world.results) == 2
    assert world.store.owned_log(LOG) is cast(Any, world.results[1])
    assert len(cancelled) == busy


def test_the_logs_of_internal_topics_are_not_listed() -> None:
    world = World()
    for name in ("__consumer_offsets-7", "__coordinator_notes-7", f"{REGISTRY_LOG}-7", "other-3"):
        world.broker.disk.make_folder(f"/data/{name}")
    assert set(world.topics.list_existing_logs(0)) == {LOG, LogId("other", 3)}


def test_a_log_with_another_object_is_not_set_aside() -> None:
    world = World()
    world.open()
    world.broker.threads.run_all()
    log = cast(TopicLog, world.results[0])
    world.topics.set_aside(LOG, world.topic_id, None, False, 1_000)
    assert world.topics.exists(LOG)
    world.topics.set_aside(LOG, world.topic_id, log, False, 1_000)
    assert not world.topics.exists(LOG)
    assert world.topics.served_log(LOG) is None
    assert 1.0 in world.broker.loop.delays()
    assert not world.topics._set_folder_aside(LOG, world.topic_id, False, 1_000)


def test_a_renamed_folder_is_reported_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    assert world.topics._has_folder_of(LOG, world.topic_id, True)
    assert not world.topics._has_folder_of(LogId("orders", 1), world.topic_id, False)
    assert world.topics._set_folder_aside(LOG, world.topic_id, True, 2_000)
    assert len(folders_set_aside(world.broker.disk, "/data")) == 1
    world.broker.pass_seconds(1.9)
    assert len(folders_set_aside(world.broker.disk, "/data")) == 1
    world.broker.pass_seconds(0.2)
    assert folders_set_aside(world.broker.disk, "/data") == []


def test_folders_of_one_deletion_are_removed_each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr("broker.stores.topic_logs.log.warning", lambda event, **fields: lines.append(fields))
    removed: list[str] = []

    def remove(disk: object, folder: str) -> None:
        removed.append(folder)
        if folder == "a":
            raise OSError("busy")

    monkeypatch.setattr("broker.stores.topic_logs.remove_folder", remove)
    assert world.topics._remove_all(["a", "b"]) == ["a"]
    assert (removed, lines) == (["a", "b"], [{"folder": "a", "reason": "busy"}])
    delays = len(world.broker.loop.delays())
    world.topics._removed([])
    world.topics._removed(cast(Any, RuntimeError("a defect")))
    world.topics._remove_later([], 5)
    assert len(world.broker.loop.delays()) == delays


@pytest.mark.parametrize("fails", [False, True])
def test_checkpoints_are_reported_when_they_are_stored(fails: bool) -> None:
    world = World()
    error = OSError(28, "No space left on device")
    stored: list[tuple[str, Any]] = []

    def store(name: str) -> Any:
        def record(values: Any) -> None:
            stored.append((name, values))
            if fails:
                raise error

        return record

    directory = cast(Any, world.store.directory)
    directory.checkpoint_starts, directory.checkpoint, directory.forget = store("starts"), store("points"), store("forget")
    synced: list[str] = []
    cast(Any, world.broker.disk).sync_folder = synced.append
    done: list[Exception | None] = []
    world.topics.save_start_offsets({LOG: 3}, done.append)
    world.topics.save_recovery_points({LOG: 2}, done.append)
    world.topics.forget_topics([LOG], done.append)
    assert done == []
    world.broker.threads.run_all()
    assert done == [error if fails else None] * 3
    assert [name for name, _ in stored] == ["starts", "points", "forget"]
    assert stored[0][1] == {LOG: 3}
    assert stored[1][1].items() >= {LOG: 2}.items()
    assert len(stored[1][1]) > 1  # also those of the internal logs
    assert (list(stored[2][1]), synced) == ([LOG], ["/data"])  # the renames are durable before the topic is forgotten


def test_a_stored_topic_id_is_that_of_its_text() -> None:
    world = World()
    assert id_text(world.topic_id) in world.broker.disk.read_text("/data/orders-0/partition.metadata")
    assert world.topics.durable_starts == {}
