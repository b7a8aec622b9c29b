"""The group protocol as a table: state x request -> rule.

A cell is a function or an error code. It applies after `shard.py` has checked identity, generation and protocol, in
Kafka's order. An unknown group has no row: a JoinGroup without a member id or a commit without a generation creates the
group. Other commits then get `Commit.unknown_group_error`, and all other requests of members UNKNOWN_MEMBER_ID.

Policies (`policies.py`) change no cell. Their rules apply before a cell or at a deadline, and only to groups that have them:

    registration.timeout.ms   a session that ends, any request of an away member     registration.py
    expansion.timeout.ms      JoinGroup of a newcomer in COMPLETING or STABLE        expansion.py
    instance.ids, roster.*    JoinGroup of a newcomer, a rebalance that ends EMPTY   roster.py
    target.group.size         JoinGroup of a newcomer or standby, the end of a
                              join phase, a member removed in STABLE                 standby.py
    subscription.change       static_return in STABLE                                subscription_change.py
    pending.release           JoinGroup without a member id                          pending_release.py
    topics.watch              a change of a topic's partitions                       topics_watch.py
    rebalance.request         an operator sets it                                    rebalance_request.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from coordinator.calls import JoinRequest, JoinWaiter, SyncRequest, SyncWaiter
from coordinator.classic.group import Group
from coordinator.classic.join import rejoin, rejoin_if_changed, rejoin_if_leader_or_changed, replace, replace_in_stable
from coordinator.classic.member import Member
from coordinator.classic.rebalance import begin_rebalance, complete_join_if_last, no_effect
from coordinator.classic.sync import sync_when_completing, sync_when_stable
from coordinator.notes import Cause
from coordinator.states import State
from coordinator.step_output import StepOutput
from protocol.errors import ErrorCode

UNKNOWN_MEMBER_ID: Final = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCE_IN_PROGRESS: Final = ErrorCode.REBALANCE_IN_PROGRESS
NONE: Final = ErrorCode.NONE


class StateRules(NamedTuple):
    """The rules of one state. JoinGroup of a new member has no cell: in every state it is parked, and begins a rebalance if none runs.

    rejoin         JoinGroup of a known member
    static_return  JoinGroup of a static member without its member id
    sync           SyncGroup
    heartbeat      Heartbeat of a known member; restarts its session
    after_leave    after LeaveGroup removed a member
    commit         OffsetCommit; restarts the session if accepted
    """

    rejoin: Callable[[StepOutput, Group, Member, JoinRequest, JoinWaiter], None] | ErrorCode
    static_return: Callable[[StepOutput, Group, Member, JoinRequest, JoinWaiter, str], None] | ErrorCode
    sync: Callable[[StepOutput, Group, Member, SyncRequest, SyncWaiter], None] | ErrorCode
    heartbeat: ErrorCode
    after_leave: Callable[[StepOutput, Group, Cause, str | None, str | None], None]
    commit: ErrorCode


# fmt: off
RULES: Final[dict[State, StateRules]] = {
    #                            rejoin                       static_return      sync                   heartbeat              after_leave            commit
    State.EMPTY:      StateRules(UNKNOWN_MEMBER_ID,           UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID,     UNKNOWN_MEMBER_ID,     no_effect,            NONE),
    State.PREPARING:  StateRules(rejoin,                      replace,           REBALANCE_IN_PROGRESS, REBALANCE_IN_PROGRESS, complete_join_if_last, NONE),
    State.COMPLETING: StateRules(rejoin_if_changed,           replace,           sync_when_completing,  NONE,                  begin_rebalance,       REBALANCE_IN_PROGRESS),
    State.STABLE:     StateRules(rejoin_if_leader_or_changed, replace_in_stable, sync_when_stable,      NONE,                  begin_rebalance,       NONE),
}
# fmt: on

# Rows by state number: faster than the dict, which hashes the Enum on each lookup.
ROWS: Final[tuple[StateRules, ...]] = tuple(RULES[state] for state in sorted(RULES))
