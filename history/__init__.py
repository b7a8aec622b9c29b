"""Notes and group records folded into what happened to a group. Pure.

`story_of(group, notes, images)` is the whole fold; `Order` and `Story` are its two halves, for notes that keep coming.
"""

from history.episodes import Came, Deleted, End, Entry, Late, Lost, Missing, Moved, Rebalance, Refused, Returned, Went, at_ms
from history.moves import Move, Owner, Owners, moves, moves_of, owners_of, spans
from history.order import Order
from history.restarts import Avoidable, Restart, avoidable
from history.story import Story, story_of
from history.told import Image, Told, read_image, read_told

__all__ = [
    "Avoidable",
    "Came",
    "Deleted",
    "End",
    "Entry",
    "Image",
    "Late",
    "Lost",
    "Missing",
    "Move",
    "Moved",
    "Order",
    "Owner",
    "Owners",
    "Rebalance",
    "Refused",
    "Restart",
    "Returned",
    "Story",
    "Told",
    "Went",
    "at_ms",
    "avoidable",
    "moves",
    "moves_of",
    "owners_of",
    "read_image",
    "read_told",
    "spans",
    "story_of",
]
