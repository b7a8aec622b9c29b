"""Many clients at once, over sockets, with a broker in the test's event loop."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.metadata import MetadataRequest
from tests.broker.fastpath.test_commit import commit
from tests.broker.fastpath.test_offset_fetch import fetching
from tests.support.group_requests import joining, syncing
from tests.support.in_loop import AsyncClient, InLoopBroker

pytestmark = pytest.mark.asyncio


class Member:
    """A consumer: joins until it is in a generation, and syncs."""

    def __init__(self, client: AsyncClient, instance: str | None = None) -> None:
        self.client = client
        self.instance = instance
        self.id = ""
        self.generation = -1

    async def rebalance(self) -> bytes:
        """Join and sync until the member has an assignment (its own id), which is returned."""
        while True:
            reply = await self.client.ask(joining(id=self.id, instance=self.instance), 9)
            if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.id = reply.member_id
                continue
            assert reply.error_code == 0
            self.id, self.generation = reply.member_id, reply.generation_id
            assignments = {member.member_id: member.member_id.encode() for member in reply.members}
            reply = await self.client.ask(syncing(self.id, self.generation, assignments, self.instance), 5)
            if not reply.error_code:
                return bytes(reply.assignment)
            assert reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS

    async def live(self) -> None:
        """Send heartbeats until cancelled, and rejoin whenever a reply demands it."""
        while True:
            reply = await self.client.ask(HeartbeatRequest("g", self.generation, self.id, self.instance), 4)
            if reply.error_code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
                await self.rebalance()


async def members(served: InLoopBroker, count: int, static: bool = False) -> list[Member]:
    return [Member(await served.connect(), f"i{number}" if static else None) for number in range(count)]


async def create_topic(served: InLoopBroker) -> None:
    client = await served.connect()
    reply = await client.ask(CreateTopicsRequest([CreatableTopic("t", 3, 1, [], [])], 10_000), 7)
    assert reply.topics[0].error_code == 0


async def test_members_that_join_one_by_one_end_in_one_generation(served: InLoopBroker) -> None:
    living: list[asyncio.Task[None]] = []
    group = await members(served, 4)
    for member in group:
        assert await member.rebalance() == member.id.encode()
        living.append(asyncio.create_task(member.live()))
    while len({member.generation for member in group}) > 1:
        await asyncio.sleep(0)
    for task in living:
        task.cancel()
    await asyncio.gather(*living, return_exceptions=True)
    (shard,) = [journal.shard for journal in served.server.broker.shards.journals if "g" in journal.shard.groups]
    assert set(shard.groups["g"].members) == {member.id for member in group}


@pytest.mark.parametrize("seed", range(3))
async def test_replies_of_one_chunk_leave_in_the_order_of_their_requests(served: InLoopBroker, seed: int) -> None:
    """The requests take fast paths and the usual path, and some wait: for the log, other members or records."""
    await create_topic(served)
    random = Random(seed)
    (member,) = await members(served, 1, static=True)
    await member.rebalance()
    for offset in range(40):
        kinds: list[tuple[Any, int]] = [
            (HeartbeatRequest("g", member.generation, member.id, member.instance), 4),
            (commit(member.id, offset, generation=member.generation), 9),
            (fetching(9), 9),
            (MetadataRequest(None), 9),
            (ApiVersionsRequest(), 2),
            (FindCoordinatorRequest("g"), 2),
        ]
        chunk = random.choices(kinds, k=random.randint(1, 8))
        member.client.send(*chunk)
        for _ in chunk:
            assert getattr(await member.client.reply(), "error_code", 0) == 0


async def test_answered_requests_survive_a_restart(served: InLoopBroker) -> None:
    await create_topic(served)
    group = await members(served, 3)
    requests = [commit("", number, (number,), generation=-1) for number in range(3)]
    await asyncio.gather(*[member.client.ask(request, 9) for member, request in zip(group, requests, strict=True)])
    await served.stop()
    await served.start()
    client = await served.connect()
    reply = await client.ask(fetching(9, [0, 1, 2]), 9)
    while reply.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        reply = await client.ask(fetching(9, [0, 1, 2]), 9)
    committed = {partition.partition_index: partition.committed_offset for topic in reply.groups[0].topics for partition in topic.partitions}
    assert committed == {0: 0, 1: 2, 2: 4}  # `commit` adds the partition


async def test_a_parked_member_is_answered_when_the_broker_stops(served: InLoopBroker) -> None:
    first, second = await members(served, 2)
    await first.rebalance()
    second.client.send((joining(), 3))  # begins a rebalance, in which the first member never rejoins
    waiting = asyncio.create_task(second.client.reply())
    while not any(journal.shard.groups.get("g") and journal.shard.groups["g"].parked_joins for journal in served.server.broker.shards.journals):
        await asyncio.sleep(0)
    stopping = asyncio.create_task(served.stop())
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    await stopping


async def test_a_client_disconnecting_within_a_request_does_not_affect_others(served: InLoopBroker) -> None:
    first, second = await members(served, 2)
    assert await first.rebalance()
    frame = second.client.frame(joining(), 3)
    for end in range(0, len(frame), 7):
        async with await served.connect() as broken:
            broken._writer.write(frame[:end])
            await broken._writer.drain()
    assert (await first.client.ask(HeartbeatRequest("g", first.generation, first.id), 4)).error_code == 0
    reply = await first.client.ask(LeaveGroupRequest("g", [MemberIdentity(first.id, None, None)]), 5)
    assert reply.error_code == 0
