"""The nodes and partition leaders that clients get in replies."""

from __future__ import annotations

from collections.abc import Callable

from broker.cluster.store import SharedView
from broker.internal_topics import REGISTRY_LOG_ID, owning_log
from broker.topics.leaders import NO_NODE, Endpoint
from storage import LogId, NodeInfo


class Routing:
    """Implements `Leaders` with the nodes and owners that the store knows."""

    def __init__(self, view: SharedView) -> None:
        self._view = view
        self._view_version: object = None
        self._version = object()
        # The node that will own a log without an owner. Clients get it as the leader, so they need not refresh their metadata later.
        self.expected_owner: Callable[[LogId], int] = lambda log: NO_NODE

    @property
    def version(self) -> object:
        view_version = self._view.version
        if view_version != self._view_version:
            self._view_version = view_version
            self._version = object()
        return self._version

    @property
    def controller(self) -> int:
        return self.leader(REGISTRY_LOG_ID)

    def endpoints(self, listener: str) -> list[Endpoint]:
        endpoints = []
        for node in sorted(self._view.nodes()):
            address = address_of(node, listener)
            if address is not None:
                endpoints.append(Endpoint(node.id, *address, node.rack))
        return endpoints

    def ids(self) -> set[int]:
        return {node.id for node in self._view.nodes()}

    def leader(self, log: LogId) -> int:
        log = owning_log(log)
        owner = self._view.owner(log)
        return self.expected_owner(log) if owner is None else owner.id

    def leader_epoch(self, log: LogId) -> int:
        return self._view.epoch(owning_log(log))


def address_of(node: NodeInfo, listener: str) -> tuple[str, int] | None:
    return next(((host, port) for name, host, port in node.addresses if name == listener), None)
