"""A timer wheel. Each object stores its own deadline in absolute milliseconds; the wheel stores when to check it.

Slots are one tick wide. Moving a deadline later, as a heartbeat does, does not change the wheel: when the slot begins, the
object is scheduled again for its current deadline. Objects due within a tick go to a heap, so that deadlines are exact to
the millisecond and not to the width of a slot.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, ClassVar, Final

TICK_MS: Final = 100
NEVER: Final = 1 << 62


class Timed:
    """An object with a deadline. The wheel checks it at `scheduled_at`; NEVER: it is not in the wheel.

    Of objects due in the same millisecond, the one with the smaller `rank` is handled first.
    """

    __slots__ = ("deadline", "scheduled_at")
    rank: ClassVar[int] = 0

    def __init__(self) -> None:
        self.deadline = NEVER
        self.scheduled_at = NEVER

    def due(self, out: Any, groups: Any) -> None:
        """Called at the deadline, with the output of the step (`StepOutput`) and the groups of the shard."""
        raise NotImplementedError


class Deadlines:
    """`wake_at` is a lower bound on the next deadline: waking early is harmless.

    While `extends` is set (the process could not read requests, or an append delays replies), four kinds of deadlines are extended when they
    are due, each once: of a session, a pending member id, a sync phase and a take-over. A member that sends nothing in the extended session is
    removed, however slow log and process are. The deadlines of a join phase, an absence and waiting newcomers are not extended.
    """

    __slots__ = ("_due", "_number", "_slot_starts", "_slots", "extends", "wake_at")

    def __init__(self) -> None:
        self.wake_at = NEVER
        self.extends = False
        self._slots: dict[int, dict[Timed, None]] = {}  # start of the slot -> its objects
        self._slot_starts: list[int] = []  # a heap
        self._due: list[tuple[int, int, int, Timed]] = []  # a heap of (deadline, rank, number, item)
        self._number = 0

    def set(self, item: Timed, deadline: int) -> None:
        """Set the item's deadline, earlier or later than before."""
        item.deadline = deadline
        if deadline < item.scheduled_at:
            self.reschedule(item)

    def reschedule(self, item: Timed) -> None:
        """Move the item to the slot of its deadline, which is earlier than `scheduled_at`."""
        self._unschedule(item)
        start = item.deadline - item.deadline % TICK_MS
        item.scheduled_at = start
        slot = self._slots.get(start)
        if slot is None:
            self._slots[start] = slot = {}
            heappush(self._slot_starts, start)
            if start < self.wake_at:
                self.wake_at = start
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

        Each call returns one item: handling the first may move the deadline of the second.
        """
        due = self._due
        while self._slot_starts and self._slot_starts[0] <= now:
            for item in self._slots.pop(heappop(self._slot_starts)):
                self._schedule_due(item, now)
        while due and due[0][0] <= now:
            _, _, _, item = heappop(due)
            if item.deadline <= now:
                item.deadline = item.scheduled_at = NEVER
                return item
            if item.scheduled_at <= now:  # its deadline has moved later
                self._schedule_due(item, now)
        self.wake_at = min(self._slot_starts[0] if self._slot_starts else NEVER, due[0][0] if due else NEVER)
        return None

    def _schedule_due(self, item: Timed, now: int) -> None:
        """Schedule an item whose slot has begun, for its current deadline."""
        item.scheduled_at = NEVER
        if item.deadline < now + TICK_MS:
            self._number += 1
            item.scheduled_at = item.deadline
            heappush(self._due, (item.deadline, item.rank, self._number, item))
        elif item.deadline != NEVER:
            self.reschedule(item)
