"""Replies to reassignment and election tools equal those of a Kafka with one broker, recorded in replica_answers.json."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from broker.security.authorizer import Authorizer, Operation, ResourceType
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumRequestPartitionData, DescribeQuorumRequestTopicData
from tests.broker.recorded.replica_answers import ANSWERS, OTHER, QUESTIONS, STANDARD, TOPIC, plain
from tests.support.group_harness import GroupClient
from tests.support.topic_harness import TopicHarness

KAFKA_REPLIES = json.loads(ANSWERS.read_text())


def deny_cluster(call: Any, operation: Operation, resource: int, name: str) -> bool:
    return resource != ResourceType.CLUSTER


def with_our_messages(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: with_our_messages(item) for name, item in value.items()}
    if isinstance(value, list):
        return sorted([with_our_messages(item) for item in value], key=json.dumps)
    return STANDARD[value].message if isinstance(value, str) and value in STANDARD else value


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("rights", ["allowed", "denied"])
def test_reassignment_and_election_replies_equal_kafkas(name: str, rights: str) -> None:
    harness = TopicHarness(Authorizer(None if rights == "allowed" else deny_cluster), {TOPIC: 3, OTHER: 1})
    request, version = QUESTIONS[name]
    ours = plain(GroupClient(harness).ask(request(os.path.abspath("data")), version))
    for results in ("replica_election_results",):  # here the offsets topic exists from the start; Kafka creates it with the first group
        if results in ours:
            ours[results] = [topic for topic in ours[results] if not topic["topic"].startswith("__")]
    assert json.loads(json.dumps(with_our_messages(ours))) == with_our_messages(KAFKA_REPLIES[rights][name])


def test_the_quorum_is_this_broker_now() -> None:
    harness = TopicHarness(Authorizer(), {})
    request = DescribeQuorumRequest([DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])])
    partition = GroupClient(harness).ask(request, 1).topics[0].partitions[0]
    assert (partition.leader_id, partition.high_watermark) == (1, 0)
    assert [voter.last_caught_up_timestamp for voter in partition.current_voters] == [harness.clock.wall]
