"""A thousand members of one group in one process: each has its connection, and joins until all are in one generation."""

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


class CrowdMember:
    """One member."""

    def __init__(self, number: int, static: bool) -> None:
        self.instance = f"seat-{number:04}" if static else None
        self.member_id = ""
        self.generation = -1
        self.assignment = b""
        self.leads = False
        self.wire: Wire | None = None
        self.called_back = 0  # how often a heartbeat told it to rejoin

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

    async def beat(self) -> int:
        code: int = (await self.ask(HeartbeatRequest(GROUP, self.generation, self.member_id, self.instance), 4)).error_code
        self.called_back += code != 0
        return code

    async def take_part(self) -> None:
        """Join and sync until an assignment is there; a rebalance in between starts that over."""
        while await self.sync(await self.join()):
            pass


async def gather(port: int, count: int, static: bool) -> list[CrowdMember]:
    """All of them settled in one generation."""
    faces = [CrowdMember(number, static) for number in range(count)]
    for first in range(0, count, CONNECTS_AT_ONCE):
        await asyncio.gather(*(face.connect(port) for face in faces[first : first + CONNECTS_AT_ONCE]))
    await asyncio.gather(*(face.take_part() for face in faces))
    await settle(faces)
    return faces


async def settle(faces: list[CrowdMember]) -> None:
    """Members that must rejoin do so, until the group is stable."""
    while True:
        codes = await asyncio.gather(*(face.beat() for face in faces))
        late = [face for face, code in zip(faces, codes, strict=True) if code]
        if not late:
            break
        await asyncio.gather(*(face.take_part() for face in late))
    assert len({face.generation for face in faces}) == 1


def disperse(faces: list[CrowdMember]) -> None:
    for face in faces:
        if face.wire is not None:
            face.wire.close()
