"""Groups of a started broker, over sockets: members that wait for each other, and their state after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.sync_group import SyncGroupResponse
from tests.running import Broker, Client, broker
from tests.support.group_requests import codes_of_commit, committing, joining, syncing

LOOPS = ("uvloop", "asyncio")
GROUP_APIS = {8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 42: (0, 3), 47: (0, 0)}


@pytest.fixture(scope="module", params=LOOPS)
def running(request: pytest.FixtureRequest) -> Iterator[Broker]:
    settings = (f"event.loop={request.param}", "group.initial.rebalance.delay.ms=100")
    with broker("--profile", "test", *[part for setting in settings for part in ("--set", setting)]) as started:
        yield started


def join_together(group: str, members: list[Client]) -> list[JoinGroupResponse]:
    """All join as static members m0, m1, ...; returns their replies in order."""
    requests = [joining(group, instance=f"m{number}") for number in range(len(members))]
    for member, request in zip(members, requests, strict=True):
        member.send(request, 9)
    return [member.receive(request, 9) for member, request in zip(members, requests, strict=True)]


def sync_all(group: str, members: list[Client], joined: list[JoinGroupResponse]) -> list[SyncGroupResponse]:
    """The leader assigns each member its own id; followers sync first."""
    leader = next(number for number, reply in enumerate(joined) if reply.members)
    assigned = {member.member_id: member.member_id.encode() for member in joined[leader].members}
    order = sorted(range(len(members)), key=lambda number: number == leader)
    requests = {}
    for number in order:
        reply = joined[number]
        requests[number] = syncing(reply.member_id, reply.generation_id, assigned if number == leader else None, f"m{number}")
        requests[number].group_id = group
        members[number].send(requests[number], 5)
    return [members[number].receive(requests[number], 5) for number in range(len(members))]


def test_the_apis_of_groups_are_offered_in_the_versions_served(running: Broker) -> None:
    with Client(running.port) as client:
        offered = {api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in client.ask(ApiVersionsRequest("tests", "1"), 4).api_keys}
        assert {key: offered.get(key) for key in GROUP_APIS} == GROUP_APIS
        (coordinator,) = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators
        assert (coordinator.error_code, coordinator.port) == (0, running.port)


def test_members_of_ten_connections_share_a_group_and_leave_it(running: Broker) -> None:
    with ExitStack() as stack:
        members = [stack.enter_context(Client(running.port)) for _ in range(10)]
        joined = join_together("ten", members)
        assert {(reply.error_code, reply.generation_id) for reply in joined} == {(0, 1)}
        assert sorted(len(reply.members) for reply in joined) == [0] * 9 + [10]
        assert [reply.assignment for reply in sync_all("ten", members, joined)] == [reply.member_id.encode() for reply in joined]
        for member, reply in zip(members, joined, strict=True):
            for _ in range(3):
                assert member.ask(HeartbeatRequest("ten", 1, reply.member_id), 4).error_code == 0
        (group,) = members[0].ask(DescribeGroupsRequest(["ten"]), 5).groups
        assert (group.group_state, {member.client_host for member in group.members}) == ("Stable", {"/127.0.0.1"})
        leave_reply = members[0].ask(LeaveGroupRequest("ten", [MemberIdentity("", f"m{number}") for number in range(10)]), 5)
        assert {member.error_code for member in leave_reply.members} == {0}
        assert [group.group_state for group in members[0].ask(ListGroupsRequest(["empty"]), 5).groups if group.group_id == "ten"] == ["Empty"]


@pytest.mark.once  # no dependence on the Python version
@pytest.mark.parametrize("flush", ["always", "never"])
def test_acknowledged_requests_survive_kill_9(tmp_path: Path, flush: str) -> None:
    settings = (f"offsets.flush={flush}", "group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=3")
    arguments = ("--listen", "127.0.0.1:0", "--data", str(tmp_path), *[part for setting in settings for part in ("--set", setting)])
    groups = [f"g{number}" for number in range(6)]
    ids = {}
    with broker(*arguments) as first, Client(first.port) as client:
        assert client.ask(CreateTopicsRequest([CreatableTopic("t", 1, 1, [], [])], 5000), 7).topics[0].error_code == 0
        for group in groups:
            (joined,) = join_together(group, [client])
            sync_all(group, [client], [joined])
            ids[group] = joined.member_id
            assert codes_of_commit(client.ask(committing(group, 1, joined.member_id), 9)) == {("t", 0): 0}
        first.kill()
    with broker(*arguments) as second, Client(second.port) as client:
        await_loaded(client, groups)
        for group in groups:
            assert client.ask(HeartbeatRequest(group, 1, ids[group], "m0"), 4).error_code == 0
        replies = client.ask(OffsetFetchRequest([OffsetFetchRequestGroup(group, topics=None) for group in groups]), 8).groups
        assert [(reply.group_id, reply.error_code, reply.topics[0].partitions[0].committed_offset) for reply in replies] == [(group, 0, 5) for group in groups]
        # A restarted process takes its seat without a rebalance.
        rejoined = client.ask(joining("g0", instance="m0"), 9)
        assert (rejoined.error_code, rejoined.generation_id, rejoined.skip_assignment) == (0, 1, True)
        assert client.ask(HeartbeatRequest("g0", 1, ids["g0"], "m0"), 4).error_code == ErrorCode.FENCED_INSTANCE_ID


def await_loaded(client: Client, groups: list[str]) -> None:
    """Wait until no partition is loading."""
    while client.ask(ListGroupsRequest(), 5).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        pass
    assert {group.group_id for group in client.ask(ListGroupsRequest(), 5).groups} >= set(groups)
