"""The turn, on a loop that the test runs step by step: no test waits."""

from __future__ import annotations

from typing import Any

import pytest

from broker.runtime.clock import Clock
from broker.runtime.contain import DEFECTS
from broker.runtime.turn import BUSY_LOGS, NEVER, Turn
from simulator.world import SECOND
from tests.support.stepped_loop import SteppedLoop


class Session:
    """A deadline handler with one deadline, like a member with a session."""

    def __init__(self, turn: Turn, timeout_ms: int) -> None:
        self.turn = turn
        self.timeout_ms = timeout_ms
        self.expired_at: int | None = None
        self.wake_at = turn.clock.now + timeout_ms
        turn.add_deadline_handler(self)

    def heartbeat(self) -> None:
        self.wake_at = self.turn.clock.tick() + self.timeout_ms

    def advance(self, now: int) -> None:
        self.expired_at = now
        self.wake_at = NEVER


class EndOfTurnActor:
    def __init__(self, name: str, story: list[str]) -> None:
        self.name = name
        self.story = story

    def end_turn(self) -> None:
        self.story.append(self.name)


@pytest.fixture
def loop() -> SteppedLoop:
    return SteppedLoop(100.0)


@pytest.fixture
def turn(loop: SteppedLoop) -> Turn:
    return Turn(loop, loop.clock())  # type: ignore[arg-type]


def test_a_busy_turn_reads_once_more_before_its_logs_are_written(turn: Turn, loop: SteppedLoop) -> None:
    story: list[str] = []
    journals = [EndOfTurnActor(str(number), story) for number in range(BUSY_LOGS + 1)]
    for journal in journals[:-1]:
        turn.call_first_at_turn_end(journal)
    loop.pass_once()
    turn.call_first_at_turn_end(journals[0])
    turn.call_first_at_turn_end(journals[-1])
    assert story == []
    loop.pass_once()
    turn.call_first_at_turn_end(journals[0])
    assert story == [journal.name for journal in journals]  # work scheduled after the end of the turn belongs to the next turn
    loop.pass_once()
    assert story[len(journals) :] == ["0"]


def test_the_end_of_a_turn_appends_once_before_answering(turn: Turn, loop: SteppedLoop) -> None:
    story: list[str] = []
    connection, journal = EndOfTurnActor("connection", story), EndOfTurnActor("journal", story)
    turn.call_at_turn_end(connection)
    turn.call_first_at_turn_end(journal)
    turn.call_first_at_turn_end(journal)
    turn.call_at_turn_end(connection)
    loop.pass_once()
    assert story == ["journal", "connection"]
    loop.pass_once()
    assert story == ["journal", "connection"]


def test_a_deadline_that_moved_later_is_met_at_its_new_time(turn: Turn, loop: SteppedLoop) -> None:
    session = Session(turn, 500)
    loop.advance(0.4)
    session.heartbeat()
    loop.advance(0.1)
    loop.pass_once()
    assert session.expired_at is None
    loop.advance(0.4)
    loop.pass_once()
    assert session.expired_at is not None


def test_a_deadline_that_moves_earlier_is_met_in_time(turn: Turn, loop: SteppedLoop) -> None:
    session = Session(turn, 60_000)
    session.wake_at = turn.clock.now + 100
    turn.wake_by(session.wake_at)
    loop.advance(0.11)
    loop.pass_once()
    assert session.expired_at is not None


def test_after_a_stopped_process_requests_are_read_before_members_expire(turn: Turn, loop: SteppedLoop) -> None:
    session = Session(turn, 500)
    loop.jump(30)  # as between SIGSTOP and SIGCONT
    session.heartbeat()
    for _ in range(5):
        loop.pass_once()
    assert session.expired_at is None
    loop.advance(0.51)
    for _ in range(6):
        loop.pass_once()
    assert session.expired_at is not None


@pytest.mark.parametrize("seconds", [-691_200, -61, 0, 61, 691_200])
def test_an_actor_is_advanced_exactly_when_due_whatever_the_wall_clock_does(turn: Turn, loop: SteppedLoop, seconds: int) -> None:
    session = Session(turn, 500)
    loop.advance(0.2)
    loop.wall_offset_ns += seconds * SECOND
    loop.advance(0.29)
    loop.pass_once()
    assert session.expired_at is None
    loop.advance(0.02)
    loop.pass_once()
    assert session.expired_at == turn.clock.now


def test_nothing_is_due_after_the_turn_is_closed(turn: Turn, loop: SteppedLoop) -> None:
    session = Session(turn, 500)
    turn.close()
    loop.advance(1)
    loop.pass_once()
    for at in (turn.clock.now, 0):
        turn.wake_by(at)
        for _ in range(6):
            loop.pass_once()
    assert session.expired_at is None
    assert loop.timers == []
    Turn(loop, loop.clock()).close()  # type: ignore[arg-type]  # without a deadline


def test_the_next_deadline_is_the_earliest_remaining_one(turn: Turn, loop: SteppedLoop) -> None:
    begin = turn.clock.tick()
    sessions = [Session(turn, timeout) for timeout in (900, 100, 500, 700)]
    for session in sorted(sessions, key=lambda waiting: waiting.timeout_ms):
        assert turn.armed_at == begin + session.timeout_ms
        pass_at(loop, turn, begin + session.timeout_ms)
        assert session.expired_at == begin + session.timeout_ms
    assert (turn.armed_at, loop.timers) == (NEVER, [])


def test_eight_logs_make_a_busy_turn_and_seven_do_not(turn: Turn, loop: SteppedLoop) -> None:
    for count, passes in ((7, 1), (8, 2), (8, 2)):
        story: list[str] = []
        for number in range(count):
            turn.call_first_at_turn_end(EndOfTurnActor(str(number), story))
        turn.call_at_turn_end(EndOfTurnActor("connection", story))
        loop.pass_once()
        assert bool(story) == (passes == 1)
        loop.pass_once()
        assert len(story) == count + 1


class RaisingWakeAt:
    """A deadline handler whose wake time raises from the first `advance` on."""

    name = "raising"

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.at = turn.clock.tick()
        self.endings = 0

    @property
    def wake_at(self) -> int:
        if self.at == NEVER:
            raise ZeroDivisionError
        return self.at

    def advance(self, now: int) -> None:
        self.at = NEVER

    def handle_defect(self) -> None:
        self.endings += 1


def test_an_actor_with_a_failing_deadline_is_retried_after_a_pause(turn: Turn, loop: SteppedLoop) -> None:
    begin = turn.clock.tick()
    raising = RaisingWakeAt(turn)
    turn.add_deadline_handler(raising)
    loop.pass_once()
    assert (turn.armed_at, raising.endings) == (begin + 250, 0)
    pass_at(loop, turn, begin + 250)
    assert (turn.armed_at, raising.endings) == (begin + 500, 1)
    pass_at(loop, turn, begin + 500)
    assert (turn.armed_at, raising.endings) == (begin + 1_000, 2)


@pytest.mark.plain
def test_deadlines_are_retried_a_quarter_second_after_a_clock_failure(
    turn: Turn, loop: SteppedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(turn, 500)
    late = Session(turn, 10_000)

    def fails(clock: Clock) -> int:
        raise ZeroDivisionError("planted")

    loop.advance(0.6)  # the timer is late, so input is read before deadlines are enforced
    loop.pass_once()
    loop.pass_once()
    turn.wake_by(turn.armed_at - 1)  # an earlier deadline, set by that input
    defects = DEFECTS.count
    with monkeypatch.context() as patched:
        patched.setattr(Clock, "tick", fails)
        loop.pass_once()
        loop.pass_once()
    assert DEFECTS.count == defects + 2  # the timer's callback, and the callback that follows the reading of input
    assert ", the timer of all deadlines failed inside the broker: ZeroDivisionError: planted" in DEFECTS.last
    assert loop.delays() == [0.25]
    loop.advance(0.249)
    for _ in range(6):
        loop.pass_once()
    assert session.expired_at is None
    loop.advance(0.001)
    for _ in range(6):
        loop.pass_once()
    assert [due.expired_at for due in (session, late)] == [turn.clock.now, None]
    assert len(loop.timers) == 1


def pass_at(loop: SteppedLoop, turn: Turn, ms: int) -> None:
    """Advance the time to `ms` and run one pass of the loop."""
    loop.advance((ms - turn.clock.tick()) / 1000)
    assert turn.clock.tick() == ms
    loop.pass_once()


class Raising:
    """A deadline handler that is always due, and raises while `raising` is set."""

    name = "groups-3"

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.raises = True
        self.wake_at = turn.clock.tick()
        self.advanced: list[int] = []

    def advance(self, now: int) -> None:
        self.advanced.append(now)
        if self.raises:
            raise ZeroDivisionError
        self.wake_at = NEVER


def test_an_actor_that_raises_pauses_twice_as_long_each_time(turn: Turn, loop: SteppedLoop) -> None:
    begin = turn.clock.tick()
    raising = Raising(turn)
    turn.add_deadline_handler(raising)
    loop.pass_once()
    expected = [begin]
    for pause in (250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000):
        at = expected[-1] + pause
        assert turn.armed_at == at
        turn.wake_by(at - 1)  # a deadline of another handler, 1 ms before
        pass_at(loop, turn, at - 1)
        assert raising.advanced == expected
        pass_at(loop, turn, at)
        expected.append(at)
        assert raising.advanced == expected
    raising.raises = False
    pass_at(loop, turn, expected[-1] + 15_000)
    assert turn.armed_at == NEVER
    raising.raises, raising.wake_at = True, turn.clock.tick() + 10
    turn.wake_by(raising.wake_at)
    pass_at(loop, turn, raising.wake_at)
    assert turn.armed_at == raising.advanced[-1] + 250


def test_a_pausing_actor_does_not_delay_other_actors(turn: Turn, loop: SteppedLoop) -> None:
    begin = turn.clock.tick()
    raising = Raising(turn)
    turn.add_deadline_handler(raising)
    first, second = Session(turn, 100), Session(turn, 260)
    loop.pass_once()
    assert turn.armed_at == begin + 100
    pass_at(loop, turn, begin + 100)
    assert (first.expired_at, turn.armed_at) == (begin + 100, begin + 250)
    pass_at(loop, turn, begin + 250)
    assert (raising.advanced, turn.armed_at) == ([begin, begin + 250], begin + 260)
    pass_at(loop, turn, begin + 260)
    assert (second.expired_at, turn.armed_at) == (begin + 260, begin + 750)


@pytest.mark.parametrize(("late_ms", "at_once"), [(0, True), (50, True), (51, False)])
def test_a_timer_that_fires_more_than_fifty_milliseconds_late_lets_input_be_read_first(
    turn: Turn, loop: SteppedLoop, late_ms: int, at_once: bool
) -> None:
    session = Session(turn, 500)
    pass_at(loop, turn, session.wake_at + late_ms)
    assert (session.expired_at is not None) == at_once
    for _ in range(3):
        loop.pass_once()
    assert session.expired_at is not None


def test_only_one_timer_is_set_and_an_equal_deadline_keeps_it(turn: Turn, loop: SteppedLoop) -> None:
    session = Session(turn, 500)
    (timer,) = loop.timers
    turn.wake_by(session.wake_at)
    turn.wake_by(session.wake_at + 1)
    assert loop.timers == [timer]
    turn.wake_by(session.wake_at - 1)
    (earlier,) = loop.timers
    assert timer.cancelled()
    assert earlier.when() < timer.when()
    pass_at(loop, turn, session.wake_at - 1)
    assert len(loop.timers) == 1
    turn.close()
    assert loop.timers == []


@pytest.mark.plain
def test_an_exception_in_a_turn_is_logged_with_its_callback(turn: Turn, loop: SteppedLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[tuple[object, str, dict[str, object]]] = []
    monkeypatch.setattr("broker.runtime.turn.report_broken", lambda owner, event, error, **details: failures.append((owner, event, details)))
    raising = Raising(turn)
    turn.add_deadline_handler(raising)
    no_list: Any = None
    journal, connection = EndOfTurnActor("journal", no_list), EndOfTurnActor("connection", no_list)
    turn.call_first_at_turn_end(journal)
    turn.call_at_turn_end(connection)
    loop.pass_once()
    assert failures == [
        (raising, "a deadline failed inside the broker", {"log": "groups-3"}),
        (journal, "the end of a turn failed inside the broker", {"part": "EndOfTurnActor"}),
        (connection, "the end of a turn failed inside the broker", {"part": "EndOfTurnActor"}),
    ]
