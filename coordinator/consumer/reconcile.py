"""Reconciliation: one step of a member from what it holds towards its target.

A member that must give partitions up is told so at its old epoch, with a shorter assignment. Its next list without them is the
acknowledgement, which moves it to the epoch of the target. Partitions that others still hold are waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from coordinator.consumer.calls import Partitions
from coordinator.consumer.changes import Target
from coordinator.consumer.group import union
from coordinator.consumer.member import NOTHING, STABLE, UNRELEASED, UNREVOKED, Held, Holding, MemberState

# Whether a member holds the partition of the topic.
IsHeld = Callable[[bytes, int], bool]


class Reconciliation(NamedTuple):
    """What decides a member's next holding.

    `target`: of the topics that the member reads now, and that exist. `owned`: what the member says it owns; None: it may own
    everything. `subscription_changed`: by this heartbeat. `topic_ids`: of the topics that it reads now.
    """

    target_epoch: int
    target: Target
    topic_ids: frozenset[bytes]
    owned: Partitions | None
    subscription_changed: bool
    is_held: IsHeld


def reconcile(holding: Holding, to: Reconciliation) -> Holding | None:
    """The next holding, the same object if nothing changes; None: the member is fenced. A member that is reconciled is asked only if it changed what it reads."""
    return ROWS[holding.state](holding, to)


def from_stable(holding: Holding, to: Reconciliation) -> Holding:
    return shrink(holding, to) if holding.epoch == to.target_epoch else next_holding(holding, to)


def from_unrevoked(holding: Holding, to: Reconciliation) -> Holding:
    if may_own(to.owned, holding.pending):
        return shrink(holding, to) if to.subscription_changed else holding
    return next_holding(holding, to)


def from_unknown(holding: Holding, to: Reconciliation) -> Holding | None:
    """A newer coordinator wrote the state: the member starts again, without partitions."""
    if to.owned is None or to.owned:
        return None
    return next_holding(holding._replace(epoch=to.target_epoch), to)


def next_holding(holding: Holding, to: Reconciliation) -> Holding:
    """Towards the newest target, from what is assigned: what was to be given up before is forgotten here."""
    keep: Held = {}
    revoke: Held = {}
    for topic_id, partitions in holding.assigned.items():
        wanted = frozenset(to.target.get(topic_id, ()))
        put(keep, topic_id, {partition: epoch for partition, epoch in partitions.items() if partition in wanted})
        put(revoke, topic_id, {partition: epoch for partition, epoch in partitions.items() if partition not in wanted})
    if revoke and may_own(to.owned, revoke):
        return holding.moved(holding.epoch, UNREVOKED, keep, revoke)
    waiting = False
    for topic_id, target in to.target.items():
        kept = keep.get(topic_id, {})
        own = holding.pending.get(topic_id, {})
        lacking = [partition for partition in target if partition not in kept]
        free = [partition for partition in lacking if partition in own or not to.is_held(topic_id, partition)]
        waiting = waiting or len(free) < len(lacking)
        put(keep, topic_id, kept | dict.fromkeys(free, to.target_epoch))
    return holding.moved(to.target_epoch, UNRELEASED if waiting else STABLE, keep, NOTHING)


def shrink(holding: Holding, to: Reconciliation) -> Holding:
    """There is no newer target, but the member may read fewer topics: their partitions move to those that it must give up."""
    leave = {topic_id: partitions for topic_id, partitions in holding.assigned.items() if topic_id not in to.topic_ids}
    if not leave:
        return holding
    keep = {topic_id: partitions for topic_id, partitions in holding.assigned.items() if topic_id in to.topic_ids}
    pending = union(holding.pending, leave)
    if may_own(to.owned, pending):
        return holding.moved(holding.epoch, UNREVOKED, keep, pending)
    return holding.moved(holding.epoch, holding.state, keep, holding.pending)


def may_own(owned: Partitions | None, partitions: Held) -> bool:
    """Whether a member with this list may still own any of these partitions."""
    return owned is None or any(partition in partitions.get(topic_id, {}) for topic_id, listed in owned.items() for partition in listed)


def put(held: Held, topic_id: bytes, partitions: dict[int, int]) -> None:
    if partitions:
        held[topic_id] = partitions


# fmt: off
# What a heartbeat does to a member in each state. UNREVOKED and the list free of what is to be given up, UNRELEASED: towards the newest target.
ROWS: Final[dict[MemberState, Callable[[Holding, Reconciliation], Holding | None]]] = {
    MemberState.STABLE:     from_stable,     # an older epoch: towards the target; the same: it shrinks to what it reads
    MemberState.UNREVOKED:  from_unrevoked,  # it may still own what it must give up: it stays, and shrinks to what it reads
    MemberState.UNRELEASED: next_holding,
    MemberState.UNKNOWN:    from_unknown,    # its list must be empty, else it is fenced
}
# fmt: on
