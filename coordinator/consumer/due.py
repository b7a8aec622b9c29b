"""What happens at the deadlines of members. While a session or a revocation could not be heard, it gets its time once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.consumer.removal import remove_members

if TYPE_CHECKING:
    from coordinator.consumer.member import ConsumerMember, RevocationTimer
    from coordinator.consumer.room import Room


def session_due(room: Room, member: ConsumerMember) -> None:
    if room.out.deadlines.extends and member.extended_since_ms != member.seen_ms:
        member.extended_since_ms = member.seen_ms
        room.out.deadlines.set(member, room.out.now + room.session_timeout_ms(member))
    else:
        remove_members(room, room.groups[member.group_id], [member])


def revocation_due(room: Room, timer: RevocationTimer) -> None:
    """The member has not given up what it was told to: others wait for it."""
    group = room.groups[timer.group_id]
    member = group.members[timer.member_id]
    if room.out.deadlines.extends and not timer.extended:
        timer.extended = True
        room.out.deadlines.set(timer, room.out.now + timer.timeout_ms)
    elif member.holding.epoch == timer.epoch:
        remove_members(room, group, [member])
