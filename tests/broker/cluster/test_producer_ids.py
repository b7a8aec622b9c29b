"""Blocks of producer ids that a node gets from the controller, whichever node that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from broker.cluster.messages import Kind
from broker.cluster.producer_ids import RESERVE_SECONDS_MAX, RETRY_SECONDS, ControllerIds
from broker.topics.leaders import NO_NODE
from broker.topics.producer_ids import Reserved
from protocol.errors import ErrorCode
from protocol.messages.node_requests import NodeRequest, NodeResponse
from tests.support.stepped_loop import SteppedLoop

ME, OTHER, THIRD = 1, 2, 3
BLOCK = range(5_000, 6_000)


class Asked(NamedTuple):
    node: int
    request: NodeRequest
    done: Callable[[NodeResponse | None], None]


class Play:
    """One node, what it has asked for, and the blocks that it got."""

    def __init__(self) -> None:
        self.loop = SteppedLoop()
        self.controller = OTHER
        self.asked: list[Asked] = []
        self.reserving: list[Reserved] = []  # at this node's own registry
        self.blocks: list[range | None] = []
        self.ids = ControllerIds(ME, self.loop, self, lambda: self.controller, lambda kind: NodeRequest(kind, ME), self)  # type: ignore[arg-type]

    def forward(self, node: int, request: NodeRequest, done: Callable[[NodeResponse | None], None]) -> None:
        self.asked.append(Asked(node, request, done))

    def reserve(self, done: Reserved) -> None:
        self.reserving.append(done)

    def want(self) -> None:
        self.ids.reserve(self.blocks.append)


class FakeCall:
    def __init__(self) -> None:
        self.replies: list[NodeResponse] = []

    def answer(self, reply: NodeResponse) -> None:
        self.replies.append(reply)


@pytest.fixture
def play() -> Play:
    return Play()


def answered(play: Play) -> NodeResponse | None:
    """The reply to another node that asks for a block; None while it waits."""
    call: Any = FakeCall()
    play.ids.answer(call)
    return call.replies[0] if call.replies else None


def test_a_block_comes_from_the_controller(play: Play) -> None:
    play.want()
    (asked,) = play.asked
    assert (asked.node, asked.request.kind) == (OTHER, Kind.PRODUCER_IDS)
    asked.done(NodeResponse(offset=BLOCK.start, end=BLOCK.stop))
    assert play.blocks == [BLOCK]


def test_the_controller_takes_a_block_from_its_own_registry(play: Play) -> None:
    play.controller = ME
    play.want()
    play.reserving.pop()(BLOCK)
    assert play.blocks == [BLOCK]
    assert play.asked == []


@pytest.mark.parametrize("reply", [None, NodeResponse(ErrorCode.NOT_CONTROLLER)])
def test_the_next_controller_is_asked_after_the_one_before_has_not_answered(play: Play, reply: NodeResponse | None) -> None:
    play.want()
    play.asked.pop().done(reply)
    play.controller = THIRD
    play.loop.pass_ms(1_000 * RETRY_SECONDS)
    (asked,) = play.asked
    assert asked.node == THIRD
    asked.done(NodeResponse(offset=BLOCK.start, end=BLOCK.stop))
    assert play.blocks == [BLOCK]


def test_clients_hear_of_it_when_there_is_no_controller_for_long(play: Play) -> None:
    play.controller = NO_NODE
    play.want()
    play.loop.pass_ms(1_000 * (RESERVE_SECONDS_MAX - RETRY_SECONDS))
    assert play.blocks == []
    play.loop.pass_ms(2_000 * RETRY_SECONDS)
    assert play.blocks == [None]
    assert play.asked == []


def test_a_node_that_is_not_the_controller_allocates_nothing(play: Play) -> None:
    assert answered(play) == NodeResponse(ErrorCode.NOT_CONTROLLER)
    assert play.reserving == []


def test_another_node_gets_a_block_once_it_is_durable(play: Play) -> None:
    play.controller = ME
    call: Any = FakeCall()
    play.ids.answer(call)
    assert call.replies == []
    play.reserving.pop()(BLOCK)
    assert call.replies == [NodeResponse(offset=BLOCK.start, end=BLOCK.stop)]


def test_another_node_hears_that_there_is_no_block_now(play: Play) -> None:
    play.controller = ME
    call: Any = FakeCall()
    play.ids.answer(call)
    play.reserving.pop()(None)
    assert [reply.error_code for reply in call.replies] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
