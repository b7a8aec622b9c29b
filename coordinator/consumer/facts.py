"""The changes of consumer groups in the record formats of Kafka's __consumer_offsets: kinds 3 to 8 and 16.

Tags that Kafka leaves out at their defaults are left out here too. The old record of kind 4 is only removed.
"""

from __future__ import annotations

from typing import Final

from coordinator.consumer.changes import (
    GONE,
    Change,
    EpochChange,
    ExpressionChange,
    HoldingChange,
    ProfileChange,
    Resolved,
    Target,
    TargetChange,
    TargetEpochChange,
)
from coordinator.consumer.member import ClassicPart, Held, Holding, MemberState, Profile
from coordinator.hold import Fact
from protocol.message import Message
from protocol.messages.consumer_offsets import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    TargetTopicPartitions,
)
from protocol.records import in_newest_version, read_record

# From changes to records.


def fact_of(group_id: str, change: Change) -> Fact:
    key, value = record_of(group_id, change)
    return in_newest_version(key), None if value is None else in_newest_version(value)


def record_of(group_id: str, change: Change) -> tuple[Message, Message | None]:
    if isinstance(change, ProfileChange):
        profile = change.profile
        return ConsumerGroupMemberMetadataKey(group_id, change.member_id), None if profile is None else profile_value(profile)
    if isinstance(change, HoldingChange):
        holding = change.holding
        return ConsumerGroupCurrentMemberAssignmentKey(group_id, change.member_id), None if holding is None else holding_value(holding)
    if isinstance(change, TargetChange):
        target = change.target
        return ConsumerGroupTargetAssignmentMemberKey(group_id, change.member_id), None if target is None else target_value(target)
    if isinstance(change, EpochChange):
        return ConsumerGroupMetadataKey(group_id), None if change.epoch == GONE else ConsumerGroupMetadataValue(change.epoch, change.hash)
    if isinstance(change, TargetEpochChange):
        gone = change.epoch == GONE
        value = None if gone else ConsumerGroupTargetAssignmentMetadataValue(change.epoch, change.at_ms)
        return ConsumerGroupTargetAssignmentMetadataKey(group_id), value
    if isinstance(change, ExpressionChange):
        resolved = change.resolved
        key = ConsumerGroupRegularExpressionKey(group_id, change.expression)
        return key, None if resolved is None else ConsumerGroupRegularExpressionValue(list(resolved.topics), resolved.topics_version, resolved.at_ms)
    return ConsumerGroupPartitionMetadataKey(group_id), None


def profile_value(profile: Profile) -> Message:
    classic = profile.classic
    return ConsumerGroupMemberMetadataValue(
        profile.instance_id,
        profile.rack_id,
        profile.client_id,
        profile.client_host,
        list(profile.topics),
        profile.expression,
        profile.rebalance_timeout_ms,
        profile.assignor,
        None if classic is None else ClassicMemberMetadata(classic.session_timeout_ms, [ClassicProtocol(*protocol) for protocol in classic.protocols]),
    )


def holding_value(holding: Holding) -> Message:
    return ConsumerGroupCurrentMemberAssignmentValue(
        holding.epoch, holding.previous_epoch, holding.state, held_value(holding.assigned), held_value(holding.pending)
    )


def held_value(held: Held) -> list[CurrentTopicPartitions]:
    return [CurrentTopicPartitions(topic_id, list(partitions), list(partitions.values())) for topic_id, partitions in held.items()]


def target_value(target: Target) -> Message:
    return ConsumerGroupTargetAssignmentMemberValue([TargetTopicPartitions(topic_id, list(partitions)) for topic_id, partitions in target.items()])


# From records to changes.

KEYS: Final = (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)


def is_of_consumers(key: Message) -> bool:
    return isinstance(key, KEYS)


def change_of(key: Message, value: bytes | None) -> Change | None:
    """The change of a record; None: it is of another kind, or an old record whose content is not needed."""
    if isinstance(key, ConsumerGroupMemberMetadataKey):
        return ProfileChange(key.member_id, None if value is None else read_profile(value))
    if isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
        return HoldingChange(key.member_id, None if value is None else read_holding(value))
    if isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
        return TargetChange(key.member_id, None if value is None else read_target(value))
    if isinstance(key, ConsumerGroupMetadataKey):
        if value is None:
            return EpochChange(GONE)
        epoch = read_record(ConsumerGroupMetadataValue, value)
        return EpochChange(epoch.epoch, epoch.metadata_hash)
    if isinstance(key, ConsumerGroupTargetAssignmentMetadataKey):
        if value is None:
            return TargetEpochChange(GONE)
        target = read_record(ConsumerGroupTargetAssignmentMetadataValue, value)
        return TargetEpochChange(target.assignment_epoch, target.assignment_timestamp)
    if isinstance(key, ConsumerGroupRegularExpressionKey):
        return ExpressionChange(key.regular_expression, None if value is None else read_resolved(value))
    return None


def read_profile(value: bytes) -> Profile:
    stored = read_record(ConsumerGroupMemberMetadataValue, value)
    classic = stored.classic_member_metadata
    return Profile(
        stored.instance_id,
        stored.rack_id,
        stored.client_id,
        stored.client_host,
        tuple(stored.subscribed_topic_names),
        stored.subscribed_topic_regex or "",
        stored.rebalance_timeout_ms,
        stored.server_assignor,
        None
        if classic is None
        else ClassicPart(classic.session_timeout_ms, tuple([(protocol.name, protocol.metadata) for protocol in classic.supported_protocols])),
    )


def read_holding(value: bytes) -> Holding:
    stored = read_record(ConsumerGroupCurrentMemberAssignmentValue, value)
    otherwise = max(0, stored.member_epoch)  # the assignment epochs of a record that has none
    return Holding(
        stored.member_epoch,
        stored.previous_member_epoch,
        MemberState.of(stored.state),
        read_held(stored.assigned_partitions, otherwise),
        read_held(stored.partitions_pending_revocation, otherwise),
    )


def read_held(stored: list[CurrentTopicPartitions], otherwise: int) -> Held:
    return {
        topic.topic_id: dict(zip(topic.partitions, topic.assignment_epochs, strict=False))
        if topic.assignment_epochs is not None and len(topic.assignment_epochs) == len(topic.partitions)
        else dict.fromkeys(topic.partitions, otherwise)
        for topic in stored
    }


def read_target(value: bytes) -> Target:
    stored = read_record(ConsumerGroupTargetAssignmentMemberValue, value)
    return {topic.topic_id: topic.partitions for topic in stored.topic_partitions}


def read_resolved(value: bytes) -> Resolved:
    stored = read_record(ConsumerGroupRegularExpressionValue, value)
    return Resolved(tuple(stored.topics), stored.metadata_version, stored.timestamp)
