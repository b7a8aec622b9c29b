"""A group member that behaves like a careful Java consumer: it handles every error code, and continues after its coordinator was killed.

It reports requests and replies to the ledger. One connection, one request at a time. It reconnects at once after a lost connection; a
member of a stable group then continues with a heartbeat and not with a JoinGroup.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, NamedTuple

from protocol.errors import ErrorCode
from protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.records import read_assignment, with_version
from tests.soak.actor import ANSWER_SECONDS, Actor, Retry
from tests.soak.ledger import Assignment, Ledger, Seat
from tests.soak.wire import Wire

TOPIC = "soak"
PROTOCOL = "range"
BEAT_SECONDS = 0.2


class Versions(NamedTuple):
    """The API versions of clients of one age."""

    find: int
    join: int
    sync: int
    heartbeat: int
    leave: int
    commit: int
    fetch: int


NEW = Versions(find=4, join=9, sync=5, heartbeat=4, leave=5, commit=9, fetch=9)
OLD = Versions(find=2, join=5, sync=3, heartbeat=3, leave=3, commit=7, fetch=5)  # the first versions with static members


class GroupPlan(NamedTuple):
    name: str
    partitions: int
    session_ms: int
    rebalance_ms: int


class Member(Actor):
    def __init__(self, port: int, ledger: Ledger, plan: GroupPlan, instance: str | None, number: int, randomness: random.Random) -> None:
        self.plan = plan
        self.instance = instance
        self.member_id = ""
        self.seat: Seat | None = None
        self.steady_run = -1  # the newest run of the broker that has confirmed the member's seat
        self.doing = "nothing yet"
        self.leaving = False
        self._wants_rebalance = False
        self._number = number
        self._ledger = ledger
        self._versions = randomness.choice((OLD, NEW))
        self._fetched = False
        self._rounds = 0
        super().__init__(port, f"client-{number}", randomness, ledger.report_violation)

    @property
    def name(self) -> str:
        return self.instance or self.member_id or f"newcomer {self._number}"

    def __repr__(self) -> str:
        seat = f"generation {self.seat.generation}" if self.seat else "no seat"
        return f"{self.name} of {self.plan.name} ({seat}, {self.doing})"

    # Events.

    @property
    def done(self) -> bool:
        return self._task.done()

    def call_for_rebalance(self) -> None:
        """Rejoin a stable group, like a leader that sees a new topic, or a member with a new subscription."""
        self._wants_rebalance = True

    # Main loop.

    async def _connected(self, wire: Wire) -> None:
        await self._find_coordinator()

    async def _work(self, wire: Wire) -> bool:
        if self.leaving:
            await self._leave()
            return False
        if self.seat is None:
            await self._join()
        else:
            await self._consume()
        return True

    async def _ask(self, request: Any, version: int) -> Any:
        assert self._wire is not None
        self.doing = type(request).__name__.removesuffix("Request")
        return await self._wire.ask(request, version, ANSWER_SECONDS + self.plan.rebalance_ms / 1000)

    def _react(self, api: str, code: int) -> None:
        """Handle the errors that all APIs share: returns if there was none, else raises Retry."""
        if not code:
            return
        self._ledger.answered(self.plan.name, self.name, api, code)
        match code:
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
                self.seat = None
            case ErrorCode.FENCED_INSTANCE_ID:  # fatal for a client; the ledger reports it, and the run goes on
                self.member_id = ""
                self.seat = None
            case ErrorCode.ILLEGAL_GENERATION | ErrorCode.REBALANCE_IN_PROGRESS:
                self.seat = None
            case ErrorCode.COORDINATOR_NOT_AVAILABLE | ErrorCode.NOT_COORDINATOR:
                self._drop_wire()
            case _:
                pass
        raise Retry

    async def _find_coordinator(self) -> None:
        group = self.plan.name
        version = self._versions.find
        request = FindCoordinatorRequest(group) if version < 4 else FindCoordinatorRequest(coordinator_keys=[group])
        reply = await self._ask(request, version)
        self._react("FindCoordinator", reply.error_code if version < 4 else reply.coordinators[0].error_code)

    # Joining.

    async def _join(self) -> None:
        plan = self.plan
        subscription = with_version(ConsumerProtocolSubscription([TOPIC], str(self._rounds).encode()), 1)
        reply = await self._ask(
            JoinGroupRequest(
                plan.name,
                plan.session_ms,
                plan.rebalance_ms,
                self.member_id,
                self.instance,
                "consumer",
                [JoinGroupRequestProtocol(PROTOCOL, subscription)],
            ),
            self._versions.join,
        )
        if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            return
        self._react("JoinGroup", reply.error_code)
        self.member_id = reply.member_id
        assignments = []
        if reply.leader == reply.member_id and not reply.skip_assignment:
            assignments = self._assign(reply.generation_id, [(member.group_instance_id or "", member.member_id) for member in reply.members])
        await self._sync(reply.generation_id, reply.protocol_name, assignments)

    def _assign(self, generation: int, members: list[tuple[str, str]]) -> list[SyncGroupRequestAssignment]:
        """A share for each member, in the order of instance and id, and the mark of this assignment."""
        self._rounds += 1
        mark = f"{self._number}.{self._rounds}.{generation}"
        members = sorted(members)
        shares: list[list[int]] = [[] for _ in members]
        for partition in range(self.plan.partitions):
            shares[partition % len(members)].append(partition)
        return [
            SyncGroupRequestAssignment(
                id,
                with_version(
                    ConsumerProtocolAssignment([ConsumerProtocolAssignmentTopicPartition(TOPIC, share)] if share else [], mark.encode()), 1
                ),
            )
            for (_, id), share in zip(members, shares, strict=True)
        ]

    async def _sync(self, generation: int, protocol: str, assignments: list[SyncGroupRequestAssignment]) -> None:
        broker_run, sent = self._ledger.broker_run, self._ledger.now
        request = SyncGroupRequest(self.plan.name, generation, self.member_id, self.instance, "consumer", protocol, assignments)
        reply = await self._ask(request, self._versions.sync)
        self._react("SyncGroup", reply.error_code)
        assignment_data = read_assignment(reply.assignment)
        partitions = tuple(sorted(partition for assigned_partition in assignment_data.assigned_partitions for partition in assigned_partition.partitions))
        assignment = Assignment((assignment_data.user_data or b"").decode(), partitions)
        self._ledger.synced(self.plan.name, self.name, generation, assignment, sent)
        self.seat = Seat(generation, assignment)
        self.steady_run = broker_run
        self._fetched = False

    async def _leave(self) -> None:
        if self.member_id:
            members = [MemberIdentity(self.member_id, self.instance)]
            reply = await self._ask(LeaveGroupRequest(self.plan.name, members, self.member_id), self._versions.leave)
            code = reply.error_code or (reply.members[0].error_code if reply.members else 0)
            if code != ErrorCode.UNKNOWN_MEMBER_ID:
                self._react("LeaveGroup", code)

    # In a generation.

    async def _consume(self) -> None:
        if self._wants_rebalance:
            self._wants_rebalance = False
            self._rounds += 1
            self.seat = None
            return
        await self._beat()
        if not self._fetched:
            await self._fetch()
        until = asyncio.get_running_loop().time() + BEAT_SECONDS * self._random.uniform(0.5, 1.5)
        while asyncio.get_running_loop().time() < until and not self.leaving:
            await self._commit()
            await asyncio.sleep(self._random.uniform(0.01, 0.08))

    def _seated(self) -> Seat:
        if self.seat is None:
            raise Retry
        return self.seat

    async def _beat(self) -> None:
        broker_run = self._ledger.broker_run
        request = HeartbeatRequest(self.plan.name, self._seated().generation, self.member_id, self.instance)
        reply = await self._ask(request, self._versions.heartbeat)
        self._react("Heartbeat", reply.error_code)
        self.steady_run = broker_run

    async def _fetch(self) -> None:
        partitions = list(self._seated().assignment.partitions)
        sent = self._ledger.now
        for partition, offset in (await self._stored_offsets(partitions)).items():
            self._ledger.fetched((self.plan.name, TOPIC, partition), offset, sent)
        self._fetched = True

    async def _stored_offsets(self, partitions: list[int]) -> dict[int, int]:
        if not partitions:
            return {}
        group = self.plan.name
        version = self._versions.fetch
        if version >= 8:
            topics = [OffsetFetchRequestTopics(TOPIC, partitions)]
            reply = (await self._ask(OffsetFetchRequest([OffsetFetchRequestGroup(group, topics=topics)]), version)).groups[0]
        else:
            reply = await self._ask(OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(TOPIC, partitions)]), version)
        self._react("OffsetFetch", reply.error_code)
        committed = {partition.partition_index: partition.committed_offset for partition in reply.topics[0].partitions if not partition.error_code}
        if len(committed) != len(partitions):
            self._ledger.report_violation(f"offsets of {self!r}: {[(partition.partition_index, partition.error_code) for partition in reply.topics[0].partitions]}")
        return committed

    async def _commit(self) -> None:
        seat = self._seated()
        if not seat.assignment.partitions:
            return
        partitions = self._random.sample(seat.assignment.partitions, self._random.randint(1, len(seat.assignment.partitions)))
        numbers = {partition: self._ledger.commit_sent((self.plan.name, TOPIC, partition)) for partition in partitions}
        parts = [OffsetCommitRequestPartition(partition, number, -1, f"by {self._number}") for partition, number in numbers.items()]
        topics = [OffsetCommitRequestTopic(TOPIC, parts)]
        broker_run = self._ledger.broker_run
        request = OffsetCommitRequest(self.plan.name, seat.generation, self.member_id, self.instance, topics=topics)
        reply = await self._ask(request, self._versions.commit)
        worst = 0
        for partition_reply in reply.topics[0].partitions:
            partition = (self.plan.name, TOPIC, partition_reply.partition_index)
            if not partition_reply.error_code:
                self._ledger.acknowledged(partition, numbers[partition_reply.partition_index])
                self.steady_run = max(self.steady_run, broker_run)
                continue
            worst = partition_reply.error_code
            if partition_reply.error_code not in (7, 14, 15, 16):
                self._ledger.refused(partition, numbers[partition_reply.partition_index])
        self._react("OffsetCommit", worst)
