"""The states of a group, numbered as notes and pipeline number them."""

from __future__ import annotations

from enum import IntEnum


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
