"""Model consumers, static and dynamic, which do what real ones do: join, sync, heartbeat, commit, read offsets, restart, go.

Two processes may run under one instance id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from coordinator.standby import EMPTY_ASSIGNMENT
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from simulator.client import RETRIED, Client, Process, Request, Wire
from simulator.commit import REFUSING, Commit, ask_offsets
from simulator.styles import PROTOCOLS, SESSION_FACTOR, Settings, Style, assignment, read_assignment, subscription
from simulator.world import MS, SECOND, Broken

if TYPE_CHECKING:
    from simulator.run import Run

REQUEST_NS: Final = 30 * SECOND
JOIN_EXTRA_NS: Final = 5 * SECOND
BACKOFF_NS: Final = 100 * MS


class Consumer(Client):
    def __init__(self, run: Run, group: str, name: str, instance: str | None, settings: Settings, style: Style) -> None:
        super().__init__(run.world, name)
        self._run_ = run
        self.group = group
        self.instance = instance
        self.settings = self._configured = settings
        self.style = style
        self.address = f"10.0.{run.world.random.randrange(250)}.{run.world.random.randrange(250)}"
        self.wire: Wire | None = None
        self.member_id = ""
        self.generation = -1
        self.protocol = ""
        self.owned: list[tuple[str, int]] = []
        self.topics = [topic for topic, _ in settings.topics]
        self.user_data: bytes | None = None
        self.told_at = -1  # when it was last asked to rejoin
        self.settled = False  # it has an assignment, and has heard of nothing newer
        self.fenced = False
        self.retired = False  # it will not start again
        self._commit: Commit | None = None
        self.astray = False  # it has to look for its coordinator
        self.poll_stops_at = 1 << 62  # it polls no more from then on, and is alive: past its rebalance timeout

    # Life.

    def start(self) -> None:
        """A new process: it knows its instance id and nothing else."""
        self.member_id = ""
        self.generation = -1
        self.settled = self.fenced = False
        self.owned = []
        self.poll_stops_at = 1 << 62
        self.told_at = -1
        self._choose_topics()
        if self._run_.plan.varied_sessions:
            session_ns = self._configured.session_ns * self.world.random.choice((1, SESSION_FACTOR))
            self.settings = self._configured._replace(session_ns=session_ns)
        if self.instance is not None:
            self._run_.policies.lists(self.group, self.instance, self.topics)
        self.world.say(f"{self.name}: starts", self.group)
        self.run(self._work())

    def _choose_topics(self) -> None:
        plan = self._run_.plan.policies
        if plan is None:
            return
        names = [topic for topic, _ in self.settings.topics]
        if plan.other_topics:
            self.topics = names if not self.world.chance(plan.other_topics) else self.world.random.sample(names, 1)
        if plan.user_data:
            self.user_data = self.world.random.randbytes(4)

    def kill(self) -> None:
        if self.running:
            self.world.say(f"{self.name}: kill -9", self.group)
        self.end()
        self.settled = False
        if self.wire is not None:
            self.wire.close()

    def close(self, leave: bool) -> None:
        """An orderly end."""
        if not self.running:
            return
        self.world.say(f"{self.name}: closes{', and leaves' if leave else ''}", self.group)
        self.end()
        self.settled = False
        wire = self.wire
        if wire is not None and wire.open and leave and self.member_id:
            member = MemberIdentity(self.member_id, self._instance_id)
            request = LeaveGroupRequest(self.group, [member]) if self.style.leave >= 3 else LeaveGroupRequest(self.group, None, self.member_id)
            wire.ask(request, self.style.leave, REQUEST_NS, lambda reply: wire.close())
            self._run_.sessions.gone(self.group, self.member_id)
        elif wire is not None:
            wire.close()

    def twin(self, style: Style) -> Consumer:
        """A second process with the same instance id."""
        return Consumer(self._run_, self.group, f"{self.name}'", self.instance, self.settings, style)

    @property
    def seat(self) -> str:
        return self.instance or self.member_id

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
            if wire is None or not wire.open or self.astray:
                if wire is not None and wire.open:
                    world.after(SECOND, wire.close)
                self.astray = False
                wire = self._run_.wire(self.name, self.address)
                if wire is not None:
                    wire = yield from self._run_.at_coordinator(wire, self.group)
                if wire is None:
                    yield world.between(BACKOFF_NS, 10 * BACKOFF_NS)
                    continue
                self.wire = wire
            if not self.settled:
                yield from self._join(wire)
            else:
                yield from self._steady(wire)

    # Joining.

    def _join(self, wire: Wire) -> Process:
        run, settings, world = self._run_, self.settings, self.world
        request = JoinGroupRequest(
            self.group,
            settings.session_ns // MS,
            settings.rebalance_ns // MS,
            self.member_id,
            self.instance,
            "consumer",
            self._protocols(),
        )
        asked = wire.ask(request, self.style.join, settings.rebalance_ns + settings.session_ns + JOIN_EXTRA_NS)
        run.policies.absences.asked(self.group, self.instance, wire.arrives_at)
        yield asked
        if asked.lost:
            wire.close()
            return
        reply: JoinGroupResponse = asked.reply
        code = reply.error_code
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            raise Broken("join", f"{self.name}: JoinGroup is answered with 27", self.group)
        if code:
            yield from self._join_refused(code, reply.member_id, asked)
            return
        if reply.generation_id != self.generation:
            self.told_at = -1
        self.member_id = reply.member_id
        self.generation = reply.generation_id
        self.protocol = reply.protocol_name or ""
        if not run.lapsed(asked):
            run.policies.joined(self, asked, reply)
            if self.instance is not None:
                run.instances.joined(self.group, self.instance, self.member_id, asked.sent)
        assignments: list[SyncGroupRequestAssignment] = []
        if reply.leader == self.member_id:
            if run.served_since(self.group, asked.sent):  # otherwise the generation may never have been stored, and be another one now
                run.listed(self.group, self.generation, [member.group_instance_id or member.member_id for member in reply.members or ()])
            if not reply.skip_assignment:
                assignments = self._assign(reply)
            if not run.calm and world.chance(run.plan.leader_dies):
                world.count("leader died", 1)
                run.restart_later(self)
                self.kill()
                yield SECOND  # it does nothing any more
        elif not run.calm and world.chance(run.plan.slow_sync):
            yield world.between(0, 2 * settings.rebalance_ns)
        yield from self._sync(wire, assignments)

    def _join_refused(self, code: int, member_id: str, asked: Request) -> Process:
        self.world.count(f"JoinGroup {code}")
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = member_id
            if not self._run_.calm and self.world.chance(self._run_.plan.abandoned_ids):  # the id that was handed out is never used
                self.world.count("abandoned member id", 1)
                self.member_id = ""
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._run_.unknown(self.group, asked)
            self.member_id = ""
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fenced()
        elif code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self._give_up(asked)
            yield SECOND  # it does nothing any more
        elif code in RETRIED:
            self.astray = self._run_.astray(code)
            yield self.world.between(BACKOFF_NS, 3 * BACKOFF_NS)
        else:
            yield self.world.between(SECOND, 3 * SECOND)

    def _assign(self, reply: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        members = sorted(reply.members or (), key=lambda member: member.group_instance_id or member.member_id)
        shares: list[list[tuple[str, int]]] = [[] for _ in members]
        for topic, partitions in self.settings.topics:
            for number in range(partitions):
                shares[number % len(shares)].append((topic, number))
        round = f"{self.name}@{self.world.now}"
        return [SyncGroupRequestAssignment(member.member_id, assignment(round, share)) for member, share in zip(members, shares, strict=True)]

    def _sync(self, wire: Wire, assignments: list[SyncGroupRequestAssignment]) -> Process:
        run = self._run_
        newer = self.style.sync >= 5
        request = SyncGroupRequest(
            self.group,
            self.generation,
            self.member_id,
            self._instance_id,
            "consumer" if newer else None,
            self.protocol if newer else None,
            assignments,
        )
        asked = wire.ask(request, self.style.sync, self.settings.rebalance_ns + self.settings.session_ns + JOIN_EXTRA_NS)
        yield asked
        if asked.lost:
            wire.close()
            return
        code = asked.reply.error_code
        if code:
            self._unsettle(code, "SyncGroup", asked)
            yield self.world.between(BACKOFF_NS // 10, BACKOFF_NS)
            return
        if run.lapsed(asked):
            return
        run.instances.succeeded(self.group, self.member_id, asked.sent, "SyncGroup")  # in a stable group it renews no session, as in Kafka
        run.policies.succeeded(self, self.member_id, asked, "SyncGroup")
        data = asked.reply.assignment
        self.owned = []
        if data == EMPTY_ASSIGNMENT:
            run.policies.is_standby(self)
        elif not data:
            run.generations.nothing_assigned(self.group, self.generation, self.seat, asked.sent)
        else:
            round, self.owned = read_assignment(data)
            seats_move = run.policies.seats_move(self.group)
            run.generations.assigned(self.group, self.generation, self.seat, round, data, self.owned, asked.sent, seats_move)
            if self.owned:
                run.policies.assigned(self, asked, data, self.told_at)
        self.settled = True
        self.world.say(f"{self.name}: generation {self.generation}, {len(self.owned)} partitions", self.group)
        yield from self._read_offsets(wire)

    # Steady.

    def _steady(self, wire: Wire) -> Process:
        settings, world = self.settings, self.world
        beat_at = world.now + world.between(0, settings.heartbeat_ns)
        commit_at = world.now + world.between(0, settings.commit_ns)
        beat = HeartbeatRequest(self.group, self.generation, self.member_id, self._instance_id)
        body = beat.encode(self.style.heartbeat)
        while self.settled and wire.open and not self.astray:
            if beat_at > world.now and commit_at > world.now:
                yield min(beat_at, commit_at) - world.now
            if not (self.settled and wire.open) or self.astray:
                break
            if world.now >= self.poll_stops_at:
                # Its heartbeats go on, as those of a client with a thread for them; it does not rejoin.
                commit_at = 1 << 62
            if beat_at <= world.now:
                beat_at = world.now + settings.heartbeat_ns
                if (beat.generation_id, beat.member_id) != (self.generation, self.member_id):
                    beat = HeartbeatRequest(self.group, self.generation, self.member_id, self._instance_id)
                    body = beat.encode(self.style.heartbeat)
                asked = wire.ask(beat, self.style.heartbeat, REQUEST_NS, None, body)
                self._run_.policies.absences.asked(self.group, self.instance, wire.arrives_at)
                if self.style.pipelines:
                    asked.settled = lambda reply, asked=asked: self._beat(asked, reply)
                else:
                    yield asked
                    self._beat(asked, asked.reply)
            if commit_at <= world.now and self.settled and wire.open:
                commit_at = world.now + settings.commit_ns
                asked = self._commit_offsets(wire)
                if not self.style.pipelines:
                    yield asked
                if world.chance(self._run_.plan.reads_offsets):
                    yield from self._read_offsets(wire)

    def _beat(self, asked: Request, reply: Any) -> None:
        if reply is None or self._run_.lapsed(asked):
            return
        message = asked.message
        if reply.error_code == ErrorCode.NONE:
            if not self._run_.served_since(self.group, asked.sent):
                return  # while a partition loads, every heartbeat is answered so
            self._run_.instances.succeeded(self.group, message.member_id, asked.sent, "Heartbeat")
            self._run_.generations.succeeded(self.group, message.generation_id, asked.sent, "Heartbeat")
            self._run_.accepted(self.group, asked)
            self._run_.policies.succeeded(self, message.member_id, asked, "Heartbeat")
            self._run_.heard_as(self, message.member_id, asked)
        elif message.member_id == self.member_id and message.generation_id == self.generation:
            self._unsettle(reply.error_code, "Heartbeat", asked)

    def _commit_offsets(self, wire: Wire) -> Request:
        """Commit an offset for each partition that it has."""
        commit = self._commit
        if commit is None or commit.of != (self.generation, self.member_id, self.owned):
            commit = self._commit = Commit(self.group, self.generation, self.member_id, self._instance_id, self.owned, self.style.commit)
        values = self._run_.offsets.send(commit.places)
        asked = wire.ask(commit.message, commit.version, REQUEST_NS, None, commit.encode(values))
        self._run_.policies.absences.asked(self.group, self.instance, wire.arrives_at)
        if asked.lost:
            self._committed(asked, commit, values, None)
        else:
            asked.settled = lambda reply: self._committed(asked, commit, values, reply)
        return asked

    def _committed(self, asked: Request, commit: Commit, values: list[int], reply: Any) -> None:
        run = self._run_
        offsets = run.offsets
        if reply is None or run.lapsed(asked):
            for place, value in zip(commit.places, values, strict=True):
                offsets.unknown(place, value)
            return
        codes = commit.codes(reply)
        worst = 0
        if codes is None:
            for place, value in zip(commit.places, values, strict=True):
                offsets.acknowledged(place, value)
        else:
            for place, value, code in zip(commit.places, values, codes, strict=True):
                if code == ErrorCode.NONE:
                    offsets.acknowledged(place, value)
                elif code in REFUSING:
                    offsets.refused(place, value)
                    worst = code
                else:
                    offsets.unknown(place, value)
                    worst = worst or code
        message = asked.message
        if values and not worst:
            run.instances.succeeded(self.group, message.member_id, asked.sent, "OffsetCommit")
            run.generations.succeeded(self.group, message.generation_id_or_member_epoch, asked.sent, "OffsetCommit")
            run.policies.succeeded(self, message.member_id, asked, "OffsetCommit")
            run.heard_as(self, message.member_id, asked)
        elif worst and message.member_id == self.member_id and message.generation_id_or_member_epoch == self.generation:
            self._unsettle(worst, "OffsetCommit", asked)

    def _read_offsets(self, wire: Wire) -> Process:
        if not self.owned:
            return
        asked = wire.ask(ask_offsets(self.group, self.owned, self.style.fetch), self.style.fetch, REQUEST_NS)
        yield asked
        if not asked.lost:
            self._run_.offsets_read(self.group, asked)

    # What errors mean.

    def _unsettle(self, code: int, api: str, asked: Request) -> None:
        self.world.count(f"{api} {code}")
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self._fenced()
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._run_.unknown(self.group, asked)
            self.member_id = ""
            self.settled = False
        elif code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            self.settled = self.settled and self.world.now >= self.poll_stops_at
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                self.told_at = self.world.now
                self._run_.policies.told(self, asked)
        elif code in RETRIED:
            self.astray = self._run_.astray(code)
            if api == "SyncGroup":
                self.settled = False
        elif code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Broken("errors", f"{self.name}: {api} is answered with {code}", self.group)

    def _give_up(self, asked: Request) -> None:
        """The list of the group excludes it, which is final for real clients; somebody starts it again later."""
        run = self._run_
        if not run.lapsed(asked):
            run.policies.refused(self, asked)
        self.world.say(f"{self.name}: is refused by the list of the group", self.group)
        if not run.calm:
            run.restart_later(self)
        self.kill()

    def _fenced(self) -> None:
        run = self._run_
        run.instances.fenced(self.group, self.member_id)
        self.world.say(f"{self.name}: fenced", self.group)
        self.settled = False
        if self.style.rejoins_when_fenced:
            self.member_id = ""
        else:
            self.fenced = True
            if self.wire is not None:
                self.wire.close()
