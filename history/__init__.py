"""Notes and group records folded into what happened to a group. Pure.

`story_of(group, notes, images)` is the whole fold; `Order` and `Story` are its two halves, for notes that keep coming.
"""

from history.episodes import (
    Away,
    Barred,
    Came,
    Deleted,
    End,
    Entry,
    Late,
    Lost,
    Missing,
    Moved,
    Rebalance,
    Refused,
    Returned,
    Standby,
    Went,
    at_ms,
)
from history.moves import Move, Owner, Owners, moves, moves_of, owners_of, spans
from history.note_records import GroupRecord, NoteRecord, read_image, read_note_record
from history.order import Order
from history.restarts import Avoidable, Restart, avoidable
from history.story import Story, story_of

__all__ = [
    "Avoidable",
    "Away",
    "Barred",
    "Came",
    "Deleted",
    "End",
    "Entry",
    "GroupRecord",
    "Late",
    "Lost",
    "Missing",
    "Move",
    "Moved",
    "NoteRecord",
    "Order",
    "Owner",
    "Owners",
    "Rebalance",
    "Refused",
    "Restart",
    "Returned",
    "Standby",
    "Story",
    "Went",
    "at_ms",
    "avoidable",
    "moves",
    "moves_of",
    "owners_of",
    "read_image",
    "read_note_record",
    "spans",
    "story_of",
]
