"""Log lines about processes that are refused because another one has their instance id (KIP-345), and about LeaveGroups that name nobody.

A fenced process may repeat its request thousands of times a second, so the lines of each process are counted (line_counts.py).
"""

from __future__ import annotations

from typing import Protocol

from broker.groups.line_counts import LineCounts
from broker.logging.logs import log
from coordinator.shard import Shard


class Groups(Protocol):
    """The groups of one partition."""

    shard: Shard

    @property
    def now(self) -> int: ...


class FencedLines(LineCounts):
    """The fenced requests of one partition's groups."""

    __slots__ = ()

    def add(self, groups: Groups, api: str, group_id: str, member_id: str, instance_id: str | None, peer: str) -> None:
        """A request was answered with FENCED_INSTANCE_ID. `peer`: the address of its sender."""
        count = self.count((api, group_id, instance_id or "", member_id), groups.now)
        if not count:
            return
        group = groups.shard.groups.get(group_id)
        holder = group.members.get(group.static_members.get(instance_id or "", "")) if group is not None else None
        log.warning(
            "process is fenced: another one has its instance id",
            request=api,
            group=group_id,
            instance=instance_id,
            member=member_id,
            host=peer,
            holder=holder.id if holder is not None else "",
            holder_host=(holder.successor_host or holder.client_host).removeprefix("/") if holder is not None else "",
            requests=count,
        )

    def add_nameless_leave(self, groups: Groups, group_id: str, peer: str) -> None:
        """A LeaveGroup named a member by neither id."""
        count = self.count(("LeaveGroup", group_id, "", peer), groups.now)
        if count:
            log.warning("LeaveGroup names no member: member id and instance id are empty", group=group_id, host=peer, requests=count)
