"""Spells of members as rows, and the effect of static members that came back under another member id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator.notes import Replacement
from history.pairs import AWAY_MAX_MS
from history.spells import EXPIRED, LEFT, OPEN, REPLACED, UNKNOWN, Spell
from pipeline import rows
from pipeline.confidence import EXACT, STRONG, WEAK

SAVED: Final = "saved"
NOT_SAVED_EXPIRED: Final = "not_saved_expired"
NOT_SAVED_PROTOCOL: Final = "not_saved_protocol"
NOT_SAVED_DURING_REBALANCE: Final = "not_saved_during_rebalance"
VERDICTS: Final = {
    Replacement.NO_REBALANCE: SAVED,
    Replacement.PROTOCOL_CHANGED: NOT_SAVED_PROTOCOL,
    Replacement.COMPLETING: NOT_SAVED_DURING_REBALANCE,
    Replacement.PREPARING: NOT_SAVED_DURING_REBALANCE,
}
# A dynamic member causes a rebalance when it leaves and one when it returns, or one for both. A replay decides which (`whatif.py`).
SAVED_BY_ONE: Final = 2
SAVED_AT_LEAST: Final = 1


def known(number: int) -> int | None:
    return number if number >= 0 else None


def spell_rows(cluster: str, group: str, spells: Sequence[Spell], final_ms: int) -> list[rows.Spell]:
    return [_spell(cluster, group, spell, final_ms) for spell in spells]


def _spell(cluster: str, group: str, one: Spell, final_ms: int) -> rows.Spell:
    return rows.Spell(
        cluster,
        group,
        one.key,
        one.instance_id,
        one.member_id,
        one.client_id,
        one.host,
        known(one.session_ms),
        known(one.joined_lo_ms),
        known(one.joined_hi_ms),
        known(one.ended_lo_ms),
        known(one.ended_hi_ms),
        one.end,
        known(one.from_generation),
        known(one.to_generation),
        len(one.partitions) if one.partitions is not None else None,
        known(one.last_commit_ms),
        known(one.last_heartbeat_ms),
        one.replaced_by,
        known(one.max_gap_ms),
        WEAK if one.guessed else EXACT if one.noted and one.joined_lo_ms == one.joined_hi_ms and not one.unheard else STRONG,
        one.end != OPEN and one.ended_hi_ms <= final_ms,
    )


def replacement_rows(cluster: str, group: str, spells: Sequence[Spell]) -> list[rows.Replaced]:
    """Seats: of each instance the spells in the order in which they began; in between may be some that a coordinator has forgotten."""
    last: dict[str, Spell] = {}
    replaced = {spell.replaced_by: spell for spell in spells if spell.replaced_by is not None}
    found = []
    for new in spells:
        if new.instance_id is None:
            continue
        old = replaced.get(new.member_id, last.get(new.instance_id))
        last[new.instance_id] = new
        verdict = _verdict(old, new) if old is not None else None
        if old is None or verdict is None:
            continue
        exact = not (old.guessed or old.unheard) and new.noted and new.joined_lo_ms == new.joined_hi_ms
        lo, hi = _away(old, new, exact)
        found.append(
            rows.Replaced(
                cluster,
                group,
                new.instance_id,
                old.member_id,
                new.member_id,
                new.joined_hi_ms,
                max(new.joined_in, 0),
                verdict != SAVED,
                lo,
                hi,
                known(old.session_ms),
                len(old.partitions) if old.partitions is not None else None,
                verdict,
                SAVED_BY_ONE if verdict == SAVED else 0,
                SAVED_AT_LEAST if verdict == SAVED else 0,
                EXACT if exact else STRONG if verdict == SAVED else WEAK,
            )
        )
    return found


def _verdict(old: Spell, new: Spell) -> str | None:
    """None: it did not take the seat of the previous process, but came after that had left, or much later."""
    if old.end == REPLACED:
        if old.replaced_by != new.member_id:
            return None
        return VERDICTS.get(old.outcome) if old.outcome is not None else None
    if new.joined_lo_ms - max(old.ended_hi_ms, 0) > AWAY_MAX_MS or old.end in (OPEN, UNKNOWN, "removed"):
        return None
    if old.end == LEFT:
        return None
    return NOT_SAVED_EXPIRED if old.end == EXPIRED else NOT_SAVED_DURING_REBALANCE


def _away(old: Spell, new: Spell, exact: bool) -> tuple[int | None, int | None]:
    if exact and old.last_heartbeat_ms >= 0:
        away = max(new.joined_hi_ms - old.last_heartbeat_ms, 0)
        return away, away
    least = max(new.joined_lo_ms - old.ended_hi_ms, 0) if old.end != REPLACED else 0
    alive = old.life_ms
    return least, max(new.joined_hi_ms - alive, 0) if alive >= 0 else None
