"""A cluster as the verbs use it: its groups, topics and connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, NamedTuple

from broker.control import asking
from broker.control.fields import Refused
from broker.control.life import Life
from broker.control.local_client import LocalClient
from broker.groups.group_journal import GroupJournal
from broker.internal_topics import CONSUMER_OFFSETS
from broker.runtime.contain import Contained
from coordinator.classic.group import CONSUMER, Group
from coordinator.classic.member import Member
from coordinator.facts import read_offset
from protocol.batch import Record
from protocol.message import Message
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

POLL_SECONDS: Final = 0.002
LATEST: Final = -1  # in place of a time: the end of a partition


class Census(NamedTuple):
    """What advancing the clock may change."""

    members: list[tuple[str, str]]
    generations: dict[str, int]
    offsets: int
    starts: dict[str, int]


class Cluster(Life):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._client: LocalClient | None = None
        self._client_life = 0

    @property
    def kafka_id(self) -> str:
        """The cluster id that clients see."""
        return str(self.broker.stores.store.cluster_id)

    def running_or_refuse(self) -> None:
        if not self.running:
            raise Refused(409, f"cluster {self.id} does not run now", "it restarts, or has ended")

    async def until(self, condition: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until the condition holds; False: it does not within the time. While no broker runs, it does not."""
        deadline = time.monotonic() + timeout_ms / 1000
        while not (self.running and condition()):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    # Requests of its own.

    def _local_client(self) -> LocalClient:
        return LocalClient(self.broker.connections, self.broker.connection_context)

    async def request(self, request: Message, version: int | None = None) -> Any:
        """Send a request as a client of the broker, past all faults."""
        self.running_or_refuse()
        if self._client is None or self._client_life != self.lives:
            self._client, self._client_life = self._local_client(), self.lives
        try:
            return await self._client.call(request, version)
        except ConnectionError as error:
            self._client = None
            raise Refused(409, f"cluster {self.id}: {error}") from error

    # Groups.

    def journal_of(self, group_id: str) -> GroupJournal:
        journal: GroupJournal = self.broker.shards.journal_of(group_id)
        return journal

    def groups(self) -> dict[str, Group]:
        self.running_or_refuse()
        return {id: group for journal in self.broker.shards.journals for id, group in journal.shard.groups.items()}

    def group(self, id: str) -> Group | None:
        self.running_or_refuse()
        return self.journal_of(id).shard.groups.get(id)

    def group_document(self, group: Group) -> dict[str, Any]:
        return {
            "group": group.id,
            "state": group.state.shown,
            "generation": group.generation,
            "protocol": group.protocol_name,
            "leader": group.leader,
            "members": [member_document(group, member) for member in group.members.values()],
        }

    def expire(self, group: Group, member: Member) -> None:
        """End the member's session now: its deadline has come."""
        if member.join_waiter is not None or member.sync_waiter is not None:
            raise Refused(409, f"member {member.id} waits in a rebalance, where no session ends", "wait until the group is Stable")
        self.journal_of(group.id).shard.deadlines.set(member, self.broker.clock.tick())
        self.broker.turn.wake_by(self.broker.clock.now)

    async def rebalance(self, group: Group) -> None:
        await asking.rebalance(self.request, group.id)

    async def empty_and_delete(self, group: Group) -> None:
        await asking.empty_and_delete(self.request, group.id, group.members)

    def committed(self, group_id: str, topic: str, partition: int) -> int:
        """The committed offset; -1: there is none."""
        group = self.group(group_id)
        stored = group.offsets.get(topic) if group is not None else None
        value = stored.values.get(partition) if stored is not None else None
        return read_offset(value).offset if value is not None else -1

    async def lag(self, group: Group) -> dict[str, dict[str, int]]:
        """By topic and partition, of those that have a commit or that a member has. A partition without a commit counts from its first record."""
        wanted: dict[str, set[int]] = {topic: set(stored.values) for topic, stored in group.offsets.items()}
        for member in group.members.values():
            for topic, numbers in (member_document(group, member)["partitions"] or {}).items():
                wanted.setdefault(topic, set()).update(numbers)
        topics = self.topics()
        asked = [ListOffsetsTopic(name, [ListOffsetsPartition(number, -1, LATEST) for number in sorted(numbers)]) for name, numbers in wanted.items() if name in topics]
        reply = await self.request(ListOffsetsRequest(-1, 0, asked))
        return {
            topic.name: {str(part.partition_index): max(0, part.offset - self._position(group.id, topic.name, part.partition_index)) for part in topic.partitions}
            for topic in reply.topics
        }

    def _position(self, group_id: str, topic: str, partition: int) -> int:
        committed = self.committed(group_id, topic, partition)
        return committed if committed >= 0 else self.log_start(topic, partition)

    def coordinator_partition(self, group_id: str | None, partition: int | None) -> int:
        self.running_or_refuse()
        if (group_id is None) == (partition is None):
            raise Refused(400, "one of group and partition says which coordinator")
        if partition is None:
            return self.journal_of(group_id or "").partition
        if partition >= len(self.broker.shards.journals):
            raise Refused(404, f"there are {len(self.broker.shards.journals)} partitions of groups")
        return partition

    async def forget_coordinator(self, partition: int, ms: int) -> None:
        """Give up a partition of groups as a coordinator does that loses it, and load it again from its log after the time."""
        broker = self.broker
        journal = broker.shards.journals[partition]
        unloaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        journal.shard.abandon()
        journal.unload(lambda: None if unloaded.done() else unloaded.set_result(None))
        await unloaded
        assert self.loop is not None
        if ms:
            self.loop.call_later(ms / 1000, Contained(broker.shards.load), partition)
        else:
            broker.shards.load(partition)
            await self.until(lambda: not journal.refusal, 5000)

    # Topics.

    def topics(self) -> dict[str, int]:
        """The topics of users, with their numbers of partitions."""
        self.running_or_refuse()
        return {name: topic.partition_count for name, topic in sorted(self.broker.topics.by_name.items()) if not topic.internal}

    def topic_id(self, name: str) -> bytes:
        return bytes(self.broker.topics.by_name[name].id)

    def log_start(self, topic: str, partition: int) -> int:
        found = self.broker.partitions.find(topic, partition)
        return int(found.start_offset) if found is not None and not found.error else 0

    def read(self, topic: str, partition: int, offset: int) -> AsyncIterator[Record]:
        return asking.read(self.request, self.topic_id(topic), topic, partition, offset)

    def commits(self, group_id: str, topic: str) -> AsyncIterator[tuple[int, int]]:
        return asking.commits(self.read(CONSUMER_OFFSETS, self.journal_of(group_id).partition, 0), group_id, topic)

    def census(self) -> Census:
        groups = self.groups()
        return Census(
            [(group.id, member) for group in groups.values() for member in group.members],
            {group.id: group.generation for group in groups.values()},
            sum(len(stored.values) for group in groups.values() for stored in group.offsets.values()),
            {f"{name}-{number}": self.log_start(name, number) for name, count in self.topics().items() for number in range(count)},
        )

    def open_clients(self) -> list[dict[str, Any]]:
        now = self.clock.monotonic()
        return [
            {
                "connection": tap.number,
                "client_id": tap.client_id,
                "software": tap.software,
                "peer": tap.peer,
                "requests": tap.requests,
                "open_ms": round((now - tap.opened_at) * 1000),
                "idle_ms": round((now - tap.last_at) * 1000),
            }
            for tap in self.traffic.taps
        ]


def member_document(group: Group, member: Member) -> dict[str, Any]:
    from history.consumer import assigned_partitions  # not at a start, which has no members

    partitions = assigned_partitions(member.assignment) if group.protocol_type == CONSUMER else None
    by_topic: dict[str, list[int]] | None = None
    if partitions is not None:
        by_topic = {}
        for topic, number in partitions:
            by_topic.setdefault(topic, []).append(number)
    return {
        "member": member.id,
        "instance": member.instance_id,
        "client_id": member.client_id,
        "host": member.client_host,
        "session_timeout_ms": member.session_timeout_ms,
        "partitions": by_topic,
    }
