"""Playbooks: calls and times in; replies, facts and notes out. The `play` fixture (conftest.py) is one shard in virtual time.

    @scenario("SR-01")
    def test_a_static_member_that_restarts_keeps_its_place(play):
        play.two_static()                                          # a/ia (leader) and b/ib, Stable in generation 1
        play.join("b'").expect(generation=1, id="b'", leader="a", members=[])
        play.expect_records("replacement")
        play.heartbeat("b").expect(FENCED_INSTANCE_ID)
        play.group_is(State.STABLE, generation=1, members=["a", "b'"])

**Actors** are names. The first `join` of an actor sends no member id; the id it is given (`ib-b'`: the fresh part is the actor's
name) is sent by its later requests. A name that never joined stands for itself (`play.heartbeat("x")`: an unknown id).
An actor's fields of JoinGroup (instance, protocols, timeouts, type) are repeated by its next join unless the test passes another; a restarted
process (`b'`, `b''`) starts with the fields of `b`. `instance=None` leaves the instance id out, `id="x"` sends that id.

**Set-ups**: `one_dynamic two_dynamic one_static two_static three_static` are stable groups, in generation 1, of members a (the leader), b and
c; `two_awaiting_assignment follower_awaits_assignment leader_rejoins two_loaded two_loaded_static` are described below. All take options:
`two_dynamic(session={"b": 6_000}, rebalance=5_000, protocols=[...])`. `settled(*names, static=, synced=, ...)` and
`joined(*names, static=, ...)` (CompletingRebalance) make others. `configure(...)` comes before anything else. Moments count from the end of the set-up.

**Time**: `at(5_000)` after the set-up, `after(5_000)` from now; on the way `advance` runs at each `wake_at`, and members named
by `keep_alive("a", "b")` heartbeat every 2 s with the group's generation (`stop_heartbeats("a")` ends that). A timer of 0 ms needs `after(0)`.

**Requests** (all take `group="g"`): `join sync heartbeat leave commit fetch describe listed delete offset_delete`. Each returns an
object to check the reply with: `.expect(error, ...)` (the reply; `at=`: its moment), `.expect_parked()` (no reply yet).
`play.expect("a", ...)` is about the actor's last request. `answers` lists requests in the order in which they were answered.

**Records**: `expect_records("assignments", "offset")` is everything written since the set-up or the last `expect_records`, in order
(`expect_records()`: nothing), and returns the records; `as_record` in simulator/truths.py has all kinds. Notes:
`expect_note(Kind.MEMBER_GONE, ...)`.

**State**: `group_is(...)`, `group_is_absent()`, `session_left("a")`, `phase_left()`, `play.group()` (the core's own object).

**The log** confirms at once. `hold_appends()` leaves facts in flight until `confirm()`; `fail_log(16)` suspends: held replies get the
code, parked replies 16, facts that are not durable are void, and the shard is replayed. `failover()` (`written=True`: appends in
flight reached the log), `unload()`, `load()`.

After each step the group's invariants are checked, after each playbook (and at each failover) against a fresh shard that replays the
log: truths.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Self

from coordinator.classic.group import Group
from coordinator.deadlines import NEVER
from coordinator.facts import group_key
from coordinator.states import State
from protocol.messages.consumer_offsets import GroupMetadataValue, MemberMetadata
from protocol.records import with_version
from tests.coordinator.requests import Offered, Requests
from tests.coordinator.scenarios import row, scenario
from tests.coordinator.sent_requests import SentJoin, SentSync
from tests.coordinator.stage import BEGIN_MS, T0, T0_T1, subscription

__all__ = ["BEGIN_MS", "T0", "T0_T1", "Play", "group_record", "row", "scenario", "subscription"]

PerActor = int | dict[str, int]


def group_record(
    generation: int, members: Sequence[MemberMetadata] = (), protocol: str | None = "range", type: str = "consumer", state_ms: int = -1
) -> bytes:
    """The value of a group record; its leader is the first member."""
    leader = members[0].member_id if members else None
    return with_version(GroupMetadataValue(type, generation, protocol if members else None, leader, state_ms, list(members)), 3)


class Play(Requests):
    # State.

    def group(self, group: str = "g") -> Group:
        group_state = self._of(group)
        assert group_state is not None, f"no group {group}"
        return group_state

    def group_is_absent(self, group: str = "g") -> None:
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
        group_state = self.group(group)
        assert group_state.state.name == state.name
        if generation is not None:
            assert group_state.generation == generation
        if leader is not None:
            assert group_state.leader == self.id_of(leader)
        if members is not None:
            assert list(group_state.members) == [self.id_of(member) for member in members]
        if pending is not None:
            assert list(group_state.pending_members) == [self.id_of(actor) for actor in pending]
        if protocol is not None:
            assert group_state.protocol_name == protocol

    def session_left(self, actor: str) -> int | None:
        """Milliseconds until the session of a member, or the life of a pending id, ends. None: it does not."""
        group_state = self.group()
        id = self.id_of(actor)
        member = group_state.members.get(id) or group_state.pending_members[id]
        return None if member.deadline == NEVER else member.deadline - self.now

    def phase_left(self) -> int | None:
        """Milliseconds until the join phase ends or members without a sync are removed. None: no such timer."""
        deadline = self.group().deadline
        return None if deadline == NEVER else deadline - self.now

    # Set-ups.

    def _ready(self) -> Self:
        """End the set-up: moments count from now on, and earlier records, notes and answers are discarded."""
        self.began = self.now
        self._newest = []
        self.notes.clear()
        self.answers.clear()
        return self

    def joined(
        self,
        *names: str,
        static: bool | Collection[str] = False,
        session: PerActor = 10_000,
        rebalance: PerActor = 20_000,
        protocols: Offered | dict[str, Offered] = ("range",),
        type: str = "consumer",
        metadata: bytes | None = None,
        group: str = "g",
    ) -> Self:
        """CompletingRebalance in generation 1, led by the first name. `static`: all or these names are static members, with instance ids ia, ib, ..."""
        statics = (names if static else ()) if isinstance(static, bool) else static
        for name in names:
            self.join(
                name,
                instance=f"i{name}" if name in statics else None,
                protocols=protocols[name] if isinstance(protocols, dict) else protocols,
                metadata=metadata,
                session=_per_actor(session, name, 10_000),
                rebalance=_per_actor(rebalance, name, 20_000),
                type=type,
                version=9 if name in statics else 3,
                group=group,
            )
        for _ in range(100):
            if self.group(group).state != State.PREPARING:
                break
            self._until(max(self._serving.wake_at, self.now))
        self.group_is(State.COMPLETING, generation=1, leader=names[0], members=list(names), group=group)
        return self._ready()

    def settled(self, *names: str, group: str = "g", synced: Sequence[str] | None = None, **options: Any) -> Self:
        """Stable in generation 1; assignments 01, 02, ... `synced`: the members that synced, the leader among them; by default all."""
        self.joined(*names, group=group, **options)
        self.sync(names[0], {name: number for number, name in enumerate(names, 1)}, group=group)
        for name in names[1:] if synced is None else [name for name in synced if name != names[0]]:
            self.sync(name, group=group)
        self.group_is(State.STABLE, generation=1, group=group)
        return self._ready()

    def one_dynamic(self, **options: Any) -> Self:
        return self.settled("a", **options)

    def two_dynamic(self, **options: Any) -> Self:
        return self.settled("a", "b", **options)

    def one_static(self, **options: Any) -> Self:
        return self.settled("a", static=True, **options)

    def two_static(self, **options: Any) -> Self:
        return self.settled("a", "b", static=True, **options)

    def three_static(self, **options: Any) -> Self:
        return self.settled("a", "b", "c", static=True, **options)

    def two_awaiting_assignment(self, *, static: bool = True, **options: Any) -> Self:
        """CompletingRebalance in generation 1: no member has sent a SyncGroup."""
        return self.joined("a", "b", static=static, **options)

    def follower_awaits_assignment(self, *, static: bool = True, **options: Any) -> SentSync:
        """As two_awaiting_assignment, but the follower b has sent its SyncGroup, which is returned."""
        self.two_awaiting_assignment(static=static, **options)
        parked = self.sync("b")
        parked.expect_parked()
        self._ready()
        return parked

    def leader_rejoins(self, **options: Any) -> SentJoin:
        """PreparingRebalance, begun by the leader's JoinGroup, which is returned."""
        self.two_static(**options)
        parked = self.join("a")
        parked.expect_parked()
        self._ready()
        return parked

    def two_loaded(self, *, static: bool = False, count: int = 2, session: PerActor = 10_000, rebalance: int = 5_000) -> Self:
        """Loaded from the log: generation 7, m0 (leader) and m1, sessions of 10 s, assignments 01, 02."""
        members = []
        for number in range(count):
            name = f"m{number}"
            fields = self._join_fields(name)
            fields.instance = f"i{number}" if static else None
            fields.session_ms = _per_actor(session, name, 10_000)
            fields.rebalance_ms = rebalance
            members.append(MemberMetadata(name, fields.instance, "c", "/127.0.0.1", rebalance, fields.session_ms, T0, bytes([number + 1])))
            self.ids[name] = name
        self.load((group_key("g"), group_record(7, members, state_ms=self.now)))
        return self._ready()

    def two_loaded_static(self, **options: Any) -> Self:
        return self.two_loaded(static=True, **options)


def _per_actor(values: PerActor, name: str, otherwise: int) -> int:
    return values.get(name, otherwise) if isinstance(values, dict) else values
