"""Facts, the durable changes of groups, in the record formats of Kafka's __consumer_offsets.

A group record has the state of the whole group (value version 3). An offset record is one committed offset (version 3, or 1
with an explicit expiry). Older and newer versions can be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from coordinator.calls import StoredOffset
from coordinator.classic.group import Group
from coordinator.classic.member import Member
from protocol.errors import ProtocolError
from protocol.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    TopicDeletionsKey,
    TopicDeletionsValue,
)
from protocol.records import in_newest_version, read_record, with_version

GROUP_KEY_VERSION: Final = 2
GROUP_VALUE_VERSION: Final = 3
OFFSET_KEY_VERSION: Final = 1

# A string in a record has its length in an int16. A character takes at most 4 bytes of UTF-8.
TEXT_BYTES_MAX: Final = 32_767
_CHARACTERS_SURELY_FIT: Final = TEXT_BYTES_MAX // 4

_TWO_BYTES: Final = Struct(">h").pack
_SIZE: Final = Struct(">h").unpack_from
_FOUR_BYTES: Final = Struct(">i").pack
_TIME_AND_COUNT: Final = Struct(">qi").pack
_TIMEOUTS_AND_SIZE: Final = Struct(">iii").pack
_EPOCH_AND_SIZE: Final = Struct(">ih").pack
_INT64: Final = Struct(">q")
_OFFSET_V3: Final = Struct(">hqih")  # version, offset, leader epoch, length of the metadata
PLAIN_OFFSET: Final = Struct(">hqihq").pack  # version 3 without metadata, commit time at its end
PARTITION: Final = _FOUR_BYTES  # the end of an offset key, for callers that inline `offset_key`
_OFFSET_V1: Final = Struct(">hqh")


def storable(*texts: str | None) -> bool:
    """Whether each text fits into a record. A member id may not fit although the client or instance id that it begins with does."""
    return not any(text is not None and len(text) > _CHARACTERS_SURELY_FIT and len(text.encode()) > TEXT_BYTES_MAX for text in texts)


# Groups


def group_key(group_id: str) -> bytes:
    return with_version(GroupMetadataKey(group_id), GROUP_KEY_VERSION)


def group_value(
    group: Group,
    members: Iterable[Member],
    leader: str | None,
    protocol: str | None,
    assignments: dict[str, bytes] | None = None,
) -> bytes:
    """Encode the group with the given members; `assignments` replaces the members' current ones."""
    out = [_TWO_BYTES(GROUP_VALUE_VERSION)]
    _write_text(out, group.protocol_type or "")
    out.append(_FOUR_BYTES(group.generation))
    _write_text(out, protocol)
    _write_text(out, leader)
    member_list = list(members)
    out.append(_TIME_AND_COUNT(group.state_ms, len(member_list)))
    for member in member_list:
        # `_write_text` is inlined: this loop takes most of the time of a rebalance.
        id = member.id.encode()
        client_id = member.client_id.encode()
        host = member.client_host.encode()
        subscription = member.metadata(protocol)
        assignment = member.assignment if assignments is None else assignments.get(member.id, b"")
        out += (_TWO_BYTES(len(id)), id)
        _write_text(out, member.instance_id)
        out += (
            _TWO_BYTES(len(client_id)),
            client_id,
            _TWO_BYTES(len(host)),
            host,
            _TIMEOUTS_AND_SIZE(member.rebalance_timeout_ms, member.session_timeout_ms, len(subscription)),
            subscription,
            _FOUR_BYTES(len(assignment)),
            assignment,
        )
    return b"".join(out)


def replace_generation(value: bytes, generation: int, state_ms: int) -> bytes:
    """Return the value of a group record with another generation and time."""
    at = 4 + _SIZE(value, 2)[0]  # after version and protocol type
    protocol_at = at + 4
    leader_at = protocol_at + 2 + _SIZE(value, protocol_at)[0]
    time_at = leader_at + 2 + _SIZE(value, leader_at)[0]
    return value[:at] + _FOUR_BYTES(generation) + value[protocol_at:time_at] + _INT64.pack(state_ms) + value[time_at + 8 :]


def _write_text(out: list[bytes], text: str | None) -> None:
    if text is None:
        out.append(b"\xff\xff")
    else:
        data = text.encode()
        out += (_TWO_BYTES(len(data)), data)


def read_group(value: bytes) -> GroupMetadataValue:
    return read_record(GroupMetadataValue, value)


def update_static_ids(value: bytes, static_members: dict[str, str]) -> bytes | None:
    """Return the value of a group record with the current member ids of static members; None if they have not changed.

    A static member returns with a new member id. A coordinator that takes over before the next group record must know that id:
    otherwise it would fence the running process.
    """
    stored = read_group(value)
    changed = False
    for member in stored.members:
        instance = member.group_instance_id
        now = static_members.get(instance, member.member_id) if instance is not None else member.member_id
        if now != member.member_id:
            if stored.leader == member.member_id:
                stored.leader = now
            member.member_id = now
            changed = True
    return with_version(stored, GROUP_VALUE_VERSION) if changed else None


# Offsets


def offset_key_prefix(group_id: str, topic: str) -> bytes:
    """The key of an offset record up to the partition."""
    return with_version(OffsetCommitKey(group_id, topic, 0), OFFSET_KEY_VERSION)[:-4]


def offset_key(prefix: bytes, partition: int) -> bytes:
    return prefix + PARTITION(partition)


def encode_after_offset(leader_epoch: int, metadata: bytes) -> bytes:
    """The bytes of an offset value between the offset and the commit time."""
    return _EPOCH_AND_SIZE(leader_epoch, len(metadata)) + metadata


def offset_value(offset: int, leader_epoch: int, metadata: bytes, commit_ms: int) -> bytes:
    return _OFFSET_V3.pack(3, offset, leader_epoch, len(metadata)) + metadata + _INT64.pack(commit_ms)


def expiring_offset_value(offset: int, metadata: bytes, commit_ms: int, expire_ms: int) -> bytes:
    """Version 1, the last with an explicit expiry; it has no leader epoch."""
    return _OFFSET_V1.pack(1, offset, len(metadata)) + metadata + _INT64.pack(commit_ms) + _INT64.pack(expire_ms)


def read_offset(value: bytes) -> StoredOffset:
    """Read version 3 directly, other versions by the generated decoder."""
    if value[:2] == b"\0\3":
        try:
            _, offset, leader_epoch, size = _OFFSET_V3.unpack_from(value, 0)
            if size >= 0:
                (commit_ms,) = _INT64.unpack_from(value, 16 + size)
                return StoredOffset(offset, leader_epoch, value[16 : 16 + size].decode("utf-8", "replace") if size else "", commit_ms)
        except Exception as error:
            raise ProtocolError("an offset record is cut short") from error
    stored = read_record(OffsetCommitValue, value)
    return StoredOffset(stored.offset, stored.leader_epoch, stored.metadata, stored.commit_timestamp, stored.expire_timestamp)


def deletions_fact(number: int) -> tuple[bytes, bytes | None]:
    """The fact that the offsets of topics deleted up to this number are removed."""
    return in_newest_version(TopicDeletionsKey(0)), in_newest_version(TopicDeletionsValue(number))


def read_deletions(value: bytes) -> int:
    return read_record(TopicDeletionsValue, value).number
