"""A broker that gets the same requests as another, and the differences of their replies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from struct import unpack
from typing import Any

from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.message import Part, field_names
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest
from tests.clients.group_questions import COMMIT, FETCH, JOIN, LEAVE, OFFSET_DELETE
from tests.clients.questions import API_VERSIONS, CREATE_TOPICS, FIND_COORDINATOR, METADATA, NO_ID, Ids, Question, topic_id
from tests.running import Client
from tests.support.headers import response_header_version

KNOWN_SECONDS = 10
REPLY_SECONDS = 10
# APIs whose replies follow the order of the request, so that the order is compared.
ORDERED = (COMMIT, FETCH, LEAVE, OFFSET_DELETE, FIND_COORDINATOR)
UNKNOWN = ("nowhere", "never-seen", "no-read-nowhere", "no-describe-")  # topics of the questions that do not exist
SILENCE_SECONDS = 1  # if Kafka fails to encode a reply, it sends nothing and leaves the connection open


class Peer:
    """One of the two brokers: sends it requests, and rewrites its replies so that they can be compared."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.ids: Ids = {}  # topic ids by name, and the id of a group's member by "member GROUP"
        with Client(port) as client:
            self.cluster_id = client.ask(MetadataRequest([]), 9).cluster_id
        self.client = Client(port)

    def close(self) -> None:
        self.client.socket.close()

    def ask(self, question: Question) -> Any:
        """The reply as plain values, or 'closed'."""
        try:
            self.client.socket.settimeout(SILENCE_SECONDS if "that grows" in question.name else REPLY_SECONDS)
            self.client.send_frame(question.frame(self.ids))
            frame = self.client.frame()
        except OSError as error:
            self.close()
            self.client = Client(self.port)
            return "no reply" if isinstance(error, TimeoutError) else "closed"
        reply, version = self.decode(question, frame)
        if question.key == JOIN:
            if reply.error_code in (0, ErrorCode.MEMBER_ID_REQUIRED):
                self.learn_member(question.name.split()[1].rstrip(","), reply.member_id.encode())
        else:
            self.learn(reply)
        if question.key == CREATE_TOPICS and not decoded(question, self.ids).validate_only:
            self.await_topics([topic.name for topic in reply.topics if topic.error_code == 0])
        if question.key == METADATA:
            self.await_topics([topic.name for topic in reply.topics if topic.error_code in (3, 5) and "to be created" in question.name])
        ordered = question.key in ORDERED and not question.name.startswith("fetch all")
        return {"version": version} | self.plain(reply, ordered=ordered)

    def decode(self, question: Question, frame: bytes) -> tuple[Any, int]:
        version = question.version
        if question.key == API_VERSIONS and not 0 <= version <= 4:
            version = 0
        at = 4 + response_header_version(question.key, version)
        reply, end = APIS[question.key].response.decode(frame, at, version)
        assert (end, reply.encode(version)) == (len(frame), frame[at:]), f"{question.name}: the decoded reply does not encode to these bytes"
        if question.key in (COMMIT, FETCH) and version >= 10:
            self.name_topics(reply)
        return reply, version

    def name_topics(self, reply: Any) -> None:
        """Give the topics that the reply names by id their names."""
        names = {topic_id(self.ids, name): name for name in (*self.ids, *UNKNOWN)}
        for holder in getattr(reply, "groups", [reply]):
            for topic in holder.topics:
                topic.name = names.get(topic.topic_id, "")

    def learn(self, reply: Any) -> None:
        for topic in getattr(reply, "topics", []):
            if getattr(topic, "topic_id", NO_ID) != NO_ID and topic.name is not None and getattr(topic, "error_code", None) == 0:
                self.ids[topic.name] = topic.topic_id

    def learn_member(self, group: str, id: bytes) -> None:
        previous_id = self.ids.get(f"member {group}", id)
        if previous_id != id:
            self.ids[f"member {group}, before"] = previous_id
        self.ids[f"member {group}"] = id

    def await_topics(self, names: list[str]) -> None:
        """Wait until Metadata has these topics: Kafka replies to CreateTopics a moment before its brokers know the topic."""
        until = time.monotonic() + KNOWN_SECONDS
        while names:
            reply = self.client.ask(MetadataRequest(None), 12)
            self.learn(reply)
            led = {topic.name for topic in reply.topics if all(part.leader_id >= 0 for part in topic.partitions)}
            if led.issuperset(names):
                return
            assert time.monotonic() < until, f"{names} did not appear"
            time.sleep(0.01)

    def plain(self, value: Any, field: str = "", ordered: bool = False) -> Any:
        if isinstance(value, Part):
            return {name: self.plain(getattr(value, name), name, ordered) for name in field_names(type(value))}
        if isinstance(value, list):
            items = [self.plain(item, field, ordered) for item in value]
            keys = ("name", "partition_index", "api_key", "key", "group_id")
            if items and isinstance(items[0], dict) and any(key in items[0] for key in keys):
                key = next(key for key in keys if key in items[0])
                order = {("in the order", 1): [item[key] for item in items]} if ordered else {}
                return order | {(item[key], number): item for number, item in numbered(items, key)}
            return items
        if field in ("member_id", "leader") and value:
            return next((name for name, id in self.ids.items() if id == value.encode()), value)
        if field == "topic_id":
            return next((f"id of {name}" for name, id in self.ids.items() if id == value), "no id" if value == NO_ID else value)
        if field == "cluster_id" and value == self.cluster_id:
            return "this cluster"
        if field == "port" and value == self.port:
            return "this port"
        return value


def differences(ours: Any, kafkas: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, dict) and isinstance(kafkas, dict):
        for key in ours | kafkas:
            name = key if isinstance(key, str) else f"[{key[0]}]" if key[1] == 1 else f"[{key[0]}, {key[1]}]"
            yield from differences(ours.get(key, "absent"), kafkas.get(key, "absent"), f"{place}.{name}".replace(".[", "["))
    elif ours != kafkas:
        yield place.lstrip("."), ours, kafkas


def await_coordinator(peer: Peer) -> None:
    """Kafka creates __consumer_offsets on the first request, and replies with error 15 until it exists."""
    until = time.monotonic() + KNOWN_SECONDS
    answers: list[int] = []
    while not answers or answers[-1]:
        assert time.monotonic() < until
        answers.append(peer.client.ask(FindCoordinatorRequest(key="g"), 3).error_code)
        time.sleep(0.02)
    assert answers[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE


def numbered(items: list[dict[str, Any]], key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each item with its number among those of the same key: except for `ORDERED` APIs, replies are compared without their order."""
    occurrences: dict[Any, int] = {}
    for item in items:
        occurrences[item[key]] = occurrences.get(item[key], 0) + 1
        yield occurrences[item[key]], item


def decoded(question: Question, ids: Ids) -> CreateTopicsRequest:
    frame = question.frame(ids)
    (length,) = unpack(">h", frame[8:10])
    at = 10 + length + (question.version >= CreateTopicsRequest.FLEXIBLE_FROM)
    return CreateTopicsRequest.decode(frame, at, question.version)[0]
