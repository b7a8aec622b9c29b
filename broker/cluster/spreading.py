"""A change of topics is known to every node before the client that asked for it hears that it is done.

A client may ask any node for a topic that it has just created, and some look for it only once. So the controller's reply waits until each
node has read the change and opened the logs that are its own. A node that takes longer than a second is not waited for again until it
has answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.cluster.peers import Peers
from broker.groups.journal import Journal, close_failed_reply
from broker.runtime.contain import Contained, run
from coordinator import Held
from protocol.messages.node_requests import NodeRequest, NodeResponse

LATE_SECONDS: Final = 1.0


class Spreading:
    """On the controller: how far each node has heard of the changes, and what waits for that."""

    def __init__(
        self,
        me: int,
        loop: asyncio.AbstractEventLoop,
        peers: Peers,
        nodes: Callable[[], list[int]],
        request: Callable[[], NodeRequest],
        when_opened: Callable[[Callable[[], None]], None],
    ) -> None:
        """`nodes`: all live ones, while this node is the controller. `when_opened` calls back when this node has opened its new logs."""
        self._me = me
        self._loop = loop
        self._peers = peers
        self._nodes = nodes
        self._request = request
        self._when_opened = when_opened
        self._number = 0  # of changes that the nodes were told
        self._asked: dict[int, int] = {}  # nodes that have not answered yet, and the change they were told
        self._heard: dict[int, int] = {}  # the change up to which a node has answered
        self._late: set[int] = set()
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._telling = False

    def tell(self) -> None:
        """Tell the nodes that there is a change, at most once in a turn."""
        if not self._telling:
            self._telling = True
            self._loop.call_soon(Contained(self._tell_all))

    def when_spread(self, done: Callable[[], None]) -> None:
        """Call `done` when all nodes have heard of what is stored by now."""
        number = self._number + 1
        self._waiting.append((number, done))
        self._loop.call_later(LATE_SECONDS, Contained(self._give_up), number)
        self.tell()

    def _tell_all(self) -> None:
        self._telling = False
        self._number += 1
        for node in self._nodes():
            self._tell(node)
        self._release()

    def _tell(self, node: int) -> None:
        if node in self._asked:  # it is told again when it has answered
            return
        self._asked[node] = self._number
        if node == self._me:
            self._when_opened(partial(self._answered, node, NodeResponse()))
        else:
            self._peers.forward(node, self._request(), partial(self._answered, node))

    def _answered(self, node: int, reply: NodeResponse | None) -> None:
        """`reply`: None when the node cannot be reached; it reads the change once it can be."""
        number = self._asked.pop(node)
        if reply is None:
            self._late.add(node)
        else:
            self._late.discard(node)
            self._heard[node] = number
            if number < self._number:
                self._tell(node)
        self._release()

    def _give_up(self, number: int) -> None:
        self._late.update(node for node in self._nodes() if self._heard.get(node, 0) < number)
        self._release()

    def _release(self) -> None:
        heard = min((self._heard.get(node, 0) for node in self._nodes() if node not in self._late), default=self._number)
        while self._waiting and self._waiting[0][0] <= heard:
            run(self._waiting.popleft()[1])


class RegistryJournal(Journal):
    """The journal of the registry: a reply that waits for a fact waits until all nodes have heard of it too."""

    spreading: Spreading

    def reply(self, held: Held) -> None:
        hold = self.state.hold
        super().reply(held if hold.emitted == hold.durable else _Spread(held, self.spreading))


class _Spread:
    """A held reply, held once more when its facts are stored."""

    __slots__ = ("_held", "_spreading")

    def __init__(self, held: Held, spreading: Spreading) -> None:
        self._held = held
        self._spreading = spreading

    def release(self) -> None:
        self._spreading.when_spread(self._released)

    def _released(self) -> None:
        try:
            self._held.release()
        except Exception as error:
            close_failed_reply(self._held, error)

    def fail(self, error: int) -> None:
        try:
            self._held.fail(error)
        except Exception as raised:
            close_failed_reply(self._held, raised)
