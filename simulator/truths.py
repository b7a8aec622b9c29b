"""Invariants of a group in memory, and the comparison of groups in memory with their log. Playbooks and the simulator use both."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

from coordinator import Fact, GroupConfig, Shard
from coordinator.classic.group import Group
from coordinator.classic.kept import member_bytes, pending_bytes, protocols_bytes, request_bytes
from coordinator.deadlines import NEVER
from coordinator.facts import group_key, group_value, read_group, read_offset, replace_generation
from coordinator.notes import Cause
from coordinator.states import State
from history.causes import CAUSES, Detail, name_of
from protocol.messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey
from protocol.messages.coordinator_notes import StateChange
from protocol.messages.kinds import CONSUMER_OFFSETS
from protocol.records import kind_of, read_record
from simulator.epoch_truths import compare_epoch_groups
from simulator.policy_promises import check_absences, check_seats, is_strict, seats_of


def check_documented(change: StateChange) -> None:
    """Check that the row of the cause has this change of state, and what its note says."""
    cause, move = Cause(change.reason), (State(change.from_state), State(change.to_state))
    row = CAUSES[cause]
    assert move in row.moves, f"history/causes.py does not know {name_of(cause)} from {move[0].name} to {move[1].name}"
    assert change.member is None or row.detail is Detail.MEMBER, f"history/causes.py does not know that {name_of(cause)} has a member"
    assert change.text is None or row.detail is not Detail.NOTHING, f"history/causes.py does not know that {name_of(cause)} has a text"


def check_group(group: Group) -> None:
    """Check that counters and indexes agree with the members, and that deadlines are set.

    A phase that waits for members has a deadline. So does the session of a member, unless it is away or its request is parked.
    """
    members = group.members
    assert all(id == member.id for id, member in members.items()), "a member is stored under another id"
    parked = sum(member.join_waiter is not None for member in members.values())
    assert group.parked_joins == parked, f"{group.parked_joins} parked joins are counted, there are {parked}"
    statics = {member.instance_id: member.id for member in members.values() if member.instance_id is not None}
    assert group.static_members == statics, f"the index of static members is {group.static_members}, the members are {statics}"
    counts: dict[str, int] = {}
    for member in members.values():
        for name, _ in member.protocols:
            counts[name] = counts.get(name, 0) + 1
    assert group.protocol_counts == counts, f"protocols are counted as {group.protocol_counts}, the members have {counts}"
    assert (group.leader in members) if members else group.leader is None, f"the leader {group.leader} is no member"
    assert not set(group.pending_sync) - set(members), "a SyncGroup is awaited from a removed member"
    assert not any(members[id].sync_waiter is not None for id in group.pending_sync), "a SyncGroup is awaited from a member whose SyncGroup is parked"
    assert not group.pending_sync or group.state in (State.COMPLETING, State.STABLE), f"SyncGroups are awaited in {group.state.name}"
    assert not set(group.pending_members) & set(members), "a member is also a pending member id"
    assert group.state != State.DEAD, "a dead group is in memory"
    assert group.state != State.EMPTY or not members, "an empty group has members"
    if group.newcomers:
        assert group.state in (State.COMPLETING, State.STABLE), f"newcomers wait in {group.state.name}"
        assert group.newcomer_timer is not None
        assert group.newcomer_timer.deadline != NEVER, "the wait of newcomers has no deadline"
        instances = {id for is_instance, id in group.newcomers if is_instance}
        assert not instances & set(group.static_members), "a newcomer has the instance id of a member"
    assert group.kept_bytes == kept_bytes(group), f"{group.kept_bytes} bytes are counted, the group keeps {kept_bytes(group)}"
    assert not set(group.away) - set(members), "an away member was removed"
    seats = seats_of(group)
    if seats is not None:
        check_seats(group, seats)
    taking = set(seats.take_overs) if seats is not None else set()
    assert {id for id, member in members.items() if member.must_rejoin} == taking, "members are told to rejoin, and others take seats over"
    parked_joins = [member for member in members.values() if member.join_waiter is not None]
    parked_syncs = [member for member in members.values() if member.sync_waiter is not None]
    assert not parked_joins or group.state == State.PREPARING, f"JoinGroups are parked in {group.state.name}"
    assert not parked_syncs or group.state == State.COMPLETING, f"SyncGroups are parked in {group.state.name}"
    assert group.state != State.EMPTY or group.deadline == NEVER, "EMPTY has a deadline"
    if group.state == State.PREPARING or group.pending_sync:
        assert group.deadline != NEVER, f"{group.state.name} has no deadline"
    for member in members.values():
        waits = not member.is_new and (member.join_waiter is not None or member.sync_waiter is not None)
        if member.id in group.away:
            assert member.deadline == NEVER
            assert not waits, f"{member.id} is away and waits"
            check_absences(group)
            continue
        assert waits or member.deadline != NEVER, f"the session of {member.id} has no deadline"
        assert member.scheduled_at <= member.deadline, f"the session of {member.id} is checked after its deadline"
    if members:
        assert group.rebalance_timeout_ms == max(0, *[member.rebalance_timeout_ms for member in members.values()]), "the rebalance timeout is not the longest"
    if not group.record_changed:
        assert group.last_record is not None, "the group has no stored record"
        assigned = {stored.member_id: stored.assignment for stored in read_group(group.last_record).members}
        value = group_value(group, members.values(), group.leader, group.protocol_name, assigned)
        assert replace_generation(group.last_record, group.generation, group.state_ms) == value, "the group changed, and its cached record stayed"
        assert group.subscriptions in (None, tuple(group.all_metadata())), "the cached subscriptions are not those of the members"
    assert all(pending.deadline != NEVER for pending in group.pending_members.values()), "a pending member id has no deadline"


def kept_bytes(group: Group) -> int:
    """What the group keeps in memory, counted anew."""
    members = group.members.values()
    newcomers = group.newcomers.values()
    return (
        len(group.last_record or b"")
        + sum(member_bytes(member) for member in members)
        + sum(protocols_bytes(protocols) for protocols in {id(member.protocols): member.protocols for member in members}.values())
        + sum(pending_bytes(id) for id in group.pending_members)
        + sum(request_bytes(newcomer.request) for newcomer in newcomers)
    )


def reply_state(group: Group) -> Hashable:
    """The state on which replies to heartbeats and commits depend. It changes only with `Group.version`."""
    seats = seats_of(group)
    taking = tuple(seats.take_overs) if seats is not None else ()
    return group.state, group.generation, taking, tuple((id, member.instance_id) for id, member in group.members.items())


OWN_TOMBSTONES: Final = {"away": "back", "seats": "no seats"}
OFFSET_KEYS: Final = (b"\0\0", b"\0\1")  # versions of the keys of offsets


class Record(NamedTuple):
    """A fact in the log. `kind` says what it stores (`as_record`)."""

    kind: str
    group: str
    stored_group: GroupMetadataValue | None = None
    topic: str = ""
    partition: int = -1
    value: bytes | None = None


def as_record(fact: Fact, group: Group | None, during: str) -> Record:
    key, value = fact
    kind_of_record = kind_of(CONSUMER_OFFSETS, key)
    assert kind_of_record is not None
    key_message = read_record(kind_of_record.key, key)
    if isinstance(key_message, OffsetCommitKey):
        return Record("offset tombstone" if value is None else "offset", key_message.group, None, key_message.topic, key_message.partition, value)
    if not isinstance(key_message, GroupMetadataKey):
        kind = kind_of_record.name if value is not None else OWN_TOMBSTONES.get(kind_of_record.name, kind_of_record.name)
        return Record(kind, getattr(key_message, "group", ""), topic=getattr(key_message, "instance_id", ""), value=value)
    if value is None:
        return Record("group tombstone", key_message.group)
    stored = read_group(value)
    assert group is not None
    if not stored.members:
        kind = "new group" if not stored.protocol_type and not stored.generation else "empty group"
    elif during == "sync":
        kind = "assignments"
    else:
        kind = "replacement" if stored.generation == group.generation else "replacement in a rebalance"
    return Record(kind, key_message.group, stored, value=value)


def replayed(log: Iterable[Fact], now: int, config: GroupConfig) -> Shard:
    shard = Shard(config, lambda: "nobody")
    shard.clear()
    shard.replay(log)
    for _ in shard.open_groups(lambda: (now, now)):
        pass
    return shard


def compare_with_log(shard: Shard, log: list[Fact], now: int) -> None:
    """Check that loading the log gives the same offsets and group records as in memory, and the same members of stable or empty groups."""
    # Without a limit in group.max.size: a group above it would rebalance.
    loaded = replayed(log, now, GroupConfig(default_policies=shard.policies.of("")))
    compare_epoch_groups(shard, loaded)
    stored = {id: group for id, group in shard.groups.items() if group.last_record is not None or group.offsets}
    known = {id for id, group in loaded.groups.items() if group.last_record is not None or group.offsets}
    assert known == set(stored), f"{', '.join(sorted(known ^ set(stored)))}: a group is in the log or in memory only"
    for id, group in stored.items():
        other = loaded.groups[id]
        assert offsets_of(other) == offsets_of(group), f"{id}: the log has other offsets"
        if other.last_record != group.last_record:
            # Only a strict list of instance ids explains another record: the load removes unlisted members, and stores the result.
            assert dict(log).get(group_key(id)) == group.last_record, f"{id}: the log has another group record"
            strict = is_strict(other)
            assert strict, f"{id}: a load changes the group record"
            continue
        seats = seats_of(group)
        if group.state == State.STABLE and group.newcomers and seats is not None and seats.misses_target(group):
            # A seat is kept for a newcomer, which the log does not have: after a load a standby gets the seat.
            assert other.state == State.PREPARING, f"{id}: a load gives no standby the free seat"
        elif group.state == State.STABLE or (group.state == State.EMPTY and group.last_record is not None):
            assert other.state == group.state, f"{id}: {other.state.name} in the log, {group.state.name} in memory"
            assert stored_values(other) == stored_values(group), f"{id}: the log has other members"


def commits_in_order(log: Iterable[Fact]) -> bool:
    """Whether the commit times in the log never decrease. They may only if the wall clock was set back."""
    times = [read_offset(value).commit_ms for key, value in log if value is not None and key[:2] in OFFSET_KEYS]
    return times == sorted(times)


def offsets_of(group: Group) -> dict[tuple[str, int], bytes]:
    return {(topic, partition): value for topic, partition, value in group.all_offsets()}


def stored_values(group: Group) -> tuple[object, ...]:
    """The values of a group that its record has."""
    name = group.protocol_name
    members = {
        member.id: (
            member.instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.metadata(name),
            member.assignment,
        )
        for member in group.members.values()
    }
    # The record of a stable group has another time than memory: the end of its join phase.
    since = group.state_ms if group.state == State.EMPTY else 0
    return group.protocol_type, group.generation, name, group.leader, since, group.static_members, members
