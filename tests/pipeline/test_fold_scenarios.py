"""Scripted histories: the fold finds their events exactly with notes, and within true bounds without."""

from __future__ import annotations

import pytest

from pipeline.rows import GroupTables
from tests.pipeline.playing import fold
from tests.pipeline.scenarios import SCENARIOS, Played, play
from tests.pipeline.truths import actual, actual_members, counted, stated

pytestmark = pytest.mark.once  # no dependence on the Python version

WITH_ALL_NOTES = [name for name in SCENARIOS if "notes are lost" not in name]


def key_of(played: Played, client: str) -> set[str]:
    """The keys (instance id or member ids) under which a client was a member."""
    changes = played.world.coordinator_of("g").history("g").changes
    return {change.instance_id or change.member_id for change in changes if change.client == client}


def folded(played: Played) -> GroupTables:
    return fold(played.note_records, played.group_records)


@pytest.mark.parametrize("name", WITH_ALL_NOTES)
def test_with_notes_every_rebalance_is_exact(name: str) -> None:
    played = play(name)
    truth = played.world.episodes("g")
    rows = folded(played).episodes
    assert [stated(row) for row in rows] == [actual(episode) for episode in truth]
    for row, episode in zip(rows, truth, strict=True):
        assert row.confidence == "exact"
        assert counted(row.joined) == actual_members(episode, "joined")
        assert counted(row.left) == actual_members(episode, "left", "evicted", "removed")
        assert counted(row.expired) == actual_members(episode, "expired")
        assert actual_members(episode, "replaced") <= counted(row.rejoined)
        if episode.trigger is not None and row.trigger_member is not None:
            assert row.trigger_member in key_of(played, episode.trigger)
