"""When replies about topics leave: once their facts are durable, and with a retriable code if the append fails."""

from __future__ import annotations

from typing import Any

import pytest

from broker.security.authorizer import AllowAll
from protocol.messages import alter_configs, incremental_alter_configs
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.group_desk import Peer
from tests.support.journals import LATE_MS
from tests.support.topic_desk import TopicDesk

STORAGE, TIMED_OUT = 56, 7
TOPIC = 2

CHANGES: dict[str, tuple[Any, int, str]] = {
    "create": (CreateTopicsRequest([CreatableTopic("new", 2, 1, [], [])], 5000), 7, "created"),
    "grow": (CreatePartitionsRequest([CreatePartitionsTopic("t", 5, None)], 5000), 3, "grown to 5"),
    "delete": (DeleteTopicsRequest([DeleteTopicState("t", bytes(16))], [], 5000), 6, "deleted"),
    "alter": (
        AlterConfigsRequest([alter_configs.AlterConfigsResource(TOPIC, "t", [alter_configs.AlterableConfig("segment.ms", "5")])]),
        2,
        "altered",
    ),
    "change": (
        IncrementalAlterConfigsRequest(
            [
                incremental_alter_configs.AlterConfigsResource(
                    TOPIC, "t", [incremental_alter_configs.AlterableConfig("cleanup.policy", 2, "compact")]
                )
            ]
        ),
        1,
        "altered",
    ),
}
LOOKS: dict[str, tuple[Any, int]] = {
    "metadata": (MetadataRequest([MetadataRequestTopic(name="t")], False), 12),
    "partitions": (DescribeTopicPartitionsRequest([TopicRequest("t")]), 0),
    "settings": (DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "t", None)]), 4),
}


@pytest.fixture
def desk() -> TopicDesk:
    return TopicDesk(AllowAll(), {"t": 3})


def codes(reply: Any) -> list[int]:
    results = next(value for name in ("topics", "results", "responses") if (value := getattr(reply, name, None)) is not None)
    return [result.error_code for result in results]


@pytest.mark.parametrize("name", CHANGES)
def test_topic_changes_and_reads_of_them_are_answered_when_durable(desk: TopicDesk, name: str) -> None:
    request, version, expected_call = CHANGES[name]
    desk.registry_log.immediate = False
    peer = Peer(desk)
    peer.send(request, version)
    lookers = []
    for look in LOOKS.values():
        looker = Peer(desk)
        looker.send(*look)
        lookers.append(looker)
    desk.loop.run()
    assert [looker.reply() for looker in (peer, *lookers)] == [None] * 4
    desk.registry_log.succeed()
    desk.loop.run()
    assert codes(peer.reply()) == [0]
    assert all(looker.reply() is not None for looker in lookers)
    assert [call for call, _ in desk.partitions.calls] == [expected_call]


@pytest.mark.parametrize("name", CHANGES)
def test_a_topic_change_with_a_failed_or_late_append_is_retriable(desk: TopicDesk, name: str) -> None:
    request, version, _ = CHANGES[name]
    desk.registry_log.immediate = False
    late = Peer(desk)
    late.send(request, version)
    desk.loop.run()
    desk.loop.advance(LATE_MS / 1000)
    desk.registry.advance(desk.clock.tick())
    desk.loop.run()
    assert codes(late.reply()) == [TIMED_OUT]
    desk.registry_log.refuse()
    desk.loop.run()


@pytest.mark.parametrize("name", CHANGES)
def test_a_suspended_registry_refuses_changes(desk: TopicDesk, name: str) -> None:
    request, version, _ = CHANGES[name]
    desk.registry.writable = False
    assert codes(Peer(desk).ask(request, version)) == [STORAGE]
    for look in LOOKS.values():
        assert codes(Peer(desk).ask(*look)) == [0]
    assert desk.partitions.calls == []
    assert desk.topics.by_name["t"].settings == {}
    assert desk.topics.by_name["t"].partitions == 3


def test_validate_only_works_while_the_registry_is_suspended(desk: TopicDesk) -> None:
    desk.registry.writable = False
    before = dict(desk.topics.by_name)
    for name in ("create", "grow", "alter", "change"):
        request, version, _ = CHANGES[name]
        request.validate_only = True
        try:
            assert codes(Peer(desk).ask(request, version)) == [0]
        finally:
            request.validate_only = False
    assert desk.topics.by_name == before
    assert desk.partitions.calls == []


def test_the_partition_limit_applies_to_added_partitions(desk: TopicDesk) -> None:
    reply = Peer(desk).ask(CreatePartitionsRequest([CreatePartitionsTopic("t", 1_000, None)], 5000), 3)
    assert codes(reply) == [44]
    assert "partitions.max" in reply.results[0].error_message


@pytest.mark.parametrize("version", [1, 4])
def test_describing_many_topic_configs_yields_and_returns_the_final_state(desk: TopicDesk, version: int) -> None:
    names = [f"t{number}" for number in range(100)]
    for name in names:
        desk.topics._new_id = lambda name=name: name.encode().ljust(16)  # type: ignore[misc]
        desk.topics.create(name, 1, {}, 0)
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, name, ["segment.ms"]) for name in names])
    describe_all = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, name, None) for name in names])
    soon: list[object] = []
    plain = desk.loop.call_soon

    def call_soon(*arguments: Any) -> None:
        soon.append(arguments)
        if len(soon) == lost_at:
            desk.topics.clear()  # as a registry that is being replayed
        plain(*arguments)

    desk.loop.call_soon = call_soon  # type: ignore[method-assign, assignment]
    lost_at = 0
    assert [(result.resource_name, len(result.configs)) for result in Peer(desk).ask(request, version).results] == [(name, 1) for name in names]
    soon.clear()
    settings = {len(result.configs) for result in Peer(desk).ask(describe_all, version).results}
    assert len(settings) == 1
    assert len(soon) > 5
    soon.clear()
    lost_at = 4
    assert set(codes(Peer(desk).ask(describe_all, version))) == {3}
    assert len(soon) >= lost_at


def test_a_topic_name_too_long_for_a_reply_closes_the_connection(desk: TopicDesk) -> None:
    peer = Peer(desk)
    body = b"\0\0\0\1\2\x7f\xff" + b"\xff" * 32_767 + b"\xff\xff\xff\xff\0"
    peer.send(DescribeConfigsRequest([]), 1, body)
    assert not peer.open
