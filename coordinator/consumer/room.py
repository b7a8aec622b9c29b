"""The groups of a shard that speak the consumer protocol, beside its classic ones. Each id belongs to a group of one type.

The shard calls it, one call at a time, and ends the step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from coordinator.calls import JoinRequest, JoinWaiter, Leaver, SyncRequest, SyncWaiter
from coordinator.consumer import classic_members, expressions, views
from coordinator.consumer.absence import retime
from coordinator.consumer.calls import ConsumerGroupView, HeartbeatReply, HeartbeatRequest, Resolution
from coordinator.consumer.changes import EpochChange
from coordinator.consumer.checks import refusal
from coordinator.consumer.group import ConsumerGroup
from coordinator.consumer.heartbeat import heartbeat
from coordinator.consumer.keeper import Keeper
from coordinator.consumer.member import ConsumerMember
from coordinator.consumer.removal import remove_members
from coordinator.consumer.topics import Topic
from coordinator.consumer.upgrade import Upgrade, upgraded
from coordinator.notes import Cause
from coordinator.states import EMPTY
from protocol.errors import ErrorCode

NO_GROUP: Final = HeartbeatReply(ErrorCode.GROUP_ID_NOT_FOUND, "there is no such group of the consumer protocol")


class Room(Keeper):
    """The steps of the groups: requests, and what happened outside."""

    def heartbeat(self, request: HeartbeatRequest, now: int, wall: int) -> HeartbeatReply:
        """Handle a ConsumerGroupHeartbeat; the caller holds the reply."""
        self.begin_step(now, wall)
        reply = self._heartbeat(request)
        self.end_step()
        return reply

    def _heartbeat(self, request: HeartbeatRequest) -> HeartbeatReply:
        refused = refusal(self.config, request)
        if refused is not None:
            return refused
        group = self.groups.get(request.group_id)
        if group is not None:
            return heartbeat(self, group, request)
        if request.epoch != 0:
            return NO_GROUP
        classic = self.classic.get(request.group_id)
        upgrade = Upgrade(ConsumerGroup(request.group_id, self.out.kept), []) if classic is None or classic.state is EMPTY else upgraded(self, classic)
        if upgrade is None:
            return NO_GROUP
        reply = heartbeat(self, upgrade.group, request, upgrade.founding)
        if reply.error:
            upgrade.group.drop()  # it has not become one of the groups
        return reply

    def take_resolutions(self) -> list[Resolution]:
        """The resolutions that heartbeats have asked for since the last call: the driver carries out each with `resolve`."""
        taken, self.resolutions = self.resolutions, []
        return taken

    def resolve(self, resolution: Resolution, now: int, wall: int, may_see: Callable[[str], bool] | None = None) -> None:
        """Resolve the expressions of a group. `may_see`: the topics that the asker may describe; None: all."""
        self.begin_step(now, wall)
        group = self.groups.get(resolution.group_id)
        if group is not None and group.is_resolving:
            expressions.resolve(self, group, may_see)
        self.end_step()

    def change_topics(self, present: Iterable[Topic], deleted: Iterable[str]) -> None:
        """Change the view of topics, which only this shard uses, and tell the groups."""
        self.topics_changed(self.topics.change(present, deleted))

    def topics_changed(self, changed: Collection[str]) -> None:
        """Topics were created, are different, or are gone in the view: groups that read them look at the next heartbeat."""
        for group in self.groups.values():
            if any(group.subscribes_to(name) for name in changed):
                group.refresh_at = 0

    def settings_changed(self, group_id: str) -> None:
        """The group may have other settings and policies of its own, which are looked up when they are needed."""
        group = self.groups.get(group_id)
        if group is not None:
            group.version += 1
            retime(self, group)

    def ask_for_epoch(self, group_id: str, reason: str) -> None:
        """An operator asks for a new assignment of a group, which is computed at the next heartbeat."""
        group = self.groups.get(group_id)
        if group is not None and group.members:
            self.carry_out(group, [EpochChange(group.epoch + 1, group.hash)], Cause.REQUESTED, reason)

    def describe(self, group_id: str) -> ConsumerGroupView | None:
        """None: there is no such group of this type."""
        group = self.groups.get(group_id)
        return None if group is None else views.describe(self, group)

    # Requests of the classic protocol.

    def of_members(self, group_id: str) -> ConsumerGroup | None:
        """The group, if it has members: without, it may become a classic one."""
        group = self.groups.get(group_id)
        return group if group is not None and group.members else None

    def classic_join(self, group: ConsumerGroup, request: JoinRequest, waiter: JoinWaiter) -> None:
        classic_members.join(self, group, request, waiter)

    def classic_sync(self, group: ConsumerGroup, request: SyncRequest, waiter: SyncWaiter) -> int:
        return classic_members.sync(self, group, request, waiter)

    def classic_heartbeat(self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> int:
        return classic_members.heartbeat(self, group, member_id, instance_id, generation)

    def leave(self, group_id: str, leavers: list[Leaver]) -> list[int]:
        """Handle a LeaveGroup: so administrators remove members of this protocol too. At most one new epoch follows for all."""
        group = self.groups.get(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leavers)
        gone: dict[str, ConsumerMember] = {}
        codes: list[int] = []
        for leaver in leavers:
            error, member = find_leaver(group, leaver)
            codes.append(error)
            if member is not None:
                gone[member.id] = member
        if gone:
            cause = Cause.MEMBER_LEFT if any(leaver.member_id for leaver in leavers) else Cause.ADMIN_REMOVED  # by instance id alone
            remove_members(self, group, list(gone.values()), cause)
        return codes


def find_leaver(group: ConsumerGroup, leaver: Leaver) -> tuple[int, ConsumerMember | None]:
    """The member that leaves by its id, its instance id, or both, which must agree; or the error."""
    id = leaver.member_id
    if leaver.instance_id is not None:
        owner = group.static_members.get(leaver.instance_id)
        if owner is not None and id and owner != id:
            return ErrorCode.FENCED_INSTANCE_ID, None
        id = owner or ""
    member = group.members.get(id)
    return (ErrorCode.UNKNOWN_MEMBER_ID, None) if member is None else (ErrorCode.NONE, member)
