"""Topics and records, for tests that have no client at hand."""

from __future__ import annotations

import base64
from typing import Any

from broker.control.asking import check
from broker.control.fields import ANY, LIST, TEXT, WHOLE, Field, Refused
from broker.control.verb import Call, Verb
from protocol.batch import Record, build
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC = Field("topic", TEXT, "the topic's name", required=True)


async def make(call: Call) -> Any:
    await call.host.make_topics(call.of, {call.fields["name"]: {"partitions": call.fields["partitions"], "config": call.fields["config"] or {}}})
    return {"topic": call.fields["name"], "partitions": call.fields["partitions"]}


async def list_all(call: Call) -> Any:
    return {"topics": call.of.topics()}


async def purge(call: Call) -> Any:
    """Delete topics and groups whose names begin so; members of these groups are removed."""
    prefix = call.fields["prefix"]
    topics = [name for name in call.of.topics() if name.startswith(prefix)]
    groups = [group for name, group in call.of.groups().items() if name.startswith(prefix)]
    for group in groups:
        await call.of.empty_and_delete(group)
    if topics:
        reply = await call.of.request(DeleteTopicsRequest([DeleteTopicState(name) for name in topics], timeout_ms=5000))
        for result in reply.responses:
            check(result.error_code, f"topic {result.name}", result.error_message)
    return {"topics": topics, "groups": [group.id for group in groups]}


async def write(call: Call) -> Any:
    topic = call.fields["topic"]
    count = call.of.topics().get(topic)
    if count is None:
        raise Refused(404, f"there is no topic {topic!r}", f"topics: {', '.join(call.of.topics()) or 'none'}")
    by_partition: dict[int, list[Record]] = {}
    now = call.of.clock.wall_ns() // 1_000_000
    for number, entry in enumerate(call.fields["records"]):
        entry = {"value": entry} if not isinstance(entry, dict) else entry
        unknown = set(entry) - {"key", "value", "partition", "headers", "timestamp", "key_base64", "value_base64"}
        if unknown:
            raise Refused(400, f"record {number}: there is no field {sorted(unknown)[0]!r}", "key, value, key_base64, value_base64, partition, headers, timestamp")
        partition = entry.get("partition", number % count)
        if not isinstance(partition, int) or not 0 <= partition < count:
            raise Refused(400, f"record {number}: partition {partition!r} of {count}")
        headers = tuple((name.encode(), str(value).encode()) for name, value in (entry.get("headers") or {}).items())
        batch = by_partition.setdefault(partition, [])
        batch.append(Record(len(batch), int(entry.get("timestamp", now)), as_bytes(entry, "key", number), as_bytes(entry, "value", number), headers))
    data = [PartitionProduceData(partition, build(batch)) for partition, batch in sorted(by_partition.items())]
    if not data:
        return {"written": []}
    reply = await call.of.request(ProduceRequest(None, -1, 5000, [TopicProduceData(topic, data, call.of.topic_id(topic))]))
    written = []
    for answered in reply.responses[0].partition_responses:
        check(answered.error_code, f"topic {topic} partition {answered.index}", answered.error_message)
        written.append({"partition": answered.index, "first_offset": answered.base_offset, "records": len(by_partition[answered.index])})
    return {"written": written}


def as_bytes(entry: dict[str, Any], name: str, number: int) -> bytes | None:
    if f"{name}_base64" in entry:
        try:
            return base64.b64decode(entry[f"{name}_base64"], validate=True)
        except (ValueError, TypeError):
            raise Refused(400, f"record {number}: {name}_base64 is not base64") from None
    value = entry.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise Refused(400, f"record {number}: {name} is a text", f"{name}_base64 takes bytes")
    return value.encode()


async def read(call: Call) -> Any:
    topic = call.fields["topic"]
    count = call.of.topics().get(topic)
    if count is None:
        raise Refused(404, f"there is no topic {topic!r}", f"topics: {', '.join(call.of.topics()) or 'none'}")
    wanted = range(count) if call.fields["partition"] is None else [call.fields["partition"]]
    found: list[dict[str, Any]] = []
    for partition in wanted:
        found += await read_partition(call, topic, partition, call.fields["limit"] - len(found))
    return {"records": found}


async def read_partition(call: Call, topic: str, partition: int, limit: int) -> list[dict[str, Any]]:
    begin = call.fields["from"] if call.fields["from"] is not None else call.of.log_start(topic, partition)
    found: list[dict[str, Any]] = []
    async for record in call.of.read(topic, partition, begin):
        if len(found) >= limit:
            break
        found.append(document(partition, record))
    return found


def document(partition: int, record: Record) -> dict[str, Any]:
    shown: dict[str, Any] = {"partition": partition, "offset": record.offset, "timestamp": record.timestamp}
    for name, data in (("key", record.key), ("value", record.value)):
        try:
            shown[name] = None if data is None else bytes(data).decode()
        except UnicodeDecodeError:
            shown[f"{name}_base64"] = base64.b64encode(data or b"").decode()
    if record.headers:
        shown["headers"] = {bytes(name).decode("utf-8", "replace"): (value or b"").decode("utf-8", "replace") for name, value in record.headers}
    return shown


PATH = "/v1/clusters/{cluster}"
VERBS = (
    Verb(
        "POST", PATH + "/topics", "make a topic", make,
        (
            Field("name", TEXT, "the topic's name", required=True),
            Field("partitions", WHOLE, "how many", 1, least=1, most=100_000),
            Field("config", ANY, "settings of the topic, by Kafka's names"),
        ),
        {"name": "orders", "partitions": 6},
    ),
    Verb("GET", PATH + "/topics", "list the topics with their numbers of partitions", list_all),
    Verb("POST", PATH + "/purge", "delete all topics and groups whose names begin so", purge, (Field("prefix", TEXT, "the begin of their names", required=True),), {"prefix": "test-17-"}),
    Verb(
        "POST", PATH + "/records", "write records", write,
        (TOPIC, Field("records", LIST, "each a text, or an object with key, value, partition, headers, timestamp", required=True)),
        {"topic": "orders", "records": [{"key": "7", "value": "paid"}]},
    ),
    Verb(
        "GET", PATH + "/records", "read records", read,
        (
            TOPIC,
            Field("partition", WHOLE, "only this one", least=0),
            Field("from", WHOLE, "the first offset; absent: the oldest", least=0),
            Field("limit", WHOLE, "how many at most", 1000, least=1, most=100_000),
        ),
    ),
)  # fmt: skip
