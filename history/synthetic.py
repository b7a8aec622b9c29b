"""The target of a consumer group as the value of a classic group record: members with their topics and partitions, and the epoch as generation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from history.compared import MemberIdentity
from history.consumer import CONSUMER, SERVER_SIDE
from protocol.messages.consumer_offsets import GroupMetadataValue, MemberMetadata
from protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from protocol.records import with_version

SESSION_UNKNOWN: Final = -1  # the coordinator's setting: no record has it


class Member(NamedTuple):
    identity: MemberIdentity
    rebalance_timeout_ms: int
    topics: Sequence[str]
    target: Mapping[str, Sequence[int]]


def group_value(epoch: int, at_ms: int, members: Iterable[Member], votes: Iterable[str]) -> GroupMetadataValue:
    """`votes`: the assignors that members ask for. Records do not say which one the coordinator took."""
    asked = sorted(set(votes))
    protocol = f"{SERVER_SIDE} {'/'.join(asked)}" if asked else SERVER_SIDE
    listed = [_member(member) for member in members]
    return GroupMetadataValue(CONSUMER, epoch, protocol if listed else None, None, at_ms, listed)


def _member(member: Member) -> MemberMetadata:
    assigned = [ConsumerProtocolAssignmentTopicPartition(topic, sorted(numbers)) for topic, numbers in sorted(member.target.items())]
    id, instance_id, client_id, host = member.identity
    return MemberMetadata(
        id,
        instance_id,
        client_id,
        host,
        member.rebalance_timeout_ms,
        SESSION_UNKNOWN,
        with_version(ConsumerProtocolSubscription(sorted(member.topics)), 0),
        with_version(ConsumerProtocolAssignment(assigned), 0),
    )
