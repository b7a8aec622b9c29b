"""DescribeGroups, ListGroups and DeleteGroups over a connection."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.broker.api.test_groups import joining, stable
from tests.broker.api.test_refusals import committing
from tests.support.group_desk import Desk, Peer

NOT_ASKED, ALL_OPERATIONS = -(1 << 31), 3400


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def peer(desk: Desk) -> Peer:
    return Peer(desk)


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("asked", [False, True])
def test_a_stable_group_is_described_in_every_version(desk: Desk, peer: Peer, version: int, asked: bool) -> None:
    id = stable(desk, peer, "i")
    (group,) = peer.ask(DescribeGroupsRequest(["g"], asked and version >= 3), version).groups
    assert (group.error_code, group.error_message, group.group_id, group.group_state) == (0, None, "g", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    assert group.authorized_operations == (ALL_OPERATIONS if asked and version >= 3 else NOT_ASKED)
    (member,) = group.members
    assert (member.member_id, member.group_instance_id) == (id, "i" if version >= 4 else None)
    assert (member.client_id, member.client_host, member.member_metadata, member.member_assignment) == ("client", "/127.0.0.1", b"topics", b"mine")


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_is_not_there_is_dead_and_from_version_6_an_error(peer: Peer, version: int) -> None:
    (group,) = peer.ask(DescribeGroupsRequest(["nowhere"], version >= 3), version).groups
    assert (group.group_state, group.protocol_type, group.protocol_data, group.members) == ("Dead", "", "", [])
    if version >= 6:
        assert (group.error_code, group.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group nowhere not found.")
    else:
        assert (group.error_code, group.error_message) == (0, None)
    assert group.authorized_operations == (ALL_OPERATIONS if 3 <= version <= 5 else NOT_ASKED)


def test_metadata_is_shown_of_stable_groups_and_assignments_of_all(desk: Desk, peer: Peer) -> None:
    stable(desk, peer, "i")
    Peer(desk).send(joining(instance="new"), 9)
    (group,) = peer.ask(DescribeGroupsRequest(["g"]), 5).groups
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [(one.member_metadata, one.member_assignment) for one in group.members] == [(b"", b"mine"), (b"", b"")]


def test_groups_are_told_in_the_order_of_the_request(peer: Peer) -> None:
    for name in ("b", "a", ""):
        peer.ask(committing(name), 9)
    names = ["b", "nowhere", "", "a", "b"]
    groups = peer.ask(DescribeGroupsRequest(names), 5).groups
    assert [(one.group_id, one.group_state) for one in groups] == list(zip(names, ["Empty", "Dead", "Empty", "Empty", "Empty"], strict=True))
    results = peer.ask(DeleteGroupsRequest(names), 2).results
    assert [(one.group_id, one.error_code) for one in results] == [("b", 0), ("nowhere", 69), ("", 0), ("a", 0)]
    assert peer.ask(DescribeGroupsRequest([]), 5).groups == []
    assert peer.ask(DeleteGroupsRequest([]), 2).results == []


@pytest.mark.parametrize("version", range(6))
def test_groups_of_all_partitions_are_listed(desk: Desk, peer: Peer, version: int) -> None:
    stable(desk, peer)
    names = [f"simple-{number}" for number in range(20)]
    for name in names:
        peer.ask(committing(name), 9)
    reply = peer.ask(ListGroupsRequest(), version)
    kind = "classic" if version >= 5 else ""
    told = {one.group_id: (one.protocol_type, one.group_state, one.group_type) for one in reply.groups}
    expected = dict.fromkeys(names, ("", "Empty" if version >= 4 else "", kind))
    assert told == expected | {"g": ("consumer", "Stable" if version >= 4 else "", kind)}
    assert len(reply.groups) == 21


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        ([" stable "], [], {"g"}),
        (["EMPTY"], [], {"simple"}),
        (["empty", "Stable"], ["Classic"], {"g", "simple"}),
        (["bogus"], [], set()),
        ([], ["consumer"], set()),
        ([], ["bogus", "CLASSIC"], {"g", "simple"}),
        ([], [" classic "], set()),
        (["dead"], ["classic"], set()),
    ],
)
def test_lists_are_filtered_as_kafka_filters_them(desk: Desk, peer: Peer, states: list[str], types: list[str], listed: set[str]) -> None:
    stable(desk, peer)
    peer.ask(committing("simple"), 9)
    assert {one.group_id for one in peer.ask(ListGroupsRequest(states, types), 5).groups} == listed


@pytest.mark.parametrize("version", range(3))
def test_only_what_nobody_is_in_is_deleted_and_then_forgotten(desk: Desk, peer: Peer, version: int) -> None:
    stable(desk, peer)
    peer.ask(committing("simple", partitions=(0, 1)), 9)
    results = peer.ask(DeleteGroupsRequest(["g", "simple", "simple"]), version).results
    assert [(one.group_id, one.error_code) for one in results] == [("g", ErrorCode.NON_EMPTY_GROUP), ("simple", 0)]
    assert peer.ask(DescribeGroupsRequest(["simple"]), 5).groups[0].group_state == "Dead"
    (group,) = peer.ask(OffsetFetchRequest([OffsetFetchRequestGroup("simple", topics=None)]), 8).groups
    assert (group.error_code, group.topics) == (0, [])
