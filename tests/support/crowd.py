"""A thousand members of one group in one process: each has its connection, and rejoins until all are in one generation."""

from __future__ import annotations

import asyncio
from typing import Any

from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.soak.wire import Wire

GROUP = "crowd"
PROTOCOL = "range"
TIMEOUT_MS = 120_000
ANSWER_SECONDS = 90
CONNECTS_AT_ONCE = 100
BEAT_SECONDS = 1


class CrowdMember:
    """A member on a connection of its own."""

    def __init__(self, number: int, static: bool) -> None:
        self.instance = f"seat-{number:04}" if static else None
        self.member_id = ""
        self.generation = -1
        self.assignment = b""
        self.leads = False
        self.wire: Wire | None = None
        self.rejoin_errors = 0  # how often a heartbeat told it to rejoin

    async def connect(self, port: int) -> None:
        if self.wire is not None:
            self.wire.close()
        self.wire = await Wire.open(port, "crowd")

    async def ask(self, request: Any, version: int) -> Any:
        assert self.wire is not None
        return await self.wire.ask(request, version, ANSWER_SECONDS)

    async def join(self) -> Any:
        protocols = [JoinGroupRequestProtocol(PROTOCOL, bytes(60))]
        request = JoinGroupRequest(GROUP, TIMEOUT_MS, TIMEOUT_MS, self.member_id, self.instance, "crowd", protocols)
        reply = await self.ask(request, 9)
        if reply.error_code == 79:
            self.member_id = reply.member_id
            return await self.join()
        assert reply.error_code == 0, reply
        self.member_id = reply.member_id
        self.generation = reply.generation_id
        self.leads = reply.leader == reply.member_id
        return reply

    async def sync(self, joined: Any) -> int:
        members = joined.members if self.leads and not joined.skip_assignment else []
        assignments = [SyncGroupRequestAssignment(member.member_id, member.member_id.encode()) for member in members]
        reply = await self.ask(SyncGroupRequest(GROUP, self.generation, self.member_id, self.instance, "crowd", PROTOCOL, assignments), 5)
        self.assignment = reply.assignment
        code: int = reply.error_code
        return code

    async def heartbeat(self) -> int:
        code: int = (await self.ask(HeartbeatRequest(GROUP, self.generation, self.member_id, self.instance), 4)).error_code
        self.rejoin_errors += code != 0
        return code

    async def take_part(self) -> None:
        """Join and sync until the member has an assignment; after a rebalance meanwhile, join again."""
        while await self.sync(await self.join()):
            pass


async def gather(port: int, count: int, static: bool) -> list[CrowdMember]:
    """Join all members until they are stable in one generation.

    The first members may get assignments before the last have joined: they heartbeat until all are in, and rejoin after a heartbeat with an error.
    """
    members = [CrowdMember(number, static) for number in range(count)]
    joining = set(members)

    async def take_part_until_all_do(member: CrowdMember) -> None:
        await member.take_part()
        joining.discard(member)
        while joining:
            await asyncio.sleep(BEAT_SECONDS)
            if await member.heartbeat():
                await member.take_part()

    for first in range(0, count, CONNECTS_AT_ONCE):
        await asyncio.gather(*(member.connect(port) for member in members[first : first + CONNECTS_AT_ONCE]))
    await asyncio.gather(*(take_part_until_all_do(member) for member in members))
    await settle(members)
    return members


async def settle(members: list[CrowdMember]) -> None:
    """Heartbeat all members, and rejoin those that get an error, until no heartbeat gets one."""
    while True:
        codes = await asyncio.gather(*(member.heartbeat() for member in members))
        unsettled = [member for member, code in zip(members, codes, strict=True) if code]
        if not unsettled:
            break
        await asyncio.gather(*(member.take_part() for member in unsettled))
    assert len({member.generation for member in members}) == 1


def disperse(members: list[CrowdMember]) -> None:
    for member in members:
        if member.wire is not None:
            member.wire.close()
