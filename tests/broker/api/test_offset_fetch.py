"""OffsetFetch of several groups."""

from __future__ import annotations

from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.coordinator.scenarios import scenario
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.group_requests import committing, join_stable_group


@scenario("OF-10")
def test_several_groups_are_answered_in_the_order_of_the_request_whatever_their_member(harness: GroupHarness, peer: GroupClient) -> None:
    join_stable_group(harness, peer)
    peer.ask(committing("a"), 9)
    peer.ask(committing("b", partitions=(1,)), 9)
    requested = [OffsetFetchRequestGroup(name, "member", 5, None) for name in ("b", "nowhere", "a", "b", "g")]
    groups = peer.ask(OffsetFetchRequest(requested), 9).groups
    partitions = [(group.group_id, [partition.partition_index for topic in group.topics for partition in topic.partitions]) for group in groups]
    assert partitions == [("b", [1]), ("nowhere", []), ("a", [0]), ("b", [1]), ("g", [])]
    assert {group.error_code for group in groups} == {0}
    assert peer.ask(OffsetFetchRequest([]), 8).groups == []
