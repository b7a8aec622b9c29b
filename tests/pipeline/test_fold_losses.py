"""Notes lost and records compacted at random: all rows are true, and only exact values are marked as exact."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from history import End, GroupRecord, Rebalance, story_of
from history.causes import cause_row, name_of
from pipeline.rows import Coverage, Episode
from tests.history.conftest import NotedPlay
from tests.history.random_histories import RandomHistory, damaged_histories
from tests.pipeline.playing import CLUSTER, fold

pytestmark = pytest.mark.once  # no dependence on the Python version

STEP = 7  # only each seventh loss is tested; not a multiple of three, so that all three kinds of loss are tested
END = 1_000_000


def left_by_compaction(records: Sequence[GroupRecord]) -> list[Coverage]:
    first = records[0].offset
    return [Coverage(CLUSTER, "offsets", 0, 0, first, None, None, False, "compacted"), Coverage(CLUSTER, "offsets", 0, first + 1, END, None, None, True, "")]


@pytest.mark.parametrize("seed", range(200, 208))
def test_rows_are_true_when_records_are_lost(play: NotedPlay, seed: int) -> None:
    history = RandomHistory(play, seed)
    history.play_steps(40)
    truth = [entry for entry in story_of("g", play.note_records, play.group_records, from_start=True, records_complete=True) if isinstance(entry, Rebalance)]
    strong: list[bool] = []
    for number, lost in enumerate(damaged_histories(history, seed)):
        if number % STEP or not lost.records:
            continue
        coverage = left_by_compaction(lost.records) if len(lost.records) < len(play.group_records) else []
        for row in fold(lost.notes, lost.records, coverage=coverage).episodes:
            if row.missing or row.end not in ("stable", "empty") or row.end_ms is None:
                continue
            strong += [right for right in [check_against_truth(row, truth)] if right is not None]
    assert not strong or sum(strong) / len(strong) > 0.97


def check_against_truth(row: Episode, truth: Sequence[Rebalance]) -> bool | None:
    """Compare the row with the truth; returns whether a cause marked as "strong" is right, None for other causes."""
    completed = [rebalance for rebalance in truth if rebalance.end in (End.STABLE, End.EMPTY)]
    same = [rebalance for rebalance in completed if (rebalance.ended_ms, rebalance.to_generation) == (row.end_ms, row.to_generation)]
    assert same, row
    assert row.start_hi_ms is not None
    within = [rebalance for rebalance in same if (row.start_lo_ms or 0) <= rebalance.began_ms <= row.start_hi_ms]
    assert within, (row, same)
    names = {name_of(cause) for cause in cause_row(row.cause).may_be} or {row.cause}
    right = any(rebalance.cause is not None and name_of(rebalance.cause) in names for rebalance in within)
    assert right or row.confidence != "exact", row
    return right if row.confidence == "strong" else None
