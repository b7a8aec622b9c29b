"""Partitions of groups, and unique ids."""

from __future__ import annotations

import re
import uuid

import pytest

from broker.groups.shards import GROUP_ID_CACHED_MAX, GROUPS_CACHED_MAX, IDS_PER_CALL, FreshIds, Shards
from broker.settings.load import load_config
from broker.wiring import group_config
from coordinator import GroupConfig, partition_of
from tests.support.group_logs import CONFIG, GroupWorld
from tests.support.journals import LATE_MS


def test_a_group_is_stored_in_kafkas_partition_for_it() -> None:
    shards = GroupWorld(50).shards
    for group in ("orders", "", "groups of grün", "x" * 1000, "\U0001f600"):
        assert shards.journal_of(group).partition == partition_of(group, 50)
        assert shards.journal_of(group) is shards.journal_of(group)


@pytest.mark.plain  # calls of compiled code cannot be counted
def test_the_partition_of_a_group_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients choose group names, so the cache limits their number and length."""
    computed: list[str] = []

    def counted(name: str, count: int) -> int:
        computed.append(name)
        return partition_of(name, count)

    monkeypatch.setattr("broker.groups.shards.partition_of", counted)
    monkeypatch.setattr("broker.groups.shards.GROUPS_CACHED_MAX", 3)
    shards = GroupWorld(3).shards

    def hashed_names(*names: str) -> list[str]:
        computed.clear()
        assert [shards.journal_of(name).partition for name in names] == [partition_of(name, 3) for name in names]
        return list(computed)

    longest, longer = "n" * GROUP_ID_CACHED_MAX, "n" * (GROUP_ID_CACHED_MAX + 1)
    assert hashed_names("a", "b", longest) == ["a", "b", longest]
    assert hashed_names("a", "b", longest, longer, longer) == [longer, longer]
    assert hashed_names("c") == ["c"]  # above the limit the cache starts over
    assert hashed_names("c", "a", "b", "c", "a", "b") == ["a", "b"]


def test_the_partition_cache_is_limited() -> None:
    shards = GroupWorld(3).shards
    for number in range(GROUPS_CACHED_MAX + 1):
        shards.journal_of(f"{number}")
        assert len(shards._journal_of_group) <= GROUPS_CACHED_MAX


def test_fresh_ids_are_random_uuids() -> None:
    fresh = FreshIds()
    ids = [fresh() for _ in range(3 * IDS_PER_CALL)]
    assert len(set(ids)) == len(ids)
    for id in ids:
        parsed = uuid.UUID(id)
        assert (parsed.version, parsed.variant, str(parsed)) == (4, uuid.RFC_4122, id)
    assert {id[19] for id in ids} == set("89ab")


def test_fresh_ids_use_every_random_byte_once() -> None:
    sizes: list[int] = []

    def random(size: int) -> bytes:
        sizes.append(size)
        return bytes(number % 256 for number in range(size))

    fresh = FreshIds(random)
    first = [fresh() for _ in range(IDS_PER_CALL)]
    assert sizes == [16 * IDS_PER_CALL]
    assert first[0] == "00010203-0405-4607-8809-0a0b0c0d0e0f"
    assert first[1] == "10111213-1415-4617-9819-1a1b1c1d1e1f"
    assert fresh() == first[0]
    assert len(sizes) == 2
    assert all(re.fullmatch(r"[0-9a-f-]{36}", id) for id in first)


def test_members_get_fresh_ids_by_default() -> None:
    world = GroupWorld()
    shards = Shards(1, CONFIG, world.store, world.turn, world.loop, LATE_MS, world.recorded_notes, lambda: None)  # type: ignore[arg-type]
    shards.load_all()
    world.shards = shards
    waiter = world.join(instance=None)
    assert re.fullmatch(r"client-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", waiter.member_id)


def test_the_coordinator_gets_the_group_settings() -> None:
    settings = {
        "group.min.session.timeout.ms": "101",
        "group.max.session.timeout.ms": "202",
        "group.initial.rebalance.delay.ms": "303",
        "group.max.size": "404",
        "offset.metadata.max.bytes": "505",
        "offsets.retention.minutes": "6",
        "offsets.retention.check.interval.ms": "707",
        "message.max.bytes": "808",
    }
    config = load_config(data=["/data"], settings=[f"{name}={value}" for name, value in settings.items()], environ={})
    assert group_config(config) == GroupConfig(101, 202, 303, 404, 505, 6 * 60_000, 707, 808)
    assert group_config(load_config(data=["/data"], environ={})) == GroupConfig()  # the defaults of the settings
