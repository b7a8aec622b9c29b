"""Who may speak for a member: the table of request x what the group knows of the ids in it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from coordinator.consumer.calls import JOIN, LEAVE, HeartbeatRequest
from coordinator.consumer.group import ConsumerGroup
from coordinator.consumer.member import ConsumerMember
from protocol.errors import ErrorCode


class Sent(Enum):
    """What kind of heartbeat it is."""

    JOIN = auto()
    BEAT = auto()
    LEAVE = auto()
    AWAY = auto()


class Does(Enum):
    """What an accepted heartbeat does."""

    CREATE = auto()
    REJOIN = auto()
    REPLACE = auto()
    BEAT = auto()
    REMOVE = auto()
    GO_AWAY = auto()


UNKNOWN_MEMBER_ID: Final = ErrorCode.UNKNOWN_MEMBER_ID
FENCED_INSTANCE_ID: Final = ErrorCode.FENCED_INSTANCE_ID
UNRELEASED_INSTANCE_ID: Final = ErrorCode.UNRELEASED_INSTANCE_ID


class Row(NamedTuple):
    unknown: Does | ErrorCode
    itself: Does | ErrorCode
    other: Does | ErrorCode


# fmt: off
# `unknown`, `itself`, `other`: the group knows nobody of this id, the member that sends it, or another one (of the same instance id).
# The join of an instance whose member is away, or speaks the classic protocol, is in no row: it replaces that member, whatever its member id.
DYNAMIC: Final = {
    #               unknown                  itself          (no other)
    Sent.JOIN:  Row(Does.CREATE,             Does.REJOIN,    UNKNOWN_MEMBER_ID),
    Sent.BEAT:  Row(UNKNOWN_MEMBER_ID,       Does.BEAT,      UNKNOWN_MEMBER_ID),
    Sent.LEAVE: Row(UNKNOWN_MEMBER_ID,       Does.REMOVE,    UNKNOWN_MEMBER_ID),
}
STATIC: Final = {
    #               unknown                  itself                  other
    Sent.JOIN:  Row(Does.CREATE,             UNRELEASED_INSTANCE_ID, UNRELEASED_INSTANCE_ID),
    Sent.BEAT:  Row(UNKNOWN_MEMBER_ID,       Does.BEAT,              FENCED_INSTANCE_ID),
    Sent.LEAVE: Row(UNKNOWN_MEMBER_ID,       Does.REMOVE,            FENCED_INSTANCE_ID),
    Sent.AWAY:  Row(UNKNOWN_MEMBER_ID,       Does.GO_AWAY,           FENCED_INSTANCE_ID),
}
# fmt: on

MESSAGES: Final = {
    UNKNOWN_MEMBER_ID: "the member is not known in the group",
    FENCED_INSTANCE_ID: "the instance id belongs to another member by now",
    UNRELEASED_INSTANCE_ID: "the instance id belongs to a member that has not left",
}


class Identity(NamedTuple):
    """`member`: the one that the heartbeat speaks of, or replaces; None if it is created."""

    does: Does | ErrorCode
    member: ConsumerMember | None


def sent(epoch: int) -> Sent:
    return Sent.JOIN if epoch == JOIN else Sent.BEAT if epoch > JOIN else Sent.LEAVE if epoch == LEAVE else Sent.AWAY


def identify(group: ConsumerGroup, request: HeartbeatRequest) -> Identity:
    kind = sent(request.epoch)
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        return Identity(DYNAMIC[kind].unknown if member is None else DYNAMIC[kind].itself, member)
    owner = group.static_members.get(request.instance_id)
    if owner is None:
        return Identity(STATIC[kind].unknown, group.members.get(request.member_id) if kind is Sent.JOIN else None)
    member = group.members[owner]
    if kind is Sent.JOIN and (member.is_away or member.profile.classic is not None):
        return Identity(Does.REPLACE, member)
    return Identity(STATIC[kind].itself if owner == request.member_id else STATIC[kind].other, member)


def epoch_is_valid(member: ConsumerMember, request: HeartbeatRequest) -> bool:
    """Whether the epoch is the member's. The one before is too, once: the reply with the new one was lost, if it owns nothing else."""
    holding = member.holding
    if request.epoch == holding.epoch:
        return True
    if request.epoch != holding.previous_epoch or request.epoch > holding.epoch or request.owned is None:
        return False
    return all(partition in holding.assigned.get(topic_id, {}) for topic_id, listed in request.owned.items() for partition in listed)
