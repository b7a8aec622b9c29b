"""Absences of members: the samples for the choice of a session timeout."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from history.pairs import AWAY_MAX_MS
from pipeline.restarts import Restarts, Return
from pipeline.rows import Gap, NoteRow

# A process with more than LOOP_RESTARTS restarts within LOOP_WITHIN_MS is in a crash loop. It counts once, with its longest absence, so that
# one failing process does not determine the session timeout.
LOOP_RESTARTS: Final = 5
LOOP_WITHIN_MS: Final = 600_000

HEARTBEAT_GAP, DEATH = "heartbeat_gap", "death"


def gaps_of(cluster: str, group: str, restarts: Restarts, notes: Sequence[NoteRow]) -> list[Gap]:
    gaps = [
        Gap(cluster, group, returned.member_key, returned.went_ms, *returned.away, returned.source, True, returned.partitions, returned.episodes, returned.confidence)
        for returned in without_loops(restarts.returns)
    ]
    gaps += [
        Gap(cluster, group, key, at_ms, gap_ms, gap_ms, HEARTBEAT_GAP, True, None, [], "exact") for key, at_ms, gap_ms in late_heartbeats(notes)
    ]
    for spell, silent, episode in restarts.lost():
        episodes = [] if episode is None else [episode]
        gaps.append(
            Gap(cluster, group, spell.member_key, silent[0], AWAY_MAX_MS, None, DEATH, False, spell.partitions, episodes, spell.confidence)
        )
    return sorted(gaps, key=lambda gap: (gap.at_ms, gap.member_key, gap.source))


def without_loops(returns: Iterable[Return]) -> Iterable[Return]:
    by_process: dict[str, list[Return]] = {}
    for returned in returns:
        by_process.setdefault(returned.process, []).append(returned)
    for process_returns in by_process.values():
        looping = [False] * len(process_returns)
        for first in range(len(process_returns) - LOOP_RESTARTS):
            if process_returns[first + LOOP_RESTARTS].back_ms - process_returns[first].back_ms <= LOOP_WITHIN_MS:
                looping[first : first + LOOP_RESTARTS + 1] = [True] * (LOOP_RESTARTS + 1)
        loop: list[Return] = []
        for returned, in_loop in zip(process_returns, looping, strict=True):
            if loop and (not in_loop or returned.back_ms - loop[-1].back_ms > LOOP_WITHIN_MS):
                yield _longest(loop)
                loop = []
            if in_loop:
                loop.append(returned)
            else:
                yield returned
        if loop:
            yield _longest(loop)


def _longest(loop: list[Return]) -> Return:
    longest = max(loop, key=lambda returned: (returned.away[1], -returned.back_ms))
    return longest._replace(episodes=sorted({episode for returned in loop for episode in returned.episodes}))


def late_heartbeats(notes: Sequence[NoteRow]) -> Iterable[tuple[str, int, int]]:
    """Heartbeats that were late, but within the session timeout: member, time, gap."""
    for note in notes:
        if note.name == "heartbeats":
            for late in json.loads(note.body)["members"]:
                yield late["member_key"], note.at_ms - late["max_gap_ms"], late["max_gap_ms"]
