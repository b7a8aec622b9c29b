"""Replies to JoinGroup and SyncGroup in few steps: all members of a generation are told the same but for one field.

What they have in common is written once for each version and kept on the reply (`written`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator import JoinReply, SyncReply
from coordinator.calls import JoinedMember
from protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from protocol.messages.sync_group import SyncGroupResponse

JOIN_NULL_PROTOCOL: Final = 7


def join_response(reply: JoinReply, member_id: str, version: int) -> JoinGroupResponse:
    told = [JoinGroupResponseMember(id, instance, metadata) for id, instance, metadata in reply.members]
    return _join_response(reply, member_id, told, version)


def _join_response(reply: JoinReply, member_id: str, told: list[JoinGroupResponseMember], version: int) -> JoinGroupResponse:
    """No protocol is an empty name where there is no null, and null from then on, even for a protocol of that name."""
    return JoinGroupResponse(
        0,
        reply.error,
        reply.generation,
        reply.protocol_type,
        (reply.protocol_name or None) if version >= JOIN_NULL_PROTOCOL else (reply.protocol_name or ""),
        reply.leader,
        reply.skip_assignment,
        member_id,
        told,
    )


def join_front(reply: JoinReply, version: int) -> bytes:
    """From behind the correlation id to the member id, which comes next."""
    front = reply.written.get(version)
    if front is None:
        response = _join_response(reply, "", [], version)
        front = reply.written[version] = _no_tags(response, version) + response.encode(version)[: -_nobody(version)]
    return front


def join_end(member_id: str, members: Sequence[JoinedMember], version: int) -> bytes:
    """The member id and what is behind it."""
    told = [JoinGroupResponseMember(*one) for one in members]
    begin = len(JoinGroupResponse().encode(version)) - _nobody(version)
    return JoinGroupResponse(member_id=member_id, members=told).encode(version)[begin:]


def _nobody(version: int) -> int:
    """How many bytes an empty member id and no members take."""
    return 3 if version >= JoinGroupResponse.FLEXIBLE_FROM else 6


def sync_response(reply: SyncReply, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(0, reply.error, reply.protocol_type, reply.protocol_name, assignment)


def sync_front(reply: SyncReply, version: int) -> bytes:
    """From behind the correlation id to the assignment, which comes next."""
    front = reply.written.get(version)
    if front is None:
        response = sync_response(reply, b"")
        front = reply.written[version] = _no_tags(response, version) + response.encode(version)[: -_nothing(version)]
    return front


def sync_end(assignment: bytes, version: int) -> bytes:
    """The assignment and what is behind it."""
    begin = len(SyncGroupResponse().encode(version)) - _nothing(version)
    return SyncGroupResponse(assignment=assignment).encode(version)[begin:]


def _nothing(version: int) -> int:
    """How many bytes an empty assignment takes."""
    return 2 if version >= SyncGroupResponse.FLEXIBLE_FROM else 4


def _no_tags(response: JoinGroupResponse | SyncGroupResponse, version: int) -> bytes:
    """What ends the header of a reply."""
    return b"\0" if version >= response.FLEXIBLE_FROM else b""
