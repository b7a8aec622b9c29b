"""What an assignor is, what it gets and what it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class Assignable(NamedTuple):
    """A member as the assignors see it.

    `topics` are the topics that it reads and that exist; members that read the same should have the same object. `target` are the
    partitions of its last target, by topic: the order of both is that in which Kafka put them into its tables, which is that of the record.
    """

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    target: Mapping[bytes, Sequence[int]]


# By member and topic. The target of a member that keeps what it had is the same object, and order is that of Java's tables.
Assignment = dict[str, Mapping[bytes, Sequence[int]]]


class Assignor(Protocol):
    """Gets the members in the order of the coordinator's table (`java_order.CoordinatorOrder`), and the number of partitions of each topic that
    any of them reads, in the order of the set of their names (`java_order.in_text_order`). Another order gives an assignment that is as good,
    but not Kafka's where two of them share a bucket of a Java table.

    `homogeneous`: whether all members have the same subscription; None: it is found out from what they read.
    """

    def __call__(self, members: Sequence[Assignable], topics: Mapping[bytes, int], homogeneous: bool | None = None, /) -> Assignment: ...


class ServerAssignor(NamedTuple):
    """An assignor that members may ask for by its name. `class_name`: Kafka's own, which its settings may name instead."""

    name: str
    sentence: str
    assign: Assignor
    class_name: str = ""

    def __call__(self, members: Sequence[Assignable], topics: Mapping[bytes, int], homogeneous: bool | None = None) -> Assignment:
        """Raises ValueError if the assignment is not one that members can follow: Kafka's assignors are compared with Kafka's classes instead."""
        assignment = self.assign(members, topics, homogeneous)
        if not self.class_name:
            check_assignment(assignment, members, topics)
        return assignment


def check_assignment(assignment: Assignment, members: Sequence[Assignable], topics: Mapping[bytes, int]) -> None:
    """Each partition exists and has one owner, who reads its topic: a second owner would wait for the first for ever."""
    read = {member.member_id: member.topics for member in members}
    given: dict[bytes, set[int]] = {}
    for id, target in assignment.items():
        if id not in read:
            raise ValueError(f"{id!r} is no member")
        for topic, partitions in target.items():
            if topic not in topics or topic not in read[id]:
                raise ValueError(f"{id!r} does not read topic {topic.hex()}")
            of_topic = given.setdefault(topic, set())
            for partition in partitions:
                if not 0 <= partition < topics[topic]:
                    raise ValueError(f"topic {topic.hex()} has no partition {partition}")
                if partition in of_topic:
                    raise ValueError(f"partition {partition} of topic {topic.hex()} is given twice")
                of_topic.add(partition)


def are_homogeneous(members: Sequence[Assignable]) -> bool:
    """Whether all members read the same topics."""
    return len({member.topics for member in members}) < 2
