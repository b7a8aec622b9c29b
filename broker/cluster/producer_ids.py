"""Blocks of producer ids on one of several nodes: the controller allocates them, and every node hands out ids of its own block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.cluster.messages import NodeRequestKind
from broker.cluster.peers import Peers
from broker.net.dispatch import Call
from broker.runtime.contain import Contained
from broker.topics.leaders import NO_NODE
from broker.topics.producer_ids import ProducerIds, Reserved
from protocol.errors import ErrorCode
from protocol.messages.node_requests import NodeRequest, NodeResponse

RETRY_SECONDS: Final = 0.1  # while there is no controller, or the controller changes
RESERVE_SECONDS_MAX: Final = 10.0


class ControllerProducerIds:
    """Asks the controller, which may be this node. A block whose reply is lost is never used."""

    def __init__(
        self,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        peers: Peers,
        controller: Callable[[], int],
        request: Callable[[NodeRequestKind], NodeRequest],
        registry: ProducerIds,
    ) -> None:
        """`controller` returns the controller's node id, or NO_NODE. `registry` allocates while this node is the controller."""
        self._node_id = node_id
        self._loop = loop
        self._peers = peers
        self._controller = controller
        self._request = request
        self._registry = registry

    # For clients of this node.

    def reserve(self, done: Reserved) -> None:
        self._request_block(done, self._loop.time() + RESERVE_SECONDS_MAX)

    def _request_block(self, done: Reserved, deadline: float) -> None:
        controller = self._controller()
        if controller == self._node_id:
            self._registry.reserve(partial(self._finish_or_retry, done, deadline))
        elif controller == NO_NODE:
            self._finish_or_retry(done, deadline, None)
        else:
            # `forward` uses a connection of its own, since the reply waits for a disk.
            self._peers.forward(controller, self._request(NodeRequestKind.PRODUCER_IDS), partial(self._answered, done, deadline))

    def _answered(self, done: Reserved, deadline: float, reply: NodeResponse | None) -> None:
        self._finish_or_retry(done, deadline, None if reply is None or reply.error_code else range(reply.offset, reply.end))

    def _finish_or_retry(self, done: Reserved, deadline: float, block: range | None) -> None:
        if block is None and self._loop.time() < deadline:
            self._loop.call_later(RETRY_SECONDS, Contained(self._request_block, partial(done, None)), done, deadline)
        else:
            done(block)

    # For other nodes.

    def answer(self, call: Call) -> None:
        """Allocate a block for another node."""
        if self._controller() != self._node_id:
            call.answer(NodeResponse(ErrorCode.NOT_CONTROLLER))
        else:
            self._registry.reserve(partial(self._send, call))

    def _send(self, call: Call, block: range | None) -> None:
        if block is None:
            call.answer(NodeResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            call.answer(NodeResponse(offset=block.start, end=block.stop))
