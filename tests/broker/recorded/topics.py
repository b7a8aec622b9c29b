"""Every request about topics and their settings with every field at its extremes, and the replies of Apache Kafka.

`python -m tests.broker.recorded.topics all` sends them to a real Kafka and records its replies in topics.json, to which the
broker's are compared. Without `all` only new cases are sent. Each case has a topic of its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from broker.internal_topics import CONSUMER_OFFSETS
from protocol.batch import build_facts
from protocol.errors import ProtocolError
from protocol.message import Part
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.recorded.extremes import (
    MANY,
    NO_ID,
    NOTHING,
    UNKNOWN_ID,
    ChangedRequest,
    answer_frame,
    decoded,
    extremes,
    framed,
    known_answers,
    short_text,
    shortened,
    write_answers,
)
from tests.broker.recorded.fields import recorded_fields
from tests.broker.recorded.topic_cases import (
    ASKED,
    DRY,
    PARTITIONS,
    RETENTION_MS,
    TOPIC,
    OwnTopic,
    Request,
    create,
    create_assigned,
    special_cases,
)
from tests.kafka_process import kafka
from tests.running import Client

ANSWERS = Path(__file__).with_name("topics.json")
SETTINGS = {"offsets.topic.num.partitions": "1", "auto.create.topics.enable": "false"}
KNOWN_SECONDS = 20
SILENCE_SECONDS = 4  # a longer silence of Kafka means that it will never answer
LATER_SECONDS = 0.2  # by then Kafka's broker has seen a change by its controller
READING = ("describe", "listing_configs", "describing", "configs", "log_dirs", "of_the_offsets_topic: describe", "of_the_offsets_topic: its")
RECORDS = 6  # in the first partition of each case about records, in three batches
LEADERS = (6, 3, 5)  # Kafka's errors until a new topic has a leader


# Cases that keep Kafka busy for minutes; they are not sent.
STALLS_KAFKA = {
    f"create v7 topics: {MANY} alike",
    f"create_assigned v7 topics: {MANY} alike",
    f"create_assigned v7 topics.assignments: {MANY} different",
    f"grow v3 topics: {MANY} alike",
    f"delete_by_id v6 topics: {MANY} different",
    f"log_dirs v4 topics: {MANY} alike",
}


Case = ChangedRequest[OwnTopic]


def every_case() -> Iterator[Case]:
    for request, versions in ASKED:
        for version in versions:
            yield from cases(request, version, versions[0])
    for name, version, request in special_cases():
        yield Case(name, request, version)


def cases(request: Request, version: int, newest: int) -> Iterator[Case]:
    title = request.__name__
    yield Case(f"{title} v{version}", request, version)
    for extreme in extremes(request(DRY), title, version):
        if extreme.name in STALLS_KAFKA or (extreme.many and version != newest):  # the reply to ten thousand items is the same in every version
            continue
        if is_readable(Case(extreme.name, request, version, extreme.cheap)):
            yield Case(extreme.name, request, version, extreme.change)


def is_readable(case: Case) -> bool:
    """Whether our codec can decode the request. Kafka's broker forwards a malformed request to its controller again and again."""
    request = case.request(DRY)
    try:
        type(request).decode(case.body(DRY), 0, case.version)
    except ProtocolError:
        return False
    return True


# Requests.


class Peer:
    """Sends cases to a broker whose changes are visible after `delay_seconds`."""

    def __init__(self, port: int, seconds: float, delay_seconds: float = 0) -> None:
        self.port = port
        self.seconds = seconds
        self.delay_seconds = delay_seconds
        self._cases = 0
        self._client = Client(port)

    def close(self) -> None:
        self._client.socket.close()

    def restart(self) -> None:
        self.close()
        self._client = Client(self.port)

    def prepare(self) -> None:
        until = time.monotonic() + KNOWN_SECONDS
        while self._client.ask(FindCoordinatorRequest("extremes"), 2).error_code or self.error_and_partitions(CONSUMER_OFFSETS)[0]:
            assert time.monotonic() < until
            time.sleep(0.05)
        self.make("compacted", 1, ("cleanup.policy", "compact"))
        self.make("both", 1, ("cleanup.policy", "compact,delete"))
        self.make("neither", 1, ("cleanup.policy", ""))
        self._read = self.make("x_reads", PARTITIONS, ("retention.ms", RETENTION_MS))
        self.fill(self._read)

    def make(self, name: str, partitions: int, *settings: tuple[str, str]) -> OwnTopic:
        configs = [CreatableTopicConfig(*setting) for setting in settings]
        reply = self._client.ask(CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], configs)], 5000), 7)
        assert reply.topics[0].error_code in (0, 36), reply
        until = time.monotonic() + KNOWN_SECONDS
        while self.error_and_partitions(name)[0]:  # Kafka's brokers learn of it later
            assert time.monotonic() < until
            time.sleep(0.01)
        return OwnTopic(name, reply.topics[0].topic_id)

    def error_and_partitions(self, name: str) -> tuple[int, int]:
        """The error of the topic, and its number of partitions."""
        reply = self._client.ask(MetadataRequest([MetadataRequestTopic(name=name)], False), 12)
        return reply.topics[0].error_code, len(reply.topics[0].partitions)

    def fill(self, own: OwnTopic) -> None:
        now = round(time.time() * 1000)  # records as new as this stay, whatever earlier topics had
        for number in range(RECORDS // 2):
            batch = build_facts([(b"k%d" % number, b"v"), (b"l%d" % number, b"w")], now)
            request = ProduceRequest(None, -1, 5000, [TopicProduceData(own.topic, partition_data=[PartitionProduceData(0, batch)])])
            until = time.monotonic() + KNOWN_SECONDS
            while (answer := self._client.ask(request, 9).responses[0].partition_responses[0]).error_code in LEADERS:
                assert time.monotonic() < until
                time.sleep(0.01)
            assert (answer.error_code, answer.base_offset) == (0, 2 * number), answer
        assert self.first_offsets(own) == [0] * PARTITIONS

    def first_offsets(self, own: OwnTopic) -> list[int]:
        partitions = [ListOffsetsPartition(number, -1, -2) for number in range(PARTITIONS)]
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(own.topic, partitions)])
        until = time.monotonic() + KNOWN_SECONDS
        reply = self._client.ask(request, 5)
        while any(partition.error_code for partition in reply.topics[0].partitions):
            assert time.monotonic() < until
            time.sleep(0.01)
            reply = self._client.ask(request, 5)
        return [partition.offset for partition in sorted(reply.topics[0].partitions, key=lambda partition: partition.partition_index)]

    def ask(self, case: Case) -> dict[str, Any]:
        """Send the case; returns the reply, and the state of the case's topic afterwards."""
        if case.name.startswith(READING):  # cases that change nothing share one topic
            reply = self.reply_to(case, self._read)
            return {"answer": reply if isinstance(reply, str) else plain(reply, self._read)}
        self._cases += 1
        name = f"x_{self._cases:05}"
        makes = case.request in (create, create_assigned)
        own = OwnTopic(name, NO_ID) if makes else self.make(name, PARTITIONS, ("retention.ms", RETENTION_MS))
        about_records = case.name.startswith(("delete_records", "deleting_records"))
        if about_records:
            self.fill(own)
        reply = self.reply_to(case, own)
        answer = {"answer": reply if isinstance(reply, str) else plain(reply, own)}
        time.sleep(self.delay_seconds)
        then = list(self.topic_state(f"{name}-new" if makes else name))
        if about_records and then[0] == [0, PARTITIONS]:
            then.append(self.first_offsets(own))
        if then != [[0, PARTITIONS], {"retention.ms": RETENTION_MS}]:
            answer["then"] = then
        return answer

    def reply_to(self, case: Case, own: OwnTopic) -> Any:
        key = case.request(DRY).API_KEY
        self._client.socket.settimeout(self.seconds)
        frame = answer_frame(self._client, framed(key, case.version, case.body(own)))
        if isinstance(frame, str):
            self.restart()
            return frame
        return decoded(key, case.version, frame)

    def topic_state(self, name: str) -> Iterator[Any]:
        """The topic's error, number of partitions, and own settings."""
        error, partitions = self.error_and_partitions(name)
        yield [error, partitions]
        if not error:
            result = self._client.ask(DescribeConfigsRequest([DescribeConfigsResource(TOPIC, name, None)]), 4).results[0]
            yield {config.name: config.value for config in result.configs if config.config_source == 1}


# Recording.

# Lists that Kafka answers in any order.
UNORDERED = {
    "CreatableTopicResult",
    "CreatePartitionsTopicResult",
    "DeletableTopicResult",
    "DeleteRecordsTopicResult",
    "DeleteRecordsPartitionResult",
    "DescribeLogDirsTopic",
    "DescribeLogDirsPartition",
    "DescribeConfigsResult",
    "ConfigResource",
    "AlterConfigsResourceResponse",
}

# Values that depend on the time or machine, and messages in our own words.
TEXT_FIELDS = {"error_message", "documentation"}
SIZE_FIELDS = {"total_bytes", "usable_bytes"}


def plain(value: Any, own: OwnTopic) -> Any:
    """The reply as JSON values, with names for generated ids, and shortened texts and lists."""
    if isinstance(value, Part):
        return {name: field_as_json(name, getattr(value, name), own) for name in recorded_fields(type(value)) if name != "throttle_time_ms"}
    if isinstance(value, list):
        items = [plain(item, own) for item in value if not is_of_others(item, own)]
        if items and type(value[0]).__name__ in ("DescribeConfigsResourceResult", "CreatableTopicConfigs"):
            return {item["name"]: list(item.values())[1:] for item in sorted(items, key=lambda item: str(item["name"]))}
        return shortened(sorted(items, key=json.dumps) if type(value[0]).__name__ in UNORDERED else items) if items else []
    if isinstance(value, bytes):
        return value.hex() if value in (NO_ID, UNKNOWN_ID) else "<id>"
    if isinstance(value, str):
        return short_text(value.replace(own.topic, "<topic>").replace(own.topic.replace("_", "."), "<colliding>"))
    return value


def field_as_json(name: str, value: Any, own: OwnTopic) -> Any:
    if name in TEXT_FIELDS:
        return "said" if value else value
    if name in SIZE_FIELDS:
        return "some" if value > 0 else value
    if name == "log_dir":
        return "<folder>"
    return plain(value, own)


def is_of_others(item: Any, own: OwnTopic) -> bool:
    """Whether this is a topic of another case, in a list of all topics."""
    listed = type(item).__name__ in ("DescribeLogDirsTopic", "DescribeTopicPartitionsResponseTopic")
    return listed and item.name.startswith("x_") and not item.name.startswith(own.topic)


def ask_kafka(cases: list[Case], answers: dict[str, Any]) -> None:
    """Send the cases one after the other. If Kafka stops answering, start another Kafka for the remaining cases."""
    with kafka(**{name.replace(".", "_"): value for name, value in SETTINGS.items()}) as port:
        peer = Peer(port, SILENCE_SECONDS, LATER_SECONDS)
        peer.prepare()
        while cases:
            case = cases.pop(0)
            try:
                answers[case.name] = peer.ask(case)
            except OSError:
                answers[case.name] = {"answer": NOTHING}
                break
            print(f"{len(answers)} {case.name}: {json.dumps(answers[case.name])[:150]}", file=sys.stderr)
        peer.close()


def main() -> None:
    """Send the new cases to Kafka, or with `all` every case, and record its replies."""
    answers = known_answers(ANSWERS)
    cases = [case for case in every_case() if case.name not in answers]
    while cases:
        ask_kafka(cases, answers)
    write_answers(ANSWERS, answers)


if __name__ == "__main__":
    main()
