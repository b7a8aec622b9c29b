"""ListGroups over a connection."""

from __future__ import annotations

import pytest

from protocol.messages.list_groups import ListGroupsRequest
from tests.coordinator.scenarios import scenario
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.group_requests import committing, join_stable_group


@scenario("AD-17", "AD-19")
@pytest.mark.parametrize("version", range(6))
def test_groups_of_all_partitions_are_listed(harness: GroupHarness, peer: GroupClient, version: int) -> None:
    join_stable_group(harness, peer)
    names = [f"simple-{number}" for number in range(20)]
    for name in names:
        peer.ask(committing(name), 9)
    reply = peer.ask(ListGroupsRequest(), version)
    kind = "classic" if version >= 5 else ""
    groups = {group.group_id: (group.protocol_type, group.group_state, group.group_type) for group in reply.groups}
    expected = dict.fromkeys(names, ("", "Empty" if version >= 4 else "", kind))
    assert groups == expected | {"g": ("consumer", "Stable" if version >= 4 else "", kind)}
    assert len(reply.groups) == 21


@scenario("AD-17", "AD-18")
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
def test_list_groups_filters_as_kafka_does(harness: GroupHarness, peer: GroupClient, states: list[str], types: list[str], listed: set[str]) -> None:
    join_stable_group(harness, peer)
    peer.ask(committing("simple"), 9)
    assert {group.group_id for group in peer.ask(ListGroupsRequest(states, types), 5).groups} == listed
