"""FindCoordinator and the partition of a group: section 19 of the conformance catalogue."""

from __future__ import annotations

from typing import Any

import pytest

from broker.security.authorizer import Operation, Resource
from coordinator import partition_of
from protocol.messages.find_coordinator import FindCoordinatorRequest
from storage import NodeInfo
from tests.coordinator.scenarios import row, scenario
from tests.support.group_desk import DIALLED, Desk, Peer, Refusing


@pytest.mark.parametrize(
    ("group", "partition"),
    [
        row("FC-01", "", 0),
        row("FC-01", "g", 3),
        row("FC-01", "my-group", 12),
        row("FC-01", "test-group", 12),
        row("FC-01", "connect-cluster", 13),
        row("FC-01", "console-consumer-12345", 6),
        row("FC-01", "group-1", 49),
        row("FC-01", "group-2", 0),
        row("FC-02", "polygenelubricants", 0),
        row("FC-03", "\N{LATIN SMALL LETTER E WITH ACUTE}t\N{LATIN SMALL LETTER E WITH ACUTE}", 42),
        row("FC-03", "\N{GRINNING FACE}", 49),
    ],
)
def test_the_partition_of_a_group_is_javas_hash_of_its_name(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition


def find(peer: Peer, *keys: str, kind: int = 0, version: int) -> Any:
    if version < 4:
        return peer.ask(FindCoordinatorRequest(keys[0], kind), version)
    return peer.ask(FindCoordinatorRequest("", kind, list(keys)), version).coordinators


@pytest.mark.parametrize(("version", "message"), [row("FC-04", 0, ""), row("FC-04", 1, "NONE"), row("FC-04", 3, "NONE")])
def test_old_versions_find_one_coordinator(peer: Peer, version: int, message: str) -> None:
    reply = find(peer, "g", version=version)
    assert (reply.error_code, reply.error_message, reply.node_id, reply.host, reply.port) == (0, message, 1, DIALLED.host, DIALLED.port)


@pytest.mark.parametrize("version", [row("FC-05", version) for version in (4, 5, 6)])
def test_newer_versions_find_several_coordinators_in_request_order(peer: Peer, version: int) -> None:
    coordinators = [(reply.key, reply.error_code, reply.error_message, reply.node_id) for reply in find(peer, "x", "y", "x", version=version)]
    assert coordinators == [("x", 0, "", 1), ("y", 0, "", 1), ("x", 0, "", 1)]


def unowned(desk: Desk, group: str) -> None:
    """The group's partition has no owner."""
    desk.cluster.owners[desk.shards.journal_of(group).partition] = None


@pytest.mark.parametrize("version", [row("FC-06", version) for version in range(4)])
def test_the_groups_of_an_unowned_partition_have_no_coordinator(desk: Desk, peer: Peer, version: int) -> None:
    unowned(desk, "g")
    reply = find(peer, "g", version=version)
    assert (reply.error_code, reply.node_id, reply.host, reply.port) == (15, -1, "", -1)
    assert bool(reply.error_message) == (version >= 1)


@scenario("FC-06")
def test_only_groups_of_unowned_partitions_have_no_coordinator(desk: Desk, peer: Peer) -> None:
    unowned(desk, "g")
    other_group = next(name for name in map(str, range(100)) if desk.shards.journal_of(name) is not desk.shards.journal_of("g"))
    coordinators = find(peer, "g", other_group, version=6)
    assert [(coordinator.key, coordinator.error_code, coordinator.node_id, coordinator.host, coordinator.port) for coordinator in coordinators] == [
        ("g", 15, -1, "", -1),
        (other_group, 0, 1, DIALLED.host, DIALLED.port),
    ]


def test_a_remote_coordinator_is_named_with_its_address_for_the_dialled_listener(desk: Desk, peer: Peer) -> None:
    other_node = NodeInfo(7, ((DIALLED.name, "there.example", 19092), ("INSIDE", "10.0.0.7", 9)))
    desk.cluster.owners[desk.shards.journal_of("g").partition] = other_node
    (coordinator,) = find(peer, "g", version=4)
    assert (coordinator.error_code, coordinator.node_id, coordinator.host, coordinator.port) == (0, 7, "there.example", 19092)


@scenario("FC-06")
def test_an_owner_without_the_dialled_listener_is_not_available(desk: Desk, peer: Peer) -> None:
    desk.cluster.owners[desk.shards.journal_of("g").partition] = NodeInfo(7, (("INSIDE", "10.0.0.7", 9),))
    (coordinator,) = find(peer, "g", version=4)
    assert (coordinator.error_code, coordinator.node_id) == (15, -1)


@scenario("FC-07")
def test_the_first_request_finds_a_coordinator(peer: Peer) -> None:
    """Z18: the offsets topic exists from the first start; Kafka creates it at the first request and answers 15."""
    assert find(peer, "g", version=2).error_code == 0


@pytest.mark.parametrize(
    ("kind", "version"), [row("FC-08", 9, 3), row("FC-08", 9, 6), row("FC-08", -1, 2), row("FC-09", 2, 5), row("FC-09", 2, 3)]
)
def test_unknown_key_types_are_refused(peer: Peer, kind: int, version: int) -> None:
    reply = find(peer, "g", kind=kind, version=version)
    if version >= 4:
        (reply,) = reply
    assert (reply.error_code, reply.node_id, reply.host, reply.port) == (42, -1, "", -1)


@scenario("FC-10")
@pytest.mark.parametrize("version", [4, 6])
def test_find_coordinator_without_keys_returns_no_coordinators(peer: Peer, version: int) -> None:
    assert find(peer, version=version) == []


def test_an_unauthorized_group_has_no_coordinator() -> None:
    peer = Peer(Desk(Refusing((Operation.DESCRIBE, Resource.GROUP, "hidden"))))
    coordinators = find(peer, "hidden", "g", version=4)
    assert [(coordinator.error_code, coordinator.node_id) for coordinator in coordinators] == [(30, -1), (0, 1)]
    assert find(peer, "hidden", version=3).error_code == 30
