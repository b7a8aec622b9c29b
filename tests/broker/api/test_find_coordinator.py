"""FindCoordinator: the owner of a group's partition, with its address on the listener that the client uses."""

from __future__ import annotations

import pytest

from broker.runtime.node import Address
from protocol.messages.find_coordinator import FindCoordinatorRequest
from storage import NodeInfo
from tests.coordinator.scenarios import row, scenario
from tests.support.group_harness import PARTITIONS, GroupClient, GroupHarness

OTHER = NodeInfo(7, (("PLAIN", "there.example", 1234), ("INSIDE", "10.0.0.7", 5678)))


def partition(harness: GroupHarness, group: str) -> int:
    return harness.shards.journal_of(group).partition


@scenario("FC-04", "FC-05", "FC-07")
@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_address_belongs_to_the_listener_of_the_client(version: int) -> None:
    harness = GroupHarness()
    for dialled, address in ((Address("PLAIN", "here.example", 9092), ("there.example", 1234)), (Address("INSIDE", "x", 1), ("10.0.0.7", 5678))):
        harness.cluster.owners = {partition(harness, "theirs"): OTHER}
        peer = GroupClient(harness, listener=dialled)
        for group, expected in (("theirs", (7, *address)), ("ours", (1, dialled.host, dialled.port))):
            assert (partition(harness, group) in harness.cluster.owners) == (group == "theirs")
            reply = peer.ask(FindCoordinatorRequest(group, 0, [group]), version)
            coordinator = reply.coordinators[0] if version >= 4 else reply
            assert (coordinator.error_code, coordinator.node_id, coordinator.host, coordinator.port) == (0, *expected)
            assert coordinator.error_message == ("" if version in (0, 4, 5, 6) else "NONE")


@scenario("FC-06")
@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("owner", [None, NodeInfo(7, (("INSIDE", "10.0.0.7", 5678),))], ids=["no owner", "not on this listener"])
def test_a_coordinator_that_cannot_be_reached_is_not_available(owner: NodeInfo | None, version: int) -> None:
    harness = GroupHarness()
    harness.cluster.owners = dict.fromkeys(range(PARTITIONS), owner)
    reply = GroupClient(harness).ask(FindCoordinatorRequest("g", 0, ["g", "h"]), version)
    for coordinator in reply.coordinators if version >= 4 else [reply]:
        assert (coordinator.error_code, coordinator.node_id, coordinator.host, coordinator.port) == (15, -1, "", -1)
        assert bool(coordinator.error_message) == (version > 0)


@scenario("FC-05")
def test_coordinators_are_in_the_order_of_their_keys() -> None:
    harness = GroupHarness()
    harness.cluster.owners = {partition(harness, "theirs"): OTHER}
    keys = ["theirs", "ours", "", "theirs"]
    coordinators = GroupClient(harness).ask(FindCoordinatorRequest("", 0, keys), 4).coordinators
    assert [(coordinator.key, coordinator.node_id) for coordinator in coordinators] == [("theirs", 7), ("ours", 1), ("", 1), ("theirs", 7)]


def test_without_a_registry_no_coordinator_is_available() -> None:
    harness = GroupHarness()
    harness.topics.clear()
    (coordinator,) = GroupClient(harness).ask(FindCoordinatorRequest("", 0, ["g"]), 4).coordinators
    assert (coordinator.error_code, coordinator.node_id) == (15, -1)


@pytest.mark.parametrize(
    ("kind", "version"), [row("FC-08", 9, 3), row("FC-08", 9, 6), row("FC-08", -1, 2), row("FC-09", 2, 5), row("FC-09", 2, 3)]
)
def test_unknown_key_types_are_refused(peer: GroupClient, kind: int, version: int) -> None:
    reply = peer.ask(FindCoordinatorRequest("g", kind, ["g"]), version)
    coordinator = reply.coordinators[0] if version >= 4 else reply
    assert (coordinator.error_code, coordinator.node_id, coordinator.host, coordinator.port) == (42, -1, "", -1)


@scenario("FC-10")
@pytest.mark.parametrize("version", [4, 6])
def test_find_coordinator_without_keys_returns_no_coordinators(peer: GroupClient, version: int) -> None:
    assert peer.ask(FindCoordinatorRequest("", 0, []), version).coordinators == []
