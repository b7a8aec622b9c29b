"""Model consumers, static and dynamic, which join, sync, heartbeat, commit, read offsets, restart and leave as real ones do.

Two processes may run under one instance id.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from coordinator.classic.subscription import EMPTY_ASSIGNMENT
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from simulator.client import RETRIED, ClientConnection, Process, Request
from simulator.commit import Commit, offset_fetch_request
from simulator.commit_results import settle_commit
from simulator.lookups import BACKOFF_NS
from simulator.member import Member
from simulator.plan import plural
from simulator.rebalances import Rebalances
from simulator.scene import Scene
from simulator.styles import PROTOCOLS, SESSION_FACTOR, Settings, Style, assignment, read_assignment, subscription
from simulator.world import MS, SECOND, Broken, Promise

REQUEST_NS: Final = 30 * SECOND
JOIN_EXTRA_NS: Final = 5 * SECOND
TAKE_OVER_LATE: Final = 0.2  # the minimum probability of a late SyncGroup, for a member that an error made rejoin
JOIN: Final = Promise("join", "JoinGroup is never answered with REBALANCE_IN_PROGRESS")
ERRORS: Final = Promise("errors", "members get only the error codes that Kafka's protocol has for the API")


class Consumer(Member):
    def __init__(self, scene: Scene, group: str, name: str, instance: str | None, settings: Settings, style: Style) -> None:
        super().__init__(scene.world, group, name, instance, settings)
        self._scene = scene
        self._configured = settings
        self.style = style
        self.address = f"10.0.{scene.world.random.randrange(250)}.{scene.world.random.randrange(250)}"
        self.protocol = ""
        self.user_data: bytes | None = None
        self.rejoin_announced_at = -1  # when an error last made it rejoin
        self.retired = False  # it never starts again
        self._commit: Commit | None = None
        self.must_find_coordinator = False
        self.poll_stops_at = 1 << 62  # from then on it only heartbeats, and does not rejoin in a rebalance

    # Processes.

    def start(self) -> None:
        """Start a new process, which knows only its instance id."""
        self.member_id = ""
        self.generation = -1
        self.has_assignment = self.fenced = False
        self.owned = []
        self.poll_stops_at = 1 << 62
        self.rejoin_announced_at = -1
        self._choose_topics()
        if self._scene.plan.varied_sessions:
            session_ns = self._configured.session_ns * self.world.random.choice((1, SESSION_FACTOR))
            self.settings = self._configured._replace(session_ns=session_ns)
        if self.instance is not None:
            self._scene.policies.process_starts(self.group, self.instance, self.topics)
        self.world.trace(f"{self.name}: starts", self.group)
        self.run(self._work())

    def restart(self) -> None:
        """Start a new process, unless one runs already."""
        if not self.retired and (not self.running or self.fenced):
            self.end()
            self.start()

    def restart_later(self) -> None:
        self.world.after(self.world.between(0, 2 * self.settings.session_ns), self.restart)

    def _choose_topics(self) -> None:
        plan = self._scene.plan.policies
        if plan is None:
            return
        names = [topic for topic, _ in self.settings.topics]
        if plan.other_topics:
            self.topics = names if not self.world.chance(plan.other_topics) else self.world.random.sample(names, 1)
        if plan.user_data:
            self.user_data = self.world.random.randbytes(4)

    def kill(self) -> None:
        if self.running:
            self.world.trace(f"{self.name}: kill -9", self.group)
        self.end()
        self.has_assignment = False
        if self.wire is not None:
            self.wire.close()

    def close(self, leave: bool) -> None:
        """Close the consumer in order. `leave`: with LeaveGroup."""
        if not self.running:
            return
        self.world.trace(f"{self.name}: closes{', and leaves' if leave else ''}", self.group)
        self.end()
        self.has_assignment = False
        wire = self.wire
        if wire is not None and wire.open and leave and self.member_id:
            member = MemberIdentity(self.member_id, self._instance_id)
            message = LeaveGroupRequest(self.group, [member]) if self.style.leave >= 3 else LeaveGroupRequest(self.group, None, self.member_id)
            wire.send(message, self.style.leave, REQUEST_NS).when_settled(lambda reply: wire.close())
            self._scene.sessions.removed(self.group, self.member_id)
        elif wire is not None:
            wire.close()

    def disconnect(self) -> None:
        if self.wire is not None and self.wire.stream is not None:
            self.wire.stream.reset()

    def twin(self, style: Style) -> Consumer:
        """A second process with the same instance id."""
        return Consumer(self._scene, self.group, f"{self.name}'", self.instance, self.settings, style)

    @property
    def _instance_id(self) -> str | None:
        return None if self.style.omits_instance else self.instance

    def _protocols(self) -> list[JoinGroupRequestProtocol]:
        return [JoinGroupRequestProtocol(name, subscription(self.topics, self.user_data)) for name in PROTOCOLS]

    def _work(self) -> Process:
        world = self.world
        yield world.between(0, 50 * MS)
        while not self.fenced:
            wire = self.wire
            if wire is None or not wire.open or self.must_find_coordinator:
                self.must_find_coordinator = False
                wire = yield from self._scene.lookups.reach_coordinator(wire, self.name, self.address, self.group)
                if wire is None:
                    continue
                self.wire = wire
            if not self.has_assignment:
                yield from self._join(wire)
            else:
                yield from self._steady(wire)

    # Joining.

    def _join(self, wire: ClientConnection) -> Process:
        scene, settings, world = self._scene, self.settings, self.world
        if self.owned and self.member_id and not scene.course.faults_over and world.chance(scene.plan.late_revocations):
            yield from self._revoke_late(wire)
            if self.fenced or not wire.open:
                return
        if scene.plan.new_user_data and world.chance(scene.plan.new_user_data):
            self.user_data = world.random.randbytes(4)  # as the assignor "sticky" does: it stores a generation in its user data
        message = JoinGroupRequest(
            self.group,
            settings.session_ns // MS,
            settings.rebalance_ns // MS,
            self.member_id,
            self.instance,
            "consumer",
            self._protocols(),
        )
        request = wire.send(message, self.style.join, settings.rebalance_ns + settings.session_ns + JOIN_EXTRA_NS)
        if self.instance is not None and not self.member_id:
            request.when_settled(scene.instances.claims(self.group, self.instance))
        scene.policies.absences.request_sent(self.group, self.instance, wire.arrives_at)
        yield request
        if request.lost:
            wire.close()
            return
        reply: JoinGroupResponse = request.reply
        code = reply.error_code
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            raise Broken(JOIN, f"{self.name}: JoinGroup is answered with REBALANCE_IN_PROGRESS", self.group)
        if code:
            yield from self._join_refused(wire, code, reply.member_id, request)
            return
        if reply.generation_id != self.generation:
            self.rejoin_announced_at = -1
        self.member_id = reply.member_id
        self.generation = reply.generation_id
        self.protocol = reply.protocol_name or ""
        if not scene.course.is_void(request):
            scene.replies.joined(self.group, request)
            scene.policies.joined(self, request, reply)
            if self.instance is not None:
                scene.instances.joined(self.group, self.instance, self.member_id, request.sent)
        assignments: list[SyncGroupRequestAssignment] = []
        self.leads = reply.leader == self.member_id
        if self.leads:
            if not reply.members:
                raise Broken(Rebalances.promise, f"{self.name} leads generation {self.generation}, and does not receive its members", self.group)
            if scene.coordinators.served_since(self.group, request.sent):  # otherwise the generation may be lost, and its number used for other members
                scene.replies.listed(self.group, reply)
            if not reply.skip_assignment:
                assignments = self._assign(reply)
            if not scene.course.faults_over and world.chance(scene.plan.leader_dies):
                world.count("leader died", 1)
                self.restart_later()
                self.kill()
                yield SECOND  # the process has ended
            elif scene.plan.late_leader_syncs and not scene.course.faults_over and world.chance(scene.plan.late_leader_syncs):  # meanwhile the followers' SyncGroups are parked
                pause = world.between(0, settings.rebalance_ns)
                if scene.course.on_late_leader is not None:
                    scene.course.on_late_leader(self.group, world.now + pause)
                yield pause
        elif not scene.course.faults_over and world.chance(max(scene.plan.late_syncs, TAKE_OVER_LATE) if self.rejoin_announced_at >= 0 else scene.plan.late_syncs):
            yield world.between(0, 2 * settings.rebalance_ns)
        if scene.plan.early_commits and self.owned and wire.open and world.chance(scene.plan.early_commits):
            yield from self._commit_early(wire)
        yield from self._sync(wire, assignments)

    def _revoke_late(self, wire: ClientConnection) -> Process:
        """Commit the offsets of the revoked partitions late, perhaps after the rebalance has ended without this member.

        Before the commit, send heartbeats as a client with a heartbeat thread does, until one gets another error than REBALANCE_IN_PROGRESS.
        """
        world = self.world
        commit_at = world.now + world.between(0, 2 * self.settings.rebalance_ns)
        beat = HeartbeatRequest(self.group, self.generation, self.member_id, self._instance_id)
        code = int(ErrorCode.NONE)
        while code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS) and world.now + self.settings.heartbeat_ns < commit_at:
            yield self.settings.heartbeat_ns
            if not wire.open:
                return
            request = wire.send(beat, self.style.heartbeat, REQUEST_NS)
            self._scene.policies.absences.request_sent(self.group, self.instance, wire.arrives_at)
            yield request
            if request.lost:
                return
            code = request.reply.error_code
        yield max(commit_at - world.now, 0)
        if wire.open:
            yield self._commit_offsets(wire)

    def _join_refused(self, wire: ClientConnection, code: int, member_id: str, request: Request) -> Process:
        self.world.count(f"JoinGroup {code}")
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = member_id
            if not self._scene.course.faults_over and self.world.chance(self._scene.plan.abandoned_ids):  # the member id is never used
                self.world.count("abandoned member id", 1)
                if self.world.chance(self._scene.plan.abandoned_ids_leave):  # as Java's client does when it is closed
                    yield from self._scene.replies.leave(wire, self.group, [MemberIdentity(self.member_id, None)])
                self.member_id = ""
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._scene.replies.unknown(self.group, request)
            self.member_id = ""
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fenced()
        elif code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self._end_excluded(request)
            yield SECOND  # the process has ended
        elif code in RETRIED:
            self.must_find_coordinator = self._scene.lookups.coordinator_moved(code)
            yield self.world.between(BACKOFF_NS, 3 * BACKOFF_NS)
        else:
            yield self.world.between(SECOND, 3 * SECOND)

    def _assign(self, reply: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        members = sorted(reply.members or (), key=lambda member: member.group_instance_id or member.member_id)
        shares: list[list[tuple[str, int]]] = [[] for _ in members]
        for topic, partitions in self.settings.topics:
            for number in range(partitions):
                shares[number % len(shares)].append((topic, number))
        mark = self.name if self._scene.plan.same_assignments else f"{self.name}@{self.world.now}"
        return [SyncGroupRequestAssignment(member.member_id, assignment(mark, share)) for member, share in zip(members, shares, strict=True)]

    def _commit_early(self, wire: ClientConnection) -> Process:
        """Commit between JoinGroup and SyncGroup of a new generation. The broker refuses such a commit."""
        yield self._send_commit(wire, self._committed_early)

    def _committed_early(self, request: Request, commit: Commit, values: list[int], reply: Any) -> None:
        if settle_commit(self._scene, request, commit, values, reply) == ErrorCode.NONE:
            self._scene.replies.committed(self.group, request)

    def _sync(self, wire: ClientConnection, assignments: list[SyncGroupRequestAssignment]) -> Process:
        scene = self._scene
        newer = self.style.sync >= 5
        message = SyncGroupRequest(
            self.group,
            self.generation,
            self.member_id,
            self._instance_id,
            "consumer" if newer else None,
            self.protocol if newer else None,
            assignments,
        )
        request = wire.send(message, self.style.sync, self.settings.rebalance_ns + self.settings.session_ns + JOIN_EXTRA_NS)
        yield request
        if request.lost:
            wire.close()
            return
        code = request.reply.error_code
        if code:
            self._handle_error(code, "SyncGroup", request)
            yield self.world.between(BACKOFF_NS // 10, BACKOFF_NS)
            return
        if scene.course.is_void(request):
            return
        scene.instances.succeeded(self.group, self.member_id, request.sent, "SyncGroup")  # in a stable group it renews no session, as in Kafka
        scene.sessions.synced(self.group, self.member_id, self.generation, wire.node)
        scene.policies.succeeded(self, self.member_id, request, "SyncGroup")
        data = request.reply.assignment
        self.owned = []
        if data == EMPTY_ASSIGNMENT:
            scene.policies.standby_seen(self)
        elif not data:
            scene.generations.nothing_assigned(self.group, self.generation, self.member_key, request.sent)
        else:
            mark, self.owned = read_assignment(data)
            seats_move = scene.policies.seats_move(self.group)
            scene.generations.assigned(self.group, self.generation, self.member_key, mark, data, self.owned, request.sent, seats_move)
            if self.owned:
                scene.policies.assigned(self, request, data, self.rejoin_announced_at)
        self.has_assignment = True
        self.world.trace(f"{self.name}: consumes {plural(len(self.owned), 'partition')} in generation {self.generation}", self.group)
        yield from self._read_offsets(wire)

    # Steady state.

    def _steady(self, wire: ClientConnection) -> Process:
        settings, world = self.settings, self.world
        beat_at = world.now + world.between(0, settings.heartbeat_ns)
        commit_at = world.now + world.between(0, settings.commit_ns)
        beat = HeartbeatRequest(self.group, self.generation, self.member_id, self._instance_id)
        body = beat.encode(self.style.heartbeat)
        while self.has_assignment and wire.open and not self.must_find_coordinator:
            if beat_at > world.now and commit_at > world.now:
                yield min(beat_at, commit_at) - world.now
            if not (self.has_assignment and wire.open) or self.must_find_coordinator:
                break
            if world.now >= self.poll_stops_at:
                # The heartbeat thread of a client goes on when the application no longer polls; only commits and rejoins end.
                commit_at = 1 << 62
            if beat_at <= world.now:
                beat_at = world.now + settings.heartbeat_ns
                if (beat.generation_id, beat.member_id) != (self.generation, self.member_id):
                    beat = HeartbeatRequest(self.group, self.generation, self.member_id, self._instance_id)
                    body = beat.encode(self.style.heartbeat)
                request = wire.send(beat, self.style.heartbeat, REQUEST_NS, body)
                self._scene.policies.absences.request_sent(self.group, self.instance, wire.arrives_at)
                if self.style.pipelines:
                    request.when_settled(partial(self._beat, request))
                else:
                    yield request
                    self._beat(request, request.reply)
            if commit_at <= world.now and self.has_assignment and wire.open:
                commit_at = world.now + settings.commit_ns
                request = self._commit_offsets(wire)
                if not self.style.pipelines:
                    yield request
                if world.chance(self._scene.plan.reads_offsets):
                    yield from self._read_offsets(wire)

    def _beat(self, request: Request, reply: Any) -> None:
        if reply is None or self._scene.course.is_void(request):
            return
        message = request.message
        if reply.error_code == ErrorCode.NONE:
            if not self._scene.coordinators.served_since(self.group, request.sent):
                return  # while a partition loads, every heartbeat is answered without an error
            self._scene.instances.succeeded(self.group, message.member_id, request.sent, "Heartbeat")
            self._scene.generations.succeeded(self.group, message.generation_id, request.sent, "Heartbeat")
            self._scene.replies.heartbeat_accepted(self.group, request)
            self._scene.policies.succeeded(self, message.member_id, request, "Heartbeat")
            self._scene.replies.session_renewed(self, message.member_id, request)
        elif message.member_id == self.member_id and message.generation_id == self.generation:
            self._handle_error(reply.error_code, "Heartbeat", request)

    def _commit_offsets(self, wire: ClientConnection) -> Request:
        """Commit an offset for each owned partition."""
        return self._send_commit(wire, self._committed)

    def _send_commit(self, wire: ClientConnection, settled: Callable[[Request, Commit, list[int], Any], None]) -> Request:
        commit = self._commit
        if commit is None or commit.member_state != (self.generation, self.member_id, self.owned):
            commit = self._commit = Commit(self.group, self.generation, self.member_id, self._instance_id, self.owned, self.style.commit)
        values = self._scene.offsets.send(commit.partitions)
        request = wire.send(commit.message, commit.version, REQUEST_NS, commit.encode(values))
        self._scene.policies.absences.request_sent(self.group, self.instance, wire.arrives_at)
        request.when_settled(partial(settled, request, commit, values))
        return request

    def _committed(self, request: Request, commit: Commit, values: list[int], reply: Any) -> None:
        worst = settle_commit(self._scene, request, commit, values, reply)
        if worst is None:
            return
        scene = self._scene
        message = request.message
        if values and not worst:
            scene.instances.succeeded(self.group, message.member_id, request.sent, "OffsetCommit")
            scene.generations.succeeded(self.group, message.generation_id_or_member_epoch, request.sent, "OffsetCommit")
            scene.policies.succeeded(self, message.member_id, request, "OffsetCommit")
            scene.replies.session_renewed(self, message.member_id, request)
        elif worst and message.member_id == self.member_id and message.generation_id_or_member_epoch == self.generation:
            self._handle_error(worst, "OffsetCommit", request)

    def _read_offsets(self, wire: ClientConnection) -> Process:
        if not self.owned:
            return
        request = wire.send(offset_fetch_request(self.group, self.owned, self.style.fetch), self.style.fetch, REQUEST_NS)
        yield request
        if not request.lost:
            self._scene.replies.offsets_read(self.group, request)

    # Errors.

    def _handle_error(self, code: int, api: str, request: Request) -> None:
        self.world.count(f"{api} {code}")
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self._fenced()
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._scene.replies.unknown(self.group, request)
            self.member_id = ""
            self.has_assignment = False
        elif code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            self.has_assignment = self.has_assignment and self.world.now >= self.poll_stops_at
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                if api == "OffsetCommit":
                    self._scene.replies.commit_refused(self.group, request)
                self.rejoin_announced_at = self.world.now
                self._scene.policies.rejoin_announced(self, request)
        elif code in RETRIED:
            self.must_find_coordinator = self._scene.lookups.coordinator_moved(code)
            if api == "SyncGroup":
                self.has_assignment = False
        elif code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Broken(ERRORS, f"{self.name}: {api} is answered with {code}", self.group)

    def _end_excluded(self, request: Request) -> None:
        """End the process, and restart it later: the group's strict list of instance ids excludes this instance."""
        scene = self._scene
        if not scene.course.is_void(request):
            scene.policies.refused(self, request)
        self.world.trace(f"{self.name}: is refused by the list of instance ids of the group", self.group)
        if not scene.course.faults_over:
            self.restart_later()
        self.kill()

    def _fenced(self) -> None:
        scene = self._scene
        scene.instances.fenced(self.group, self.instance, self.member_id)
        self.world.trace(f"{self.name}: fenced", self.group)
        self.has_assignment = False
        if self.style.rejoins_when_fenced:
            self.member_id = ""
        else:
            self.fenced = True
            if self.wire is not None:
                self.wire.close()
