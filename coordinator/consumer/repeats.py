"""A heartbeat of a member that has nothing to say and is told nothing: a repeat of it only restarts the session.

A repeat is decided by two numbers of the group, without the steps of `heartbeat.py`. Any change of the group, also of its own settings, ends that.
"""

from __future__ import annotations

from coordinator.consumer.calls import HeartbeatReply, HeartbeatRequest
from coordinator.consumer.group import ConsumerGroup, is_reconciled
from coordinator.consumer.keeper import Keeper
from coordinator.consumer.member import ConsumerMember


class RepeatedBeat:
    """A heartbeat that was accepted and changed nothing, and the version of the group then."""

    __slots__ = ("_group", "_member", "_timeout_ms", "_version")

    def __init__(self, group: ConsumerGroup, member: ConsumerMember, timeout_ms: int) -> None:
        self._group = group
        self._version = group.version
        self._member = member
        self._timeout_ms = timeout_ms  # of its session

    def try_accept(self, now: int) -> bool:
        """Restart the session, as the usual way would; on False nothing has changed, and the usual way must decide."""
        group = self._group
        if group.version != self._version or now >= group.refresh_at:
            return False
        member = self._member
        deadline = now + self._timeout_ms
        if deadline < member.scheduled_at:
            return False
        member.seen_ms = now
        member.deadline = deadline
        return True


def repeated(keeper: Keeper, request: HeartbeatRequest, reply: HeartbeatReply) -> RepeatedBeat | None:
    """The next heartbeat with the same words as one that was just answered with `reply`. None: it might change something, or be told something.

    A member that was told a newer epoch does not say the same again: with the epoch before, it would be refused. Expressions are resolved again
    when time passes, so a group that has any is left to the usual way.
    """
    group = keeper.groups.get(request.group_id)
    if group is None or reply.error or reply.assignment is not None or reply.epoch != request.epoch or request.epoch <= 0:
        return None
    member = group.members.get(request.member_id)
    if member is None or group.epoch != group.target_epoch or group.expression_counts or group.is_resolving:
        return None
    if not is_reconciled(member.holding, group.target_epoch):
        return None
    return RepeatedBeat(group, member, keeper.session_timeout_ms(member))
