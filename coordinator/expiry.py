"""Expiry of unused offsets, and of an empty group with its last offset (KIP-211)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from coordinator.admin import discard
from coordinator.classic.group import CONSUMER, Group
from coordinator.consumer.group import ConsumerGroup
from coordinator.consumer.room import Room
from coordinator.deadlines import Timed
from coordinator.facts import group_key, offset_key, read_offset
from coordinator.hold import BATCH_OVERHEAD_BYTES, Fact, facts_bytes
from coordinator.offsets import forget_offset
from coordinator.states import State
from coordinator.step_output import StepOutput

# A sweep checks all groups, in steps of about ten milliseconds, each in its own turn of the event loop.
OFFSETS_PER_SWEEP_STEP = 5_000
GROUPS_PER_SWEEP_STEP = 2_000
# The wall clock may deviate by a minute unnoticed. A time stored while it is a minute fast, and read while it is a minute slow, is two minutes ahead.
CLOCK_AHEAD_MAX_MS: Final = 120_000


class Sweep(Timed):
    """Deadline of a shard's next sweep step; `remaining`: the groups not checked yet in the current sweep."""

    __slots__ = ("remaining",)

    def __init__(self) -> None:
        super().__init__()
        self.remaining: list[str] = []


def schedule_sweep(out: StepOutput, sweep: Sweep) -> None:
    out.deadlines.set(sweep, out.now + out.config.offsets_retention_check_interval_ms)


def run_step(out: StepOutput, groups: dict[str, Group], room: Room, sweep: Sweep, steady_since_ms: int) -> Iterator[None]:
    """Run one step of a sweep. Yields whenever the tombstones fill a batch, and at the end: the caller then emits them.

    `steady_since_ms`: the wall time since which the clock has run steadily; -1: the clock was set recently, so nothing expires yet.
    """
    if steady_since_ms < 0:
        schedule_sweep(out, sweep)
        return
    if not sweep.remaining:
        sweep.remaining = [*groups, *room.groups]
    checked_groups = checked_offsets = size = 0
    while sweep.remaining and checked_groups < GROUPS_PER_SWEEP_STEP and checked_offsets < OFFSETS_PER_SWEEP_STEP:
        id = sweep.remaining.pop()
        group = groups.get(id) or room.groups.get(id)
        if group is None:
            continue
        checked_groups += 1
        checked_offsets += sum(len(stored.values) for stored in group.offsets.values())
        for fact in _expire(out, groups, room, group, steady_since_ms):
            cost = facts_bytes([fact])
            if BATCH_OVERHEAD_BYTES + size + cost > out.config.batch_bytes_max:
                yield
                size = 0
            out.facts.append(fact)
            size += cost
    yield
    if sweep.remaining:
        out.deadlines.set(sweep, out.now + 1)  # not `now`: the current `advance` would run the next step at once
    else:
        schedule_sweep(out, sweep)


def _expire(out: StepOutput, groups: dict[str, Group], room: Room, group: Group | ConsumerGroup, steady_since_ms: int) -> list[Fact]:
    """Drop expired offsets, then the group if it is empty and has no more offsets; return the tombstones."""
    facts: list[Fact] = []
    expired = [(topic, partition) for topic, partition, value in group.all_offsets() if _is_expired(out, group, topic, value, steady_since_ms)]
    for topic, partition in expired:
        facts.append((offset_key(group.offsets[topic].key_prefix, partition), None))
        forget_offset(group, topic, partition)
    if isinstance(group, ConsumerGroup):
        if not group.members and not group.offsets:
            facts += room.tombstones(group)
            room.discard(group)
    elif group.state == State.EMPTY and not group.offsets:
        facts.append((group_key(group.id), None))
        discard(out, groups, group)
    return facts


def _is_expired(out: StepOutput, group: Group | ConsumerGroup, topic: str, value: bytes, steady_since_ms: int) -> bool:
    """Whether a committed offset expires now.

    In an empty group retention counts from when it became empty, or from the commit if that time is unknown. In a simple group, and for a topic
    that a stable group of consumers does not subscribe to, it counts from the commit; in a group of the consumer protocol always. Other offsets of a
    group with members do not expire. An expiry time stored with the commit replaces the retention.
    """
    since_ms = -1  # from the commit
    if isinstance(group, ConsumerGroup):
        if group.subscribes_to(topic):
            return False
    elif group.protocol_type is None:
        pass  # a simple group, used for commits without membership
    elif group.state == State.EMPTY:
        since_ms = group.state_ms
    elif not (group.state == State.STABLE and group.protocol_type == CONSUMER) or group.subscribed is None or group.subscribes_to(topic):
        return False
    stored = read_offset(value)
    if stored.expire_ms != -1:
        return _age(out, stored.commit_ms, steady_since_ms) >= stored.expire_ms - stored.commit_ms
    return _age(out, stored.commit_ms if since_ms == -1 else since_ms, steady_since_ms) >= out.config.offsets_retention_ms


def _age(out: StepOutput, stored_ms: int, steady_since_ms: int) -> int:
    """The time since `stored_ms`. A time more than CLOCK_AHEAD_MAX_MS ahead is from a wrong clock: then the time since `steady_since_ms`."""
    return out.wall - (stored_ms if stored_ms <= out.wall + CLOCK_AHEAD_MAX_MS else steady_since_ms)
