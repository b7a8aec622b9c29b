"""A member of a consumer group: who it is and what it reads, what it holds, and its deadlines."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar, Final, NamedTuple

from coordinator.calls import Protocols
from coordinator.consumer.calls import AWAY
from coordinator.deadlines import Timed

# Partitions by topic id, each with its assignment epoch: the target epoch at which the member got it. Never changed in place.
Held = dict[bytes, dict[int, int]]

NOTHING: Final[Held] = {}


class MemberState(IntEnum):
    """How far a member is on its way to its target. The numbers are stored."""

    STABLE = 0
    UNREVOKED = 1  # told to give partitions up, which it has not acknowledged
    UNRELEASED = 2  # waits for partitions that others hold
    UNKNOWN = 127  # written by a newer coordinator

    @classmethod
    def of(cls, number: int) -> MemberState:
        return cls(number) if 0 <= number <= cls.UNRELEASED else cls.UNKNOWN


STABLE: Final = MemberState.STABLE
UNREVOKED: Final = MemberState.UNREVOKED
UNRELEASED: Final = MemberState.UNRELEASED
UNKNOWN: Final = MemberState.UNKNOWN


class ClassicPart(NamedTuple):
    """What a member that speaks the classic protocol has besides."""

    session_timeout_ms: int
    protocols: Protocols


class Profile(NamedTuple):
    """What a member said about itself, as stored: each field as of the last heartbeat that named it. `topics` is sorted."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    expression: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicPart | None = None


class Holding(NamedTuple):
    """A member's epoch and partitions, as stored. `pending`: what it was told to give up and may still own."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Held = NOTHING
    pending: Held = NOTHING

    def moved(self, epoch: int, state: MemberState, assigned: Held, pending: Held) -> Holding:
        """The next holding: each transition also moves the epoch before, even to the same one."""
        return Holding(epoch, self.epoch, state, assigned, pending)


NEW: Final = Holding()


class ConsumerTimed(Timed):
    """A deadline of a consumer group: its `due` gets the groups of the shard that are of this type."""

    __slots__ = ()


class RevocationTimer(ConsumerTimed):
    """The time in which a member must give up partitions: its rebalance timeout."""

    __slots__ = ("epoch", "extended", "group_id", "member_id", "timeout_ms")
    rank: ClassVar[int] = 1  # a session that ends in the same millisecond ends first

    def __init__(self, group_id: str, member_id: str, epoch: int, timeout_ms: int) -> None:
        super().__init__()
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = epoch  # of the member when it was told
        self.timeout_ms = timeout_ms
        self.extended = False  # its deadline was extended (`Deadlines.extends`)

    def due(self, out: Any, groups: Any) -> None:
        from coordinator.consumer.due import revocation_due

        revocation_due(groups, self)


class RejoinTimer(ConsumerTimed):
    """The time in which a member that speaks the classic protocol must send the request that it was told to, or that follows its last one."""

    __slots__ = ("extended", "group_id", "member_id", "timeout_ms")
    rank: ClassVar[int] = 1

    def __init__(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        super().__init__()
        self.group_id = group_id
        self.member_id = member_id
        self.timeout_ms = timeout_ms
        self.extended = False  # its deadline was extended (`Deadlines.extends`)

    def due(self, out: Any, groups: Any) -> None:
        from coordinator.consumer.due import rejoin_due

        rejoin_due(groups, self)


class ConsumerMember(ConsumerTimed):
    """A member. Its deadline is the end of its session."""

    __slots__ = ("extended_since_ms", "group_id", "holding", "id", "join_timer", "profile", "revocation", "seen_ms", "sync_timer")

    def __init__(self, group_id: str, id: str) -> None:
        super().__init__()
        self.group_id = group_id
        self.id = id
        self.profile = Profile()
        self.holding = NEW
        self.revocation: RevocationTimer | None = None  # while it is UNREVOKED, and speaks the consumer protocol
        # Of a member that speaks the classic protocol:
        self.join_timer: RejoinTimer | None = None  # it was told to send a JoinGroup
        self.sync_timer: RejoinTimer | None = None  # it has not sent the SyncGroup after its JoinGroup
        self.seen_ms = 0  # its last heartbeat
        self.extended_since_ms = -1  # `seen_ms` of the last session that was extended (`Deadlines.extends`)

    @property
    def is_away(self) -> bool:
        return self.holding.epoch == AWAY

    def due(self, out: Any, groups: Any) -> None:
        from coordinator.consumer.due import session_due

        session_due(groups, self)
