"""The members of the made-up week as connections to a broker: each goes on with the member id that it has in the data, so nothing rebalances.

They send heartbeats, and take part in rebalances that others cause, but read and commit nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from struct import unpack
from typing import Any, Final

from cli.client.remedies import REMEDIES, Next
from pipeline.virtual.assigning import ASSIGNORS, TopicPartition, assigned_partitions, assignment_bytes, subscriber, subscription_bytes
from protocol.headers import encode_request, skip_response_header
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

CONSUMER: Final = "consumer"
PAUSE_SECONDS: Final = 0.5
LOST: Final = (OSError, EOFError)
# The requests in their newest version; the broker is of this checkout.
RESPONSES: Final[dict[type[Any], type[Any]]] = {
    HeartbeatRequest: HeartbeatResponse, JoinGroupRequest: JoinGroupResponse, SyncGroupRequest: SyncGroupResponse,
}  # fmt: skip


class LiveMember:
    """`truth`: the member as in `members` of the file of true events. `partitions`: the topics of its group, each with its number of partitions."""

    def __init__(self, group: str, generation: int, truth: Mapping[str, Any], partitions: Mapping[str, int]) -> None:
        self.group = group
        self.generation = generation
        self.member_id: str = truth["member"]
        self.owned: list[TopicPartition] = [(topic, number) for topic, number in truth["owned"]]
        self._instance: str | None = truth["instance"]
        self._client_id: str = truth["client_id"]
        self._assignors: list[str] = truth["assignors"]
        self._topics = sorted(truth["topics"])
        self._session_ms: int = truth["session_ms"]
        self._rebalance_ms: int = truth["rebalance_ms"]
        self._heartbeat_seconds: float = truth["heartbeat_ms"] / 1000
        self._partitions = partitions
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._count = 0

    async def run(self, host: str, port: int, gone: Callable[[LiveMember, int], None]) -> None:
        """Be a member until cancelled, or until the group refuses it; `gone` then gets the error code."""
        code = 0
        try:
            while True:
                try:
                    if self._writer is None:
                        self._reader, self._writer = await asyncio.open_connection(host, port)
                    code = await self._step(code)
                except LOST:
                    self._close()
                    await asyncio.sleep(PAUSE_SECONDS)
                if step_after(code) is Next.END:
                    return gone(self, code)
        finally:
            self._close()

    async def _step(self, code: int) -> int:
        """The next request after this error code, and pauses; return the error code of its reply."""
        step = step_after(code)
        if step is Next.JOIN_ANEW:
            self.member_id = ""
        if step in (Next.JOIN_ANEW, Next.REJOIN, Next.TAKE_ID):
            return await self._join()
        await asyncio.sleep(PAUSE_SECONDS if step is not None else self._heartbeat_seconds)
        reply: HeartbeatResponse = await self._ask(HeartbeatRequest(self.group, self.generation, self.member_id, self._instance))
        return reply.error_code

    async def _join(self) -> int:
        metadata = subscription_bytes(self._topics, self.owned)
        protocols = [JoinGroupRequestProtocol(name, metadata) for name in self._assignors]
        reply: JoinGroupResponse = await self._ask(
            JoinGroupRequest(self.group, self._session_ms, self._rebalance_ms, self.member_id, self._instance, CONSUMER, protocols)
        )
        self.member_id = reply.member_id or self.member_id
        if reply.error_code:
            return reply.error_code
        self.generation = reply.generation_id
        assignments = []
        if reply.leader == self.member_id and not reply.skip_assignment:
            members = [subscriber(member.member_id, member.group_instance_id, member.metadata) for member in reply.members]
            seats = ASSIGNORS[reply.protocol_name or self._assignors[0]](members, self._partitions)
            assignments = [SyncGroupRequestAssignment(id, assignment_bytes(places)) for id, places in seats.items()]
        synced: SyncGroupResponse = await self._ask(
            SyncGroupRequest(self.group, self.generation, self.member_id, self._instance, CONSUMER, reply.protocol_name, assignments)
        )
        if not synced.error_code:
            self.owned = assigned_partitions(synced.assignment)
        return synced.error_code

    async def _ask(self, request: Any) -> Any:
        assert self._reader is not None
        assert self._writer is not None
        key, version = request.API_KEY, request.VERSIONS[1]
        flexible = version >= request.FLEXIBLE_FROM
        self._count += 1
        self._writer.write(encode_request(key, version, flexible, self._count, self._client_id, request.encode(version)))
        (size,) = unpack(">i", await self._reader.readexactly(4))
        frame = await self._reader.readexactly(size)
        return RESPONSES[type(request)].decode(frame, skip_response_header(key, flexible, frame, 4), version)[0]

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


def step_after(code: int) -> Next | None:
    if not code:
        return None
    return REMEDIES[code].next if code in REMEDIES else Next.END


def living(truth: Mapping[str, Any]) -> list[LiveMember]:
    """All members that were alive at the end of the week."""
    partitions = {topic: len(ends) for topic, ends in truth["topics"].items()}
    return [LiveMember(name, group["generation"], member, partitions) for name, group in truth["groups"].items() for member in group["members"]]
