"""Groups of the consumer protocol (KIP-848) through a socket: what is decided beside the core, whose rules tests/coordinator/consumer has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from coordinator.consumer.assignors import ASSIGNORS
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from tests.support.consumer_members import GROUP, ConsumerClient
from tests.support.in_loop import InLoopBroker

pytestmark = pytest.mark.asyncio

EVENLY = {"group_consumer_assignment_interval_ms": 0}


@pytest_asyncio.fixture
async def consumers(served: InLoopBroker) -> AsyncIterator[ConsumerClient]:
    """A broker that computes assignments at once, and a topic `t` with four partitions."""
    await served.stop()
    await served.start(**EVENLY)
    client = ConsumerClient(served, await served.connect())
    await client.topic("t", 4)
    yield client


async def shared_by_two(consumers: ConsumerClient) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Members "a" and "b" with two partitions each, in epoch 3."""
    assert consumers.assigned(await consumers.join("a", "t")) == {"t": [0, 1, 2, 3]}
    assert consumers.assigned(await consumers.join("b", "t")) == {}
    told = await consumers.say("a", 2)
    kept = consumers.assigned(told) or {}
    assert (told.member_epoch, len(kept["t"])) == (2, 2)
    assert (await consumers.say("a", 2, kept)).member_epoch == 3
    given = consumers.assigned(await consumers.say("b", 3)) or {}
    assert sorted(kept["t"] + given["t"]) == [0, 1, 2, 3]
    return kept, given


async def restart(consumers: ConsumerClient, served: InLoopBroker) -> None:
    await served.stop()
    await served.start(**EVENLY)
    consumers.client = await served.connect()
    async with asyncio.timeout(10):
        while (await consumers.describe()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await asyncio.sleep(0.02)


# Heartbeats.


async def test_a_partition_moves_when_its_holder_has_given_it_up_and_back_when_the_other_leaves(consumers: ConsumerClient) -> None:
    await shared_by_two(consumers)
    left = await consumers.say("b", -1)
    assert (left.error_code, left.member_id, left.member_epoch, left.heartbeat_interval_ms, left.assignment) == (0, "b", -1, 0, None)
    back = await consumers.say("a", 3)
    assert (back.member_epoch, back.heartbeat_interval_ms, consumers.assigned(back)) == (4, 5_000, {"t": [0, 1, 2, 3]})
    assert (await consumers.say("a", 4)).assignment is None


async def test_before_version_1_the_coordinator_gives_a_member_its_id(consumers: ConsumerClient) -> None:
    given = (await consumers.join("", "t", v=0)).member_id
    assert given is not None
    assert len(given) == 22
    assert not set(given) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
    assert (await consumers.say(given, 2, v=0)).error_code == 0
    assert (await consumers.join("", "t", v=1)).error_code == ErrorCode.INVALID_REQUEST


async def test_a_refused_heartbeat_says_why_and_nothing_else(consumers: ConsumerClient) -> None:
    for reply, error in (
        (await consumers.say("a", 1), ErrorCode.GROUP_ID_NOT_FOUND),
        (await consumers.join("a", "t", server_assignor="sticky"), ErrorCode.UNSUPPORTED_ASSIGNOR),
        (await consumers.join("a", subscribed_topic_names=None, subscribed_topic_regex="("), ErrorCode.INVALID_REGULAR_EXPRESSION),
        (await consumers.say("a", -2), ErrorCode.INVALID_REQUEST),
    ):
        assert (reply.error_code, reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms, reply.assignment) == (error, None, 0, 0, None)
        assert reply.error_message
    assert await consumers.listed() == []


async def test_a_static_member_comes_back_without_a_rebalance(consumers: ConsumerClient) -> None:
    await consumers.join("a", "t", instance_id="i")
    assert (await consumers.join("other", "t", instance_id="i")).error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert (await consumers.say("a", -2, instance_id="i")).member_epoch == -2
    back = await consumers.join("later", "t", instance_id="i")
    assert (back.member_epoch, consumers.assigned(back)) == (2, {"t": [0, 1, 2, 3]})
    assert (await consumers.say("a", 2, instance_id="i")).error_code == ErrorCode.FENCED_INSTANCE_ID


async def test_a_switched_off_protocol_is_answered_35(served: InLoopBroker) -> None:
    await served.stop()
    await served.start(group_coordinator_rebalance_protocols="classic")
    consumers = ConsumerClient(served, await served.connect())
    reply = await consumers.join("a", "t")
    assert (reply.error_code, reply.error_message) == (ErrorCode.UNSUPPORTED_VERSION, "the consumer protocol is switched off")
    assert (await consumers.describe()).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_while_the_partition_loads_a_wrong_request_hears_what_is_wrong_with_it(consumers: ConsumerClient, served: InLoopBroker) -> None:
    journal = served.server.broker.shards.journal_of(GROUP)
    journal.refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await consumers.join("a", "t")).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await consumers.join("a", "t", rack_id="")).error_code == ErrorCode.INVALID_REQUEST
    assert (await consumers.describe()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    journal.refusal = 0


async def test_a_full_group_refuses_newcomers(served: InLoopBroker) -> None:
    await served.stop()
    await served.start(group_consumer_max_size=1)
    consumers = ConsumerClient(served, await served.connect())
    await consumers.join("a", "t")
    assert (await consumers.join("b", "t")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (await consumers.join("a", "t")).error_code == 0


async def test_what_members_keep_in_memory_counts_and_is_limited(served: InLoopBroker) -> None:
    await served.stop()
    await served.start(group_member_metadata_max_bytes=2_048)
    consumers = ConsumerClient(served, await served.connect())
    await consumers.join("a", "t")
    kept = served.server.broker.shards.kept
    before = kept.bytes
    assert before > 500
    assert (await consumers.join("b", *[f"topic-{number}" for number in range(300)])).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert kept.bytes == before
    await consumers.say("a", -1)
    assert kept.bytes == 0


@pytest.mark.usefixtures("planted_defect")
@pytest.mark.plain
async def test_an_assignor_that_fails_is_reported_and_changes_nothing(consumers: ConsumerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Any:
        raise ZeroDivisionError

    monkeypatch.setitem(ASSIGNORS, "uniform", fails)
    reply = await consumers.join("a", "t")
    assert (reply.error_code, "ZeroDivisionError" in (reply.error_message or "")) == (ErrorCode.UNKNOWN_SERVER_ERROR, True)
    assert await consumers.listed() == []


# Topics.


async def test_topics_that_are_created_grow_and_are_deleted_reach_the_members(consumers: ConsumerClient) -> None:
    joined = await consumers.join("a", "t", "u")
    assert consumers.assigned(joined) == {"t": [0, 1, 2, 3]}
    assert (await consumers.say("a", 2)).member_epoch == 2
    await consumers.topic("u", 1)
    assert consumers.assigned(await consumers.say("a", 2)) == {"t": [0, 1, 2, 3], "u": [0]}
    await consumers.client.ask(CreatePartitionsRequest([CreatePartitionsTopic("u", 2)], 5_000), 2)
    grown = await consumers.say("a", 3)
    assert (grown.member_epoch, consumers.assigned(grown)) == (4, {"t": [0, 1, 2, 3], "u": [0, 1]})
    await consumers.client.ask(DeleteTopicsRequest(topic_names=["u"], timeout_ms=5_000), 3)
    told = await consumers.say("a", 4)
    assert (told.member_epoch, consumers.assigned(told)) == (4, {"t": [0, 1, 2, 3]})
    assert (await consumers.say("a", 4, {"t": [0, 1, 2, 3]})).member_epoch == 5


async def test_an_expression_is_resolved_after_the_heartbeat_that_brings_it(consumers: ConsumerClient) -> None:
    joined = await consumers.join("a", subscribed_topic_names=None, subscribed_topic_regex="t|__.*")
    assert consumers.assigned(joined) == {}
    assert (await consumers.say("a", joined.member_epoch)).assignment is not None
    shown = (await consumers.describe()).members[0]
    assert shown.subscribed_topic_regex == "t|__.*"
    assert {topic.topic_name for topic in shown.target_assignment.topic_partitions} == {"t", "__consumer_offsets"}, "the notes are not listed"


async def test_groups_are_as_they_were_after_a_restart(consumers: ConsumerClient, served: InLoopBroker) -> None:
    kept, given = await shared_by_two(consumers)
    await consumers.commit("a", 3, kept)
    before = await consumers.describe()
    await restart(consumers, served)
    assert await consumers.describe() == before
    assert (await consumers.say("a", 3)).assignment is None
    await consumers.client.ask(CreatePartitionsRequest([CreatePartitionsTopic("t", 6)], 5_000), 2)
    assert (await consumers.say("b", 3, given)).member_epoch == 4, "topics are watched after a load"


async def test_a_silent_member_is_removed_after_its_session(served: InLoopBroker) -> None:
    await served.stop()
    short = {"session_timeout": 200, "heartbeat_interval": 100}
    await served.start(**{f"group_consumer_{bound}{name}_ms": ms for name, ms in short.items() for bound in ("", "min_")})
    consumers = ConsumerClient(served, await served.connect())
    await consumers.join("a", "t")
    async with asyncio.timeout(10):
        while (await consumers.describe()).members:
            await asyncio.sleep(0.05)
    assert (await consumers.say("a", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# Describe, list, delete.


async def test_a_description_shows_epochs_partitions_and_targets(consumers: ConsumerClient) -> None:
    await consumers.join("a", "t", rack_id="r", instance_id="i")
    await consumers.join("b", "t")
    await consumers.say("a", 2, instance_id="i")
    group = await consumers.describe(operations=True)
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (0, "Reconciling", 3, 3, "uniform")
    assert group.authorized_operations != -(1 << 31)
    a, b = sorted(group.members, key=lambda member: member.member_id)
    assert (a.instance_id, a.rack_id, a.member_epoch, a.client_id, a.client_host, a.subscribed_topic_names) == ("i", "r", 2, "test", "/127.0.0.1", ["t"])
    assert (a.subscribed_topic_regex, a.member_type) == ("", 1)
    assert consumers.named(a.assignment.topic_partitions) == {"t": [0, 1, 2, 3]}, "what it holds, with what it must give up"
    assert len(a.target_assignment.topic_partitions[0].partitions) == 2
    assert (a.target_assignment.topic_partitions[0].topic_name, b.assignment.topic_partitions) == ("t", [])
    assert [member.member_type for member in (await consumers.describe(v=0)).members] == [-1, -1], "no field of version 0"


async def test_groups_that_are_not_there_or_classic_are_not_described(consumers: ConsumerClient) -> None:
    await consumers.commit("", -1, {"t": [0]})  # makes a classic group
    reply = await consumers.client.ask(ConsumerGroupDescribeRequest([GROUP, "none", ""], True), 1)
    assert [(group.group_id, group.error_code) for group in reply.groups] == [
        (GROUP, ErrorCode.GROUP_ID_NOT_FOUND),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_GROUP_ID),
    ]
    assert all((group.group_state, group.group_epoch, group.members, group.authorized_operations) == ("", 0, [], -(1 << 31)) for group in reply.groups)


async def test_listings_have_the_type_of_a_group(consumers: ConsumerClient) -> None:
    await consumers.join("a", "t")
    shown = (GROUP, "consumer", "Stable", "consumer")
    assert await consumers.listed() == [shown]
    assert await consumers.listed(types_filter=["Consumer"]) == [shown]
    assert await consumers.listed(types_filter=["classic"]) == []
    assert await consumers.listed(states_filter=["stable"]) == [shown]
    await consumers.say("a", -1)
    assert await consumers.listed(states_filter=["EMPTY"]) == [(GROUP, "consumer", "Empty", "consumer")]


async def test_the_older_description_says_that_there_is_no_such_classic_group(consumers: ConsumerClient) -> None:
    await consumers.join("a", "t")
    (old,) = (await consumers.client.ask(DescribeGroupsRequest([GROUP]), 5)).groups
    assert (old.error_code, old.group_state, old.members) == (0, "Dead", [])
    (new,) = (await consumers.client.ask(DescribeGroupsRequest([GROUP]), 6)).groups
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


async def test_a_group_is_deleted_once_it_is_empty(consumers: ConsumerClient) -> None:
    await consumers.join("a", "t")
    assert (await consumers.client.ask(DeleteGroupsRequest([GROUP]), 2)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    members = [MemberIdentity("a", None), MemberIdentity("b", None)]
    codes = [member.error_code for member in (await consumers.client.ask(LeaveGroupRequest(GROUP, members=members), 5)).members]
    assert codes == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert (await consumers.client.ask(DeleteGroupsRequest([GROUP]), 2)).results[0].error_code == 0
    assert await consumers.listed() == []


# Offsets.


async def test_commits_need_the_epoch_of_the_member(consumers: ConsumerClient) -> None:
    await consumers.join("a", "t")
    all_four = {"t": [0, 1, 2, 3]}
    assert await consumers.commit("a", 2, all_four) == {0}
    assert await consumers.commit("a", 2, all_four, v=8) == {ErrorCode.UNSUPPORTED_VERSION}
    assert await consumers.commit("a", 3, all_four) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert await consumers.commit("a", -1, all_four) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert await consumers.commit("b", 2, all_four) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert await consumers.commit("", -1, all_four) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert await consumers.commit("a", 2, all_four, instance="another") == {0}, "the instance id is not looked at"
    await consumers.say("a", -1)
    assert await consumers.commit("", -1, all_four) == {0}


async def test_a_late_commit_of_what_the_member_has_kept_is_stored_and_no_other(consumers: ConsumerClient) -> None:
    kept, given = await shared_by_two(consumers)
    assert await consumers.commit("a", 2, kept) == {0}
    assert await consumers.commit("a", 2, {"t": [*kept["t"], *given["t"]]}) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert (await consumers.fetch(None, -1))[1] == {"t": dict.fromkeys(kept["t"], 7)}


async def test_a_fetch_that_names_a_member_needs_its_epoch(consumers: ConsumerClient) -> None:
    await consumers.join("a", "t")
    await consumers.commit("a", 2, {"t": [0]})
    stored = {"t": {0: 7}}
    assert await consumers.fetch("a", 2) == (0, stored)
    assert await consumers.fetch("a", 1) == (ErrorCode.STALE_MEMBER_EPOCH, {})
    assert await consumers.fetch("b", 2) == (ErrorCode.UNKNOWN_MEMBER_ID, {})
    assert await consumers.fetch("", -1) == (ErrorCode.UNKNOWN_MEMBER_ID, {})
    assert await consumers.fetch(None, 2) == (ErrorCode.UNKNOWN_SERVER_ERROR, {})
    assert await consumers.fetch(None, -1) == await consumers.fetch(None, -1, v=8) == (0, stored)


async def test_offsets_of_subscribed_topics_are_not_deleted(consumers: ConsumerClient) -> None:
    await consumers.topic("u", 1)
    await consumers.join("a", "t")
    await consumers.commit("a", 2, {"t": [0], "u": [0]})
    topics = [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(0)]) for name in ("t", "u")]
    reply = await consumers.client.ask(OffsetDeleteRequest(GROUP, topics), 0)
    assert {topic.name: topic.partitions[0].error_code for topic in reply.topics} == {"t": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "u": 0}
    assert (await consumers.fetch(None, -1))[1] == {"t": {0: 7}}


# Settings of one group.


async def test_a_group_has_its_own_session_timeout_and_heartbeat_interval(consumers: ConsumerClient, served: InLoopBroker) -> None:
    await consumers.join("a", "t")
    assert await consumers.configure(consumer_heartbeat_interval_ms="6000") == (0, "")
    assert (await consumers.say("a", 2)).heartbeat_interval_ms == 6_000
    await restart(consumers, served)
    assert (await consumers.say("a", 2)).heartbeat_interval_ms == 6_000


async def test_settings_beyond_the_limits_are_refused(consumers: ConsumerClient) -> None:
    error, message = await consumers.configure(consumer_session_timeout_ms="1000", consumer_assignment_interval_ms="x")
    assert error == ErrorCode.INVALID_CONFIG
    assert "consumer.session.timeout.ms: '1000' is not a number of milliseconds from 45000 to 60000" in message
    assert "consumer.assignment.interval.ms: 'x'" in message


async def test_the_assignment_waits_for_the_interval_of_its_group(consumers: ConsumerClient) -> None:
    assert await consumers.configure(consumer_assignment_interval_ms="15000") == (0, "")
    await consumers.join("a", "t")
    assert consumers.assigned(await consumers.join("b", "t")) == {}
    group = await consumers.describe()
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Assigning", 3, 2)
