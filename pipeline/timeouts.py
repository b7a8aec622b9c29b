"""The session timeout that a group should have: the restarts that each timeout bridges, its cost, and a recommendation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pipeline.avoidable import YES
from pipeline.gaps import DEATH, HEARTBEAT_GAP
from pipeline.rows import CurvePoint, Episode, Gap, MemberSpell

FINE_STEPS_MS: Final = 120_000  # up to this, timeouts are rounded to 5 s, above to 30 s
RECOMMENDED_MS_MAX: Final = 600_000  # longer waits for a crashed member are not recommended
SAMPLES_FOR_A_QUANTILE: Final = 20
HEADROOM: Final = 1.2
HEALTHY_HEARTBEATS: Final = 3  # the session timeout is at least this many times the longest delay of a healthy heartbeat
GAIN_FACTOR: Final = 1.1  # a longer timeout must avoid at least this many times the rebalances
COST_FACTOR: Final = 1.1  # and cost at most this many times as much


class Options(NamedTuple):
    quantile: float = 0.95
    heartbeat_ms: int = 3_000
    session_min_ms: int = 6_000  # Kafka's group.min.session.timeout.ms and group.max.session.timeout.ms
    session_max_ms: int = 1_800_000
    detect_max_ms: int | None = None  # the longest time until a dead member is noticed


class Death(NamedTuple):
    """A member that did not return: the time until the coordinator noticed it, and its partitions."""

    noticed_ms: int
    partitions: int


class TimeoutChoice(NamedTuple):
    """`timeout_ms` None: no recommendation. `gap_ms`: the absence to bridge."""

    timeout_ms: int | None
    gap_ms: int | None
    samples: int
    floor_ms: int | None
    why: str  # quantile, longest, knee, floor, limit; too_long or no_samples without a timeout
    unlimited_ms: int | None = None  # the longer timeout that `detect_max_ms` excludes


def deaths_of(lost: Iterable[MemberSpell]) -> list[Death]:
    """One death for each member that did not return. If it sent LeaveGroup, it was noticed at once, else when its session expired."""
    return [Death(0 if spell.end_kind == "left" else spell.session_timeout_ms or 0, spell.partitions or 0) for spell in lost]


def curve(cluster: str, group: str, gaps: Sequence[Gap], episodes: Sequence[Episode], deaths: Sequence[Death], options: Options) -> list[CurvePoint]:
    samples = [gap for gap in gaps if gap.source not in (DEATH, HEARTBEAT_GAP)]
    candidates = set(_round_values(options)) | {_up(bridging_ms(gap), 1_000) for gap in samples}
    low = sorted(gap.gap_lo_ms for gap in samples)
    high = sorted(bridging_ms(gap) - 1 for gap in samples)
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


def bridging_ms(gap: Gap) -> int:
    """The smallest timeout that certainly bridges the gap."""
    return (gap.gap_hi_ms if gap.gap_hi_ms is not None else gap.gap_lo_ms) + 1


def choose(gaps: Sequence[Gap], points: Sequence[CurvePoint], options: Options) -> TimeoutChoice:
    samples = sorted(bridging_ms(gap) - 1 for gap in gaps if gap.source not in (DEATH, HEARTBEAT_GAP))
    longest_delay = max((gap.gap_lo_ms for gap in gaps if gap.source == HEARTBEAT_GAP), default=None)
    floor = None if longest_delay is None else longest_delay * HEALTHY_HEARTBEATS
    if not samples:
        return TimeoutChoice(None, None, 0, floor, "no_samples")
    use_quantile = len(samples) >= SAMPLES_FOR_A_QUANTILE
    gap = samples[_rank(options.quantile, len(samples))] if use_quantile else samples[-1]
    if gap > RECOMMENDED_MS_MAX:
        return TimeoutChoice(None, gap, len(samples), floor, "too_long")
    why = "quantile" if use_quantile else "longest"
    timeout = rounded_up(int(gap * HEADROOM) + options.heartbeat_ms)
    timeout = max(timeout, options.session_min_ms)
    larger = _knee(timeout, points, options)
    if larger is not None:
        timeout, why = larger, "knee"
    unlimited = min(timeout, options.session_max_ms)
    timeout_max = options.session_max_ms if options.detect_max_ms is None else min(options.session_max_ms, options.detect_max_ms)
    if timeout > timeout_max:
        timeout, why = max(timeout_max, options.session_min_ms), "limit"
    if floor is not None and timeout <= floor:
        timeout, why = min(rounded_up(floor + 1), options.session_max_ms), "floor"
    return TimeoutChoice(timeout, gap, len(samples), floor, why, unlimited if unlimited > timeout else None)


def _rank(quantile: float, count: int) -> int:
    """The index of the quantile among `count` sorted samples."""
    return min(max(-int(-quantile * count // 1) - 1, 0), count - 1)


def _knee(timeout: int, points: Sequence[CurvePoint], options: Options) -> int | None:
    """The smallest larger timeout that avoids clearly more rebalances for little extra cost."""
    current = next((point for point in points if point.timeout_ms == timeout), None)
    if current is None:
        return None
    for point in points:
        if timeout < point.timeout_ms <= RECOMMENDED_MS_MAX and point.timeout_ms == rounded_up(point.timeout_ms):
            avoids_more = point.rebalances_avoided > current.rebalances_avoided and point.rebalances_avoided >= current.rebalances_avoided * GAIN_FACTOR
            if avoids_more and point.added_stalled_partition_ms <= max(current.added_stalled_partition_ms * COST_FACTOR, current.added_stalled_partition_ms):
                return point.timeout_ms
    return None


def rounded_up(ms: int) -> int:
    return _up(ms, 5_000) if ms <= FINE_STEPS_MS else _up(ms, 30_000)


def _up(ms: int, step: int) -> int:
    return -(-ms // step) * step


def _round_values(options: Options) -> Iterable[int]:
    yield options.session_min_ms
    yield from range(5_000, FINE_STEPS_MS, 5_000)
    yield from range(FINE_STEPS_MS, options.session_max_ms + 1, 30_000)
