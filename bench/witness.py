"""A fixed piece of Python on the server's core: how long it takes says what that core gives to an interpreter just now.

A neighbour on the same physical core, a guest of the same host that nobody here sees, halves the speed of such code. In the
floor, whose time is the kernel's, it hardly shows. So rounds are taken when the witness is at its best, as long as that is
worth waiting for.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep, thread_time
from typing import Any, NamedTuple

from bench.machine import pinned

CALM_AT_MOST = 1.4  # times its best: alone it differs by a fourth, beside a neighbour it takes twice as long
LOOKS_APART_SECONDS = 0.1
FIRST_LOOKS_SECONDS = 3.0  # in which it has been at its best once, most likely
WAIT_SECONDS = 10.0  # for one round to begin
CALM_ENOUGH = 3  # rounds: their median is better than that of more rounds of both kinds
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
        """Find its best."""
        until = monotonic() + FIRST_LOOKS_SECONDS
        while monotonic() < until:
            self.look()
            sleep(LOOKS_APART_SECONDS)

    def look(self) -> float:
        """How long it takes, as a multiple of its best."""
        now = self._time()
        self.best = min(self.best, now)
        self.worst = max(self.worst, now)
        return now / self.best

    @property
    def calm(self) -> bool:
        return self.look() <= CALM_AT_MOST

    def _time(self) -> float:
        """A mix of attributes, a dict, bytes and large numbers, spread over some memory: the work of a broker in Python."""
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
            sleep(LOOKS_APART_SECONDS)


class Rounds(NamedTuple):
    """The measurements of each round, by subject: of the calm rounds, if there are enough."""

    samples: dict[str, list[Sample]]
    calm_enough: bool
    calm: int
    taken: int


def in_turn(
    witness: Witness, rounds: int, patience: float, names: Callable[[], list[str]], measure: Callable[[str, int], Sample | None]
) -> Rounds:
    """As many calm rounds as are asked for, unless that takes more than `patience` seconds of waiting and of noisy rounds.

    `names` are those that take their turn, in order; one that measures nothing (None) is not among them any more.
    """
    taken: list[tuple[bool, dict[str, Sample]]] = []
    calm = 0
    while calm < rounds and (patience > 0 or len(taken) < rounds):
        begin = monotonic()
        witness.await_calm(min(WAIT_SECONDS, patience))
        waited = monotonic() - begin
        is_calm = True
        found: dict[str, Sample] = {}
        for name in names():
            sample = measure(name, len(taken))
            if sample is not None:
                found[name] = sample
            is_calm &= witness.calm
        taken.append((is_calm, found))
        calm += is_calm
        patience -= waited if is_calm else monotonic() - begin
    enough = calm >= min(rounds, CALM_ENOUGH)
    kept = [found for is_calm, found in taken if is_calm or not enough]
    return Rounds({name: [found[name] for found in kept] for name in names()}, enough, calm, len(taken))
