"""Programs of requests to one consumer group, and how the core answers them.

A program is a list of steps, each a dict that JSON can hold: `do` names a method of a player, the other entries are its arguments. The answers
are dicts too, with topics by name. So a program that was played to Apache Kafka (`kafka_player.py`) is a line of a file, which ordinary tests
play to the core. All programs have topic names of their own, since a cluster has many.

    {"do": "beat", "member": "a", "epoch": 0, "timeout": 30000, "topics": ["p1x"], "owned": {}}
    {"do": "topic", "name": "p1x", "partitions": 4}          also to another number of partitions
    {"do": "wait", "ms": 700}
    {"do": "classic_join", "name": "a", "topics": ["p1x"], "new": true}       JoinGroup, without a member id if it is new
    {"do": "classic_sync", "name": "a", "generation": 3, "assignments": {"a": {"p1x": [0]}}}

A JoinGroup or SyncGroup that is parked is answered in a later look, under `arrived`.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from coordinator import Commit, Fact, GroupConfig, JoinRequest, Leaver, Shard, SyncRequest
from coordinator.consumer.calls import HeartbeatReply, HeartbeatRequest
from coordinator.consumer.config import ConsumerConfig, MigrationPolicy
from coordinator.consumer.repeats import RepeatedBeat, repeated
from coordinator.consumer.topics import Topic
from protocol.batch import facts_of
from protocol.messages.offset_commit import OffsetCommitRequestPartition
from tests.coordinator.consumer.classic_words import CLIENT, TIMEOUT, Identities, assignment, join_answer, read, subscription, sync_answer
from tests.coordinator.consumer.truths import check_group, check_replay

SHORT_ID_CHARS = 22  # of an id of the consumer protocol, which is a UUID too
GROUP = "g"
WALL = 1_700_000_000_000
CONFIG = GroupConfig(
    group_initial_rebalance_delay_ms=0,
    group_min_session_timeout_ms=100,
    consumer=ConsumerConfig(assignment_interval_ms=0, migration_policy=MigrationPolicy.DISABLED),
)

Step = dict[str, Any]
Answer = dict[str, Any]
Named = Mapping[str, Sequence[int]]  # partitions by topic name


class Player(Protocol):
    @property
    def moment(self) -> int:
        """Milliseconds since the program began."""
        ...

    def play(self, step: Step) -> Answer: ...


class Waiter:
    """Receives the reply to a JoinGroup or SyncGroup."""

    def __init__(self) -> None:
        self.member_id = ""
        self.assignment = b""
        self.reply: Any = None
        self.released = False

    def release(self) -> None:
        self.released = True

    def fail(self, error: int) -> None:
        raise AssertionError(error)


class Repeat(NamedTuple):
    shard: Shard
    request: HeartbeatRequest
    reply: HeartbeatReply
    beat: RepeatedBeat


class CorePlayer:
    """One shard in virtual time; a millisecond passes with each step, or what passed when the program was recorded. After each step the truths of `truths.py` are checked.

    `ids`: the ids of topics in the order in which each name is created.
    """

    def __init__(self, config: GroupConfig = CONFIG, ids: Mapping[str, Sequence[str]] | None = None) -> None:
        self.now = self.began = 1_000
        self.log: list[Fact] = []
        self.ids = {name: [bytes.fromhex(id) for id in each] for name, each in (ids or {}).items()}
        self.names: dict[bytes, str] = {}
        self.config = config
        self.topics: dict[str, Topic] = {}
        self.shard = Shard(config, self._fresh_id)
        self.repeats: dict[str, Repeat] = {}  # by member id: its last heartbeat, if it may be repeated
        self.given = 0
        self.fresh: str | None = None  # the next id that is given, if it was recorded
        self.identities = Identities()
        self.parked: list[tuple[str, str, Waiter]] = []  # name of the member, kind of the request

    def _fresh_id(self) -> str:
        self.given += 1
        if self.fresh is None:
            return f"ffffffff-ffff-4fff-8fff-{self.given:012x}"
        return urlsafe_b64decode(f"{self.fresh}==").hex() if len(self.fresh) == SHORT_ID_CHARS else self.fresh

    @property
    def moment(self) -> int:
        return self.now - self.began

    @property
    def wall(self) -> int:
        return WALL + self.now

    @property
    def group(self) -> Any:
        """The group, which must exist."""
        return self.shard.consumers.groups[GROUP]

    def play(self, step: Step) -> Answer:
        self.now += 1
        arguments = {name: value for name, value in step.items() if name != "do"}
        answer: Answer = getattr(self, step["do"])(**arguments)
        for resolution in self.shard.consumers.take_resolutions():
            self.shard.consumers.resolve(resolution, self.now, self.wall)
        while self.shard.wake_at <= self.now:
            self.shard.advance(self.now, self.wall, self.wall)
        self.settle()
        return self._released(answer) if step["do"] in ("classic_join", "classic_sync") else answer

    def settle(self) -> None:
        """The end of a turn: facts become durable, and the truths are checked."""
        hold = self.shard.hold
        while hold.has_untaken:
            batch = bytes(hold.take_batch(self.wall))
            assert len(batch) <= self.config.batch_bytes_max
            self.log += facts_of(batch)
        hold.confirm(hold.emitted)
        check_group(self.shard.consumers.groups.get(GROUP), self.shard.groups.get(GROUP))
        check_replay(self.shard, self.log, self.now, self.wall)

    def restart(self) -> Answer:
        """Another coordinator takes over."""
        shard = Shard(self.config, self._fresh_id)
        shard.clear()
        shard.consumers.change_topics(self.topics.values(), ())
        shard.replay(self.log)
        for _ in shard.open_groups(lambda: (self.now, self.wall)):
            pass
        self.shard = shard
        return {}

    # Topics and time.

    def topic(self, name: str, partitions: int) -> Answer:
        before = self.topics.get(name)
        id = before.id if before is not None else self._new_topic_id(name)
        self.topics[name] = Topic(name, id, partitions)
        self.names[id] = name
        self.shard.consumers.change_topics([self.topics[name]], ())
        return {}

    def _new_topic_id(self, name: str) -> bytes:
        recorded = self.ids.get(name)
        return recorded.pop(0) if recorded else f"{name}-{len(self.names)}".encode().ljust(16, b"\0")[:16]

    def drop(self, name: str) -> Answer:
        del self.topics[name]
        self.shard.consumers.change_topics((), [name])
        self.shard.forget_topics([name], self.now, self.wall)
        return {}

    def wait(self, ms: int) -> Answer:
        until = self.now + ms
        while self.shard.wake_at <= until:
            self.now = max(self.now, self.shard.wake_at)
            self.shard.advance(self.now, self.wall, self.wall)
            self.settle()
        self.now = until
        return {}

    # Requests.

    def beat(
        self,
        member: str,
        epoch: int,
        instance: str | None = None,
        rack: str | None = None,
        timeout: int = -1,
        topics: Sequence[str] | None = None,
        regex: str | None = None,
        assignor: str | None = None,
        owned: Named | None = None,
        v: int = 1,
        group: str = GROUP,
    ) -> Answer:
        listed = None if owned is None else {self.id_of(name): list(partitions) for name, partitions in owned.items()}
        request = HeartbeatRequest(group, self.identities.id_of(member), epoch, instance, rack, timeout, topics, regex, assignor, listed, "client", "/127.0.0.1", v >= 1)
        reply = self._hear(request)
        if reply.error:
            assert reply.message
            assert reply[2:6] == (None, 0, 0, None)
            return {"error": int(reply.error)}
        assigned = None if reply.assignment is None else self.named(reply.assignment)
        return {"error": 0, "member": self.identities.name_of(reply.member_id or ""), "epoch": reply.epoch, "interval": reply.heartbeat_interval_ms, "assigned": assigned}

    def _hear(self, request: HeartbeatRequest) -> HeartbeatReply:
        """Pass a heartbeat on. What the fast path would accept is answered alike, and changes nothing but the end of the session."""
        room = self.shard.consumers
        last = self.repeats.get(request.member_id)
        accepted = last is not None and last.shard is self.shard and last.request == request and last.beat.try_accept(self.now)
        before = self._member_as_shown(request)
        reply = room.heartbeat(request, self.now, self.wall)
        if accepted and last is not None:
            assert (reply, self._member_as_shown(request)) == (last.reply, before)
        beat = repeated(room, request, reply)
        if beat is None:
            self.repeats.pop(request.member_id, None)
        else:
            self.repeats[request.member_id] = Repeat(self.shard, request, reply, beat)
            before = self._member_as_shown(request)
            assert beat.try_accept(self.now)
            assert (room.heartbeat(request, self.now, self.wall), self._member_as_shown(request)) == (reply, before)
        return reply

    def _member_as_shown(self, request: HeartbeatRequest) -> tuple[Any, ...] | None:
        group = self.shard.consumers.groups.get(request.group_id)
        member = None if group is None else group.members.get(request.member_id)
        return None if group is None or member is None else (group.version, len(self.shard.consumers.resolutions), member.seen_ms, member.deadline)

    def commit(self, member: str, epoch: int, partitions: Named, instance: str | None = None, v: int = 9) -> Answer:
        topics = [(name, [OffsetCommitRequestPartition(partition, 7) for partition in each]) for name, each in partitions.items()]
        call = Commit(GROUP, epoch, self.identities.id_of(member), instance, topics, unknown_group_error=69 if v >= 9 else 22)
        return {"error": int(self.shard.commit(call, self.now, self.wall))}

    def fetch(self, member: str | None, epoch: int) -> Answer:
        error = int(self.shard.fetch_refusal(GROUP, None if member is None else self.identities.id_of(member), epoch))
        owner = self.shard.offsets_of(GROUP)
        offsets = sorted([topic, partition] for topic, partition, _ in owner.all_offsets()) if owner is not None and not error else []
        return {"error": error, "offsets": offsets}

    def delete_offsets(self, partitions: Named) -> Answer:
        error, codes = self.shard.delete_offsets(GROUP, [(name, number) for name, each in partitions.items() for number in each], self.now, self.wall)
        return {"error": int(error), "codes": [int(code) for code in codes]}

    def delete(self) -> Answer:
        return {"error": int(self.shard.delete(GROUP, self.now, self.wall))}

    def leave(self, members: Sequence[tuple[str, str | None]]) -> Answer:
        codes = self.shard.leave(GROUP, [Leaver(self.identities.id_of(member), instance) for member, instance in members], self.now, self.wall)
        return {"codes": [int(code) for code in codes]}

    def classic_beat(self, member: str, epoch: int, instance: str | None = None) -> Answer:
        return {"error": int(self.shard.heartbeat(GROUP, epoch, self.identities.id_of(member), instance, self.now))}

    def classic_join(
        self,
        name: str,
        topics: Sequence[str],
        owned: Named | None = None,
        new: bool = False,
        instance: str | None = None,
        rack: str | None = None,
        protocols: Sequence[str] = ("range",),
        sv: int = 1,
        timeout: int = TIMEOUT,
        session: int = TIMEOUT,
        v: int = 9,
        type: str = "consumer",
        damaged: bool = False,
        fresh: str | None = None,
    ) -> Answer:
        metadata = subscription(topics, owned or {}, sv, rack)[: 7 if damaged else None]
        id = "" if new else self.identities.id_of(name)
        offers = tuple((protocol, metadata) for protocol in protocols)
        request = JoinRequest(GROUP, id, instance, type, offers, session, timeout, CLIENT, "/127.0.0.1", v >= 4, v >= 9)
        self.fresh = fresh
        waiter = Waiter()
        self.parked.append((name, "join", waiter))
        self.shard.join(request, waiter, self.now, self.wall)
        self.fresh = None
        return {}

    def classic_sync(
        self,
        name: str,
        generation: int,
        assignments: Mapping[str, Named] | None = None,
        instance: str | None = None,
        type: str | None = "consumer",
        protocol: str | None = "range",
        user_data: bool = False,
    ) -> Answer:
        of_members = {self.identities.id_of(member): assignment(each, b"x" if user_data else None) for member, each in (assignments or {}).items()}
        waiter = Waiter()
        self.parked.append((name, "sync", waiter))
        request = SyncRequest(GROUP, generation, self.identities.id_of(name), instance, of_members, type, protocol)
        self.shard.sync(request, waiter, self.now, self.wall)
        return {}

    def _released(self, answer: Answer) -> Answer:
        """The answer to the newest JoinGroup or SyncGroup."""
        name, kind, waiter = self.parked[-1]
        if not waiter.released:
            return {"parked": True}
        self.parked.pop()
        return self._heard(name, kind, waiter)

    def _heard(self, name: str, kind: str, waiter: Waiter) -> Answer:
        if kind == "sync":
            return sync_answer(waiter.reply, waiter.assignment)
        self.identities.give(name, waiter.member_id)
        return join_answer(self.identities, waiter.reply, waiter.member_id, [id for id, _, _ in waiter.reply.members])

    def _arrived(self) -> Answer:
        released = [each for each in self.parked if each[2].released]
        self.parked = [each for each in self.parked if not each[2].released]
        arrived = sorted(([name, kind, self._heard(name, kind, waiter)] for name, kind, waiter in released), key=str)
        return {"arrived": arrived} if arrived else {}

    def _look_at_classic(self) -> Answer:
        """What DescribeGroups shows."""
        shown = self.shard.describe(GROUP)
        members = {
            self.identities.name_of(member.member_id): {"instance": member.instance_id, "assigned": read(member.assignment)} for member in shown.members
        }
        return {"state": shown.state, "protocol": shown.protocol_data, "members": dict(sorted(members.items()))}

    def look(self) -> Answer:
        """What ConsumerGroupDescribe and ListGroups show."""
        arrived = self._arrived()
        view = self.shard.consumers.describe(GROUP)
        listed = self.shard.listed_group(GROUP)
        shown = None if listed is None else [listed.group_type, listed.protocol_type, listed.state]
        if view is None:
            classic = {} if shown is None or shown[1:] == ["", "Empty"] else {"classic": self._look_at_classic()}
            return {"error": 69, "listed": shown, **classic, **arrived}
        members = {
            self.identities.name_of(member.member_id): {
                "epoch": member.epoch,
                "instance": member.instance_id,
                "rack": member.rack_id,
                "topics": sorted(member.topics),
                "regex": member.expression,
                "assigned": self.named(member.assigned),
                "target": self.named(member.target),
                **({"classic": True} if member.is_classic else {}),
            }
            for member in view.members
        }
        return {
            "error": 0,
            "listed": shown,
            "state": view.state,
            "epoch": view.epoch,
            "target_epoch": view.target_epoch,
            "assignor": view.assignor,
            "members": dict(sorted(members.items())),
            **arrived,
        }

    # Names of topics.

    def id_of(self, name: str) -> bytes:
        """The newest id of the name; of a topic that was never there, an id that no topic has."""
        return next((id for id, known in reversed(self.names.items()) if known == name), b"no such topic".ljust(16, b"\0"))

    def named(self, partitions: Mapping[bytes, Sequence[int]]) -> dict[str, list[int]]:
        return {self.names[id]: sorted(numbers) for id, numbers in sorted(partitions.items(), key=lambda item: self.names[item[0]])}


