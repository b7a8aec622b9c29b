"""Random lives of groups, for the assignors: members join, leave, return under another id and change their topics; topics grow, appear and go."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from coordinator.consumer.assignors import ASSIGNORS, Assignable, Assignment
from coordinator.consumer.assignors.java_order import CoordinatorOrder
from coordinator.consumer.assignors.uniform import assign_uniformly


@dataclass
class Case:
    assignor: str
    homogeneous: bool
    topics: dict[bytes, int]
    members: list[Assignable]

    def assign(self) -> Assignment:
        if self.assignor == "uniform":
            return assign_uniformly(self.members, self.topics, self.homogeneous)
        return ASSIGNORS[self.assignor](self.members, self.topics)

    def document(self) -> dict[str, Any]:
        """As the Java program and the recorded sample have it."""
        return {
            "assignor": self.assignor,
            "homogeneous": self.homogeneous,
            "topics": {topic.hex(): count for topic, count in self.topics.items()},
            "members": [
                {
                    "id": member.member_id,
                    "instance": member.instance_id,
                    "topics": [topic.hex() for topic in self.topics if topic in member.topics],
                    "target": by_hex(member.target),
                }
                for member in self.members
            ],
        }


def case_of(document: Mapping[str, Any]) -> Case:
    members = [
        Assignable(
            member["id"],
            member["instance"],
            frozenset(map(bytes.fromhex, member["topics"])),
            {bytes.fromhex(topic): tuple(partitions) for topic, partitions in member["target"].items()},
        )
        for member in document["members"]
    ]
    topics = {bytes.fromhex(topic): count for topic, count in document["topics"].items()}
    return Case(document["assignor"], document["homogeneous"], topics, members)


def by_hex(assigned: Mapping[bytes, Sequence[int]]) -> dict[str, list[int]]:
    return {topic.hex(): list(partitions) for topic, partitions in assigned.items()}


@dataclass
class Life:
    """One group. `mixed`: how likely a member is to have topics of its own."""

    random: Random
    mixed: float = 0.0
    topics: dict[bytes, int] = field(default_factory=dict)
    common: set[bytes] = field(default_factory=set)
    members: dict[str, Assignable] = field(default_factory=dict)
    order: CoordinatorOrder = field(default_factory=CoordinatorOrder)

    def cases(self, assignor: str, steps: int) -> Iterator[Case]:
        for _ in range(self.random.choice((1, 1, 2, 3, 14))):
            self.new_topic()
        for _ in range(self.random.choice((1, 2, 3, 8, 25))):
            self.join()
        for _ in range(steps):
            if self.members:
                case = self.case(assignor)
                yield case
                self.keep(case.assign())
            for _ in range(self.random.choice((1, 1, 1, 2, 5))):
                self.random.choice((self.join, self.join, self.leave, self.leave, self.returns, self.grow, self.new_topic, self.drop_topic, self.change))()

    def growing(self, members: int, steps: int) -> Iterator[Case]:
        """Many topics, and members that only join: each gives up partitions far apart, which fill few buckets of Java's tables."""
        for _ in range(14):
            self.new_topic()
        for _ in range(members):
            self.join()
        for _ in range(steps):
            case = self.case("uniform")
            yield case
            self.keep(case.assign())
            self.join()

    def case(self, assignor: str) -> Case:
        members = [self.members[id] for id in self.order.ids()]
        members = [member._replace(topics=frozenset(topic for topic in member.topics if topic in self.topics)) for member in members]
        homogeneous = len({member.topics for member in members}) == 1
        read = {topic: count for topic, count in self.topics.items() if any(topic in member.topics for member in members)}
        return Case(assignor, homogeneous, read, members)

    def keep(self, assigned: Assignment) -> None:
        for id, target in assigned.items():
            self.members[id] = self.members[id]._replace(target={topic: tuple(partitions) for topic, partitions in target.items()})

    def id(self) -> str:
        if self.random.random() < 0.1:  # few buckets, and ids that are not ASCII
            return self.random.choice("abcéAaBB") + self.random.choice(("Aa", "BB", "é", "\U0001f600")) * 2 + str(self.random.randrange(99))
        return base64.urlsafe_b64encode(self.random.randbytes(16)).decode().rstrip("=")

    def wanted(self) -> frozenset[bytes]:
        if self.random.random() < self.mixed:
            return frozenset(topic for topic in self.topics if self.random.random() < 0.5)
        return frozenset(self.common)

    def join(self) -> None:
        id = self.id()
        if id not in self.members:
            instance = f"i-{self.random.randrange(1 << 40)}" if self.random.random() < 0.3 else None
            self.members[id] = Assignable(id, instance, self.wanted(), {})
            self.order.put(id)

    def leave(self) -> None:
        if self.members:
            id = self.random.choice(list(self.members))
            del self.members[id]
            self.order.remove(id)

    def returns(self) -> None:
        """A static member comes back under a new id, with the target of before."""
        static = [member for member in self.members.values() if member.instance_id is not None]
        id = self.id()
        if static and id not in self.members:
            old = self.random.choice(static)
            del self.members[old.member_id]
            self.order.remove(old.member_id)
            self.members[id] = old._replace(member_id=id)
            self.order.put(id)

    def grow(self) -> None:
        if self.topics:
            self.topics[self.random.choice(list(self.topics))] += self.random.choice((1, 2, 7, 40))

    def new_topic(self) -> None:
        topic = self.random.randbytes(16)
        self.topics[topic] = self.random.choice((1, 2, 3, 6, 12, 30, 100, 300))
        self.read(topic)

    def drop_topic(self) -> None:
        """It is deleted, or the members no longer read it."""
        if len(self.topics) > 1:
            topic = self.random.choice(list(self.topics))
            self.common.discard(topic)
            if self.random.random() < 0.5:
                del self.topics[topic]
            self.members = {id: member._replace(topics=member.topics - {topic}) for id, member in self.members.items()}

    def read(self, topic: bytes) -> None:
        self.common.add(topic)
        for id, member in self.members.items():
            if self.random.random() >= self.mixed:
                self.members[id] = member._replace(topics=member.topics | {topic})

    def change(self) -> None:
        """A member changes its topics, if members may differ; else all do."""
        if self.mixed and self.members:
            id = self.random.choice(list(self.members))
            self.members[id] = self.members[id]._replace(topics=self.wanted())
        elif self.topics:
            self.read(self.random.choice(list(self.topics)))


def random_cases(seed: int, count: int) -> Iterator[Case]:
    """`count` lives, of some steps each."""
    for number in range(count):
        random = Random(f"{seed} {number}")
        assignor = "range" if random.random() < 0.2 else "uniform"
        yield from Life(random, random.choice((0.0, 0.0, 0.3, 0.8))).cases(assignor, random.choice((1, 3, 8)))
        if random.random() < 0.05:
            yield from Life(random).growing(random.choice((6, 12, 24)), 6)
