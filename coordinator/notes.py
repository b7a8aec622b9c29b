"""Notes: what happened in a group and why, for people. They become records of __coordinator_notes.

A note leaves the shard when the facts of its operation are durable. A group has a budget of notes; further notes are only counted.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from coordinator.classic.group import Group
from coordinator.config import MS_PER_NOTE, NOTE_BUDGET_MAX, NOTES_PER_NEW_MEMBER
from coordinator.states import State
from protocol.message import Message
from protocol.messages.kinds import KIND_OF_NOTE, NoteKind

# A character takes at most 4 bytes, so this is far below the 32,767 bytes of a string in a record.
TEXT_CHARS_MAX = 1_000


class Cause(IntEnum):
    """Why a group changed its state; the same names are in logs, notes and reports."""

    NEW_MEMBER = 0
    LEADER_REJOINED = 1
    MEMBER_METADATA_CHANGED = 2
    MEMBER_LEFT = 3
    SESSION_EXPIRED = 4
    REBALANCE_TIMEOUT = 5
    STATIC_PROTOCOL_CHANGED = 6
    STATIC_DURING_COMPLETING = 7
    SYNC_FAILED = 8
    ADMIN_REMOVED = 9
    GROUP_EMPTIED = 10
    COORDINATOR_MOVED = 11
    SYNC_TIMEOUT = 12
    PENDING_LEFT = 13
    OVER_MAX_SIZE = 14
    JOIN_TIMEOUT = 15
    # These two are the steps of a rebalance, not its causes.
    EVERYONE_JOINED = 16
    ASSIGNED = 17
    # Causes that policies add.
    REQUESTED = 18
    ABSENCES_ENDED = 19
    EXPANSION = 20
    ROSTER_COMPLETE = 21
    ROSTER_CHANGED = 22
    TOPICS_CHANGED = 23
    TARGET_CHANGED = 24
    STANDBY_LATE = 25
    REGISTRATION_UNSET = 26
    # Causes that only groups of the consumer protocol have.
    ASSIGNOR_CHANGED = 27
    REGEX_RESOLVED = 28
    UPGRADED = 29
    DOWNGRADED = 30


class Removal(IntEnum):
    """Why a member was removed from its group."""

    LEFT = 0
    EXPIRED = 1
    REBALANCE_TIMEOUT = 2
    FENCED = 3
    ADMIN_REMOVED = 4
    PENDING_EXPIRED = 5
    SYNC_TIMEOUT = 6
    OVER_MAX_SIZE = 7
    REPLACED = 8
    STAYED_AWAY = 9
    NOT_LISTED = 10
    SEAT_TAKEN = 11
    REGISTRATION_UNSET = 12
    NOT_GIVEN_UP = 13  # of a consumer group: what it was told to give up, within its rebalance timeout


class Replacement(IntEnum):
    """The outcome of a static member's return under a new member id."""

    NO_REBALANCE = 0
    PROTOCOL_CHANGED = 1
    COMPLETING = 2
    PREPARING = 3


class StandbyStep(IntEnum):
    """What happened to a standby."""

    WAITS = 0  # the member became a standby
    TAKES_OVER = 1  # it got the seat of a removed member
    TOOK_OVER = 2  # it has the seat's assignment
    TOO_LATE = 3  # it did not send its SyncGroup in time and waits again
    GONE = 4  # it was removed while it waited or took a seat over


class EpochStep(IntEnum):
    """What happened to an epoch of a consumer group."""

    BEGUN = 0
    COMPUTED = 1  # its target
    REACHED = 2  # by the last member


class RoundResult(IntEnum):
    """How a rebalance ended."""

    STABLE = 0
    EMPTY = 1
    SUPERSEDED = 2
    LEADER_LOST = 3


class ShardChange(IntEnum):
    """What happened to a shard."""

    LOADED = 0
    UNLOADED = 1
    SUSPENDED = 2
    RESUMED = 3


class Note(NamedTuple):
    """`generation` and `state` are those after the change; `dropped` counts the notes dropped since the previous note.

    `number` counts all notes of the group since `counted_from`, including dropped ones, so that a reader can tell how many are missing.
    """

    group_id: str
    at_ms: int
    generation: int
    state: State
    body: Message
    dropped: int = 0
    counted_from: int = -1
    number: int = -1

    @property
    def kind(self) -> NoteKind:
        return KIND_OF_NOTE[type(self.body)]


def grant_note_budget(group: Group) -> None:
    """Raise the budget for a new member: a rebalance of a large group makes more notes than that of a small one."""
    group.note_budget = min(group.note_budget + NOTES_PER_NEW_MEMBER, max(NOTE_BUDGET_MAX, NOTES_PER_NEW_MEMBER * len(group.members)))


def spend_note_budget(group: Group, now: int) -> bool:
    """Take one note from the group's budget; False if the budget is used up. Call it before building the note's body."""
    earned = (now - group.note_earned_ms) // MS_PER_NOTE
    if earned:
        group.note_earned_ms = now
        group.note_budget = max(group.note_budget, min(group.note_budget + earned, NOTE_BUDGET_MAX))
    if not group.note_budget:
        group.notes_dropped += 1
        return False
    group.note_budget -= 1
    return True


def make_note(group: Group, wall: int, body: Message) -> Note:
    dropped = group.notes_dropped
    group.notes_dropped = 0
    if group.note_numbers_since_ms < 0:
        group.note_numbers_since_ms = wall
    number = group.next_note_number + dropped
    group.next_note_number = number + 1
    return Note(group.id, wall, group.generation, group.state, body, dropped, group.note_numbers_since_ms, number)
