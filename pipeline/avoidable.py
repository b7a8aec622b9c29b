"""Which rebalances static membership would have avoided, and with which session timeout.

A rebalance is avoidable if every member that joined or left in it did so in a restart, and nothing else changed: with instance ids and
a session timeout above the longest of these restarts, no member would have had to rejoin. Without notes, times are intervals and aborted
rounds are invisible: then a verdict may be `unknown`, and the true number is between the count of `yes` and that of `yes` and `unknown` together.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from history.causes import InferredCause, cause_row, name_of
from history.pairs import AWAY_MAX_MS
from pipeline.restarts import EXACT, MemberChanges, Restarts
from pipeline.rows import Episode

COOPERATION_WITHIN_MS: Final = 10_000

# Pairs of removed and returned members are final when each removed member has had AWAY_MAX_MS to return. They depend on earlier pairs, so three
# times that has to pass.
SETTLED_AFTER_MS: Final = 3 * AWAY_MAX_MS

YES, NO, UNKNOWN = "yes", "no", "unknown"
FORMATION: Final = name_of(InferredCause.FORMATION)


class Verdict(NamedTuple):
    avoidable: str
    by_ms: int | None  # the smallest session timeout that avoids the rebalance


def with_verdicts(episodes: list[Episode], restarts: Restarts) -> list[Episode]:
    """The rebalances with their verdicts."""
    judged: list[Episode] = []
    verdict = Verdict(NO, None)
    for episode in sorted(episodes, key=lambda rebalance: rebalance.episode):
        changes = restarts.changes[episode.episode]
        is_second_step = bool(judged) and follows(judged[-1], episode)
        if not is_second_step or changes.changed:
            # Without notes the reason of this rebalance is ambiguous: restarts of its own, or the second step of a necessary rebalance.
            unclear = bool(judged) and verdict.avoidable != YES and episode.confidence != EXACT and _may_follow(judged[-1], episode)
            verdict = _verdict(episode, changes, restarts, is_second_step and verdict.avoidable == YES, unclear)
        elif verdict.avoidable == YES and not _surely_follows(judged[-1], episode):
            verdict = Verdict(UNKNOWN, None)
        settled = not changes.changed or (episode.end_ms or 0) + SETTLED_AFTER_MS <= restarts.now_ms
        judged.append(episode._replace(avoidable=verdict.avoidable, avoidable_by_ms=verdict.by_ms, final=episode.final and settled))
    return judged


def follows(before: Episode, episode: Episode) -> bool:
    """Whether `episode` is the second step of the cooperative rebalance `before`: members have revoked partitions, and rejoin for the freed ones."""
    return cause_row(episode.cause).rejoin and not episode.subscription_change and _may_follow(before, episode)


def _may_follow(before: Episode, episode: Episode) -> bool:
    if before.end_ms is None or episode.start_lo_ms is None or not episode.cooperative:
        return False
    return episode.start_lo_ms <= before.end_ms + COOPERATION_WITHIN_MS


def _surely_follows(before: Episode, episode: Episode) -> bool:
    assert before.end_ms is not None
    return episode.start_hi_ms is not None and episode.start_hi_ms <= before.end_ms + COOPERATION_WITHIN_MS


def _verdict(episode: Episode, changes: MemberChanges, restarts: Restarts, second: bool, maybe_second: bool) -> Verdict:
    """`second`: the rebalance is the second step of an avoidable one, but members also joined or left in it.
    `maybe_second`: it may be the second step of one that is not, or not surely, avoidable.
    """
    if episode.missing or episode.end in ("unknown", "open"):
        return Verdict(UNKNOWN, None)
    causes = {episode.cause, *episode.contributing}
    if episode.protocol_change or changes.has_permanent_change or (episode.cause == FORMATION and episode.confidence != EXACT):
        return Verdict(NO, None)
    if not second and (episode.subscription_change or any(not cause_row(cause).of_members for cause in causes - {UNKNOWN})):
        return Verdict(NO, None)
    if changes.unsure or UNKNOWN in causes or maybe_second:
        return Verdict(UNKNOWN, None)
    if not changes.pairs:
        # Without notes it is unknown whether the session of a returning static member had expired, or the group waited for others.
        return Verdict(UNKNOWN if changes.replaced and episode.confidence != EXACT else NO, None)
    if any(restarts.pairs[at].alone for at in changes.pairs):
        return Verdict(UNKNOWN, None)
    gaps = [restarts.gap(restarts.pairs[at])[1] for at in changes.pairs] + [replaced.gap_hi_ms for replaced in changes.replaced if replaced.gap_hi_ms is not None]
    if max(gaps) > AWAY_MAX_MS or (episode.confidence != EXACT and episode.rounds_aborted != 0):
        return Verdict(UNKNOWN, None)
    return Verdict(YES, max(gaps) + 1)
