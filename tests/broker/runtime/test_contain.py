"""An exception in a connection, journal, deadline handler or callback ends only that part."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from broker.groups.journal import close_failed_reply
from broker.net.long_replies import LongReplies
from broker.runtime.contain import DEFECTS, Contained, Defects, contained_task, handle_loop_exception, report_broken, run_contained
from broker.runtime.turn import NEVER, Turn
from broker.topics.retention import PartitionJobLoop
from broker.topics.waiting_fetches import ParkedFetches
from coordinator.hold import Hold, ReplyParts
from tests.support.stepped_loop import SteppedLoop


class Planted(Exception):
    """The exception planted by the tests."""


class TurnWorld:
    """A turn whose time the test moves."""

    def __init__(self) -> None:
        self.loop = SteppedLoop(100.0)
        self.clock = self.loop.clock()
        self.turn = Turn(self.loop, self.clock)  # type: ignore[arg-type]

    def run(self, seconds: float = 0.0, passes: int = 6) -> None:
        self.loop.advance(seconds)
        for _ in range(passes):
            self.loop.pass_once()


@pytest.fixture
def world() -> TurnWorld:
    return TurnWorld()


@pytest.fixture
def planted() -> Callable[[], int]:
    """Returns the number of defects counted since the beginning of the test."""
    before = DEFECTS.count
    return lambda: DEFECTS.count - before


class Part:
    """A participant of the turn, with end-of-turn work and a deadline; the calls named in `raising` raise."""

    name = "part"
    error = 0

    def __init__(self, *raising: str) -> None:
        self.raising = raising
        self.called: list[str] = []
        self.at = NEVER
        self.period = 0

    def _call(self, name: str) -> None:
        self.called.append(name)
        if name in self.raising:
            raise Planted(name)

    @property
    def wake_at(self) -> int:
        if "wake_at" in self.raising:
            self._call("wake_at")
        return self.at

    def end_turn(self) -> None:
        self._call("end_turn")

    def advance(self, now: int) -> None:
        self._call("advance")
        self.at = now + self.period if self.period else NEVER

    def handle_defect(self) -> None:
        self._call("handle_defect")


@pytest.mark.parametrize("method", ["call_first_at_turn_end", "call_at_turn_end"])
def test_all_end_of_turn_callbacks_run_even_if_one_raises(world: TurnWorld, planted: Callable[[], int], method: str) -> None:
    first, raising_part, last = Part(), Part("end_turn"), Part()
    late_part = Part()
    for part in (first, raising_part, last):
        getattr(world.turn, method)(part)
    world.turn.call_at_turn_end(late_part)
    world.run()
    assert raising_part.called == ["end_turn", "handle_defect"]
    assert first.called == last.called == late_part.called == ["end_turn"]
    assert planted() == 1
    getattr(world.turn, method)(first)
    world.run()
    assert first.called == ["end_turn"] * 2, "the next turn runs all callbacks too"


def test_an_exception_in_a_fault_handler_is_contained(world: TurnWorld, planted: Callable[[], int]) -> None:
    raising_part, last = Part("end_turn", "handle_defect"), Part()
    world.turn.call_first_at_turn_end(raising_part)
    world.turn.call_first_at_turn_end(last)
    world.run()
    assert (last.called, planted()) == (["end_turn"], 2)


@pytest.mark.parametrize("raising", ["advance", "wake_at"])
def test_an_actor_that_raises_does_not_delay_other_deadlines(world: TurnWorld, planted: Callable[[], int], raising: str) -> None:
    raising_part, sound_part = Part(), Part()
    raising_part.at = sound_part.at = world.clock.now + 100
    sound_part.period = 100
    world.turn.add_deadline_handler(raising_part)
    world.turn.add_deadline_handler(sound_part)
    raising_part.raising = (raising,)
    for _ in range(10):
        world.run(0.101)
    assert sound_part.called.count("advance") == 10
    assert raising_part.called.count("handle_defect") == planted()


class Writer:
    """A connection with a long reply."""

    def __init__(self, raising: bool = False) -> None:
        self.raising = raising
        self.left = 3
        self.ended = False

    @property
    def can_write_piece(self) -> bool:
        return self.left > 0

    def write_piece(self, bytes_max: int) -> int:
        if self.raising:
            raise Planted
        self.left -= 1
        return 1

    def handle_defect(self) -> None:
        self.ended = True


def test_a_raising_long_reply_ends_only_its_connection(world: TurnWorld, planted: Callable[[], int]) -> None:
    replies = LongReplies(world.turn)
    writers = [Writer(), Writer(True), Writer()]
    for writer in writers:
        replies.resume(writer)
    world.run()
    assert [writer.left for writer in writers] == [0, 3, 0]
    assert [writer.ended for writer in writers] == [False, True, False]
    assert planted() == 1


class Waiter:
    """A connection and its waiting fetch in one object; `raising` names the call that raises."""

    def __init__(self, raising: str = "") -> None:
        self.raising = raising
        self.on_lost: Any = None
        self.completed = self.ended = False

    def has_enough(self, grown: Any) -> bool:
        if self.raising == "enough":
            raise Planted
        return True

    def complete(self) -> None:
        if self.raising == "complete":
            raise Planted
        self.completed = True

    def handle_defect(self) -> None:
        self.ended = True


class WaitedPartition:
    """The part of a partition that waiting fetches use."""

    def __init__(self) -> None:
        self.waiters: dict[Any, None] = {}


@pytest.mark.plain
@pytest.mark.parametrize("raising", ["enough", "complete"])
@pytest.mark.parametrize("due", [False, True])
def test_a_raising_waiting_fetch_ends_only_its_connection(world: TurnWorld, planted: Callable[[], int], raising: str, due: bool) -> None:
    fetches = ParkedFetches(world.turn, world.clock)
    world.turn.add_deadline_handler(fetches)
    partition: Any = WaitedPartition()
    waiters = [Waiter(), Waiter(raising), Waiter()]
    for waiter in waiters:
        fetches.park(waiter, [partition], waiter, 50)  # type: ignore[arg-type]
    if due:
        world.run(0.06)
    else:
        for waiting in list(partition.waiters):
            waiting.grown(partition)
        world.run()
    assert [waiter.completed for waiter in waiters] == [True, due and raising == "enough", True]
    assert [waiter.ended for waiter in waiters] == [False, not waiters[1].completed, False]
    assert planted() == waiters[1].ended
    assert len(fetches) == 0
    assert not partition.waiters


class Reply:
    """A reply held until its facts are durable, and its connection; `raising` names the call that raises."""

    def __init__(self, raising: str = "") -> None:
        self.raising = raising
        self.connection = Waiter()
        self.calls: list[str] = []

    def release(self) -> None:
        self._call("release")

    def fail(self, error: int) -> None:
        self._call("fail")

    def refuse_part(self, part: int, error: int) -> None: ...

    def complete(self) -> None:
        self._call("release")

    def _call(self, call: str) -> None:
        self.calls.append(call)
        if call == self.raising:
            raise Planted


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("together", [False, True])
def test_a_raising_reply_does_not_delay_other_replies(planted: Callable[[], int], at: int, together: bool) -> None:
    hold = Hold()
    replies = [Reply("release" if number == at else "") for number in range(3)]
    for reply in replies:
        hold.emit([(b"key", b"value")])
        hold.hold_reply(ReplyParts(reply, 1).part(0) if together else reply)
    hold.emit([(b"key", b"value")])
    unconfirmed = Reply()
    hold.hold_reply(unconfirmed)
    hold.take_batch(0)
    hold.confirm(3, close_failed_reply)
    assert [reply.calls for reply in replies] == [["release"]] * 3
    assert [reply.connection.ended for reply in replies] == [number == at for number in range(3)]
    assert (unconfirmed.calls, planted()) == ([], 1)
    hold.confirm(4, close_failed_reply)
    assert unconfirmed.calls == ["release"]


@pytest.mark.parametrize("late", [False, True])
def test_a_raising_refusal_does_not_delay_other_replies(planted: Callable[[], int], late: bool) -> None:
    hold = Hold()
    replies = [Reply(), Reply("fail"), Reply()]
    for reply in replies:
        hold.emit([(b"key", b"value")])
        hold.hold_reply(reply)
    hold.take_batch(0)
    if late:
        hold.fail_until(3, 7, close_failed_reply)
    else:
        hold.fail(7, close_failed_reply)
    assert [reply.calls for reply in replies] == [["fail"]] * 3
    assert [reply.connection.ended for reply in replies] == [False, True, False]
    assert planted() == 1


def test_a_contained_failure_runs_its_continuation(planted: Callable[[], int]) -> None:
    calls: list[object] = []

    def raising(*arguments: object) -> None:
        raise Planted

    Contained(calls.append, lambda: calls.append("after"))(1)
    assert (calls, planted()) == ([1], 0)
    Contained(raising, lambda: calls.append("after"))(2)
    assert (calls, planted()) == ([1, "after"], 1)
    Contained(raising, raising)(3)
    assert planted() == 3
    assert "Planted" in DEFECTS.last


class RaisingPartitions:
    """Three partitions; while `raising` is set, iterating over them raises after the third. `rounds`: the number of iterations."""

    def __init__(self) -> None:
        self.raising = False
        self.rounds = 0

    def __iter__(self) -> Any:
        self.rounds += 1
        yield from [Part() for _ in range(3)]
        if self.raising:
            raise Planted


def next_round(loop: SteppedLoop) -> None:
    assert len(loop.delays()) == 1, "there is always one next call"
    loop.jump(loop.delays()[0])


@pytest.mark.parametrize("sliced", [False, True])
def test_a_raising_round_ends_and_the_next_is_scheduled(planted: Callable[[], int], monkeypatch: pytest.MonkeyPatch, sliced: bool) -> None:
    if sliced:
        monkeypatch.setattr("broker.topics.retention.SLICE_SECONDS", -1.0)
    loop, partitions = SteppedLoop(), RaisingPartitions()
    worked: list[Part] = []
    PartitionJobLoop(loop, partitions, 1_000, worked.append, loop.time)  # type: ignore[arg-type]
    partitions.raising = True
    while partitions.rounds < 3:
        next_round(loop)
    partitions.raising = False
    while partitions.rounds < 4:
        next_round(loop)
    assert planted() in (2, 3)
    assert len(worked) >= 9


def test_a_job_raising_for_a_partition_continues_with_the_others(planted: Callable[[], int]) -> None:
    loop, partitions = SteppedLoop(), RaisingPartitions()
    worked: list[Part] = []

    def job(part: Part) -> None:
        worked.append(part)
        if len(worked) == 2:
            raise Planted

    PartitionJobLoop(loop, partitions, 1_000, job, loop.time)  # type: ignore[arg-type]
    while len(worked) < 3:  # on a busy machine a round is spread over several slices
        next_round(loop)
    assert planted() == 1


def test_a_task_that_is_cancelled_before_it_begins_leaves_no_work_behind() -> None:
    """The work must not be left as a coroutine that is never awaited: that causes a warning, which fails the test."""
    begun: list[int] = []

    async def work(number: int) -> None:
        begun.append(number)

    async def await_both() -> None:
        task = asyncio.ensure_future(contained_task(work, 1))
        task.cancel()
        await asyncio.gather(task, contained_task(work, 2), return_exceptions=True)

    asyncio.run(await_both())
    assert begun == [2]


def test_health_reports_the_number_of_defects_and_the_last() -> None:
    defects = Defects()
    assert (defects.count, defects.last, defects.text) == (0, "", "")
    defects.record("a callback failed", ValueError("two\nlines and\t a tab"))
    assert re.fullmatch(r"defects: 1, last: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, a callback failed: ValueError: two lines and a tab", defects.text)
    defects.record("once more", ZeroDivisionError("a bell \a rings"))
    assert defects.text.startswith("defects: 2, last: ")
    assert defects.text.endswith(", once more: ZeroDivisionError: a bell ? rings")
    defects.record("long", ValueError("x" * 1_000))
    assert defects.last.endswith(", long: ValueError: " + "x" * (200 - len("ValueError: ")))


class Callbacks:
    """The forms of callback that the broker registers, each of which raises."""

    def method(self, *arguments: object) -> None:
        raise Planted

    def __call__(self, *arguments: object) -> None:
        raise Planted


@pytest.mark.parametrize(
    ("callback", "name"),
    [
        (Callbacks().method, "Callbacks.method"),
        (partial(partial(Callbacks().method, 1), 2), "Callbacks.method"),
        (Callbacks(), "Callbacks"),
    ],
)
def test_a_failing_callback_is_named_despite_any_wrapper(
    capsys: pytest.CaptureFixture[str], callback: Callable[..., object], name: str
) -> None:
    assert run_contained(callback) is False
    assert ", a callback failed inside the broker: Planted:" in DEFECTS.last
    assert re.search(rf"callback={re.escape(name)}\s", capsys.readouterr().out)
    assert run_contained(lambda: None) is True


def test_a_callback_with_a_string_func_is_named_by_its_class(capsys: pytest.CaptureFixture[str]) -> None:
    class Node(Callbacks):
        func = "a name"

    run_contained(Node())
    assert "Node" in capsys.readouterr().out.partition("callback=")[2].split("\n", 1)[0]


def test_an_exception_in_a_task_is_counted_and_stops_nothing(planted: Callable[[], int]) -> None:
    async def work() -> None:
        raise Planted

    asyncio.run(contained_task(work))
    assert planted() == 1


def test_an_object_without_a_failure_callback_is_ignored(planted: Callable[[], int]) -> None:
    report_broken(object(), "the end of a turn failed", Planted())
    assert planted() == 1


class DefaultHandlerRecorder:
    """Records the exceptions that reach the default exception handler of an event loop."""

    def __init__(self) -> None:
        self.contexts: list[dict[str, Any]] = []

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.contexts.append(context)


def test_loop_exceptions_are_defects_unless_from_a_socket(planted: Callable[[], int], capsys: pytest.CaptureFixture[str]) -> None:
    loop = DefaultHandlerRecorder()
    contexts: list[dict[str, Any]] = [{"message": "no exception"}, {"exception": ConnectionResetError()}, {"exception": KeyboardInterrupt()}]
    for context in contexts:
        handle_loop_exception(loop, context)  # type: ignore[arg-type]
    assert (loop.contexts, planted()) == (contexts, 0)
    handle_loop_exception(loop, {"exception": Planted(), "message": "in a callback"})  # type: ignore[arg-type]
    assert (loop.contexts, planted()) == (contexts, 1)
    assert ", an exception reached the event loop: Planted:" in DEFECTS.last
    assert "what='in a callback'" in capsys.readouterr().out
    handle_loop_exception(loop, {"exception": Planted()})  # type: ignore[arg-type]
    assert "what=''\n" in capsys.readouterr().out
