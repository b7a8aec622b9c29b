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
from collections.abc import Iterable
from typing import Final

from coordinator.calls import JoinRequest
from coordinator.classic.group import CONSUMER, Group
from coordinator.classic.member import Member
from coordinator.classic.subscription import topics_differ, topics_match
from coordinator.facts import group_key, group_value
from coordinator.hold import Fact
from coordinator.notes import StandbyStep, spend_note_budget
from coordinator.policies.records import StoredSeats, seats_key, seats_value
from coordinator.policies.registration import delete_records_of_removed
from coordinator.policies.state import NO_TARGET, PolicyState, TakeOver, VacatedSeat
from coordinator.states import COMPLETING, STABLE
from coordinator.step_output import StepOutput
from protocol.messages.coordinator_notes import StandbyChange

# An encoded assignment without partitions. kafka-python, aiokafka and Java fail on empty bytes.
EMPTY_ASSIGNMENT: Final = bytes.fromhex("0000 00000000 ffffffff")
STREAM: Final = "stream"  # the protocol of Kafka Streams, which has standbys of its own

_DIGITS: Final = re.compile("([0-9]+)")


def target_size(group: Group) -> int:
    """The number of members that get a seat. NO_TARGET: no target is set, or the broker's default does not fit the members' protocols."""
    policy = group.policy_state
    if policy is None or policy.policies.target_group_size is None:
        return NO_TARGET
    if group.members and (group.protocol_type != CONSUMER or STREAM in group.protocol_counts):
        return NO_TARGET
    return policy.policies.target_group_size


def refuses_protocol(group: Group, request: JoinRequest) -> bool:
    """Whether the sender's protocols are refused because target.group.size is set for the group itself."""
    policy = group.policy_state
    return (
        policy is not None
        and policy.has_own_target
        and (request.protocol_type != CONSUMER or any(name == STREAM for name, _ in request.protocols))
    )


def target_conflict(group: Group | None) -> str | None:
    """Why the current members cannot have a target, as a sentence; None if they can."""
    if group is None or not group.members:
        return None
    if group.protocol_type != CONSUMER:
        return f"target.group.size: the protocol type of the group is {group.protocol_type!r}; only groups of consumers have standbys, so leave it out"
    if STREAM in group.protocol_counts:
        return "target.group.size: the members use the protocol 'stream' of Kafka Streams, which has standbys itself; set num.standby.replicas there"
    return None


def is_standby(group: Group, member: Member) -> bool:
    policy = group.policy_state
    return policy is not None and member.id in policy.standbys


def enters_as_standby(group: Group, request: JoinRequest, waiting: int) -> bool:
    """Whether a newcomer becomes a standby without a rebalance: its protocols do not change the selected one, and no seat is left for it.

    `waiting`: the number of other newcomers, which wait for a seat (`expansion.py`).
    """
    policy = group.policy_state
    if policy is None or (group.state is not STABLE and group.state is not COMPLETING):
        return False
    if len(group.members) - len(policy.standbys) + waiting < target_size(group):
        return False
    return group.select_protocol(extra=request.protocols) == group.protocol_name


def misses_target_size(group: Group) -> bool:
    """Whether more members have seats than the target allows, or a seat is free for a standby."""
    policy = group.policy_state
    if policy is None or not group.members:
        return False
    target = target_size(group)
    active = len(group.members) - len(policy.standbys)
    return active > target or (active < target and bool(policy.standbys))


# The roles of a new generation.


def choose_active(out: StepOutput, group: Group) -> list[Member]:
    """Called at the end of the join phase: choose active members and standbys. Return the away members that lose their seats.

    Active members stay active as far as the target allows; free seats go to standbys, then to new members in the order in which they
    joined. In a forming group the natural order of names decides. Members that have rejoined come before members that have not.
    A standby cannot lead.
    """
    policy = group.policy_state
    if policy is None:
        return []
    target = target_size(group)
    if target >= len(group.members):
        policy.standbys.clear()
        return []
    members = group.members
    if group.rebalance_is_initial:
        order = sorted(members.values(), key=_natural_order)
    else:
        order = [member for member in members.values() if not member.is_new and member.id not in policy.standbys]
        order += [members[id] for id in policy.standbys]
        order += [member for member in members.values() if member.is_new]
    order = [member for member in order if member.join_waiter is not None] + [member for member in order if member.join_waiter is None]
    previous = policy.standbys
    inactive = {member.id: member for member in order[target:]}
    waiting = [id for id in previous if id in inactive] + [id for id in inactive if id not in previous]
    policy.standbys = {id: previous.get(id, out.wall) for id in waiting if id not in policy.away}
    if group.leader in inactive:
        group.leader = None
    for id in policy.standbys:
        if id not in previous:
            note_standby(out, group, members[id], StandbyStep.WAITS)
    return [member for id, member in inactive.items() if id in policy.away]


def _natural_order(member: Member) -> tuple[list[tuple[int, str]], str]:
    """A sort key that puts a-2 before a-10."""
    name = member.instance_id or member.id
    key: list[tuple[int, str]] = []
    for number, part in enumerate(_DIGITS.split(name)):
        digits = part.lstrip("0")
        key.append((len(digits), digits) if number % 2 else (0, part))
    return key, name


def assignments_of_standbys(group: Group) -> dict[str, bytes]:
    policy = group.policy_state
    return dict.fromkeys(policy.standbys, EMPTY_ASSIGNMENT) if policy is not None else {}


# Newcomers that become standbys without a rebalance.


def add_standby(out: StepOutput, group: Group, member: Member) -> bool:
    """Add a newcomer as a standby. The caller stores the group; in COMPLETING the leader's SyncGroup does. False: it does not fit into a batch."""
    policy = group.policy_state
    assert policy is not None
    member.assignment = EMPTY_ASSIGNMENT
    member.is_new = False
    group.add(member)
    policy.standbys[member.id] = out.wall
    if not out.fits([_group_fact(group), seats_fact(group, policy)]):
        del policy.standbys[member.id]
        group.remove(member)
        return False
    group.remember_subscriptions(group.all_metadata())
    out.restart_session(member)
    note_standby(out, group, member, StandbyStep.WAITS)
    return True


# Take-overs.


def remember_seat(out: StepOutput, group: Group, member: Member) -> None:
    """Called before a member is removed: keep its seat for a standby until the end of the step."""
    policy = group.policy_state
    if policy is None:
        return
    was_standby = policy.standbys.pop(member.id, None) is not None
    take_over = policy.take_overs.pop(member.id, None)
    if take_over is not None:
        out.deadlines.remove(take_over)
    if group.state is STABLE or (group.state is COMPLETING and was_standby):
        policy.vacated_seats.append(seat_of(group, member, take_over)._replace(empty=was_standby))
    elif group.state is COMPLETING:
        policy.departed_while_assigning = True


def seat_of(group: Group, member: Member, take_over: TakeOver | None) -> VacatedSeat:
    """The member's seat. `take_over`: the member's unfinished take-over; `from_id` is then the previous owner of the seat."""
    from_id, from_instance = (member.id, member.instance_id) if take_over is None else (take_over.from_id, take_over.from_instance)
    metadata = member.metadata(group.protocol_name)
    return VacatedSeat(member.id, member.instance_id, from_id, from_instance, member.assignment, metadata, group.leader == member.id)


def find_standbys(group: Group, seats: Iterable[VacatedSeat]) -> list[Member | None]:
    """For each seat the longest-waiting free standby with the same topics, or None."""
    policy = group.policy_state
    free = {} if policy is None else {id: group.members[id].metadata(group.protocol_name) for id in policy.standbys}
    standbys: list[Member | None] = []
    for seat in seats:
        id = next((id for id, metadata in free.items() if id != seat.member_id and topics_match(seat.metadata, metadata)), None)
        standbys.append(None if id is None else group.members[id])
        if id is not None:
            del free[id]
    return standbys


def can_take_over(group: Group, member: Member) -> bool:
    """Whether a standby could have this member's seat at once."""
    policy = group.policy_state
    if policy is None or not policy.standbys or group.state is not STABLE:
        return False
    return find_standbys(group, [seat_of(group, member, policy.take_overs.get(member.id))])[0] is not None


def move_seats(out: StepOutput, group: Group) -> bool:
    """Called after members were removed in this step: give their seats to standbys. False: a rebalance must follow."""
    policy = group.policy_state
    assert policy is not None
    vacated_seats, policy.vacated_seats = policy.vacated_seats, []
    assigning, policy.departed_while_assigning = policy.departed_while_assigning, False
    if not vacated_seats or assigning or not group.members:
        return False
    seats = [seat for seat in vacated_seats if not seat.empty]
    standbys = [standby for standby in find_standbys(group, seats) if standby is not None]
    if len(standbys) < len(seats):
        return False
    if group.state is COMPLETING:  # only standbys were removed, and the group is stored with its assignments
        group.remember_subscriptions(group.all_metadata())
        _note_departed(out, group, vacated_seats)
        return True
    take_overs: list[TakeOver] = []
    for seat, standby in zip(seats, standbys, strict=True):
        del policy.standbys[standby.id]
        group.set_assignment(standby, seat.assignment)
        if seat.leads:
            group.leader = standby.id
        take_over = policy.take_overs[standby.id] = TakeOver(group.id, standby.id, seat.from_id, seat.from_instance, out.wall)
        take_overs.append(take_over)
    if not store_seats(out, group):
        return False
    _note_departed(out, group, vacated_seats)
    for take_over in take_overs:
        member = group.members[take_over.member_id]
        out.deadlines.set(take_over, out.now + member.session_timeout_ms)
        note_standby(out, group, member, StandbyStep.TAKES_OVER, take_over)
    return True


def store_seats(out: StepOutput, group: Group) -> bool:
    """Store a STABLE group and its seats in one batch, if they fit."""
    policy = group.policy_state
    assert policy is not None
    fact = _group_fact(group)
    if not out.fits([*out.facts, fact, seats_fact(group, policy)]):
        return False
    group.last_record = fact[1]
    group.record_changed = True
    group.remember_subscriptions(group.all_metadata())
    out.facts.append(fact)
    store_seats_record(out, group)
    delete_records_of_removed(out, group)
    return True


def _group_fact(group: Group) -> Fact:
    return group_key(group.id), group_value(group, group.members.values(), group.leader, group.protocol_name)


def must_rejoin(group: Group, member: Member) -> bool:
    """Whether the member takes a seat over and must rejoin to get its assignment."""
    policy = group.policy_state
    return policy is not None and member.id in policy.take_overs


def keeps_generation(group: Group, member: Member, request: JoinRequest) -> bool:
    """Whether this JoinGroup of a standby, or of a member that takes a seat over, needs no rebalance.

    Its metadata may differ, for example in the owned partitions. The protocols that it offers must not change the selected one.
    A member that takes a seat over must subscribe to the same topics.
    """
    policy = group.policy_state
    if policy is None or (member.id not in policy.standbys and member.id not in policy.take_overs):
        return False
    selected = group.protocol_name
    offered = next((metadata for name, metadata in request.protocols if name == selected), None)
    if offered is None or (member.id in policy.take_overs and topics_differ(member.metadata(selected), offered)):
        return False
    unchanged = [name for name, _ in request.protocols] == [name for name, _ in member.protocols]
    return unchanged or group.select_protocol(member, request.protocols) == selected


def finish_take_over(out: StepOutput, group: Group, member: Member) -> None:
    """Called for the member's SyncGroup. The reply waits until the seats record is durable, so no other standby can get the seat."""
    policy = group.policy_state
    if policy is None:
        return
    take_over = policy.take_overs.pop(member.id, None)
    if take_over is not None:
        out.deadlines.remove(take_over)
        store_seats_record(out, group)
        group.version += 1
        note_standby(out, group, member, StandbyStep.TOOK_OVER, take_over)


def cancel_take_over(out: StepOutput, group: Group, take_over: TakeOver) -> None:
    """Called when no SyncGroup arrived within the session: the member becomes the last standby, and `move_seats` chooses the next."""
    policy = group.policy_state
    assert policy is not None
    member = group.members[take_over.member_id]
    policy.vacated_seats.append(seat_of(group, member, take_over))
    del policy.take_overs[member.id]
    policy.standbys[member.id] = out.wall
    group.set_assignment(member, EMPTY_ASSIGNMENT)
    group.invalidate_members()
    note_standby(out, group, member, StandbyStep.TOO_LATE, take_over)


def end_take_overs(out: StepOutput, policy: PolicyState) -> None:
    """Called when a rebalance begins: members that were about to take a seat over rejoin with the others."""
    for take_over in policy.take_overs.values():
        out.deadlines.remove(take_over)
    policy.take_overs.clear()


def rename_standby(group: Group, old: Member, new: Member) -> None:
    """Called when a static member returns under a new member id: it keeps its place among the standbys, or its take-over."""
    policy = group.policy_state
    if policy is None:
        return
    if old.id in policy.standbys:
        policy.standbys = {new.id if id == old.id else id: since for id, since in policy.standbys.items()}
    take_over = policy.take_overs.pop(old.id, None)
    if take_over is not None:
        take_over.member_id = new.id
        policy.take_overs[new.id] = take_over


# Records.


def seats_fact(group: Group, policy: PolicyState) -> Fact:
    key = seats_key(group.id)
    if not group.members or not (policy.standbys or policy.take_overs):
        return key, None
    members = group.members
    standbys = [(id, members[id].instance_id, since_ms) for id, since_ms in policy.standbys.items()]
    take_overs = [(id, members[id].instance_id, seat.from_id, seat.from_instance, seat.since_ms) for id, seat in policy.take_overs.items()]
    return key, seats_value(StoredSeats(group.generation, standbys, take_overs))


def store_seats_record(out: StepOutput, group: Group) -> None:
    """Store the seats record if it has changed."""
    policy = group.policy_state
    if policy is None:
        return
    key, value = seats_fact(group, policy)
    if value != policy.stored_seats:
        policy.stored_seats = value
        out.facts.append((key, value))


def restore_seats(out: StepOutput, group: Group, value: bytes, stored: StoredSeats) -> None:
    """Called after a load, when each member has a new session: restore standbys and take-overs if they are of the group's generation.

    Another writer, such as Kafka on this directory, may have stored a newer generation.
    """
    policy = group.policy_state
    assert policy is not None
    policy.stored_seats = value
    if stored.generation == group.generation:
        for id, instance, since_ms in stored.standbys:
            member = _find_member(group, id, instance)
            if member is not None:
                policy.standbys[member.id] = since_ms
        for id, instance, from_id, from_instance, since_ms in stored.take_overs:
            member = _find_member(group, id, instance)
            if member is not None:
                take_over = policy.take_overs[member.id] = TakeOver(group.id, member.id, from_id, from_instance, since_ms)
                out.deadlines.set(take_over, out.now + member.session_timeout_ms)
    if not policy.standbys and not policy.take_overs:
        store_seats_record(out, group)


def _find_member(group: Group, id: str, instance: str | None) -> Member | None:
    return group.members.get(id if instance is None else group.static_members.get(instance, ""))


# Notes and status.


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


def standby_status(group: Group) -> tuple[list[str], list[str]]:
    """The standbys, the longest-waiting first, and the take-overs, as text."""
    policy = group.policy_state
    if policy is None:
        return [], []
    names = {id: member.instance_id or id for id, member in group.members.items()}
    standbys = [f"{names[id]} since {since_ms}" for id, since_ms in policy.standbys.items()]
    take_overs = [f"{names[id]} for {seat.from_instance or seat.from_id} since {seat.since_ms}" for id, seat in policy.take_overs.items()]
    return standbys, take_overs
