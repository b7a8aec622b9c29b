"""Bounds the clients' requests that this node forwards at the same time; further ones wait for a while."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.cluster.peers import Done
from broker.runtime.contain import Contained, run_contained
from broker.settings.descriptors import FORWARDING_LINKS_MAX
from protocol.messages.node_requests import NodeRequest, NodeResponse

BYTES_MAX: Final = 64 << 20  # of all forwarded requests together; a single one may be larger
WAIT_SECONDS: Final = 10.0


class _Waiting:
    __slots__ = ("done", "request", "timer")

    def __init__(self, request: NodeRequest, done: Done) -> None:
        self.request = request
        self.done = done
        self.timer: asyncio.TimerHandle | None = None


class Outgoing:
    def __init__(self, loop: asyncio.AbstractEventLoop, forward: Callable[[int, NodeRequest, Done], None]) -> None:
        """`forward` sends a request to a node, over a link that no other request uses meanwhile."""
        self._loop = loop
        self._forward = forward
        self._running: dict[int, int] = {}  # the number of unanswered requests of each node
        self._bytes = 0
        self._waiting: dict[int, deque[_Waiting]] = {}

    def send(self, node: int, request: NodeRequest, done: Done) -> None:
        """`done` gets the reply; None if there is none, or the request has waited for too long."""
        if node not in self._waiting and self._has_room(node, request):
            self._begin(node, request, done)
            return
        waiting = _Waiting(request, done)
        self._waiting.setdefault(node, deque()).append(waiting)
        waiting.timer = self._loop.call_later(WAIT_SECONDS, Contained(self._give_up), node, waiting)

    def _has_room(self, node: int, request: NodeRequest) -> bool:
        return self._running.get(node, 0) < FORWARDING_LINKS_MAX and (not self._bytes or self._bytes + _size(request) <= BYTES_MAX)

    def _begin(self, node: int, request: NodeRequest, done: Done) -> None:
        self._running[node] = self._running.get(node, 0) + 1
        self._bytes += _size(request)
        self._forward(node, request, partial(self._ended, node, _size(request), done))

    def _ended(self, node: int, size: int, done: Done, reply: NodeResponse | None) -> None:
        self._running[node] -= 1
        self._bytes -= size
        if self._waiting:
            self._loop.call_soon(Contained(self._begin_waiting))
        run_contained(done, reply)

    def _begin_waiting(self) -> None:
        for node, queue in list(self._waiting.items()):
            while queue and self._has_room(node, queue[0].request):
                waiting = queue.popleft()
                assert waiting.timer is not None
                waiting.timer.cancel()
                self._begin(node, waiting.request, waiting.done)
            self._forget_if_empty(node)

    def _give_up(self, node: int, waiting: _Waiting) -> None:
        self._waiting[node].remove(waiting)
        self._forget_if_empty(node)
        run_contained(waiting.done, None)

    def _forget_if_empty(self, node: int) -> None:
        if not self._waiting[node]:
            del self._waiting[node]


def _size(request: NodeRequest) -> int:
    return len(request.body or b"")
