"""Why a consumer group got a new epoch, by the records that stand before it: of the members that came, went or changed what they read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from coordinator.consumer.member import UNREVOKED, Holding, Profile
from coordinator.notes import Cause, Removal
from history.causes import AnyCause, InferredCause
from history.compared import MemberIdentity
from history.consumer import assigned
from history.words import format_duration, list_names, short_name
from protocol.messages.consumer_offsets import GroupMetadataValue

AWAY: Final = -2


class Gone(NamedTuple):
    """A member that was removed; `held_ms`: since when its holding was as it was."""

    identity: MemberIdentity
    profile: Profile
    holding: Holding
    held_ms: int

    @property
    def too_slow(self) -> bool:
        """Whether it had not given up what it was told to within its rebalance timeout."""
        return self.holding.state is UNREVOKED and bool(self.holding.pending) and self.held_ms >= self.profile.rebalance_timeout_ms >= 0

    @property
    def seems_expired(self) -> bool:
        return self.holding.epoch == AWAY

    @property
    def removal(self) -> Removal | None:
        return Removal.NOT_GIVEN_UP if self.too_slow else Removal.EXPIRED if self.seems_expired else None


class Asked(NamedTuple):
    """What asked for a new epoch. `matched`: expressions match other topics; `other_topics`: the hash of the group's topics is another one."""

    came: Sequence[MemberIdentity]
    gone: Sequence[Gone]
    subscribed: Sequence[MemberIdentity]
    voted: Sequence[MemberIdentity]
    matched: bool
    other_topics: bool
    upgraded: bool = False  # the group was a classic one until now

    @property
    def only_topics(self) -> bool:
        return not (self.came or self.gone or self.subscribed or self.matched)


def cause_of_bump(asked: Asked, was_empty: bool) -> tuple[AnyCause, bool, MemberIdentity | None, str]:
    """The cause, whether hardly any other is possible, the member that caused it, and the evidence in words."""
    if asked.upgraded:
        member = asked.came[0] if len(asked.came) == 1 else None
        return Cause.UPGRADED, True, member, f"{_names(asked.came)} of the consumer protocol joined the classic group"
    if asked.came:
        member = asked.came[0] if len(asked.came) == 1 else None
        return Cause.NEW_MEMBER, True, member, f"{_names(asked.came)} joined{' the empty group' if was_empty else ''}"
    if asked.gone:
        return _removal(asked.gone)
    if asked.subscribed:
        member = asked.subscribed[0] if len(asked.subscribed) == 1 else None
        return Cause.MEMBER_METADATA_CHANGED, True, member, f"{_names(asked.subscribed)} {'reads' if member else 'read'} other topics"
    if asked.matched:
        return Cause.REGEX_RESOLVED, True, None, "regular expressions of members match other topics"
    if asked.voted:
        member = asked.voted[0] if len(asked.voted) == 1 else None
        return Cause.ASSIGNOR_CHANGED, not asked.other_topics, member, f"{_names(asked.voted)} {'asks' if member else 'ask'} for another assignor"
    if asked.other_topics:
        return Cause.TOPICS_CHANGED, True, None, "topics that members read were created, deleted, or got partitions"
    return Cause.REQUESTED, False, None, "neither members nor topics changed, so the epoch was requested"


def _removal(gone: Sequence[Gone]) -> tuple[AnyCause, bool, MemberIdentity | None, str]:
    member = gone[0].identity if len(gone) == 1 else None
    names = _names([each.identity for each in gone])
    slow = [each for each in gone if each.too_slow]
    if slow:
        text = f"{_names([each.identity for each in slow])} had not given up partitions {format_duration(slow[0].held_ms)} after it was told to"
        return Cause.REBALANCE_TIMEOUT, True, slow[0].identity, f"{text} (rebalance timeout {format_duration(slow[0].profile.rebalance_timeout_ms)}), and was removed"
    away = [each for each in gone if each.seems_expired]
    if away:
        return Cause.SESSION_EXPIRED, False, away[0].identity, f"{names} had left to come back, and did not within {format_duration(away[0].held_ms)}"
    return InferredCause.MEMBER_GONE, False, member, f"{names} went away: by leaving, at the end of a session, or removed by an administrator"


def topics_evidence(before: GroupMetadataValue | None, after: GroupMetadataValue) -> str:
    """The topics that changed, by their assigned partitions."""
    old, new = _counts(before), _counts(after)
    return list_names(_changed(topic, old.get(topic, 0), new.get(topic, 0)) for topic in sorted(new.keys() | old.keys()) if new.get(topic) != old.get(topic))


def _changed(topic: str, old: int, new: int) -> str:
    if not new:
        return f"{topic} is gone"
    return f"{topic} has {new} partitions{f', previously {old}' if old else ''}"


def _counts(stored: GroupMetadataValue | None) -> dict[str, int]:
    counts: dict[str, int] = {}
    for member in stored.members if stored is not None else ():
        for topic, _ in assigned(stored, member) or () if stored is not None else ():
            counts[topic] = counts.get(topic, 0) + 1
    return counts


def _names(members: Sequence[MemberIdentity]) -> str:
    return list_names(short_name(member.member_id, member.instance_id) for member in members)
