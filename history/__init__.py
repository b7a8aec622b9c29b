"""Computes a group's history from its notes (records of __coordinator_notes) and its group records in __consumer_offsets. Pure.

`story_of(group, notes, records)` does it in one call. If notes arrive over time, `Order` sorts them among the records, and `Story` makes the entries.
"""

from history.episodes import (
    AbsenceChanged,
    CommitsRefused,
    CoordinatorChanged,
    End,
    Entry,
    GroupDeleted,
    HeartbeatsLate,
    InstanceRefused,
    MemberJoined,
    MemberRemoved,
    NotesMissing,
    Rebalance,
    RebalancesMissing,
    StandbyChanged,
    StaticReturned,
    at_ms,
)
from history.moves import Move, Owner, Owners, list_partitions, moves, moves_of, owners_of
from history.note_records import GroupRecord, NoteRecord, read_group_record, read_note_record
from history.order import Order
from history.restarts import AvoidableRebalances, Restart, avoidable
from history.story import Story, story_of

__all__ = [
    "AbsenceChanged",
    "AvoidableRebalances",
    "CommitsRefused",
    "CoordinatorChanged",
    "End",
    "Entry",
    "GroupDeleted",
    "GroupRecord",
    "HeartbeatsLate",
    "InstanceRefused",
    "MemberJoined",
    "MemberRemoved",
    "Move",
    "NoteRecord",
    "NotesMissing",
    "Order",
    "Owner",
    "Owners",
    "Rebalance",
    "RebalancesMissing",
    "Restart",
    "StandbyChanged",
    "StaticReturned",
    "Story",
    "at_ms",
    "avoidable",
    "list_partitions",
    "moves",
    "moves_of",
    "owners_of",
    "read_group_record",
    "read_note_record",
    "story_of",
]
