"""The states of a group, numbered as notes and pipeline number them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class State(IntEnum):
    EMPTY = 0
    PREPARING = 1
    COMPLETING = 2
    STABLE = 3
    DEAD = 4  # what a client reads of a group that is not there; no group is ever in it

    @property
    def shown(self) -> str:
        """As clients know it."""
        return _SHOWN[self]


_SHOWN = {
    State.EMPTY: "Empty",
    State.PREPARING: "PreparingRebalance",
    State.COMPLETING: "CompletingRebalance",
    State.STABLE: "Stable",
    State.DEAD: "Dead",
}


# The same by themselves: an Enum's attribute takes as long as ten of other classes.
EMPTY: Final = State.EMPTY
PREPARING: Final = State.PREPARING
COMPLETING: Final = State.COMPLETING
STABLE: Final = State.STABLE

# From which state a group comes into which; nothing else happens.
MOVES: Final[dict[State, tuple[State, ...]]] = {
    State.EMPTY: (State.PREPARING,),
    State.PREPARING: (State.COMPLETING, State.EMPTY),
    State.COMPLETING: (State.STABLE, State.PREPARING),
    State.STABLE: (State.PREPARING,),
}
