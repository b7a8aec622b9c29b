"""Playbooks: calls and times in; replies, facts and notes out. The `play` fixture (conftest.py) is one shard in virtual time.

    @scenario("SR-01")
    def test_a_static_member_that_restarts_keeps_its_place(play):
        play.s2()                                                  # a/ia (leader) and b/ib, Stable in generation 1
        play.join("b'").expect(generation=1, id="b'", leader="a", members=[])
        play.wrote("W4")
        play.heartbeat("b").expect(FENCED_INSTANCE_ID)
        play.group_is(STABLE, generation=1, members=["a", "b'"])

**Actors** are names. The first `join` of an actor sends no member id; the id it is given (`ib-b'`: the fresh part is the actor's
name) is sent by its later requests. A name that never joined stands for itself (`play.heartbeat("x")`: an unknown id).
What an actor offered last (instance, protocols, timeouts, type) is what it offers again unless told otherwise, and a restarted
one (`b'`, `b''`) takes after `b`. `instance=None` leaves the instance id out, `id="x"` sends that id.

**Set-ups** of the catalogue: `d1 d2 s1 s2 s3 c2 c2b p2 f2 f2s`; `d2(session={"b": 6_000}, rebalance=5_000, protocols=[...])`;
`settled(*names, static=, synced=, ...)` and `joined(*names, static=, ...)` (Completing) make others. `configure(...)` comes
before anything else. Moments count from the end of the set-up.

**Time**: `at(5_000)` after the set-up, `after(5_000)` from now; on the way `advance` runs at each `wake_at`, and whoever is named
by `alive("a", "b")` heartbeats every 2 s with the group's generation (`silent("a")` ends that). A timer of 0 ms needs `after(0)`.

**Requests** (all take `group="g"`): `join sync heartbeat leave commit fetch describe listed delete offset_delete`. Each returns what it
asked, and that is asked in turn: `.expect(error, ...)` (it was answered so; `at=`: at that moment), `.parks()` (no answer yet).
`play.expect("a", ...)` is about the actor's last request. `answers` lists requests in the order in which they were answered.

**Records**: `wrote("W2", "W5")` is everything written since the set-up or the last `wrote`, in order (`wrote()`: nothing), and
returns the records; W1 to W7 as in the rules, "W6" an offset's tombstone, "W6 group" a group's. Notes: `noted(Kind.MEMBER_GONE, ...)`.

**State**: `group_is(...)`, `no_group()`, `session_left("a")`, `phase_left()`, `play.group()` (the core's own object).

**The log** confirms at once. `hold_appends()` leaves facts in flight until `confirm()`; `log_fails(16)` suspends: what is held gets the
code, what is parked 16, what is not durable is void, and the shard is replayed. `failover()` (`written=True`: what is in flight is
in the log all the same), `unload()`, `load()`.

After each step the group is checked for sense, after each playbook (and at each failover) against a fresh shard that replays the
log: truths.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from coordinator import Commit, Description, Fact, GroupConfig, JoinRequest, Leaver, ListedGroup, Note, Shard, StoredOffset, SyncRequest
from coordinator.deadlines import NEVER
from coordinator.facts import group_key, read_offset
from coordinator.group import Group
from coordinator.notes import Cause, Coordinator, How, Kind, Replacement, Round
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.consumer_offsets import GroupMetadataValue, MemberMetadata
from protocol.messages.offset_commit import OffsetCommitRequestPartition
from protocol.records import with_version
from tests.coordinator.asked import Asked, AskedCommit, AskedJoin, AskedLeave, AskedOffset, AskedOffsets, AskedSync, Bytes, as_bytes
from tests.coordinator.scenarios import row, scenario
from tests.coordinator.truths import Record, as_record, check_group, compare_with_log

__all__ = [
    "BEGIN_MS",
    "COMPLETING",
    "COORDINATOR_NOT_AVAILABLE",
    "EMPTY",
    "FENCED_INSTANCE_ID",
    "GROUP_ID_NOT_FOUND",
    "GROUP_MAX_SIZE_REACHED",
    "GROUP_SUBSCRIBED_TO_TOPIC",
    "ILLEGAL_GENERATION",
    "INCONSISTENT_GROUP_PROTOCOL",
    "INVALID_GROUP_ID",
    "INVALID_SESSION_TIMEOUT",
    "MEMBER_ID_REQUIRED",
    "NONE",
    "NON_EMPTY_GROUP",
    "NOT_COORDINATOR",
    "OFFSET_METADATA_TOO_LARGE",
    "PREPARING",
    "REBALANCE_IN_PROGRESS",
    "STABLE",
    "T0",
    "T0_T1",
    "UNKNOWN_MEMBER_ID",
    "UNKNOWN_SERVER_ERROR",
    "Cause",
    "Coordinator",
    "How",
    "Kind",
    "Play",
    "Replacement",
    "Round",
    "image",
    "row",
    "scenario",
    "subscription",
]

EMPTY, PREPARING, COMPLETING, STABLE = State.EMPTY, State.PREPARING, State.COMPLETING, State.STABLE

UNKNOWN_SERVER_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR  # -1
NONE = ErrorCode.NONE
OFFSET_METADATA_TOO_LARGE = ErrorCode.OFFSET_METADATA_TOO_LARGE  # 12
COORDINATOR_NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE  # 15
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR  # 16
ILLEGAL_GENERATION = ErrorCode.ILLEGAL_GENERATION  # 22
INCONSISTENT_GROUP_PROTOCOL = ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # 23
INVALID_GROUP_ID = ErrorCode.INVALID_GROUP_ID  # 24
UNKNOWN_MEMBER_ID = ErrorCode.UNKNOWN_MEMBER_ID  # 25
INVALID_SESSION_TIMEOUT = ErrorCode.INVALID_SESSION_TIMEOUT  # 26
REBALANCE_IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS  # 27
NON_EMPTY_GROUP = ErrorCode.NON_EMPTY_GROUP  # 68
GROUP_ID_NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND  # 69
MEMBER_ID_REQUIRED = ErrorCode.MEMBER_ID_REQUIRED  # 79
GROUP_MAX_SIZE_REACHED = ErrorCode.GROUP_MAX_SIZE_REACHED  # 81
FENCED_INSTANCE_ID = ErrorCode.FENCED_INSTANCE_ID  # 82
GROUP_SUBSCRIBED_TO_TOPIC = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC  # 86

BEGIN_MS = 1_700_000_000_037  # on no tick's edge
BEAT_MS = 2_000
UNCHANGED: Any = object()

A = TypeVar("A", bound=Asked)
Offered = Sequence[str | tuple[str, bytes]]
PerActor = int | dict[str, int]


def subscription(*topics: str) -> bytes:
    """Consumer metadata, version 0, no user data."""
    names = b"".join(len(topic.encode()).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


T0 = subscription("t0")
T0_T1 = subscription("t0", "t1")  # what a member offers that has changed its mind


def image(
    generation: int, members: Sequence[MemberMetadata] = (), protocol: str | None = "range", type: str = "consumer", state_ms: int = -1
) -> bytes:
    """The value of a group record; its leader is the first member."""
    leader = members[0].member_id if members else None
    return with_version(GroupMetadataValue(type, generation, protocol if members else None, leader, state_ms, list(members)), 3)


class _Offer:
    """What an actor says of itself when it joins."""

    def __init__(self) -> None:
        self.instance: str | None = None
        self.protocols: tuple[tuple[str, bytes], ...] = (("range", T0),)
        self.session_ms = 10_000
        self.rebalance_ms = 20_000
        self.type = "consumer"


class Play:
    def __init__(self) -> None:
        self.now = self.began = BEGIN_MS
        self.ids: dict[str, str] = {}
        self.log: list[Fact] = []
        self.in_flight: list[Fact] = []
        self.answers: list[Asked] = []
        self.notes: list[Note] = []
        self._told: list[list[Note]] = []
        self._offers: dict[str, _Offer] = {}
        self._last: dict[str, Asked] = {}
        self._alive: list[tuple[str, str]] = []
        self._next_beat = NEVER
        self._newest: list[Record] = []
        self._newcomer = ""
        self._holds = False
        self.configure()

    def configure(self, **config: Any) -> None:
        """Limits under Kafka's names (`coordinator/config.py`)."""
        assert not self.log, "configure comes first"
        self.config = GroupConfig(**config)
        self._new_shard()

    def _new_shard(self) -> None:
        self.shard: Shard | None = Shard(self.config, self._fresh_id, lambda notes, stamp: self.notes.extend(notes))

    def close(self) -> None:
        if self.shard is not None:
            compare_with_log(self.shard, self.log + self.in_flight, self.now)

    # Actors.

    def id_of(self, actor: str) -> str:
        return self.ids.get(actor, actor)

    def _fresh_id(self) -> str:
        assert self._newcomer, "an id was made for nobody"
        newcomer, self._newcomer = self._newcomer, ""
        return newcomer

    def _offer(self, actor: str) -> _Offer:
        offer = self._offers.get(actor)
        if offer is None:
            offer = self._offers[actor] = _Offer()
            before = self._offers.get(actor.rstrip("'"))
            if before is not None:
                vars(offer).update(vars(before))
        return offer

    def _instance(self, actor: str, given: Any) -> str | None:
        if given is not UNCHANGED:
            return None if given is None else str(given)
        offer = self._offers.get(actor) or self._offers.get(actor.rstrip("'"))
        return offer.instance if offer is not None else None

    def _of(self, group: str) -> Group | None:
        return self._serving.groups.get(group)

    @property
    def _serving(self) -> Shard:
        assert self.shard is not None, "the shard is not loaded"
        return self.shard

    # Requests.

    def join(
        self,
        actor: str,
        *,
        instance: str | None = UNCHANGED,
        id: str | None = None,
        protocols: Offered | None = None,
        metadata: bytes | None = None,
        session: int | None = None,
        rebalance: int | None = None,
        type: str | None = None,
        version: int = 9,
        client: str = "c",
        reason: str | None = None,
        group: str = "g",
    ) -> AskedJoin:
        """`metadata` is for every protocol that has none of its own. Below v4 a newcomer is added at once."""
        offer = self._offer(actor)
        if instance is not UNCHANGED:
            offer.instance = instance
        if metadata is not None and protocols is None:
            protocols = [name for name, _ in offer.protocols]
        if protocols is not None:
            offer.protocols = tuple((one, T0 if metadata is None else metadata) if isinstance(one, str) else one for one in protocols)
        offer.session_ms = offer.session_ms if session is None else session
        offer.rebalance_ms = offer.rebalance_ms if rebalance is None else rebalance
        offer.type = offer.type if type is None else type
        sent = self.ids.get(actor, "") if id is None else self.id_of(id)
        if not sent:
            assert id == "" or actor not in self.ids
            self._newcomer = actor
        asked = AskedJoin(self, f"join {actor} ({offer.instance or '-'}, v{version})")
        request = JoinRequest(
            group,
            sent,
            offer.instance,
            offer.type,
            offer.protocols,
            offer.session_ms,
            offer.session_ms if version == 0 else offer.rebalance_ms,
            client,
            "/127.0.0.1",
            needs_member_id=version >= 4,
            knows_skip_assignment=version >= 9,
            reason=reason,
        )
        self._serving.join(request, asked, self.now)
        if not sent and not self._newcomer:
            self.ids[actor] = f"{client if offer.instance is None else offer.instance}-{actor}"
        self._newcomer = ""
        self._end_step("join", actor, asked)
        return asked

    def sync(
        self,
        actor: str,
        assignments: dict[str, Bytes] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = UNCHANGED,
        type: str | None = None,
        protocol: str | None = None,
        group: str = "g",
    ) -> AskedSync:
        """Assignments by actor; the generation is the group's unless told otherwise."""
        given = {self.id_of(one): as_bytes(value) for one, value in (assignments or {}).items()}
        generation = self._generation(group) if generation is None else generation
        asked = AskedSync(self, f"sync {actor} g{generation}")
        request = SyncRequest(group, generation, self.id_of(actor), self._instance(actor, instance), given, type, protocol)
        self._serving.sync(request, asked, self.now)
        self._end_step("sync", actor, asked)
        return asked

    def _generation(self, group: str) -> int:
        found = self._of(group)
        return 0 if found is None else found.generation

    def heartbeat(self, actor: str, generation: int | None = None, *, instance: str | None = UNCHANGED, group: str = "g") -> Asked:
        generation = self._generation(group) if generation is None else generation
        asked = Asked(self, f"heartbeat {actor} g{generation}")
        asked.reply = self._serving.heartbeat(group, generation, self.id_of(actor), self._instance(actor, instance), self.now)
        return self._replied("heartbeat", actor, asked)

    def leave(self, *leavers: str | tuple[str, str | None], group: str = "g") -> AskedLeave:
        """`"b"` leaves by its id and, if it has one, its instance id; `("", "ib")` is an administrator's; `("b", None)`."""
        named = [Leaver(self.id_of(one), self._instance(one, UNCHANGED)) if isinstance(one, str) else Leaver(self.id_of(one[0]), one[1])
                 for one in leavers]  # fmt: skip
        asked = AskedLeave(self, f"leave {leavers}")
        asked.reply = self._serving.leave(group, named, self.now)
        return self._replied("leave", leavers[-1] if isinstance(leavers[-1], str) else leavers[-1][0], asked)

    def commit(
        self,
        actor: str | None,
        offsets: dict[tuple[str, int], int] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = UNCHANGED,
        metadata: str | dict[tuple[str, int], str | None] | None = "",
        epoch: int = -1,
        retention: int = -1,
        version: int = 9,
        group: str = "g",
    ) -> AskedCommit:
        """OffsetCommit, of t0-0 at 1 unless told otherwise. Actor None: generation -1, no member, no instance."""
        generation = -1 if actor is None else self._generation(group) if generation is None else generation
        member, who = ("", None) if actor is None else (self.id_of(actor), self._instance(actor, instance))
        if actor is None and instance is not UNCHANGED:
            who = instance
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in ({("t0", 0): 1} if offsets is None else offsets).items():
            text = metadata.get((topic, partition), "") if isinstance(metadata, dict) else metadata
            topics.setdefault(topic, []).append(OffsetCommitRequestPartition(partition, offset, epoch, text))
        commit = Commit(group, generation, member, who, list(topics.items()), retention, 69 if version >= 9 else 22)
        return self.commit_as_is(commit, actor)

    def commit_as_is(self, commit: Commit, actor: str | None = None) -> AskedCommit:
        asked = AskedCommit(self, f"commit {actor or '-'} g{commit.generation}")
        asked.reply = self._serving.commit(commit, self.now)
        asked.too_large = commit.too_large or set()
        return self._replied("commit", actor or "", asked)

    def fetch(self, topic: str = "t0", partition: int = 0, *, group: str = "g") -> AskedOffset:
        asked = AskedOffset(self, f"fetch {topic}-{partition}")
        found = self._of(group)
        stored = found.offsets.get(topic) if found is not None else None
        value = stored.values.get(partition) if stored is not None else None
        asked.reply = StoredOffset(-1, -1, "", -1) if value is None else read_offset(value)
        return self._replied("fetch", "", asked)

    def fetch_all(self, *, group: str = "g") -> dict[tuple[str, int], int]:
        found = self._of(group)
        return {} if found is None else {(topic, one): read_offset(value).offset for topic, one, value in found.all_offsets()}

    def describe(self, group: str = "g") -> Description:
        return self._serving.describe(group)

    def listed(self) -> list[ListedGroup]:
        return self._serving.listed()

    def delete(self, group: str = "g") -> Asked:
        asked = Asked(self, f"delete {group}")
        asked.reply = self._serving.delete(group, self.now)
        return self._replied("delete", "", asked)

    def offset_delete(self, *wanted: tuple[str, int], group: str = "g") -> AskedOffsets:
        asked = AskedOffsets(self, f"delete offsets {wanted}")
        asked.reply = self._serving.delete_offsets(group, list(wanted), self.now)
        return self._replied("delete offsets", "", asked)

    def forget_topics(self, *topics: str) -> None:
        self._serving.forget_topics(set(topics), self.now)
        self._end_step("topics deleted")

    def _replied(self, during: str, actor: str, asked: A) -> A:
        """What the handler does with a code: it goes to the hold, behind whatever it could have seen."""
        self._serving.hold.reply(asked)
        self._end_step(during, actor, asked)
        return asked

    def expect(self, actor: str, *error: int, **content: Any) -> None:
        """What the actor asked last was answered so."""
        self._last[actor].expect(*error, **content)

    # The log.

    def _end_step(self, during: str, actor: str = "", asked: Asked | None = None) -> None:
        if asked is not None:
            self._last[actor] = asked
        shard = self._serving
        batch: list[Fact] = []
        while shard.hold.untaken:
            batch += shard.hold.take(self.config.batch_bytes_max)
        self._newest += [as_record(fact, shard.groups.get(_group_of(fact)), during) for fact in batch]
        self.in_flight += batch
        if not self._holds:
            self._confirm()
        for group in shard.groups.values():
            check_group(group)

    def _confirm(self) -> None:
        hold = self._serving.hold
        self.log += self.in_flight
        self.in_flight = []
        hold.confirm(hold.taken)
        assert not hold.waiting, "a reply is held though the log has everything"

    def hold_appends(self) -> None:
        self._holds = True

    def confirm(self) -> None:
        """What is in flight is durable, and from now on everything is at once."""
        self._holds = False
        self._confirm()

    def log_fails(self, error: int = ErrorCode.NOT_COORDINATOR) -> None:
        """An append failed: the shard is suspended, and at once replayed from what is durable."""
        shard = self._serving
        self.in_flight = []
        self._holds = False
        shard.hold.fail(error)
        shard.abandon()
        self._open()

    def _open(self) -> None:
        shard = self._serving
        shard.clear()
        shard.replay(self.log)
        for _ in shard.open_groups(lambda: self.now):
            pass
        self._newest = []
        self._end_step("open")

    def failover(self, *, written: bool = False) -> None:
        """The coordinator dies without a word; another one opens the log. `written`: what was in flight had reached it."""
        if self.shard is not None:
            compare_with_log(self.shard, self.log + self.in_flight, self.now)
        if written:
            self.log += self.in_flight
        self.in_flight = []
        self._holds = False
        self.load()

    def unload(self) -> None:
        """An orderly end: the flush in flight is waited for, then whoever is parked is sent away."""
        shard = self._serving
        self._confirm()
        compare_with_log(shard, self.log, self.now)
        shard.abandon()
        shard.clear()
        self.shard = None

    def load(self, *facts: Fact) -> None:
        """Open the log, with these facts behind what it has."""
        self.log += facts
        self._new_shard()
        self._open()

    # Records and notes.

    def wrote(self, *kinds: str) -> list[Record]:
        records, self._newest = self._newest, []
        assert [record.kind for record in records] == list(kinds)
        return records

    def noted(self, kind: Kind, **body: Any) -> Note:
        """There is a note of this kind since the set-up whose body has these values (actors by name); the newest such one."""
        wanted = {name: self.id_of(value) if isinstance(value, str) else value for name, value in body.items()}
        of_kind = [note for note in self.notes if note.kind == kind]
        for note in reversed(of_kind):
            if all(getattr(note.body, name) == value for name, value in wanted.items()):
                return note
        seen = [{name: getattr(note.body, name) for name in note.body.__slots__} for note in of_kind]
        raise AssertionError(f"no note {kind.name} {wanted}, only {seen}")

    # Time.

    def at(self, ms: int) -> Play:
        """Until so long after the set-up."""
        return self._until(self.began + ms)

    def after(self, ms: int) -> Play:
        return self._until(self.now + ms)

    def alive(self, *actors: str, group: str = "g") -> Play:
        self._alive += [(actor, group) for actor in actors]
        self._next_beat = self.now
        return self

    def silent(self, *actors: str) -> Play:
        self._alive = [one for one in self._alive if one[0] not in actors]
        return self

    def _until(self, moment: int) -> Play:
        assert moment >= self.now, "time does not go back"
        self._advance()
        while True:
            if self._alive and self._next_beat <= self.now:
                self._next_beat = self.now + BEAT_MS
                for actor, group in self._alive:
                    found = self._of(group)
                    if found is not None and self.id_of(actor) in found.members:
                        self.heartbeat(actor, group=group)
            if self.now == moment:
                return self
            self.now = min(moment, self._serving.wake_at, self._next_beat if self._alive else NEVER)
            self._advance()

    def _advance(self) -> None:
        shard = self._serving
        shard.advance(self.now)
        assert shard.wake_at > self.now, "it is not at rest"
        self._end_step("time")

    # State.

    def group(self, group: str = "g") -> Group:
        found = self._of(group)
        assert found is not None, f"no group {group}"
        return found

    def no_group(self, group: str = "g") -> None:
        assert self._of(group) is None

    def group_is(
        self,
        state: State,
        *,
        generation: int | None = None,
        leader: str | None = None,
        members: list[str] | None = None,
        pending: list[str] | None = None,
        protocol: str | None = None,
        group: str = "g",
    ) -> None:
        found = self.group(group)
        assert found.state.name == state.name
        if generation is not None:
            assert found.generation == generation
        if leader is not None:
            assert found.leader == self.id_of(leader)
        if members is not None:
            assert list(found.members) == [self.id_of(one) for one in members]
        if pending is not None:
            assert list(found.pending) == [self.id_of(one) for one in pending]
        if protocol is not None:
            assert found.protocol_name == protocol

    def session_left(self, actor: str, group: str = "g") -> int | None:
        """Milliseconds until the session of a member, or the life of a pending id, ends. None: it does not."""
        found = self.group(group)
        id = self.id_of(actor)
        one = found.members.get(id) or found.pending[id]
        return None if one.deadline == NEVER else one.deadline - self.now

    def phase_left(self, group: str = "g") -> int | None:
        """Milliseconds until the join phase ends or those who have not synced are removed. None: no such timer."""
        deadline = self.group(group).deadline
        return None if deadline == NEVER else deadline - self.now

    # Set-ups.

    def _ready(self) -> Play:
        """The set-up is over: from here moments and records count, and notes are of interest."""
        self.began = self.now
        self._newest = []
        self.notes.clear()
        self.answers.clear()
        return self

    def joined(
        self,
        *names: str,
        static: bool = False,
        session: PerActor = 10_000,
        rebalance: PerActor = 20_000,
        protocols: Offered | dict[str, Offered] = ("range",),
        type: str = "consumer",
        metadata: bytes | None = None,
        group: str = "g",
    ) -> Play:
        """Generation 1 has just joined, nobody has synced. The first is the leader; static members are a/ia, b/ib, ..."""
        for name in names:
            self.join(
                name,
                instance=f"i{name}" if static else None,
                protocols=protocols[name] if isinstance(protocols, dict) else protocols,
                metadata=metadata,
                session=_per_actor(session, name, 10_000),
                rebalance=_per_actor(rebalance, name, 20_000),
                type=type,
                version=9 if static else 3,
                group=group,
            )
        for _ in range(100):
            if self.group(group).state != State.PREPARING:
                break
            self._until(max(self._serving.wake_at, self.now))
        self.group_is(COMPLETING, generation=1, leader=names[0], members=list(names), group=group)
        return self._ready()

    def settled(self, *names: str, group: str = "g", synced: Sequence[str] | None = None, **how: Any) -> Play:
        """Stable in generation 1; assignments 01, 02, ... `synced`: who has asked for its own, with the leader; all unless told."""
        self.joined(*names, group=group, **how)
        self.sync(names[0], {name: number for number, name in enumerate(names, 1)}, group=group)
        for name in names[1:] if synced is None else [name for name in synced if name != names[0]]:
            self.sync(name, group=group)
        self.group_is(STABLE, generation=1, group=group)
        return self._ready()

    def d1(self, **how: Any) -> Play:
        return self.settled("a", **how)

    def d2(self, **how: Any) -> Play:
        return self.settled("a", "b", **how)

    def s1(self, **how: Any) -> Play:
        return self.settled("a", static=True, **how)

    def s2(self, **how: Any) -> Play:
        return self.settled("a", "b", static=True, **how)

    def s3(self, **how: Any) -> Play:
        return self.settled("a", "b", "c", static=True, **how)

    def c2(self, *, static: bool = True, **how: Any) -> Play:
        return self.joined("a", "b", static=static, **how)

    def c2b(self, *, static: bool = True, **how: Any) -> AskedSync:
        """Returns b's parked SyncGroup."""
        self.c2(static=static, **how)
        parked = self.sync("b")
        parked.parks()
        self._ready()
        return parked

    def p2(self, **how: Any) -> AskedJoin:
        """Returns a's parked JoinGroup."""
        self.s2(**how)
        parked = self.join("a")
        parked.parks()
        self._ready()
        return parked

    def f2(self, *, static: bool = False, count: int = 2, session: PerActor = 10_000, rebalance: int = 5_000) -> Play:
        """Loaded from the log: generation 7, m0 (leader) and m1, sessions of 10 s, assignments 01, 02."""
        members = []
        for number in range(count):
            name = f"m{number}"
            offer = self._offer(name)
            offer.instance = f"i{number}" if static else None
            offer.session_ms = _per_actor(session, name, 10_000)
            offer.rebalance_ms = rebalance
            members.append(MemberMetadata(name, offer.instance, "c", "/127.0.0.1", rebalance, offer.session_ms, T0, bytes([number + 1])))
            self.ids[name] = name
        self.load((group_key("g"), image(7, members, state_ms=self.now)))
        return self._ready()

    def f2s(self, **how: Any) -> Play:
        return self.f2(static=True, **how)


def _per_actor(given: PerActor, name: str, otherwise: int) -> int:
    return given.get(name, otherwise) if isinstance(given, dict) else given


def _group_of(fact: Fact) -> str:
    size = int.from_bytes(fact[0][2:4], "big")
    return fact[0][4 : 4 + size].decode()
