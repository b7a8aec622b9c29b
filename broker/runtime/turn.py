"""The turn: one pass of the event loop, at whose end new records (facts) are appended to logs and replies are written.

At the end of a turn, the journals (one for each log) append their new facts, in one batch and one write per log. Then connections write
the replies that were sent outside their own reads, and process waiting requests. Deadline handlers share one timer, which
is set to the earliest deadline.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from broker.runtime.clock import Clock
from broker.runtime.contain import report_broken, report_defect

NEVER = 1 << 62

# A timer this late means that a turn ran long or the process was stopped. Requests that clients sent meanwhile are still unread in
# the sockets, so input is read before any deadline is enforced.
LATE_MS = 50
# asyncio and uvloop differ in whether due timers run before or after polling, and uvloop runs `call_soon` in between:
# three steps include one full poll on either.
STEPS_PAST_INPUT = 3
# With so many logs to write, one more pass of input is read first: its facts join the same batches, which saves writes.
BUSY_LOGS = 8
# A deadline handler that raised is not advanced for a while; the pause doubles until it is advanced without raising.
PAUSE_MS_MIN = 250
PAUSE_MS_MAX = 15_000
NO_PAUSE = (0, PAUSE_MS_MIN // 2)  # of a handler that has not raised: end of its pause, and the length that `_failed` doubles


class DeadlineHandler(Protocol):
    """An object with deadlines. `wake_at` is at or before its next deadline; calling `advance` too early is harmless."""

    @property
    def wake_at(self) -> int: ...

    def advance(self, now: int) -> None: ...


class TurnEnd(Protocol):
    """An object with work for the end of the turn."""

    def end_turn(self) -> None: ...


class EndTurnScheduler(Protocol):
    """The method of `Turn` that schedules work for the end of the turn."""

    def call_at_turn_end(self, target: TurnEnd) -> None: ...


class Turn:
    """Schedules the end of the turn and the next deadline; made for one loop and one clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.clock = clock
        self._loop = loop
        self._first: dict[TurnEnd, None] = {}  # called first at the end of this turn: mostly journals
        self._after_appends: dict[TurnEnd, None] = {}  # called after them
        self._scheduled = False
        self._extended = False  # this turn was already extended by a pass of input
        self._deadline_handlers: list[DeadlineHandler] = []
        self._pausing: dict[DeadlineHandler, tuple[int, int]] = {}  # handlers that raised: end and length of their pause
        self._timer: asyncio.TimerHandle | None = None
        self.armed_at = NEVER  # the timer's time; NEVER: not set

    def call_first_at_turn_end(self, target: TurnEnd) -> None:
        """Call `target.end_turn` at the end of this turn, before the targets of `call_at_turn_end`; mostly for a journal with facts to append."""
        self._first[target] = None
        if not self._scheduled:
            self._schedule()

    def call_at_turn_end(self, target: TurnEnd) -> None:
        """Call `target.end_turn` at the end of this turn, after all appends."""
        self._after_appends[target] = None
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._loop.call_soon(self._end)

    def _end(self) -> None:
        if len(self._first) >= BUSY_LOGS and not self._extended:
            self._extended = True
            self._loop.call_soon(self._end)
            return
        self._scheduled = self._extended = False
        # Appends first: without a flush to wait for, their replies leave in the same turn.
        first, self._first = self._first, {}
        for target in first:
            try:
                target.end_turn()
            except Exception as error:
                report_broken(target, "the end of a turn failed inside the broker", error, part=type(target).__name__)
        after_appends, self._after_appends = self._after_appends, {}
        for target in after_appends:
            try:
                target.end_turn()
            except Exception as error:
                report_broken(target, "the end of a turn failed inside the broker", error, part=type(target).__name__)

    def add_deadline_handler(self, handler: DeadlineHandler) -> None:
        """Call `handler.advance` from now on whenever its `wake_at` is due."""
        self._deadline_handlers.append(handler)
        self.wake_by(handler.wake_at)

    def wake_by(self, at: int) -> None:
        """Set the timer to `at`, if that is earlier: a handler's `wake_at` has changed."""
        if at >= self.armed_at:
            return
        self._set_timer(max(0, at - self.clock.tick()) / 1000)
        self.armed_at = at

    def _set_timer(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay, self._fire)

    def _fire(self) -> None:
        try:
            late = self.clock.tick() - self.armed_at > LATE_MS
        except Exception as error:
            self._restart_timer(error)
        else:
            self._advance_past_input(STEPS_PAST_INPUT if late else 0)

    def _advance_past_input(self, steps: int) -> None:
        if steps:
            self._loop.call_soon(self._advance_past_input, steps - 1)
            return
        try:
            self._advance()
        except Exception as error:
            self._restart_timer(error)

    def _restart_timer(self, error: Exception) -> None:
        """Set the timer again after an exception outside any handler, for example in the clock."""
        report_defect("the timer of all deadlines failed inside the broker", error)
        self._set_timer(PAUSE_MS_MIN / 1000)

    def _advance(self) -> None:
        now = self.clock.tick()
        pausing = self._pausing
        for handler in self._deadline_handlers:
            try:
                if (pausing and now < self._pause_end(handler)) or handler.wake_at > now:
                    continue
                handler.advance(now)
            except Exception as error:
                self._failed(handler, error)
            else:
                if pausing:
                    pausing.pop(handler, None)
        self._rearm()

    def _failed(self, handler: DeadlineHandler, error: Exception) -> None:
        _, pause = self._pausing.get(handler, NO_PAUSE)
        pause = min(2 * pause, PAUSE_MS_MAX)
        self._pausing[handler] = self.clock.now + pause, pause
        report_broken(handler, "a deadline failed inside the broker", error, log=getattr(handler, "name", type(handler).__name__))

    def _pause_end(self, handler: DeadlineHandler) -> int:
        return self._pausing.get(handler, NO_PAUSE)[0]

    def _wake_at(self, handler: DeadlineHandler) -> int:
        """The handler's `wake_at`, not before the end of its pause."""
        pause_end = self._pause_end(handler)
        try:
            return max(handler.wake_at, pause_end)
        except Exception:
            return max(pause_end, self.clock.now + PAUSE_MS_MIN)

    def _rearm(self) -> None:
        self.armed_at = NEVER
        self.wake_by(self._earliest())

    def _earliest(self) -> int:
        if not self._pausing:
            try:
                return min((handler.wake_at for handler in self._deadline_handlers), default=NEVER)
            except Exception:
                pass  # `_advance` will report it
        return min([self._wake_at(handler) for handler in self._deadline_handlers], default=NEVER)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.armed_at = 0
