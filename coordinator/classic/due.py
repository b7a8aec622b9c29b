"""What happens at the deadlines of a group's phases, its members' sessions, unused member ids and waiting newcomers."""

from __future__ import annotations

from coordinator.classic.group import Group
from coordinator.classic.member import CHECK_MS, Member, PendingMember
from coordinator.classic.rebalance import begin_rebalance, end_join_phase, end_sync_phase, expire_pending, expire_session, settle
from coordinator.classic.waiting import drop_closed_newcomers, is_due
from coordinator.notes import Cause
from coordinator.states import PREPARING
from coordinator.step_output import StepOutput


def phase_due(out: StepOutput, group: Group) -> None:
    if group.state is PREPARING:
        end_join_phase(out, group)
    elif out.deadlines.extends and group.extended_since_ms != group.phase_start_ms:
        group.extended_since_ms = group.phase_start_ms
        out.deadlines.set(group, out.now + group.rebalance_timeout_ms)
    else:
        end_sync_phase(out, group)


def session_due(out: StepOutput, group: Group, member: Member) -> None:
    if out.deadlines.extends and member.extended_since_ms != member.seen_ms:
        member.extended_since_ms = member.seen_ms
        out.restart_session(member)
    else:
        expire_session(out, group, member)


def pending_due(out: StepOutput, group: Group, pending: PendingMember) -> None:
    connection = pending.connection
    if connection is not None and not connection.closed and out.now < pending.expires_ms:
        out.deadlines.set(pending, min(out.now + CHECK_MS, pending.expires_ms))
    elif out.deadlines.extends and not pending.extended:  # the reply with the id may still be held
        pending.extended = True
        out.deadlines.set(pending, out.now + pending.session_timeout_ms)
    else:
        expire_pending(out, group, pending.id)


def newcomers_due(out: StepOutput, group: Group) -> None:
    if is_due(out, group):
        begin_rebalance(out, group, Cause.EXPANSION)
        return
    drop_closed_newcomers(out, group)
    if not group.newcomers:
        settle(out, group)  # the seat that a newcomer waited for goes to a standby
