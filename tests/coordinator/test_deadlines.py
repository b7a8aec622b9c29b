"""The deadline wheel, compared with a plain list of all items."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator.deadlines import NEVER, TICK_MS, Deadlines, Timed

pytestmark = pytest.mark.once  # no dependence on the Python version

ITEMS = 5
BEGIN = 1_000_037

# Intervals at the edges of ticks, around them, and far away.
gaps = st.one_of(st.integers(0, 3 * TICK_MS), st.sampled_from([0, 1, TICK_MS - 1, TICK_MS, TICK_MS + 1, 10_000]))
items = st.integers(0, ITEMS - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), items, gaps),
        st.tuples(st.just("lives"), items, gaps),  # as a heartbeat does: no check unless the deadline moves earlier
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

    def do(self, what: str, who: int, gap: int) -> None:
        item, at = self.items[who], self.now + gap
        if what == "set":
            self.wheel.set(item, at)
            self.plain[who] = at
        elif what == "lives":
            item.deadline = self.plain[who] = at
            if at < item.scheduled_at:
                self.wheel.reschedule(item)
        elif what == "remove":
            self.wheel.remove(item)
            self.plain[who] = NEVER
        else:
            self.advance(at)
        assert self.wheel.wake_at <= min(self.plain), "it would wake too late"
        scheduled_at = [item for slot in self.wheel._slots.values() for item in slot]
        assert len(scheduled_at) == len(set(scheduled_at)), "scheduled_at twice"
        assert all(item.deadline != NEVER for item in scheduled_at), "scheduled_at without a deadline"

    def advance(self, until: int) -> None:
        """As a loop does: wake at `wake_at`, each time until nothing is due."""
        while True:
            while (item := self.wheel.pop(self.now)) is not None:
                who = self.items.index(item)
                # If woken at each `wake_at`, every item fires to the millisecond.
                assert self.plain[who] == self.now, "too early, too late, or a second time"
                self.fired.append(who)
                self.plain[who] = NEVER
            assert min(self.plain) > self.now, "somebody is due and was not called"
            assert self.wheel.wake_at > self.now, "it does not come to rest"
            if self.now == until:
                return
            self.now = min(until, self.wheel.wake_at)


@given(steps)
@example([("set", 0, 102), ("advance", 0, 101), ("set", 0, 2)])  # moved to within the current tick
def test_every_deadline_fires_once_and_in_time(todo: list[tuple[str, int, int]]) -> None:
    both = WheelAndList()
    for step in todo:
        both.do(*step)
    waiting = [who for who, deadline in enumerate(both.plain) if deadline != NEVER]
    before = len(both.fired)
    both.advance(both.now + 20_000)
    assert sorted(both.fired[before:]) == waiting
    assert both.wheel.wake_at == NEVER


@given(st.lists(gaps, min_size=1, max_size=20))
def test_deadlines_fire_in_order(waits: list[int]) -> None:
    wheel = Deadlines()
    waiting = [Timed() for _ in waits]
    for one, gap in zip(waiting, waits, strict=True):
        wheel.set(one, BEGIN + gap)
    called = []
    while (item := wheel.pop(BEGIN + 20_000)) is not None:
        called.append(waits[waiting.index(item)])
    assert called == sorted(waits)


@given(st.lists(gaps, min_size=1, max_size=8), gaps)
def test_a_deadline_may_be_extended_while_another_fires(waits: list[int], more: int) -> None:
    wheel = Deadlines()
    items_ = [Timed() for _ in waits]
    for one, gap in zip(items_, waits, strict=True):
        wheel.set(one, BEGIN + gap)
    now = BEGIN + max(waits)
    first = wheel.pop(now)
    assert first is not None
    for one in items_:
        if one is not first:
            one.deadline = now + more + 1
    assert wheel.pop(now) is None
    found = []
    while (item := wheel.pop(now + more + 1)) is not None:
        found.append(item)
    assert {id(one) for one in found} == {id(one) for one in items_ if one is not first}


def test_a_deadline_that_moves_later_schedules_nothing() -> None:
    wheel, item = Deadlines(), Timed()
    wheel.set(item, BEGIN + 5_000)
    before = wheel.wake_at
    for beat in range(1, 100):
        wheel.set(item, BEGIN + 5_000 + beat)
    assert wheel.wake_at == before
    assert len(wheel._moments) == 1
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
def test_simultaneous_deadlines_fire_sessions_before_phases_in_filing_order() -> None:
    class Phase(Timed):
        rank = 1

    wheel = Deadlines()
    items = [Phase(), Timed(), Phase(), Timed(), Timed()]
    for item in items:
        wheel.set(item, BEGIN)
    assert wheel.pop(BEGIN - 1) is None  # from here on they are checked by the millisecond
    popped = [wheel.pop(BEGIN) for _ in items]
    assert popped == [items[1], items[3], items[4], items[0], items[2]]


def test_distant_deadlines_stay_in_their_slot() -> None:
    wheel, item = Deadlines(), Timed()
    wheel.set(item, BEGIN + 1_000)
    item.deadline = BEGIN + 5_000  # a heartbeat
    moment = wheel.wake_at
    assert wheel.pop(moment) is None
    assert not wheel._soon
    assert moment + 4_000 - TICK_MS <= wheel.wake_at <= BEGIN + 5_000


def test_an_item_without_a_deadline_is_not_filed_again() -> None:
    """Such as a parked member's."""
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
