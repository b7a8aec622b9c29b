"""Changes of topics, sent from the controller to all nodes, and the replies that wait for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.cluster.propagation import LATE_SECONDS, Propagation
from protocol.messages.node_requests import NodeRequest, NodeResponse
from tests.support.stepped_loop import SteppedLoop

ME, SECOND, THIRD = 1, 2, 3


class PropagationHarness:
    """The propagation of topic changes on the controller, and the requests that it has sent."""

    def __init__(self) -> None:
        self.loop = SteppedLoop()
        self.nodes = [ME, SECOND, THIRD]
        self.requests: list[tuple[int, Callable[[NodeResponse | None], None]]] = []
        self.opening: list[Callable[[], None]] = []
        self.done: list[str] = []
        self.propagation = Propagation(ME, self.loop, self, lambda: self.nodes, lambda: NodeRequest(4, ME), self.when_opened)  # type: ignore[arg-type]
        self.opens = True

    def forward(self, node: int, request: NodeRequest, done: Callable[[NodeResponse | None], None]) -> None:
        self.requests.append((node, done))

    def when_opened(self, done: Callable[[], None]) -> None:
        if self.opens:
            done()
        else:
            self.opening.append(done)

    def change(self, name: str) -> None:
        self.propagation.when_propagated(lambda: self.done.append(name))
        self.loop.run()

    def answer(self, node: int, reply: NodeResponse | None = NodeResponse()) -> None:  # noqa: B008
        at = next(index for index, (asked_node, _) in enumerate(self.requests) if asked_node == node)
        self.requests.pop(at)[1](reply)


@pytest.fixture
def play() -> PropagationHarness:
    return PropagationHarness()


def test_a_reply_waits_for_every_node(play: PropagationHarness) -> None:
    play.change("one")
    play.answer(SECOND)
    assert not play.done
    play.answer(THIRD)
    assert play.done == ["one"]


def test_a_reply_waits_for_the_controllers_own_logs(play: PropagationHarness) -> None:
    play.opens = False
    play.change("one")
    play.answer(SECOND)
    play.answer(THIRD)
    assert not play.done
    play.opening.pop()()
    assert play.done == ["one"]


def test_a_node_behind_the_change_is_asked_again(play: PropagationHarness) -> None:
    play.change("one")
    play.change("two")
    assert [node for node, _ in play.requests] == [SECOND, THIRD]
    play.answer(SECOND)
    play.answer(THIRD)
    assert play.done == ["one"]
    play.answer(SECOND)
    play.answer(THIRD)
    assert play.done == ["one", "two"]
    assert not play.requests


def test_a_frozen_node_delays_one_change_for_a_second_and_no_later_change(play: PropagationHarness) -> None:
    play.change("one")
    play.answer(SECOND)
    play.loop.pass_ms(LATE_SECONDS * 1000)
    assert play.done == ["one"]
    play.change("two")
    play.answer(SECOND)
    assert play.done == ["one", "two"]


def test_a_late_node_is_waited_for_again_when_it_has_answered(play: PropagationHarness) -> None:
    play.change("one")
    play.answer(SECOND)
    play.loop.pass_ms(LATE_SECONDS * 1000)
    play.answer(THIRD)
    play.change("two")
    play.answer(SECOND)
    assert play.done == ["one"]
    play.answer(THIRD)
    assert play.done == ["one", "two"]


def test_a_node_that_cannot_be_reached_is_not_waited_for(play: PropagationHarness) -> None:
    play.change("one")
    play.answer(SECOND)
    play.answer(THIRD, None)
    assert play.done == ["one"]


def test_a_dead_node_is_not_waited_for(play: PropagationHarness) -> None:
    play.change("one")
    play.nodes = [ME, SECOND]
    play.answer(SECOND)
    assert play.done == ["one"]


def test_no_reply_waits_on_a_node_that_is_not_the_controller(play: PropagationHarness) -> None:
    play.change("one")
    play.nodes = []
    play.change("two")
    assert play.done == ["one", "two"]
