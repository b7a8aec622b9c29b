"""Scripted histories with their truth: the fold finds it, exactly with notes, within what it states without."""

from __future__ import annotations

from collections import Counter

import pytest

from pipeline.rows import Episode, GroupTables
from pipeline.virtual import TrueEpisode
from tests.pipeline.playing import fold
from tests.pipeline.scenarios import SCENARIOS, Played, play

KEPT = [name for name in SCENARIOS if "notes are lost" not in name]


def key_of(played: Played, client: str) -> set[str]:
    """Member keys that a client had."""
    changes = played.world.partition("g").watched("g").changes
    return {change.instance_id or change.member_id for change in changes if change.client == client}


def told(played: Played) -> GroupTables:
    return fold(played.told, played.images)


@pytest.mark.parametrize("name", KEPT)
def test_with_notes_every_rebalance_is_told_exactly(name: str) -> None:
    played = play(name)
    truth = played.world.episodes("g")
    rows = told(played).episodes
    assert [exactly(row) for row in rows] == [truly(one) for one in truth]
    for row, one in zip(rows, truth, strict=True):
        assert row.confidence == "exact"
        assert who(row.joined) == who_of(one, "joined")
        assert who(row.left) == who_of(one, "left", "evicted", "removed")
        assert who(row.expired) == who_of(one, "expired")
        assert who_of(one, "replaced") <= who(row.rejoined)
        if one.trigger is not None and row.trigger_member is not None:
            assert row.trigger_member in key_of(played, one.trigger)


def exactly(row: Episode) -> tuple[object, ...]:
    ended = row.end_ms if row.end != "interrupted" else None
    cause = "new_member" if row.cause == "formation" else row.cause
    return row.start_lo_ms, row.start_hi_ms, ended, row.end, cause, row.cause == "formation", row.contributing, row.rounds, row.members_before


def truly(one: TrueEpisode) -> tuple[object, ...]:
    ended = one.end_ms if one.end != "interrupted" else None
    return one.start_ms, one.start_ms, ended, one.end, one.cause, not one.from_generation, one.also, one.rounds, one.members_before


def who(keys: list[str]) -> Counter[str]:
    return Counter(keys)


def who_of(one: TrueEpisode, *what: str) -> Counter[str]:
    return Counter(change.instance_id or change.member_id for change in one.changes if change.what in what)


@pytest.mark.parametrize("name", KEPT)
def test_kept_seats_are_counted(name: str) -> None:
    played = play(name)
    assert sum(row.verdict == "saved" for row in told(played).replacements) == played.scenario.saved
    assert sum(row.verdict == "saved" for row in fold([], played.images).replacements) == played.scenario.saved
