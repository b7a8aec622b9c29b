"""Unauthorized topic requests are refused as by Kafka, whose replies are recorded in topic_rights.json."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.internal_topics import CONSUMER_OFFSETS
from broker.security.authorizer import Authorizer, Operation, ResourceType
from tests.broker.recorded.topic_rights import ANSWERS, QUESTIONS, TOPICS, plain
from tests.support.group_harness import GroupClient
from tests.support.topic_harness import TopicHarness

KAFKA_REPLIES = json.loads(ANSWERS.read_text())


def deny_topics(call: Any, operation: Operation, resource: int, name: str) -> bool:
    """The same rules as DenyingTopics.java."""
    if resource == ResourceType.CLUSTER:
        return operation == Operation.CLUSTER_ACTION
    return not (name.startswith("no-") and f"-{operation.name.lower()}-" in name)


@pytest.fixture
def harness() -> TopicHarness:
    return TopicHarness(Authorizer(deny_topics), dict.fromkeys(TOPICS, 2))


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_unauthorized_request_is_refused_as_by_kafka(harness: TopicHarness, name: str) -> None:
    ids = {topic.name: topic.id for topic in harness.topics.by_name.values()}
    request, version = QUESTIONS[name]
    ours = plain(GroupClient(harness).ask(request(ids), version), ids)
    if "topics" in ours:  # here the offsets topic exists from the start; Kafka creates it with the first group
        ours["topics"] = [answer for answer in ours["topics"] if answer["name"] != CONSUMER_OFFSETS]
    if name == "create":  # Kafka assigns an id even if the request only validates
        for answer in ours["topics"]:
            answer["topic_id"] = "an id" if answer["error_code"] == 0 else answer["topic_id"]
    assert json.loads(json.dumps(ours)) == KAFKA_REPLIES[name]
