"""Facts and notes folded into spells, episodes and causes: what happened to a group. Pure."""

from history.episodes import Came, End, Entry, Late, Lost, Moved, Rebalance, Refused, Returned, Went, at_ms
from history.moves import Move, Owner, Owners, moves, owners_of, spans
from history.restarts import Avoidable, Restart, avoidable
from history.story import Story, story_of
from history.told import Told, read_told

__all__ = [
    "Avoidable",
    "Came",
    "End",
    "Entry",
    "Late",
    "Lost",
    "Move",
    "Moved",
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
    "owners_of",
    "read_told",
    "spans",
    "story_of",
]
