"""Edges that were measured at Kafka 4.3.1, for machines without Java (test_against_kafka.py asks both)."""

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
    wanted = [topic("a b"), topic("twice"), topic("twice")]
    found = client.ask(CreateTopicsRequest(wanted, 0), 7).topics
    assert [(one.name, one.error_code, one.error_message) for one in found] == [
        (name, ErrorCode.REQUEST_TIMED_OUT, None) for name in ("a b", "twice", "twice")
    ]


def test_a_created_topic_comes_without_a_message(client: Client) -> None:
    assert client.ask(CreateTopicsRequest([topic("plain")], 5000), 7).topics[0].error_message is None


@pytest.mark.parametrize("version", [4, 7])
def test_an_error_message_quoting_a_long_value_is_cut(client: Client, version: int) -> None:
    wanted = [topic("long", settings=[("s" * 32_767, "1")]), topic("n" * 32_767)]
    found = client.ask(CreateTopicsRequest(wanted, 5000), version).topics
    assert [one.error_code for one in found] == [ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert all(one.error_message.endswith("...") and len(one.error_message) < 2000 for one in found)


@pytest.mark.parametrize("version", [10, 11])
def test_topic_ids_in_versions_without_them_are_refused_as_by_kafka(client: Client, version: int) -> None:
    id = client.ask(CreateTopicsRequest([topic(f"v{version}")], 5000), 7).topics[0].topic_id
    client.send_frame(metadata_frame(version, [(id, None), (bytes(16), f"v{version}")]))
    reply = client.receive(MetadataRequest, version)
    assert (reply.brokers, reply.cluster_id, reply.controller_id) == ([], None, -1)
    assert [(one.name, one.topic_id, one.error_code) for one in reply.topics] == [
        ("", id, ErrorCode.INVALID_REQUEST),
        (f"v{version}", bytes(16), ErrorCode.INVALID_REQUEST),
    ]


def test_topic_names_beside_ids_are_ignored(client: Client) -> None:
    id = client.ask(CreateTopicsRequest([topic("by-id")], 5000), 7).topics[0].topic_id
    asked = [(id, "another"), (bytes(16), "missing"), (id, None)]
    request = MetadataRequest([MetadataRequestTopic(topic_id=id, name=name) for id, name in asked], allow_auto_topic_creation=True)
    assert [(one.name, one.error_code) for one in client.ask(request, 12).topics] == [("by-id", 0)]
