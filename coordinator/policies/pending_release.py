"""Policy pending.release: a handed-out member id that no JoinGroup has used expires when its connection closes.

Some clients get an id and reconnect without using it (librdkafka 5569): without the policy, a rebalance waits a full session timeout
for that id. The connection is checked once a second; a new request for an id on the same connection releases the earlier ids at once.
"""

from __future__ import annotations

from typing import Final

from coordinator.calls import JoinRequest
from coordinator.classic.group import Group
from coordinator.classic.member import PendingMember
from coordinator.step_output import StepOutput

CHECK_MS: Final = 1_000


def watch_connection(out: StepOutput, group: Group, pending: PendingMember, request: JoinRequest) -> None:
    """If the policy is set: check the id's connection once a second until `pending.deadline`, which the caller has set."""
    policy = group.policy_state
    if policy is not None and policy.policies.pending_release and request.connection is not None:
        pending.connection = request.connection
        pending.expires_ms = pending.deadline
        out.deadlines.set(pending, min(out.now + CHECK_MS, pending.expires_ms))


def ids_of_connection(group: Group, request: JoinRequest) -> list[str]:
    """The unused ids handed out by earlier requests on this request's connection."""
    if request.connection is None or group.policy_state is None:
        return []
    return [pending.id for pending in group.pending_members.values() if pending.connection is request.connection]


def keeps_pending(out: StepOutput, pending: PendingMember) -> bool:
    """Called at the pending id's deadline: if its connection is open and its time is not over, set the next check and return True."""
    connection = pending.connection
    if connection is None or connection.closed or out.now >= pending.expires_ms:
        return False
    out.deadlines.set(pending, min(out.now + CHECK_MS, pending.expires_ms))
    return True
