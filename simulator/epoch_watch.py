"""What the members of groups of the consumer protocol share: the promises about them, and the names of topics by id."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from coordinator.consumer.member import ConsumerMember
from coordinator.notes import Cause, EpochStep, Note
from simulator.course import Course
from simulator.epoch_plan import EpochPlan
from simulator.epoch_promises import Epochs, Holders, Owners, Seats
from simulator.memory import Coordinators
from simulator.node import Node
from simulator.promises import Offsets, Sessions
from simulator.world import World

NO_CAUSES: Final = (Cause.REQUESTED,)  # nobody requests epochs here
REMOVING: Final = (
    Cause.MEMBER_LEFT,
    Cause.REBALANCE_TIMEOUT,
    Cause.ADMIN_REMOVED,
    Cause.SESSION_EXPIRED,
    Cause.ABSENCES_ENDED,
    Cause.REGISTRATION_UNSET,
)


class EpochWatch:
    def __init__(
        self,
        world: World,
        plan: EpochPlan,
        retention_ns: int,
        course: Course,
        nodes: Sequence[Node],
        coordinators: Coordinators,
        offsets: Offsets,
        sessions: Sessions,
    ) -> None:
        self.world = world
        self.plan = plan
        self.course = course
        self._nodes = nodes
        self.coordinators = coordinators
        self.sessions = sessions
        self.owners = Owners(world)
        self.holders = Holders(world, self.members_of)
        self.epochs = Epochs(world, lambda group: offsets.surely_has(group, retention_ns))
        self.seats = Seats(world)
        self.names = [group.name for group in plan.groups]
        self.topics = [topic for topic, _ in plan.topics]  # grows
        self._topic_names: dict[bytes, str] = {}
        self._removed_at: dict[tuple[str, str], int] = {}  # group, instance -> when an administrator may last have removed it

    def members_of(self, group: str) -> Mapping[str, ConsumerMember] | None:
        found = self.coordinators.find_consumers(group)
        return found.members if found is not None else None

    # Topics.

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic; None: it was deleted before a client saw it."""
        if topic_id not in self._topic_names:
            for node in self._nodes:
                if node.serving:
                    self._topic_names.update({topic.id: topic.name for topic in node.broker.topics.by_name.values()})
        return self._topic_names.get(topic_id)

    def gone_topics(self, group: str) -> Collection[bytes]:
        """The ids of those topics that the group's coordinator does not have any more."""
        for memory in self.coordinators.memories.values():
            if memory.serves(group):
                present = memory.node.broker.shards.journal_of(group).shard.consumers.topics.by_id
                return [id for id in self._topic_names if id not in present]
        return list(self._topic_names)

    # Administrators.

    def removes(self, group: str, instances: Collection[str]) -> None:
        """An administrator removes members, from now on until it is answered."""
        for instance in instances:
            self._removed_at[group, instance] = 1 << 62
            self.seats.lost(group, instance)

    def removed(self, group: str, instances: Collection[str]) -> None:
        for instance in instances:
            self._removed_at[group, instance] = self.world.now
            self.seats.lost(group, instance)

    def removed_at(self, group: str, instance: str | None) -> int:
        return self._removed_at.get((group, instance), -1) if instance is not None else -1

    # Notes of the coordinator.

    def note(self, note: Note, moment: int, steady: bool) -> None:
        """A note about an epoch. `steady`: the wall clock was never set, so `moment` is exact."""
        body: Any = note.body
        group = note.group_id
        if note.dropped:
            self.epochs.forget_notes(group)
        step = EpochStep(body.step)
        if step is not EpochStep.BEGUN:
            return
        cause = Cause(body.cause) if body.cause in list(Cause) else None
        name = cause.name if cause is not None else str(body.cause)
        self.world.trace(f"note: {group}: epoch {note.generation} begins ({name}{': ' if body.members else ''}{', '.join(body.members)})", group)
        if cause is Cause.UPGRADED:
            self.epochs.forget_notes(group)
        self.epochs.noted(group, note.generation, cause is not None and cause not in NO_CAUSES)
        self.seats.begun(group, name, body.members)
        for member_id in body.members:
            if cause is Cause.SESSION_EXPIRED and steady:
                self.sessions.expired(group, member_id, moment)
            elif cause in REMOVING:
                self.sessions.removed(group, member_id)

    # Ends.

    def node_ended(self) -> None:
        self.epochs.forget_notes()

    def power_failed(self) -> None:
        """A power failure may have lost what was answered lately."""
        self.holders.forget()
        self.epochs.forget()
        self.seats.forget()
        self.owners.forget()
