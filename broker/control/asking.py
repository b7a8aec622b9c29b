"""What the control asks a cluster through its own protocol, whoever carries the requests: the one broker of this process, or several nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from broker.control.fields import Refused
from coordinator.facts import read_offset
from coordinator.policies.rebalance_request import REBALANCE_REQUEST
from protocol.batch import Record, iterate_headers, records
from protocol.errors import ErrorCode
from protocol.messages.consumer_offsets import OffsetCommitKey
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.records import read_offsets_key

READ_BYTES: Final = 4 << 20
GROUP_RESOURCE: Final = 32  # of configurations
SET: Final = 0  # the operation of IncrementalAlterConfigs

Ask = Callable[[Any], Awaitable[Any]]  # sends a request; its reply


class AnyMember(Protocol):
    @property
    def instance_id(self) -> str | None: ...


def check(code: int, about: str, message: str | None = None) -> None:
    """Raise Refused unless the code is 0."""
    if code:
        name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
        raise Refused(409, f"{about}: {name}", message or "")


async def rebalance(ask: Ask, group_id: str) -> None:
    """Have all members rejoin, as an administrator asks for it."""
    asked = AlterableConfig(REBALANCE_REQUEST.name, SET, "asked for by a test")
    reply = await ask(IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP_RESOURCE, group_id, [asked])]))
    check(reply.responses[0].error_code, f"group {group_id}", reply.responses[0].error_message)


async def empty_and_delete(ask: Ask, group_id: str, members: Mapping[str, AnyMember]) -> None:
    """Remove all members of a group, by their ids, and the group."""
    leavers = [MemberIdentity("" if member.instance_id else id, member.instance_id, "purged by a test") for id, member in members.items()]
    if leavers:
        await ask(LeaveGroupRequest(group_id, leavers))
    await ask(DeleteGroupsRequest([group_id]))


async def read(ask: Ask, topic_id: bytes, topic: str, partition: int, offset: int) -> AsyncIterator[Record]:
    """The records of a partition from this offset to its end."""
    while True:
        part = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=READ_BYTES)
        reply = await ask(
            FetchRequest(
                max_wait_ms=0, min_bytes=0, max_bytes=READ_BYTES, session_id=0, session_epoch=-1, topics=[FetchTopic(topic_id, topic, [part])], forgotten_topics_data=[]
            )
        )
        fetched = reply.responses[0].partitions[0] if reply.responses else None
        check(reply.error_code or (fetched.error_code if fetched is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"topic {topic} partition {partition}")
        data = bytes(fetched.records or b"") if fetched is not None else b""
        begin = offset
        at = 0
        for header in iterate_headers(data, 0, len(data)):
            for record in records(data, at):
                if record.offset >= begin:
                    yield record
            at += header.size
            offset = header.next_offset
        if offset == begin:
            return


async def commits(of_offsets_log: AsyncIterator[Record], group_id: str, topic: str) -> AsyncIterator[tuple[int, int]]:
    """The commits of a group for a topic in the order of the log, as far as compaction has left them: partition and offset."""
    async for record in of_offsets_log:
        key = read_offsets_key(record.key or b"")
        if isinstance(key, OffsetCommitKey) and (key.group, key.topic) == (group_id, topic) and record.value is not None:
            yield key.partition, read_offset(record.value).offset
