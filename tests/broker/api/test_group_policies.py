"""Policies of groups as configs of resource type GROUP: set, deleted, described and listed."""

from __future__ import annotations

import pytest

from broker.security.authorizer import Authorizer, Operation, ResourceType
from protocol.messages import alter_configs, incremental_alter_configs
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.group_harness import GroupClient, refusing
from tests.support.group_requests import join_stable_group, joined, joining, syncing
from tests.support.topic_harness import TopicHarness

TOPIC_RESOURCE, GROUP_RESOURCE = 2, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
OF_GROUP, OF_BROKER, DEFAULT = 8, 4, 5
INVALID_CONFIG, INVALID_REQUEST, LOADING, NOT_AVAILABLE, NOT_COORDINATOR, NOT_AUTHORIZED = 40, 42, 14, 15, 16, 30
REBALANCE_IN_PROGRESS = 27
CHANGE = "subscription.change"
REQUEST = "rebalance.request"

Operations = tuple[tuple[str, int, str | None], ...]


@pytest.fixture
def harness() -> TopicHarness:
    return TopicHarness(Authorizer(), {"t": 3})


def changing(group: str, *operations: tuple[str, int, str | None], validate: bool = False) -> IncrementalAlterConfigsRequest:
    settings = [incremental_alter_configs.AlterableConfig(*operation) for operation in operations]
    return IncrementalAlterConfigsRequest([incremental_alter_configs.AlterConfigsResource(GROUP_RESOURCE, group, settings)], validate)


def replacing(group: str, *settings: tuple[str, str | None]) -> AlterConfigsRequest:
    configs = [alter_configs.AlterableConfig(*setting) for setting in settings]
    return AlterConfigsRequest([alter_configs.AlterConfigsResource(GROUP_RESOURCE, group, configs)])


def describing(*groups: str, keys: list[str] | None = None) -> DescribeConfigsRequest:
    return DescribeConfigsRequest([DescribeConfigsResource(GROUP_RESOURCE, group, keys) for group in groups], True, True)


def change(harness: TopicHarness, group: str, *operations: tuple[str, int, str | None], validate: bool = False) -> tuple[int, str]:
    (response,) = GroupClient(harness).ask(changing(group, *operations, validate=validate), 1).responses
    return response.error_code, response.error_message or ""


def own_values(harness: TopicHarness, group: str) -> dict[str, str]:
    (result,) = GroupClient(harness).ask(describing(group), 4).results
    assert result.error_code == 0
    return {config.name: config.value for config in result.configs if config.config_source == OF_GROUP}


def listed(harness: TopicHarness) -> set[str]:
    reply = GroupClient(harness).ask(ListConfigResourcesRequest([GROUP_RESOURCE]), 1)
    assert reply.error_code == 0
    return {config_resource.resource_name for config_resource in reply.config_resources if config_resource.resource_type == GROUP_RESOURCE}


def test_a_policy_is_set_described_and_deleted_without_its_group(harness: TopicHarness) -> None:
    assert change(harness, "g", (CHANGE, SET, " rebalance ")) == (0, "")
    assert own_values(harness, "g") == {CHANGE: "rebalance"}
    assert listed(harness) == {"g"}
    assert change(harness, "g", (CHANGE, DELETE, None)) == (0, "")
    assert own_values(harness, "g") == {}
    assert listed(harness) == set()


@pytest.mark.parametrize(
    ("written", "stored"),
    [("a-1,a-1", "a-1"), ("b, a-[1-3],a-2 ,b", "b,a-[1-3]"), ("a-[1-3],b", "a-[1-3],b"), ("a-1, a-2", "a-1, a-2")],
)
def test_a_repeated_instance_id_is_stored_once(harness: TopicHarness, written: str, stored: str) -> None:
    """As in Kafka, which removes duplicates from values of type list; other lists stay as they were written."""
    assert change(harness, "g", ("instance.ids", SET, written)) == (0, "")
    assert own_values(harness, "g") == {"instance.ids": stored}
    (response,) = GroupClient(harness).ask(replacing("h", ("instance.ids", written)), 1).responses
    assert (response.error_code, own_values(harness, "h")) == (0, {"instance.ids": stored})


def test_a_described_policy_has_a_type_a_source_and_documentation(harness: TopicHarness) -> None:
    change(harness, "g", (CHANGE, SET, "rebalance"))
    (result,) = GroupClient(harness).ask(describing("g", keys=[CHANGE]), 4).results
    (setting,) = result.configs
    assert (setting.value, setting.config_source, setting.config_type, setting.read_only) == ("rebalance", OF_GROUP, 2, False)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in setting.synonyms] == [(CHANGE, "rebalance", OF_GROUP)]
    assert "returns with other topics" in setting.documentation


def test_a_group_without_policies_is_described_as_by_kafka(harness: TopicHarness) -> None:
    (result,) = GroupClient(harness).ask(describing("g"), 4).results
    assert {config.name.split(".")[0] for config in result.configs} == {"consumer", "share", "streams"}
    assert {config.config_source for config in result.configs} == {DEFAULT}


def test_a_groups_own_value_precedes_the_brokers_default() -> None:
    harness = TopicHarness(Authorizer(), {"t": 3}, settings=["group.policy.subscription.change=rebalance", "group.policy.topics.watch=none"])

    def sources() -> list[list[tuple[str, str, int]]]:
        (result,) = GroupClient(harness).ask(describing("g", keys=[CHANGE, "topics.watch"]), 4).results
        return [[(synonym.name, synonym.value, synonym.source) for synonym in setting.synonyms] for setting in result.configs]

    default = ("group.policy.subscription.change", "rebalance", OF_BROKER)
    assert sources() == [[default]]
    change(harness, "g", (CHANGE, SET, "none"))
    assert sources() == [[(CHANGE, "none", OF_GROUP), default]]
    assert listed(harness) == {"g"}


def test_replacing_policies_deletes_those_not_named(harness: TopicHarness) -> None:
    change(harness, "g", (CHANGE, SET, "keep"))
    (response,) = GroupClient(harness).ask(replacing("g", (REQUEST, "moved racks")), 2).responses
    assert response.error_code == 0
    assert own_values(harness, "g") == {REQUEST: "moved racks"}
    (response,) = GroupClient(harness).ask(replacing("g"), 2).responses
    assert response.error_code == 0
    assert own_values(harness, "g") == {}


@pytest.mark.parametrize(
    ("operations", "error", "message"),
    [
        ((("nope", SET, "1"),), INVALID_CONFIG, "there is no such policy"),
        (((CHANGE, SET, "maybe"),), INVALID_CONFIG, "write keep or rebalance"),
        (((CHANGE, SET, None),), INVALID_REQUEST, "Null value"),
        (((CHANGE, SET, "keep"), (CHANGE, DELETE, None)), INVALID_REQUEST, "duplicate"),
        (((CHANGE, APPEND, "keep"),), INVALID_CONFIG, "not LIST"),
        (((CHANGE, SUBTRACT, "keep"),), INVALID_CONFIG, "not LIST"),
        (((CHANGE, 7, "keep"),), INVALID_REQUEST, "no operation 7"),
        ((("share.session.timeout.ms", SET, "50000"),), INVALID_CONFIG, "not served here"),
        ((("status.away", SET, "a"),), INVALID_CONFIG, "read-only"),
        ((("instance.ids", APPEND, "a-[3-1]"),), INVALID_CONFIG, "runs backwards"),
        (((CHANGE, SET, "rebalance"), ("nope", SET, "1")), INVALID_CONFIG, "there is no such policy"),
    ],
)
def test_an_invalid_policy_is_refused_and_changes_nothing(harness: TopicHarness, operations: Operations, error: int, message: str) -> None:
    change(harness, "g", (CHANGE, SET, "keep"))
    code, sentence = change(harness, "g", *operations)
    assert code == error
    assert message in sentence
    assert own_values(harness, "g") == {CHANGE: "keep"}


def test_deleting_an_unset_policy_succeeds(harness: TopicHarness) -> None:
    assert change(harness, "g", ("nope", DELETE, None), ("consumer.session.timeout.ms", DELETE, None), (CHANGE, DELETE, None)) == (0, "")


def test_a_group_without_a_name_is_refused(harness: TopicHarness) -> None:
    assert change(harness, "", (CHANGE, SET, "keep")) == (INVALID_REQUEST, "Default group resources are not allowed.")


def test_validate_only_changes_nothing_and_reports_errors(harness: TopicHarness) -> None:
    assert change(harness, "g", (CHANGE, SET, "rebalance"), validate=True) == (0, "")
    code, _ = change(harness, "g", (CHANGE, SET, "maybe"), validate=True)
    assert code == INVALID_CONFIG
    assert own_values(harness, "g") == {}
    assert harness.log_of("g").batches == []


def test_replies_to_changes_and_reads_wait_until_policies_are_durable(harness: TopicHarness) -> None:
    log = harness.log_of("g")
    log.immediate = False
    peer, looker, lister = GroupClient(harness), GroupClient(harness), GroupClient(harness)
    peer.send(changing("g", (CHANGE, SET, "rebalance")), 1)
    looker.send(describing("g"), 4)
    lister.send(ListConfigResourcesRequest([GROUP_RESOURCE]), 1)
    harness.loop.run()
    assert [client.reply() for client in (peer, looker, lister)] == [None] * 3
    log.succeed()
    harness.loop.run()
    assert peer.reply().responses[0].error_code == 0
    assert {config.value for config in looker.reply().results[0].configs if config.name == CHANGE} == {"rebalance"}
    assert [config_resource.resource_name for config_resource in lister.reply().config_resources] == ["g"]


def test_a_failed_append_fails_the_group_and_not_the_topic_in_one_request(harness: TopicHarness) -> None:
    request = changing("g", (CHANGE, SET, "rebalance"))
    setting = incremental_alter_configs.AlterableConfig("segment.ms", SET, "50000")
    request.resources.insert(0, incremental_alter_configs.AlterConfigsResource(TOPIC_RESOURCE, "t", [setting]))
    log = harness.log_of("g")
    log.immediate = False
    peer, looker, lister = GroupClient(harness), GroupClient(harness), GroupClient(harness)
    peer.send(request, 1)
    looker.send(describing("g"), 4)
    lister.send(ListConfigResourcesRequest([GROUP_RESOURCE]), 1)
    harness.loop.run()
    log.refuse()
    harness.loop.run()
    topic, group = peer.reply().responses
    assert (topic.error_code, group.error_code) == (0, NOT_COORDINATOR)
    assert group.error_message
    assert [result.error_code for result in looker.reply().results] == [NOT_COORDINATOR]
    assert lister.reply().error_code == NOT_AVAILABLE


def test_changes_are_refused_while_the_partition_loads(harness: TopicHarness) -> None:
    harness.shards.journal_of("g").refusal = LOADING
    assert change(harness, "g", (CHANGE, SET, "keep"))[0] == LOADING
    (result,) = GroupClient(harness).ask(describing("g"), 4).results
    assert result.error_code == LOADING
    assert GroupClient(harness).ask(ListConfigResourcesRequest([GROUP_RESOURCE]), 1).error_code == LOADING


def test_policies_need_kafkas_rights_for_group_configs() -> None:
    harness = TopicHarness(refusing((Operation.ALTER_CONFIGS, ResourceType.GROUP, "g"), (Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, "h")), {"t": 3})
    assert change(harness, "g", (CHANGE, SET, "keep"))[0] == NOT_AUTHORIZED
    assert change(harness, "h", (CHANGE, SET, "keep"))[0] == 0
    (result,) = GroupClient(harness).ask(describing("h"), 4).results
    assert (result.error_code, result.configs) == (NOT_AUTHORIZED, [])


def test_each_set_of_the_request_makes_the_members_rejoin_once(harness: TopicHarness) -> None:
    peer = GroupClient(harness)
    member = join_stable_group(harness, peer, "i")
    generation = 1

    def heartbeat() -> int:
        return int(peer.ask(HeartbeatRequest("g", generation, member, "i"), 4).error_code)

    for _ in range(2):
        assert change(harness, "g", (REQUEST, SET, "moved racks")) == (0, "")
        assert heartbeat() == REBALANCE_IN_PROGRESS
        reply = joined(harness, peer, joining(id=member, instance="i"), 5)
        generation = reply.generation_id
        peer.ask(syncing(member, generation, {member: b"mine"}, "i"), 5)
        assert heartbeat() == 0
    for operation in ((CHANGE, SET, "keep"), (REQUEST, DELETE, None)):
        assert change(harness, "g", operation) == (0, "")
        assert heartbeat() == 0
    assert generation == 3
