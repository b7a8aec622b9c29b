"""Two records of a group that follow one another, compared: who came, who went, who is back under another member id."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from history.consumer import assigned, topics_of
from protocol.messages.consumer_offsets import GroupMetadataValue, MemberMetadata


class Who(NamedTuple):
    """One member. Its key is what people know it by."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str

    @property
    def key(self) -> str:
        return self.instance_id if self.instance_id is not None else self.member_id

    @property
    def identity(self) -> tuple[str, ...]:
        """The same for the process that takes its place after a restart, as far as a coordinator sees it."""
        return (self.instance_id,) if self.instance_id is not None else (self.client_id, self.host)


class Difference(NamedTuple):
    """Members that are new and members that are gone, by member id; `back` are those of both that are one process: it was restarted."""

    joined: list[Who]
    left: list[Who]
    back: list[tuple[Who, Who]]
    protocol: bool  # the group agreed on another one
    subscribed: list[str]  # members that stayed or are back and subscribe to other topics, or say other things where these cannot be read
    said: bool  # some of those that stayed say something else, be it only what they own
    grown: dict[str, tuple[int, int]]  # topics that have more partitions now: before, after


def who(member: MemberMetadata) -> Who:
    return Who(member.member_id, member.group_instance_id, member.client_id, member.client_host)


def paired(left: Iterable[Who], joined: Iterable[Who]) -> list[tuple[Who, Who]]:
    """Who is back in the place of whom. Of several that nobody can tell apart the first takes the place of the first."""
    gone: dict[tuple[str, ...], deque[Who]] = {}
    for one in left:
        gone.setdefault(one.identity, deque()).append(one)
    return [(gone[one.identity].popleft(), one) for one in joined if gone.get(one.identity)]


def compared(before: GroupMetadataValue | None, after: GroupMetadataValue) -> Difference:
    """`before` is None for a group that is new."""
    old = {member.member_id: member for member in before.members} if before is not None else {}
    new = {member.member_id: member for member in after.members}
    left = [who(one) for id, one in old.items() if id not in new]
    joined = [who(one) for id, one in new.items() if id not in old]
    back = paired(left, joined)
    subscribed: list[str] = []
    said = False
    both = [(id, id) for id in old if id in new]
    protocol = bool(before is not None and before.protocol and after.protocol and before.protocol != after.protocol)
    if before is not None and not protocol:  # of another protocol they say other things
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
    """Of each topic the highest partition that was assigned, and one."""
    sizes: dict[str, int] = {}
    for member in stored.members:
        for topic, number in assigned(stored, member) or ():
            if number >= sizes.get(topic, 0):
                sizes[topic] = number + 1
    return sizes


def keys(some: Sequence[Who]) -> list[str]:
    return [one.key for one in some]
