"""Infer a rebalance without notes from two records of the group and the commits around them.

The contents of records are facts. The begin of the rebalance is an interval. Its cause is inferred: `strong` if hardly any other
cause is possible, else weak. The names of causes are those of `coordinator.notes.Cause`, and some that stand for several: STANDS_FOR.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from coordinator.notes import Cause
from history.commits import NOTHING, Commits, NearbyCommits, is_silent_long
from history.compared import Difference, Who, compare
from history.consumer import assigned, is_cooperative, partitions_of
from history.note_records import GroupRecord
from history.words import called, listed
from protocol.messages.consumer_offsets import GroupMetadataValue, MemberMetadata

FORMATION: Final = "formation"
EMPTIED: Final = "group_emptied"
RESTART: Final = "restart"
MIXED: Final = "mixed"
REJOINED: Final = "leader_or_member_rejoin"
GONE: Final = "member_gone"  # it left or its session expired: commits are too rare to tell

_LOST = frozenset({Cause.MEMBER_LEFT, Cause.SESSION_EXPIRED, Cause.REBALANCE_TIMEOUT, Cause.ADMIN_REMOVED, Cause.SYNC_TIMEOUT})
_ANY = frozenset(Cause)
_SAID = frozenset({Cause.LEADER_REJOINED, Cause.MEMBER_METADATA_CHANGED})
# The causes, as in notes, that each inferred name stands for.
STANDS_FOR: Final[dict[str, frozenset[Cause]]] = {
    **{cause.name.lower(): frozenset({cause}) for cause in Cause},
    FORMATION: frozenset({Cause.NEW_MEMBER}),
    EMPTIED: _LOST | {Cause.GROUP_EMPTIED},
    RESTART: _LOST | {Cause.NEW_MEMBER, Cause.STATIC_PROTOCOL_CHANGED, Cause.STATIC_DURING_COMPLETING},
    MIXED: _ANY,
    REJOINED: _SAID,
    GONE: _LOST,
}
NEW_MEMBER: Final = "new_member"
MEMBER_LEFT: Final = "member_left"
SESSION_EXPIRED: Final = "session_expired"
METADATA_CHANGED: Final = "member_metadata_changed"

# Kafka's default of group.initial.rebalance.delay.ms: the minimum of the join phase of an empty group.
INITIAL_DELAY_MS: Final = 3_000
LATE_MS: Final = 1_000  # the maximum delay of a timer


class Inferred(NamedTuple):
    difference: Difference
    start_lo_ms: int
    start_hi_ms: int  # the end of its join phase
    bounded: bool  # by the members' timeouts, and not only by the record before
    rounds: int
    cause: str
    strong: bool
    mover: Who | None
    evidence: str
    expired: list[Who]  # missing members whose session seems to have ended


class Between:
    """Caches what was inferred from a pair of records."""

    def __init__(self, commits: Commits) -> None:
        self.commits = commits
        self._known: dict[tuple[int, int], Inferred] = {}

    def infer(self, before: GroupRecord | None, after: GroupRecord) -> Inferred:
        place = before.offset if before is not None else -1, after.offset
        found = self._known.get(place)
        if found is None:
            found = self._known[place] = infer(before, after, self.around(after))
        return found

    def around(self, image: GroupRecord) -> NearbyCommits:
        return self.commits.get(image.offset, NOTHING)


def infer(before: GroupRecord | None, after: GroupRecord, around: NearbyCommits) -> Inferred:
    """Infer what happened between two consecutive records; `before` is None for a new group."""
    assert after.stored is not None
    stored = after.stored
    old = before.stored if before is not None else None
    difference = compare(old, stored)
    hi = joined_by(after)
    generation = before.generation if before is not None and before.stored is not None else 0
    rounds = max(after.generation - generation, 1)
    lo, bounded = _earliest(before, after, hi, rounds)
    expired, unsure = _expired(before, difference, around, hi) if before is not None and old is not None else ([], False)
    cause, strong, mover, evidence = _why(before, stored, difference, expired, unsure, rounds)
    return Inferred(difference, lo, hi, bounded, rounds, cause, strong, mover, evidence, expired)


def is_replacement(before: GroupRecord, image: GroupRecord) -> bool:
    """Whether the record stores the same generation again: only member ids of static members may differ."""
    if before.stored is None or image.stored is None or before.generation != image.generation:
        return False
    return _dynamic(before) == _dynamic(image) and len(before.stored.members) == len(image.stored.members)


def _dynamic(image: GroupRecord) -> set[str]:
    return {member.member_id for member in image.stored.members if member.group_instance_id is None} if image.stored is not None else set()


def at_rest(same: Sequence[GroupRecord], number: int, after: GroupRecord) -> GroupRecord:
    """The last record of a generation, up to this number, that was stored before the next rebalance began.

    At the end of a join phase a coordinator may store new member ids of static members. Such a record describes the next generation.
    """
    doubtful = max(after.generation - same[number].generation - 1, 0)  # one for each aborted round
    while number and is_replacement(same[number - 1], same[number]) and not stored_at_rest(same[number - 1], same[number], after, doubtful):
        doubtful -= same[number].at_ms < joined_by(after)
        number -= 1
    return same[number]


def stored_at_rest(before: GroupRecord, image: GroupRecord, after: GroupRecord, doubtful: int) -> bool:
    """Whether the record describes the group at rest, and was not stored at the end of a join phase, when the time of its state is the old one.

    `doubtful`: the number of records up to this one that may have been stored at the end of an aborted round's join phase.
    """
    if image.at_ms >= joined_by(after):
        return False
    same_state = before.stored is not None and image.stored is not None and before.stored.current_state_timestamp == image.stored.current_state_timestamp
    return doubtful <= 0 or not same_state or image.at_ms < called_after_ms(image, after)


def called_after_ms(image: GroupRecord, after: GroupRecord) -> int:
    """The earliest begin of the rebalance, -1 if it is unknown. A join phase lasts no longer than the longest rebalance timeout, if a
    dynamic member was in the group throughout. Static members that do not rejoin may extend it to the end of their sessions. An
    aborted round has two phases."""
    if image.stored is None or after.stored is None:
        return -1
    before = {member.member_id for member in image.stored.members}
    stayed = [member for member in after.stored.members if member.member_id in before]
    if not stayed:
        return -1
    members = (*image.stored.members, *after.stored.members)
    longest = max(timeout_ms(member) for member in members)
    if all(member.group_instance_id is not None for member in stayed):
        longest += max(member.session_timeout for member in members)
    return joined_by(after) - (2 * max(after.generation - image.generation, 1) - 1) * longest - LATE_MS


def rested_ms(before: GroupRecord, after: GroupRecord) -> int:
    """A time at which the group was stable: the record's, or the time of its state if a join phase may have written the record."""
    hi = joined_by(after)
    stored = before.stored
    doubtful = before.at_ms >= hi or after.generation > before.generation + 1
    if stored is None or not doubtful or not any(member.group_instance_id is not None for member in stored.members):
        return min(before.at_ms, hi)
    return min(stored.current_state_timestamp, before.at_ms, hi) if stored.current_state_timestamp >= 0 else -1


def joined_by(after: GroupRecord) -> int:
    """The end of its join phase: the time of the state in the record of a new generation."""
    at = after.stored.current_state_timestamp if after.stored is not None else -1
    return min(at, after.at_ms) if at >= 0 else after.at_ms


def _earliest(before: GroupRecord | None, after: GroupRecord, hi: int, rounds: int) -> tuple[int, bool]:
    """The earliest begin of the rebalance, and whether the members' timeouts bound it."""
    assert after.stored is not None
    at = rested_ms(before, after) if before is not None else -1
    old = {member.member_id: member for member in before.stored.members} if before is not None and before.stored is not None else {}
    if before is None or (before.stored is not None and not old):
        longest = max((timeout_ms(member) for member in after.stored.members), default=-1)
        if longest < 0 or rounds > 1:
            return at, False
        earliest = hi - max(longest, INITIAL_DELAY_MS) - LATE_MS
        return max(at, earliest), earliest >= at
    assert before is not None
    earliest = called_after_ms(before, after)
    return (max(at, earliest), earliest >= at) if earliest >= 0 else (at, False)


def timeout_ms(member: MemberMetadata) -> int:
    return member.rebalance_timeout if member.rebalance_timeout >= 0 else member.session_timeout


def _expired(before: GroupRecord, difference: Difference, around: NearbyCommits, hi: int) -> tuple[list[Who], bool]:
    """Departed members whose session seems to have expired: they committed nothing for a session timeout before the others' last commits.
    And whether commits are too rare to tell for other departed members."""
    stored = before.stored
    assert stored is not None
    gone = {one.member_id for one in difference.left}
    shares = {member.member_id: partitions_of(stored, member) or () for member in stored.members}
    heard = [around.last_before.get(one, -1) for id, some in shares.items() if id not in gone for one in some]
    until = min(max([before.at_ms, *heard]), hi) if any(one > before.at_ms for one in heard) else hi
    sessions = {member.member_id: member.session_timeout for member in stored.members}
    # Static members do not leave: unless commits show that it was alive to the end, its session has expired. Exception: it is back, and
    # had to rejoin for another reason.
    alone = len(difference.left) == len(difference.joined) == len(difference.back) == 1
    back = {old.member_id for old, _ in difference.back}
    found = []
    unsure = False
    for one in difference.left:
        silent = is_silent_long(around, shares[one.member_id], before.at_ms, until, hi, sessions[one.member_id])
        if silent or (silent is None and one.instance_id is not None and (alone or one.member_id not in back)):
            found.append(one)
        elif silent is None:
            unsure = True
    return found, unsure


def _why(
    before: GroupRecord | None, stored: GroupMetadataValue, difference: Difference, expired: list[Who], unsure: bool, rounds: int
) -> tuple[str, bool, Who | None, str]:
    """The cause, whether it is almost certain, the member, and a sentence."""
    back = difference.back
    restarted = {one.member_id for pair in back for one in pair}
    joined = [one for one in difference.joined if one.member_id not in restarted]
    left = [one for one in difference.left if one.member_id not in restarted]
    one_round = rounds == 1
    again = "" if one_round else f", in {rounds} rounds"
    if before is None or before.stored is None or before.generation == 0:
        joined = difference.joined
        first = joined[0] if len(joined) == 1 else None
        if stored.members:
            return FORMATION, True, first, f"the first generation that is stored has {_names(joined)}{again}"
        return EMPTIED, False, None, f"those who formed the group were gone before it had an assignment{again}"
    if not before.stored.members:
        if stored.members:
            return NEW_MEMBER, True, joined[0] if len(joined) == 1 else None, f"the group was empty, and {_names(joined)} joined{again}"
        return EMPTIED, False, None, f"the group was empty; who joined was gone before it had an assignment{again}"
    if not stored.members:
        how = "silent before" if expired else "not known to have been silent"
        return EMPTIED, False, left[0] if len(left) == 1 else None, f"nobody is left: {_names(left)} went, {how}{again}"
    subscribed = difference.subscribed
    mover: Who | None = None
    if joined and not left and not back:
        mover = joined[0] if len(joined) == 1 else None
        strong = one_round and not (subscribed or difference.protocol or difference.grown or _gives_out(before.stored, stored))
        return NEW_MEMBER, strong, mover, f"{_names(joined)} joined and nobody went{again}"
    if left and not joined and not back:
        mover = left[0] if len(left) == 1 else None
        expired = [one for one in expired if one in left]
        if expired:
            return SESSION_EXPIRED, False, expired[0] if len(expired) == 1 else None, f"{_names(left)} went, and {_names(expired)} after a silence of a session, as far as commits say{again}"
        if unsure:
            return GONE, False, mover, f"{_names(left)} went, and commits are too rare to say whether it left or its session ended{again}"
        return MEMBER_LEFT, False, mover, f"{_names(left)} went, and no silence of a session says that a session ended{again}"
    if back and not joined and not left:
        mover = back[0][1] if len(back) == 1 else None
        return RESTART, False, mover, f"{_names([new for _, new in back])} came back under another member id, and nobody else changed{again}"
    if joined or left or back:
        parts = [(joined, "joined"), (left, "went"), ([new for _, new in back], "came back")]
        return MIXED, False, None, ", ".join(f"{_names(some)} {what}" for some, what in parts if some) + again
    if subscribed or difference.protocol:
        what = f"{listed(subscribed)} subscribe otherwise than before" if subscribed else f"the protocol is {stored.protocol} now"
        return METADATA_CHANGED, one_round and bool(subscribed), None, f"the same members, and {what}{again}"
    if difference.grown and not is_cooperative(stored.protocol):
        topic, (was, now) = next(iter(difference.grown.items()))
        return METADATA_CHANGED, False, None, f"the same members, and {topic} has {now} partitions that are assigned, {was} before{again}"
    return REJOINED, False, None, f"the same members with the same subscriptions: one of them rejoined{again}"


def _gives_out(before: GroupMetadataValue, after: GroupMetadataValue) -> bool:
    """Whether members got partitions that had no owner, as in the second half of a cooperative rebalance."""
    if not is_cooperative(after.protocol):
        return False
    owned = {place for member in before.members for place in assigned(before, member) or ()}
    return any(place not in owned for member in after.members for place in assigned(after, member) or ())


def _names(some: list[Who]) -> str:
    return listed(called(one.member_id, one.instance_id) for one in some) or "nobody"
