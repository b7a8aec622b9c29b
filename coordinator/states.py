"""The states of a group; notes and the pipeline store their numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class State(IntEnum):
    EMPTY = 0
    PREPARING = 1
    COMPLETING = 2
    STABLE = 3
    DEAD = 4  # clients see it for an unknown group, and for one of the consumer protocol, whose notes have it; no classic group is ever in it

    @property
    def shown(self) -> str:
        """The name that Kafka's clients show."""
        return _SHOWN[self]


_SHOWN = {
    State.EMPTY: "Empty",
    State.PREPARING: "PreparingRebalance",
    State.COMPLETING: "CompletingRebalance",
    State.STABLE: "Stable",
    State.DEAD: "Dead",
}


# Module names, since looking up an Enum's attribute is about ten times slower.
EMPTY: Final = State.EMPTY
PREPARING: Final = State.PREPARING
COMPLETING: Final = State.COMPLETING
STABLE: Final = State.STABLE

# The allowed transitions.
TRANSITIONS: Final[dict[State, tuple[State, ...]]] = {
    State.EMPTY: (State.PREPARING,),
    State.PREPARING: (State.COMPLETING, State.EMPTY),
    State.COMPLETING: (State.STABLE, State.PREPARING),
    State.STABLE: (State.PREPARING,),
}
