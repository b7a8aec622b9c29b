"""The fields of a rebalance row and the true values of the virtual world, in the same form."""

from __future__ import annotations

from collections import Counter

from pipeline.rows import Episode
from pipeline.virtual import TrueRebalance


def stated(row: Episode) -> tuple[object, ...]:
    ended = row.end_ms if row.end != "interrupted" else None
    cause = "new_member" if row.cause == "formation" else row.cause
    return row.start_lo_ms, row.start_hi_ms, ended, row.end, cause, row.cause == "formation", row.contributing, row.rounds, row.members_before


def actual(episode: TrueRebalance) -> tuple[object, ...]:
    ended = episode.end_ms if episode.end != "interrupted" else None
    return episode.start_ms, episode.start_ms, ended, episode.end, episode.cause, not episode.from_generation, episode.also, episode.rounds, episode.members_before


def counted(keys: list[str]) -> Counter[str]:
    return Counter(keys)


def actual_members(episode: TrueRebalance, *kinds: str) -> Counter[str]:
    return Counter(change.instance_id or change.member_id for change in episode.changes if change.what in kinds)
