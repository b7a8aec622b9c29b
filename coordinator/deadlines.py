"""A timer wheel. Each object keeps its own deadline in absolute milliseconds; the wheel keeps when to look at it.

Slots are one tick wide. Moving a deadline later, as a heartbeat does, does not touch the wheel: when the slot comes, the
object is scheduled again for its current deadline. Objects due within a tick go to a heap, so that deadlines are exact to
the millisecond and not to the width of a slot.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import ClassVar, Final

TICK_MS: Final = 100
NEVER: Final = 1 << 62


class Timed:
    """An object with a deadline. The wheel looks at it at `scheduled_at`; NEVER: it is not in the wheel.

    Of objects due in the same millisecond, the smaller `rank` comes first.
    """

    __slots__ = ("deadline", "scheduled_at")
    rank: ClassVar[int] = 0

    def __init__(self) -> None:
        self.deadline = NEVER
        self.scheduled_at = NEVER


class Deadlines:
    """`wake_at` is a lower bound on the next deadline: waking early is harmless."""

    __slots__ = ("_moments", "_number", "_slots", "_soon", "wake_at")

    def __init__(self) -> None:
        self.wake_at = NEVER
        self._slots: dict[int, dict[Timed, None]] = {}  # start of the slot -> its objects
        self._moments: list[int] = []  # a heap of the starts
        self._soon: list[tuple[int, int, int, Timed]] = []  # a heap of (deadline, rank, number, item)
        self._number = 0

    def set(self, item: Timed, deadline: int) -> None:
        """Set the item's deadline, earlier or later than before."""
        item.deadline = deadline
        if deadline < item.scheduled_at:
            self._schedule(item)

    def reschedule(self, item: Timed) -> None:
        """Schedule an item whose deadline is now before `scheduled_at`."""
        self._schedule(item)

    def _schedule(self, item: Timed) -> None:
        self._unschedule(item)
        moment = item.deadline - item.deadline % TICK_MS
        item.scheduled_at = moment
        slot = self._slots.get(moment)
        if slot is None:
            self._slots[moment] = slot = {}
            heappush(self._moments, moment)
            if moment < self.wake_at:
                self.wake_at = moment
        slot[item] = None

    def remove(self, item: Timed) -> None:
        """Clear the item's deadline."""
        item.deadline = NEVER
        self._unschedule(item)
        item.scheduled_at = NEVER

    def _unschedule(self, item: Timed) -> None:
        slot = self._slots.get(item.scheduled_at)
        if slot is not None:
            slot.pop(item, None)

    def pop(self, now: int) -> Timed | None:
        """Return the next item that is due and clear its deadline; None: no item is due, and `wake_at` is up to date.

        One item a call: handling the first may move the deadline of the second.
        """
        soon = self._soon
        while self._moments and self._moments[0] <= now:
            for item in self._slots.pop(heappop(self._moments)):
                self._put(item, now)
        while soon and soon[0][0] <= now:
            _, _, _, item = heappop(soon)
            if item.deadline <= now:
                item.deadline = item.scheduled_at = NEVER
                return item
            if item.scheduled_at <= now:  # its deadline has moved later
                self._put(item, now)
        self._set_wake()
        return None

    def _put(self, item: Timed, now: int) -> None:
        """Schedule an item whose slot has come, for the deadline it has now."""
        item.scheduled_at = NEVER
        if item.deadline < now + TICK_MS:
            self._number += 1
            item.scheduled_at = item.deadline
            heappush(self._soon, (item.deadline, item.rank, self._number, item))
        elif item.deadline != NEVER:
            self._schedule(item)

    def _set_wake(self) -> None:
        self.wake_at = min(self._moments[0] if self._moments else NEVER, self._soon[0][0] if self._soon else NEVER)
