"""OffsetCommit and OffsetFetch of a member. A member of the classic protocol encodes one OffsetCommit a generation, and then replaces only the offsets in it."""

from __future__ import annotations

import struct
from typing import Any, Final

from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

# After one of these errors a commit certainly had no effect; after any other error it may have had one.
REFUSING: Final = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
PLACEHOLDER: Final = 0x7E57_0FF5_E700_0000  # of the first offset in the encoded request; the others follow it

_OFFSET: Final = struct.Struct(">q")


class Commit:
    def __init__(self, group: str, generation: int, member_id: str, instance: str | None, owned: list[tuple[str, int]], version: int) -> None:
        self.member_state = generation, member_id, owned
        self.version = version
        self.partitions = [(group, topic, number) for topic, number in owned]
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for index, (topic, number) in enumerate(owned):
            by_topic.setdefault(topic, []).append(OffsetCommitRequestPartition(number, PLACEHOLDER + index, -1, ""))
        topics = [OffsetCommitRequestTopic(topic, partitions) for topic, partitions in by_topic.items()]
        self.message = OffsetCommitRequest(group, generation, member_id, instance if version >= 7 else None, -1, topics)
        self._body = bytearray(self.message.encode(version))
        self._at = [self._body.index(_OFFSET.pack(PLACEHOLDER + index)) for index in range(len(owned))]
        self._accepted: Any = None  # the last reply without an error

    def encode(self, values: list[int]) -> bytes:
        """The request with these offsets, in the order of `partitions`."""
        body = self._body
        for at, value in zip(self._at, values, strict=True):
            _OFFSET.pack_into(body, at, value)
        return bytes(body)

    def codes(self, reply: Any) -> list[int] | None:
        """The error code of each partition; None if no partition has an error."""
        if reply is self._accepted:
            return None
        answered = {(topic.name, each.partition_index): each.error_code for topic in reply.topics for each in topic.partitions}
        codes = [answered[topic, number] for _, topic, number in self.partitions]
        if any(code != ErrorCode.NONE for code in codes):
            return codes
        self._accepted = reply
        return None


def offset_fetch_with_epoch(group: str, member_id: str, epoch: int, owned: list[tuple[str, int]]) -> OffsetFetchRequest:
    """That of a member of the consumer protocol, from version 9."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in owned:
        by_topic.setdefault(topic, []).append(number)
    topics = [OffsetFetchRequestTopics(topic, numbers) for topic, numbers in by_topic.items()]
    return OffsetFetchRequest([OffsetFetchRequestGroup(group, member_id, epoch, topics)])


def offset_fetch_request(group: str, owned: list[tuple[str, int]], version: int) -> OffsetFetchRequest:
    by_topic: dict[str, list[int]] = {}
    for topic, number in owned:
        by_topic.setdefault(topic, []).append(number)
    if version >= 8:
        topics = [OffsetFetchRequestTopics(topic, numbers) for topic, numbers in by_topic.items()]
        return OffsetFetchRequest([OffsetFetchRequestGroup(group, None, -1, topics)])
    return OffsetFetchRequest(None, group, [OffsetFetchRequestTopic(topic, numbers) for topic, numbers in by_topic.items()])
