"""The group protocol as a table: state x request -> rule.

A cell is a function or an error code. It applies after `shard.py` has checked identity, generation and protocol, in
Kafka's order. An unknown group has no row: a JoinGroup without a member id or a commit without a generation creates the
group. Other commits then get `Commit.unknown_group_error`, and all other requests of members UNKNOWN_MEMBER_ID.

Policies change no cell. Their rules apply where `coordinator/policies/hooks.py` says, and only to groups that have them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from coordinator.calls import JoinRequest, JoinWaiter, SyncRequest, SyncWaiter
from coordinator.classic.group import Group
from coordinator.classic.join import rejoin, rejoin_if_changed, rejoin_if_leader_or_changed, replace, replace_in_stable
from coordinator.classic.member import Member
from coordinator.classic.rebalance import complete_join_if_last, no_effect, rebalance_or_hand_over
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
    State.COMPLETING: StateRules(rejoin_if_changed,           replace,           sync_when_completing,  NONE,                  rebalance_or_hand_over, REBALANCE_IN_PROGRESS),
    State.STABLE:     StateRules(rejoin_if_leader_or_changed, replace_in_stable, sync_when_stable,      NONE,                  rebalance_or_hand_over, NONE),
}
# fmt: on

# Rows by state number: faster than the dict, which hashes the Enum on each lookup.
ROWS: Final[tuple[StateRules, ...]] = tuple(RULES[state] for state in sorted(RULES))
