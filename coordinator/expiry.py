"""Offsets that nobody came back for expire, and with the last one its group (KIP-211)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from coordinator.admin import discard
from coordinator.deadlines import Timed
from coordinator.facts import group_key, offset_key, read_offset
from coordinator.group import CONSUMER, Group
from coordinator.hold import BATCH_OVERHEAD_BYTES, Fact, facts_bytes
from coordinator.offsets import forget
from coordinator.outcome import Outcome
from coordinator.states import State

# Looked at in one go: some ten milliseconds. Whatever is left is looked at in the next turn.
OFFSETS_AT_ONCE = 5_000
GROUPS_AT_ONCE = 2_000
# Steps of the clock below a minute count at once, so what was stored just now may lie as far ahead; or twice, after one ahead and one back.
AHEAD_MS: Final = 120_000


class Sweep(Timed):
    """When the next look at a shard's offsets is due, and which groups are left of the one under way."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        super().__init__()
        self.left: list[str] = []


def plan(out: Outcome, sweep: Sweep) -> None:
    out.deadlines.set(sweep, out.now + out.config.offsets_retention_check_interval_ms)


def sweep(out: Outcome, groups: dict[str, Group], work: Sweep, steady_ms: int) -> Iterator[None]:
    """One part of a sweep; yields when what was found should go to the log as a step of its own.

    `steady_ms` as in `Shard.advance`: while the clock is not to be trusted, nothing expires.
    """
    if steady_ms < 0:
        plan(out, work)
        return
    if not work.left:
        work.left = list(groups)
    seen_groups = seen_offsets = size = 0
    while work.left and seen_groups < GROUPS_AT_ONCE and seen_offsets < OFFSETS_AT_ONCE:
        group = groups.get(work.left.pop())
        if group is None:
            continue
        seen_groups += 1
        seen_offsets += sum(len(stored.values) for stored in group.offsets.values())
        for fact in _expired(out, groups, group, steady_ms):
            cost = facts_bytes([fact])
            if BATCH_OVERHEAD_BYTES + size + cost > out.config.batch_bytes_max:
                yield
                size = 0
            out.facts.append(fact)
            size += cost
    yield
    if work.left:
        out.deadlines.set(work, out.now + 1)  # the step under way would take it up again at once
    else:
        plan(out, work)


def _expired(out: Outcome, groups: dict[str, Group], group: Group, steady_ms: int) -> list[Fact]:
    """Tombstones for what has expired; the group's own comes last, when nothing is left of it."""
    facts: list[Fact] = []
    over = [(topic, partition) for topic, partition, value in group.all_offsets() if _is_expired(out, group, topic, value, steady_ms)]
    for topic, partition in over:
        facts.append((offset_key(group.offsets[topic].key_prefix, partition), None))
        forget(group, topic, partition)
    if group.state == State.EMPTY and not group.offsets:
        facts.append((group_key(group.id), None))
        discard(out, groups, group)
    return facts


def _is_expired(out: Outcome, group: Group, topic: str, value: bytes, steady_ms: int) -> bool:
    """Counted from the commit where no group keeps it alive, from the moment the group became empty where one did."""
    base_is_commit = True
    if group.protocol_type is None:
        pass  # a simple group: only commits tell that it lives
    elif group.state == State.EMPTY:
        base_is_commit = group.state_ms == -1
    elif not (group.state == State.STABLE and group.protocol_type == CONSUMER) or group.subscribed is None or group.subscribes_to(topic):
        return False
    stored = read_offset(value)
    if stored.expire_ms != -1:
        return _age(out, stored.commit_ms, steady_ms) >= stored.expire_ms - stored.commit_ms
    return _age(out, stored.commit_ms if base_is_commit else group.state_ms, steady_ms) >= out.config.offsets_retention_ms


def _age(out: Outcome, stored_ms: int, steady_ms: int) -> int:
    """How long ago that was. A wrong clock stored what lies ahead of this one, and not after it was put right."""
    return out.wall - (stored_ms if stored_ms <= out.wall + AHEAD_MS else steady_ms)
