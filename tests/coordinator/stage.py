"""The base of a playbook: one shard, its log, its clock, and the member ids of its actors."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Self, TypeVar

from coordinator import Fact, GroupConfig, JoinRequest, Note, Shard, SyncRequest
from coordinator.calls import Closable
from coordinator.classic.group import Group
from coordinator.deadlines import NEVER
from coordinator.policies.declaration import GroupPolicies
from coordinator.policies.rebalance_request import REBALANCE_REQUEST
from coordinator.repeats import RepeatedCommit, RepeatedHeartbeat
from protocol.batch import facts_of
from protocol.errors import ErrorCode
from protocol.messages.consumer_offsets import GroupMetadataValue
from protocol.messages.coordinator_notes import StateChange
from protocol.messages.kinds import NoteKind
from simulator.truths import Record, as_record, check_documented, check_group, compare_with_log, reply_state
from tests.coordinator.sent_requests import SentRequest

BEGIN_MS = 1_700_000_000_037  # not a multiple of the timer wheel's tick
BEAT_MS = 2_000
UNCHANGED: Any = object()

A = TypeVar("A", bound=SentRequest)


def subscription(*topics: str) -> bytes:
    """Consumer metadata, version 0, no user data."""
    names = b"".join(len(topic.encode()).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


T0 = subscription("t0")
T0_T1 = subscription("t0", "t1")  # the subscription of a member that changed its topics


class JoinFields:
    """An actor's fields of a JoinGroup request."""

    def __init__(self) -> None:
        self.instance: str | None = None
        self.protocols: tuple[tuple[str, bytes], ...] = (("range", T0),)
        self.session_ms = 10_000
        self.rebalance_ms = 20_000
        self.type = "consumer"


class Stage:
    def __init__(self) -> None:
        self.now = self.began = BEGIN_MS
        self.ids: dict[str, str] = {}
        self.log: list[Fact] = []
        self.in_flight: list[Fact] = []
        self.answers: list[SentRequest] = []
        self.notes: list[Note] = []
        self._notes_by_step: list[list[Note]] = []
        self._join_fields_by_actor: dict[str, JoinFields] = {}
        self._last: dict[str, SentRequest] = {}
        self._alive: list[tuple[str, str]] = []
        self._next_beat = NEVER
        self._newest: list[Record] = []
        self._newcomer = ""
        self.limits: list[tuple[str, str, str, str]] = []  # setting, group, member and host of requests that a bound on memory refused
        self.skew_ms = 0
        self.connection: Closable | None = None  # the connection of the next JoinGroups
        self.steady_since_ms = self.began  # the argument of Shard.advance: the time since which the clock has run steadily
        self._holds = False
        self._gathers = False
        self.configure()

    def configure(self, **config: Any) -> None:
        """Replace limits of the coordinator (fields of `GroupConfig`); must precede everything else."""
        assert not self.log, "call configure first"
        self.config = GroupConfig(**config)
        self._new_shard()

    def _new_shard(self) -> None:
        self.shard: Shard | None = Shard(self.config, self._fresh_id, self._take_notes, limit_sink=lambda *refused: self.limits.append(refused[:4]))
        self.beats: dict[tuple[Any, ...], RepeatedHeartbeat] = {}
        self.repeats: dict[Hashable, RepeatedCommit] | None = {}  # commits with a repeat cache; None: each commit takes the usual path
        self.repeated = 0  # commits that took the fast path
        self.joins: dict[tuple[Any, ...], JoinRequest] = {}  # JoinGroups that a connection would remember: a repeat is passed as the same object
        self.syncs: dict[tuple[Any, ...], SyncRequest] = {}
        self._reply_states: dict[tuple[Group, int], Hashable] = {}

    def close(self) -> None:
        if self.shard is not None:
            compare_with_log(self.shard, self.log + self.in_flight, self.now)

    # Actors.

    def id_of(self, actor: str) -> str:
        return self.ids.get(actor, actor)

    def _fresh_id(self) -> str:
        assert self._newcomer, "a member id was made without a newcomer"
        newcomer, self._newcomer = self._newcomer, ""
        return newcomer

    def _join_fields(self, actor: str) -> JoinFields:
        fields = self._join_fields_by_actor.get(actor)
        if fields is None:
            fields = self._join_fields_by_actor[actor] = JoinFields()
            before = self._join_fields_by_actor.get(actor.rstrip("'"))
            if before is not None:
                vars(fields).update(vars(before))
        return fields

    def _instance(self, actor: str, instance: Any) -> str | None:
        if instance is not UNCHANGED:
            return None if instance is None else str(instance)
        fields = self._join_fields_by_actor.get(actor) or self._join_fields_by_actor.get(actor.rstrip("'"))
        return fields.instance if fields is not None else None

    def _of(self, group: str) -> Group | None:
        return self._serving.groups.get(group)

    @property
    def _serving(self) -> Shard:
        assert self.shard is not None, "the shard is not loaded"
        return self.shard

    def set_policies(self, texts: dict[str, str] | None = None, request: str | None = None, group: str = "g") -> list[str]:
        """Replace the policies of a group; returns the reasons of a refusal, [] if accepted."""
        wrong = self._serving.policies.replace(group, texts or {}, {} if request is None else {REBALANCE_REQUEST.name: request}, self.now, self.wall)
        self._end_step("policy")
        return wrong

    def texts(self, group: str = "g") -> dict[str, str]:
        """The policies of a group as they were written."""
        return dict(self._serving.policies.texts(group))

    def policies(self, group: str = "g") -> GroupPolicies:
        return self._serving.policies.of(group)

    def newcomers(self, group: str = "g") -> list[str]:
        """The instance ids (of dynamic clients: member ids) of clients that wait to become members."""
        state = self._of(group)
        assert state is not None
        return [name for _, name in state.newcomers]

    # The log.

    def _end_step(self, during: str, actor: str = "", sent: SentRequest | None = None) -> None:
        if sent is not None:
            self._last[actor] = sent
        shard = self._serving
        if not self._gathers:
            self._append(during)
        for group in shard.groups.values():
            check_group(group)
            state = reply_state(group)
            assert self._reply_states.setdefault((group, group.version), state) == state, "the group changed, and its cached verdict stayed valid"
        assert shard.kept.bytes == sum(group.kept_bytes for group in shard.groups.values()), "a group that is gone still counts"

    def _append(self, during: str) -> None:
        shard = self._serving
        batch: list[Fact] = []
        while shard.hold.has_untaken:
            batch += facts_of(bytes(shard.hold.take_batch(self.now)))
        self._newest += [as_record(fact, shard.groups.get(_group_of(fact)), during) for fact in batch]
        self.in_flight += batch
        if not self._holds:
            self._confirm()

    def _confirm(self) -> None:
        hold = self._serving.hold
        self.log += self.in_flight
        self.in_flight = []
        hold.confirm(hold.taken)
        assert not hold.waiting, "a reply is held although all facts are durable"

    def hold_appends(self) -> None:
        self._holds = True

    def gather(self) -> None:
        """From now on, until the log confirms or fails, the facts of several calls share batches, as they do within a turn."""
        self._gathers = True

    def confirm(self) -> None:
        """Make the appends in flight durable; later appends are durable at once."""
        self._holds = False
        if self._gathers:
            self._gathers = False
            self._append("turn")
        self._confirm()

    def fail_log(self, error: int = ErrorCode.NOT_COORDINATOR) -> None:
        """An append failed: the shard is suspended, and replayed at once from the durable facts."""
        shard = self._serving
        self.in_flight = []
        self._holds = self._gathers = False
        shard.hold.fail(error)
        shard.abandon()
        self._open()

    def _open(self) -> None:
        shard = self._serving
        shard.clear()
        shard.replay(self.log)
        for _ in shard.open_groups(lambda: (self.now, self.wall)):
            pass
        self._newest = []
        self._end_step("open")

    def failover(self, *, written: bool = False) -> None:
        """The coordinator crashes, and another opens the log. `written`: the log has the appends that were in flight."""
        if self.shard is not None:
            compare_with_log(self.shard, self.log + self.in_flight, self.now)
        if written:
            self.log += self.in_flight
        self.in_flight = []
        self._holds = self._gathers = False
        self.load()

    def unload(self) -> None:
        """An orderly end: wait for the flush in flight, then refuse the parked requests."""
        shard = self._serving
        self._confirm()
        compare_with_log(shard, self.log, self.now)
        shard.abandon()
        shard.clear()
        self.shard = None

    def load(self, *facts: Fact) -> None:
        """Open the log, with these facts appended."""
        self.log += facts
        self._new_shard()
        self._open()

    def _replied(self, during: str, actor: str, sent: A) -> A:
        """Give the reply to the shard's `Hold`, as a handler does: the reply leaves after all earlier ones."""
        self._serving.hold.hold_reply(sent)
        self._end_step(during, actor, sent)
        return sent

    # Records and notes.

    def _take_notes(self, notes: list[Note], fact_number: int) -> None:
        self.notes.extend(notes)
        for note in notes:
            if isinstance(note.body, StateChange):
                check_documented(note.body)

    def expect_records(self, *kinds: str) -> list[Record]:
        records, self._newest = self._newest, []
        assert [record.kind for record in records] == list(kinds)
        return records

    def expect_group_record(self, kind: str) -> GroupMetadataValue:
        """Expect exactly one new record, of this kind; returns the group that it stores."""
        (record,) = self.expect_records(kind)
        assert record.stored_group is not None
        return record.stored_group

    def expect_note(self, kind: NoteKind, **body: Any) -> Note:
        """Return the newest note of this kind since the set-up whose body has these values (actors by name)."""
        fields = {name: self.id_of(value) if isinstance(value, str) else value for name, value in body.items()}
        of_kind = [note for note in self.notes if note.kind == kind]
        for note in reversed(of_kind):
            if all(getattr(note.body, name) == value for name, value in fields.items()):
                return note
        names: tuple[str, ...] = type(of_kind[0].body).__slots__ if of_kind else ()
        bodies = [{name: getattr(note.body, name) for name in names} for note in of_kind]
        raise AssertionError(f"no note {kind.name} {fields}, only {bodies}")

    # Time.

    @property
    def wall(self) -> int:
        """The wall-clock time; a test moves it away from `now` by `skew_ms`."""
        return self.now + self.skew_ms

    def at(self, ms: int) -> Self:
        """Advance the time to `ms` after the set-up."""
        return self._until(self.began + ms)

    def after(self, ms: int) -> Self:
        return self._until(self.now + ms)

    def keep_alive(self, *actors: str, group: str = "g") -> Self:
        self._alive += [(actor, group) for actor in actors]
        self._next_beat = self.now
        return self

    def stop_heartbeats(self, *actors: str) -> Self:
        self._alive = [living for living in self._alive if living[0] not in actors]
        return self

    def _until(self, moment: int) -> Self:
        assert moment >= self.now, "time does not go back"
        self._advance()
        while True:
            if self._alive and self._next_beat <= self.now:
                self._next_beat = self.now + BEAT_MS
                for actor, group in self._alive:
                    state = self._of(group)
                    if state is not None and self.id_of(actor) in state.members:
                        self._beat(actor, state)
            if self.now == moment:
                return self
            self.now = min(moment, self._serving.wake_at, self._next_beat if self._alive else NEVER)
            self._advance()

    def _advance(self) -> None:
        shard = self._serving
        shard.advance(self.now, self.wall, self.steady_since_ms)
        assert shard.wake_at > self.now, "`advance` left a deadline that is due"
        self._end_step("time")

    def _beat(self, actor: str, group: Group) -> None:
        sent = SentRequest(self, f"heartbeat {actor}")
        instance = self._instance(actor, UNCHANGED)
        sent.reply = self._code_of_heartbeat(group.id, group.generation, self.id_of(actor), instance)
        self._replied("heartbeat", "", sent)

    def _code_of_heartbeat(self, *words: Any) -> int:
        """The error code for this heartbeat. A repeated one takes the fast path, as on a connection of the broker."""
        beat = self.beats.get(words)
        if beat is None:
            beat = self.beats[words] = RepeatedHeartbeat(*words)
        return ErrorCode.NONE if beat.try_accept(self.now) else beat.accept_slow(self._serving, self.now)


def _group_of(fact: Fact) -> str:
    size = int.from_bytes(fact[0][2:4], "big")
    return fact[0][4 : 4 + size].decode()
