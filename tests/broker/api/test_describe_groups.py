"""DescribeGroups over a connection."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from tests.coordinator.scenarios import scenario
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.group_requests import committing, join_stable_group, joining

NOT_REQUESTED, ALL_OPERATIONS = -(1 << 31), 3400


@scenario("AD-12", "VS-13")
@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("with_operations", [False, True])
def test_a_stable_group_is_described_in_every_version(harness: GroupHarness, peer: GroupClient, version: int, with_operations: bool) -> None:
    id = join_stable_group(harness, peer, "i")
    (group,) = peer.ask(DescribeGroupsRequest(["g"], with_operations and version >= 3), version).groups
    assert (group.error_code, group.error_message, group.group_id, group.group_state) == (0, None, "g", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    assert group.authorized_operations == (ALL_OPERATIONS if with_operations and version >= 3 else NOT_REQUESTED)
    (member,) = group.members
    assert (member.member_id, member.group_instance_id) == (id, "i" if version >= 4 else None)
    assert (member.client_id, member.client_host, member.member_metadata, member.member_assignment) == ("client", "/127.0.0.1", b"topics", b"mine")


@scenario("AD-11")
@pytest.mark.parametrize("version", range(7))
def test_an_unknown_group_is_dead_and_from_version_6_an_error(peer: GroupClient, version: int) -> None:
    (group,) = peer.ask(DescribeGroupsRequest(["nowhere"], version >= 3), version).groups
    assert (group.group_state, group.protocol_type, group.protocol_data, group.members) == ("Dead", "", "", [])
    if version >= 6:
        assert (group.error_code, group.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group nowhere not found.")
    else:
        assert (group.error_code, group.error_message) == (0, None)
    assert group.authorized_operations == (ALL_OPERATIONS if 3 <= version <= 5 else NOT_REQUESTED)


def test_metadata_is_described_for_stable_groups_and_assignments_for_all(harness: GroupHarness, peer: GroupClient) -> None:
    join_stable_group(harness, peer, "i")
    GroupClient(harness).send(joining(instance="new"), 9)
    (group,) = peer.ask(DescribeGroupsRequest(["g"]), 5).groups
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [(member.member_metadata, member.member_assignment) for member in group.members] == [(b"", b"mine"), (b"", b"")]


@scenario("AD-06", "AD-22")
def test_groups_are_described_in_the_order_of_the_request(peer: GroupClient) -> None:
    for name in ("b", "a", ""):
        peer.ask(committing(name), 9)
    names = ["b", "nowhere", "", "a", "b"]
    groups = peer.ask(DescribeGroupsRequest(names), 5).groups
    assert [(group.group_id, group.group_state) for group in groups] == list(zip(names, ["Empty", "Dead", "Empty", "Empty", "Empty"], strict=True))
    results = peer.ask(DeleteGroupsRequest(names), 2).results
    assert [(result.group_id, result.error_code) for result in results] == [("b", 0), ("nowhere", 69), ("", 0), ("a", 0)]
    assert peer.ask(DescribeGroupsRequest([]), 5).groups == []
    assert peer.ask(DeleteGroupsRequest([]), 2).results == []
