"""Requests to this broker and to Apache Kafka: every API served, in every version, within its limits and beyond them.

The order matters: later questions use topics that earlier ones create.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from struct import pack
from typing import Any, NamedTuple

from broker.topics.settings import TOPIC_SETTINGS
from protocol.apis import APIS
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.headers import FLEXIBLE_FROM

METADATA, FIND_COORDINATOR, API_VERSIONS, CREATE_TOPICS, DESCRIBE_CLUSTER = 3, 10, 18, 19, 60
GROUP, TRANSACTION, SHARE = 0, 1, 2
CORRELATION_ID = 7
NO_ID = bytes(16)
KAFKAS_NEWEST = {18: 4, 42: 2}  # Kafka 4.4 has ApiVersions 5 and DeleteGroups 3

Ids = dict[str, bytes]


class Question(NamedTuple):
    name: str
    key: int
    version: int  # of the request; the reply to an ApiVersions request newer than the broker has version 0
    frame: Callable[[Ids], bytes]  # topic ids differ, so a frame is built for each server


def ranges(key: int) -> range:
    """The versions of an API that Tenure and Kafka 4.3.1 serve."""
    oldest, newest = APIS[key].served
    return range(oldest, KAFKAS_NEWEST.get(key, newest) + 1)


def topic_id(ids: Ids, name: str) -> bytes:
    """The id of a topic, and for one that does not exist always the same."""
    return ids.get(name) or sha256(name.encode()).digest()[:16]


def head(key: int, version: int, client_id: bytes | None = b"oracle", tags: bytes | None = None) -> bytes:
    text = pack(">h", -1) if client_id is None else pack(">h", len(client_id)) + client_id
    flexible = key in FLEXIBLE_FROM and version >= FLEXIBLE_FROM[key]
    return pack(">hhi", key, version, CORRELATION_ID) + text + (tags if tags is not None else b"\0" if flexible else b"")


def raw(name: str, key: int, version: int, frame: bytes) -> Question:
    return Question(name, key, version, lambda ids: frame)


def ask(name: str, request: Any, version: int) -> Question:
    return raw(f"{name} v{version}", request.API_KEY, version, head(request.API_KEY, version) + request.encode(version))


def everything() -> Iterator[Question]:
    yield from api_versions()
    yield from describe_cluster()
    yield from create_topics()
    yield from topic_settings()
    yield from metadata()
    yield from coordinators()
    yield from frames()


# ApiVersions


def api_versions() -> Iterator[Question]:
    for version in ranges(API_VERSIONS):
        yield ask("versions", ApiVersionsRequest("oracle", "1.0"), version)
    for version in (6, 7, 99, 32767, -1, -32768):
        body = ApiVersionsRequest("oracle", "1.0").encode(4)
        yield raw(f"versions, newer v{version}", API_VERSIONS, version, head(API_VERSIONS, version) + body)
        yield raw(f"versions, newer and empty v{version}", API_VERSIONS, version, head(API_VERSIONS, version, tags=b""))
    for text in ("", " ", "a b", "-a", "a-", ".a", "a.", "a", "a-b.c", "a_b", "a..b", "a--b", "é", "a\n", "a" * 300, "1", "v1.0+x"):
        yield ask(f"versions, client named {text[:9]!r}", ApiVersionsRequest(text, "1.0"), 3)
        yield ask(f"versions, client of version {text[:9]!r}", ApiVersionsRequest("a", text), 4)


# DescribeCluster


def describe_cluster() -> Iterator[Question]:
    for version in ranges(DESCRIBE_CLUSTER):
        for operations in (False, True):
            for fenced in (False, True) if version >= 2 else (False,):
                for endpoint in (1, 2, 3, 0, -1, 127) if version >= 1 else (1,):
                    request = DescribeClusterRequest(operations, endpoint, fenced)
                    yield ask(f"cluster, operations {operations}, endpoint {endpoint}, fenced {fenced}", request, version)


# CreateTopics


def topic(name: str, partitions: int = 1, replicas: int = 1, assigned: Any = (), settings: Any = ()) -> CreatableTopic:
    return CreatableTopic(
        name,
        partitions,
        replicas,
        [CreatableReplicaAssignment(index, list(brokers)) for index, brokers in assigned],
        [CreatableTopicConfig(key, value) for key, value in settings],
    )


def create(name: str, *topics: CreatableTopic, version: int = 7, timeout: int = 5000, validate: bool = False) -> Question:
    return ask(f"create, {name}", CreateTopicsRequest(list(topics), timeout, validate), version)


NAMES = ("", ".", "..", "...", "a b", "x" * 249, "x" * 250, "é", "a\0", "a/b", "__consumer_offsets", "__transaction_state", "__any", "-", "_")
COUNTS = ((0, 1), (-1, -1), (-2, 1), (1, 0), (1, 2), (1, -2), (0, 0), (10_000, 1), (10_001, 1), (2_147_483_647, 32_767), (-2_147_483_648, 1), (3, -1))
ASSIGNMENTS = {
    "two": [(0, [1]), (1, [1])],
    "backwards": [(1, [1]), (0, [1])],
    "with a gap": [(0, [1]), (2, [1])],
    "to an unknown broker": [(0, [2])],
    "to a negative broker": [(0, [-1])],
    "twice to one broker": [(0, [1, 1])],
    "to one known and one unknown": [(0, [1, 2])],
    "to nobody": [(0, [])],
    "not from 0": [(1, [1])],
    "one partition twice": [(0, [1]), (0, [1])],
    "a negative partition": [(-1, [1])],
    "replicas of different numbers": [(0, [1]), (1, [1, 2])],
}


def create_topics() -> Iterator[Question]:
    for version in ranges(CREATE_TOPICS):
        new_topic = f"made-{version}"
        yield create("new, only validated", topic(new_topic, 2), version=version, validate=True)
        yield create("new", topic(new_topic, 2, settings=[("retention.ms", "1000")]), version=version)
        yield create("again", topic(new_topic, 3), version=version)
        yield create("again, only validated", topic(new_topic, 3), version=version, validate=True)
        yield create("twice in one request", topic("twice", 1), topic(f"once-{version}"), topic("twice", 2), version=version)
        yield create("an existing one twice", topic(new_topic), topic(new_topic), version=version)
        yield create("nothing", version=version)
        yield create("defaults", topic(f"defaults-{version}", -1, -1), version=version)
        yield create("a bad and a good one", topic("a b"), topic(f"good-{version}"), version=version)
        yield create("a bad setting", topic("bad", settings=[("nope", "1")]), version=version)
    for timeout in (0, -1, -2_147_483_648, 2_147_483_647):
        for validate in (False, True):
            yield create(f"in {timeout} ms, validate {validate}", topic(f"in-time{timeout}-{validate}"), timeout=timeout, validate=validate)
    yield create("in 0 ms, all kinds of wrong", topic("a b"), topic("d"), topic("d"), topic("made-7"), timeout=0)
    for name in NAMES:
        yield create(f"name {name[:20]!r} of {len(name)}", topic(name), validate=name.startswith("__"))
    yield create("a dot", topic("with.dot"))
    yield create("an underscore beside the dot", topic("with_dot"))
    yield create("both in one request", topic("both.ways"), topic("both_ways"), validate=True)
    for partitions, replicas in COUNTS:
        yield create(f"{partitions} partitions, {replicas} replicas", topic("counts", partitions, replicas), validate=True)
    yield create("too many together", topic("many-1", 6_000), topic("many-2", 6_000), validate=True)
    yield create("too many and an existing one", topic("many-1", 10_001), topic("made-7"), topic("a b"), validate=True)
    yield create("many, half of them twice", topic("many-1", 6_000), topic("many-2", 6_000), topic("many-2", 6_000), validate=True)
    for name, assigned in ASSIGNMENTS.items():
        for validate in (True, False):
            yield create(f"assigned {name}, validate {validate}", topic("by-hand", -1, -1, assigned), validate=validate)
    for partitions, replicas in ((2, -1), (-1, 1), (1, 1), (0, 0)):
        yield create(f"assigned, and {partitions}, {replicas}", topic("by-hand-2", partitions, replicas, [(0, [1])]), validate=True)
    yield create("wrong in every way, the name", topic("a b", 0, 0, settings=[("nope", "1")]), validate=True)
    yield create("wrong in counts and settings", topic("wrong", 0, 0, settings=[("nope", "1")]), validate=True)
    yield create("wrong in partitions and replicas", topic("wrong", 0, 5), validate=True)
    yield create("wrong in assignment and settings", topic("wrong", -1, -1, [(0, [9])], [("nope", "1")]), validate=True)
    yield create("existing, wrong in counts and settings", topic("made-7", 0, 0, settings=[("nope", "1")]), validate=True)
    yield create("colliding, wrong in settings", topic("with_dot", 0, 0, settings=[("nope", "1")]), validate=True)


VALUES = (
    "", " ", None, "0", "1", "-1", "-2", "-3", "7", " 7 ", "+7", "0x7", "1_0", "\u0667", "7.5", "1e3", "NaN", "Infinity", "2147483647",
    "2147483648", "9223372036854775807", "9223372036854775808", "true", "TRUE", " false ", "yes", "delete", "delete,compact",
    "compact, delete", "delete,delete", "delete,", ",", "0:1,", "gzip", "GZIP", "producer", "CreateTime", "LogAppendTime", "*", "0:1", "0:1,1:1", "0:x", ":",
)  # fmt: skip


def topic_settings() -> Iterator[Question]:
    """Every setting with every value."""
    for name in (*TOPIC_SETTINGS, "nope", "", "message.format.version", "message.downconversion.enable", "RETENTION.MS", "log.retention.ms"):
        for value in VALUES:
            yield create(f"{name}={value!r}", topic("setting", settings=[(name, value)]), validate=True)
    twice = {"good, good": "12", "good, bad": "1x", "bad, good": "x1", "null, good": None}
    for name, values in twice.items():
        pairs = [("retention.ms", values[0] if values else None), ("retention.ms", values[1] if values else "1")]
        yield create(f"setting twice: {name}", topic("setting", settings=pairs), validate=True)
    yield create("two bad settings", topic("setting", settings=[("retention.ms", "x"), ("nope", "1")]), validate=True)
    yield create("two nulls", topic("setting", settings=[("segment.ms", None), ("nope", None), ("retention.ms", None)]), validate=True)
    yield create("a null and a bad one", topic("setting", settings=[("segment.ms", "x"), ("retention.ms", None)]), validate=True)
    lags = [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")]
    yield create("compaction lags that contradict", topic("setting", settings=lags), validate=True)
    yield create("more local than retained", topic("setting", settings=[("local.retention.ms", "99"), ("retention.ms", "5")]), validate=True)
    yield create("remote storage", topic("setting", settings=[("remote.storage.enable", "true")]), validate=True)


# Metadata


def metadata() -> Iterator[Question]:
    def describe(name: str, topics: Any, version: int, create: bool = False, operations: bool = False) -> Question:
        topics_asked = None if topics is None else [MetadataRequestTopic(name=wanted_topic) for wanted_topic in topics]
        request = MetadataRequest(
            topics_asked,
            allow_auto_topic_creation=create or version < 4,
            include_cluster_authorized_operations=operations and 8 <= version <= 10,
            include_topic_authorized_operations=operations and version >= 8,
        )
        return ask(f"metadata, {name}", request, version)

    for version in ranges(METADATA):
        if version:
            yield describe("all", None, version)
            yield describe("all, operations", None, version, operations=True)
        yield describe("none", [], version)
        yield describe("one", ["made-7"], version, operations=True)
        yield describe("one twice", ["made-7", "made-6", "made-7"], version)
        yield describe("a missing one", [f"missing-{version}" if version < 4 else "missing"], version)
        yield describe("missing ones, to be created", [f"auto-{version}", "made-7"], version, create=True, operations=True)
        yield describe("that one again", [f"auto-{version}"], version)
        yield describe("internal", ["__consumer_offsets"], version, create=True, operations=True)
        for name in ("", "a b", "x" * 250, "é", ".", "with_dot"):
            yield describe(f"name {name[:9]!r}", [name], version, create=True, operations=True)
        yield describe("bad and good names", ["a b", "made-7", "made-2", "é"], version)
    for version in (10, 11, 12, 13):
        yield by_id("known", version, "made-7", name=None)
        yield by_id("known, with its name", version, "made-7", name="made-7")
        yield by_id("known, with another name", version, "made-7", name="made-6")
        yield by_id("unknown", version, b"?" * 16, name=None)
        yield by_id("unknown, with a name", version, b"?" * 16, name="made-7")
        yield by_id("unknown, with an empty name", version, b"?" * 16, name="")
        yield by_id("neither id nor name", version, NO_ID, name=None)
        yield by_id("two, and an unknown", version, "made-7", "made-6", b"?" * 16, name=None)
        yield by_id("one twice", version, "made-7", "made-7", name=None)
        yield mixed("id and name", version)


def by_id(title: str, version: int, *topics: str | bytes, name: str | None) -> Question:
    def frame(ids: Ids) -> bytes:
        topics_asked = [(ids[wanted_topic] if isinstance(wanted_topic, str) else wanted_topic, name) for wanted_topic in topics]
        return metadata_frame(version, topics_asked)

    return Question(f"metadata by id, {title} v{version}", METADATA, version, frame)


def mixed(name: str, version: int) -> Question:
    def frame(ids: Ids) -> bytes:
        return metadata_frame(version, [(ids["made-7"], None if version >= 12 else ""), (NO_ID, "made-6")])

    return Question(f"metadata by id, {name} v{version}", METADATA, version, frame)


def metadata_frame(version: int, topics: list[tuple[bytes, str | None]]) -> bytes:
    """A Metadata request built by hand, with fields that our encoder refuses in these versions."""
    body = compact(len(topics))
    for id, name in topics:
        body += id + (b"\0" if name is None else compact(len(name.encode())) + name.encode()) + b"\0"
    flags = b"\0\0\0" if version <= 10 else b"\0\0"
    return head(METADATA, version) + body + flags + b"\0"


def compact(length: int) -> bytes:
    assert length < 127
    return bytes([length + 1])


# FindCoordinator


def coordinators() -> Iterator[Question]:
    def find(name: str, keys: list[str], version: int, kind: int = GROUP) -> Question:
        request = FindCoordinatorRequest(keys[0] if keys else "", kind if version >= 1 else 0, keys if version >= 4 else [])
        return ask(f"coordinator, {name}", request, version)

    for version in ranges(FIND_COORDINATOR):
        yield find("one", ["g"], version)
        yield find("empty", [""], version)
        yield find("odd", ["a b\né"], version)
        yield find("long", ["g" * 5000], version)
        if version >= 4:
            yield find("none", [], version)
            yield find("several", ["x", "y", "x"], version)
            yield find("none of an unknown kind", [], version, 9)
        if version >= 1:
            for kind in (3, 9, -1, 127):
                yield find(f"kind {kind}", ["g"], version, kind)
            for key in ("g", "", "g:AAAAAAAAAAAAAAAAAAAAAQ:0", "g:x:0", "g:AAAAAAAAAAAAAAAAAAAAAQ:-1"):
                yield find(f"share {key[:9]!r}", [key], version, SHARE)
            yield find("transaction", ["t"], version, TRANSACTION)
            yield find("transaction, empty", [""], version, TRANSACTION)


# Frames that are not quite a request


def frames() -> Iterator[Question]:
    for version in (4, 7, 12):
        growing = b"\xff" * 20_000  # each byte becomes U+FFFD, three bytes long, so the name is too long for a reply
        legacy, flexible = pack(">ih", 1, len(growing)) + growing, b"\2\xa1\x9c\1" + growing
        body = flexible.replace(b"\2", b"\2" + NO_ID, 1) + b"\0\0\0" if version == 12 else legacy
        yield raw(f"metadata of a name that grows v{version}", METADATA, version, head(METADATA, version) + body + b"\0\0")
    for version in (0, 3, 4):
        body = (b"\0\2" + b"\xa1\x9c\1" + growing + b"\0") if version == 4 else pack(">h", len(growing)) + growing + b"\0" * (version > 0)
        yield raw(f"coordinator of a key that grows v{version}", FIND_COORDINATOR, version, head(FIND_COORDINATOR, version) + body)
    for version in (4, 7):
        yield create("name of the greatest length", topic("n" * 32_767), version=version, validate=True)
        yield create("setting of the greatest length", topic("long", settings=[("s" * 32_767, "1")]), version=version, validate=True)
        yield create("value of the greatest length", topic("long", settings=[("segment.ms", "v" * 32_767)]), version=version, validate=True)
        nulls = [(f"{number:05}" * 1000, None) for number in range(8)]
        yield create("nulls of great length", topic("long", settings=nulls), version=version, validate=True)
    metadata_12 = MetadataRequest([MetadataRequestTopic(name="made-7")]).encode(12)
    metadata_5 = MetadataRequest([MetadataRequestTopic(name="made-7")], True).encode(5)
    for key, version in ((999, 0), (-1, 0), (92, 0), (4, 0), (7, 0), (3, 14), (3, -1), (19, 1), (19, 8), (10, 7), (10, -1), (60, 3), (60, -1)):
        yield raw(f"api {key} in version {version}", key, version, head(key, version) + b"\0" * 8)
    for name, client_id in {"null": None, "empty": b"", "no text": b"\xff\xfe", "long": b"c" * 30_000, "zero": b"\0"}.items():
        for version, body in ((12, metadata_12), (5, metadata_5)):
            yield raw(f"client id: {name} v{version}", METADATA, version, head(METADATA, version, client_id) + body)
        yield raw(f"client id: {name}, versions", API_VERSIONS, 3, head(API_VERSIONS, 3, client_id) + ApiVersionsRequest("a", "1").encode(3))
    yield raw("client id of length -2", METADATA, 5, pack(">hhih", METADATA, 5, 7, -2) + metadata_5)
    yield raw("client id cut short", METADATA, 5, pack(">hhih", METADATA, 5, 7, 500) + metadata_5)
    tags = {
        "one": b"\1\5\2ab",
        "two": b"\2\5\2ab\7\0",
        "out of order": b"\2\7\0\5\2ab",
        "one twice": b"\2\5\0\5\0",
        "a large number": b"\1\xff\xff\xff\xff\x07\1x",
        "cut short": b"\1\5\x7fab",
        "count without end": b"\xff\xff\xff\xff\xff\xff",
        "size of 2 GB": b"\1\5\xff\xff\xff\xff\x07",
    }
    for name, section in tags.items():
        yield raw(f"header tags: {name}", METADATA, 12, head(METADATA, 12, tags=section) + metadata_12)
        yield raw(f"body tags: {name}", METADATA, 12, head(METADATA, 12) + metadata_12[:-1] + section)
    yield raw("bytes after the body", METADATA, 12, head(METADATA, 12) + metadata_12 + b"more")
    yield raw("bytes after the body, inflexible", METADATA, 5, head(METADATA, 5) + metadata_5 + b"\0more")
    yield raw("bytes after the body, versions", API_VERSIONS, 3, head(API_VERSIONS, 3) + ApiVersionsRequest("a", "1").encode(3) + b"more")
    for cut in range(1, len(metadata_12)):
        yield raw(f"body without its last {cut}", METADATA, 12, head(METADATA, 12) + metadata_12[:-cut])
    for cut in (1, 5, 8, 11):
        yield raw(f"body without its last {cut}, inflexible", METADATA, 5, head(METADATA, 5) + metadata_5[:-cut])
    bodies = {
        "count -2": pack(">i", -2) + b"\1",
        "count 2 billion": pack(">i", 2_000_000_000) + b"\1",
        "a name of length -1": pack(">ih", 1, -1) + b"\1",
        "a name of length -2": pack(">ih", 1, -2) + b"\1",
        "a name that is too long": pack(">ih", 1, 30_000) + b"ab\1",
        "a name that is no text": pack(">ih", 1, 2) + b"\xff\xfe\1",
        "a boolean of 2": pack(">ih", 1, 6) + b"made-7\2",
        "a boolean of 255": pack(">ih", 1, 6) + b"made-7\xff",
    }
    for name, body in bodies.items():
        yield raw(f"metadata with {name}", METADATA, 5, head(METADATA, 5) + body)
    yield raw("null topics in version 0", METADATA, 0, head(METADATA, 0) + pack(">i", -1))
    yield raw("null topics to create", CREATE_TOPICS, 7, head(CREATE_TOPICS, 7) + b"\0" + pack(">i?", 5000, False) + b"\0")
    yield raw("a header cut short", METADATA, 5, pack(">hh", METADATA, 5))
    yield raw("nothing but a key", METADATA, 5, pack(">h", METADATA))
    yield raw("an empty frame", METADATA, 5, b"")
