"""Fetch, ListOffsets and OffsetForLeaderEpoch with every field at its extremes, and the replies of Apache Kafka.

`python -m tests.broker.recorded.fetch` sends these requests to a real Kafka and records its replies in fetch.json; test_fetch.py compares
ours without Java. Kafka is started three times over the same logs, so that they have leader epochs 0, 2 and 4.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from protocol.batch import Record, build, iterate_headers
from protocol.message import Part
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.recorded.extremes import ChangedRequest, answer_frame, decoded, extremes, framed, short_text
from tests.broker.recorded.fields import recorded_fields
from tests.kafka_process import kafka_folder, running_kafka
from tests.running import Client

ANSWERS = Path(__file__).with_name("fetch.json")
SETTINGS = {"log_retention_ms": "-1", "auto_create_topics_enable": "false", "offsets_topic_num_partitions": "1"}
EPOCHS = (0, 2, 4)  # the leader epochs of the logs, one for each start of Kafka
WAIT_MS = 60
KNOWN_SECONDS = 20
SILENCE_SECONDS = 5
UNKNOWN_ID = b"\7" * 16
TIME = 1_700_000_000_000


# Stored records.


def batch(*times: int, padding: int = 10) -> bytes:
    return build([Record(number, TIME + at, b"k%d" % number, bytes(padding), []) for number, at in enumerate(times)])


SMALL = (batch(0, 10), batch(30, 20), batch(25, 30), batch(5, 6), batch(40, 40), batch(35, 36))
LARGE = tuple(batch(number, padding=40_000) for number in range(3))
# For each topic, a list of partitions; for each partition, the batches of each of the three epochs.
APPENDED: dict[str, list[list[tuple[bytes, ...]]]] = {
    "full": [[SMALL, (), ()], [(), (), ()], [LARGE, (), ()]],
    "aged": [[SMALL[:2], SMALL[2:4], ()]],
    "trimmed": [[SMALL[:3], SMALL[3:], ()]],
    "emptied": [[SMALL[:2], (), ()]],
    "untimed": [[(batch(-TIME - 1, -TIME - 1),), (batch(1, 2),), ()]],
    "deleted": [[(), (), ()]],
}
TRIMMED = {"trimmed": 5, "emptied": 4}  # the log start offset that DeleteRecords sets; 5 is inside a batch


class TopicIds(NamedTuple):
    """The ids of topics by name."""

    by_name: dict[str, bytes]


DRY = TopicIds({name: bytes([number + 1]) * 16 for number, name in enumerate(APPENDED)})
Request = Callable[[TopicIds], Any]


Case = ChangedRequest[TopicIds]


# Requests without an extreme field.


def fetch(topic_ids: TopicIds) -> Any:
    return asking(fetch_topic("full", from_(2)))(topic_ids)


def list_offsets(topic_ids: TopicIds) -> ListOffsetsRequest:
    return ListOffsetsRequest(-1, 0, [ListOffsetsTopic("full", [ListOffsetsPartition(0, 4, -1)])], 500)


def list_by_time(topic_ids: TopicIds) -> ListOffsetsRequest:
    return ListOffsetsRequest(-1, 0, [ListOffsetsTopic("full", [ListOffsetsPartition(0, -1, TIME + 21)])], 500)


def epochs(topic_ids: TopicIds) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic("aged", [OffsetForLeaderPartition(0, 4, 0)])])


def fetch_topic(name: str, *partitions: FetchPartition) -> Callable[[TopicIds], FetchTopic]:
    return lambda topic_ids: FetchTopic(topic_ids.by_name.get(name, UNKNOWN_ID), name, list(partitions))


def asking(
    *topics: Callable[[TopicIds], FetchTopic],
    wait: int = WAIT_MS,
    least: int = 1,
    most: int = 1 << 20,
    level: int = 0,
    replica: int = -1,
    session: tuple[int, int] = (0, -1),
) -> Request:
    def request(topic_ids: TopicIds) -> FetchRequest:
        forgotten = [ForgottenTopic(topic_ids.by_name["full"], "full", [1])]
        listed = [topic(topic_ids) for topic in topics]
        return FetchRequest(None, ReplicaState(replica, -1), replica, wait, least, most, level, *session, listed, forgotten, "rack")

    return request


def from_(offset: int, partition: int = 0, most: int = 1 << 20, current: int = -1, fetched: int = -1) -> FetchPartition:
    return FetchPartition(partition, current, offset, fetched, -1, most)


ASKED: list[tuple[Request, tuple[int, ...]]] = [
    (fetch, (17, 16, 13, 12, 11, 6, 4)),
    (list_offsets, (10, 6, 5, 4, 1)),
    (list_by_time, (10, 5, 1)),
    (epochs, (4, 3, 2)),
]


def every_case() -> Iterator[Case]:
    for request, versions in ASKED:
        for version in versions:
            yield from cases(request, version, versions[0])
    yield from fetches()
    yield from listings()
    yield from epoch_questions()


def cases(request: Request, version: int, newest: int) -> Iterator[Case]:
    title = request.__name__
    yield Case(f"{title} v{version}", request, version)
    for extreme in extremes(request(DRY), title, version):
        if extreme.many and (version != newest or request is list_by_time or (request is not fetch and extreme.name.endswith("alike"))):
            continue  # long lists: slow, with the same reply in every version; some keep Kafka busy for minutes
        yield Case(extreme.name, request, version, extreme.change)


# Cases beyond the change of one field.


def fetches() -> Iterator[Case]:
    def fetch(name: str, ask: Request, *versions: int) -> Iterator[Case]:
        for version in versions or (17, 12):
            yield Case(f"fetching v{version}: {name}", ask, version)

    yield from fetch("nothing", asking())
    for level in (0, 1):
        for offset in (0, 1, 6, 11, 12, 13, -1):
            yield from fetch(f"offset {offset}, level {level}", asking(fetch_topic("full", from_(offset)), level=level))
        yield from fetch(f"an empty log, level {level}", asking(fetch_topic("full", from_(0, 1)), level=level))
        for offset in (0, 4, 5, 6, 11, 12):
            yield from fetch(f"trimmed from {offset}, level {level}", asking(fetch_topic("trimmed", from_(offset)), level=level))
        for offset in (0, 3, 4, 5):
            yield from fetch(f"emptied from {offset}, level {level}", asking(fetch_topic("emptied", from_(offset)), level=level))
    for level in (2, -1):
        yield from fetch(f"level {level} of nothing known", asking(fetch_topic("?", from_(0)), level=level))
        yield from fetch(f"level {level} of something", asking(fetch_topic("?", from_(0)), fetch_topic("full", from_(0)), level=level), 17, 12, 6, 4)
    for current in (-2, -1, 0, 1, 2, 3, 4, 5, 1 << 30):
        for replica in (-1, 3):
            yield from fetch(
                f"current epoch {current} as {replica}",
                asking(fetch_topic("full", from_(0, 0, current=current), from_(0, 1, current=current)), replica=replica),
                17, 16, 15, 12, 9,
            )
    for fetched in (-2, -1, 0, 1, 2, 3, 4, 5, 1 << 30):
        for offset in (-1, 0, 3, 4, 5, 8, 9):
            yield from fetch(f"fetched epoch {fetched}, offset {offset}", asking(fetch_topic("aged", from_(offset, fetched=fetched))))
        yield from fetch(f"fetched epoch {fetched} of nothing", asking(fetch_topic("full", from_(0, 1, fetched=fetched)), level=1), 12)
        for offset in (3, 4, 5, 10):
            yield from fetch(f"fetched epoch {fetched} of trimmed, offset {offset}", asking(fetch_topic("trimmed", from_(offset, fetched=fetched))), 12)
            yield from fetch(f"fetched epoch {fetched} of emptied, offset {offset}", asking(fetch_topic("emptied", from_(offset, fetched=fetched))), 12)
    for replica in (-1, -2, -3, 0, 1, 2):
        yield from fetch(f"as replica {replica}", asking(fetch_topic("full", from_(0)), fetch_topic("?", from_(0)), replica=replica), 17, 15, 14, 4)
    yield from limited_fetches(fetch)
    yield from ordered_fetches(fetch)


def limited_fetches(fetch: Any) -> Iterator[Case]:
    size = len(SMALL[0])
    for most in (0, 1, size - 1, size, size + 1, 3 * size, 6 * size, -1):
        yield from fetch(f"{most} bytes of a partition", asking(fetch_topic("full", from_(0, 0, most), from_(0, 1, most), from_(0, 2, most))))
        yield from fetch(f"{most} bytes of a committed partition", asking(fetch_topic("full", from_(0), from_(0, 0, most), from_(0, 2, most)), level=1))
        yield from fetch(f"{most} bytes in all", asking(fetch_topic("full", from_(0, 1), from_(0, 0), from_(0, 2)), most=most))
        yield from fetch(f"{most} bytes at the end", asking(fetch_topic("full", from_(12, 0, most)), most=most))
        yield from fetch(f"at least {most} bytes", asking(fetch_topic("full", from_(10)), least=most))
        yield from fetch(f"at least {most} of no bytes", asking(fetch_topic("full", from_(12)), least=most))
    for most in (39_000, 40_000, 41_000, 70_000, 81_000, 120_000, 130_000, 1 << 30):
        yield from fetch(f"{most} bytes of large batches", asking(fetch_topic("full", from_(0, 2, most), from_(0))))
        yield from fetch(f"{most} bytes of large batches in all", asking(fetch_topic("full", from_(1, 2), from_(0)), most=most))
        yield from fetch(f"{most} bytes of large batches behind others", asking(fetch_topic("full", from_(0), from_(0, 2)), most=most))
    yield from fetch("max bytes below min bytes", asking(fetch_topic("full", from_(0)), least=1000, most=500))
    yield from fetch("min bytes above the partition's max bytes", asking(fetch_topic("full", from_(0, 0, size)), least=2 * size))
    yield from fetch("a cut batch satisfies min bytes", asking(fetch_topic("full", from_(0, 0, size + 5)), least=size + 1))
    for wait in (0, -1):
        yield from fetch(f"waiting {wait} ms", asking(fetch_topic("full", from_(12)), wait=wait))


def ordered_fetches(fetch: Any) -> Iterator[Case]:
    yield from fetch("twice the same", asking(fetch_topic("full", from_(0), from_(8)), fetch_topic("full", from_(0, 1), from_(10))))
    yield from fetch("the same topic twice, between others", asking(fetch_topic("full", from_(0)), fetch_topic("aged", from_(0)), fetch_topic("full", from_(10))))
    yield from fetch("a topic in parts", asking(fetch_topic("full", from_(0)), fetch_topic("aged", from_(0)), fetch_topic("full", from_(0, 1))))
    yield from fetch(
        "unknown topics between others",
        asking(fetch_topic("?", from_(0)), fetch_topic("full", from_(0, 9), from_(0), from_(0, -1)), fetch_topic("?", from_(0, 1), from_(0, 0))),
    )
    yield from fetch("an error beside a partition without new records", asking(fetch_topic("full", from_(12), from_(99, 2)), wait=100_000))
    yield from fetch("an unknown topic beside a partition without new records", asking(fetch_topic("full", from_(12)), fetch_topic("?", from_(0))))
    yield from fetch("deleted", asking(fetch_topic("deleted", from_(0))))
    yield from fetch("a topic without partitions", asking(fetch_topic("full"), fetch_topic("?")))
    for session, epoch in ((0, 0), (0, -1), (5, 0), (5, -1), (0, 1), (5, 1), (-1, 2), (0, -2), (0, (1 << 31) - 1)):
        yield from fetch(f"session {session}, epoch {epoch}", asking(fetch_topic("full", from_(0)), session=(session, epoch)), 17, 12, 7)
        yield from fetch(f"session {session}, epoch {epoch} of nothing", asking(session=(session, epoch)), 12)


def always(request: Any) -> Request:
    """A `Request` that gives this request for any topic ids."""
    return lambda topic_ids: request


def listings() -> Iterator[Case]:
    def listing(name: str, *topics: tuple[str, list[tuple[int, int, int]]], versions: tuple[int, ...] = (10,), level: int = 0, replica: int = -1) -> Iterator[Case]:
        for version in versions:
            requested = [ListOffsetsTopic(topic, [ListOffsetsPartition(*part) for part in parts]) for topic, parts in topics]
            yield Case(f"listing v{version}: {name}", always(ListOffsetsRequest(replica, level, requested, 500)), version)

    logs = [(name, index) for name, parts in APPENDED.items() for index in range(len(parts))]
    for timestamp in (-1, -2, -3, -4, -5, -6, -7):
        for name, index in logs:
            yield from listing(f"{timestamp} of {name}-{index}", (name, [(index, -1, timestamp)]), versions=(10, 9, 8, 7, 6, 1) if (name, index) == ("full", 0) else (10,))
    for after in (*range(-1, 44), 1 << 40):
        for name, index in logs[:5]:
            yield from listing(f"time {after} of {name}-{index}", (name, [(index, -1, TIME + after)]))
    for timestamp in (0, 1, (1 << 63) - 1):
        for name, index in logs:
            yield from listing(f"time of {timestamp} of {name}-{index}", (name, [(index, -1, timestamp)]))
    for current in (-2, -1, 0, 3, 4, 5):
        yield from listing(f"current epoch {current}", ("full", [(0, current, -1), (9, current, -1)]), versions=(10, 4))
    for level in (0, 1, 2, -1):
        yield from listing(f"level {level}", ("full", [(0, -1, -1), (0, -1, -2), (1, -1, -9)]), ("?", [(0, -1, -1)]), versions=(10, 2, 1), level=level)
        yield from listing(f"level {level} of nothing", level=level)
    for replica in (-1, -2, -3, 0, 1, 2):
        yield from listing(f"as replica {replica}", ("full", [(0, -1, -1), (2, -1, -3), (1, 9, -1)]), versions=(10, 1), replica=replica)
    yield from listing("twice the same", ("full", [(0, -1, -1), (0, -1, -2), (1, -1, -1)]))
    yield from listing("twice the same topic", ("full", [(0, -1, -1)]), ("aged", [(0, -1, -2)]), ("full", [(0, -1, -1), (2, -1, -1)]))
    yield from listing("unknown topics twice", ("?", [(0, -1, -1), (0, -1, -1)]), ("", [(0, -1, -1)]), ("full", []))
    yield from listing("unknown topics, partitions and timestamps", ("?", [(0, -1, -9)]), ("full", [(9, -1, -9), (8, -1, -1), (-1, -1, -1)]))
    yield from listing("deleted", ("deleted", [(0, -1, -1)]))


def epoch_questions() -> Iterator[Case]:
    def question(name: str, *topics: tuple[str, list[tuple[int, int, int]]], version: int = 4) -> Case:
        requested = [OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(*part) for part in parts]) for topic, parts in topics]
        return Case(f"epoch v{version}: {name}", always(OffsetForLeaderEpochRequest(-2, requested)), version)

    for epoch in (-(1 << 31), -2, -1, 0, 1, 2, 3, 4, 5, (1 << 31) - 1):
        for name, parts in APPENDED.items():
            yield question(f"{epoch} of {name}", (name, [(index, -1, epoch) for index in range(len(parts) + 1)]))
    for current in (-(1 << 31), -2, -1, 0, 3, 4, 5):
        yield question(f"current {current}", ("aged", [(0, current, 0), (9, current, 0)]))
    yield question("a topic in parts", ("full", [(0, -1, 0), (0, -1, 4)]), ("?", [(0, -1, 0)]), ("full", [(1, -1, 0)]))
    yield question("nothing")


# Recording.


def plain(value: Any, topic_ids: TopicIds) -> Any:
    """The reply as JSON values, with names for generated ids, offsets for records, and shortened texts and lists."""
    if isinstance(value, Part):
        names = [name for name in recorded_fields(type(value)) if name not in ("throttle_time_ms", "host", "port", "rack")]
        return {name: field_as_json(name, getattr(value, name), topic_ids) for name in names}
    if isinstance(value, list):
        return shortened([plain(item, topic_ids) for item in value])
    if isinstance(value, bytes):
        names = [name for name, id in topic_ids.by_name.items() if id == value]
        return f"<id of {names[0]}>" if names else value.hex()
    if isinstance(value, str):
        return short_text(value)
    return value


def field_as_json(name: str, value: Any, topic_ids: TopicIds) -> Any:
    if name == "records" and value:
        return [[header.base_offset, header.next_offset - 1] for header in iterate_headers(value, 0, whole(value))]
    if name == "records":
        return [] if value is not None else None
    if name == "session_id" and value:
        return "one"
    if name == "topics" and value and type(value[0]).__name__ == "ListOffsetsTopicResponse":  # Kafka answers in any order
        for topic in value:
            topic.partitions.sort(key=lambda partition: partition.partition_index)
        value.sort(key=lambda topic: topic.name)
    return plain(value, topic_ids)


def whole(records: bytes) -> int:
    """The end of the last whole batch: Kafka cuts batches at its limit, and readers discard the cut batch."""
    at = 0
    while len(records) - at >= 61 and (batch_end := at + 12 + int.from_bytes(records[at + 8 : at + 12], "big")) <= len(records):
        at = batch_end
    return at


def shortened(items: list[Any]) -> list[Any]:
    """A long list as counts of equal neighbours; the digits in the elements are ignored."""
    if len(items) <= 8:
        return items
    shape = json.loads(re.sub(r"\b\d+", "0", json.dumps(items)))
    return [f"{len(list(group))} times {re.sub(r'[0-9]+', '#', json.dumps(item))}" for item, group in groupby(shape)]


class Server(Protocol):
    """A server that answers requests."""

    topic_ids: TopicIds

    def reply_to(self, key: int, version: int, body: bytes) -> bytes | str:
        """The reply frame without its length, or the reason why there is none."""
        ...


def answer_of(server: Server, case: Case) -> Any:
    key: int = case.request(DRY).API_KEY
    frame = server.reply_to(key, case.version, case.body(server.topic_ids))
    if isinstance(frame, str):
        return frame
    return json.loads(json.dumps(plain(decoded(key, case.version, frame), server.topic_ids)))


# Requests to Kafka.


class Kafka:
    def __init__(self, port: int, topic_ids: TopicIds) -> None:
        self.topic_ids = topic_ids
        self._port = port
        self._client = Client(port)
        self._client.socket.settimeout(SILENCE_SECONDS)

    def reply_to(self, key: int, version: int, body: bytes) -> bytes | str:
        frame = answer_frame(self._client, framed(key, version, body))
        if isinstance(frame, str):
            self._client.socket.close()
            self._client = Client(self._port)
            self._client.socket.settimeout(SILENCE_SECONDS)
        return frame

    def make(self) -> None:
        for name, parts in APPENDED.items():
            reply = self._client.ask(CreateTopicsRequest([CreatableTopic(name, len(parts), 1, [], [])], 5000), 7)
            assert reply.topics[0].error_code == 0, reply
            self.topic_ids.by_name[name] = reply.topics[0].topic_id

    def append(self, epoch: int) -> None:
        for name, parts in APPENDED.items():
            for index, by_epoch in enumerate(parts):
                for epoch_batch in by_epoch[epoch]:
                    request = ProduceRequest(None, -1, 5000, [TopicProduceData(name, [PartitionProduceData(index, epoch_batch)])])
                    self._until_known(request, 9, lambda reply: reply.responses[0].partition_responses[0].error_code)

    def settle(self) -> None:
        """Wait until every partition has its leader; then trim logs and delete a topic."""
        for name, parts in APPENDED.items():
            for index in range(len(parts)):
                request = OffsetForLeaderEpochRequest(-2, [OffsetForLeaderTopic(name, [OffsetForLeaderPartition(index, EPOCHS[-1], 0)])])
                self._until_known(request, 4, lambda reply: reply.topics[0].partitions[0].error_code)
        for name, offset in TRIMMED.items():
            trimming = DeleteRecordsRequest([DeleteRecordsTopic(name, [DeleteRecordsPartition(0, offset)])], 5000)
            assert self._client.ask(trimming, 1).topics[0].partitions[0].error_code == 0
        assert self._client.ask(DeleteTopicsRequest([], ["deleted"], 5000), 5).responses[0].error_code == 0
        time.sleep(2)

    def _until_known(self, request: Any, version: int, error_of: Callable[[Any], int]) -> None:
        until = time.monotonic() + KNOWN_SECONDS
        while error := error_of(self._client.ask(request, version)):
            assert time.monotonic() < until, error
            time.sleep(0.05)


@contextmanager
def prepared_kafka() -> Iterator[Kafka]:
    topic_ids = TopicIds({})
    with kafka_folder(**SETTINGS) as (folder, port):
        for start in range(3):
            with running_kafka(folder, port):
                kafka = Kafka(port, topic_ids)
                if start == 0:
                    kafka.make()
                kafka.append(start)
                if start == 2:
                    kafka.settle()
                    yield kafka


def main() -> None:
    answers: dict[str, Any] = {}
    with prepared_kafka() as kafka:
        for case in every_case():
            assert case.name not in answers, case.name
            answers[case.name] = answer_of(kafka, case)
    names_by_answer: dict[str, list[str]] = {}
    for name, answer in answers.items():
        names_by_answer.setdefault(json.dumps(answer), []).append(name)
    lines = [f"[{answer}, {json.dumps(names)}]" for answer, names in names_by_answer.items()]
    ANSWERS.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def kafkas_answers() -> dict[str, Any]:
    """Replies by case name; equal replies are stored once."""
    return {name: answer for answer, names in json.loads(ANSWERS.read_text()) for name in names}


if __name__ == "__main__":
    main()
