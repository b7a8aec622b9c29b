"""Members that speak the classic protocol, in a group of the consumer protocol: the coordinator answers each request at once.

Such a member is told to rejoin by its heartbeats. Its JoinGroup is what a heartbeat is for others; its SyncGroup fetches its partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from coordinator.calls import JoinReply, JoinRequest, JoinWaiter, SyncReply, SyncRequest, SyncWaiter
from coordinator.classic.group import CONSUMER
from coordinator.classic.join import offers_protocol_twice
from coordinator.classic.kept import ALL_METADATA_MAX, MEMBER_BYTES, MEMBER_METADATA_MAX, PROTOCOL_BYTES, request_bytes, text_bytes
from coordinator.consumer.calls import JOIN, HeartbeatRequest
from coordinator.consumer.config import MigrationPolicy
from coordinator.consumer.downgrade import downgrade_with, ends_consumer_protocol
from coordinator.consumer.embedded import Subscription, assignment_bytes, subscription_of
from coordinator.consumer.group import NO_TARGET, profile_bytes
from coordinator.consumer.heartbeat import carry_out, change_profile, move, reconcile_member
from coordinator.consumer.member import UNRELEASED, UNREVOKED, ClassicPart
from coordinator.consumer.step import HeartbeatStep
from coordinator.facts import storable
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.consumer.group import ConsumerGroup
    from coordinator.consumer.keeper import Keeper
    from coordinator.consumer.member import ConsumerMember

NONE: Final = ErrorCode.NONE
UNKNOWN_MEMBER_ID: Final = ErrorCode.UNKNOWN_MEMBER_ID
FENCED_INSTANCE_ID: Final = ErrorCode.FENCED_INSTANCE_ID
REBALANCE_IN_PROGRESS: Final = ErrorCode.REBALANCE_IN_PROGRESS
INCONSISTENT_GROUP_PROTOCOL: Final = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class Sender(NamedTuple):
    """Who sent a JoinGroup: the member that it speaks of, None if it is new; whether that one is replaced."""

    member: ConsumerMember | None = None
    replaces: bool = False


# JoinGroup.


def join(keeper: Keeper, group: ConsumerGroup, request: JoinRequest, waiter: JoinWaiter) -> None:
    """Handle a JoinGroup to a group with members; it is answered at once, with the epoch of the member as its generation."""
    id, reply = admit(keeper, group, request)
    keeper.out.reply_join(waiter, id, reply)


def admit(keeper: Keeper, group: ConsumerGroup, request: JoinRequest) -> tuple[str, JoinReply]:
    """The member id and the reply. It names no leader and no members: the coordinator assigns."""
    error = join_refusal(keeper, group, request)
    if error:
        return "", JoinReply(error)
    id = request.member_id or keeper.new_member_id()
    if not request.member_id and request.needs_member_id and request.instance_id is None:
        return id, JoinReply(ErrorCode.MEMBER_ID_REQUIRED)
    sender = sender_of(group, request)
    if isinstance(sender, ErrorCode):
        return "", JoinReply(sender)
    protocol, metadata = request.protocols[0]
    subscription = subscription_of(metadata, keeper.topics)
    if subscription is None:
        return "", JoinReply(INCONSISTENT_GROUP_PROTOCOL)
    if not storable(id, request.client_id, request.client_host, *subscription.topics, *[name for name, _ in request.protocols]):
        return "", JoinReply(ErrorCode.UNKNOWN_SERVER_ERROR)
    step = HeartbeatStep(group, keeper.config_of(group.id), as_heartbeat(request, id, subscription), id, sender.member)
    step.classic = ClassicPart(request.session_timeout_ms, request.protocols)
    if sender.replaces and sender.member is not None:
        step.replace(sender.member)
    failed = change_profile(keeper, step)
    if failed is None and not downgrades(keeper, step, sender.member):
        failed = move(keeper, step)
        if failed is None:
            member = carry_out(keeper, step)
            keeper.stop_phases(member)
            keeper.start_sync(member)
    return ("", JoinReply(failed.error)) if failed is not None else (id, JoinReply(NONE, step.holding.epoch, CONSUMER, protocol))


def join_refusal(keeper: Keeper, group: ConsumerGroup, request: JoinRequest) -> int:
    """The error of a JoinGroup, whoever sent it; 0: none."""
    config = keeper.config_of(group.id)
    if config.migration_policy is MigrationPolicy.DISABLED:
        return INCONSISTENT_GROUP_PROTOCOL
    if request.member_id not in group.members and request.instance_id not in group.static_members and len(group.members) >= config.max_size:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if request.protocol_type != CONSUMER or offers_protocol_twice(request) or not is_supported(group, request):
        return INCONSISTENT_GROUP_PROTOCOL
    setting = exceeded_setting(keeper, group, request)
    if setting:
        keeper.out.limit_reached(setting, group.id, request.member_id, request.client_host, request_bytes(request))
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    return NONE


def is_supported(group: ConsumerGroup, request: JoinRequest) -> bool:
    """Whether one of the protocols is supported by all members that speak the classic protocol, the sender's last offer included."""
    offers = [{name for name, _ in part.protocols} for member in group.members.values() if (part := member.profile.classic) is not None]
    return any(all(name in offer for offer in offers) for name, _ in request.protocols)


def exceeded_setting(keeper: Keeper, group: ConsumerGroup, request: JoinRequest) -> str:
    """The setting that leaves no memory for what the sender of this JoinGroup would keep; "" if none does."""
    out = keeper.out
    size = request_bytes(request)
    if size > out.config.group_member_metadata_max_bytes:
        return MEMBER_METADATA_MAX
    member = group.members.get(request.member_id or group.static_members.get(request.instance_id or "", ""))
    if member is not None:
        protocols = () if member.profile.classic is None else member.profile.classic.protocols
        size -= MEMBER_BYTES + text_bytes(member.id) + profile_bytes(member.profile) + PROTOCOL_BYTES * len(protocols)
    return "" if out.has_memory(size) else ALL_METADATA_MAX


def sender_of(group: ConsumerGroup, request: JoinRequest) -> Sender | ErrorCode:
    """A dynamic member may bring any id. A static one is known by its instance: without a member id it replaces the one before, wherever that is."""
    if request.instance_id is None:
        return Sender(group.members.get(request.member_id))
    owner = group.static_members.get(request.instance_id)
    if not request.member_id:
        return Sender() if owner is None else Sender(group.members[owner], True)
    if owner is None:
        return UNKNOWN_MEMBER_ID
    return Sender(group.members[owner]) if owner == request.member_id else FENCED_INSTANCE_ID


def as_heartbeat(request: JoinRequest, id: str, subscription: Subscription) -> HeartbeatRequest:
    """The JoinGroup as the heartbeat that says the same. Members of the classic protocol have no expression and no wish for an assignor."""
    return HeartbeatRequest(
        request.group_id,
        id,
        JOIN,
        request.instance_id,
        subscription.rack_id,
        request.rebalance_timeout_ms,
        subscription.topics,
        "",
        None,
        subscription.owned,
        request.client_id,
        request.client_host,
    )


def downgrades(keeper: Keeper, step: HeartbeatStep, member: ConsumerMember | None) -> bool:
    """Whether the sender takes the place of the only member of the consumer protocol, so that the group becomes a classic one; it has, then."""
    if member is None or member.profile.classic is not None or step.request.instance_id is None:
        return False
    if not ends_consumer_protocol(keeper, step.group, [member], 1):
        return False
    stale = step.target_epoch < step.epoch
    if not stale:
        reconcile_member(keeper, step)
    return downgrade_with(keeper, step.group, member, step.id, step.profile, stale)


# SyncGroup and Heartbeat.


def find(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> tuple[ConsumerMember, ClassicPart] | ErrorCode:
    """The member that speaks the classic protocol, at this epoch; or the error."""
    if instance_id is not None:
        owner = group.static_members.get(instance_id)
        if owner != member_id:
            return UNKNOWN_MEMBER_ID if owner is None else FENCED_INSTANCE_ID
    member = group.members.get(member_id)
    if member is None or member.profile.classic is None:
        return UNKNOWN_MEMBER_ID
    return (member, member.profile.classic) if generation == member.holding.epoch else ErrorCode.ILLEGAL_GENERATION


def sync(keeper: Keeper, group: ConsumerGroup, request: SyncRequest, waiter: SyncWaiter) -> int:
    """Handle a SyncGroup; return its error if it was not answered. The assignments of the request are ignored."""
    found = find(group, request.member_id, request.instance_id, request.generation)
    if isinstance(found, ErrorCode):
        return found
    member, part = found
    protocol, metadata = part.protocols[0]
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, protocol):
        return INCONSISTENT_GROUP_PROTOCOL
    if member.holding.epoch < group.target_epoch and member.holding.state is not UNREVOKED:
        keeper.start_join(member)
        return REBALANCE_IN_PROGRESS
    keeper.stop_sync(member)
    keeper.restart_session(member)
    assignment = assignment_bytes(member.holding.assigned, keeper.topics, metadata)
    keeper.out.answer_sync(waiter, assignment, SyncReply(NONE, request.protocol_type, request.protocol_name))
    return NONE


def heartbeat(keeper: Keeper, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> int:
    """Handle a Heartbeat; return its error code."""
    found = find(group, member_id, instance_id, generation)
    if isinstance(found, ErrorCode):
        return found
    member, _ = found
    keeper.restart_session(member)
    if not must_rejoin(group, member):
        return NONE
    keeper.start_join(member)
    return REBALANCE_IN_PROGRESS


def must_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a JoinGroup would bring the member further: to a newer target, to its acknowledgement, or to partitions that are free by now."""
    holding = member.holding
    if holding.epoch < group.target_epoch or holding.state is UNREVOKED:
        return True
    return holding.state is UNRELEASED and not any(
        partition not in holding.assigned.get(topic_id, {}) and group.is_held(topic_id, partition)
        for topic_id, partitions in group.targets.get(member.id, NO_TARGET).items()
        for partition in partitions
    )
