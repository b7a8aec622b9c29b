"""The entries of a group's history: rebalances, other events, and gaps."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from coordinator.notes import Cause, Removal, Replacement, ShardChange, StandbyStep
from coordinator.states import State
from history.causes import AnyCause
from history.conclusion import Inferred
from history.note_records import GroupRecord
from protocol.messages.coordinator_notes import CommitRefused

UNKNOWN: Final = -1


class MemberJoined(NamedTuple):
    """A JoinGroup of a member. `was_member`: the member was already in the group; None: unknown."""

    at_ms: int
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_ms: int
    was_member: bool | None
    reason: str | None


class MemberRemoved(NamedTuple):
    at_ms: int
    member_id: str
    instance_id: str | None
    cause: Removal | None
    since_heartbeat_ms: int
    session_ms: int
    reason: str | None


class StaticReturned(NamedTuple):
    """A static member returned under a new member id: its process was restarted."""

    at_ms: int
    instance_id: str
    old_id: str
    new_id: str
    client_id: str
    host: str
    since_heartbeat_ms: int
    outcome: Replacement | None


class CommitsRefused(NamedTuple):
    """Refused commits of one member within a few seconds."""

    at_ms: int
    error_code: int
    member_id: str
    instance_id: str | None
    times: int
    since_ms: int
    # Of consumer groups: the epoch of the last one, and the member's at that time
    sent_epoch: int = -1
    member_epoch: int = -1

    @classmethod
    def noted(cls, at_ms: int, body: CommitRefused) -> CommitsRefused:
        return cls(at_ms, body.error_code, body.member_id, body.instance_id, body.count, body.since_ms, body.sent_epoch, body.member_epoch)


class AbsenceChanged(NamedTuple):
    """A static member's session ended, and the member stays in the group for a time; or, with `back`, it returned in time."""

    at_ms: int
    member_id: str
    instance_id: str
    back: bool
    away_ms: int


class StandbyChanged(NamedTuple):
    """A member became a standby, which waits without partitions, or a standby replaces a removed member. `step` None: written by a newer version."""

    at_ms: int
    member_id: str
    instance_id: str | None
    step: StandbyStep | None
    from_id: str | None
    from_instance: str | None
    after_ms: int  # since the removed member's seat became free


class InstanceRefused(NamedTuple):
    """A JoinGroup was refused, because the group admits only the instance ids of its strict list."""

    at_ms: int
    instance_id: str | None
    client_id: str
    host: str
    listed: str


class HeartbeatsLate(NamedTuple):
    """Members whose heartbeats came close to their session timeout. `gaps`: key, longest gap, and number of gaps above a third of the timeout."""

    at_ms: int
    gaps: tuple[tuple[str, int, int], ...]


class CoordinatorChanged(NamedTuple):
    """The coordinator was loaded, unloaded, suspended or resumed.

    `orderly` False: no note shows that the previous coordinator was unloaded, so its last notes may be missing.
    """

    at_ms: int
    change: ShardChange | None
    load_ms: int
    groups: int
    orderly: bool | None = None
    dropped: int = 0  # notes about groups of this partition that were dropped and never written
    to_node: int = -1  # UNLOADED: the node to which the partition was handed over; -1: to none
    drained: bool = False  # ... because an operator drained the node


class NotesMissing(NamedTuple):
    """Notes before this time are missing, but no completed rebalance is."""

    at_ms: int
    notes: int  # -1: unknown


class GroupDeleted(NamedTuple):
    """The group was deleted or expired, so its generations start again. `recorded`: a tombstone shows the deletion; otherwise only a lower generation does."""

    at_ms: int
    recorded: bool


class RebalancesMissing(NamedTuple):
    """Rebalances without notes, between two times and two generations (-1: unknown).

    Their number is between `count_min` and `count_max`. `after` and `before` are the group's records after and before them, if known.
    """

    after_ms: int
    before_ms: int
    from_generation: int
    to_generation: int
    count_min: int
    count_max: int
    notes: int = -1  # number of missing notes, -1: unknown
    before: GroupRecord | None = None
    after: GroupRecord | None = None
    older: bool = False  # they are older than the first note, or there are no notes at all

    @property
    def is_one(self) -> bool:
        """Whether it is exactly one rebalance, whose result is in a record."""
        return self.count_min == self.count_max == 1 and self.after is not None


class Handover(NamedTuple):
    """A member of a consumer group was told to give partitions up, for which other members, named by `waiting`, wait. `given_ms` -1: it has not yet."""

    member_id: str
    instance_id: str | None
    told_ms: int
    given_ms: int
    partitions: tuple[tuple[str, int], ...]
    waiting: tuple[str, ...]


class End(Enum):
    """How a rebalance ended."""

    STABLE = "stable"  # with an assignment
    EMPTY = "empty"  # without members
    INTERRUPTED = "interrupted"  # the coordinator failed or moved meanwhile
    UNKNOWN = "unknown"  # the notes of its end are missing, perhaps also of further rebalances up to `ended_ms`
    OPEN = "open"  # neither notes nor records show an end


@dataclass(slots=True)
class Rebalance:
    """A rebalance, from its begin until the group is stable or empty again.

    A value is -1 or None, or a list is empty, if the coordinator's notes about it (`__coordinator_notes`) are missing.
    """

    began_ms: int  # if `begin_known` is False, the time of the first known event
    from_state: State | None
    from_generation: int
    cause: Cause | None
    trigger_member: str | None = None  # the member that caused it: its id, or the instance id by which it was removed
    cause_text: str | None = None  # its client's reason, or what else the cause is about
    ended_ms: int = -1
    to_generation: int = -1
    end: End = End.OPEN
    rounds: int = 1  # above one: it was restarted before it ended
    restart_causes: list[AnyCause] = field(default_factory=list)  # causes of the restarts
    joins: list[MemberJoined] = field(default_factory=list)
    removals: list[MemberRemoved] = field(default_factory=list)
    returns: list[StaticReturned] = field(default_factory=list)
    laggards: list[str] = field(default_factory=list)
    join_ms: int = -1  # duration of the last round's join phase
    sync_ms: int = -1  # duration of that round's sync phase
    members_before: int = -1
    members_after: int = -1
    missing_notes: int = 0  # notes missing in it or next to it; -1: unknown number
    begin_known: bool = True
    before: GroupRecord | None = None  # the group record before it
    after: GroupRecord | None = None
    handed_to: int = -1  # INTERRUPTED: the node to which the coordinator handed the group's partition; -1: to none
    # Of consumer groups
    told: Inferred | None = None  # its cause, as the group's records tell it; notes, if there are some, tell it better
    epochs: list[int] = field(default_factory=list)  # that began in it
    handovers: list[Handover] = field(default_factory=list)
    assignor: str = ""  # by which its last target was computed; "": no note says so
    held_up: list[tuple[str, int]] = field(default_factory=list)  # members that others waited for, and how long each was told to give up partitions
    stopped_ms: int = -1  # the sum over the moved partitions of the time in which no member had them

    @property
    def of_epochs(self) -> bool:
        """Whether the group spoke the consumer protocol."""
        return any(record is not None and record.is_target for record in (self.before, self.after)) or bool(self.epochs)

    @property
    def all_noted(self) -> bool:
        """Whether no note is missing, so that an event without a note did not happen."""
        return self.begin_known and not self.missing_notes and self.end is not End.UNKNOWN

    @property
    def complete(self) -> bool:
        """Whether no note is missing, and it is known for each JoinGroup whether the member was in the group before."""
        return self.all_noted and all(join.was_member is not None for join in self.joins)

    @property
    def duration_ms(self) -> int:
        """The duration by the coordinator's monotonic clock if notes have it, otherwise by its wall clock; -1 if unknown or the wall clock was set back."""
        if self.all_noted and self.rounds == 1 and min(self.join_ms, self.sync_ms) >= 0:
            return self.join_ms + self.sync_ms
        return max(self.ended_ms - self.began_ms, -1) if self.ended_ms >= 0 and self.begin_known else -1

    @property
    def joined(self) -> list[MemberJoined]:
        """Members that were not in the group before."""
        return [join for join in self.joins if join.was_member is False]

    @property
    def last_joiner(self) -> MemberJoined | None:
        """The member that the others waited for: the last to join, if that took a second or more."""
        if not self.joins or self.from_state is State.EMPTY or not self.all_noted or self.end is not End.STABLE:
            return None
        removed = {removal.member_id for removal in self.removals}
        last = next((join for join in reversed(self.joins) if join.member_id not in removed), None)
        return last if last is not None and 1000 <= last.at_ms - self.began_ms <= self.duration_ms else None


Entry = (
    Rebalance | RebalancesMissing | MemberJoined | MemberRemoved | StaticReturned | CommitsRefused | AbsenceChanged | StandbyChanged
    | InstanceRefused | HeartbeatsLate | CoordinatorChanged | NotesMissing | GroupDeleted
)


def at_ms(entry: Entry) -> int:
    match entry:
        case Rebalance():
            return entry.began_ms
        case RebalancesMissing():
            return entry.after.at_ms if entry.after is not None else entry.after_ms if entry.after_ms >= 0 else entry.before_ms
    return entry.at_ms
