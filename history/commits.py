"""Offset commits around group records. Without notes, a commit is the only sign that a member is alive: the owner of the committed partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

NEVER = -1
SILENT_SHARE = 0.8  # of the session timeout; below 1, because silence is measured up to the others' last commit, which may precede the expiry


class NearbyCommits(NamedTuple):
    """By `topic-partition`: the last commit before a group record, the first one after it, and the usual time between commits. Missing or -1: none."""

    last_before: Mapping[str, int]
    first_after: Mapping[str, int]
    usual_gap: Mapping[str, int]


NO_COMMITS = NearbyCommits({}, {}, {})
Commits = Mapping[int, NearbyCommits]  # by the offset of the record


def last_commit(nearby: NearbyCommits, partitions: Iterable[str], since_ms: int) -> int | None:
    """The newest commit of these partitions before the record and after `since_ms`, the time of their assignment."""
    newest = max((nearby.last_before.get(partition, NEVER) for partition in partitions), default=NEVER)
    return newest if newest > since_ms else None


def session_expired(
    nearby: NearbyCommits, partitions: Iterable[str], since_ms: int, until_ms: int, latest_end_ms: int, session_ms: int
) -> bool | None:
    """Whether the owner of these partitions committed nothing for about a session timeout up to `until_ms`.

    `latest_end_ms`: the latest time at which the coordinator can have removed the owner. Returns None if the commits do not tell.
    """
    owned = list(partitions)
    last = last_commit(nearby, owned, since_ms)
    if last is not None and latest_end_ms - last < session_ms * SILENT_SHARE:
        return False
    gaps = [gap for gap in (nearby.usual_gap.get(partition, NEVER) for partition in owned) if gap >= 0]
    if not gaps or min(gaps) >= session_ms * SILENT_SHARE:
        return None
    silent = until_ms - (last if last is not None else since_ms) >= session_ms * SILENT_SHARE
    return True if silent else None


def polled_too_late(
    nearby: NearbyCommits, partitions: Iterable[str], since_ms: int, until_ms: int, latest_end_ms: int, session_ms: int, poll_ms: int
) -> bool:
    """Whether the owner of these partitions left after about `poll_ms` without a commit, which is clearly longer than its session.

    `poll_ms`: its max.poll.interval.ms, which a client sends as its rebalance timeout. Had its session expired after its last commit, the coordinator
    would have removed it long before. `until_ms`, `latest_end_ms`: when it was removed, at the earliest and the latest.
    """
    owned = list(partitions)
    last = last_commit(nearby, owned, since_ms)
    gaps = [gap for gap in (nearby.usual_gap.get(partition, NEVER) for partition in owned) if gap >= 0]
    if last is None or not gaps:
        return False
    late_ms = min(gaps) + session_ms // 3  # from the commit to the next poll, and to the heartbeat at which the others learn of the rebalance
    return until_ms - last > session_ms + late_ms and until_ms - last <= poll_ms + late_ms and latest_end_ms - last >= poll_ms
