"""The timer wheel, compared with a plain list of all items."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator.deadlines import NEVER, TICK_MS, Deadlines, Timed

pytestmark = pytest.mark.once  # no dependence on the Python version

ITEMS = 5
BEGIN = 1_000_037

# Intervals at the edges of ticks, next to the edges, and much longer ones.
gaps = st.one_of(st.integers(0, 3 * TICK_MS), st.sampled_from([0, 1, TICK_MS - 1, TICK_MS, TICK_MS + 1, 10_000]))
items = st.integers(0, ITEMS - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), items, gaps),
        st.tuples(st.just("heartbeat"), items, gaps),  # changes only the item; the wheel learns of it only if the deadline becomes earlier
        st.tuples(st.just("remove"), items, st.just(0)),
        st.tuples(st.just("advance"), st.just(0), gaps),
    ),
    max_size=40,
)


class WheelAndList:
    """The wheel, and the list that it must agree with."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.wheel = Deadlines()
        self.items = [Timed() for _ in range(ITEMS)]
        self.plain = [NEVER] * ITEMS
        self.fired: list[int] = []

    def do(self, step: str, number: int, gap: int) -> None:
        item, at = self.items[number], self.now + gap
        if step == "set":
            self.wheel.set(item, at)
            self.plain[number] = at
        elif step == "heartbeat":
            item.deadline = self.plain[number] = at
            if at < item.scheduled_at:
                self.wheel.reschedule(item)
        elif step == "remove":
            self.wheel.remove(item)
            self.plain[number] = NEVER
        else:
            self.advance(at)
        assert self.wheel.wake_at <= min(self.plain), "the wheel would wake too late"
        scheduled = [item for slot in self.wheel._slots.values() for item in slot]
        assert len(scheduled) == len(set(scheduled)), "scheduled twice"
        assert all(item.deadline != NEVER for item in scheduled), "scheduled without a deadline"

    def advance(self, until: int) -> None:
        """Advance the time as an event loop does: wake at each `wake_at`, and pop all items that are due."""
        while True:
            while (item := self.wheel.pop(self.now)) is not None:
                number = self.items.index(item)
                # If the loop wakes at each `wake_at`, every item fires to the millisecond.
                assert self.plain[number] == self.now, "too early, too late, or a second time"
                self.fired.append(number)
                self.plain[number] = NEVER
            assert min(self.plain) > self.now, "an item is due and was not popped"
            assert self.wheel.wake_at > self.now, "the wheel would wake again at once"
            if self.now == until:
                return
            self.now = min(until, self.wheel.wake_at)


@given(steps)
@example([("set", 0, 102), ("advance", 0, 101), ("set", 0, 2)])  # moved to within the current tick
def test_every_deadline_fires_once_and_in_time(todo: list[tuple[str, int, int]]) -> None:
    both = WheelAndList()
    for step in todo:
        both.do(*step)
    waiting = [number for number, deadline in enumerate(both.plain) if deadline != NEVER]
    fired = len(both.fired)
    both.advance(both.now + 20_000)
    assert sorted(both.fired[fired:]) == waiting
    assert both.wheel.wake_at == NEVER


def wheel_of(waits: list[int]) -> tuple[Deadlines, list[Timed]]:
    wheel, timed = Deadlines(), [Timed() for _ in waits]
    for item, gap in zip(timed, waits, strict=True):
        wheel.set(item, BEGIN + gap)
    return wheel, timed


def pop_all(wheel: Deadlines, now: int) -> list[Timed]:
    popped = []
    while (item := wheel.pop(now)) is not None:
        popped.append(item)
    return popped


@given(st.lists(gaps, min_size=1, max_size=20))
def test_deadlines_fire_in_order(waits: list[int]) -> None:
    wheel, timed = wheel_of(waits)
    assert [waits[timed.index(item)] for item in pop_all(wheel, BEGIN + 20_000)] == sorted(waits)


@given(st.lists(gaps, min_size=1, max_size=8), gaps)
def test_a_deadline_may_be_extended_while_another_fires(waits: list[int], more: int) -> None:
    wheel, timed = wheel_of(waits)
    now = BEGIN + max(waits)
    first = wheel.pop(now)
    assert first is not None
    timed.remove(first)
    for item in timed:
        item.deadline = now + more + 1
    assert wheel.pop(now) is None
    assert set(pop_all(wheel, now + more + 1)) == set(timed)


def test_a_deadline_that_moves_later_schedules_nothing() -> None:
    wheel, item = Deadlines(), Timed()
    wheel.set(item, BEGIN + 5_000)
    before = wheel.wake_at
    for beat in range(1, 100):
        wheel.set(item, BEGIN + 5_000 + beat)
    assert wheel.wake_at == before
    assert len(wheel._slot_starts) == 1
    assert wheel.pop(before) is None
    assert before < wheel.wake_at <= BEGIN + 5_099


def test_a_deadline_that_moves_earlier_lowers_the_moment_to_wake() -> None:
    wheel, item = Deadlines(), Timed()
    wheel.set(item, BEGIN + 60_000)
    wheel.set(item, BEGIN + 50)
    assert wheel.wake_at <= BEGIN + 50
    assert wheel.pop(BEGIN + 49) is None
    assert wheel.pop(BEGIN + 50) is item
    assert wheel.pop(BEGIN + 100_000) is None


@pytest.mark.plain
def test_of_equal_deadlines_the_smaller_rank_fires_first_then_the_earlier_item() -> None:
    class Phase(Timed):
        rank = 1

    wheel = Deadlines()
    items = [Phase(), Timed(), Phase(), Timed(), Timed()]
    for item in items:
        wheel.set(item, BEGIN)
    assert wheel.pop(BEGIN - 1) is None  # moves the items from their slot to the heap of the current tick
    assert pop_all(wheel, BEGIN) == [items[1], items[3], items[4], items[0], items[2]]


def test_distant_deadlines_stay_in_their_slot() -> None:
    wheel, item = Deadlines(), Timed()
    wheel.set(item, BEGIN + 1_000)
    item.deadline = BEGIN + 5_000  # a heartbeat
    moment = wheel.wake_at
    assert wheel.pop(moment) is None
    assert not wheel._due
    assert moment + 4_000 - TICK_MS <= wheel.wake_at <= BEGIN + 5_000


def test_an_item_without_a_deadline_is_not_scheduled_again() -> None:
    """A parked member, for example, has no deadline."""
    wheel, item = Deadlines(), Timed()
    wheel.set(item, BEGIN)
    item.deadline = NEVER
    assert wheel.pop(BEGIN) is None
    assert (item.scheduled_at, wheel.wake_at, wheel._slots) == (NEVER, NEVER, {})


def test_a_wheel_without_deadlines_never_wakes() -> None:
    wheel = Deadlines()
    assert wheel.wake_at == NEVER
    assert wheel.pop(BEGIN) is None
    item = Timed()
    wheel.set(item, BEGIN)
    wheel.remove(item)
    assert wheel.pop(BEGIN + 1) is None
    assert wheel.wake_at == NEVER
