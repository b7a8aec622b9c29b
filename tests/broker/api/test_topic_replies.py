"""Replies about topics leave once the facts of their requests are durable, and with a retriable code if the append fails."""

from __future__ import annotations

from typing import Any

import pytest

from broker.security.authorizer import Authorizer
from protocol.messages import alter_configs, incremental_alter_configs
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.group_harness import GroupClient
from tests.support.journals import LATE_MS
from tests.support.topic_harness import TopicHarness

STORAGE, TIMED_OUT = 56, 7
TOPIC_RESOURCE = 2

CHANGES: dict[str, tuple[Any, int, str]] = {
    "create": (CreateTopicsRequest([CreatableTopic("new", 2, 1, [], [])], 5000), 7, "created"),
    "grow": (CreatePartitionsRequest([CreatePartitionsTopic("t", 5, None)], 5000), 3, "grown to 5"),
    "delete": (DeleteTopicsRequest([DeleteTopicState("t", bytes(16))], [], 5000), 6, "deleted"),
    "alter": (
        AlterConfigsRequest([alter_configs.AlterConfigsResource(TOPIC_RESOURCE, "t", [alter_configs.AlterableConfig("segment.ms", "5")])]),
        2,
        "altered",
    ),
    "change": (
        IncrementalAlterConfigsRequest(
            [
                incremental_alter_configs.AlterConfigsResource(
                    TOPIC_RESOURCE, "t", [incremental_alter_configs.AlterableConfig("cleanup.policy", 2, "compact")]
                )
            ]
        ),
        1,
        "altered",
    ),
}
READS: dict[str, tuple[Any, int]] = {
    "metadata": (MetadataRequest([MetadataRequestTopic(name="t")], False), 12),
    "partitions": (DescribeTopicPartitionsRequest([TopicRequest("t")]), 0),
    "settings": (DescribeConfigsRequest([DescribeConfigsResource(TOPIC_RESOURCE, "t", None)]), 4),
}


@pytest.fixture
def harness() -> TopicHarness:
    return TopicHarness(Authorizer(), {"t": 3})


def codes(reply: Any) -> list[int]:
    results = next(value for name in ("topics", "results", "responses") if (value := getattr(reply, name, None)) is not None)
    return [result.error_code for result in results]


@pytest.mark.parametrize("name", CHANGES)
def test_topic_changes_and_reads_of_them_are_answered_when_durable(harness: TopicHarness, name: str) -> None:
    request, version, expected_call = CHANGES[name]
    harness.registry_log.immediate = False
    peer = GroupClient(harness)
    peer.send(request, version)
    lookers = []
    for look in READS.values():
        looker = GroupClient(harness)
        looker.send(*look)
        lookers.append(looker)
    harness.loop.run()
    assert [looker.reply() for looker in (peer, *lookers)] == [None] * 4
    harness.registry_log.succeed()
    harness.loop.run()
    assert codes(peer.reply()) == [0]
    assert all(looker.reply() is not None for looker in lookers)
    assert [call for call, _ in harness.partitions.calls] == [expected_call]


@pytest.mark.parametrize("name", CHANGES)
def test_a_topic_change_with_a_failed_or_late_append_is_retriable(harness: TopicHarness, name: str) -> None:
    request, version, _ = CHANGES[name]
    harness.registry_log.immediate = False
    late = GroupClient(harness)
    late.send(request, version)
    harness.loop.run()
    harness.loop.advance(LATE_MS / 1000)
    harness.registry.advance(harness.clock.tick())
    harness.loop.run()
    assert codes(late.reply()) == [TIMED_OUT]
    harness.registry_log.refuse()
    harness.loop.run()


@pytest.mark.parametrize("name", CHANGES)
def test_a_suspended_registry_refuses_changes(harness: TopicHarness, name: str) -> None:
    request, version, _ = CHANGES[name]
    harness.registry.writable = False
    assert codes(GroupClient(harness).ask(request, version)) == [STORAGE]
    for look in READS.values():
        assert codes(GroupClient(harness).ask(*look)) == [0]
    assert harness.partitions.calls == []
    assert harness.topics.by_name["t"].settings == {}
    assert harness.topics.by_name["t"].partition_count == 3


def test_validate_only_works_while_the_registry_is_suspended(harness: TopicHarness) -> None:
    harness.registry.writable = False
    before = dict(harness.topics.by_name)
    for name in ("create", "grow", "alter", "change"):
        request, version, _ = CHANGES[name]
        request.validate_only = True
        try:
            assert codes(GroupClient(harness).ask(request, version)) == [0]
        finally:
            request.validate_only = False
    assert harness.topics.by_name == before
    assert harness.partitions.calls == []


def test_the_partition_limit_applies_to_added_partitions(harness: TopicHarness) -> None:
    reply = GroupClient(harness).ask(CreatePartitionsRequest([CreatePartitionsTopic("t", 1_000, None)], 5000), 3)
    assert codes(reply) == [44]
    assert "partitions.max" in reply.results[0].error_message


@pytest.mark.parametrize("version", [1, 4])
def test_describing_many_topic_configs_yields_and_returns_the_final_state(harness: TopicHarness, version: int) -> None:
    names = [f"t{number}" for number in range(100)]
    for name in names:
        harness.topics._new_id = lambda name=name: name.encode().ljust(16)  # type: ignore[misc]
        harness.topics.create(name, 1, {}, 0)
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC_RESOURCE, name, ["segment.ms"]) for name in names])
    describe_all = DescribeConfigsRequest([DescribeConfigsResource(TOPIC_RESOURCE, name, None) for name in names])
    soon: list[object] = []
    plain = harness.loop.call_soon

    def call_soon(*arguments: Any) -> None:
        soon.append(arguments)
        if len(soon) == lost_at:
            harness.topics.clear()  # as a registry that is being replayed
        plain(*arguments)

    harness.loop.call_soon = call_soon  # type: ignore[method-assign, assignment]
    lost_at = 0
    assert [(result.resource_name, len(result.configs)) for result in GroupClient(harness).ask(request, version).results] == [(name, 1) for name in names]
    soon.clear()
    settings = {len(result.configs) for result in GroupClient(harness).ask(describe_all, version).results}
    assert len(settings) == 1
    assert len(soon) > 5
    soon.clear()
    lost_at = 4
    assert set(codes(GroupClient(harness).ask(describe_all, version))) == {3}
    assert len(soon) >= lost_at


def test_a_topic_name_too_long_for_a_reply_closes_the_connection(harness: TopicHarness) -> None:
    peer = GroupClient(harness)
    body = b"\0\0\0\1\2\x7f\xff" + b"\xff" * 32_767 + b"\xff\xff\xff\xff\0"
    peer.send(DescribeConfigsRequest([]), 1, body)
    assert not peer.open
