"""What replies name as nodes, leaders and epochs, from the view of the store."""

from __future__ import annotations

from typing import Any

from broker.cluster.routing import Routing
from broker.topics.leaders import NO_NODE, Endpoint
from storage import LogId, NodeInfo

LOG, OFFSETS, NOTES = LogId("t", 1), LogId("__consumer_offsets", 3), LogId("__coordinator_notes", 3)
REGISTRY = LogId("__topics", 0)


class View:
    def __init__(self) -> None:
        self.version: object = 1
        self.live = [NodeInfo(2, (("PLAIN", "b", 2), ("TLS", "b", 12)), ""), NodeInfo(1, (("PLAIN", "a", 1),), "rack")]
        self.owners: dict[LogId, NodeInfo] = {}

    def nodes(self) -> list[NodeInfo]:
        return self.live

    def owner(self, log: LogId) -> NodeInfo | None:
        return self.owners.get(log)

    def epoch(self, log: LogId) -> int:
        return {OFFSETS: 7, LOG: 4}.get(log, 0)


def new_routing() -> tuple[Any, Routing]:
    view: Any = View()
    return view, Routing(view)


def test_the_version_is_a_new_one_only_after_the_view_has_changed() -> None:
    view, routing = new_routing()
    first = routing.version
    assert routing.version is first
    view.version = 2
    second = routing.version
    assert second is not first
    assert routing.version is second


def test_nodes_are_named_in_order_with_the_address_of_the_clients_listener() -> None:
    _, routing = new_routing()
    assert routing.endpoints("PLAIN") == [Endpoint(1, "a", 1, "rack"), Endpoint(2, "b", 2, "")]
    assert routing.endpoints("TLS") == [Endpoint(2, "b", 12, "")]
    assert routing.ids() == {1, 2}


def test_a_log_without_an_owner_is_led_by_the_node_that_will_own_it() -> None:
    view, routing = new_routing()
    assert routing.leader(LOG) == NO_NODE
    routing.expected_owner = lambda log: 2 if log == LOG else NO_NODE
    assert routing.leader(LOG) == 2
    view.owners[LOG] = view.live[1]
    assert routing.leader(LOG) == 1


def test_notes_are_led_by_the_owner_of_their_partition_of_offsets() -> None:
    view, routing = new_routing()
    view.owners[OFFSETS] = view.live[0]
    assert routing.leader(NOTES) == 2
    assert routing.leader_epoch(NOTES) == routing.leader_epoch(OFFSETS) == 7
    assert routing.leader_epoch(LOG) == 4
