"""One event loop for all tests: time passes and callbacks run only when the test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from broker.runtime.clock import Clock


class Timer:
    def __init__(self, at: float, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.at = at
        self.call = call
        self.arguments = arguments
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def run(self) -> None:
        if not self.cancelled:
            self.call(*self.arguments)


class FakeLoop:
    """The parts of an event loop that the broker uses, and its clocks; times are seconds."""

    def __init__(self, monotonic: float = 1_000.0, wall: float = 1_000.0) -> None:
        self.monotonic = monotonic
        self.wall = wall
        self.soon: deque[Timer] = deque()
        self.timers: list[Timer] = []
        self.arrivals: list[Callable[[], None]] = []  # input for the next pass

    # Called by the broker.

    def time(self) -> float:
        return self.monotonic

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> Timer:
        self.soon.append(Timer(self.monotonic, call, arguments))
        return self.soon[-1]

    def call_later(self, seconds: float, call: Callable[..., None], *arguments: Any) -> Timer:
        self.timers.append(Timer(self._after(seconds), call, arguments))
        return self.timers[-1]

    def _after(self, seconds: float) -> float:
        """Rounded, so that many small steps of time add up."""
        return round(self.monotonic + seconds, 9)

    # Called by the test.

    @property
    def ms(self) -> float:
        return self.monotonic * 1000

    def clock(self) -> Clock:
        return Clock(lambda: round(self.wall * 1e9), lambda: round(self.monotonic * 1e9))

    def delays(self) -> list[float]:
        """The seconds until each timer fires."""
        return [round(timer.at - self.monotonic, 6) for timer in self.timers if not timer.cancelled]

    def advance(self, seconds: float) -> None:
        """Move both clocks; nothing runs."""
        self.monotonic = self._after(seconds)
        self.wall = round(self.wall + seconds, 9)

    def turn(self) -> None:
        """Run the callbacks scheduled so far, but not those that they schedule."""
        for _ in range(len(self.soon)):
            self.soon.popleft().run()

    def run(self) -> None:
        while self.soon:
            self.turn()

    def pass_once(self) -> None:
        """One pass in uvloop's order, the harder one: due timers, scheduled callbacks, then the sockets."""
        due = [timer for timer in self.timers if timer.at <= self.monotonic]
        self.timers = [timer for timer in self.timers if timer.at > self.monotonic and not timer.cancelled]
        for timer in due:
            timer.run()
        self.turn()
        arrivals, self.arrivals = self.arrivals, []
        for arrival in arrivals:
            arrival()

    def jump(self, seconds: float) -> None:
        """Time passes while nothing runs; then each due timer fires once."""
        self.advance(seconds)
        self.pass_once()

    def pass_ms(self, ms: float) -> None:
        """Time passes; timers fire when due."""
        until = self._after(ms / 1000)
        self.run()
        while due := [timer for timer in self.timers if timer.at <= until and not timer.cancelled]:
            first = min(due, key=lambda timer: timer.at)
            self.timers.remove(first)
            self.advance(max(first.at - self.monotonic, 0))
            first.run()
            self.run()
        self.advance(until - self.monotonic)
