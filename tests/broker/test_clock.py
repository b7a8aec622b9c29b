from __future__ import annotations

from broker.clock import Clock


class Machine:
    """A machine with a wall clock and a monotonic one, both in seconds."""

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self.wall = wall
        self.monotonic = 50.0

    def clock(self, at_least: int = 0) -> Clock:
        return Clock(lambda: round(self.wall * 1e9), lambda: round(self.monotonic * 1e9), at_least)

    def lives(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def sleeps(self, seconds: float) -> None:
        self.wall += seconds


def test_it_starts_at_wall_time_and_follows_the_monotonic_clock() -> None:
    machine = Machine()
    clock = machine.clock()
    assert clock.now == 1_700_000_000_000
    machine.lives(1.5)
    assert clock.tick() == 1_700_000_001_500


def test_a_wall_clock_that_is_set_back_is_ignored() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.lives(2)
    machine.wall -= 3600
    assert clock.read() == 0
    assert clock.now == 1_700_000_002_000


def test_a_machine_that_slept_makes_the_time_jump_once() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.sleeps(600)
    assert clock.tick() == 1_700_000_000_000
    assert clock.read() == 600_000
    assert clock.now == 1_700_000_600_000
    assert clock.read() == 0


def test_a_wall_clock_that_drifts_ahead_by_less_than_a_second_is_no_sleep() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.sleeps(0.9)
    assert clock.read() == 0
    assert clock.now == 1_700_000_000_000


def test_it_starts_no_earlier_than_what_was_stored() -> None:
    machine = Machine()
    assert machine.clock(at_least=1_800_000_000_000).now == 1_800_000_000_000
    clock = machine.clock()
    before = clock.now
    assert clock.raise_to(1_750_000_000_000) == 1_750_000_000_000 - before
    assert clock.raise_to(before) == 0
    machine.lives(1)
    assert clock.tick() == 1_750_000_001_000
    assert clock.read() == 0
