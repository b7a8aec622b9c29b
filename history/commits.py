"""Offset commits around group records. Without notes, a commit is the only sign that a member is alive: the owner of the committed partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
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


class Silence(Enum):
    """What the commits of a removed member tell about its removal."""

    NONE = "none"  # it was alive until less than a session before
    SESSION = "session"  # it had committed regularly, and then nothing for a session
    POLL = "poll"  # ... for max.poll.interval.ms, after which a client that does not poll leaves
    UNKNOWN = "unknown"


def silence(
    nearby: NearbyCommits, partitions: Iterable[str], since_ms: int, until_ms: int, latest_end_ms: int, session_ms: int, poll_ms: int | None
) -> Silence:
    """How the owner of these partitions, assigned at `since_ms`, fell silent before the coordinator removed it.

    `until_ms`, `latest_end_ms`: when it was removed, at the earliest and the latest. `poll_ms`: its max.poll.interval.ms, which a client sends as its rebalance
    timeout; None: it does not leave then. A silence that is clearly longer than a session tells nothing: the member had nothing to commit before it left
    or failed.
    """
    owned = list(partitions)
    last = last_commit(nearby, owned, since_ms)
    session_min_ms = session_ms * SILENT_SHARE
    if last is not None and latest_end_ms - last < session_min_ms:
        return Silence.NONE
    usual_ms = _usual_gap(nearby, owned)
    if usual_ms is None or usual_ms >= session_min_ms:
        return Silence.UNKNOWN
    late_ms = usual_ms + session_ms // 3  # from the commit to the next poll, and to the heartbeat at which the others learn of the rebalance
    newest = max(nearby.last_before.get(partition, NEVER) for partition in owned)
    if last is None and since_ms - newest > late_ms:  # the previous owner had stopped to commit before
        return Silence.UNKNOWN
    from_ms = last if last is not None else since_ms
    least_ms, most_ms = until_ms - from_ms, latest_end_ms - from_ms
    of_session = session_min_ms <= least_ms <= session_ms + late_ms and most_ms <= session_ms + 2 * late_ms
    of_poll = poll_ms is not None and last is not None and least_ms <= poll_ms + late_ms and poll_ms <= most_ms <= poll_ms + 2 * late_ms
    if of_session:
        return Silence.UNKNOWN if of_poll else Silence.SESSION
    return Silence.POLL if of_poll and least_ms > session_ms + late_ms else Silence.UNKNOWN


def _usual_gap(nearby: NearbyCommits, owned: Iterable[str]) -> int | None:
    """The shortest usual time between commits, of the partitions whose commits were regular until the newest one of all."""
    commits = [(nearby.last_before.get(partition, NEVER), nearby.usual_gap.get(partition, NEVER)) for partition in owned]
    newest = max((at_ms for at_ms, _ in commits), default=NEVER)
    return min((gap for at_ms, gap in commits if gap >= 0 and newest - at_ms <= 2 * gap), default=None)
