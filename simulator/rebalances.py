"""The promises about rebalances, as comparisons of the coordinator's memory at two moments. Groups with policies have other rules."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from coordinator.notes import Cause
from coordinator.states import COMPLETING, EMPTY, PREPARING, STABLE, State
from simulator.promises import Sessions
from simulator.world import Broken, Promise

BOUNDS: Final = Promise("bounds", "connections and members stay within what clients can account for")


class _JoinPhase(NamedTuple):
    """A join phase at the last check."""

    seen_at: int
    began: int
    began_wall_ms: int
    deadline: int
    delay_ms: int  # how much longer the first rebalance of a group may still be extended
    parked: dict[str, Any]  # member id -> its parked JoinGroup
    rejoined: set[str]  # parked ids of members of an earlier generation
    pending: dict[str, Any]  # member ids given to clients with MEMBER_ID_REQUIRED, and not yet used


class _FirstRebalance(NamedTuple):
    """The first rebalance of an empty group, as the notes (records of the group's state changes) say."""

    began_ms: int
    newest_ms: int = -1  # when the newest member joined


class _Generation(NamedTuple):
    """The members of a generation at the last check."""

    group: Any
    generation: int
    seats: set[str]


class Rebalances:
    """Checks that a rebalance ends in time and waits for every member that it must wait for, and that a generation keeps its members."""

    promise = Promise(
        "rebalances",
        "a rebalance ends in time, waits for every member until its timeout and for member ids that were handed out, and its generation keeps its members with the subscriptions that they sent",
    )

    def __init__(self, size_max: int, timeouts_ms: dict[str, int], delay_ms: int) -> None:
        """`timeouts_ms`: the rebalance timeout of each group. `delay_ms`: group.initial.rebalance.delay.ms; 0 if groups have policies."""
        self._size_max = size_max
        self._timeouts_ms = timeouts_ms
        self._delay_ms = delay_ms
        self._joins: dict[str, _JoinPhase] = {}
        self._seats: dict[str, _Generation] = {}
        self._first_rebalances: dict[str, _FirstRebalance] = {}
        self._known: dict[str, set[str]] = {}  # group -> member ids that joined since the end of its last join phase
        self._completing_ms: dict[str, int] = {}  # group -> the begin of its last COMPLETING, by the notes

    def check(self, group: Any, moment: int) -> None:
        joins = self._joins.pop(group.id, None)
        if group.policies is not None:
            return
        if group.state is PREPARING:
            self._check_join_phase(group, joins, moment)
        elif group.state in (COMPLETING, STABLE):
            self._check_generation(group)

    def _check_join_phase(self, group: Any, before: _JoinPhase | None, moment: int) -> None:
        parked = {member.id: member.join_waiter for member in group.members.values() if member.join_waiter is not None}
        if group.all_parked and not group.rebalance_is_initial and len(parked) < self._size_max:  # as in Kafka, a group above the limit waits on after it removed a member
            raise Broken(self.promise, f"all members of {group.id} have rejoined, and the join phase goes on", group.id)
        rejoined = {id for id in parked if not group.members[id].is_new}
        delay_ms = group.delay_remaining_ms if group.rebalance_is_initial else 0
        pending = dict(group.pending_members)
        self._joins[group.id] = _JoinPhase(
            moment, group.phase_start_ms, group.state_ms, group.deadline, delay_ms, parked, rejoined, pending
        )
        if before is None or before.began != group.phase_start_ms or group.deadline <= before.deadline or delay_ms < before.delay_ms:
            return
        for id, join in parked.items():
            if before.parked.get(id) is join:
                raise Broken(self.promise, f"{id} waits for a rebalance whose end moved by {group.deadline - before.deadline} ms", group.id)

    def _check_generation(self, group: Any) -> None:
        rejoined = [member for id, member in group.members.items() if id not in group.laggards]
        if len(rejoined) > self._size_max:
            raise Broken(BOUNDS, f"{group.id} has {len(rejoined)} members, more than group.max.size={self._size_max}", group.id)
        late = [id for id in group.laggards if id in group.members and group.members[id].instance_id is None]
        if late:
            raise Broken(self.promise, f"{late[0]} did not rejoin in time and is in generation {group.generation}", group.id)
        seats = seats_of(group)
        before = self._seats.get(group.id)
        if before is not None and before.group is group and before.generation == group.generation and before.seats != seats:
            raise Broken(self.promise, f"generation {group.generation} of {group.id} had members {sorted(before.seats)}, and now has {sorted(seats)}", group.id)
        self._seats[group.id] = _Generation(group, group.generation, seats)

    def listed(self, group: Any, reply: Any) -> None:
        """The leader of a generation received this list of its members."""
        generation = reply.generation_id
        if group.policies is not None or group.generation != generation or group.state not in (COMPLETING, STABLE):
            return
        seats = {member.group_instance_id or member.member_id for member in reply.members}
        if seats != seats_of(group):
            raise Broken(
                self.promise, f"the leader of generation {generation} of {group.id} received members {sorted(seats)}, and the group has {sorted(seats_of(group))}", group.id
            )
        for listed in reply.members:
            member = group.members.get(listed.member_id)
            if member is not None and member.metadata(group.protocol_name) != listed.metadata:
                subscriptions = f"{listed.metadata!r} of {listed.member_id}, and the group has {member.metadata(group.protocol_name)!r}"
                raise Broken(self.promise, f"the leader of generation {generation} of {group.id} received subscription {subscriptions}", group.id)

    def saw_rebalance(self, group: str) -> bool:
        """Whether the group was in a join phase at the last check."""
        return group in self._joins

    def heartbeat_accepted(self, group: Any, sent: int, what: str) -> None:
        """A heartbeat sent at the moment `sent` was answered without an error."""
        joins = self._joins.get(group.id)
        if joins is not None and joins.seen_at < sent and group.state is PREPARING and group.phase_start_ms == joins.began:
            raise Broken(self.promise, f"{what} succeeds although {group.id} rebalances", group.id)

    def ended(self, group: Any, cause: Cause, generation: int, at_ms: int) -> None:
        """A note says that a join phase ended at `at_ms`. The last check may have seen a later phase, since notes wait for the log."""
        if cause == Cause.EVERYONE_JOINED and group.policies is None and group.generation == generation and group.laggards:
            raise Broken(self.promise, f"the rebalance of {group.id} did not wait for {group.laggards[0]}", group.id)
        joins = self._joins.get(group.id)
        if joins is not None and joins.began_wall_ms < at_ms and cause == Cause.EVERYONE_JOINED:
            for id, pending in joins.pending.items():
                if group.pending_members.get(id) is pending:
                    raise Broken(self.promise, f"the rebalance of {group.id} did not wait for member id {id}, which was handed out", group.id)

    def joined(self, group: str, member_id: str, at_ms: int) -> None:
        """A member joined or rejoined."""
        known = self._known.setdefault(group, set())
        first = self._first_rebalances.get(group)
        if first is not None and member_id not in known:
            self._first_rebalances[group] = first._replace(newest_ms=at_ms)
        known.add(member_id)

    def changed(self, group: str, before: State, after: State, cause: Cause, at_ms: int) -> None:
        """A note says that a group changed its state.

        Each new member extends the first rebalance by the initial delay, up to the rebalance timeout.
        """
        if after is COMPLETING:
            self._completing_ms[group] = at_ms
        if before is EMPTY:
            self._first_rebalances[group] = _FirstRebalance(at_ms)
        elif before is PREPARING:
            self._known.pop(group, None)
            first = self._first_rebalances.pop(group, None)
            if first is None or cause != Cause.JOIN_TIMEOUT or at_ms - first.began_ms >= self._timeouts_ms.get(group, 0):
                return
            if first.newest_ms > at_ms - self._delay_ms:
                raise Broken(self.promise, f"the first rebalance of {group} ended {at_ms - first.newest_ms} ms after a member had joined, and not after {self._delay_ms} ms", group)

    def sync_phase_ended(self, group: str, at_ms: int) -> None:
        """A member was removed since it sent no SyncGroup. Members must have the whole rebalance timeout for that."""
        began_ms = self._completing_ms.get(group)
        if began_ms is not None and at_ms - began_ms < self._timeouts_ms.get(group, 0):
            raise Broken(self.promise, f"{group} waits only {at_ms - began_ms} ms for SyncGroups", group)

    def forget_joins(self, group: str) -> None:
        """Notes of the group are missing, perhaps about joins."""
        self._first_rebalances.pop(group, None)

    def expired(self, group: Any, member_id: str) -> None:
        """The broker ended the session of a member. It must not while this member's JoinGroup is parked."""
        joins = self._joins.get(group.id)
        if joins is not None and member_id in joins.rejoined and group.state is PREPARING and group.phase_start_ms == joins.began:
            raise Broken(Sessions.promise, f"the session of {member_id} ended while its JoinGroup waited", group.id)

    def forget(self) -> None:
        self._joins.clear()
        self._seats.clear()
        self._first_rebalances.clear()
        self._known.clear()
        self._completing_ms.clear()


def check_subscription(group: Any, request: Any, reply: Any) -> None:
    """A JoinGroup was answered without an error: raise Broken if the group has another subscription of the member than it sent."""
    member = group.members.get(reply.member_id)
    if member is None or group.generation != reply.generation_id or group.state not in (COMPLETING, STABLE):
        return
    name = reply.protocol_name
    sent = next(protocol.metadata for protocol in request.protocols if protocol.name == name)
    if member.metadata(name) != sent:
        raise Broken(Rebalances.promise, f"{reply.member_id} joined generation {group.generation} of {group.id} with subscription {sent!r}, and has {member.metadata(name)!r} there", group.id)


def seats_of(group: Any) -> set[str]:
    return {member.instance_id or id for id, member in group.members.items()}
