"""Make the sender of a JoinGroup a new member of the group."""

from __future__ import annotations

from zlib import crc32

from coordinator.calls import JoinRequest, JoinWaiter
from coordinator.classic.group import Group
from coordinator.classic.member import Member
from coordinator.config import NEW_MEMBER_TIMEOUT_MS
from coordinator.notes import grant_note_budget, spend_note_budget
from coordinator.policies.hooks import Wait
from coordinator.states import EMPTY, PREPARING
from coordinator.step_output import StepOutput
from protocol.messages.coordinator_notes import MemberJoin


def new_member(out: StepOutput, group: Group, request: JoinRequest, id: str) -> Member:
    """Create a member for the sender of this JoinGroup, without adding it to the group."""
    return Member(
        group.id,
        id,
        request.instance_id,
        out.intern_text(request.client_id),
        out.intern_text(request.client_host),
        out.intern_number(request.rebalance_timeout_ms),
        out.intern_number(request.session_timeout_ms),
        out.intern_protocols(group, request.protocols),
        seen_ms=out.now,
    )


def wait_of(group: Group, request: JoinRequest | None) -> Wait | None:
    """How long this newcomer, or without a request the forming group, waits for others by its policies; None: not at all."""
    return group.policies.wait(group, request) if group.policies is not None else None


def admit_member(out: StepOutput, group: Group, request: JoinRequest, waiter: JoinWaiter, id: str) -> None:
    """Add the sender of this JoinGroup to the group; its request stays parked."""
    member = new_member(out, group, request, id)
    member.join_waiter = waiter
    if group.state is PREPARING and group.rebalance_is_initial:
        group.new_member_added = True
    if not group.members:
        group.protocol_type = request.protocol_type
    group.add(member)
    grant_note_budget(group)
    if member.instance_id is not None and group.last_record is not None:
        group.static_ids_changed = True
    timeout_ms = NEW_MEMBER_TIMEOUT_MS
    if group.state is EMPTY or group.rebalance_is_initial:
        wait = wait_of(group, None)
        timeout_ms = max(timeout_ms, wait.ms if wait is not None else 0)
    out.deadlines.set(member, out.now + timeout_ms)
    if spend_note_budget(group, out.now):
        note_join(out, group, member, request)


def note_join(out: StepOutput, group: Group, member: Member, request: JoinRequest) -> None:
    out.add_note(
        group,
        MemberJoin(
            member.id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            bool(request.member_id),
            group.leader == member.id,
            subscription_hash(member),
            request.reason,
        ),
    )


def subscription_hash(member: Member) -> int:
    """The CRC-32 of the metadata of the member's first protocol. Readers of notes see by it whether a subscription changed."""
    return crc32(member.protocols[0][1])
