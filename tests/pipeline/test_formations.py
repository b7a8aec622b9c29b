"""The begin of a rebalance of an empty group without notes: its record does not limit it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator import GroupConfig
from history import GroupRecord
from pipeline.avoidable import NO, UNKNOWN
from pipeline.gaps import DEATH, HEARTBEAT_GAP
from pipeline.virtual import MemoryRecorder, World
from tests.pipeline.advising import MINUTE_MS, advised, folded
from tests.pipeline.playing import GROUP, fold
from tests.pipeline.scenarios import BEGIN_MS, HOUR_MS, pod

pytestmark = pytest.mark.once  # no dependence on the Python version

SHORT = {"rebalance_ms": 10_000, "session_ms": 6_000}


def three_at_once(world: World, first: int = 0) -> None:
    for number in range(first, first + 3):
        pod(world, number, **SHORT)  # type: ignore[arg-type]


def with_a_leaver(world: World, first: int = 0) -> None:
    """The first member has a longer rebalance timeout, to which others that join one after another extend the join phase; then it leaves."""
    leaver = pod(world, first, rebalance_ms=2 * MINUTE_MS, session_ms=45_000)
    for number in range(first + 1, first + 31):
        world.run(2_500)
        pod(world, number, **SHORT)  # type: ignore[arg-type]
    leaver.stop()


def again(form: Callable[[World, int], None]) -> Callable[[World], None]:
    """The group forms, all members leave, and it forms again later."""

    def script(world: World) -> None:
        form(world, 0)
        world.run(10 * MINUTE_MS)
        for client in world.clients[GROUP]:
            if client.alive:
                client.stop()
                world.run(1_000)
        world.run(10 * MINUTE_MS)
        form(world, 100)

    return script


@pytest.mark.parametrize("delay_ms", [0, 3_000, 30_000, 2 * MINUTE_MS, 10 * MINUTE_MS])
@pytest.mark.parametrize("script", [three_at_once, with_a_leaver, again(three_at_once), again(with_a_leaver)])
def test_no_rebalance_began_before_its_earliest_begin(script: Callable[[World], None], delay_ms: int) -> None:
    world = World(BEGIN_MS, config=GroupConfig(group_initial_rebalance_delay_ms=delay_ms))
    script(world)
    world.run(HOUR_MS)
    rows = folded(world, notes=False)
    truth = [episode for episode in world.episodes(GROUP) if episode.end in ("stable", "empty")]
    assert len(rows.episodes) == len(truth)
    for row, true_rebalance in zip(rows.episodes, truth, strict=True):
        assert row.start_lo_ms is not None
        assert row.start_hi_ms is not None
        assert row.start_lo_ms <= true_rebalance.start_ms <= row.start_hi_ms
    joined = {spell.member_id: spell.joined_hi_ms for spell in folded(world).spells}
    for spell in rows.spells:
        assert spell.joined_lo_ms is not None
        assert spell.joined_lo_ms <= (joined[spell.member_id] or 0)


def test_a_record_of_an_empty_group_that_is_appended_late_does_not_move_the_begin() -> None:
    world = World(BEGIN_MS)
    again(three_at_once)(world)
    world.run(HOUR_MS)
    assert isinstance(world.recorder, MemoryRecorder)

    def late(record: GroupRecord) -> GroupRecord:
        return record._replace(at_ms=record.at_ms + 2_000) if record.stored is not None and not record.stored.members else record

    rows = fold([], [late(record) for record in world.recorder.group_records(GROUP)], now_ms=world.now).episodes
    truth = world.episodes(GROUP)
    assert [row.cause for row in rows if row.members_before == 0] == ["formation", "new_member"]
    for row, true_rebalance in zip(rows, truth, strict=True):
        assert row.start_lo_ms is not None
        assert row.start_lo_ms <= true_rebalance.start_ms


def test_the_begin_of_a_new_group_without_an_earlier_record_is_unknown() -> None:
    """Older versions of Kafka store no record of a group before its first generation."""
    world = World(BEGIN_MS)
    three_at_once(world)
    world.run(HOUR_MS)
    assert isinstance(world.recorder, MemoryRecorder)
    (row,) = fold([], [record for record in world.recorder.group_records(GROUP) if record.generation], now_ms=world.now).episodes
    assert (row.cause, row.start_lo_ms) == ("formation", None)
    assert row.start_hi_ms is not None


@pytest.mark.parametrize("notes", [True, False])
def test_members_of_a_group_that_was_empty_for_hours_were_not_restarted(notes: bool) -> None:
    def script(world: World) -> None:
        three_at_once(world)
        world.run(10 * MINUTE_MS)
        for client in world.clients[GROUP]:
            client.stop()
        world.run(2 * HOUR_MS)
        for client in world.clients[GROUP]:
            client.start()

    world = World(BEGIN_MS)
    script(world)
    world.run(2 * HOUR_MS)
    tables = advised(world, notes=notes)
    assert {episode.avoidable for episode in tables.episodes} <= {NO, UNKNOWN}
    assert tables.episodes[0].avoidable == NO
    assert (tables.deploys, [gap for gap in tables.gaps if gap.source not in (DEATH, HEARTBEAT_GAP)]) == ([], [])
