"""The simulator's event loop, driven by a test: time passes and callbacks run only when the test calls its methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.runtime.clock import Clock
from simulator.disk import SimDisk
from simulator.loop import Handle, SimLoop, TimerHandle
from simulator.world import MS, SECOND, World


class SteppedLoop(SimLoop):
    def __init__(self, seconds: float = 1_000.0) -> None:
        """`seconds`: the time of both clocks at the beginning."""
        self.world = World(0)
        self.world.now = round(seconds * SECOND)
        self.wall_offset_ns = 0  # wall time minus virtual time; a test changes it to set the wall clock
        self._timers: dict[Handle, TimerHandle] = {}
        super().__init__(self.world, SimDisk(), lambda: None)

    def _await_pass(self) -> None:
        """Do nothing: in the simulator this schedules the next pass of the loop, which here the test runs."""

    def _call_at(self, moment: int, callback: Callable[..., object], args: tuple[Any, ...]) -> TimerHandle:
        timer = super()._call_at(moment, callback, args)
        self._timers[timer.handle] = timer
        return timer

    def _due(self, handle: Handle) -> None:
        del self._timers[handle]
        super()._due(handle)

    @property
    def timers(self) -> list[TimerHandle]:
        """The timers that were not cancelled."""
        return [timer for timer in self._timers.values() if not timer.cancelled()]

    def delays(self) -> list[float]:
        """The seconds until each timer fires."""
        return [round(timer.when() - self.time(), 6) for timer in self.timers]

    @property
    def busy(self) -> bool:
        """Whether callbacks wait for the next pass."""
        return bool(self._ready)

    def clock(self) -> Clock:
        return Clock(lambda: self.world.now + self.wall_offset_ns, lambda: self.world.now)

    def advance(self, seconds: float) -> None:
        """Advance both clocks; no callback runs."""
        self.world.now += round(seconds * SECOND)

    def pass_once(self) -> None:
        """Run due timers, then scheduled callbacks. The test sends data after this call, because uvloop reads sockets last (the harder order)."""
        self.world.run_until(self.world.now)
        self.run_pass()

    def run(self) -> None:
        """Run callbacks until none is scheduled; no timer fires."""
        while self._ready:
            self.run_pass()

    def jump(self, seconds: float) -> None:
        """Advance the time without running callbacks, as if the loop were stalled; then each due timer fires once."""
        self.advance(seconds)
        self.pass_once()

    def pass_ms(self, ms: float) -> None:
        """Advance the time; each timer fires at the moment when it is due."""
        until = self.world.now + round(ms * MS)
        self.run()
        while self.world.next_at <= until:
            self.world.run_until(self.world.next_at)
            self.run_pass()
            self.run()
        self.world.run_until(until)
