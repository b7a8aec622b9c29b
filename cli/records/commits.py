"""Fetches and commits a group's offsets for a member."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from cli.client import Exit, Failure, TopicPartition, by_topic, check, failure
from cli.client.remedies import joins_again
from cli.records.heartbeats import Seat
from cli.records.membership import Member
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

if TYPE_CHECKING:
    from cli.client import Cluster

PAUSE_SECONDS: Final = 0.1
RETRIABLE: Final = frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def committed_offsets(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The committed offsets of the group. Waits for pending transactions."""
    topics = by_topic(partitions)
    if not topics:
        return {}
    request = OffsetFetchRequest(
        [OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(name, numbers) for name, numbers in topics.items()])],
        group,
        [OffsetFetchRequestTopic(name, numbers) for name, numbers in topics.items()],
        require_stable=True,
    )
    deadline = time.monotonic() + cluster.timeout
    while True:
        reply = cluster.send_to_coordinator(group, request)
        group_reply = reply.groups[0] if reply.groups else reply
        check(group_reply.error_code, f"group {group}")
        entries = {(topic.name, entry.partition_index): entry for topic in group_reply.topics for entry in topic.partitions}
        unstable = [entry for entry in entries.values() if entry.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT]
        if not unstable:
            for (topic, partition), entry in entries.items():
                check(entry.error_code, f"group {group}, {topic}-{partition}")
            return {tp: entry.committed_offset for tp, entry in entries.items() if entry.committed_offset >= 0}
        if time.monotonic() >= deadline:
            raise Failure(Exit.AGAIN, f"group {group}: the offsets depend on an open transaction; try again")
        time.sleep(PAUSE_SECONDS)


class Commits:
    """The offsets to commit: of printed records that are not committed yet."""

    def __init__(self, cluster: Cluster, member: Member, *, enabled: bool) -> None:
        self._cluster = cluster
        self._member = member
        self._enabled = enabled
        self._due: dict[TopicPartition, int] = {}
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        return bool(self._due)

    @property
    def seconds_since_commit(self) -> float:
        return time.monotonic() - self._last

    def add(self, tp: TopicPartition, offset: int) -> None:
        if self._enabled:
            self._due[tp] = offset

    def take_uncommitted(self) -> list[TopicPartition]:
        """Remove the uncommitted offsets; return their partitions."""
        dropped = list(self._due)
        self._due.clear()
        return dropped

    def commit(self, seat: Seat) -> bool:
        """Commit; return whether the seat (the member's place in this generation) is still valid. Offsets that could not be committed stay due."""
        self._last = time.monotonic()
        if not self._due:
            return True
        reply = self._cluster.send_to_coordinator(self._member.group, commit_request(self._member.group, seat, self._due))
        seat_valid = True
        for topic in reply.topics:
            for entry in topic.partitions:
                tp = (topic.name, entry.partition_index)
                if entry.error_code == ErrorCode.NONE:
                    self._due.pop(tp, None)
                elif joins_again(entry.error_code) or entry.error_code == ErrorCode.FENCED_INSTANCE_ID:
                    seat_valid = seat_valid and not self._member.must_rejoin_after(entry.error_code)
                elif entry.error_code not in RETRIABLE:
                    raise failure(entry.error_code, f"group {self._member.group}, {tp[0]}-{tp[1]}")
        return seat_valid


def commit_request(group: str, seat: Seat, offsets: Mapping[TopicPartition, int]) -> OffsetCommitRequest:
    topics = [
        OffsetCommitRequestTopic(name, [OffsetCommitRequestPartition(number, offsets[name, number]) for number in numbers])
        for name, numbers in by_topic(offsets).items()
    ]
    return OffsetCommitRequest(group, seat.generation, seat.member_id, seat.instance_id, topics=topics)
