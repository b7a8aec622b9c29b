"""One heartbeat while it is decided: the group is as before, and what will change is here.

So a step that ends in an error, or in an assignor that fails, has changed nothing. `Keeper.carry_out` applies the changes and emits them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from coordinator.consumer.calls import HeartbeatRequest
from coordinator.consumer.changes import Change, HoldingChange, ProfileChange, Resolved, Target, TargetChange
from coordinator.consumer.config import ConsumerConfig
from coordinator.consumer.group import NO_TARGET, ConsumerGroup, count
from coordinator.consumer.member import NEW, ClassicPart, ConsumerMember, Held, Holding, Profile


class HeartbeatStep:
    """A heartbeat of a member that exists, is created, or replaces another of its instance id."""

    __slots__ = (
        "changes",
        "classic",
        "config",
        "epoch",
        "group",
        "holding",
        "holding_before",
        "id",
        "is_new",
        "profile",
        "profile_before",
        "refreshes",
        "replaced",
        "request",
        "resolved",
        "resolves",
        "target",
        "target_epoch",
    )

    def __init__(self, group: ConsumerGroup, config: ConsumerConfig, request: HeartbeatRequest, id: str, member: ConsumerMember | None) -> None:
        """`member`: the one that heartbeats, or that one of its instance which this one replaces; None: it is new."""
        self.group = group
        self.config = config
        self.request = request
        self.id = id
        self.is_new = member is None
        self.profile_before = Profile() if member is None else member.profile
        self.holding_before = NEW if member is None else member.holding
        self.target = NO_TARGET if member is None else group.targets.get(member.id, NO_TARGET)
        self.profile = self.profile_before
        self.classic: ClassicPart | None = None  # of a JoinGroup, which is decided like a heartbeat
        self.holding = self.holding_before
        self.replaced: str | None = None
        self.epoch = group.epoch
        self.target_epoch = group.target_epoch
        self.resolved: dict[str, Resolved] = group.resolved  # replaced by a copy if an expression goes
        self.resolves = False  # the expressions of the group are to be resolved
        self.refreshes = False  # the hash of the topics was computed
        self.changes: list[Change] = []

    def replace(self, member: ConsumerMember) -> None:
        """The new member gets all of this one, whose assignment epochs are forgotten."""
        self.replaced = member.id
        before = member.holding
        self.holding = self.holding_before = Holding(0, 0, before.state, without_epochs(before.assigned), without_epochs(before.pending))
        self.changes += removal(member.id)
        self.changes += (ProfileChange(self.id, self.profile), TargetChange(self.id, self.target), HoldingChange(self.id, self.holding))

    @property
    def subscription_changed(self) -> bool:
        return self.topics_changed or self.profile.expression != self.profile_before.expression

    @property
    def topics_changed(self) -> bool:
        return self.profile.topics != self.profile_before.topics

    # The group as it will be.

    def profiles(self) -> Iterator[tuple[str, Profile]]:
        """All members, in the order of the group's table: a new one is its last."""
        own = self.id if self.replaced is None else self.replaced
        for id in self.group.order.ids():
            if id != own:
                yield id, self.group.members[id].profile
            elif self.replaced is None:
                yield id, self.profile
        if self.is_new or self.replaced is not None:
            yield self.id, self.profile

    def targets(self) -> Mapping[str, Target]:
        if self.replaced is None:
            return self.group.targets
        return {**self.group.targets, self.id: self.target}

    def votes(self) -> dict[str, int]:
        """How many members ask for each assignor."""
        votes = self.group.assignor_votes
        if self.profile.assignor != self.profile_before.assignor:
            votes = dict(votes)
            if self.profile_before.assignor is not None:
                count(votes, self.profile_before.assignor, -1)
            if self.profile.assignor is not None:
                count(votes, self.profile.assignor, 1)
        return votes

    def topics(self) -> set[str]:
        """The names of all topics that the group reads."""
        return read_by(self.group, [self.profile_before], [self.profile], self.resolved)


def without_epochs(held: Held) -> Held:
    return {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in held.items()}


def removal(id: str) -> list[Change]:
    return [HoldingChange(id, None), TargetChange(id, None), ProfileChange(id, None)]


def read_by(group: ConsumerGroup, without: Iterable[Profile], plus: Iterable[Profile], resolved: dict[str, Resolved]) -> set[str]:
    """The names of the topics that the group reads, without the first profiles and with the second ones."""
    counts = dict(group.topic_counts)
    for profiles, change in ((without, -1), (plus, 1)):
        for profile in profiles:
            for topic in profile.topics:
                count(counts, topic, change)
    return set(counts).union(*[expression.topics for expression in resolved.values()])
