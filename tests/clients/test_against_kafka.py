"""The same questions to this broker and to Apache Kafka: the replies are equal, but for the deviations listed here.

docs/differences.md tells them to the user.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from struct import unpack
from typing import Any, NamedTuple

import pytest

from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.headers import response_header_version
from protocol.message import Part, fields_of
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest
from tests.clients.group_questions import COMMIT, FETCH, JOIN, LEAVE, OFFSET_DELETE, groups
from tests.clients.questions import API_VERSIONS, CREATE_TOPICS, FIND_COORDINATOR, METADATA, NO_ID, Ids, Question, everything
from tests.kafka_process import kafka
from tests.running import ROOT, Client, broker

pytestmark = pytest.mark.kafka

KNOWN_SECONDS = 10
REPLY_SECONDS = 10
# Replies whose order follows from that of the request: there it is compared.
ORDERED = (COMMIT, FETCH, LEAVE, OFFSET_DELETE, FIND_COORDINATOR)
SILENCE_SECONDS = 1  # Kafka keeps silent, with the connection open, where it fails to write its reply


class Deviation(NamedTuple):
    """Differences that are meant: in the replies to these questions, at this place, where ours says this (a pattern each)."""

    question: str
    place: str
    why: str
    ours: str = ".*"

    def explains(self, question: str, place: str, mine: Any) -> bool:
        return bool(re.match(self.question, question) and re.fullmatch(self.place, place) and re.fullmatch(self.ours, str(mine), re.DOTALL))


API_VERSIONS_ASKED = "versions|client id|bytes after the body"
DEVIATIONS = [
    Deviation(API_VERSIONS_ASKED, r"api_keys\[\d+\]", "an API is offered once it is served", "absent"),
    Deviation(API_VERSIONS_ASKED, r"api_keys\[[89]\].max_version", "offsets are committed and fetched by the names of topics, up to version 9", "9"),
    Deviation(
        API_VERSIONS_ASKED,
        r"api_keys\[(0|1|2|35)\].max_version",
        "Produce, Fetch, ListOffsets and DescribeLogDirs end with the versions of Kafka 4.0",
        "12|17|10|4",
    ),
    Deviation(
        API_VERSIONS_ASKED,
        "supported_features|finalized_features(_epoch)?",
        "no features are announced, because there is no cluster of brokers that must agree on them",
        r"\[\]|-1",
    ),
    Deviation(r"versions, newer and empty v\d", "", "a client that is newer than this broker is answered whatever its request holds"),
    Deviation("versions, newer.* v-", "", "a negative version of ApiVersions closes the connection", "closed"),
    Deviation("client id of length -2", "", "a client id of a length below -1 closes the connection, where Kafka reads null", "closed"),
    Deviation("create", r"topics.*\.topic_id", "a topic that was only validated has no id, where Kafka makes one up", "no id"),
    Deviation("create", r".*\[min.insync.replicas\].config_source", "min.insync.replicas is shown as a default, not as set for the cluster", "5"),
    Deviation("create, 1 partitions, 2 replicas", r".*\.error_message", "there is one broker, and the message about replicas says so"),
    Deviation("create, 10000 partitions", r"topics\[counts\].*", "10,000 partitions in one request are possible, where Kafka ends at 9,999"),
    Deviation("create, min.cleanable.dirty.ratio", r".*\.error_message", "a number with a fraction is written as Python writes it"),
    Deviation("create, .* of (the greatest|great) length", "topics.*", "a message too long for a reply is cut, where Kafka fails with error -1"),
    Deviation(
        "metadata, missing ones, to be created|metadata, a missing one v[0-3]",
        r"topics\[(auto|missing)-.*",
        "the reply waits for a topic that it creates, where Kafka answers error 3 and creates behind it",
    ),
    Deviation(
        "metadata by id, neither id nor name v1[23]",
        "brokers|cluster_id|controller_id|error_code|topics.*",
        "a topic with neither name nor id is an unknown id, where Kafka fails with error -1",
    ),
    Deviation(
        "(metadata of a name|coordinator of a key) that grows", "", "a reply that cannot be written closes the connection, where Kafka keeps silent", "closed"
    ),
    Deviation("coordinator, (kind|share)", r".*error_message", "standard texts of errors are in words of our own"),
    Deviation(
        "coordinator, transaction",
        r"(coordinators\[t?\]\.)?(error_code|error_message|node_id|host|port)",
        "there are no transactions, and that is a final error",
        "53|transactions are not served by this broker|-1|",
    ),
    Deviation("coordinator, share 'g:AAAAAAA' v6", ".*error_code", "there are no share groups", "42"),
    Deviation("metadata.*", r"topics\[__(transaction|share_group)_state\]", "the topics behind transactions and share groups never appear", "absent"),
]


class Peer:
    """One of the two: asks it, and writes its replies so that they compare."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.ids: Ids = {}  # of topics by name, and of the member of a group by "member GROUP"
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
            self.await_topics([one.name for one in reply.topics if one.error_code == 0])
        if question.key == METADATA:
            self.await_topics([one.name for one in reply.topics if one.error_code in (3, 5) and "to be created" in question.name])
        ordered = question.key in ORDERED and not question.name.startswith("fetch all")
        return {"version": version} | self.plain(reply, ordered=ordered)

    def decode(self, question: Question, frame: bytes) -> tuple[Any, int]:
        version = question.version
        if question.key == API_VERSIONS and not 0 <= version <= 4:
            version = 0
        at = 4 + response_header_version(question.key, version)
        reply, end = APIS[question.key].response.decode(frame, at, version)
        assert (end, reply.encode(version)) == (len(frame), frame[at:]), f"{question.name}: not these bytes again"
        return reply, version

    def learn(self, reply: Any) -> None:
        for one in getattr(reply, "topics", []):
            if getattr(one, "topic_id", NO_ID) != NO_ID and one.name is not None and one.error_code == 0:
                self.ids[one.name] = one.topic_id

    def learn_member(self, group: str, id: bytes) -> None:
        known = self.ids.get(f"member {group}", id)
        if known != id:
            self.ids[f"member {group}, before"] = known
        self.ids[f"member {group}"] = id

    def await_topics(self, names: list[str]) -> None:
        """Kafka answers when a topic is in its log; a moment later its brokers know it."""
        until = time.monotonic() + KNOWN_SECONDS
        while names:
            reply = self.client.ask(MetadataRequest(None), 12)
            self.learn(reply)
            led = {one.name for one in reply.topics if all(part.leader_id >= 0 for part in one.partitions)}
            if led.issuperset(names):
                return
            assert time.monotonic() < until, f"{names} did not appear"
            time.sleep(0.01)

    def plain(self, value: Any, field: str = "", ordered: bool = False) -> Any:
        if isinstance(value, Part):
            return {name: self.plain(getattr(value, name), name, ordered) for name in fields_of(type(value))}
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


def numbered(items: list[dict[str, Any]], key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The order of topics in a reply means nothing, save in `ORDERED`; their number does."""
    seen: dict[Any, int] = {}
    for item in items:
        seen[item[key]] = seen.get(item[key], 0) + 1
        yield seen[item[key]], item


def decoded(question: Question, ids: Ids) -> CreateTopicsRequest:
    frame = question.frame(ids)
    (length,) = unpack(">h", frame[8:10])
    at = 10 + length + (question.version >= CreateTopicsRequest.FLEXIBLE_FROM)
    return CreateTopicsRequest.decode(frame, at, question.version)[0]


def differences(ours: Any, kafkas: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, dict) and isinstance(kafkas, dict):
        for key in ours | kafkas:
            where = key if isinstance(key, str) else f"[{key[0]}]" if key[1] == 1 else f"[{key[0]}, {key[1]}]"
            yield from differences(ours.get(key, "absent"), kafkas.get(key, "absent"), f"{place}.{where}".replace(".[", "["))
    elif ours != kafkas:
        yield place.lstrip("."), ours, kafkas


def test_every_reply_is_kafkas_but_for_the_listed_deviations() -> None:
    unexplained, met = [], set()
    settings = {"offsets.topic.num.partitions": "5", "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "6000"}
    with (
        kafka(**{name.replace(".", "_"): value for name, value in settings.items()}) as port,
        broker("--profile", "test", *[part for name, value in settings.items() for part in ("--set", f"{name}={value}")]) as ours,
    ):
        peers = (Peer(ours.port), Peer(port))
        await_coordinator(peers[1])
        for question in (*everything(), *groups()):
            for place, mine, kafkas in differences(*[peer.ask(question) for peer in peers]):
                known = [one for one in DEVIATIONS if one.explains(question.name, place, mine)]
                met.update(known)
                if not known:
                    unexplained.append(f"{question.name} | {place[-80:]} | ours {str(mine)[:200]!r} | Kafka's {str(kafkas)[:200]!r}")
        for peer in peers:
            peer.close()
    assert not unexplained, f"{len(unexplained)} differences:\n" + "\n".join(unexplained[:50])
    assert met == set(DEVIATIONS), f"met no more: {set(DEVIATIONS) - met}"


def test_the_user_is_told_of_every_deviation() -> None:
    told = " ".join((ROOT / "docs" / "differences.md").read_text().split())
    missing = [one.why for one in DEVIATIONS if one.why not in told]
    assert not missing


def await_coordinator(peer: Peer) -> None:
    """Kafka makes its topic of offsets for the first who asks, and answers error 15 until it is there."""
    until = time.monotonic() + KNOWN_SECONDS
    answers: list[int] = []
    while not answers or answers[-1]:
        assert time.monotonic() < until
        answers.append(peer.client.ask(FindCoordinatorRequest(key="g"), 3).error_code)
        time.sleep(0.02)
    assert answers[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
