"""Encode OffsetCommit and OffsetFetch replies directly: an object per partition would cost more than everything else.

The bytes equal those of the generated messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from coordinator import read_offset
from coordinator.committed import TopicOffsets
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitResponse
from protocol.messages.offset_fetch import OffsetFetchResponse
from protocol.wire import (
    BYTES,
    UNWRITABLE,
    Steps,
    put_compact_count,
    put_compact_text,
    put_legacy_count,
    put_legacy_text,
    put_uuid,
    unwritable,
    uvarint_bytes,
)

_INDEX: Final = Struct(">i").pack
_CODE: Final = Struct(">h").pack
_CODE_AND_TAGS: Final = Struct(">hB").pack
_INDEX_AND_CODE: Final = Struct(">ih").pack
_INDEX_CODE_AND_TAGS: Final = Struct(">ihB").pack
_METADATA_SIZE: Final = Struct(">h").unpack_from  # in a stored offset
_OFFSET_AND_EPOCH: Final = Struct(">qi").pack

_NO_THROTTLE: Final = bytes(4)
_NO_TAGS: Final = b"\0"
_NO_OFFSET: Final = _OFFSET_AND_EPOCH(-1, -1)

# The first version with each field.
COMMIT_THROTTLE_FROM: Final = 3
COMMIT_TOPIC_IDS_FROM: Final = 10  # in place of names
FETCH_ERROR_FROM: Final = 2
FETCH_THROTTLE_FROM: Final = 3
FETCH_EPOCH_FROM: Final = 5
FETCH_FLEXIBLE_FROM: Final = OffsetFetchResponse.FLEXIBLE_FROM
FETCH_GROUPS_FROM: Final = 8
FETCH_TOPIC_IDS_FROM: Final = 10  # in place of names

TopicKey = str | bytes  # how a request names a topic: its name, or its id

# Nearly all stored offsets have version 3 (`coordinator.facts`): offset, leader epoch and metadata follow the version, encoded as in
# the reply.
_USUAL_VERSION: Final = 3
_METADATA_AT: Final = 16
# In the steps of a long reply, other requests are answered between so many partitions.
_PARTITIONS_PER_STEP: Final = 16
_STEP_COST: Final = 2
PARTITION_BYTES_MIN: Final = 16  # in a reply to OffsetFetch
_NO_METADATA_BYTES: Final = 24  # the size of a stored offset without metadata


class CommitReply:
    """The reply to a commit whose partitions all have the same error, mostly 0: the offsets are stored."""

    __slots__ = ("_error", "_topics")

    def __init__(self, topics: Sequence[tuple[TopicKey, list[OffsetCommitRequestPartition]]], error: int = 0) -> None:
        self._topics = topics
        self._error = error

    def encode(self, version: int) -> bytes:
        out: list[bytes] = []
        for _ in self.encode_in_steps(out, version):
            pass
        return b"".join(out)

    def encode_in_steps(self, out: list[bytes], version: int) -> Steps[None]:
        if version >= COMMIT_THROTTLE_FROM:
            out.append(_NO_THROTTLE)
        error = self._error
        try:
            if version >= OffsetCommitResponse.FLEXIBLE_FROM:
                put_compact_count(out, len(self._topics))
                for topic, partitions in self._topics:
                    yield _STEP_COST + len(partitions) // _PARTITIONS_PER_STEP
                    if isinstance(topic, bytes):
                        put_uuid(out, topic)
                    else:
                        put_compact_text(out, topic)
                    put_compact_count(out, len(partitions))
                    out += [_INDEX_CODE_AND_TAGS(partition.partition_index, error, 0) for partition in partitions]
                    out.append(_NO_TAGS)
                out.append(_NO_TAGS)
            else:
                put_legacy_count(out, len(self._topics))
                for topic, partitions in self._topics:
                    yield _STEP_COST + len(partitions) // _PARTITIONS_PER_STEP
                    put_legacy_text(out, str(topic))
                    put_legacy_count(out, len(partitions))
                    out += [_INDEX_AND_CODE(partition.partition_index, error) for partition in partitions]
        except UNWRITABLE as unfit:
            raise unwritable("OffsetCommitResponse", version, unfit) from unfit


# Name or id of the topic, partitions, the stored offset of each (or None), and the error of partitions without offset.
FetchedTopic = tuple[TopicKey, Sequence[int], Sequence[bytes | None], int]
# Group id, topics and error.
FetchedGroup = tuple[str, list[FetchedTopic], int]


def read_topic(topic: TopicKey, stored: TopicOffsets | None, partitions: Sequence[int]) -> FetchedTopic:
    """The stored offsets of these partitions."""
    if stored is None:
        return without_offsets(topic, partitions, ErrorCode.NONE)
    find = stored.values.get
    return topic, partitions, [find(partition) for partition in partitions], ErrorCode.NONE


def read_whole_topic(topic: TopicKey, stored: TopicOffsets) -> FetchedTopic:
    return topic, list(stored.values), list(stored.values.values()), ErrorCode.NONE


def without_offsets(topic: TopicKey, partitions: Sequence[int], error: int) -> FetchedTopic:
    return topic, partitions, [None] * len(partitions), error


class OffsetFetchReply:
    """The reply to an OffsetFetch; before version 8 it has one group."""

    __slots__ = ("groups", "partitions")

    def __init__(self, groups: list[FetchedGroup]) -> None:
        self.groups = groups
        self.partitions = 0  # their number, in all groups

    def encode(self, version: int) -> bytes:
        out: list[bytes] = []
        for _ in self.encode_in_steps(out, version):
            pass
        return b"".join(out)

    def encode_in_steps(self, out: list[bytes], version: int) -> Steps[None]:
        yield _STEP_COST
        if version >= FETCH_THROTTLE_FROM:
            out.append(_NO_THROTTLE)
        try:
            if version >= FETCH_FLEXIBLE_FROM:
                if version >= FETCH_GROUPS_FROM:
                    put_compact_count(out, len(self.groups))
                for group_id, topics, error in self.groups:
                    if version >= FETCH_GROUPS_FROM:
                        put_compact_text(out, group_id)
                    yield from _put_compact(out, topics)
                    out.append(_CODE_AND_TAGS(error, 0))
                if version >= FETCH_GROUPS_FROM:
                    out.append(_NO_TAGS)
            else:
                ((_, topics, error),) = self.groups
                yield from _put_legacy(out, topics, version)
                if version >= FETCH_ERROR_FROM:
                    out.append(_CODE(error))
        except UNWRITABLE as unfit:
            raise unwritable("OffsetFetchResponse", version, unfit) from unfit


def _put_compact(out: list[bytes], topics: list[FetchedTopic]) -> Steps[None]:
    put_compact_count(out, len(topics))
    for topic, partitions, values, error in topics:
        if isinstance(topic, bytes):
            put_uuid(out, topic)
        else:
            put_compact_text(out, topic)
        put_compact_count(out, len(partitions))
        no_offset = b""
        for at in range(0, len(partitions), _PARTITIONS_PER_STEP):
            yield _STEP_COST
            end = at + _PARTITIONS_PER_STEP
            for partition, value in zip(partitions[at:end], values[at:end], strict=True):
                if value is None:
                    no_offset = no_offset or _NO_OFFSET + b"\1" + _CODE_AND_TAGS(error, 0)
                    out.append(_INDEX(partition) + no_offset)
                elif len(value) == _NO_METADATA_BYTES and value[1] == _USUAL_VERSION:
                    out.append(_INDEX(partition) + value[2:14] + b"\1\0\0\0")
                else:
                    offset_and_epoch, metadata = _split_offset(value)
                    n = len(metadata) + 1
                    length = BYTES[n] if n < 128 else uvarint_bytes(n)
                    out.append(_INDEX(partition) + offset_and_epoch + length + metadata + b"\0\0\0")
        out.append(_NO_TAGS)


def _put_legacy(out: list[bytes], topics: list[FetchedTopic], version: int) -> Steps[None]:
    put_legacy_count(out, len(topics))
    shown_bytes = 12 if version >= FETCH_EPOCH_FROM else 8  # offset and epoch, or the offset alone
    for topic, partitions, values, error in topics:
        put_legacy_text(out, str(topic))
        put_legacy_count(out, len(partitions))
        for at in range(0, len(partitions), _PARTITIONS_PER_STEP):
            yield _STEP_COST
            end = at + _PARTITIONS_PER_STEP
            for partition, value in zip(partitions[at:end], values[at:end], strict=True):
                if value is None:
                    out.append(_INDEX(partition) + _NO_OFFSET[:shown_bytes] + b"\0\0" + _CODE(error))
                else:
                    offset_and_epoch, metadata = _split_offset(value)
                    out.append(_INDEX(partition) + offset_and_epoch[:shown_bytes] + _CODE(len(metadata)) + metadata + b"\0\0")


def _split_offset(value: bytes) -> tuple[bytes, bytes]:
    """Split a stored offset into offset and leader epoch, as sent in the reply, and metadata."""
    if value[1] == _USUAL_VERSION:
        (size,) = _METADATA_SIZE(value, 14)
        if size >= 0:
            return value[2:14], value[_METADATA_AT : _METADATA_AT + size]
    stored = read_offset(value)
    return _OFFSET_AND_EPOCH(stored.offset, stored.leader_epoch), stored.metadata.encode()
