"""Rows of rebalances that an outage of the coordinator may explain (`history/outages.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from history.confidence import EXACT, WEAK
from history.outages import OUTAGE, TEXT, Outages
from history.spells import MemberSpell
from pipeline.rows import Episode


def with_outages(rows: Sequence[Episode], spells: Sequence[MemberSpell]) -> list[Episode]:
    """Explain these rows. A noted cause stays: it is a fact."""
    outages = Outages(spells)
    return [_explained(row) if _is_explained(row, outages) else row for row in rows]


def _is_explained(row: Episode, outages: Outages) -> bool:
    if row.from_generation is None or row.to_generation is None:
        return False
    return outages.explain(row.from_generation, row.to_generation, row.joined, [*row.left, *row.expired])


def _explained(row: Episode) -> Episode:
    row = row._replace(evidence=f"{row.evidence}; {TEXT}")
    return row if row.confidence == EXACT else row._replace(cause=OUTAGE, trigger_member=None, trigger_client=None, confidence=WEAK)
