"""What a member of a group does after an error of its requests.

`tenure consume` follows this table, and docs/groups.md shows it, with the meanings from `words.py`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from protocol.errors import ErrorCode

E = ErrorCode


class Next(StrEnum):
    """The next step of the member."""

    REPEAT = "repeat the request after a pause"
    LOOK_UP = "ask for the coordinator again (FindCoordinator), and repeat the request there"
    TAKE_ID = "repeat the JoinGroup with the member id in the reply"
    REJOIN = "send JoinGroup with the same member id"
    JOIN_ANEW = "forget the member id, and send JoinGroup without one"
    START_OVER = "give up all partitions, and send a heartbeat with epoch 0 and the same member id"
    LEAVE_OUT = "go on as a member; repeat the request without what was refused"
    END = "stop: the same request gets the same answer"


class Remedy(NamedTuple):
    """`more`: what else the author of a client has to know; `rebalance`: whether the group rebalances."""

    next: Next
    more: str
    rebalance: str


NO: Final = "no"
REMEDIES: Final[dict[int, Remedy]] = {
    E.COORDINATOR_LOAD_IN_PROGRESS: Remedy(
        Next.REPEAT, "Heartbeats are answered 0 meanwhile, and SyncGroup 27. After the loading each member has a whole session to come back", NO
    ),
    E.COORDINATOR_NOT_AVAILABLE: Remedy(Next.LOOK_UP, "Keep the member id, the generation and the partitions", "no, if it is back within the session timeout"),
    E.NOT_COORDINATOR: Remedy(Next.LOOK_UP, "Keep the member id, the generation and the partitions: the new coordinator knows the members", NO),
    E.REQUEST_TIMED_OUT: Remedy(Next.REPEAT, "It is not known whether the commit was stored; storing it twice does no harm", NO),
    E.MEMBER_ID_REQUIRED: Remedy(Next.TAKE_ID, "Only dynamic members get this, and only at their first JoinGroup", "no, but the JoinGroup that follows does"),
    E.REBALANCE_IN_PROGRESS: Remedy(
        Next.REJOIN,
        "Within the rebalance timeout (max.poll.interval.ms), after the commit of what was read. An eager member gives up its partitions before, a cooperative one keeps them",
        "it runs already, and waits for this member",
    ),
    E.ILLEGAL_GENERATION: Remedy(
        Next.REJOIN,
        "The group has rebalanced without this member's notice: its partitions may have other owners, so that what it read since the last commit is read again",
        "no, unless it is the leader or its subscription has changed",
    ),
    E.UNKNOWN_MEMBER_ID: Remedy(
        Next.JOIN_ANEW,
        "The session expired, the member left, or an administrator removed it. Its partitions have other owners; a late commit is refused. A static member sends its group.instance.id again",
        "yes: its removal caused one, and its return causes another",
    ),
    E.GROUP_ID_NOT_FOUND: Remedy(Next.JOIN_ANEW, "The group was deleted, or never had members. OffsetCommit before version 9 has 22 instead", "yes, as after 25"),
    E.FENCED_INSTANCE_ID: Remedy(
        Next.END,
        "Another process has joined with this group.instance.id, and owns the partitions. Do not join again: the two would fence each other in turn. Give each process its own id",
        NO,
    ),
    E.GROUP_MAX_SIZE_REACHED: Remedy(
        Next.END, "The broker's log names the limit: group.max.size, for members of the consumer protocol group.consumer.max.size, or a limit of the members' metadata", "no for a newcomer. A member beyond group.max.size is removed; one with too much metadata keeps its place until its session ends"
    ),
    E.INCONSISTENT_GROUP_PROTOCOL: Remedy(
        Next.END, "Offer an assignor that all members have. To change it, deploy twice: first with both, then without the old one", NO
    ),
    E.INVALID_SESSION_TIMEOUT: Remedy(Next.END, "Take a session.timeout.ms within group.min.session.timeout.ms and group.max.session.timeout.ms", NO),
    E.INVALID_GROUP_ID: Remedy(Next.END, "Set group.id; it may not be empty", NO),
    E.GROUP_AUTHORIZATION_FAILED: Remedy(
        Next.END, "The user needs Read on the group. From a group with a roster: the group.instance.id is not listed", "no, until the session of a member ends that lost the right"
    ),
    E.TOPIC_AUTHORIZATION_FAILED: Remedy(Next.LEAVE_OUT, "The user needs Read on the topic", NO),
    E.UNKNOWN_TOPIC_OR_PARTITION: Remedy(Next.LEAVE_OUT, "The topic was deleted, or is not known there yet: repeat it once or twice", NO),
    E.UNKNOWN_TOPIC_ID: Remedy(Next.LEAVE_OUT, "The topic was deleted or created again: ask for its id again (Metadata) before the next commit", NO),
    E.OFFSET_METADATA_TOO_LARGE: Remedy(Next.LEAVE_OUT, "Commit it with shorter metadata (offset.metadata.max.bytes)", NO),
    E.UNSTABLE_OFFSET_COMMIT: Remedy(Next.REPEAT, "An open transaction has offsets of the group. Tenure serves no transactions, so only Kafka answers this", NO),
    E.NON_EMPTY_GROUP: Remedy(Next.END, "For DeleteGroups, and for OffsetDelete of a group that is none of consumers. Stop its members first", NO),
    E.GROUP_SUBSCRIBED_TO_TOPIC: Remedy(Next.END, "For OffsetDelete. Stop the members that subscribe to the topic first", NO),
    E.UNSUPPORTED_VERSION: Remedy(
        Next.END, "The broker has the consumer protocol switched off: use group.protocol=classic. A member of that protocol commits with version 9 or later", NO
    ),
    E.FENCED_MEMBER_EPOCH: Remedy(
        Next.START_OVER, "The member's epoch is not the group's: it was away, or a reply was lost. What it read since the last commit is read again", "no, if its subscription is the same"
    ),
    E.UNRELEASED_INSTANCE_ID: Remedy(
        Next.END, "Another member with this group.instance.id has not left. After a crash, join again when its session has ended", NO
    ),
    E.UNSUPPORTED_ASSIGNOR: Remedy(Next.END, "Name one of group.consumer.assignors in group.remote.assignor, or none", NO),
    E.STALE_MEMBER_EPOCH: Remedy(Next.REPEAT, "With the epoch of the next heartbeat's reply. Only commits and fetches of offsets get this", NO),
    E.INVALID_REGULAR_EXPRESSION: Remedy(Next.END, "The subscription's expression is not one of RE2; the message says what is wrong in it", NO),
    E.UNKNOWN_SERVER_ERROR: Remedy(
        Next.END, "The broker could not store the group or the offsets: a name that is not UTF-8, or a record that fits into no batch; its log says which", NO
    ),
}

# Only members of the consumer protocol (KIP-848) get these.
OF_CONSUMER_PROTOCOL: Final = (
    E.FENCED_MEMBER_EPOCH, E.UNRELEASED_INSTANCE_ID, E.UNSUPPORTED_ASSIGNOR, E.STALE_MEMBER_EPOCH, E.INVALID_REGULAR_EXPRESSION,
)  # fmt: skip


def joins_again(code: int) -> bool:
    """Whether a member joins its group again after this error."""
    return code in REMEDIES and REMEDIES[code].next in (Next.REJOIN, Next.JOIN_ANEW)


def loses_member_id(code: int) -> bool:
    """Whether the member joins without its member id then."""
    return code in REMEDIES and REMEDIES[code].next is Next.JOIN_ANEW
