"""How much memory the members of groups keep: what their JoinGroups brought, their assignments, and the stored records of their groups.

The count is exact for texts and bytes. A constant stands for the objects around them, so that many small members count too. Protocols that
members of a group share count once.
"""

from __future__ import annotations

from typing import Final

from coordinator.calls import JoinRequest, Protocols
from coordinator.classic.member import Member

MEMBER_METADATA_MAX: Final = "group.member.metadata.max.bytes"
ALL_METADATA_MAX: Final = "groups.metadata.max.bytes"

MEMBER_BYTES: Final = 512  # of a member, or of a member id that was handed out: its object, deadline and places in dicts
PROTOCOL_BYTES: Final = 256  # of a protocol that a member offers: its tuple, two objects and its place in the group's count of protocols
NEW_ID_BYTES: Final = 37  # of a new member id after the client id or instance id: a hyphen and a UUID


class KeptBytes:
    """The bytes that the groups of all shards of a node keep."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


def text_bytes(text: str | None) -> int:
    """The memory of a text's characters; without ASCII only, up to four bytes each."""
    if text is None:
        return 0
    return len(text) if text.isascii() else 4 * len(text)


def protocols_bytes(protocols: Protocols) -> int:
    total = 0
    for name, metadata in protocols:
        total += PROTOCOL_BYTES + text_bytes(name) + len(metadata)
    return total


def ids_bytes(id: str, instance_id: str | None, client_id: str, client_host: str) -> int:
    return MEMBER_BYTES + text_bytes(id) + text_bytes(instance_id) + text_bytes(client_id) + text_bytes(client_host)


def member_bytes(member: Member) -> int:
    """What a member keeps besides its protocols."""
    ids = ids_bytes(member.id, member.instance_id, member.client_id, member.client_host)
    return ids + text_bytes(member.successor_host) + len(member.assignment)


def pending_bytes(id: str) -> int:
    return MEMBER_BYTES + text_bytes(id)


def request_bytes(request: JoinRequest) -> int:
    """What the sender of this JoinGroup keeps as a member."""
    id = request.member_id
    ids = ids_bytes(id, request.instance_id, request.client_id, request.client_host)
    if not id:
        ids += NEW_ID_BYTES + text_bytes(request.client_id if request.instance_id is None else request.instance_id)
    return ids + text_bytes(request.protocol_type) + protocols_bytes(request.protocols)
