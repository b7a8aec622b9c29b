"""The session timeout that a group should have: the restarts that each timeout bridges, its cost, and a recommendation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pipeline.avoidable import YES
from pipeline.gaps import DEATH, HEARTBEAT_GAP
from pipeline.rows import CurvePoint, Episode, Gap, Spell

FINE_MS: Final = 120_000  # below it advice is in steps of 5 s, above in steps of 30 s
SANE_MS: Final = 600_000  # longer waits for a crashed member are not advised
SAMPLES_FOR_A_QUANTILE: Final = 20
HEADROOM: Final = 1.2
HEALTHY_HEARTBEATS: Final = 3  # a session is as long as so many of the latest heartbeats that were in time
GAIN: Final = 1.1  # worth a longer timeout
PRICE: Final = 1.1  # at no more than this


class Options(NamedTuple):
    quantile: float = 0.95
    heartbeat_ms: int = 3_000
    session_min_ms: int = 6_000  # Kafka's group.min.session.timeout.ms and group.max.session.timeout.ms
    session_max_ms: int = 1_800_000
    detect_max_ms: int | None = None  # a death has to be noticed within this time


class Death(NamedTuple):
    """A member that did not come back: the time until the coordinator noticed, and the partitions idle until then."""

    noticed_ms: int
    partitions: int


class Chosen(NamedTuple):
    """`timeout_ms` None: none is advised. `gap_ms`: the absence that was to be bridged."""

    timeout_ms: int | None
    gap_ms: int | None
    samples: int
    floor_ms: int | None
    why: str  # quantile, longest, knee, floor, limit; too_long or no_samples where there is none


def deaths_of(lost: Iterable[Spell]) -> list[Death]:
    """A member that leaves is missed at once. With an instance id it sends no LeaveGroup, and is missed when its session expires."""
    return [Death(0 if one.end_kind == "left" else one.session_timeout_ms or 0, one.partitions or 0) for one in lost]


def curve(cluster: str, group: str, gaps: Sequence[Gap], episodes: Sequence[Episode], deaths: Sequence[Death], options: Options) -> list[CurvePoint]:
    samples = [gap for gap in gaps if gap.source not in (DEATH, HEARTBEAT_GAP)]
    candidates = set(_round_values(options)) | {_up(least_above(gap), 1_000) for gap in samples}
    low = sorted(gap.gap_lo_ms for gap in samples)
    high = sorted(least_above(gap) - 1 for gap in samples)
    saved = sorted(episode.avoidable_by_ms for episode in episodes if episode.avoidable == YES and episode.avoidable_by_ms is not None)
    points = []
    for timeout in sorted(candidate for candidate in candidates if options.session_min_ms <= candidate <= options.session_max_ms):
        bridged = bisect_left(high, timeout)
        not_bridged = len(low) - bisect_left(low, timeout)
        added = [(timeout - death.noticed_ms, death.partitions) for death in deaths]
        points.append(
            CurvePoint(
                cluster,
                group,
                timeout,
                bridged,
                not_bridged,
                len(samples) - bridged - not_bridged,
                bisect_left(saved, timeout + 1),
                len(deaths),
                sum(ms for ms, _ in added),
                sum(ms * partitions for ms, partitions in added),
            )
        )
    return points


def least_above(gap: Gap) -> int:
    """The least timeout that bridges it for sure."""
    return (gap.gap_hi_ms if gap.gap_hi_ms is not None else gap.gap_lo_ms) + 1


def choose(gaps: Sequence[Gap], points: Sequence[CurvePoint], options: Options) -> Chosen:
    samples = sorted(least_above(gap) - 1 for gap in gaps if gap.source not in (DEATH, HEARTBEAT_GAP))
    worst = max((gap.gap_lo_ms for gap in gaps if gap.source == HEARTBEAT_GAP), default=None)
    floor = None if worst is None else worst * HEALTHY_HEARTBEATS
    if not samples:
        return Chosen(None, None, 0, floor, "no_samples")
    enough = len(samples) >= SAMPLES_FOR_A_QUANTILE
    gap = samples[_rank(options.quantile, len(samples))] if enough else samples[-1]
    if gap > SANE_MS:
        return Chosen(None, gap, len(samples), floor, "too_long")
    why = "quantile" if enough else "longest"
    timeout = rounded_up(int(gap * HEADROOM) + options.heartbeat_ms)
    timeout = max(timeout, options.session_min_ms)
    larger = _knee(timeout, points, options)
    if larger is not None:
        timeout, why = larger, "knee"
    most = min(options.session_max_ms, options.detect_max_ms or options.session_max_ms)
    if timeout > most:
        timeout, why = max(most, options.session_min_ms), "limit"
    if floor is not None and timeout <= floor:
        timeout, why = min(rounded_up(floor + 1), options.session_max_ms), "floor"
    return Chosen(timeout, gap, len(samples), floor, why)


def _rank(quantile: float, count: int) -> int:
    """Of the least sample that so large a share is not above."""
    return min(max(-int(-quantile * count // 1) - 1, 0), count - 1)


def _knee(timeout: int, points: Sequence[CurvePoint], options: Options) -> int | None:
    """The least larger timeout that avoids a tenth more for little extra cost."""
    here = next((point for point in points if point.timeout_ms == timeout), None)
    if here is None:
        return None
    for point in points:
        if timeout < point.timeout_ms <= SANE_MS and point.timeout_ms == rounded_up(point.timeout_ms):
            gains = point.rebalances_avoided > here.rebalances_avoided and point.rebalances_avoided >= here.rebalances_avoided * GAIN
            if gains and point.added_stalled_partition_ms <= max(here.added_stalled_partition_ms * PRICE, here.added_stalled_partition_ms):
                return point.timeout_ms
    return None


def rounded_up(ms: int) -> int:
    return _up(ms, 5_000) if ms <= FINE_MS else _up(ms, 30_000)


def _up(ms: int, step: int) -> int:
    return -(-ms // step) * step


def _round_values(options: Options) -> Iterable[int]:
    yield options.session_min_ms
    yield from range(5_000, FINE_MS, 5_000)
    yield from range(FINE_MS, options.session_max_ms + 1, 30_000)
