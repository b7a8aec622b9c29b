"""What the policies of a group keep in memory between two steps."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from coordinator.calls import JoinRequest, JoinWaiter
from coordinator.deadlines import Timed
from coordinator.policies import GroupPolicies


class Absence(NamedTuple):
    since_ms: int  # monotonic
    since_wall_ms: int  # as stored


class AwayTimer(Timed):
    """Its deadline is the moment when the earliest absence has lasted as long as the policy allows."""

    __slots__ = ("group_id",)
    rank: ClassVar[int] = 1  # after sessions that end in the same millisecond

    def __init__(self, group_id: str) -> None:
        super().__init__()
        self.group_id = group_id


# An instance id, or the member id of a dynamic newcomer; True: an instance.
NewcomerKey = tuple[bool, str]


class Newcomer:
    """A client that waits to become a member (`expansion.py`)."""

    __slots__ = ("arrived_ms", "check_ms", "closed_ms", "id", "request", "waiter")

    def __init__(self, id: str, request: JoinRequest, waiter: JoinWaiter, arrived_ms: int, check_ms: int) -> None:
        self.id = id
        self.request = request
        self.waiter = waiter
        self.arrived_ms = arrived_ms
        self.check_ms = check_ms  # when to look whether its connection is closed
        self.closed_ms = -1  # when it was first found closed


class NewcomerTimer(Timed):
    """Its deadline is the rebalance that takes the newcomers, or the next look at their connections if that is earlier."""

    __slots__ = ("group_id",)
    rank: ClassVar[int] = 1

    def __init__(self, group_id: str) -> None:
        super().__init__()
        self.group_id = group_id


NO_TARGET: Final = 1 << 31  # more members than any group has


class Seat(NamedTuple):
    """What a removed member leaves to a standby (`standby.py`)."""

    member_id: str
    instance_id: str | None
    from_id: str  # the last member with the seat; not this member if it was about to take the seat over
    from_instance: str | None
    assignment: bytes
    metadata: bytes  # its subscription
    leads: bool
    empty: bool = False  # the member was a standby


class TakeOver(Timed):
    """A member has the seat of one that is gone, and has not sent its SyncGroup yet. Its deadline is when the next standby gets the seat."""

    __slots__ = ("extended", "from_id", "from_instance", "group_id", "member_id", "since_ms")
    rank: ClassVar[int] = 1

    def __init__(self, group_id: str, member_id: str, from_id: str, from_instance: str | None, since_ms: int) -> None:
        super().__init__()
        self.group_id = group_id
        self.member_id = member_id
        self.from_id = from_id
        self.from_instance = from_instance
        self.since_ms = since_ms  # wall time, as stored
        self.extended = False  # its deadline was extended because the log was slow


class PolicyState:
    """Exists only for a group that has policies."""

    __slots__ = (
        "away",
        "away_timer",
        "departed",
        "departed_while_assigning",
        "listed",
        "newcomer_timer",
        "newcomers",
        "own_target",
        "policies",
        "removed_away",
        "standbys",
        "stored_away",
        "stored_seats",
        "take_overs",
    )

    def __init__(self, group_id: str, policies: GroupPolicies) -> None:
        self.policies = policies
        self.listed = frozenset(policies.instance_ids or ())
        self.away: dict[str, Absence] = {}  # member id -> its absence
        self.stored_away: dict[str, int] = {}  # absent when the coordinator took over, and not heard of yet: since when
        self.removed_away: dict[str, None] = {}  # removed instances whose record of absence is not deleted yet
        self.away_timer = AwayTimer(group_id)
        self.newcomers: dict[NewcomerKey, Newcomer] = {}
        self.newcomer_timer = NewcomerTimer(group_id)
        self.own_target = False  # target.group.size is set for the group itself, not as a default of the broker
        self.standbys: dict[str, int] = {}  # member id -> since when (wall time); the longest-waiting first
        self.take_overs: dict[str, TakeOver] = {}  # by the id of the member that takes the seat
        self.departed: list[Seat] = []  # of members removed in this step
        self.departed_while_assigning = False  # an active member was removed in this step, in COMPLETING
        self.stored_seats: bytes | None = None  # the newest record of the seats

    def replace(self, policies: GroupPolicies) -> None:
        self.policies = policies
        self.listed = frozenset(policies.instance_ids or ())
