"""Compare two consecutive records of a group: members that joined, left, or returned under another member id."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from history.consumer import assigned, topics_of
from protocol.messages.consumer_offsets import GroupMetadataValue, MemberMetadata


class MemberIdentity(NamedTuple):
    """The ids of one member. `key` is its instance id, or else its member id."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str

    @property
    def key(self) -> str:
        return self.instance_id if self.instance_id is not None else self.member_id

    @property
    def process_key(self) -> tuple[str, ...]:
        """The values that do not change when a restarted process returns under another member id."""
        return (self.instance_id,) if self.instance_id is not None else (self.client_id, self.host)


class Difference(NamedTuple):
    """New and removed members, by member id; `returned` pairs the removed and new members that are one restarted process."""

    joined: list[MemberIdentity]
    left: list[MemberIdentity]
    returned: list[tuple[MemberIdentity, MemberIdentity]]
    protocol_changed: bool  # the selected protocol changed
    subscribed: list[str]  # remaining or returned members that subscribe to other topics; if topics cannot be read: with other metadata
    metadata_changed: bool  # metadata of a remaining member changed, perhaps only its owned partitions
    grown: dict[str, tuple[int, int]]  # topics with more partitions than before: old and new number


def identity_of(member: MemberMetadata) -> MemberIdentity:
    return MemberIdentity(member.member_id, member.group_instance_id, member.client_id, member.client_host)


def pair_returned(left: Iterable[MemberIdentity], joined: Iterable[MemberIdentity]) -> list[tuple[MemberIdentity, MemberIdentity]]:
    """Pair each new member with a removed member of the same identity; among several, with the first one that has no pair yet."""
    removed: dict[tuple[str, ...], deque[MemberIdentity]] = {}
    for member in left:
        removed.setdefault(member.process_key, deque()).append(member)
    return [(removed[member.process_key].popleft(), member) for member in joined if removed.get(member.process_key)]


def compare(before: GroupMetadataValue | None, after: GroupMetadataValue) -> Difference:
    """Compare two records; `before` is None for a new group."""
    old = {member.member_id: member for member in before.members} if before is not None else {}
    new = {member.member_id: member for member in after.members}
    left = [identity_of(member) for id, member in old.items() if id not in new]
    joined = [identity_of(member) for id, member in new.items() if id not in old]
    back = pair_returned(left, joined)
    subscribed: list[str] = []
    metadata_changed = False
    remaining = [(id, id) for id in old if id in new]
    protocol = bool(before is not None and before.protocol and after.protocol and before.protocol != after.protocol)
    if before is not None and not protocol:  # metadata of different protocols cannot be compared
        for old_id, new_id in [*remaining, *((removed.member_id, new.member_id) for removed, new in back)]:
            if old[old_id].subscription == new[new_id].subscription:
                continue
            metadata_changed = metadata_changed or old_id == new_id
            topics = topics_of(before, old[old_id]), topics_of(after, new[new_id])
            if None in topics or topics[0] != topics[1]:
                subscribed.append(identity_of(new[new_id]).key)
    return Difference(joined, left, back, protocol, subscribed, metadata_changed, _grown(before, after))


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


def keys(members: Sequence[MemberIdentity]) -> list[str]:
    return [member.key for member in members]
