"""Infer a rebalance without notes from two records of the group and the commits around them.

The records have the members before and after. The begin of the rebalance is known only as an interval. Its cause is a conclusion: `strong` if
hardly any other cause is possible. It is one of notes, or stands for several of them (`causes.InferredCause`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from coordinator.notes import Cause
from history.causes import AnyCause, InferredCause, name_of
from history.commits import NO_COMMITS, Commits, NearbyCommits, Silence, silence
from history.compared import Difference, MemberIdentity, compare
from history.conclusion import Inferred
from history.consumer import assigned, is_cooperative, partitions_of
from history.note_records import GroupRecord
from history.words import list_names, short_name
from protocol.messages.consumer_offsets import GroupMetadataValue, MemberMetadata

LATE_MS: Final = 1_000  # the maximum delay of a timer
MAX_POLL_INTERVAL: Final = "max.poll.interval.ms"  # in the evidence of a departure after this interval without a poll


class Silences(NamedTuple):
    """What the commits of removed members tell about them."""

    expired: list[MemberIdentity]  # the session seems to have expired
    polled_late: list[MemberIdentity]  # the client seems to have left because the application did not poll for max.poll.interval.ms
    unsure: bool  # commits do not tell it for other removed members


NO_SILENCES: Final = Silences([], [], False)


class InferenceCache:
    """Caches the inference for each pair of records."""

    def __init__(self, commits: Commits) -> None:
        self.commits = commits
        self._known: dict[tuple[int, int], Inferred] = {}

    def infer(self, before: GroupRecord | None, after: GroupRecord) -> Inferred:
        offsets = before.offset if before is not None else -1, after.offset
        inferred = self._known.get(offsets)
        if inferred is None:
            inferred = self._known[offsets] = infer(before, after, self.nearby_commits(after))
        return inferred

    def nearby_commits(self, record: GroupRecord) -> NearbyCommits:
        return self.commits.get(record.offset, NO_COMMITS)


def infer(before: GroupRecord | None, after: GroupRecord, around: NearbyCommits) -> Inferred:
    """Infer the rebalance between two consecutive records; `before` is None for a new group."""
    assert after.stored is not None
    stored = after.stored
    old = before.stored if before is not None else None
    difference = compare(old, stored)
    end_hi = join_phase_end_ms(after)
    generation = before.generation if before is not None and before.stored is not None else 0
    rounds = max(after.generation - generation, 1)
    begin_lo, bounded = _earliest(before, after)
    silences = _silences(before, difference, around, end_hi) if before is not None and old is not None else NO_SILENCES
    cause, strong, trigger, evidence = _infer_cause(before, stored, difference, silences, rounds)
    return Inferred(difference, begin_lo, end_hi, bounded, rounds, name_of(cause), strong, trigger, evidence, silences.expired)


def is_replacement(before: GroupRecord, record: GroupRecord) -> bool:
    """Whether the record stores the same generation again: only member ids of static members may differ."""
    if before.stored is None or record.stored is None or before.generation != record.generation or record.newer_since_ms >= 0:
        return False
    return _dynamic(before) == _dynamic(record) and len(before.stored.members) == len(record.stored.members)


def _dynamic(record: GroupRecord) -> set[str]:
    return {member.member_id for member in record.stored.members if member.group_instance_id is None} if record.stored is not None else set()


def last_stable_record(same: Sequence[GroupRecord], number: int, after: GroupRecord) -> GroupRecord:
    """The last record of one generation, up to index `number`, that was stored before the next rebalance began.

    At the end of a join phase a coordinator may store new member ids of static members. Such a record still has the old generation, but is
    from the next rebalance.
    """
    doubtful = max(after.generation - same[number].generation - 1, 0)  # each aborted round may have stored one of the last records
    while number and is_replacement(same[number - 1], same[number]) and not stored_while_stable(same[number - 1], same[number], after, doubtful):
        doubtful -= same[number].at_ms < join_phase_end_ms(after)
        number -= 1
    return same[number]


def stored_while_stable(before: GroupRecord, record: GroupRecord, after: GroupRecord, doubtful: int) -> bool:
    """Whether the record was stored while the group was stable, not at the end of a join phase. The latter repeats the previous record's state time.

    `doubtful`: the number of records up to this one that may have been stored at the end of an aborted round's join phase.
    """
    if record.at_ms >= join_phase_end_ms(after):
        return False
    same_state = before.stored is not None and record.stored is not None and before.stored.current_state_timestamp == record.stored.current_state_timestamp
    return doubtful <= 0 or not same_state or record.at_ms < earliest_begin_ms(record, after)


def earliest_begin_ms(record: GroupRecord, after: GroupRecord) -> int:
    """The earliest begin of the rebalance; -1 if it is unknown.

    A join phase lasts at most the longest rebalance timeout. If all members that stayed are static, it may last a session timeout longer,
    since it may wait for sessions to end. Each generation that was skipped between the two records adds two such phases: join and sync.
    """
    if record.stored is None or after.stored is None:
        return -1
    before = {member.member_id for member in record.stored.members}
    stayed = [member for member in after.stored.members if member.member_id in before]
    if not stayed:
        return -1
    members = (*record.stored.members, *after.stored.members)
    longest = max(timeout_ms(member) for member in members)
    if all(member.group_instance_id is not None for member in stayed):
        longest += max(member.session_timeout for member in members)
    return join_phase_end_ms(after) - (2 * max(after.generation - record.generation, 1) - 1) * longest - LATE_MS


def stable_ms(before: GroupRecord, after: GroupRecord) -> int:
    """A time at which the group was stable; -1: unknown.

    It is the time of the record `before`; if that has static members and may be from the end of a join phase, or has no members, the time of the
    state in it. It is never later than the end of the join phase of `after`.
    """
    end_hi = join_phase_end_ms(after)
    stored = before.stored
    if stored is not None and not stored.members:  # it was empty when its state changed, and perhaps not any more when the record was appended
        return min(join_phase_end_ms(before), end_hi)
    maybe_at_phase_end = before.at_ms >= end_hi or after.generation > before.generation + 1
    if stored is None or not maybe_at_phase_end or not any(member.group_instance_id is not None for member in stored.members):
        return min(before.at_ms, end_hi)
    return min(stored.current_state_timestamp, before.at_ms, end_hi) if stored.current_state_timestamp >= 0 else -1


def join_phase_end_ms(after: GroupRecord) -> int:
    """The end of the join phase: the time of the state in the record of a new generation."""
    at = after.stored.current_state_timestamp if after.stored is not None else -1
    return min(at, after.at_ms) if at >= 0 else after.at_ms


def _earliest(before: GroupRecord | None, after: GroupRecord) -> tuple[int, bool]:
    """The earliest begin of the rebalance, and whether the members' timeouts determine it."""
    at = stable_ms(before, after) if before is not None else -1
    old = {member.member_id: member for member in before.stored.members} if before is not None and before.stored is not None else {}
    if before is None or (before.stored is not None and not old):
        # The record does not limit the first join phase: group.initial.rebalance.delay.ms may, or a member with a longer timeout that left again.
        return at, False
    earliest = earliest_begin_ms(before, after)
    return (max(at, earliest), earliest >= at) if earliest >= 0 else (at, False)


def timeout_ms(member: MemberMetadata) -> int:
    return member.rebalance_timeout if member.rebalance_timeout >= 0 else member.session_timeout


def _silences(before: GroupRecord, difference: Difference, around: NearbyCommits, end_hi: int) -> Silences:
    """Which removed members seem to have fallen silent: those that had committed regularly, and then nothing for a session before the others' last commits.

    If the others do not commit either, silence tells nothing.
    """
    stored = before.stored
    assert stored is not None
    gone = {member.member_id for member in difference.left}
    owned = {member.member_id: partitions_of(stored, member) or () for member in stored.members}
    last_commits = [around.last_before.get(partition, -1) for id, partitions in owned.items() if id not in gone for partition in partitions]
    others_commit = any(at_ms > before.at_ms for at_ms in last_commits)
    until = min(max([before.at_ms, *last_commits]), end_hi) if others_commit else end_hi
    members = {member.member_id: member for member in stored.members}
    # Static members send no LeaveGroup: unless commits show that such a member was alive to the end, its session has expired. Exception: the
    # member returned and other members changed too, so it may have rejoined because of them.
    alone = len(difference.left) == len(difference.joined) == len(difference.returned) == 1
    returned = {old.member_id for old, _ in difference.returned}
    expired, polled_late = [], []
    unsure = False
    for member in difference.left:
        timeouts = members[member.member_id]
        poll_ms = timeouts.rebalance_timeout if member.instance_id is None else None
        silent = silence(around, owned[member.member_id], before.at_ms, until, end_hi, timeouts.session_timeout, poll_ms)
        if silent is not Silence.NONE and not others_commit:  # there may have been nothing to commit, and the join phase may be a part of the silence
            silent = Silence.UNKNOWN
        if silent is Silence.POLL:
            polled_late.append(member)
        elif silent is Silence.SESSION or (silent is not Silence.NONE and member.instance_id is not None and (alone or member.member_id not in returned)):
            expired.append(member)
        elif silent is not Silence.NONE:
            unsure = True
    return Silences(expired, polled_late, unsure)


def _infer_cause(
    before: GroupRecord | None, stored: GroupMetadataValue, difference: Difference, silences: Silences, rounds: int
) -> tuple[AnyCause, bool, MemberIdentity | None, str]:
    """The cause, whether it is almost certain, the member that caused the rebalance, and a sentence with the evidence."""
    back = difference.returned
    restarted = {member.member_id for pair in back for member in pair}
    joined = [member for member in difference.joined if member.member_id not in restarted]
    left = [member for member in difference.left if member.member_id not in restarted]
    one_round = rounds == 1
    rounds_text = "" if one_round else f", in {rounds} rounds"
    if before is None or before.stored is None or (before.generation == 0 and before.newer_since_ms < 0):
        joined = difference.joined
        first = joined[0] if len(joined) == 1 else None
        if stored.members:
            return InferredCause.FORMATION, True, first, f"the first stored generation has {_names(joined)}{rounds_text}"
        return Cause.GROUP_EMPTIED, False, None, f"the members that formed the group were removed before it had an assignment{rounds_text}"
    if not before.stored.members:
        if stored.members:
            return Cause.NEW_MEMBER, True, joined[0] if len(joined) == 1 else None, f"the group was empty, and {_names(joined)} joined{rounds_text}"
        return Cause.GROUP_EMPTIED, False, None, f"the group was empty; the members that joined were removed before it had an assignment{rounds_text}"
    if not stored.members:
        silence = "after silence" if silences.expired else "perhaps without silence"
        return Cause.GROUP_EMPTIED, False, left[0] if len(left) == 1 else None, f"no member remains: {_names(left)} went away, {silence}{rounds_text}"
    subscribed = difference.subscribed
    trigger: MemberIdentity | None = None
    if joined and not left and not back:
        trigger = joined[0] if len(joined) == 1 else None
        explained = subscribed or difference.protocol_changed or difference.grown
        strong = one_round and not (explained or _assigns_unowned(before.stored, stored))
        return Cause.NEW_MEMBER, strong, trigger, f"{_names(joined)} joined and no member went away{rounds_text}"
    if left and not joined and not back:
        trigger = left[0] if len(left) == 1 else None
        expired = [member for member in silences.expired if member in left]
        polled_late = [member for member in silences.polled_late if member in left]
        if expired:
            return Cause.SESSION_EXPIRED, False, expired[0] if len(expired) == 1 else None, f"{_names(left)} went away; by their commits, {_names(expired)} had been silent for a session timeout{rounds_text}"
        if polled_late:
            trigger = polled_late[0] if len(polled_late) == 1 else None
            silence = f"{_names(polled_late)} had committed nothing for about {MAX_POLL_INTERVAL}, after which a client that has not polled leaves"
            return Cause.MEMBER_LEFT, False, trigger, f"{_names(left)} went away; {silence}{rounds_text}"
        if silences.unsure:
            return InferredCause.MEMBER_GONE, False, trigger, f"{_names(left)} went away; commits do not tell whether by leaving or at the end of a session{rounds_text}"
        text = f"{_names(left)} went away, without a silence as long as a session timeout"
        if all(member.instance_id is not None for member in left):  # few clients send LeaveGroup for a static member
            return InferredCause.MEMBER_GONE, False, trigger, f"{text}: an administrator removed the instance id, or the client left{rounds_text}"
        return Cause.MEMBER_LEFT, False, trigger, f"{text}{rounds_text}"
    if back and not joined and not left:
        trigger = back[0][1] if len(back) == 1 else None
        return InferredCause.RESTART, False, trigger, f"{_names([new for _, new in back])} returned under another member id, and no other member changed{rounds_text}"
    if joined or left or back:
        parts = [(joined, "joined"), (left, "went away"), ([new for _, new in back], "returned")]
        return InferredCause.MIXED, False, None, ", ".join(f"{_names(members)} {verb}" for members, verb in parts if members) + rounds_text
    if subscribed or difference.protocol_changed:
        change = f"{list_names(subscribed)} subscribe to other topics" if subscribed else f"the protocol is {stored.protocol} now"
        return Cause.MEMBER_METADATA_CHANGED, one_round and bool(subscribed), None, f"the same members, and {change}{rounds_text}"
    if difference.grown and not is_cooperative(stored.protocol):
        topic, (was, now) = next(iter(difference.grown.items()))
        return Cause.MEMBER_METADATA_CHANGED, False, None, f"the same members, and {topic} has {now} assigned partitions, previously {was}{rounds_text}"
    return InferredCause.LEADER_OR_MEMBER_REJOIN, False, None, f"the same members with the same subscriptions: one of them rejoined{rounds_text}"


def _assigns_unowned(before: GroupMetadataValue, after: GroupMetadataValue) -> bool:
    """Whether members got partitions that had no owner, as in the second half of a cooperative rebalance."""
    if not is_cooperative(after.protocol):
        return False
    owned = {partition for member in before.members for partition in assigned(before, member) or ()}
    return any(partition not in owned for member in after.members for partition in assigned(after, member) or ())


def _names(members: list[MemberIdentity]) -> str:
    return list_names(short_name(member.member_id, member.instance_id) for member in members) or "no member"
