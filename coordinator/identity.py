"""Who may speak for a member: by its id, and for a static member by the instance id that belongs to it."""

from __future__ import annotations

from coordinator.group import Group
from protocol.errors import ErrorCode


def refusal(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """NONE when they name a member. An instance id that is not given never fences; one that is must be this member's."""
    if instance_id is not None:
        owner = group.statics.get(instance_id)
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if owner != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID
