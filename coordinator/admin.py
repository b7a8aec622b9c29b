"""Administration of groups: describe, list, delete a group, delete some of its offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from coordinator.calls import DescribedMember, Description, ListedGroup
from coordinator.classic.group import CONSUMER, Group
from coordinator.committed import OffsetsOwner
from coordinator.consumer.group import ConsumerGroup
from coordinator.consumer.room import Room
from coordinator.facts import group_key, offset_key
from coordinator.hold import BATCH_OVERHEAD_BYTES, Fact, facts_bytes
from coordinator.offsets import forget_offset
from coordinator.states import State
from coordinator.step_output import StepOutput
from protocol.errors import ErrorCode


def describe(group: Group | None) -> Description:
    """Metadata is shown only in STABLE, assignments in every state, as in Kafka."""
    if group is None:
        return Description(State.DEAD.shown)
    stable = group.state == State.STABLE
    protocol = group.protocol_name if stable else None
    members = [
        DescribedMember(
            member.id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata(protocol) if stable else b"",
            member.assignment,
        )
        for member in group.members.values()
    ]
    return Description(group.state.shown, group.protocol_type or "", protocol or "", tuple(members))


def listed(group: Group) -> ListedGroup:
    return ListedGroup(group.id, group.protocol_type or "", group.state.shown)


def delete(out: StepOutput, groups: dict[str, Group], group: Group) -> int:
    """Delete a group without members; member ids that no JoinGroup has used do not count. Tombstones of offsets precede the group's tombstone."""
    if group.state != State.EMPTY:
        return ErrorCode.NON_EMPTY_GROUP
    tombstones = offset_tombstones(group)
    tombstones.append((group_key(group.id), None))
    if not out.fits(tombstones):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    out.facts += tombstones
    discard(out, groups, group)
    return ErrorCode.NONE


def delete_consumers(out: StepOutput, room: Room, group: ConsumerGroup) -> int:
    """The same for a group of the consumer protocol."""
    if group.members:
        return ErrorCode.NON_EMPTY_GROUP
    tombstones = [*offset_tombstones(group), *room.tombstones(group)]
    if not out.fits(tombstones):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    out.facts += tombstones
    room.discard(group)
    return ErrorCode.NONE


def offset_tombstones(group: OffsetsOwner) -> list[Fact]:
    return [(offset_key(group.offsets[topic].key_prefix, partition), None) for topic, partition, _ in group.all_offsets()]


def discard(out: StepOutput, groups: dict[str, Group], group: Group) -> None:
    """Drop the group and the member ids handed out for it."""
    for pending in group.pending_members.values():
        out.deadlines.remove(pending)
    group.pending_members.clear()
    out.deadlines.remove(group)
    group.drop()
    del groups[group.id]


def delete_offsets(out: StepOutput, group: Group | ConsumerGroup, partitions: list[tuple[str, int]]) -> tuple[int, list[int]]:
    """Delete offsets, except those of subscribed topics; deleting an offset that does not exist succeeds.

    A group with members that is not a group of consumers is refused as a whole.
    """
    if isinstance(group, Group) and group.state != State.EMPTY and group.protocol_type != CONSUMER:
        return ErrorCode.NON_EMPTY_GROUP, []
    codes: list[int] = []
    for topic, partition in partitions:
        if group.subscribes_to(topic):
            codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            continue
        stored = group.offsets.get(topic)
        if stored is not None and partition in stored.values:
            out.facts.append((offset_key(stored.key_prefix, partition), None))
            forget_offset(group, topic, partition)
        codes.append(ErrorCode.NONE)
    return ErrorCode.NONE, codes


def forget_topics(out: StepOutput, group: OffsetsOwner, deleted: Collection[str]) -> Iterator[None]:
    """Delete the offsets of deleted topics.

    Yields whenever the tombstones fill a batch: the caller then emits them.
    """
    size = 0
    for topic in [topic for topic in group.offsets if topic in deleted]:
        stored = group.offsets[topic]
        for partition in list(stored.values):
            fact: Fact = (offset_key(stored.key_prefix, partition), None)
            cost = facts_bytes([fact])
            if out.facts and BATCH_OVERHEAD_BYTES + size + cost > out.config.batch_bytes_max:
                yield
                size = 0
            out.facts.append(fact)
            size += cost
            forget_offset(group, topic, partition)
