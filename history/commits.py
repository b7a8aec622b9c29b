"""Commits around a group's records: in a log without notes, the only sign that members live. The assignment tells whose a commit is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

NEVER = -1


class NearbyCommits(NamedTuple):
    """Commit times before and after one group record, by `topic-partition`; missing or -1: none."""

    last_before: Mapping[str, int]
    first_after: Mapping[str, int]
    usual_gap: Mapping[str, int]


NOTHING = NearbyCommits({}, {}, {})
Commits = Mapping[int, NearbyCommits]  # by the offset of the record


def last_commit(around: NearbyCommits, partitions: Iterable[str], since_ms: int) -> int | None:
    """The newest commit of these partitions before the record and after their assignment."""
    newest = max((around.last_before.get(one, NEVER) for one in partitions), default=NEVER)
    return newest if newest > since_ms else None


def is_silent_long(around: NearbyCommits, partitions: Iterable[str], since_ms: int, until_ms: int, over_ms: int, session_ms: int) -> bool | None:
    """Whether these were silent for about a session, up to a moment; what ended the silence may have come as late as `over_ms`.
    None: commits are too rare to tell."""
    some = list(partitions)
    last = last_commit(around, some, since_ms)
    if last is not None and over_ms - last < session_ms * SILENT:
        return False
    gaps = [gap for gap in (around.usual_gap.get(one, NEVER) for one in some) if gap >= 0]
    if not gaps or min(gaps) >= session_ms * SILENT:
        return None
    silent = until_ms - (last if last is not None else since_ms) >= session_ms * SILENT
    return True if silent else None


SILENT = 0.8  # share of the session timeout: the last heartbeat came after the last commit
