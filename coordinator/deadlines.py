"""Who is due. A deadline is an absolute millisecond on the object it belongs to; here stands when to look at it again.

A wheel of slots, one tick wide, holds everybody with a deadline. One that moves later, as by a heartbeat, changes nothing
here: when its slot comes, the object is scheduled_at again under the deadline it has by then. What is due within a tick goes
to a heap, so that nobody is fenced or evicted early or late by the width of a slot.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import ClassVar, Final

TICK_MS: Final = 100
NEVER: Final = 1 << 62


class Timed:
    """Something with a deadline. `scheduled_at` is the moment at which it will be looked at, NEVER when nobody will.

    Of what is due in the same millisecond a smaller `rank` comes first.
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
        self._slots: dict[int, dict[Timed, None]] = {}  # by the moment at which a slot begins
        self._moments: list[int] = []  # a heap of these
        self._soon: list[tuple[int, int, int, Timed]] = []  # a heap of (deadline, rank, number, item)
        self._number = 0

    def set(self, item: Timed, deadline: int) -> None:
        """The item's deadline, earlier or later than before."""
        item.deadline = deadline
        if deadline < item.scheduled_at:
            self._file(item)

    def reschedule(self, item: Timed) -> None:
        """Its deadline was moved to before the moment it is scheduled_at under."""
        self._file(item)

    def _file(self, item: Timed) -> None:
        self._forget(item)
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
        """It has no deadline any more."""
        item.deadline = NEVER
        self._forget(item)
        item.scheduled_at = NEVER

    def _forget(self, item: Timed) -> None:
        slot = self._slots.get(item.scheduled_at)
        if slot is not None:
            slot.pop(item, None)

    def pop(self, now: int) -> Timed | None:
        """The next one whose deadline has come, without its deadline now; None when there is none, and then `wake_at` is known anew.

        One at a time, for what happens to the first may give the second more time.
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
            if item.scheduled_at <= now:  # it has moved since
                self._put(item, now)
        self._set_wake()
        return None

    def _put(self, item: Timed, now: int) -> None:
        """Its moment has come: look at it again when its deadline does, which may have moved."""
        item.scheduled_at = NEVER
        if item.deadline < now + TICK_MS:
            self._number += 1
            item.scheduled_at = item.deadline
            heappush(self._soon, (item.deadline, item.rank, self._number, item))
        elif item.deadline != NEVER:
            self._file(item)

    def _set_wake(self) -> None:
        self.wake_at = min(self._moments[0] if self._moments else NEVER, self._soon[0][0] if self._soon else NEVER)
