"""Policy expansion.timeout.ms: newcomers wait with their JoinGroup parked, and one rebalance takes all of them.

They wait while the group is COMPLETING or STABLE and goes on working. The rebalance comes when the first of them has waited as
long as the policy says, when any has waited its own rebalance timeout, or with any other rebalance. Until then they are no
members, but count towards group.max.size. Their connections are looked at once a second: a newcomer whose connection is closed is
forgotten one session later. Nothing is stored: after a failover their clients ask again, and the wait begins anew.
"""

from __future__ import annotations

from coordinator.calls import JoinRequest, JoinWaiter
from coordinator.group import Group
from coordinator.newcomer import admit
from coordinator.outcome import Outcome
from coordinator.pending_release import CHECK_MS
from coordinator.policy_state import Newcomer, NewcomerKey
from coordinator.roster import waits_for_roster
from coordinator.states import COMPLETING, STABLE
from protocol.errors import ErrorCode


def waits_for_others(group: Group, instance: str | None) -> bool:
    """Whether a newcomer that arrives now has to wait."""
    policy = group.policy
    if policy is None or (group.state is not STABLE and group.state is not COMPLETING):
        return False
    return policy.policies.expansion_timeout_ms is not None or waits_for_roster(group, instance)


def is_waiting(group: Group, id: str, instance: str | None) -> bool:
    """Whether this member id was given to a newcomer that waits."""
    policy = group.policy
    newcomer = policy.newcomers.get(_key(id, instance)) if policy is not None else None
    return newcomer is not None and newcomer.id == id


def waiting_newcomers(group: Group, request: JoinRequest) -> int:
    """How many newcomers wait besides the sender of this request."""
    policy = group.policy
    if policy is None:
        return 0
    return len(policy.newcomers) - (_key(request.member_id, request.instance_id) in policy.newcomers)


def park_newcomer(out: Outcome, group: Group, request: JoinRequest, waiter: JoinWaiter, id: str) -> None:
    """Add the newcomer, or replace its parked JoinGroup, likely of a lost connection, and keep its clock."""
    policy = group.policy
    assert policy is not None
    key = _key(id, request.instance_id)
    before = policy.newcomers.get(key)
    if before is not None:
        error = ErrorCode.UNKNOWN_MEMBER_ID if request.instance_id is None else ErrorCode.FENCED_INSTANCE_ID
        out.refuse_join(before.waiter, "" if request.instance_id is None else before.id, error)
    newcomer = Newcomer(id, request, waiter, out.now if before is None else before.arrived_ms, out.now + CHECK_MS)
    policy.newcomers[key] = newcomer
    set_newcomer_timer(out, group)


def admit_waiting(out: Outcome, group: Group) -> None:
    """A rebalance begins: all newcomers become members, except those whose protocols no longer fit."""
    policy = group.policy
    if policy is None or not policy.newcomers:
        return
    for newcomer in policy.newcomers.values():
        request = newcomer.request
        if group.accepts(request.protocol_type, request.protocols):
            admit(out, group, request, newcomer.waiter, newcomer.id)
        else:
            out.refuse_join(newcomer.waiter, newcomer.id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    policy.newcomers.clear()
    set_newcomer_timer(out, group)


def refuse_unlisted(out: Outcome, group: Group) -> None:
    """Refuse the newcomers that a strict list excludes."""
    policy = group.policy
    if policy is None or not policy.policies.roster_strict:
        return
    for key, newcomer in list(policy.newcomers.items()):
        if newcomer.request.instance_id not in policy.listed:
            out.refuse_join(newcomer.waiter, "", ErrorCode.GROUP_AUTHORIZATION_FAILED)
            del policy.newcomers[key]
    set_newcomer_timer(out, group)


def drop_newcomer(out: Outcome, group: Group, id: str, instance: str | None) -> bool:
    """A newcomer leaves before it is a member, or an administrator removes its instance. False: there is none."""
    policy = group.policy
    newcomer = policy.newcomers.get(_key(id, instance)) if policy is not None else None
    if policy is None or newcomer is None or (id and newcomer.id != id):
        return False
    out.refuse_join(newcomer.waiter, "", ErrorCode.UNKNOWN_MEMBER_ID)
    del policy.newcomers[_key(id, instance)]
    set_newcomer_timer(out, group)
    return True


def expansion_is_due(out: Outcome, group: Group) -> bool:
    """Called at the deadline of the newcomers' timer: whether the rebalance begins now. Forgets newcomers that are gone."""
    policy = group.policy
    assert policy is not None
    if policy.newcomers and expansion_at(group) <= out.now:
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
            del policy.newcomers[key]
    set_newcomer_timer(out, group)
    return False


def expansion_at(group: Group) -> int:
    """The moment of the rebalance that takes the newcomers, of which there must be one."""
    policy = group.policy
    assert policy is not None
    newcomers = policy.newcomers.values()
    own = min([newcomer.arrived_ms + newcomer.request.rebalance_timeout_ms for newcomer in newcomers])
    timeout_ms = policy.policies.expansion_timeout_ms
    roster_ms = policy.policies.roster_timeout_ms
    if timeout_ms is None and roster_ms is None:  # the policy was unset
        return 0
    if timeout_ms is not None:
        own = min(own, min([newcomer.arrived_ms for newcomer in newcomers]) + timeout_ms)
    if roster_ms is not None:
        arrivals = [newcomer.arrived_ms for newcomer in newcomers if newcomer.request.instance_id in policy.listed]
        own = min(own, min(arrivals, default=own) + roster_ms)
    return own


def set_newcomer_timer(out: Outcome, group: Group) -> None:
    policy = group.policy
    assert policy is not None
    if policy.newcomers:
        next_check = min([newcomer.check_ms for newcomer in policy.newcomers.values()])
        out.deadlines.set(policy.newcomer_timer, min(next_check, expansion_at(group)))
    else:
        out.deadlines.remove(policy.newcomer_timer)


def _key(id: str, instance: str | None) -> NewcomerKey:
    return (True, instance) if instance is not None else (False, id)
