"""The state of a group's policies in memory."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from coordinator.calls import JoinRequest, JoinWaiter
from coordinator.deadlines import Timed
from coordinator.policies.values import GroupPolicies


class Absence(NamedTuple):
    since_ms: int  # monotonic
    since_wall_ms: int  # as stored


class GroupTimer(Timed):
    __slots__ = ("group_id",)
    rank: ClassVar[int] = 1  # after sessions that end in the same millisecond

    def __init__(self, group_id: str) -> None:
        super().__init__()
        self.group_id = group_id


class AwayTimer(GroupTimer):
    """Its deadline: the start of the earliest absence plus `registration.timeout.ms`."""


class NewcomerTimer(GroupTimer):
    """Its deadline is the rebalance that admits the newcomers, or the next check of their connections if that is earlier."""


# (True, instance id), or (False, member id of a dynamic newcomer).
NewcomerKey = tuple[bool, str]


class Newcomer:
    """A client that waits to become a member (`expansion.py`)."""

    __slots__ = ("arrived_ms", "check_ms", "closed_ms", "id", "request", "waiter")

    def __init__(self, id: str, request: JoinRequest, waiter: JoinWaiter, arrived_ms: int, check_ms: int) -> None:
        self.id = id
        self.request = request
        self.waiter = waiter
        self.arrived_ms = arrived_ms
        self.check_ms = check_ms  # when to check whether its connection is closed
        self.closed_ms = -1  # when a check first found the connection closed; -1: not yet


NO_TARGET: Final = 1 << 31  # more members than any group has


class VacatedSeat(NamedTuple):
    """The place that a removed member leaves to a standby (`standby.py`): its assignment, and whether it was the leader."""

    member_id: str
    instance_id: str | None
    from_id: str  # the last member that had the assignment: not `member_id` if that member was still taking the seat over
    from_instance: str | None
    assignment: bytes
    metadata: bytes  # its subscription
    leads: bool
    empty: bool = False  # the removed member was a standby: it leaves no assignment


class TakeOver(GroupTimer):
    """A standby got the seat of a removed member and has not sent its SyncGroup yet. At the deadline the next standby gets the seat."""

    __slots__ = ("extended", "from_id", "from_instance", "member_id", "since_ms")

    def __init__(self, group_id: str, member_id: str, from_id: str, from_instance: str | None, since_ms: int) -> None:
        super().__init__(group_id)
        self.member_id = member_id
        self.from_id = from_id
        self.from_instance = from_instance
        self.since_ms = since_ms  # wall time, as stored
        self.extended = False  # its deadline was extended (`Shard.extends_deadlines`)


class PolicyState:
    """The policies of one group, and their state."""

    __slots__ = (
        "away",
        "away_timer",
        "departed_while_assigning",
        "has_own_target",
        "listed",
        "newcomer_timer",
        "newcomers",
        "policies",
        "removed_away",
        "standbys",
        "stored_away",
        "stored_seats",
        "take_overs",
        "vacated_seats",
    )

    def __init__(self, group_id: str, policies: GroupPolicies) -> None:
        self.policies = policies
        self.listed = frozenset(policies.instance_ids or ())
        self.away: dict[str, Absence] = {}  # member id -> its absence
        self.stored_away: dict[str, int] = {}  # after a load: member id -> begin of its stored absence, until a request or the session's end
        self.removed_away: dict[str, None] = {}  # removed instances whose absence record is not deleted yet
        self.away_timer = AwayTimer(group_id)
        self.newcomers: dict[NewcomerKey, Newcomer] = {}
        self.newcomer_timer = NewcomerTimer(group_id)
        self.has_own_target = False  # target.group.size is set for the group itself, not as a default of the broker
        self.standbys: dict[str, int] = {}  # member id -> when it became a standby (wall time), ascending
        self.take_overs: dict[str, TakeOver] = {}  # by the id of the standby that takes the seat over
        self.vacated_seats: list[VacatedSeat] = []  # seats of members removed in this step
        self.departed_while_assigning = False  # an active member was removed in this step, in COMPLETING
        self.stored_seats: bytes | None = None  # the newest seats record

    def replace(self, policies: GroupPolicies) -> None:
        self.policies = policies
        self.listed = frozenset(policies.instance_ids or ())
