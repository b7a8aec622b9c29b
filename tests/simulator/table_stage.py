"""A broker in virtual time, which a test kills at any moment, and static members that act at given milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from broker.groups.group_journal import GroupJournal
from coordinator import Note
from coordinator.notes import Cause, ShardChange
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.kinds import NoteKind
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from simulator.client import Client, ClientConnection, Process, Request
from simulator.network import Network
from simulator.node import Node
from simulator.styles import subscription
from simulator.world import MS, SECOND, World

GROUP: Final = "g"
GROUP_RESOURCE: Final = 32
SESSION_MS: Final = 6_000
REBALANCE_MS: Final = 20_000
BEAT_MS: Final = 500
DOWN_MS: Final = 200  # how long a killed broker stays down
REQUEST_NS: Final = 60 * SECOND


class Rebalance(NamedTuple):
    at_ms: int
    cause: Cause


class Stage:
    """A broker in virtual time, and the rebalances and loads that it notes; moments are in milliseconds since `begin`."""

    def __init__(self) -> None:
        self.world = World(1)
        self.network = Network(self.world)
        self.node = Node(self.world, {"offsets.flush": "always", "offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 500})
        self.node.observers.append(self._noted)
        self.epoch_ms = self.node.wall_ms
        self.began_ms = 0
        self.rebalances: list[Rebalance] = []
        self.loads: list[int] = []
        self.joins: list[tuple[int, str]] = []  # (moment, instance) of each JoinGroup by a restarted process
        self.listed: list[str] = []  # the instances of the leader's last assignment
        self.node.start()
        self.advance_to(2_000)

    @property
    def now_ms(self) -> int:
        return self.world.now // MS - self.began_ms

    def begin(self, in_ms: int) -> None:
        """Let moment 0, the first row of the table, be `in_ms` milliseconds from now; forget earlier rebalances, joins and loads."""
        self.began_ms = self.world.now // MS + in_ms
        self.rebalances.clear()
        self.joins.clear()
        self.loads.clear()

    def advance_to(self, moment_ms: int) -> None:
        moment = (moment_ms + self.began_ms) * MS
        self.world.run_until(moment)
        self.node.check()

    def schedule(self, moment_ms: int, call: Callable[..., object], *arguments: Any) -> None:
        self.world.at((moment_ms + self.began_ms) * MS, call, *arguments)

    def kill(self, power_fails: bool) -> None:
        self.node.crash(power_fails)
        self.world.after(DOWN_MS * MS, self.node.start)

    def set_policy(self, name: str, value: str) -> None:
        wire = ClientConnection(self.world, self.network, self.node, "operator", "10.0.0.9")
        resource = AlterConfigsResource(GROUP_RESOURCE, GROUP, [AlterableConfig(name, 0, value)])
        request = wire.send(IncrementalAlterConfigsRequest([resource], False), 1, REQUEST_NS)
        self.advance_to(self.now_ms + 500)
        assert request.reply is not None
        assert not request.reply.responses[0].error_code

    def _noted(self, node: Node, journal: GroupJournal, note: Note) -> None:
        body: Any = note.body
        moment = note.at_ms - self.epoch_ms - self.began_ms
        if note.kind == NoteKind.STATE_CHANGE and body.to_state == State.PREPARING:
            self.rebalances.append(Rebalance(moment, Cause(body.reason)))
        elif note.kind == NoteKind.COORDINATOR and body.what == ShardChange.LOADED:
            self.loads.append(moment)


class Player(Client):
    """A static member. It heartbeats every BEAT_MS, rejoins after an error that demands it, and reconnects after a lost connection."""

    def __init__(self, stage: Stage, instance: str, beats_at_ms: int = 0) -> None:
        """`beats_at_ms`: how long after each whole multiple of BEAT_MS it sends its heartbeat."""
        super().__init__(stage.world, instance)
        self.stage = stage
        self.instance = instance
        self.beats_at_ms = beats_at_ms
        self.id = ""
        self.generation = -1
        self.assignment = b""
        self.has_assignment = False
        self.wire: ClientConnection | None = None

    def start(self) -> None:
        """A new process."""
        self.id, self.generation, self.has_assignment = "", -1, False
        self.run(self._member_loop())

    def kill(self) -> None:
        self.end()
        if self.wire is not None:
            self.wire.close()

    def _member_loop(self) -> Process:
        while True:
            if self.wire is None or not self.wire.open:
                self.wire = ClientConnection(self.world, self.stage.network, self.stage.node, self.instance, "10.0.0.1")
                if not self.wire.open:
                    yield 100 * MS
                    continue
            if self.has_assignment:
                yield BEAT_MS * MS - (self.world.now - self.beats_at_ms * MS) % (BEAT_MS * MS)
                yield from self._beat(self.wire)
            else:
                yield from self._join(self.wire)

    def _send(self, wire: ClientConnection, message: Any, version: int) -> Request:
        return wire.send(message, version, REQUEST_NS)

    def _join(self, wire: ClientConnection) -> Process:
        if self.generation < 0:
            self.stage.joins.append((self.stage.now_ms, self.instance))
        protocols = [JoinGroupRequestProtocol("range", subscription(["t"]))]
        request = self._send(wire, JoinGroupRequest(GROUP, SESSION_MS, REBALANCE_MS, self.id, self.instance, "consumer", protocols), 9)
        yield request
        if request.lost or request.reply.error_code:
            if not request.lost and request.reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.id, self.generation = "", -1
            yield 100 * MS
            return
        reply = request.reply
        self.id, self.generation = reply.member_id, reply.generation_id
        assignments = []
        if reply.leader == self.id and not reply.skip_assignment:
            self.stage.listed = sorted(str(member.group_instance_id) for member in reply.members)
            assignments = [SyncGroupRequestAssignment(member.member_id, str(member.group_instance_id).encode()) for member in reply.members]
        request = self._send(wire, SyncGroupRequest(GROUP, self.generation, self.id, self.instance, "consumer", "range", assignments), 5)
        yield request
        if request.lost or request.reply.error_code:
            yield 100 * MS
            return
        self.assignment = request.reply.assignment
        self.has_assignment = True

    def _beat(self, wire: ClientConnection) -> Process:
        request = self._send(wire, HeartbeatRequest(GROUP, self.generation, self.id, self.instance), 4)
        yield request
        if request.lost or request.reply.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            return
        assert request.reply.error_code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID)
        self.has_assignment = False
        if request.reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.id, self.generation = "", -1
