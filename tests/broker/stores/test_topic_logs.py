"""Folders of topic logs: which exist, to whom they belong, and when deleted ones are removed."""

from __future__ import annotations

import pytest

from broker.stores.tokens import id_text
from broker.stores.topic_logs import LocalTopicStore
from simulator.disk import SimDisk
from storage import LogId
from storage.removal import folders_set_aside
from tests.support.topic_broker import TopicBroker

LOG = LogId("orders", 0)


@pytest.fixture
def broker() -> TopicBroker:
    return TopicBroker(SimDisk())


def folders(broker: TopicBroker, prefix: str) -> list[str]:
    return [name for name in broker.disk.list("/data") if name.startswith(prefix)]


def test_only_logs_of_topics_are_listed(broker: TopicBroker) -> None:
    broker.written_topic(2)
    for name in ("__consumer_offsets-0", "__coordinator_notes-0", "no log", "nodes"):
        broker.disk.make_folder(f"/data/{name}")
    assert sorted(LocalTopicStore(broker.store).list_existing_logs(1_000)) == [LOG, LogId("orders", 1)]


def test_folders_that_a_killed_broker_has_set_aside_are_removed_after_the_delay(broker: TopicBroker) -> None:
    broker.written_topic()
    broker.delete("orders")
    broker.settle()
    assert len(folders_set_aside(broker.disk, "/data")) == 1
    broker.restart()
    store = LocalTopicStore(broker.store)
    store.list_existing_logs(5_000)
    broker.pass_seconds(4.9)
    assert len(folders_set_aside(broker.disk, "/data")) == 1
    broker.pass_seconds(0.2)
    assert folders_set_aside(broker.disk, "/data") == []


@pytest.mark.parametrize(
    ("stored", "in_use", "moved"),
    [("own", False, True), ("own", True, True), ("other", False, False), ("other", True, False), ("", False, True), ("", True, False)],
)
def test_only_a_folder_of_the_deleted_topic_is_set_aside(broker: TopicBroker, stored: str, in_use: bool, moved: bool) -> None:
    """A folder without an id is that of the deleted topic unless a new topic has its name."""
    topic = broker.written_topic()
    broker.restart(clean_stop=True)
    other = bytes(16)
    path = "/data/orders-0/partition.metadata"
    if stored == "other":
        broker.disk.replace_text(path, broker.disk.read_text(path).replace(id_text(topic.id), id_text(other)))
    elif not stored:
        broker.disk.remove(path)
    LocalTopicStore(broker.store).set_aside(LOG, topic.id, None, in_use, 1_000)
    assert (folders(broker, "orders-0") == ["orders-0"]) is not moved
    assert bool(folders_set_aside(broker.disk, "/data")) is moved


def test_the_folder_of_an_open_log_is_not_that_of_an_unopened_one(broker: TopicBroker) -> None:
    topic = broker.written_topic()
    LocalTopicStore(broker.store).set_aside(LOG, topic.id, None, False, 1_000)
    assert folders(broker, "orders-0") == ["orders-0"]


def test_a_folder_that_cannot_be_removed_is_tried_again(broker: TopicBroker) -> None:
    broker.written_topic(file_delete_delay_ms="10000")
    broker.delete("orders")
    broker.settle()
    broker.disk.read_only = True
    broker.pass_seconds(11)
    assert len(folders_set_aside(broker.disk, "/data")) == 1
    broker.disk.read_only = False
    broker.pass_seconds(14)
    assert len(folders_set_aside(broker.disk, "/data")) == 1
    broker.pass_seconds(2)
    assert folders_set_aside(broker.disk, "/data") == []


def test_a_log_is_not_busy_after_its_old_files_were_removed(broker: TopicBroker) -> None:
    """While they are removed its folder must keep its name."""
    broker.written_topic()
    log = broker.find("orders", 0).log
    owned = broker.store.owned_log(LOG)
    assert owned is not None
    users = owned.log.folder_users
    LocalTopicStore(broker.store).served_log(LOG)._remove([0])  # type: ignore[union-attr]
    assert owned.log.folder_users == users + 1
    broker.threads.run_all()
    assert owned.log.folder_users == users
    assert log is not None
