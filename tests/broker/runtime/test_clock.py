"""The clock on machines whose wall clock is right, wrong, set, or drifts, and on those that sleep."""

from __future__ import annotations

import pytest

from broker.runtime.clock import NOT_YET, Clock, boot_clock

BEGIN = 1_700_000_000_000
MINUTE = 60_000
DAY = 86_400_000
SETTLE = 10 * MINUTE


class Machine:
    """A machine's wall clock, monotonic clock and time slept, in milliseconds."""

    def __init__(self) -> None:
        self.wall = BEGIN
        self.monotonic = 50_000
        self.slept = 7_000  # the machine also slept before the start of the broker
        self.clock = self.start()

    def start(self, last_use: int | None = None) -> Clock:
        """Start a broker's clock. `last_use`: the time at which its data directory was last used; None: a new directory."""
        self.clock = Clock(
            lambda: self.wall * 1_000_000,
            lambda: self.monotonic * 1_000_000,
            lambda: (self.monotonic + self.slept) * 1_000_000,
            SETTLE,
        )
        if last_use is not None:
            self.clock.start_after(last_use)
        return self.clock

    def pass_ms(self, ms: int, step: int = 1_000, drift: float = 0.0) -> None:
        """Let time pass, with regular checks of the clock."""
        while ms > 0:
            passed = min(ms, step)
            ms -= passed
            self.monotonic += passed
            self.wall += round(passed * (1 + drift))
            self.clock.wall_for_deletion()

    def set_wall_clock(self, by: int) -> None:
        self.wall += by
        self.clock.wall_for_deletion()

    def sleeps(self, ms: int) -> None:
        self.slept += ms
        self.wall += ms


@pytest.fixture
def machine() -> Machine:
    return Machine()


def times(machine: Machine) -> tuple[int, int]:
    """How far the times for deadlines (`now`) and for records (`wall`) have advanced since the start."""
    machine.clock.wall_for_deletion()
    return machine.clock.now - 50_000, machine.clock.wall - BEGIN


def test_deadlines_follow_the_monotonic_clock_and_records_the_wall_clock(machine: Machine) -> None:
    assert times(machine) == (0, 0)
    machine.pass_ms(1_500)
    assert times(machine) == (1_500, 1_500)
    assert machine.clock.wall_for_deletion() == BEGIN + 1_500
    assert machine.clock.steady_since_ms == BEGIN
    assert machine.clock.problem == ""


@pytest.mark.parametrize("step", [-MINUTE, -1_000, 1_000, MINUTE])
def test_a_small_step_of_the_wall_clock_counts_at_once(machine: Machine, step: int) -> None:
    machine.set_wall_clock(step)
    machine.pass_ms(1_000)
    assert times(machine) == (1_000, 1_000 + step)
    assert machine.clock.settled


@pytest.mark.parametrize("days", [8, 1, -1, -8])
def test_two_seconds_of_a_wrong_clock_delete_nothing(machine: Machine, days: int) -> None:
    machine.pass_ms(MINUTE)
    machine.set_wall_clock(days * DAY)
    assert machine.clock.wall_for_deletion() == NOT_YET  # the first check after the step notices it
    assert machine.clock.steady_since_ms == NOT_YET
    machine.pass_ms(2_000)
    machine.set_wall_clock(-days * DAY)
    machine.pass_ms(SETTLE - 1)
    assert machine.clock.wall_for_deletion() == NOT_YET
    machine.pass_ms(1)
    assert machine.clock.wall_for_deletion() == BEGIN + MINUTE + 2_000 + SETTLE
    assert machine.clock.steady_since_ms == BEGIN + MINUTE + 2_000


def test_a_clock_set_ahead_is_shown_at_once_and_trusted_after_the_wait(machine: Machine) -> None:
    machine.set_wall_clock(DAY)
    assert times(machine) == (0, DAY)
    machine.pass_ms(SETTLE - 1)
    assert not machine.clock.settled
    machine.pass_ms(1)
    assert machine.clock.wall_for_deletion() == BEGIN + DAY + SETTLE


def test_a_clock_set_back_is_followed_after_the_wait(machine: Machine) -> None:
    """Without the wait, records stored under a clock that is briefly wrong would look old after its correction."""
    machine.set_wall_clock(-DAY)
    machine.pass_ms(1_000)
    assert times(machine) == (1_000, 1_000)
    machine.pass_ms(SETTLE - 1_001)
    assert times(machine) == (SETTLE - 1, SETTLE - 1)
    machine.pass_ms(1)
    assert times(machine) == (SETTLE, SETTLE - DAY)
    assert machine.clock.steady_since_ms == BEGIN - DAY


def test_records_stored_after_a_clock_correction_have_the_right_time(machine: Machine) -> None:
    machine.set_wall_clock(8 * DAY)
    machine.pass_ms(2_000)
    assert times(machine) == (2_000, 8 * DAY + 2_000)
    machine.set_wall_clock(-8 * DAY)
    assert times(machine) == (2_000, 2_000)


def test_a_further_step_restarts_the_wait(machine: Machine) -> None:
    machine.set_wall_clock(DAY)
    machine.pass_ms(SETTLE - 1_000)
    machine.set_wall_clock(2 * MINUTE)
    machine.pass_ms(SETTLE - 1_000)
    assert not machine.clock.settled
    machine.set_wall_clock(-2 * MINUTE)
    machine.pass_ms(SETTLE - 1)
    assert not machine.clock.settled
    machine.pass_ms(1)
    assert machine.clock.settled


def test_repeated_clock_steps_never_settle(machine: Machine) -> None:
    for _ in range(5):
        machine.set_wall_clock(DAY)
        machine.pass_ms(SETTLE // 2)
        machine.set_wall_clock(-DAY)
        machine.pass_ms(SETTLE // 2)
        assert machine.clock.wall_for_deletion() == NOT_YET
    assert times(machine) == (5 * SETTLE, 5 * SETTLE)


def test_small_steps_add_up(machine: Machine) -> None:
    machine.set_wall_clock(MINUTE - 1)
    machine.pass_ms(DAY, MINUTE)
    assert machine.clock.settled
    machine.set_wall_clock(2)
    machine.clock.wall_for_deletion()
    assert not machine.clock.settled


@pytest.mark.parametrize("drift", [0.001, -0.001])
def test_a_slow_drift_adds_up_to_a_step(machine: Machine, drift: float) -> None:
    machine.pass_ms(60_000_000, drift=drift)
    assert machine.clock.settled
    machine.pass_ms(1_000, drift=drift)
    assert not machine.clock.settled
    machine.pass_ms(SETTLE, drift=drift)
    assert machine.clock.settled
    machine.pass_ms(59_000_000, drift=drift)
    assert machine.clock.settled
    machine.pass_ms(1_001_000, drift=drift)
    assert not machine.clock.settled


def test_drift_during_the_wait_restarts_it_only_beyond_a_minute(machine: Machine) -> None:
    machine.set_wall_clock(DAY)
    machine.pass_ms(SETTLE, drift=0.09)
    assert machine.clock.settled
    machine.set_wall_clock(DAY)
    machine.pass_ms(SETTLE, drift=0.11)
    assert not machine.clock.settled


@pytest.mark.parametrize("slept", [30_000, 9 * DAY])
def test_machine_sleep_is_no_clock_step(machine: Machine, slept: int) -> None:
    for _ in range(5):
        machine.pass_ms(1_000)
        machine.sleeps(slept)
    assert times(machine) == (5_000, 5_000 + 5 * slept)  # sleep does not count for deadlines
    assert machine.clock.wall_for_deletion() == BEGIN + 5_000 + 5 * slept


def test_a_clock_that_is_set_while_the_machine_sleeps_is_a_step(machine: Machine) -> None:
    machine.sleeps(DAY)
    machine.wall += 2 * MINUTE
    assert machine.clock.wall_for_deletion() == NOT_YET
    machine.sleeps(DAY)  # sleep neither ends nor restarts the wait
    machine.pass_ms(SETTLE - 1)
    assert machine.clock.wall_for_deletion() == NOT_YET
    machine.pass_ms(1)
    assert machine.clock.wall_for_deletion() == BEGIN + 2 * DAY + 2 * MINUTE + SETTLE


def test_a_clock_set_back_during_the_wait_stays_at_its_trusted_time_sleep_included(machine: Machine) -> None:
    machine.set_wall_clock(-DAY)
    machine.clock.wall_for_deletion()
    machine.sleeps(3 * MINUTE)
    assert times(machine) == (0, 3 * MINUTE)


# Starts.


@pytest.mark.parametrize("stopped_ms", [-MINUTE, 0, MINUTE])
def test_a_start_soon_after_the_last_use_deletes_at_once(machine: Machine, stopped_ms: int) -> None:
    assert machine.start(BEGIN - stopped_ms).wall_for_deletion() == BEGIN


@pytest.mark.parametrize("stopped_ms", [-8 * DAY, -MINUTE - 1, MINUTE + 1, 8 * DAY])
def test_a_start_long_after_or_before_the_last_use_waits(machine: Machine, stopped_ms: int) -> None:
    clock = machine.start(BEGIN - stopped_ms)
    assert clock.wall_for_deletion() == NOT_YET
    assert "suspended until 2023-11-" in clock.problem
    machine.pass_ms(SETTLE - 1)
    assert clock.wall_for_deletion() == NOT_YET
    machine.pass_ms(1)
    assert clock.wall_for_deletion() == BEGIN + SETTLE
    assert clock.steady_since_ms == BEGIN


def test_a_start_before_the_last_use_stores_nothing_older_than_that(machine: Machine) -> None:
    clock = machine.start(BEGIN + DAY)
    machine.pass_ms(1_000)
    assert clock.wall == BEGIN + DAY + 1_000
    machine.set_wall_clock(DAY)  # the clock is corrected, which counts as a step
    machine.pass_ms(1_000)
    assert clock.wall == BEGIN + DAY + 2_000
    machine.pass_ms(SETTLE)
    assert clock.wall_for_deletion() == BEGIN + DAY + 2_000 + SETTLE


def test_a_start_that_knows_no_last_use_waits_at_the_time_of_the_clock(machine: Machine) -> None:
    clock = machine.start(NOT_YET)
    assert (clock.wall_for_deletion(), clock.wall) == (NOT_YET, BEGIN)
    machine.pass_ms(SETTLE)
    assert clock.wall_for_deletion() == BEGIN + SETTLE


def test_a_wait_of_0_trusts_every_time_at_once(machine: Machine) -> None:
    clock = machine.clock = Clock(lambda: machine.wall * 1_000_000, lambda: machine.monotonic * 1_000_000)
    machine.set_wall_clock(DAY)
    assert clock.wall_for_deletion() == BEGIN + DAY
    machine.set_wall_clock(-2 * DAY)
    assert clock.wall_for_deletion() == BEGIN - DAY


def test_a_time_outside_of_the_calendar_can_be_printed(machine: Machine) -> None:
    for wall in (-(1 << 60), 1 << 60):
        machine.wall = wall
        assert machine.clock.wall_for_deletion() == NOT_YET
        assert machine.clock.problem


def test_this_machine_has_a_clock_that_counts_its_sleep() -> None:
    boot = boot_clock()
    first = boot()
    assert 0 < first <= boot()


def test_a_distant_or_stepped_clock_is_reported_once(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.start(BEGIN - 8 * DAY)
    machine.pass_ms(5_000)
    machine.set_wall_clock(-DAY)
    machine.pass_ms(SETTLE)
    lines = [line for line in capsys.readouterr().out.splitlines() if "deletion by time" in line]
    assert [("691200" in line, "86400" in line, "goes on" in line) for line in lines] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
