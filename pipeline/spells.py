"""Spells of members as rows, and the returns of static members under another member id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator.notes import Replacement
from history.confidence import EXACT, STRONG, WEAK
from history.pairs import AWAY_MAX_MS
from history.spells import COORDINATOR_AWAY, EXPIRED, LEFT, OPEN, REPLACED, UNKNOWN, UPGRADED, MemberSpell
from pipeline import rows

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
# A dynamic member causes one rebalance for leaving and one for returning, or one for both; a replay decides (`whatif.py`).
SAVED_MAX: Final = 2
SAVED_MIN: Final = 1


def none_if_unknown(number: int) -> int | None:
    return number if number >= 0 else None


def spell_rows(cluster: str, group: str, spells: Sequence[MemberSpell], final_ms: int) -> list[rows.MemberSpell]:
    return [_spell_row(cluster, group, spell, final_ms) for spell in spells]


def _spell_row(cluster: str, group: str, spell: MemberSpell, final_ms: int) -> rows.MemberSpell:
    return rows.MemberSpell(
        cluster,
        group,
        spell.key,
        spell.instance_id,
        spell.member_id,
        spell.client_id,
        spell.host,
        none_if_unknown(spell.session_ms),
        none_if_unknown(spell.joined_lo_ms),
        none_if_unknown(spell.joined_hi_ms),
        none_if_unknown(spell.ended_lo_ms),
        none_if_unknown(spell.ended_hi_ms),
        spell.end,
        none_if_unknown(spell.from_generation),
        none_if_unknown(spell.to_generation),
        len(spell.partitions) if spell.partitions is not None else None,
        none_if_unknown(spell.last_commit_ms),
        none_if_unknown(spell.last_heartbeat_ms),
        spell.replaced_by,
        none_if_unknown(spell.max_gap_ms),
        WEAK if spell.guessed else EXACT if spell.noted and spell.joined_lo_ms == spell.joined_hi_ms and not spell.unheard else STRONG,
        spell.end != OPEN and spell.ended_hi_ms <= final_ms,
    )


def replacement_rows(cluster: str, group: str, spells: Sequence[MemberSpell]) -> list[rows.Replaced]:
    """The returns of static members: consecutive spells of one instance id."""
    last: dict[str, MemberSpell] = {}
    replaced = {spell.replaced_by: spell for spell in spells if spell.replaced_by is not None}
    replaced_rows = []
    for new in spells:
        if new.instance_id is None:
            continue
        old = replaced.get(new.member_id, last.get(new.instance_id))
        last[new.instance_id] = new
        verdict = _verdict(old, new) if old is not None else None
        if old is None or verdict is None:
            continue
        exact = not (old.guessed or old.unheard) and new.noted and new.joined_lo_ms == new.joined_hi_ms
        gap_lo, gap_hi = _away(old, new, exact)
        replaced_rows.append(
            rows.Replaced(
                cluster,
                group,
                new.instance_id,
                old.member_id,
                new.member_id,
                new.joined_hi_ms,
                max(new.joined_generation, 0),
                verdict != SAVED,
                gap_lo,
                gap_hi,
                none_if_unknown(old.session_ms),
                len(old.partitions) if old.partitions is not None else None,
                verdict,
                SAVED_MAX if verdict == SAVED else 0,
                SAVED_MIN if verdict == SAVED else 0,
                EXACT if exact else STRONG if verdict == SAVED else WEAK,
            )
        )
    return replaced_rows


def _verdict(old: MemberSpell, new: MemberSpell) -> str | None:
    """Whether the return avoided a rebalance; None if it was no return to the seat: the previous process had left, or ended long before."""
    if old.end == REPLACED:
        if old.replaced_by != new.member_id:
            return None
        return VERDICTS.get(old.outcome) if old.outcome is not None else None
    if new.joined_lo_ms - max(old.ended_hi_ms, 0) > AWAY_MAX_MS or old.end in (OPEN, UNKNOWN, UPGRADED, COORDINATOR_AWAY, "removed"):
        return None
    if old.end == LEFT:
        return None
    return NOT_SAVED_EXPIRED if old.end == EXPIRED else NOT_SAVED_DURING_REBALANCE


def _away(old: MemberSpell, new: MemberSpell, exact: bool) -> tuple[int | None, int | None]:
    if exact and old.last_heartbeat_ms >= 0:
        away = max(new.joined_hi_ms - old.last_heartbeat_ms, 0)
        return away, away
    gap_lo = max(new.joined_lo_ms - old.ended_hi_ms, 0) if old.end != REPLACED else 0
    alive_ms = old.last_alive_ms
    return gap_lo, max(new.joined_hi_ms - alive_ms, 0) if alive_ms >= 0 else None
