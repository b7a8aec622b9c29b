"""Notes lost and records compacted, at random: what rows say is so, and exact is only what is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from history import End, Image, Rebalance, story_of
from history.inferred import STANDS_FOR
from pipeline.rows import Coverage, Episode
from tests.history.conftest import NotedPlay
from tests.history.lives import Life, folds
from tests.pipeline.playing import CLUSTER, fold

pytestmark = pytest.mark.once  # pure rules: one Python says it for all

EVERY = 7  # of the losses; a number that three does not divide takes all kinds of them
END = 1_000_000


@pytest.fixture
def play() -> Iterator[NotedPlay]:
    playing = NotedPlay()
    yield playing
    playing.close()


def left_by_compaction(records: Sequence[Image]) -> list[Coverage]:
    first = records[0].offset
    return [Coverage(CLUSTER, "offsets", 0, 0, first, None, None, False, "compacted"), Coverage(CLUSTER, "offsets", 0, first + 1, END, None, None, True, "")]


@pytest.mark.parametrize("seed", range(200, 208))
def test_rows_tell_nothing_that_is_not_so(play: NotedPlay, seed: int) -> None:
    life = Life(play, seed)
    life.lead(40)
    truth = [one for one in story_of("g", play.told, play.images, whole=True, recorded=True) if isinstance(one, Rebalance)]
    strong: list[bool] = []
    for number, lost in enumerate(folds(life, seed)):
        if number % EVERY or not lost.records:
            continue
        coverage = left_by_compaction(lost.records) if len(lost.records) < len(play.images) else []
        for row in fold(lost.notes, lost.records, coverage=coverage).episodes:
            if row.missing or row.end not in ("stable", "empty") or row.end_ms is None:
                continue
            strong += [right for right in [holds(row, truth)] if right is not None]
    assert not strong or sum(strong) / len(strong) > 0.97


def holds(row: Episode, truth: Sequence[Rebalance]) -> bool | None:
    """Whether its cause is right, if that is said to be strong."""
    same = [one for one in truth if (one.ended_ms, one.to_generation) == (row.end_ms, row.to_generation) and one.end in (End.STABLE, End.EMPTY)]
    assert same, row
    assert row.start_hi_ms is not None
    within = [one for one in same if (row.start_lo_ms or 0) <= one.began_ms <= row.start_hi_ms]
    assert within, (row, same)
    names = {cause.name.lower() for cause in STANDS_FOR.get(row.cause, ())}
    right = any(one.cause is not None and one.cause.name.lower() in names for one in within)
    assert right or row.confidence != "exact", row
    return right if row.confidence == "strong" else None
