"""The nodes of the cluster as this node knows them: the live nodes, and the draining nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from broker.cluster.peers import Peers
from broker.cluster.store import ClusterStore, SharedView
from broker.logging.logs import log
from protocol.messages.node_requests import DrainingNode, NodeRequest, NodeResponse


class NodeMembership:
    def __init__(self, node_id: int, store: ClusterStore, view: SharedView, peers: Peers, greeting: NodeRequest, changed: Callable[[], None]) -> None:
        """`greeting`: the greeting that this node sends. `changed` is called when nodes arrive, end, drain or stop draining."""
        self._node_id = node_id
        self._store = store
        self._view = view
        self._peers = peers
        self._greeting = greeting
        self._changed = changed
        self._incarnations: dict[int, int] = {}  # node id -> the incarnation in its greeting: a random number, drawn at each start of the node
        self.draining: set[int] = set()
        self._started = False
        self._stopped = False

    def start(self) -> None:
        self._started = True
        self._changed()

    def stop(self) -> None:
        self._stopped = True

    @property
    def live(self) -> list[int]:
        return [node.id for node in self._view.nodes()]

    @property
    def other_nodes(self) -> list[int]:
        return [id for id in self.live if id != self._node_id]

    def node_changed(self, node: int, alive: bool) -> None:
        log.info("node is alive" if alive else "node is gone", node=node)
        if not alive:
            self._peers.node_ended(node)
            self._incarnations.pop(node, None)
            self.draining.discard(node)
        elif self._started:
            self.greet([node])
        if self._started:
            self._changed()

    def greet(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            if node != self._node_id:
                self._peers.send(node, self._greeting, partial(self._note_draining, node))

    def _note_draining(self, node: int, reply: NodeResponse | None) -> None:
        """Note whether a node drains, from that node's own reply: reports of other nodes may be lost or late."""
        if reply is None or self._stopped or node not in self.live:
            return
        draining = any(drained.id == node for drained in reply.draining)
        if draining != (node in self.draining):
            self.draining ^= {node}
            self._changed()

    def answer_greeting(self, node: int, incarnation: int) -> NodeResponse:
        """Answer the greeting of another node."""
        if self._incarnations.get(node) != incarnation:
            self._incarnations[node] = incarnation
            self.draining.discard(node)  # the node was restarted
            self._store.find_new_nodes()
            self._changed()
        return NodeResponse(draining=[DrainingNode(id) for id in sorted(self.draining)])

    def drain(self, node: int, drained: bool) -> None:
        """Move the logs of a live node to other nodes, or let it own its share again."""
        if drained and node not in self.live:
            return
        if drained:
            self.draining.add(node)
        else:
            self.draining.discard(node)
        log.info("node is drained" if drained else "node is no longer drained", node=node)
        self._changed()

    def notify_all(self, request: NodeRequest) -> None:
        for node in self.other_nodes:
            self._peers.send(node, request, ignore_reply)


def ignore_reply(reply: NodeResponse | None) -> None: ...
