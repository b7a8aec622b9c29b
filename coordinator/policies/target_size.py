"""Policy target.group.size: members beyond the target are warm standbys.

A standby belongs to the generation and sends heartbeats, but it is not in the leader's member list, and its assignment is empty. When
an active member is removed while the group is STABLE, its seat (assignment and leadership) goes to the longest-waiting standby with
the same topics, without a rebalance: a take-over. One step stores the group without the removed member. When that record is durable,
the standby's next heartbeat gets REBALANCE_IN_PROGRESS, its JoinGroup the same generation, and its SyncGroup the seat's assignment.
Until that SyncGroup the take-over is stored, so that it survives a failover.

The seats record has the generation it belongs to. It identifies static members by instance id, since their member ids change
without a new seats record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from coordinator.calls import JoinRequest, JoinWaiter
from coordinator.classic.group import CONSUMER, Group
from coordinator.classic.join import drop_waiting_request, rejoin, reply_without_rebalance, update_member
from coordinator.classic.member import GroupTimer, Member
from coordinator.classic.newcomer import new_member, note_join
from coordinator.classic.rebalance import (
    begin_rebalance,
    join_reply,
    rebalance_or_hand_over,
    remove_expired,
    remove_member,
    store_static_ids,
)
from coordinator.classic.subscription import EMPTY_ASSIGNMENT, topics_differ, topics_match
from coordinator.classic.waiting import count_other_newcomers
from coordinator.facts import group_key, group_value
from coordinator.hold import Fact
from coordinator.notes import Cause, Removal, StandbyStep, grant_note_budget, spend_note_budget
from coordinator.policies.declaration import GroupPolicies, Size, not_in_consumer_groups
from coordinator.policies.hooks import PolicyRules
from coordinator.policies.status import STANDBY, TAKE_OVER, StatusEntry
from coordinator.states import COMPLETING, STABLE
from coordinator.step_output import StepOutput
from protocol.errors import ErrorCode
from protocol.messages.consumer_offsets import SeatsKey, SeatsValue, SeatTakeOver, StandbyMember
from protocol.messages.coordinator_notes import StandbyChange
from protocol.records import in_newest_version, read_record

TARGET_GROUP_SIZE: Final = Size(
    "target.group.size",
    "How many members get partitions; further members are standbys.",
    consumers=not_in_consumer_groups("every member may get partitions there, as the assignor decides"),
)

STREAM: Final = "stream"  # the protocol of Kafka Streams, which has standbys of its own
NO_TARGET: Final = 1 << 31  # more members than any group has

_DIGITS: Final = re.compile("([0-9]+)")


class VacatedSeat(NamedTuple):
    """The place that a removed member leaves to a standby: its assignment, and whether it was the leader."""

    member_id: str
    instance_id: str | None
    from_id: str  # the last member that had the assignment: not `member_id` if that member was still taking the seat over
    from_instance: str | None
    assignment: bytes
    metadata: bytes  # its subscription
    leads: bool
    empty: bool = False  # the removed member was a standby: it leaves no assignment


class TakeOver(GroupTimer):
    """A standby got the seat of a removed member and has not sent its SyncGroup yet. At the deadline the next standby gets the seat."""

    __slots__ = ("_rules", "extended", "from_id", "from_instance", "member_id", "since_ms")

    def __init__(self, rules: TargetSize, group_id: str, member_id: str, from_id: str, from_instance: str | None, since_ms: int) -> None:
        super().__init__(group_id)
        self._rules = rules
        self.member_id = member_id
        self.from_id = from_id
        self.from_instance = from_instance
        self.since_ms = since_ms  # wall time, as stored
        self.extended = False  # its deadline was extended (`Deadlines.extends`)

    def due(self, out: Any, groups: Any) -> None:
        self._rules.take_over_due(out, groups[self.group_id], self)


class TargetSize(PolicyRules):
    declares = (TARGET_GROUP_SIZE,)
    explained = True

    def __init__(self) -> None:
        self.standbys: dict[str, int] = {}  # member id -> when it became a standby (wall time), ascending
        self.take_overs: dict[str, TakeOver] = {}  # by the id of the standby that takes the seat over
        self.vacated_seats: list[VacatedSeat] = []  # seats of members removed in this step
        self.departed_while_assigning = False  # an active member was removed in this step, in COMPLETING
        self._stored_seats: bytes | None = None  # the newest seats record
        self._is_changed = False  # the policies were set, and `settled` has not been called since

    @staticmethod
    def problems(before: GroupPolicies, after: GroupPolicies, group: Group | None) -> list[str]:
        problems: list[str] = []
        if TARGET_GROUP_SIZE.name not in after.own or group is None or not group.members:
            return problems
        if group.protocol_type != CONSUMER:
            problems.append(
                f"target.group.size: the protocol type of the group is {group.protocol_type!r}; only groups of consumers have standbys, so leave it out"
            )
        elif STREAM in group.protocol_counts:
            problems.append(
                "target.group.size: the members use the protocol 'stream' of Kafka Streams, which has standbys itself; set num.standby.replicas there"
            )
        return problems

    def changed(self, out: StepOutput, group: Group, named: Mapping[str, str], stored: dict[bytes, bytes]) -> None:
        self._is_changed = True
        value = stored.pop(seats_key(group.id), None)
        if value is not None:
            self._restore(out, group, value)

    def settled(self, out: StepOutput, group: Group) -> None:
        """Let standbys take the seats of away members, and begin a rebalance if the number of active members is not the target.

        A seat that is free is not given to a standby while newcomers wait for it, unless the policies have changed.
        """
        is_changed, self._is_changed = self._is_changed, False
        if group.state is STABLE and self._move_seats_of_away(out, group):
            return
        if (is_changed or not group.newcomers) and (group.state is STABLE or group.state is COMPLETING) and self.misses_target(group):
            begin_rebalance(out, group, Cause.TARGET_CHANGED)

    def status(self, group: Group) -> dict[str, list[StatusEntry]]:
        """The standbys, the longest-waiting first, and the take-overs."""
        names = {id: member.instance_id or id for id, member in group.members.items()}
        return {
            STANDBY: [StatusEntry(names[id], since_ms) for id, since_ms in self.standbys.items()],
            TAKE_OVER: [StatusEntry(names[id], seat.since_ms, seat.from_instance or seat.from_id) for id, seat in self.take_overs.items()],
        }

    def refusal(self, out: StepOutput, group: Group | None, member: Member | None, request: JoinRequest) -> int:
        """Only groups of consumers can have a target of their own."""
        if TARGET_GROUP_SIZE.name in self.values.own and (request.protocol_type != CONSUMER or any(name == STREAM for name, _ in request.protocols)):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def answers_join(self, out: StepOutput, group: Group, member: Member | None, request: JoinRequest, waiter: JoinWaiter, id: str) -> bool:
        if member is None:
            if not self._enters_as_standby(group, request):
                return False
            self._add_without_rebalance(out, group, request, waiter, id)
            return True
        if not self._keeps_generation(group, member, request):
            return False
        self._rejoin_in_generation(out, group, member, request, waiter)
        return True

    def heard_from(self, out: StepOutput, group: Group, member: Member, synced: bool) -> bool:
        """The SyncGroup ends a take-over. The reply waits until the seats record is durable, so no other standby can get the seat."""
        if synced and group.state is STABLE and member.must_rejoin:
            take_over = self._pop_take_over(out, member)
            if take_over is not None:
                self._store_record(out, group)
                group.version += 1
                note_standby(out, group, member, StandbyStep.TOOK_OVER, take_over)
        return False

    def session_ended(self, out: StepOutput, group: Group, member: Member) -> bool:
        """A standby has no seat to keep, and a seat that a standby can have at once is not kept."""
        if member.id not in self.standbys and not self._can_take_over(group, member):
            return False
        remove_expired(out, group, member)
        return True

    def member_goes(self, out: StepOutput, group: Group, member: Member, successor: Member | None) -> None:
        if successor is None:
            self._remember_seat(out, group, member)
            return
        # A static member that returns under a new member id keeps its place among the standbys, or its take-over.
        if member.id in self.standbys:
            self.standbys = {successor.id if id == member.id else id: since for id, since in self.standbys.items()}
        take_over = self.take_overs.pop(member.id, None)
        if take_over is not None:
            take_over.member_id = successor.id
            self.take_overs[successor.id] = take_over
            successor.must_rejoin = True

    def without_seat(self) -> Mapping[str, bytes]:
        return dict.fromkeys(self.standbys, EMPTY_ASSIGNMENT) if self.standbys else {}

    def hand_over(self, out: StepOutput, group: Group) -> bool:
        """Give the seats of members removed in this step to standbys."""
        vacated_seats, self.vacated_seats = self.vacated_seats, []
        assigning, self.departed_while_assigning = self.departed_while_assigning, False
        if not vacated_seats or assigning or not group.members:
            return False
        seats = [seat for seat in vacated_seats if not seat.empty]
        standbys = [standby for standby in self._find_standbys(group, seats) if standby is not None]
        if len(standbys) < len(seats):
            return False
        if group.state is COMPLETING:  # only standbys were removed, and the group is stored with its assignments
            group.remember_subscriptions(group.all_metadata())
            _note_departed(out, group, vacated_seats)
            return True
        take_overs: list[TakeOver] = []
        for seat, standby in zip(seats, standbys, strict=True):
            del self.standbys[standby.id]
            group.set_assignment(standby, seat.assignment)
            if seat.leads:
                group.leader = standby.id
            take_overs.append(self._begin_take_over(group, standby, seat.from_id, seat.from_instance, out.wall))
        if not self._store_group(out, group):
            return False
        _note_departed(out, group, vacated_seats)
        for take_over in take_overs:
            member = group.members[take_over.member_id]
            out.deadlines.set(take_over, out.now + member.session_timeout_ms)
            note_standby(out, group, member, StandbyStep.TAKES_OVER, take_over)
        return True

    def rebalance_begins(self, out: StepOutput, group: Group) -> None:
        """Members that were about to take a seat over rejoin with the others."""
        for take_over in self.take_overs.values():
            out.deadlines.remove(take_over)
            group.members[take_over.member_id].must_rejoin = False
        self.take_overs.clear()

    def generation_begins(self, out: StepOutput, group: Group) -> None:
        """Choose active members and standbys, remove away members that lose their seats, and let an active member lead.

        Active members stay active as far as the target allows; free seats go to standbys, then to new members in the order in which they
        joined. In a forming group the natural order of names decides. Members that have rejoined come before members that have not.
        """
        target = self.target(group)
        if target >= len(group.members):
            self.standbys.clear()
            return
        members = group.members
        if group.rebalance_is_initial:
            order = sorted(members.values(), key=_natural_order)
        else:
            order = [member for member in members.values() if not member.is_new and member.id not in self.standbys]
            order += [members[id] for id in self.standbys]
            order += [member for member in members.values() if member.is_new]
        order = [member for member in order if member.join_waiter is not None] + [member for member in order if member.join_waiter is None]
        previous = self.standbys
        inactive = {member.id: member for member in order[target:]}
        waiting = [id for id in previous if id in inactive] + [id for id in inactive if id not in previous]
        self.standbys = {id: previous.get(id, out.wall) for id in waiting if id not in group.away}
        if group.leader in inactive:
            group.leader = None
        for id in self.standbys:
            if id not in previous:
                note_standby(out, group, members[id], StandbyStep.WAITS)
        for member in [member for id, member in inactive.items() if id in group.away]:
            remove_member(out, group, member, Removal.SEAT_TAKEN)
        if group.leader is None or members[group.leader].join_waiter is None:
            group.leader = next(member.id for member in members.values() if member.join_waiter is not None and member.id not in self.standbys)
            group.record_changed = True

    def stored(self, out: StepOutput, group: Group) -> bool:
        if not out.fits([out.facts[-1], self._seats_fact(group)]):
            return False
        self._store_record(out, group)
        return True

    # Numbers of members.

    def target(self, group: Group) -> int:
        """The number of members that get a seat. NO_TARGET: no target is set, or the broker's default does not fit the members' protocols."""
        size = TARGET_GROUP_SIZE.of(self.values)
        if size is None or (group.members and (group.protocol_type != CONSUMER or STREAM in group.protocol_counts)):
            return NO_TARGET
        return size

    def misses_target(self, group: Group) -> bool:
        """Whether more members have seats than the target allows, or a seat is free for a standby."""
        if not group.members:
            return False
        target = self.target(group)
        active = len(group.members) - len(self.standbys)
        return active > target or (active < target and bool(self.standbys))

    # JoinGroup without a rebalance.

    def _enters_as_standby(self, group: Group, request: JoinRequest) -> bool:
        """Whether a newcomer becomes a standby: its protocols do not change the selected one, and no seat is left for it.

        Newcomers that wait have seats kept for them.
        """
        if group.state is not STABLE and group.state is not COMPLETING:
            return False
        if len(group.members) - len(self.standbys) + count_other_newcomers(group, request) < self.target(group):
            return False
        return group.select_protocol(extra=request.protocols) == group.protocol_name

    def _add_without_rebalance(self, out: StepOutput, group: Group, request: JoinRequest, waiter: JoinWaiter, id: str) -> None:
        """The newcomer becomes a standby. In STABLE it takes over at once if a member is away."""
        drop_waiting_request(out, group, request, id)
        member = new_member(out, group, request, id)
        grant_note_budget(group)
        if spend_note_budget(group, out.now):
            note_join(out, group, member, request)
        if not self._add_standby(out, group, member):
            out.refuse_join(waiter, "", ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        out.reply_join(waiter, member.id, join_reply(group))
        if group.state is COMPLETING:
            store_static_ids(out, group)  # the last group record may have an old member id for this instance id
        elif not self._move_seats_of_away(out, group):
            self._store_group(out, group)

    def _add_standby(self, out: StepOutput, group: Group, member: Member) -> bool:
        """Add a newcomer. The caller stores the group; in COMPLETING the leader's SyncGroup does. False: it does not fit into a batch."""
        member.assignment = EMPTY_ASSIGNMENT
        member.is_new = False
        group.add(member)
        self.standbys[member.id] = out.wall
        if not out.fits([_group_fact(group), self._seats_fact(group)]):
            del self.standbys[member.id]
            group.remove(member)
            return False
        group.remember_subscriptions(group.all_metadata())
        out.restart_session(member)
        note_standby(out, group, member, StandbyStep.WAITS)
        return True

    def _keeps_generation(self, group: Group, member: Member, request: JoinRequest) -> bool:
        """Whether this JoinGroup of a standby, or of a member that takes a seat over, needs no rebalance.

        Its metadata may differ, for example in the owned partitions. The protocols that it offers must not change the selected one.
        A member that takes a seat over must subscribe to the same topics.
        """
        if member.id not in self.standbys and member.id not in self.take_overs:
            return False
        selected = group.protocol_name
        offered = next((metadata for name, metadata in request.protocols if name == selected), None)
        if offered is None or (member.id in self.take_overs and topics_differ(member.metadata(selected), offered)):
            return False
        unchanged = [name for name, _ in request.protocols] == [name for name, _ in member.protocols]
        return unchanged or group.select_protocol(member, request.protocols) == selected

    def _rejoin_in_generation(self, out: StepOutput, group: Group, member: Member, request: JoinRequest, waiter: JoinWaiter) -> None:
        """Store changed protocols and timeouts. If they do not fit into a batch, a rebalance begins."""
        previous = member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
        if member.repeatable_join is not request:
            update_member(out, group, member, request)
        if previous != (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms) and not self._store_group(out, group):
            rejoin(out, group, member, request, waiter)
            return
        member.seen_ms = out.now
        out.restart_session(member)
        take_over = self.take_overs.get(member.id)
        old_leader = take_over.from_id if take_over is not None and group.leader == member.id else group.leader or ""
        out.reply_join(waiter, member.id, reply_without_rebalance(group, member, old_leader, request.knows_skip_assignment))

    # Seats.

    def _remember_seat(self, out: StepOutput, group: Group, member: Member) -> None:
        """Called before a member is removed: keep its seat for a standby until the end of the step."""
        was_standby = self.standbys.pop(member.id, None) is not None
        take_over = self._pop_take_over(out, member)
        if group.state is STABLE or (group.state is COMPLETING and was_standby):
            self.vacated_seats.append(_seat_of(group, member, take_over)._replace(empty=was_standby))
        elif group.state is COMPLETING:
            self.departed_while_assigning = True

    def _find_standbys(self, group: Group, seats: Iterable[VacatedSeat]) -> list[Member | None]:
        """For each seat the longest-waiting free standby with the same topics, or None."""
        free = {id: group.members[id].metadata(group.protocol_name) for id in self.standbys}
        standbys: list[Member | None] = []
        for seat in seats:
            id = next((id for id, metadata in free.items() if id != seat.member_id and topics_match(seat.metadata, metadata)), None)
            standbys.append(None if id is None else group.members[id])
            if id is not None:
                del free[id]
        return standbys

    def _can_take_over(self, group: Group, member: Member) -> bool:
        """Whether a standby could have this member's seat at once."""
        if not self.standbys or group.state is not STABLE:
            return False
        return self._find_standbys(group, [_seat_of(group, member, self.take_overs.get(member.id))])[0] is not None

    def _move_seats_of_away(self, out: StepOutput, group: Group) -> bool:
        """In a STABLE group, free standbys take the seats of members that are away. Return False if nothing has changed."""
        if not group.away or not self.standbys:
            return False
        away = [group.members[id] for id in group.away]
        standbys = self._find_standbys(group, [_seat_of(group, member, self.take_overs.get(member.id)) for member in away])
        replaced = [member for member, standby in zip(away, standbys, strict=True) if standby is not None]
        for member in replaced:
            remove_member(out, group, member, Removal.SEAT_TAKEN)
        if replaced:
            rebalance_or_hand_over(out, group, Cause.ABSENCES_ENDED, replaced[0].id)
        return bool(replaced)

    # Take-overs.

    def _begin_take_over(self, group: Group, member: Member, from_id: str, from_instance: str | None, since_ms: int) -> TakeOver:
        take_over = self.take_overs[member.id] = TakeOver(self, group.id, member.id, from_id, from_instance, since_ms)
        member.must_rejoin = True
        return take_over

    def _pop_take_over(self, out: StepOutput, member: Member) -> TakeOver | None:
        take_over = self.take_overs.pop(member.id, None)
        if take_over is not None:
            member.must_rejoin = False
            out.deadlines.remove(take_over)
        return take_over

    def take_over_due(self, out: StepOutput, group: Group, take_over: TakeOver) -> None:
        """No SyncGroup arrived within the session: the member becomes the last standby, and another gets the seat."""
        member = group.members[take_over.member_id]
        if out.deadlines.extends and not take_over.extended:
            take_over.extended = True
            out.deadlines.set(take_over, out.now + member.session_timeout_ms)
            return
        self.vacated_seats.append(_seat_of(group, member, take_over))
        self._pop_take_over(out, member)
        self.standbys[member.id] = out.wall
        group.set_assignment(member, EMPTY_ASSIGNMENT)
        group.invalidate_members()
        note_standby(out, group, member, StandbyStep.TOO_LATE, take_over)
        rebalance_or_hand_over(out, group, Cause.STANDBY_LATE, member.id)

    # Records.

    def _store_group(self, out: StepOutput, group: Group) -> bool:
        """Store a STABLE group and its seats in one batch, if they fit."""
        fact = _group_fact(group)
        if not out.fits([*out.facts, fact, self._seats_fact(group)]):
            return False
        group.last_record = fact[1]
        group.record_changed = True
        group.remember_subscriptions(group.all_metadata())
        out.facts.append(fact)
        if group.policies is not None:
            group.policies.stored(out, group)
        return True

    def _seats_fact(self, group: Group) -> Fact:
        key = seats_key(group.id)
        if not group.members or not (self.standbys or self.take_overs):
            return key, None
        members = group.members
        standbys = [StandbyMember(id, members[id].instance_id, since_ms) for id, since_ms in self.standbys.items()]
        take_overs = [
            SeatTakeOver(id, members[id].instance_id, seat.from_id, seat.from_instance, seat.since_ms) for id, seat in self.take_overs.items()
        ]
        return key, in_newest_version(SeatsValue(group.generation, standbys, take_overs))

    def _store_record(self, out: StepOutput, group: Group) -> None:
        """Store the seats record if it has changed."""
        key, value = self._seats_fact(group)
        if value != self._stored_seats:
            self._stored_seats = value
            out.facts.append((key, value))

    def _restore(self, out: StepOutput, group: Group, value: bytes) -> None:
        """Called after a load, when each member has a new session: restore standbys and take-overs if they are of the group's generation.

        Another writer, such as Kafka on this directory, may have stored a newer generation.
        """
        self._stored_seats = value
        seats = read_record(SeatsValue, value)
        if seats.generation == group.generation:
            for standby in seats.standbys:
                member = _find_member(group, standby.member_id, standby.instance_id)
                if member is not None:
                    self.standbys[member.id] = standby.since_ms
            for seat in seats.take_overs:
                member = _find_member(group, seat.member_id, seat.instance_id)
                if member is not None:
                    take_over = self._begin_take_over(group, member, seat.from_member_id, seat.from_instance_id, seat.since_ms)
                    out.deadlines.set(take_over, out.now + member.session_timeout_ms)
        if not self.standbys and not self.take_overs:
            self._store_record(out, group)


def seats_key(group_id: str) -> bytes:
    return in_newest_version(SeatsKey(group_id))


def _seat_of(group: Group, member: Member, take_over: TakeOver | None) -> VacatedSeat:
    """The member's seat. `take_over`: the member's unfinished take-over; `from_id` is then the previous owner of the seat."""
    from_id, from_instance = (member.id, member.instance_id) if take_over is None else (take_over.from_id, take_over.from_instance)
    metadata = member.metadata(group.protocol_name)
    return VacatedSeat(member.id, member.instance_id, from_id, from_instance, member.assignment, metadata, group.leader == member.id)


def _group_fact(group: Group) -> Fact:
    return group_key(group.id), group_value(group, group.members.values(), group.leader, group.protocol_name)


def _find_member(group: Group, id: str, instance: str | None) -> Member | None:
    return group.members.get(id if instance is None else group.static_members.get(instance, ""))


def _natural_order(member: Member) -> tuple[list[tuple[int, str]], str]:
    """A sort key that puts a-2 before a-10."""
    name = member.instance_id or member.id
    key: list[tuple[int, str]] = []
    for number, part in enumerate(_DIGITS.split(name)):
        digits = part.lstrip("0")
        key.append((len(digits), digits) if number % 2 else (0, part))
    return key, name


def note_standby(out: StepOutput, group: Group, member: Member, step: StandbyStep, take_over: TakeOver | None = None) -> None:
    if spend_note_budget(group, out.now):
        from_id, from_instance, after_ms = None, None, 0
        if take_over is not None:
            from_id, from_instance, after_ms = take_over.from_id, take_over.from_instance, max(out.wall - take_over.since_ms, 0)
        out.add_note(group, StandbyChange(member.id, member.instance_id, step, from_id, from_instance, after_ms))


def _note_departed(out: StepOutput, group: Group, vacated_seats: list[VacatedSeat]) -> None:
    """Note the removal of members that no note of a take-over names: standbys, and members that were still taking a seat over."""
    for seat in vacated_seats:
        if (seat.empty or seat.member_id != seat.from_id) and seat.member_id not in group.members and spend_note_budget(group, out.now):
            out.add_note(group, StandbyChange(seat.member_id, seat.instance_id, StandbyStep.GONE, None, None, 0))
