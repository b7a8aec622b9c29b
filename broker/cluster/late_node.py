"""Refuse clients while this node does not know deletions of topics that clients may know of.

The controller answers a deletion, and then the creation of a topic of the same name, after a second even if a node has not confirmed it: the node
may be frozen. When that node continues, it would append a client's records to the log of the deleted topic, and acknowledge them. So the
controller first stores the number of the deletion where every node sees it, and a node whose registry lags behind that number closes its
clients' connections, before it processes what they sent, until it has followed. A node whose lease had ended does so too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.cluster.store import ClusterStore
from broker.logging.logs import log
from broker.net.connection import Connection
from broker.topics.registry import TopicRegistry

REASON = "this node has not read yet which topics were deleted"


class LateNode:
    def __init__(self, store: ClusterStore, topics: TopicRegistry, connections: Callable[[], Iterable[Connection]], follow: Callable[[Callable[[], None]], None]) -> None:
        """`connections`: those of clients. `follow` calls back when this node has the controller's topics."""
        self._store = store
        self._topics = topics
        self._connections = connections
        self._follow = follow
        self._following = False
        self._may_be_late = False

    def lease_regained(self) -> None:
        """Refuse clients until this node has followed: while it had no lease, the controller did not wait for it."""
        self._may_be_late = True
        self._follow(self._followed_again)

    def _followed_again(self) -> None:
        self._may_be_late = False

    def check(self) -> bool:
        """Called in each millisecond in which requests arrive, before they are processed; returns whether clients are refused."""
        if not self._may_be_late and self._store.last_deletion <= self._topics.last_deletion:
            return False
        for connection in list(self._connections()):
            connection.abort("")
        if not (self._following or self._may_be_late):
            self._following = True
            log.warning("clients are refused until this node has followed the controller", reason=REASON)
            self._follow(self._followed)
        return True

    def _followed(self) -> None:
        self._following = False
