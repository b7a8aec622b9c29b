"""Blocks of producer ids that a node gets from the controller, whichever node that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from broker.cluster.messages import NodeRequestKind
from broker.cluster.producer_ids import RESERVE_SECONDS_MAX, RETRY_SECONDS, ControllerProducerIds
from broker.topics.leaders import NO_NODE
from broker.topics.producer_ids import Reserved
from protocol.errors import ErrorCode
from protocol.messages.node_requests import NodeRequest, NodeResponse
from tests.support.stepped_loop import SteppedLoop

ME, OTHER, THIRD = 1, 2, 3
BLOCK = range(5_000, 6_000)


class NodeCall(NamedTuple):
    node: int
    request: NodeRequest
    done: Callable[[NodeResponse | None], None]


class ProducerIdsHarness:
    """One node, the requests that it sent, and the blocks of ids that it received."""

    def __init__(self) -> None:
        self.loop = SteppedLoop()
        self.controller = OTHER
        self.requests: list[NodeCall] = []
        self.reserving: list[Reserved] = []  # requests for a block to this node's own registry
        self.blocks: list[range | None] = []
        self.ids = ControllerProducerIds(ME, self.loop, self, lambda: self.controller, lambda kind: NodeRequest(kind, ME), self)  # type: ignore[arg-type]

    def forward(self, node: int, request: NodeRequest, done: Callable[[NodeResponse | None], None]) -> None:
        self.requests.append(NodeCall(node, request, done))

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
def play() -> ProducerIdsHarness:
    return ProducerIdsHarness()


def answered(play: ProducerIdsHarness) -> NodeResponse | None:
    """Ask this node for a block, as another node does; returns the reply, None while it waits."""
    call: Any = FakeCall()
    play.ids.answer(call)
    return call.replies[0] if call.replies else None


def test_a_block_comes_from_the_controller(play: ProducerIdsHarness) -> None:
    play.want()
    (query,) = play.requests
    assert (query.node, query.request.kind) == (OTHER, NodeRequestKind.PRODUCER_IDS)
    query.done(NodeResponse(offset=BLOCK.start, end=BLOCK.stop))
    assert play.blocks == [BLOCK]


def test_the_controller_reserves_a_block_in_its_own_registry(play: ProducerIdsHarness) -> None:
    play.controller = ME
    play.want()
    play.reserving.pop()(BLOCK)
    assert play.blocks == [BLOCK]
    assert play.requests == []


@pytest.mark.parametrize("reply", [None, NodeResponse(ErrorCode.NOT_CONTROLLER)])
def test_the_next_controller_is_asked_if_the_previous_one_does_not_answer(play: ProducerIdsHarness, reply: NodeResponse | None) -> None:
    play.want()
    play.requests.pop().done(reply)
    play.controller = THIRD
    play.loop.pass_ms(1_000 * RETRY_SECONDS)
    (query,) = play.requests
    assert query.node == THIRD
    query.done(NodeResponse(offset=BLOCK.start, end=BLOCK.stop))
    assert play.blocks == [BLOCK]


def test_clients_get_an_error_if_there_is_no_controller_for_long(play: ProducerIdsHarness) -> None:
    play.controller = NO_NODE
    play.want()
    play.loop.pass_ms(1_000 * (RESERVE_SECONDS_MAX - RETRY_SECONDS))
    assert play.blocks == []
    play.loop.pass_ms(2_000 * RETRY_SECONDS)
    assert play.blocks == [None]
    assert play.requests == []


def test_a_node_that_is_not_the_controller_allocates_nothing(play: ProducerIdsHarness) -> None:
    assert answered(play) == NodeResponse(ErrorCode.NOT_CONTROLLER)
    assert play.reserving == []


def test_another_node_gets_a_block_once_it_is_durable(play: ProducerIdsHarness) -> None:
    play.controller = ME
    call: Any = FakeCall()
    play.ids.answer(call)
    assert call.replies == []
    play.reserving.pop()(BLOCK)
    assert call.replies == [NodeResponse(offset=BLOCK.start, end=BLOCK.stop)]


def test_another_node_gets_an_error_while_there_is_no_block(play: ProducerIdsHarness) -> None:
    play.controller = ME
    call: Any = FakeCall()
    play.ids.answer(call)
    play.reserving.pop()(None)
    assert [reply.error_code for reply in call.replies] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
