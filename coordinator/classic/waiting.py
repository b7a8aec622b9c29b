"""Newcomers that wait with their JoinGroup parked, until one rebalance admits all of them.

A policy decides that they wait, and how long. The members keep consuming meanwhile. The rebalance begins when the wait of any newcomer ends,
or its own rebalance timeout, or with any other rebalance. Until then newcomers are not members, but count towards group.max.size. Their
connections are checked once a second: a newcomer whose connection is closed is dropped one session timeout later. Nothing is stored: after a
failover their clients join again, and the wait restarts.
"""

from __future__ import annotations

from coordinator.calls import JoinRequest, JoinWaiter
from coordinator.classic.group import Group
from coordinator.classic.kept import request_bytes
from coordinator.classic.member import CHECK_MS, Newcomer, NewcomerKey, NewcomerTimer
from coordinator.classic.newcomer import admit_member, wait_of
from coordinator.step_output import StepOutput
from protocol.errors import ErrorCode


def is_waiting(group: Group, id: str, instance: str | None) -> bool:
    """Whether a waiting newcomer has this member id."""
    newcomer = group.newcomers.get(_key(id, instance))
    return newcomer is not None and newcomer.id == id


def count_other_newcomers(group: Group, request: JoinRequest) -> int:
    """The number of waiting newcomers, without the sender of this request."""
    return len(group.newcomers) - (_key(request.member_id, request.instance_id) in group.newcomers)


def park_newcomer(out: StepOutput, group: Group, request: JoinRequest, waiter: JoinWaiter, id: str) -> None:
    """Park a newcomer's JoinGroup and refuse its previous one; the wait still counts from the arrival of its first JoinGroup."""
    key = _key(id, request.instance_id)
    previous = group.newcomers.get(key)
    if previous is not None:
        error = ErrorCode.UNKNOWN_MEMBER_ID if request.instance_id is None else ErrorCode.FENCED_INSTANCE_ID
        out.refuse_join(previous.waiter, "" if request.instance_id is None else previous.id, error)
        _forget(group, key)
    arrived_ms = out.now if previous is None else previous.arrived_ms
    group.keep(request_bytes(request))
    group.newcomers[key] = Newcomer(id, request, waiter, arrived_ms, _due_ms(group, request, arrived_ms), out.now + CHECK_MS)
    set_newcomer_timer(out, group)


def admit_newcomers(out: StepOutput, group: Group) -> None:
    """Called when a rebalance begins: all newcomers become members; those whose protocols no longer fit are refused."""
    for newcomer in group.newcomers.values():
        request = newcomer.request
        if group.accepts(request.protocol_type, request.protocols):
            admit_member(out, group, request, newcomer.waiter, newcomer.id)
        else:
            out.refuse_join(newcomer.waiter, newcomer.id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    for key in list(group.newcomers):
        _forget(group, key)
    set_newcomer_timer(out, group)


def refuse_newcomers(out: StepOutput, group: Group, keys: list[NewcomerKey], error: int) -> None:
    for key in keys:
        out.refuse_join(group.newcomers[key].waiter, "", error)
        _forget(group, key)
    set_newcomer_timer(out, group)


def drop_newcomer(out: StepOutput, group: Group, id: str, instance: str | None) -> bool:
    """Drop a newcomer that leaves, or whose instance an administrator removes. False: no such newcomer waits."""
    key = _key(id, instance)
    newcomer = group.newcomers.get(key)
    if newcomer is None or (id and newcomer.id != id):
        return False
    refuse_newcomers(out, group, [key], ErrorCode.UNKNOWN_MEMBER_ID)
    return True


def drop_closed_newcomers(out: StepOutput, group: Group) -> None:
    """Drop newcomers whose connection was closed a session timeout ago."""
    for key, newcomer in list(group.newcomers.items()):
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
            _forget(group, key)
    set_newcomer_timer(out, group)


def set_waits(out: StepOutput, group: Group) -> None:
    """Called when the policies have changed."""
    for newcomer in group.newcomers.values():
        newcomer.due_ms = _due_ms(group, newcomer.request, newcomer.arrived_ms)
    set_newcomer_timer(out, group)


def _due_ms(group: Group, request: JoinRequest, arrived_ms: int) -> int:
    """When the rebalance that admits the newcomer is due: at once if no policy makes it wait any more."""
    wait = wait_of(group, request)
    return 0 if wait is None else arrived_ms + min(wait.ms, request.rebalance_timeout_ms)


def is_due(out: StepOutput, group: Group) -> bool:
    """Whether the rebalance that admits the newcomers is due."""
    return bool(group.newcomers) and min([newcomer.due_ms for newcomer in group.newcomers.values()]) <= out.now


def set_newcomer_timer(out: StepOutput, group: Group) -> None:
    timer = group.newcomer_timer
    if group.newcomers:
        if timer is None:
            timer = group.newcomer_timer = NewcomerTimer(group.id)
        out.deadlines.set(timer, min([min(newcomer.check_ms, newcomer.due_ms) for newcomer in group.newcomers.values()]))
    elif timer is not None:
        out.deadlines.remove(timer)


def _key(id: str, instance: str | None) -> NewcomerKey:
    return (True, instance) if instance is not None else (False, id)


def _forget(group: Group, key: NewcomerKey) -> None:
    group.keep(-request_bytes(group.newcomers.pop(key).request))
