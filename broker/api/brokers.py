"""The brokers of the cluster, as Metadata and DescribeCluster list them."""

from __future__ import annotations

from broker.runtime.node import Address, Node
from broker.topics.leaders import Endpoint, Leaders


def brokers_of(node: Node, leaders: Leaders | None, address: Address) -> tuple[list[Endpoint], int]:
    """The brokers with their addresses on the client's listener, and the controller's id. `address`: this node's address on that listener."""
    if leaders is None:
        return [Endpoint(node.id, address.host, address.port, node.rack)], node.id
    return leaders.endpoints(address.name), leaders.controller
