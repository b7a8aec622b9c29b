"""Produce, record batches and InitProducerId with every field at its extremes, and the replies of Apache Kafka.

`python -m tests.broker.recorded.produce all` sends them to a real Kafka and records its replies in produce.json, to which
the broker's are compared; without `all` only new cases are sent. Each case has a partition of its own, so that the stored
batches of a case are known. Timestamps are recorded as their distance from now.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import google_crc32c

from protocol.batch import Record, read_header, records
from protocol.errors import ProtocolError
from protocol.message import Part
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import ProduceRequest
from tests.broker.recorded.extremes import answer_frame, decoded, framed, known_answers, write_answers
from tests.broker.recorded.fields import recorded_fields
from tests.broker.recorded.produce_cases import KINDS, Case, every_case
from tests.kafka_process import kafka
from tests.running import Client
from tests.support.produce_batches import HEADER, HOUR_MS, INT64, NAMES

ANSWERS: Final = Path(__file__).with_name("produce.json")
SILENCE_SECONDS: Final = 10
SETTINGS: Final = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "1"}


# Requests.


class OwnPartition(NamedTuple):
    topic: str
    partition: int


def own_partitions() -> dict[str, OwnPartition]:
    """Each case's own partition, in the topic of its kind."""
    partitions_by_case: dict[str, OwnPartition] = {}
    used = dict.fromkeys(KINDS, 0)
    for case in every_case():
        assert case.name not in partitions_by_case, case.name
        partitions_by_case[case.name] = OwnPartition(case.kind, used[case.kind])
        used[case.kind] += case.key == ProduceRequest.API_KEY
    return partitions_by_case


def topics_to_create(number_of: dict[str, OwnPartition]) -> list[CreatableTopic]:
    counts = {kind: 1 + max((own.partition for own in number_of.values() if own.topic == kind), default=0) for kind in KINDS}
    return [
        CreatableTopic(kind, counts[kind], 1, [], [CreatableTopicConfig(name, value) for name, value in configs.items()])
        for kind, configs in KINDS.items()
    ]


# Recording.


def moment(value: int, now: int) -> int | str:
    """The distance from now, if the number is a time in milliseconds."""
    if abs(value - now + INT64[1]) < 3000:
        return "<now - the greatest>"
    for name, offset in {
        "": 0,
        "-2h": -2 * HOUR_MS,
        "+2h": 2 * HOUR_MS,
        "-10s": -10_000,
        "+10s": 10_000,
        "+1h": HOUR_MS,
        "-100s": -100_000,
    }.items():
        if abs(value - now - offset) < 3000:
            return f"<now{name}>"
    return value


def as_json(value: Any, now: int) -> Any:
    if isinstance(value, Part):
        names = [name for name in recorded_fields(type(value)) if name != "throttle_time_ms"]
        return {name: as_json(getattr(value, name), now) for name in names if not is_default(value, name)}
    if isinstance(value, list):
        items = [as_json(item, now) for item in sorted(value, key=order)]
        return items if len(items) <= 12 else [*items[:3], f"{len(items)} in all", *items[-2:]]
    if isinstance(value, int):
        return moment(value, now)
    if isinstance(value, str):
        value = re.sub(r"-?\d{13,}", lambda digits: str(moment(int(digits[0]), now)), value)
        return value if len(value) <= 300 else f"{value[:40]}... ({len(value)} characters)"
    return value


def is_default(part: Part, name: str) -> bool:
    """Whether the field has the value of nearly every reply, so that the recording omits it."""
    usual: dict[str, Any] = {"record_errors": [], "error_message": None, "current_leader": None, "node_endpoints": [], "log_append_time_ms": -1}
    return name in usual and getattr(part, name) == usual[name]


def order(item: Any) -> Any:
    """The sort key of topics and partitions, which Kafka answers in the order of a hash table."""
    return getattr(item, "name", ""), getattr(item, "index", getattr(item, "batch_index", 0))


def answered(case: Case, reply: Any, now: int) -> Any:
    if case.key == InitProducerIdRequest.API_KEY and reply.producer_id >= 0:
        reply.producer_id = 1_000_000
    return as_json(reply, now)


def stored(data: bytes, now: int) -> list[Any]:
    """The contents of a partition."""
    batches: list[Any] = []
    at = 0
    while len(data) - at >= HEADER.size:
        header = read_header(data, at)
        if at + header.size > len(data):
            break
        values = {name: moment(getattr(header, name), now) for name in NAMES if name not in ("length", "crc", "magic", "leader_epoch")}
        checked = google_crc32c.value(data[at + 21 : at + header.size]) == header.crc
        batches.append([values, contents_of(data, at, now), *["the checksum is wrong"] * (not checked)])
        at += header.size
    return batches


def contents_of(data: bytes, at: int, now: int) -> Any:
    try:
        all_records = records(data, at)
    except ProtocolError:
        return "unreadable"
    listed = [as_text(record, now) for record in all_records]
    return listed if len(listed) <= 5 else [*listed[:2], f"{len(listed)} in all", listed[-1]]


def as_text(record: Record, now: int) -> str:
    value = record.value if record.value is None or len(record.value) < 20 else f"{len(record.value)} bytes"
    headers = [*record.headers[:2]] if record.headers else ""
    return f"{record.offset} {moment(record.timestamp, now)} {record.key!r} {value!r}{headers}"


class KafkaPeer:
    """A real Kafka that gets each case on its own connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.own_partitions = own_partitions()

    def prepare(self) -> None:
        with Client(self.port) as client:
            client.socket.settimeout(120)
            reply = client.ask(CreateTopicsRequest(topics_to_create(self.own_partitions), 60_000), 5)
            assert not any(topic.error_code for topic in reply.topics), reply
            until = time.monotonic() + 60
            while True:
                names = [MetadataRequestTopic(name=kind) for kind in KINDS]
                reply = client.ask(MetadataRequest(names, False), 9)
                if not any(topic.error_code or any(part.error_code for part in topic.partitions) for topic in reply.topics):
                    break
                assert time.monotonic() < until, reply
                time.sleep(0.1)
            while client.ask(InitProducerIdRequest(None, 60_000), 5).error_code or client.ask(FindCoordinatorRequest("x"), 2).error_code:
                assert time.monotonic() < until
                time.sleep(0.1)
            for kind, own in {own.topic: own for own in self.own_partitions.values()}.items():
                self.held(client, OwnPartition(kind, own.partition))

    def ask(self, case: Case) -> dict[str, Any]:
        own = self.own_partitions[case.name]
        answers: list[Any] = []
        now = int(time.time() * 1000)
        with Client(self.port) as client:
            client.socket.settimeout(SILENCE_SECONDS)
            for body in case.requests:
                if case.name.startswith(("acks 0", "two replicas wanted, acks 0")):
                    client.socket.settimeout(1)
                frame = answer_frame(client, framed(case.key, case.version, body(own.topic, own.partition, now), b"client"))
                answers.append(frame if isinstance(frame, str) else answered(case, decoded(case.key, case.version, frame), now))
        result: dict[str, Any] = {"answers": answers}
        if case.key == ProduceRequest.API_KEY:
            with Client(self.port) as client:
                result["stored"] = stored(self.held(client, own), now)
        return result

    def held(self, client: Client, own: OwnPartition) -> bytes:
        partition = FetchPartition(partition=own.partition, fetch_offset=0, partition_max_bytes=1 << 24)
        client.socket.settimeout(30)
        until = time.monotonic() + 30
        while True:
            reply = client.ask(
                FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, topics=[FetchTopic(topic=own.topic, partitions=[partition])]),
                11,
            )
            (partition_reply,) = reply.responses[0].partitions
            if not partition_reply.error_code:
                return partition_reply.records or b""
            assert time.monotonic() < until, partition_reply
            time.sleep(0.1)


def main() -> None:
    known_replies = known_answers(ANSWERS)
    with kafka(**{name.replace(".", "_"): value for name, value in SETTINGS.items()}) as port:
        peer = KafkaPeer(port)
        peer.prepare()
        answers = {}
        for case in every_case():
            answers[case.name] = known_replies[case.name] if case.name in known_replies else peer.ask(case)
            print(f"{len(answers)} {case.name}: {json.dumps(answers[case.name])[:160]}", file=sys.stderr)
    write_answers(ANSWERS, answers)


if __name__ == "__main__":
    main()
