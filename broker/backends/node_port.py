"""The same for one of several nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from broker.backends.port import Host, Stores
from broker.cluster.channel import AcceptedLinks, NodeChannel
from broker.cluster.store import ClusterStore, SharedView
from broker.net.reply_writer import Transport
from broker.runtime.start import ExitCode
from broker.stores.port import BrokerStore
from storage import LogId, NodeInfo, ServedLog


class NodeHost(NamedTuple):
    """Besides the Host."""

    links: AcceptedLinks
    buffered_protocol: bool
    ended: Callable[[str, ExitCode], None]  # this node cannot go on
    lease_ended: Callable[[], None]  # another node may own the logs from now on; called before they are fenced
    lease_regained: Callable[[], None]  # called before logs are claimed again


class NodeStore(BrokerStore, ClusterStore, Protocol):
    def view(self) -> SharedView: ...

    def owned_log(self, id: LogId) -> ServedLog | None: ...


class NodeStores(Stores, Protocol):
    """Built from a Host and a NodeHost."""

    guard: Callable[[Any], Transport] | None  # of all connections (`ConnectionContext.guard`)

    @property
    def store(self) -> NodeStore: ...

    @property
    def channel(self) -> NodeChannel: ...

    async def open(self, me: NodeInfo) -> None:
        """Become this node of the store. Raises StartError."""
        ...


NewNodeStores = Callable[[Host, NodeHost], NodeStores]
