"""When replies about topics leave: as soon as what they tell is durable, and with a code on which clients try again when it cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from broker.authorizer import AllowAll
from protocol.messages import alter_configs, incremental_alter_configs
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.group_desk import LATE_MS, Peer
from tests.broker.topic_desk import TopicDesk

STORAGE, TIMED_OUT = 56, 7
TOPIC = 2

CHANGES: dict[str, tuple[Any, int, str]] = {
    "create": (CreateTopicsRequest([CreatableTopic("new", 2, 1, [], [])], 5000), 7, "created"),
    "grow": (CreatePartitionsRequest([CreatePartitionsTopic("t", 5, None)], 5000), 3, "grown from 3 to 5"),
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
    return [one.error_code for one in results]


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_told_when_it_is_durable_and_so_is_what_others_see_of_it(desk: TopicDesk, name: str) -> None:
    request, version, told = CHANGES[name]
    desk.registry_log.waiting = True
    peer = Peer(desk)
    peer.send(request, version)
    lookers = []
    for look in LOOKS.values():
        looker = Peer(desk)
        looker.send(*look)
        lookers.append(looker)
    desk.loop.run()
    assert [one.reply() for one in (peer, *lookers)] == [None] * 4
    desk.registry_log.succeed()
    desk.loop.run()
    assert codes(peer.reply()) == [0]
    assert all(one.reply() is not None for one in lookers)
    assert [what for what, _ in desk.partitions.told] == [told]


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_the_log_refuses_or_keeps_waiting_is_to_be_tried_again(desk: TopicDesk, name: str) -> None:
    request, version, _ = CHANGES[name]
    desk.registry_log.waiting = True
    late = Peer(desk)
    late.send(request, version)
    desk.loop.run()
    desk.ms += LATE_MS
    desk.registry.advance(desk.clock.tick())
    desk.loop.run()
    assert codes(late.reply()) == [TIMED_OUT]
    desk.registry_log.refuse()
    desk.loop.run()


@pytest.mark.parametrize("name", CHANGES)
def test_a_suspended_registry_changes_nothing_and_says_so(desk: TopicDesk, name: str) -> None:
    request, version, _ = CHANGES[name]
    desk.registry.writable = False
    assert codes(Peer(desk).ask(request, version)) == [STORAGE]
    for look in LOOKS.values():
        assert codes(Peer(desk).ask(*look)) == [0]
    assert desk.partitions.told == []
    assert desk.topics.by_name["t"].settings == {}
    assert desk.topics.by_name["t"].partitions == 3


def test_only_validated_changes_nothing_even_where_nothing_can_be_changed(desk: TopicDesk) -> None:
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
    assert desk.partitions.told == []


def test_partitions_max_holds_for_growth_too(desk: TopicDesk) -> None:
    reply = Peer(desk).ask(CreatePartitionsRequest([CreatePartitionsTopic("t", 1_000, None)], 5000), 3)
    assert codes(reply) == [44]
    assert "partitions.max" in reply.results[0].error_message
