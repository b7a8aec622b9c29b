"""Encode JoinGroup and SyncGroup replies cheaply: those of one generation are equal up to the member id or the assignment.

The equal part is encoded once per version and cached on the reply (`encoded_fronts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator import JoinReply, SyncReply
from coordinator.calls import JoinedMember
from protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from protocol.messages.sync_group import SyncGroupResponse

NULL_PROTOCOL_FROM: Final = 7


def join_response(reply: JoinReply, member_id: str, version: int) -> JoinGroupResponse:
    members = [JoinGroupResponseMember(id, instance, metadata) for id, instance, metadata in reply.members]
    return _join_response(reply, member_id, members, version)


def _join_response(reply: JoinReply, member_id: str, members: list[JoinGroupResponseMember], version: int) -> JoinGroupResponse:
    """A missing or empty protocol name is sent as "" before NULL_PROTOCOL_FROM, and as null from that version on."""
    return JoinGroupResponse(
        0,
        reply.error,
        reply.generation,
        reply.protocol_type,
        (reply.protocol_name or None) if version >= NULL_PROTOCOL_FROM else (reply.protocol_name or ""),
        reply.leader,
        reply.skip_assignment,
        member_id,
        members,
    )


def join_front(reply: JoinReply, version: int) -> bytes:
    """The bytes between the correlation id and the member id."""
    front = reply.encoded_fronts.get(version)
    if front is None:
        response = _join_response(reply, "", [], version)
        front = reply.encoded_fronts[version] = _no_tags(response, version) + response.encode(version)[: -_empty_end_bytes(version)]
    return front


def join_end(member_id: str, members: Sequence[JoinedMember], version: int) -> bytes:
    """The bytes from the member id to the end."""
    response_members = [JoinGroupResponseMember(*member) for member in members]
    begin = len(JoinGroupResponse().encode(version)) - _empty_end_bytes(version)
    return JoinGroupResponse(member_id=member_id, members=response_members).encode(version)[begin:]


def _empty_end_bytes(version: int) -> int:
    """The size of an empty member id and an empty list of members."""
    return 3 if version >= JoinGroupResponse.FLEXIBLE_FROM else 6


def sync_response(reply: SyncReply, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(0, reply.error, reply.protocol_type, reply.protocol_name, assignment)


def sync_front(reply: SyncReply, version: int) -> bytes:
    """The bytes between the correlation id and the assignment."""
    front = reply.encoded_fronts.get(version)
    if front is None:
        response = sync_response(reply, b"")
        front = reply.encoded_fronts[version] = _no_tags(response, version) + response.encode(version)[: -_empty_assignment_bytes(version)]
    return front


def sync_end(assignment: bytes, version: int) -> bytes:
    """The bytes from the assignment to the end."""
    begin = len(SyncGroupResponse().encode(version)) - _empty_assignment_bytes(version)
    return SyncGroupResponse(assignment=assignment).encode(version)[begin:]


def _empty_assignment_bytes(version: int) -> int:
    return 2 if version >= SyncGroupResponse.FLEXIBLE_FROM else 4


def _no_tags(response: JoinGroupResponse | SyncGroupResponse, version: int) -> bytes:
    """The end of the reply header: no tagged fields in flexible versions, no bytes in others."""
    return b"\0" if version >= response.FLEXIBLE_FROM else b""
