"""The identity check of member id and instance id that most group requests begin with."""

from __future__ import annotations

from coordinator.classic.group import Group
from protocol.errors import ErrorCode


def check_ids(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """Return NONE if the member exists, else UNKNOWN_MEMBER_ID. An instance id of another member is fenced, an unknown one is UNKNOWN_MEMBER_ID."""
    if instance_id is not None:
        owner = group.static_members.get(instance_id)
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if owner != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID
