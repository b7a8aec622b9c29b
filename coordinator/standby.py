"""Policy target.group.size: members beyond the target are warm standbys.

A standby belongs to the generation and heartbeats, but the leader does not see it, and its assignment is empty. When an active
member goes while the group is STABLE, its seat (assignment and leadership) goes to the longest-waiting standby with the same topics,
without a rebalance: the take-over. One step stores the group without the member that is gone; when that is durable, the standby's
next heartbeat is answered with REBALANCE_IN_PROGRESS. Its JoinGroup is answered with the same generation, and its SyncGroup brings the seat's
assignment. Until that SyncGroup the take-over is stored, so that a coordinator that takes over continues it.

The record of the seats names the generation it belongs to. It identifies static members by instance id, since their member ids change
without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from coordinator.calls import JoinRequest
from coordinator.facts import group_image, group_key
from coordinator.group import CONSUMER, Group
from coordinator.hold import Fact
from coordinator.member import Member
from coordinator.notes import Kind, StandbyStep, spend_note_budget
from coordinator.outcome import Outcome
from coordinator.policy_records import StoredSeats, seats_key, seats_value
from coordinator.policy_state import NO_TARGET, PolicyState, Seat, TakeOver
from coordinator.registration import delete_records_of_removed
from coordinator.states import COMPLETING, STABLE
from coordinator.subscription import other_topics, same_topics
from protocol.messages.coordinator_notes import StandbyChange

# An encoded assignment without partitions. Empty bytes make kafka-python, aiokafka and Java fail.
EMPTY_ASSIGNMENT: Final = bytes.fromhex("0000 00000000 ffffffff")
STREAM: Final = "stream"  # the protocol of Kafka Streams, which has standbys of its own

_DIGITS: Final = re.compile("([0-9]+)")


# What applies.


def target_size(group: Group) -> int:
    """How many members get a seat. NO_TARGET also for a group whose members the policy does not fit, which only a default can concern."""
    policy = group.policy
    if policy is None or policy.policies.target_group_size is None:
        return NO_TARGET
    if group.members and (group.protocol_type != CONSUMER or STREAM in group.protocol_counts):
        return NO_TARGET
    return policy.policies.target_group_size


def refuses_protocol(group: Group, request: JoinRequest) -> bool:
    """Whether the group's own target excludes the sender because of its protocols."""
    policy = group.policy
    return policy is not None and policy.own_target and (request.protocol_type != CONSUMER or any(name == STREAM for name, _ in request.protocols))


def misfit(group: Group | None) -> str | None:
    """Why the present members cannot have a target, as a sentence; None if they can."""
    if group is None or not group.members:
        return None
    if group.protocol_type != CONSUMER:
        return f"target.group.size: the protocol type of the group is {group.protocol_type!r}; only groups of consumers have standbys, so leave it out"
    if STREAM in group.protocol_counts:
        return "target.group.size: the members use the protocol 'stream' of Kafka Streams, which has standbys itself; set num.standby.replicas there"
    return None


def is_standby(group: Group, member: Member) -> bool:
    policy = group.policy
    return policy is not None and member.id in policy.standbys


def enters_as_standby(group: Group, request: JoinRequest) -> bool:
    """Whether a newcomer becomes a standby without a rebalance: all seats are taken, and its vote changes nothing."""
    policy = group.policy
    if policy is None or (group.state is not STABLE and group.state is not COMPLETING):
        return False
    if len(group.members) - len(policy.standbys) < target_size(group):
        return False
    return group.select_protocol(extra=request.protocols) == group.protocol_name


def has_wrong_size(group: Group) -> bool:
    """Whether more members have seats than the target allows, or a standby could have one."""
    policy = group.policy
    if policy is None or not group.members:
        return False
    target = target_size(group)
    active = len(group.members) - len(policy.standbys)
    return active > target or (active < target and bool(policy.standbys))


# The roles of a new generation.


def choose_active(out: Outcome, group: Group) -> list[Member]:
    """The join phase ends: decide who is active; a standby leads no longer. Returns members that are away and lost their seats.

    Active stay those that are; then members in the order in which they joined, or, in a group that forms, in the natural order of
    their names. A member that has not rejoined gives its seat to one that has.
    """
    policy = group.policy
    if policy is None:
        return []
    target = target_size(group)
    if target >= len(group.members):
        policy.standbys.clear()
        return []
    members = group.members
    if group.initial:
        order = sorted(members.values(), key=_natural_order)
    else:
        order = [member for member in members.values() if not member.is_new and member.id not in policy.standbys]
        order += [members[id] for id in policy.standbys]
        order += [member for member in members.values() if member.is_new]
    order = [member for member in order if member.join is not None] + [member for member in order if member.join is None]
    before = policy.standbys
    beyond = {member.id: member for member in order[target:]}
    lost = [member for id, member in beyond.items() if id in policy.away]
    waiting = [id for id in before if id in beyond] + [id for id in beyond if id not in before]
    policy.standbys = {id: before.get(id, out.wall) for id in waiting if id not in policy.away}
    if group.leader in beyond:
        group.leader = None
    for id in policy.standbys:
        if id not in before:
            note_standby(out, group, members[id], StandbyStep.WAITS)
    return lost


def _natural_order(member: Member) -> tuple[list[tuple[int, str]], str]:
    """a-2 before a-10."""
    name = member.instance_id or member.id
    key: list[tuple[int, str]] = []
    for number, part in enumerate(_DIGITS.split(name)):
        digits = part.lstrip("0")
        key.append((len(digits), digits) if number % 2 else (0, part))
    return key, name


def assignments_of_standbys(group: Group) -> dict[str, bytes]:
    policy = group.policy
    return dict.fromkeys(policy.standbys, EMPTY_ASSIGNMENT) if policy is not None else {}


# A newcomer without a rebalance.


def add_standby(out: Outcome, group: Group, member: Member) -> bool:
    """Add a newcomer, which the caller stores or, in COMPLETING, leaves to the next assignments. False: it does not fit into a batch."""
    policy = group.policy
    assert policy is not None
    member.assignment = EMPTY_ASSIGNMENT
    member.is_new = False
    group.add(member)
    policy.standbys[member.id] = out.wall
    if not out.fits([_image_fact(group), seats_fact(group, policy)]):
        del policy.standbys[member.id]
        group.remove(member)
        return False
    group.remember_subscriptions(group.all_metadata())
    out.restart_session(member)
    note_standby(out, group, member, StandbyStep.WAITS)
    return True


# Take-overs.


def vacate(out: Outcome, group: Group, member: Member) -> None:
    """Called before a member is removed: remember its seat until the end of the step."""
    policy = group.policy
    if policy is None:
        return
    was_standby = policy.standbys.pop(member.id, None) is not None
    take_over = policy.take_overs.pop(member.id, None)
    if take_over is not None:
        out.deadlines.remove(take_over)
    if group.state is STABLE or (group.state is COMPLETING and was_standby):
        policy.departed.append(seat_of(group, member, take_over)._replace(empty=was_standby))
    elif group.state is COMPLETING:
        policy.departed_while_assigning = True


def seat_of(group: Group, member: Member, take_over: TakeOver | None) -> Seat:
    """`take_over`: the one by which the member was about to get the seat; then the seat is still that of the member before it."""
    from_id, from_instance = (member.id, member.instance_id) if take_over is None else (take_over.from_id, take_over.from_instance)
    return Seat(member.id, member.instance_id, from_id, from_instance, member.assignment, member.metadata(group.protocol_name), group.leader == member.id)


def find_standbys(group: Group, seats: Iterable[Seat]) -> list[Member | None]:
    """For each seat the longest-waiting standby with the same topics that no earlier seat got."""
    policy = group.policy
    free = {} if policy is None else {id: group.members[id].metadata(group.protocol_name) for id in policy.standbys}
    found: list[Member | None] = []
    for seat in seats:
        id = next((id for id, metadata in free.items() if id != seat.member_id and same_topics(seat.metadata, metadata)), None)
        found.append(None if id is None else group.members[id])
        if id is not None:
            del free[id]
    return found


def can_take_over(group: Group, member: Member) -> bool:
    """Whether a standby could have this member's seat at once."""
    policy = group.policy
    if policy is None or not policy.standbys or group.state is not STABLE:
        return False
    return find_standbys(group, [seat_of(group, member, policy.take_overs.get(member.id))])[0] is not None


def move_seats(out: Outcome, group: Group) -> bool:
    """Members were removed in this step: give their seats to standbys. False: a rebalance has to follow."""
    policy = group.policy
    assert policy is not None
    departed, policy.departed = policy.departed, []
    assigning, policy.departed_while_assigning = policy.departed_while_assigning, False
    if not departed or assigning or not group.members:
        return False
    seats = [seat for seat in departed if not seat.empty]
    takers = [taker for taker in find_standbys(group, seats) if taker is not None]
    if len(takers) < len(seats):
        return False
    if group.state is COMPLETING:  # only standbys are gone, and the group is stored with its assignments
        group.remember_subscriptions(group.all_metadata())
        _note_gone(out, group, departed)
        return True
    taken: list[TakeOver] = []
    for seat, taker in zip(seats, takers, strict=True):
        del policy.standbys[taker.id]
        taker.assignment = seat.assignment
        if seat.leads:
            group.leader = taker.id
        take_over = policy.take_overs[taker.id] = TakeOver(group.id, taker.id, seat.from_id, seat.from_instance, out.wall)
        taken.append(take_over)
    if not store_seats(out, group):
        return False
    _note_gone(out, group, departed)
    for take_over in taken:
        member = group.members[take_over.member_id]
        out.deadlines.set(take_over, out.now + member.session_timeout_ms)
        note_standby(out, group, member, StandbyStep.TAKES_OVER, take_over)
    return True


def store_seats(out: Outcome, group: Group) -> bool:
    """Store a STABLE group and its seats in one batch, if they fit."""
    policy = group.policy
    assert policy is not None
    image = _image_fact(group)
    if not out.fits([*out.facts, image, seats_fact(group, policy)]):
        return False
    group.last_image = image[1]
    group.image_changed = True
    group.remember_subscriptions(group.all_metadata())
    out.facts.append(image)
    store_seats_record(out, group)
    delete_records_of_removed(out, group)
    return True


def _image_fact(group: Group) -> Fact:
    return group_key(group.id), group_image(group, group.members.values(), group.leader, group.protocol_name)


def is_asked_to_rejoin(group: Group, member: Member) -> bool:
    """Whether the member takes a seat over and has to fetch its assignment."""
    policy = group.policy
    return policy is not None and member.id in policy.take_overs


def keeps_generation(group: Group, member: Member, request: JoinRequest) -> bool:
    """Whether this JoinGroup of a standby, or of a member that takes a seat over, needs no rebalance.

    Its metadata may differ, for example in the partitions it owns. The protocols that it offers may not change the selected one.
    """
    policy = group.policy
    if policy is None or (member.id not in policy.standbys and member.id not in policy.take_overs):
        return False
    selected = group.protocol_name
    offered = next((metadata for name, metadata in request.protocols if name == selected), None)
    if offered is None or (member.id in policy.take_overs and other_topics(member.metadata(selected), offered)):
        return False
    unchanged = [name for name, _ in request.protocols] == [name for name, _ in member.protocols]
    return unchanged or group.select_protocol(member, request.protocols) == selected


def finish_take_over(out: Outcome, group: Group, member: Member) -> None:
    """The member's SyncGroup gets its assignment. The reply waits for the record, so no other standby can get the seat after it."""
    policy = group.policy
    if policy is None:
        return
    take_over = policy.take_overs.pop(member.id, None)
    if take_over is not None:
        out.deadlines.remove(take_over)
        store_seats_record(out, group)
        group.version = object()
        note_standby(out, group, member, StandbyStep.TOOK_OVER, take_over)


def give_up_take_over(out: Outcome, group: Group, take_over: TakeOver) -> None:
    """The member has not sent its SyncGroup within its session: it waits again, behind the others, and `move_seats` finds the next."""
    policy = group.policy
    assert policy is not None
    member = group.members[take_over.member_id]
    policy.departed.append(seat_of(group, member, take_over))
    del policy.take_overs[member.id]
    policy.standbys[member.id] = out.wall
    member.assignment = EMPTY_ASSIGNMENT
    group.members_changed()
    note_standby(out, group, member, StandbyStep.TOO_LATE, take_over)


def end_take_overs(out: Outcome, policy: PolicyState) -> None:
    """A rebalance begins: members that were about to take a seat over rejoin with the others."""
    for take_over in policy.take_overs.values():
        out.deadlines.remove(take_over)
    policy.take_overs.clear()


def rename_standby(group: Group, old: Member, new: Member) -> None:
    """A static member returned with a new member id: its place in the queue, or its take-over, stays."""
    policy = group.policy
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
    take_overs = [(id, members[id].instance_id, one.from_id, one.from_instance, one.since_ms) for id, one in policy.take_overs.items()]
    return key, seats_value(StoredSeats(group.generation, standbys, take_overs))


def store_seats_record(out: Outcome, group: Group) -> None:
    """Store the record of the seats unless it is stored as it is."""
    policy = group.policy
    if policy is None:
        return
    key, value = seats_fact(group, policy)
    if value != policy.stored_seats:
        policy.stored_seats = value
        out.facts.append((key, value))


def restore_seats(out: Outcome, group: Group, value: bytes, stored: StoredSeats) -> None:
    """After a load, with a new session of each member: take over the stored seats unless another writer made a newer generation."""
    policy = group.policy
    assert policy is not None
    policy.stored_seats = value
    if stored.generation == group.generation:
        for id, instance, since_ms in stored.standbys:
            member = _find(group, id, instance)
            if member is not None:
                policy.standbys[member.id] = since_ms
        for id, instance, from_id, from_instance, since_ms in stored.take_overs:
            member = _find(group, id, instance)
            if member is not None:
                take_over = policy.take_overs[member.id] = TakeOver(group.id, member.id, from_id, from_instance, since_ms)
                out.deadlines.set(take_over, out.now + member.session_timeout_ms)
    if not policy.standbys and not policy.take_overs:
        store_seats_record(out, group)


def _find(group: Group, id: str, instance: str | None) -> Member | None:
    return group.members.get(id if instance is None else group.statics.get(instance, ""))


# What people see.


def note_standby(out: Outcome, group: Group, member: Member, step: StandbyStep, take_over: TakeOver | None = None) -> None:
    if spend_note_budget(group, out.now):
        from_id, from_instance, after_ms = None, None, 0
        if take_over is not None:
            from_id, from_instance, after_ms = take_over.from_id, take_over.from_instance, max(out.wall - take_over.since_ms, 0)
        out.add_note(group, Kind.STANDBY, StandbyChange(member.id, member.instance_id, step, from_id, from_instance, after_ms))


def _note_gone(out: Outcome, group: Group, departed: list[Seat]) -> None:
    """Tell of the members that were removed, unless the note of a take-over names them."""
    for seat in departed:
        if (seat.empty or seat.member_id != seat.from_id) and seat.member_id not in group.members and spend_note_budget(group, out.now):
            out.add_note(group, Kind.STANDBY, StandbyChange(seat.member_id, seat.instance_id, StandbyStep.GONE, None, None, 0))


def standby_status(group: Group) -> tuple[list[str], list[str]]:
    """Who waits since when, the longest-waiting first; and who takes the seat of whom."""
    policy = group.policy
    if policy is None:
        return [], []
    waiting = [f"{group.members[id].instance_id or id} since {since_ms}" for id, since_ms in policy.standbys.items()]
    taking = [
        f"{group.members[id].instance_id or id} for {one.from_instance or one.from_id} since {one.since_ms}" for id, one in policy.take_overs.items()
    ]
    return waiting, taking
