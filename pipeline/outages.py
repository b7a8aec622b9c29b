"""Rebalances that an outage of the coordinator may explain: none of the group's members was heard of after it, under its old id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator.notes import Cause
from history.causes import name_of
from history.confidence import EXACT, WEAK
from history.pairs import AWAY_MAX_MS
from history.spells import COORDINATOR_AWAY, MemberSpell
from pipeline.rows import Episode

TEXT: Final = "the coordinator had been away, and heard of no member under its old id afterwards: perhaps no process was restarted"


def with_outages(rows: Sequence[Episode], spells: Sequence[MemberSpell]) -> list[Episode]:
    """Explain the rebalances that dropped such members, and those in which only such members returned. A noted cause stays: it is a fact."""
    lost = [spell for spell in spells if spell.end == COORDINATOR_AWAY]
    returned = {spell.member_id for old in lost if (spell := _first_return(old, spells)) is not None}
    return [_explained(row) if _is_explained(row, spells, lost, returned) else row for row in rows]


def _is_explained(row: Episode, spells: Sequence[MemberSpell], lost: Sequence[MemberSpell], returned: set[str]) -> bool:
    if row.from_generation is None or row.to_generation is None:
        return False
    if any(row.from_generation <= spell.ended_generation < row.to_generation for spell in lost):
        return True
    joined = [spell for spell in spells if spell.from_generation == row.to_generation and spell.key in row.joined]
    return bool(joined) and not (row.left or row.expired) and all(spell.member_id in returned for spell in joined)


def _explained(row: Episode) -> Episode:
    row = row._replace(evidence=f"{row.evidence}; {TEXT}")
    return row if row.confidence == EXACT else row._replace(cause=name_of(Cause.COORDINATOR_MOVED), trigger_member=None, trigger_client=None, confidence=WEAK)


def _first_return(old: MemberSpell, spells: Sequence[MemberSpell]) -> MemberSpell | None:
    """The first spell of the same process after `old`, if it began soon. `spells` are in the order of their begin."""
    later = spells[next(at for at, spell in enumerate(spells) if spell is old) + 1 :]
    new = next((spell for spell in later if spell.identity.process_key == old.identity.process_key), None)
    return new if new is not None and new.joined_hi_ms - old.ended_hi_ms <= AWAY_MAX_MS else None
