"""Absences of members: the samples from which a session timeout is chosen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from history.pairs import AWAY_MAX_MS
from pipeline.restarts import Restarts, Return
from pipeline.rows import Gap, NoteRow

# A member that restarts more often than this in so long a time is in a crash loop: it counts once, with its longest absence, so
# that one bad process does not set the policy.
LOOP_RESTARTS: Final = 5
LOOP_WITHIN_MS: Final = 600_000

HEARTBEAT_GAP, DEATH = "heartbeat_gap", "death"


def gaps_of(cluster: str, group: str, restarts: Restarts, notes: Sequence[NoteRow]) -> list[Gap]:
    found = [
        Gap(cluster, group, code.member_key, code.went_ms, *code.away, code.source, True, code.partitions, code.episodes, code.confidence)
        for code in without_loops(restarts.returns)
    ]
    found += [
        Gap(cluster, group, key, at_ms, gap_ms, gap_ms, HEARTBEAT_GAP, True, None, [], "exact") for key, at_ms, gap_ms in late_heartbeats(notes)
    ]
    for spell, silent, episode in restarts.lost():
        made = [] if episode is None else [episode]
        found.append(
            Gap(cluster, group, spell.member_key, silent[0], AWAY_MAX_MS, None, DEATH, False, spell.partitions, made, spell.confidence)
        )
    return sorted(found, key=lambda gap: (gap.at_ms, gap.member_key, gap.source))


def without_loops(returns: Iterable[Return]) -> Iterable[Return]:
    by_process: dict[str, list[Return]] = {}
    for one in returns:
        by_process.setdefault(one.process, []).append(one)
    for some in by_process.values():
        looping = [False] * len(some)
        for first in range(len(some) - LOOP_RESTARTS):
            if some[first + LOOP_RESTARTS].back_ms - some[first].back_ms <= LOOP_WITHIN_MS:
                looping[first : first + LOOP_RESTARTS + 1] = [True] * (LOOP_RESTARTS + 1)
        loop: list[Return] = []
        for one, loops in zip(some, looping, strict=True):
            if loop and (not loops or one.back_ms - loop[-1].back_ms > LOOP_WITHIN_MS):
                yield _longest(loop)
                loop = []
            if loops:
                loop.append(one)
            else:
                yield one
        if loop:
            yield _longest(loop)


def _longest(loop: list[Return]) -> Return:
    longest = max(loop, key=lambda one: (one.away[1], -one.back_ms))
    return longest._replace(episodes=sorted({episode for one in loop for episode in one.episodes}))


def late_heartbeats(notes: Sequence[NoteRow]) -> Iterable[tuple[str, int, int]]:
    """Late heartbeats within the session timeout: member, time, gap."""
    for note in notes:
        if note.name == "heartbeats":
            for late in json.loads(note.body)["members"]:
                yield late["member_key"], note.at_ms - late["max_gap_ms"], late["max_gap_ms"]
