"""The witness: a fixed piece of Python on the server's core. Its duration shows how fast that core runs an interpreter at the moment.

Another virtual machine on the same physical core, invisible from this one, halves that speed. It hardly slows the floor, which spends its
time in the kernel. So each round waits, for a bounded time, until the witness is fast.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep, thread_time
from typing import Any, NamedTuple

from bench.machine import pinned

CALM_AT_MOST = 1.4  # times the shortest duration: alone on a core it varies by a quarter; beside another virtual machine it doubles
LOOK_INTERVAL_SECONDS = 0.1
FIRST_LOOKS_SECONDS = 3.0  # long enough to measure the shortest duration once, most likely
WAIT_SECONDS = 10.0  # how long one round may wait to begin
CALM_ENOUGH = 3  # from this number of calm rounds on, the others do not count
STEPS = 10_000

Sample = dict[str, Any]


class _Item:
    __slots__ = ("data", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.data = bytes(80)


class Witness:
    def __init__(self, core: int | None) -> None:
        self._core = core
        self._items = {number: _Item(number) for number in range(STEPS)}
        self.best = self.worst = self._time()

    def settle(self) -> None:
        """Find the shortest duration of the witness."""
        until = monotonic() + FIRST_LOOKS_SECONDS
        while monotonic() < until:
            self.measure()
            sleep(LOOK_INTERVAL_SECONDS)

    def measure(self) -> float:
        """The witness's present duration, as a multiple of its shortest so far."""
        now = self._time()
        self.best = min(self.best, now)
        self.worst = max(self.worst, now)
        return now / self.best

    @property
    def calm(self) -> bool:
        return self.measure() <= CALM_AT_MOST

    def _time(self) -> float:
        """Time work like a broker's: attributes, bytes and large numbers, spread over some memory."""
        items = self._items
        with pinned(self._core):
            begin = thread_time()
            for number in range(STEPS):
                item = items[number * 7_919 % STEPS]
                if item.data[8:40] != item.data[40:72]:
                    break
                item.number = (item.number + 1_700_000_000_000) % 45_000
            return thread_time() - begin

    def await_calm(self, seconds: float) -> None:
        until = monotonic() + seconds
        while not self.calm and monotonic() < until:
            sleep(LOOK_INTERVAL_SECONDS)


class Rounds(NamedTuple):
    """The measurements of each server: of the calm rounds, or of all rounds if too few were calm."""

    samples: dict[str, list[Sample]]
    calm_enough: bool
    calm: int
    taken: int


def measure_alternately(
    witness: Witness, rounds: int, patience: float, names: Callable[[], list[str]], measure: Callable[[str, int], Sample | None]
) -> Rounds:
    """Measure until there are `rounds` calm rounds, or `patience` seconds have gone into waiting and noisy rounds.

    `names`: returns the servers to measure, in order. After `measure` has returned None for a server (a failure), `names` leaves it out.
    """
    taken: list[tuple[bool, dict[str, Sample]]] = []
    calm = 0
    while calm < rounds and (patience > 0 or len(taken) < rounds):
        begin = monotonic()
        witness.await_calm(min(WAIT_SECONDS, patience))
        waited = monotonic() - begin
        is_calm = True
        samples: dict[str, Sample] = {}
        for name in names():
            sample = measure(name, len(taken))
            if sample is not None:
                samples[name] = sample
            is_calm &= witness.calm
        taken.append((is_calm, samples))
        calm += is_calm
        patience -= waited if is_calm else monotonic() - begin
    enough = calm >= min(rounds, CALM_ENOUGH)
    counting_rounds = [samples for is_calm, samples in taken if is_calm or not enough]
    return Rounds({name: [samples[name] for samples in counting_rounds] for name in names()}, enough, calm, len(taken))
