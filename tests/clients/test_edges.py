"""Edge cases with replies measured at Kafka 4.3.1, for machines without Java; test_against_kafka.py compares with a running Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.clients.questions import metadata_frame, topic
from tests.running import Client, broker

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with broker("--profile", "test") as running:
        yield running.port


@pytest.fixture
def client(port: int) -> Iterator[Client]:
    with Client(port) as connected:
        yield connected


def test_a_timeout_of_zero_times_out_every_entry(client: Client) -> None:
    new_topics = [topic("a b"), topic("twice"), topic("twice")]
    topics = client.ask(CreateTopicsRequest(new_topics, 0), 7).topics
    assert [(created.name, created.error_code, created.error_message) for created in topics] == [
        (name, ErrorCode.REQUEST_TIMED_OUT, None) for name in ("a b", "twice", "twice")
    ]


def test_a_created_topic_has_no_error_message(client: Client) -> None:
    assert client.ask(CreateTopicsRequest([topic("plain")], 5000), 7).topics[0].error_message is None


@pytest.mark.parametrize("version", [4, 7])
def test_an_error_message_quoting_a_long_value_is_cut(client: Client, version: int) -> None:
    new_topics = [topic("long", settings=[("s" * 32_767, "1")]), topic("n" * 32_767)]
    topics = client.ask(CreateTopicsRequest(new_topics, 5000), version).topics
    assert [created.error_code for created in topics] == [ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert all(created.error_message.endswith("...") and len(created.error_message) < 2000 for created in topics)


@pytest.mark.parametrize("version", [10, 11])
def test_topic_ids_in_versions_without_them_are_refused_as_by_kafka(client: Client, version: int) -> None:
    id = client.ask(CreateTopicsRequest([topic(f"v{version}")], 5000), 7).topics[0].topic_id
    client.send_frame(metadata_frame(version, [(id, None), (bytes(16), f"v{version}")]))
    reply = client.receive(MetadataRequest, version)
    assert (reply.brokers, reply.cluster_id, reply.controller_id) == ([], None, -1)
    assert [(row.name, row.topic_id, row.error_code) for row in reply.topics] == [
        ("", id, ErrorCode.INVALID_REQUEST),
        (f"v{version}", bytes(16), ErrorCode.INVALID_REQUEST),
    ]


def test_topic_names_with_ids_are_ignored(client: Client) -> None:
    id = client.ask(CreateTopicsRequest([topic("by-id")], 5000), 7).topics[0].topic_id
    topic_references = [(id, "another"), (bytes(16), "missing"), (id, None)]
    request = MetadataRequest([MetadataRequestTopic(topic_id=id, name=name) for id, name in topic_references], allow_auto_topic_creation=True)
    assert [(row.name, row.error_code) for row in client.ask(request, 12).topics] == [("by-id", 0)]
