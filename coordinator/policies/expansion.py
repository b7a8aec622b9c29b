"""Policy expansion.timeout.ms: newcomers wait with their JoinGroup parked, and one rebalance admits all of them.

They wait while the group is COMPLETING or STABLE, and its members keep consuming. The rebalance begins when the first newcomer has
waited for the policy's timeout, when any has waited for its own rebalance timeout, or with any other rebalance. Until then newcomers
are not members, but count towards group.max.size. Their connections are checked once a second: a newcomer whose connection is closed
is dropped one session timeout later. Nothing is stored: after a failover their clients join again, and the wait restarts.
"""

from __future__ import annotations

from coordinator.calls import JoinRequest, JoinWaiter
from coordinator.classic.group import Group
from coordinator.classic.kept import request_bytes
from coordinator.classic.newcomer import admit_member
from coordinator.policies.pending_release import CHECK_MS
from coordinator.policies.roster import waits_for_roster
from coordinator.policies.state import Newcomer, NewcomerKey, PolicyState
from coordinator.states import COMPLETING, STABLE
from coordinator.step_output import StepOutput
from protocol.errors import ErrorCode


def must_wait(group: Group, instance: str | None) -> bool:
    """Whether a newcomer waits for others before a rebalance admits it."""
    policy = group.policy_state
    if policy is None or (group.state is not STABLE and group.state is not COMPLETING):
        return False
    return policy.policies.expansion_timeout_ms is not None or waits_for_roster(group, instance)


def is_waiting_newcomer(group: Group, id: str, instance: str | None) -> bool:
    """Whether a waiting newcomer has this member id."""
    policy = group.policy_state
    newcomer = policy.newcomers.get(_newcomer_key(id, instance)) if policy is not None else None
    return newcomer is not None and newcomer.id == id


def count_newcomers(group: Group) -> int:
    return len(group.policy_state.newcomers) if group.policy_state is not None else 0


def count_other_newcomers(group: Group, request: JoinRequest) -> int:
    """The number of waiting newcomers, without the sender of this request."""
    policy = group.policy_state
    if policy is None:
        return 0
    return len(policy.newcomers) - (_newcomer_key(request.member_id, request.instance_id) in policy.newcomers)


def park_newcomer(out: StepOutput, group: Group, request: JoinRequest, waiter: JoinWaiter, id: str) -> None:
    """Park a newcomer's JoinGroup and refuse its previous one; the wait still counts from the arrival of its first JoinGroup."""
    policy = group.policy_state
    assert policy is not None
    key = _newcomer_key(id, request.instance_id)
    previous = policy.newcomers.get(key)
    if previous is not None:
        error = ErrorCode.UNKNOWN_MEMBER_ID if request.instance_id is None else ErrorCode.FENCED_INSTANCE_ID
        out.refuse_join(previous.waiter, "" if request.instance_id is None else previous.id, error)
        _forget(group, policy, key)
    arrived_ms = out.now if previous is None else previous.arrived_ms
    group.keep(request_bytes(request))
    policy.newcomers[key] = Newcomer(id, request, waiter, arrived_ms, out.now + CHECK_MS)
    set_newcomer_timer(out, group)


def admit_waiting(out: StepOutput, group: Group) -> None:
    """Called when a rebalance begins: all newcomers become members; those whose protocols no longer fit are refused."""
    policy = group.policy_state
    if policy is None or not policy.newcomers:
        return
    for newcomer in policy.newcomers.values():
        request = newcomer.request
        if group.accepts(request.protocol_type, request.protocols):
            admit_member(out, group, request, newcomer.waiter, newcomer.id)
        else:
            out.refuse_join(newcomer.waiter, newcomer.id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    for key in list(policy.newcomers):
        _forget(group, policy, key)
    set_newcomer_timer(out, group)


def refuse_unlisted_newcomers(out: StepOutput, group: Group) -> None:
    """With roster.strict, refuse the newcomers that instance.ids does not list."""
    policy = group.policy_state
    if policy is None or not policy.policies.roster_strict:
        return
    for key, newcomer in list(policy.newcomers.items()):
        if newcomer.request.instance_id not in policy.listed:
            out.refuse_join(newcomer.waiter, "", ErrorCode.GROUP_AUTHORIZATION_FAILED)
            _forget(group, policy, key)
    set_newcomer_timer(out, group)


def drop_newcomer(out: StepOutput, group: Group, id: str, instance: str | None) -> bool:
    """Drop a newcomer that leaves, or whose instance an administrator removes. False: no such newcomer waits."""
    policy = group.policy_state
    newcomer = policy.newcomers.get(_newcomer_key(id, instance)) if policy is not None else None
    if policy is None or newcomer is None or (id and newcomer.id != id):
        return False
    out.refuse_join(newcomer.waiter, "", ErrorCode.UNKNOWN_MEMBER_ID)
    _forget(group, policy, _newcomer_key(id, instance))
    set_newcomer_timer(out, group)
    return True


def check_newcomers(out: StepOutput, group: Group) -> bool:
    """Called at the deadline of the newcomers' timer: return True if the rebalance is due.

    Otherwise drop newcomers whose connection was closed a session timeout ago.
    """
    policy = group.policy_state
    assert policy is not None
    if policy.newcomers and expansion_deadline_ms(group) <= out.now:
        return True
    for key, newcomer in list(policy.newcomers.items()):
        if newcomer.check_ms > out.now:
            continue
        connection = newcomer.request.connection
        if newcomer.closed_ms < 0 and connection is not None and connection.closed:
            newcomer.closed_ms = out.now
        if newcomer.closed_ms < 0:
            newcomer.check_ms = out.now + CHECK_MS
        elif out.now < newcomer.closed_ms + newcomer.request.session_timeout_ms:
            newcomer.check_ms = newcomer.closed_ms + newcomer.request.session_timeout_ms
        else:
            out.refuse_join(newcomer.waiter, "", ErrorCode.UNKNOWN_MEMBER_ID)
            _forget(group, policy, key)
    set_newcomer_timer(out, group)
    return False


def expansion_deadline_ms(group: Group) -> int:
    """When the rebalance that admits the newcomers is due. Called only while a newcomer waits."""
    policy = group.policy_state
    assert policy is not None
    newcomers = policy.newcomers.values()
    deadline_ms = min([newcomer.arrived_ms + newcomer.request.rebalance_timeout_ms for newcomer in newcomers])
    timeout_ms = policy.policies.expansion_timeout_ms
    roster_ms = policy.policies.roster_timeout_ms
    if timeout_ms is None and roster_ms is None:  # the policies were unset: due at once
        return 0
    if timeout_ms is not None:
        deadline_ms = min(deadline_ms, min([newcomer.arrived_ms for newcomer in newcomers]) + timeout_ms)
    if roster_ms is not None:
        arrivals = [newcomer.arrived_ms for newcomer in newcomers if newcomer.request.instance_id in policy.listed]
        deadline_ms = min(deadline_ms, min(arrivals, default=deadline_ms) + roster_ms)
    return deadline_ms


def set_newcomer_timer(out: StepOutput, group: Group) -> None:
    policy = group.policy_state
    assert policy is not None
    if policy.newcomers:
        next_check = min([newcomer.check_ms for newcomer in policy.newcomers.values()])
        out.deadlines.set(policy.newcomer_timer, min(next_check, expansion_deadline_ms(group)))
    else:
        out.deadlines.remove(policy.newcomer_timer)


def _newcomer_key(id: str, instance: str | None) -> NewcomerKey:
    return (True, instance) if instance is not None else (False, id)


def _forget(group: Group, policy: PolicyState, key: NewcomerKey) -> None:
    group.keep(-request_bytes(policy.newcomers.pop(key).request))
