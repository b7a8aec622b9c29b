"""Checks of the groups of the consumer protocol in the memory of one broker."""

from __future__ import annotations

from typing import Any, Final

from coordinator.consumer.calls import AWAY
from coordinator.deadlines import NEVER
from coordinator.facts import read_offset
from simulator.epoch_truths import check_epoch_group
from simulator.epoch_watch import EpochWatch
from simulator.node import Node
from simulator.promises import NONE, Offsets, Sessions
from simulator.topics import Topics
from simulator.truths import offsets_of
from simulator.world import MS, Broken, Promise, World

LATE_MS: Final = 500  # how long ago the time of a member may have ended
EPOCH_INVARIANTS: Final = Promise(
    "epoch invariants", "each partition of a group of the consumer protocol has one holder; counters, indexes and timers agree with its members"
)


class EpochAudit:
    def __init__(self, world: World, node: Node, watch: EpochWatch, offsets: Offsets, topics: Topics, retention_ns: int) -> None:
        self._world = world
        self._node = node
        self._watch = watch
        self._offsets = offsets
        self._topics = topics
        self._retention_ns = retention_ns

    def check(self, shard: Any, nothing_held: bool) -> None:
        for group in shard.consumers.groups.values():
            try:
                check_epoch_group(group)
            except AssertionError as error:
                raise Broken(EPOCH_INVARIANTS, f"{group.id}: {error}", group.id) from error
            self._check_deadlines(group, shard.consumers.kept_ms(group.id))
            if nothing_held:
                members = {member.id: member.holding.epoch for member in group.members.values() if member.holding.epoch != AWAY}
                self._watch.epochs.stored(group.id, group.epoch, group.target_epoch, members, bool(group.note_count.dropped))

    def _check_deadlines(self, group: Any, kept_ms: int) -> None:
        """Raise Broken if a session or a revocation has no end, or one that is later than its timeout allows, or ended long ago in an undisturbed broker.

        `kept_ms`: how long the group keeps static members beyond their sessions.
        """
        node = self._node
        now = node.broker.clock.tick()
        undisturbed = (self._world.now - max(node.frozen_until, node.disturbed_at)) // MS > LATE_MS
        session_ms = self._watch.plan.session_ns // MS
        for member in group.members.values():
            is_kept = member.profile.instance_id is not None and (member.is_away or member.profile.classic is not None)
            times = [("session", member.deadline, max(session_ms, kept_ms) if is_kept else session_ms)]
            if member.revocation is not None:
                times.append(("revocation", member.revocation.deadline, member.revocation.timeout_ms))
            for what, deadline, timeout_ms in times:
                if deadline == NEVER or deadline > now + timeout_ms:
                    raise Broken(Sessions.promise, f"the {what} of {member.id} has no end within its timeout of {timeout_ms} ms", group.id)
                if undisturbed and deadline < now - LATE_MS:
                    raise Broken(Sessions.promise, f"the {what} of {member.id} ended {now - deadline} ms ago, and it is still a member", group.id)

    def loaded(self, shard: Any) -> None:
        """The coordinator has loaded a partition: check the offsets that members will now read."""
        for id in self._watch.names:
            group = shard.consumers.groups.get(id) or shard.groups.get(id)
            if group is None:
                continue
            stored = offsets_of(group)
            for topic in self._watch.topics:
                if topic in self._topics.deleted:
                    continue  # the coordinator removes its offsets next
                for partition in self._offsets.partitions_of(id, topic):
                    value = stored.get((topic, partition[2]))
                    if value is None:
                        self._offsets.may_expire(partition, self._retention_ns)
                    self._offsets.read(partition, NONE if value is None else read_offset(value).offset, self._world.now)
