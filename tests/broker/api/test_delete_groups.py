"""DeleteGroups over a connection."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.coordinator.scenarios import scenario
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.group_requests import committing, join_stable_group


@scenario("AD-06", "AD-09")
@pytest.mark.parametrize("version", range(4))
def test_only_a_group_without_members_is_deleted(harness: GroupHarness, peer: GroupClient, version: int) -> None:
    join_stable_group(harness, peer)
    peer.ask(committing("simple", partitions=(0, 1)), 9)
    results = peer.ask(DeleteGroupsRequest(["g", "simple", "simple"]), version).results
    assert [(result.group_id, result.error_code, result.error_message) for result in results] == [("g", ErrorCode.NON_EMPTY_GROUP, None), ("simple", 0, None)]
    assert peer.ask(DescribeGroupsRequest(["simple"]), 5).groups[0].group_state == "Dead"
    (group,) = peer.ask(OffsetFetchRequest([OffsetFetchRequestGroup("simple", topics=None)]), 8).groups
    assert (group.error_code, group.topics) == (0, [])
