"""The notes of a consumer group in numbers."""

from __future__ import annotations

from typing import Final

from coordinator.config import MS_PER_NOTE, NOTE_BUDGET_MAX

UNKNOWN: Final = -1


class NoteCount:
    """The numbers of a group's notes, and its budget: as of classic groups."""

    __slots__ = ("behind", "budget", "dropped", "earned_ms", "held_up_ms", "next_number", "since_ms", "told_ms", "unsettled_since_ms")

    def __init__(self) -> None:
        self.behind = ""  # a member that had not reached the newest target when this was looked for
        self.budget = NOTE_BUDGET_MAX
        self.earned_ms = 0  # when the budget last grew
        self.dropped = 0
        self.next_number = 0
        self.since_ms = UNKNOWN  # wall time of the first note
        self.told_ms: dict[str, int] = {}  # since when a member has been told to give up partitions, and has not yet
        self.held_up_ms: dict[str, int] = {}  # how long members had been told so, since the group was settled
        self.unsettled_since_ms = UNKNOWN  # when the newest epoch of a settled group began; -1: it is settled, or was loaded since then

    def tell(self, id: str, now: int) -> None:
        self.told_ms.setdefault(id, now)

    def give_up(self, id: str, now: int) -> None:
        since_ms = self.told_ms.pop(id, UNKNOWN)
        if since_ms >= 0:
            self.held_up_ms[id] = self.held_up_ms.get(id, 0) + now - since_ms

    def take_held_up(self) -> list[tuple[str, int]]:
        """The longest first."""
        held_up, self.held_up_ms = self.held_up_ms, {}
        return sorted(held_up.items(), key=lambda item: -item[1])

    def spend(self, now: int) -> bool:
        earned = (now - self.earned_ms) // MS_PER_NOTE
        if earned > 0:
            self.earned_ms = now
            self.budget = max(self.budget, min(self.budget + earned, NOTE_BUDGET_MAX))
        if not self.budget:
            self.dropped += 1
            return False
        self.budget -= 1
        return True
