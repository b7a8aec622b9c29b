"""Compare two consecutive records of a group: members that joined, left, or returned under another member id."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from history.consumer import assigned, topics_of
from protocol.messages.consumer_offsets import GroupMetadataValue, MemberMetadata


class Who(NamedTuple):
    """One member. `key` is its instance id, or else its member id."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str

    @property
    def key(self) -> str:
        return self.instance_id if self.instance_id is not None else self.member_id

    @property
    def identity(self) -> tuple[str, ...]:
        """What stays equal when a restarted process returns under another member id."""
        return (self.instance_id,) if self.instance_id is not None else (self.client_id, self.host)


class Difference(NamedTuple):
    """New and missing members, by member id; `back` pairs those of both that are one restarted process."""

    joined: list[Who]
    left: list[Who]
    back: list[tuple[Who, Who]]
    protocol: bool  # the group selected another one
    subscribed: list[str]  # remaining or returned members with other topics, or with other metadata if it cannot be read
    said: bool  # metadata of a remaining member changed, if only its owned partitions
    grown: dict[str, tuple[int, int]]  # topics that have more partitions now: before, after


def who(member: MemberMetadata) -> Who:
    return Who(member.member_id, member.group_instance_id, member.client_id, member.client_host)


def pair_returned(left: Iterable[Who], joined: Iterable[Who]) -> list[tuple[Who, Who]]:
    """Pair returned members with missing ones. Of several indistinguishable ones the first is pair_returned with the first."""
    gone: dict[tuple[str, ...], deque[Who]] = {}
    for one in left:
        gone.setdefault(one.identity, deque()).append(one)
    return [(gone[one.identity].popleft(), one) for one in joined if gone.get(one.identity)]


def compare(before: GroupMetadataValue | None, after: GroupMetadataValue) -> Difference:
    """`before` is None for a group that is new."""
    old = {member.member_id: member for member in before.members} if before is not None else {}
    new = {member.member_id: member for member in after.members}
    left = [who(one) for id, one in old.items() if id not in new]
    joined = [who(one) for id, one in new.items() if id not in old]
    back = pair_returned(left, joined)
    subscribed: list[str] = []
    said = False
    both = [(id, id) for id in old if id in new]
    protocol = bool(before is not None and before.protocol and after.protocol and before.protocol != after.protocol)
    if before is not None and not protocol:  # metadata of different protocols cannot be compared
        for one, other in [*both, *((gone.member_id, came.member_id) for gone, came in back)]:
            if old[one].subscription == new[other].subscription:
                continue
            said = said or one == other
            topics = topics_of(before, old[one]), topics_of(after, new[other])
            if None in topics or topics[0] != topics[1]:
                subscribed.append(who(new[other]).key)
    return Difference(joined, left, back, protocol, subscribed, said, _grown(before, after))


def _grown(before: GroupMetadataValue | None, after: GroupMetadataValue) -> dict[str, tuple[int, int]]:
    if before is None:
        return {}
    old, new = _sizes(before), _sizes(after)
    return {topic: (old[topic], size) for topic, size in sorted(new.items()) if topic in old and size > old[topic]}


def _sizes(stored: GroupMetadataValue) -> dict[str, int]:
    """For each topic the highest assigned partition plus one."""
    sizes: dict[str, int] = {}
    for member in stored.members:
        for topic, number in assigned(stored, member) or ():
            if number >= sizes.get(topic, 0):
                sizes[topic] = number + 1
    return sizes


def keys(some: Sequence[Who]) -> list[str]:
    return [one.key for one in some]
