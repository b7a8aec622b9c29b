"""All stored state of a coordinator that clients can read, to be compared before and after a restart, and between brokers."""

from __future__ import annotations

import time
from typing import Any

from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_groups import ListGroupsRequest
from tests.running import Client
from tests.support.restartable import stored_offsets

AWAIT_SECONDS = 60


def await_coordinator(port: int, group: str = "any") -> None:
    """Wait for the coordinator: Kafka replies 15 while it creates __consumer_offsets, then 16, then 14 while it loads."""
    until = time.monotonic() + AWAIT_SECONDS
    with Client(port) as client:
        while True:
            coordinator = client.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators[0]
            answer = client.ask(DescribeGroupsRequest([group]), 5).groups[0]
            if not coordinator.error_code and not answer.error_code:
                return
            assert time.monotonic() < until, (coordinator, answer)
            time.sleep(0.05)


def listed_groups(port: int) -> dict[str, tuple[str, str]]:
    with Client(port) as client:
        reply = client.ask(ListGroupsRequest(), 4)
    assert reply.error_code == 0, reply
    return {group.group_id: (group.protocol_type, group.group_state) for group in reply.groups}


def everything_stored(port: int) -> dict[str, Any]:
    """All groups: state, protocol, members with their assignments, offsets."""
    stored: dict[str, Any] = {}
    for group in sorted(listed_groups(port)):
        with Client(port) as client:
            described = client.ask(DescribeGroupsRequest([group]), 5).groups[0]
        assert described.error_code == 0, described
        members = {
            member.member_id: (member.group_instance_id, member.client_id, member.client_host, member.member_metadata, member.member_assignment)
            for member in described.members
        }
        stored[group] = (described.group_state, described.protocol_type, described.protocol_data, members, stored_offsets(port, group))
    return stored
