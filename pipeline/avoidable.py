"""Which rebalances static membership would have avoided, and by which session timeout.

A rebalance is avoidable where every member that came or went in it is one half of a restart, and nothing else changed: with
instance ids, and a session timeout above the longest of these restarts, no member would have had to rejoin. Without notes
times are intervals, and what came to nothing is not seen: what cannot be said is `unknown`, so that the true number lies between
that of `yes` and that of `yes` and `unknown` together.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from history.inferred import FORMATION, GONE, MIXED, RESTART
from history.pairs import AWAY_MAX_MS
from history.restarts import OF_MEMBERS
from pipeline.restarts import EXACT, Made, Restarts
from pipeline.rows import Episode

# Causes that involve only members: the coordinator's, and those inferred without notes.
OF_MEMBERS_ALONE: Final = frozenset({cause.name.lower() for cause in OF_MEMBERS} | {FORMATION, RESTART, MIXED, GONE})

# Any change in a cooperative group: members give partitions up and rejoin at once.
OF_COOPERATION: Final = frozenset({"member_metadata_changed", "leader_rejoined", "leader_or_member_rejoin"})
COOPERATION_WITHIN_MS: Final = 10_000

# Restarts are settled once every departed member has had its time to return: whether a member is a restart depends on earlier
# pairs, in two more ways.
SETTLED_AFTER_MS: Final = 3 * AWAY_MAX_MS

YES, NO, UNKNOWN = "yes", "no", "unknown"


class Verdict(NamedTuple):
    avoidable: str
    by_ms: int | None  # the least session timeout that would have done it


def judged(episodes: list[Episode], restarts: Restarts) -> list[Episode]:
    """The rebalances, each with its verdict."""
    done: list[Episode] = []
    verdict = Verdict(NO, None)
    for episode in sorted(episodes, key=lambda one: one.episode):
        made = restarts.made[episode.episode]
        second = bool(done) and follows(done[-1], episode)
        if not second or made.changed:
            # Without notes it is not known how it began: by its restarts, or as the second half of a rebalance that was needed.
            unclear = bool(done) and verdict.avoidable != YES and episode.confidence != EXACT and _may_follow(done[-1], episode)
            verdict = _verdict(episode, made, restarts, second and verdict.avoidable == YES, unclear)
        elif verdict.avoidable == YES and not _surely_follows(done[-1], episode):
            verdict = Verdict(UNKNOWN, None)
        settled = not made.changed or (episode.end_ms or 0) + SETTLED_AFTER_MS <= restarts.now_ms
        done.append(episode._replace(avoidable=verdict.avoidable, avoidable_by_ms=verdict.by_ms, final=episode.final and settled))
    return done


def follows(before: Episode, episode: Episode) -> bool:
    """It is the second step of the previous rebalance: members gave up partitions, and rejoined for the freed ones."""
    return episode.cause in OF_COOPERATION and not episode.subscription_change and _may_follow(before, episode)


def _may_follow(before: Episode, episode: Episode) -> bool:
    if before.end_ms is None or episode.start_lo_ms is None or not episode.cooperative:
        return False
    return episode.start_lo_ms <= before.end_ms + COOPERATION_WITHIN_MS


def _surely_follows(before: Episode, episode: Episode) -> bool:
    assert before.end_ms is not None
    return episode.start_hi_ms is not None and episode.start_hi_ms <= before.end_ms + COOPERATION_WITHIN_MS


def _verdict(episode: Episode, made: Made, restarts: Restarts, second: bool, maybe_second: bool) -> Verdict:
    """`second`: without its new members, it would be avoidable with the previous rebalance."""
    if episode.missing or episode.end in ("unknown", "open"):
        return Verdict(UNKNOWN, None)
    causes = {episode.cause, *episode.contributing}
    if episode.protocol_change or made.others:
        return Verdict(NO, None)
    if not second and (episode.subscription_change or causes - OF_MEMBERS_ALONE - {UNKNOWN}):
        return Verdict(NO, None)
    if made.unsure or UNKNOWN in causes or maybe_second:
        return Verdict(UNKNOWN, None)
    if not made.pairs:
        # Without notes it is not known whether the session of a static member that is back had expired, or others had to be waited for.
        return Verdict(UNKNOWN if made.replaced and episode.confidence != EXACT else NO, None)
    if any(restarts.pairs[at].alone for at in made.pairs):
        return Verdict(UNKNOWN, None)
    gaps = [restarts.gap(restarts.pairs[at])[1] for at in made.pairs] + [one.gap_hi_ms for one in made.replaced if one.gap_hi_ms is not None]
    if max(gaps) > AWAY_MAX_MS or (episode.confidence != EXACT and episode.rounds_aborted != 0):
        return Verdict(UNKNOWN, None)
    return Verdict(YES, max(gaps) + 1)
