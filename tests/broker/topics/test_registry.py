"""The registry of topics: a replay of its facts gives the same state."""

from __future__ import annotations

import pytest

from broker.topics.registry import PRODUCER_IDS_PER_BLOCK, TopicRegistry
from coordinator import Fact
from protocol.batch import facts_of

pytestmark = pytest.mark.plain  # subclasses the registry, to add a method


class Registry(TopicRegistry):
    """A registry whose facts go to a log in memory."""

    def __init__(self) -> None:
        self._ids = 0
        self.log: list[Fact] = []
        super().__init__(self._next_id)

    def _next_id(self) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(16, "big")

    def flush(self) -> None:
        while self.hold.has_untaken:
            self.log += facts_of(bytes(self.hold.take_batch(0)))
            self.hold.confirm(self.hold.taken)

    def reopen(self) -> None:
        """Replay the log."""
        self.hold.fail(56)
        self.clear()
        self.replay(self.log)


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    registry.create("orders", 3, {"retention.ms": "1000"}, 5)
    registry.create("pay.ments", 1, {}, 6)
    registry.flush()
    return registry


def state(registry: TopicRegistry) -> object:
    return (
        registry.by_name,
        registry.by_id,
        registry.partition_count,
        registry.deleted,
        registry.next_producer_id,
        registry.colliding("pay_ments"),
    )


def check(registry: Registry) -> None:
    """Check that a replay of the log gives the same state."""
    registry.flush()
    replayed = Registry()
    replayed.replay(registry.log)
    assert state(replayed) == state(registry)


def test_a_topic_grows(registry: Registry) -> None:
    before = registry.by_name["orders"]
    topic = registry.add_partitions("orders", 7)
    assert (topic.id, topic.partition_count, topic.settings, topic.created_ms) == (before.id, 7, before.settings, 5)
    assert registry.by_id[topic.id] is topic
    assert registry.partition_count == 8
    check(registry)


def test_topic_settings_are_changed(registry: Registry) -> None:
    topic = registry.alter("orders", {"cleanup.policy": "compact"})
    assert registry.by_name["orders"] is topic
    assert topic.settings == {"cleanup.policy": "compact"}
    check(registry)


@pytest.mark.parametrize("order", [("folders_gone", "offsets_gone"), ("offsets_gone", "folders_gone")])
def test_a_deletion_is_kept_until_folders_and_offsets_are_removed(registry: Registry, order: tuple[str, str]) -> None:
    topic = registry.delete("pay.ments", 9)
    assert topic.name not in registry.by_name
    assert topic.id not in registry.by_id
    assert registry.partition_count == 3
    assert registry.colliding("pay_ments") is None
    assert registry.deleted[topic.id].name == "pay.ments"
    check(registry)
    for _ in range(2):
        getattr(registry, order[0])(topic.id)
        assert registry.deleted
        check(registry)
    getattr(registry, order[1])(topic.id)
    assert not registry.deleted
    check(registry)
    for part in order:
        getattr(registry, part)(topic.id)
    assert not registry.hold.has_untaken


def test_a_topic_name_can_be_reused_with_a_new_id(registry: Registry) -> None:
    old = registry.delete("orders", 9)
    new = registry.create("orders", 1, {}, 10)
    assert new.id != old.id
    assert registry.by_name["orders"] is new
    check(registry)
    registry.folders_gone(old.id)
    assert registry.by_id[new.id] is new
    check(registry)


def test_changes_refused_by_the_log_are_reverted(registry: Registry) -> None:
    registry.delete("orders", 9)
    registry.alter("pay.ments", {"retention.ms": "1"})
    registry.reserve_producer_ids()
    registry.reopen()
    assert registry.by_name["orders"].partition_count == 3
    assert registry.by_name["pay.ments"].settings == {}
    assert not registry.deleted
    assert registry.next_producer_id == 0


def test_producer_ids_are_assigned_once(registry: Registry) -> None:
    first = registry.reserve_producer_ids()
    assert first == range(PRODUCER_IDS_PER_BLOCK)
    check(registry)
    registry.reopen()
    second = registry.reserve_producer_ids()
    assert second == range(PRODUCER_IDS_PER_BLOCK, 2 * PRODUCER_IDS_PER_BLOCK)
    check(registry)


def test_a_block_refused_by_the_log_is_assigned_again(registry: Registry) -> None:
    registry.reserve_producer_ids()
    registry.reopen()
    assert registry.reserve_producer_ids().start == 0


def test_unknown_record_kinds_of_newer_versions_are_ignored(registry: Registry) -> None:
    registry.log.append((b"\x00\x09anything", b"\x00\x00"))
    check(registry)
    assert set(registry.by_name) == {"orders", "pay.ments"}


def test_a_registry_that_is_read_again_tells_of_each_topic_whose_partitions_are_others(registry: Registry) -> None:
    """Groups watch topics: a creation that the log refused must not stay in their view."""
    stored = list(registry.log)
    registry.create("refused", 1, {}, 7)
    registry.add_partitions("orders", 4)
    registry.alter("pay.ments", {"retention.ms": "2000"})
    changed: list[str] = []
    registry.partitions_changed = changed.append
    registry.replace(stored)
    assert sorted(changed) == ["orders", "refused"]
