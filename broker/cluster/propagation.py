"""Delay the reply to a change of topics until every node knows the change.

A client may use a topic that it has just created through any node, and some clients do not retry. So the controller's reply waits until
each node has read the change and opened its own logs. If a node needs longer than a second, the controller waits for the other nodes
only, until that node answers again.

A node that has not read that a topic was deleted would take a client's commit for a new topic of that name for one of the deleted topic, and remove
it later. A node over a data directory sees by itself that it is behind (`late_node.py`). Over another store a reply after a deletion waits for each
live node, however long: until it has confirmed the deletion, or its lease has ended. A new topic is only stored then: a client whose request got no
reply could otherwise find the topic through any node, or be told that it exists already.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.cluster.peers import Peers
from broker.groups.journal import Journal, close_failed_reply
from broker.runtime.contain import Contained, run_contained
from coordinator import Held
from protocol.messages.node_requests import NodeRequest, NodeResponse

LATE_SECONDS: Final = 1.0


class Propagation:
    """On the controller: the changes that each node has confirmed, and the callbacks that wait for them."""

    def __init__(
        self,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        peers: Peers,
        nodes: Callable[[], list[int]],
        request: Callable[[], NodeRequest],
        when_opened: Callable[[Callable[[], None]], None],
        last_deletion: Callable[[], int] = lambda: 0,
        when_current: Callable[[Callable[[], None]], None] = lambda done: done(),
    ) -> None:
        """`nodes`: the live nodes, while this node is the controller. `when_opened` calls back when this node has opened its new logs.

        `last_deletion`: the number of the last deletion that all live nodes must have confirmed, 0 if none must. `when_current` calls back when
        `nodes` has all nodes with a lease.
        """
        self._node_id = node_id
        self._loop = loop
        self._peers = peers
        self._nodes = nodes
        self._request = request
        self._when_opened = when_opened
        self._number = 0  # of the last announced change
        self._announced: dict[int, int] = {}  # unanswered: node id -> number of the change announced to it
        self._confirmed: dict[int, int] = {}  # the last change that each node has confirmed
        self._late: set[int] = set()  # nodes that the controller does not wait for
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._announcing = False
        self._last_deletion = last_deletion
        self._when_current = when_current
        self._seen_deletion = 0  # the last deletion when a reply began to wait
        self._deletion_number = 0  # the change that every node must have confirmed, late or not, because it follows a deletion

    def announce(self) -> None:
        """Announce a change to the nodes, at most once in a turn."""
        if not self._announcing:
            self._announcing = True
            self._loop.call_soon(Contained(self._announce_to_all))

    @property
    def last_deletion(self) -> int:
        """The number of the last deletion, stored or not."""
        return self._last_deletion()

    def when_propagated(self, done: Callable[[], None], deletion: int) -> None:
        """Call `done` when all nodes, except late ones, have confirmed the changes stored by now. `deletion`: the number of the last stored deletion."""
        if deletion:
            self._when_current(partial(self._wait, done, deletion))
        else:
            self._wait(done, deletion)

    def is_confirmed(self, deletion: int) -> bool:
        """Whether all live nodes are known to have read this deletion."""
        return deletion <= self._seen_deletion and not any(self._must_confirm(node) for node in self._nodes())

    def _wait(self, done: Callable[[], None], deletion: int) -> None:
        number = self._number + 1
        if deletion > self._seen_deletion:
            self._seen_deletion, self._deletion_number = deletion, number
        self._waiting.append((number, done))
        self._loop.call_later(LATE_SECONDS, Contained(self._stop_waiting), number)
        self.announce()

    def _announce_to_all(self) -> None:
        self._announcing = False
        self._number += 1
        for node in self._nodes():
            self._announce_to(node)
        self._release()

    def _announce_to(self, node: int) -> None:
        if node in self._announced:  # `_answered` will announce this change
            return
        self._announced[node] = self._number
        if node == self._node_id:
            self._when_opened(partial(self._answered, node, NodeResponse()))
        else:
            self._peers.forward(node, self._request(), partial(self._answered, node))

    def _answered(self, node: int, reply: NodeResponse | None) -> None:
        """`reply` is None if the node cannot be reached; it reads the change later."""
        number = self._announced.pop(node)
        if reply is None:
            self._late.add(node)
        else:
            self._late.discard(node)
            self._confirmed[node] = number
            if number < self._number:
                self._announce_to(node)
        self._release()

    def _stop_waiting(self, number: int) -> None:
        self._late.update(node for node in self._nodes() if self._confirmed.get(node, 0) < number)
        self._release()
        if self._waiting and self._waiting[0][0] <= number:  # for the confirmation of a deletion
            for node in self._nodes():
                if self._must_confirm(node):
                    self._announce_to(node)
            self._loop.call_later(LATE_SECONDS, Contained(self._stop_waiting), number)

    def _must_confirm(self, node: int) -> bool:
        """Whether a late node is waited for all the same."""
        return node != self._node_id and self._confirmed.get(node, 0) < self._deletion_number

    def _release(self) -> None:
        waited_for = [node for node in self._nodes() if node not in self._late or self._must_confirm(node)]
        confirmed = min((self._confirmed.get(node, 0) for node in waited_for), default=self._number)
        while self._waiting and self._waiting[0][0] <= confirmed:
            run_contained(self._waiting.popleft()[1])


class RegistryJournal(Journal):
    """The journal of the registry: a reply that waits for a fact also waits until all nodes have confirmed that fact."""

    propagation: Propagation

    def hold_reply(self, held: Held) -> None:
        hold = self.state.hold
        super().hold_reply(held if hold.emitted == hold.durable else _PropagatedReply(held, self.propagation))

    def await_deletions(self, held: Held) -> bool:
        """Before a topic is created: release `held` when all live nodes have read the deletions by now. False: they have, and nothing is held."""
        if self.propagation.is_confirmed(self.propagation.last_deletion):
            return False
        super().hold_reply(_PropagatedReply(held, self.propagation))
        return True


class _PropagatedReply:
    """A held reply that, once its facts are stored, waits for all nodes."""

    __slots__ = ("_deletion", "_held", "_propagation")

    def __init__(self, held: Held, propagation: Propagation) -> None:
        self._held = held
        self._propagation = propagation
        self._deletion = propagation.last_deletion  # stored when this is released

    def release(self) -> None:
        self._propagation.when_propagated(self._released, self._deletion)

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
