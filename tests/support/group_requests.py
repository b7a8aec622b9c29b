"""Group requests with defaults, and the parts of replies that tests check."""

from __future__ import annotations

from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.group_harness import GroupClient, GroupHarness

CONSUMER = "consumer"
COMMIT_VERSIONS, FETCH_VERSIONS = range(2, 11), range(1, 11)  # versions of OffsetCommit and OffsetFetch


def joining(
    group: str = "g",
    id: str = "",
    instance: str | None = None,
    protocols: tuple[tuple[str, bytes], ...] = (("range", b"topics"),),
    session: int = 10_000,
    rebalance: int = 20_000,
) -> JoinGroupRequest:
    offers = [JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols]
    return JoinGroupRequest(group, session, rebalance, id, instance, CONSUMER, offers)


def syncing(id: str, generation: int = 1, assigned: dict[str, bytes] | None = None, instance: str | None = None) -> SyncGroupRequest:
    assignments = [SyncGroupRequestAssignment(member, data) for member, data in (assigned or {}).items()]
    return SyncGroupRequest("g", generation, id, instance, CONSUMER, "range", assignments)


def joined(harness: GroupHarness, peer: GroupClient, request: JoinGroupRequest, version: int = 9) -> Any:
    """The reply to a JoinGroup whose join phase ends at once."""
    peer.send(request, version)
    harness.pass_ms(0)
    reply = peer.reply()
    if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = reply.member_id
        return joined(harness, peer, request, version)
    return reply


def join_stable_group(harness: GroupHarness, peer: GroupClient, instance: str | None = None) -> str:
    """The id of the only member of the stable group "g"."""
    reply = joined(harness, peer, joining(instance=instance), 5)
    peer.ask(syncing(reply.member_id, assigned={reply.member_id: b"mine"}, instance=instance), 5)
    return str(reply.member_id)


def committing(group: str = "g", generation: int = -1, id: str = "", partitions: tuple[int, ...] = (0,), topic: str = "t") -> OffsetCommitRequest:
    requested = [OffsetCommitRequestPartition(number, 5, -1, "") for number in partitions]
    return OffsetCommitRequest(group, generation, id, None, -1, [OffsetCommitRequestTopic(topic, requested)])


def committing_topics(*topics: tuple[str, list[tuple[int, int, str | None]]], version: int = 9, retention: int = -1) -> OffsetCommitRequest:
    requested = [
        OffsetCommitRequestTopic(name, [OffsetCommitRequestPartition(index, offset, 3 if version >= 6 else -1, text) for index, offset, text in offsets])
        for name, offsets in topics
    ]
    return OffsetCommitRequest("g", -1, "", None, retention, requested)


def fetching(group: str, version: int) -> OffsetFetchRequest:
    if version >= 8:
        return OffsetFetchRequest([OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics("t", [0, 1])])])
    return OffsetFetchRequest(None, group, [OffsetFetchRequestTopic("t", [0, 1])])


def codes_of_commit(reply: Any) -> dict[tuple[str, int], int]:
    return {(topic.name, partition.partition_index): partition.error_code for topic in reply.topics for partition in topic.partitions}


def refuse_everything(harness: GroupHarness, refusal: int) -> None:
    for journal in harness.shards.journals:
        journal.refusal = refusal


def fetch_offsets(peer: GroupClient, version: int, *topics: tuple[str, list[int]], everything: bool = False) -> Any:
    if version >= 8:
        requested = None if everything else [OffsetFetchRequestTopics(name, partitions) for name, partitions in topics]
        (reply,) = peer.ask(OffsetFetchRequest([OffsetFetchRequestGroup("g", topics=requested)]), version).groups
    else:
        of_one_group = None if everything else [OffsetFetchRequestTopic(name, partitions) for name, partitions in topics]
        reply = peer.ask(OffsetFetchRequest(None, "g", of_one_group), version)
    assert reply.error_code == 0
    return {
        (topic.name, partition.partition_index): (partition.committed_offset, partition.committed_leader_epoch, partition.metadata, partition.error_code)
        for topic in reply.topics
        for partition in topic.partitions
    }
