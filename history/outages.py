"""Rebalances that an outage of the coordinator may explain: none of the group's members was heard of after it, under its old id."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from coordinator.notes import Cause
from history.causes import name_of
from history.conclusion import Inferred
from history.pairs import AWAY_MAX_MS
from history.spells import COORDINATOR_AWAY, MemberSpell

OUTAGE: Final = name_of(Cause.COORDINATOR_MOVED)
TEXT: Final = "the coordinator had been away, and heard of no member under its old id afterwards: perhaps no process was restarted"


class Outages:
    """`spells`: all of the group, in the order of their begin."""

    def __init__(self, spells: Sequence[MemberSpell]) -> None:
        self._spells = spells
        self._lost = [spell for spell in spells if spell.end == COORDINATOR_AWAY]
        self._returned = {spell.member_id for old in self._lost if (spell := _first_return(old, spells)) is not None}

    def explain(self, from_generation: int, to_generation: int, joined: Collection[str], left: Collection[str]) -> bool:
        """Whether one explains a rebalance: it dropped such members, or only such members returned. `joined`, `left`: keys of members."""
        if any(from_generation <= spell.ended_generation < to_generation for spell in self._lost):
            return True
        new = [spell for spell in self._spells if spell.from_generation == to_generation and spell.key in joined]
        return bool(new) and not left and all(spell.member_id in self._returned for spell in new)


def as_outage(inferred: Inferred) -> Inferred:
    """The inferred rebalance, explained by an outage."""
    return inferred._replace(cause=OUTAGE, strong=False, trigger_member=None, evidence=f"{inferred.evidence}; {TEXT}")


def _first_return(old: MemberSpell, spells: Sequence[MemberSpell]) -> MemberSpell | None:
    """The first spell of the same process after `old`, if it began soon."""
    later = spells[next(at for at, spell in enumerate(spells) if spell is old) + 1 :]
    new = next((spell for spell in later if spell.identity.process_key == old.identity.process_key), None)
    return new if new is not None and new.joined_hi_ms - old.ended_hi_ms <= AWAY_MAX_MS else None
