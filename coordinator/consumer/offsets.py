"""Who may commit and read the offsets of a consumer group: members by their epochs, tools while it has no members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.calls import Commit
from coordinator.offsets import metadata_too_long
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.consumer.group import ConsumerGroup
    from coordinator.consumer.keeper import Keeper
    from coordinator.consumer.member import ConsumerMember


def commit_refusal(keeper: Keeper, group: ConsumerGroup, commit: Commit) -> int:
    """The error of all partitions of this commit, 0 if it may be stored. Instance ids are not looked at."""
    if commit.generation < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(commit.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_classic = member.profile.classic is not None
    if not commit.names_epoch and not is_classic:
        return ErrorCode.UNSUPPORTED_VERSION
    epoch = member.holding.epoch
    if commit.generation == epoch or (0 <= commit.generation < epoch and held_since(keeper, member, commit)):
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH


def held_since(keeper: Keeper, member: ConsumerMember, commit: Commit) -> bool:
    """Whether the member has held each partition since the epoch of the commit: then it only missed the news of a later one (KIP-1251)."""
    holding = member.holding
    metadata_max = keeper.out.config.offset_metadata_max_bytes
    for name, partitions in commit.topics:
        topic = keeper.topics.by_name.get(name)
        if topic is None:
            return False
        assigned, pending = holding.assigned.get(topic.id, {}), holding.pending.get(topic.id, {})
        for partition in partitions:
            number, metadata = partition.partition_index, partition.committed_metadata
            since = assigned.get(number, pending.get(number))
            refused = metadata is not None and metadata_too_long(metadata, metadata_max)
            if not refused and (since is None or since > commit.generation):
                return False
    return True


def fetch_refusal(group: ConsumerGroup, member_id: str | None, epoch: int) -> int:
    """The error of an OffsetFetch that names a member, 0 if it may read. Without id and epoch it is a tool's."""
    if member_id is None:
        return ErrorCode.NONE if epoch < 0 else ErrorCode.UNKNOWN_SERVER_ERROR  # Kafka stumbles over such a request
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == member.holding.epoch:
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if member.profile.classic is not None else ErrorCode.STALE_MEMBER_EPOCH
