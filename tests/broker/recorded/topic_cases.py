"""The cases of topics.py: an ordinary request of each API, in which topics.py sets one field at a time to an extreme, and special requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from protocol.messages import alter_configs, incremental_alter_configs
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, DescribeTopicPartitionsRequestCursor, TopicRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker.recorded.extremes import NO_ID, UNKNOWN_ID

PARTITIONS = 3
RETENTION_MS = "1000000"
OWN_ID = b"the id of its topic"
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


class OwnTopic(NamedTuple):
    """One case's own topic, of three partitions; no other topic has its name as a prefix."""

    topic: str
    id: bytes


DRY = OwnTopic("topic", b"0123456789abcdef")
Request = Callable[[OwnTopic], Any]


# Requests without an extreme field.


def create(own: OwnTopic) -> Any:
    settings = [CreatableTopicConfig("retention.ms", "1000")]
    return CreateTopicsRequest([CreatableTopic(f"{own.topic}-new", 2, 1, [], settings)], 5000, False)


def create_assigned(own: OwnTopic) -> Any:
    assignments = [CreatableReplicaAssignment(0, [1]), CreatableReplicaAssignment(1, [1])]
    return CreateTopicsRequest([CreatableTopic(f"{own.topic}-new", -1, -1, assignments, [])], 5000, False)


def grow(own: OwnTopic) -> Any:
    return CreatePartitionsRequest([CreatePartitionsTopic(own.topic, 4, [CreatePartitionsAssignment([1])])], 5000, False)


def delete(own: OwnTopic) -> Any:
    return DeleteTopicsRequest([DeleteTopicState(own.topic, NO_ID)], [own.topic], 5000)


def delete_by_id(own: OwnTopic) -> Any:
    return DeleteTopicsRequest([DeleteTopicState(None, own.id)], [], 5000)


def delete_records(own: OwnTopic) -> Any:
    return DeleteRecordsRequest([DeleteRecordsTopic(own.topic, [DeleteRecordsPartition(0, 3)])], 5000)


def describe_partitions(own: OwnTopic) -> Any:
    return DescribeTopicPartitionsRequest([TopicRequest(own.topic)], 2, DescribeTopicPartitionsRequestCursor(own.topic, 1))


def log_dirs(own: OwnTopic) -> Any:
    return DescribeLogDirsRequest([DescribableLogDirTopic(own.topic, [0])])


def configs(own: OwnTopic) -> Any:
    return DescribeConfigsRequest([DescribeConfigsResource(TOPIC, own.topic, ["retention.ms"])], True, True)


def alter(own: OwnTopic) -> Any:
    return AlterConfigsRequest(
        [alter_configs.AlterConfigsResource(TOPIC, own.topic, [alter_configs.AlterableConfig("segment.ms", "2000")])], False
    )


def change(own: OwnTopic) -> Any:
    return IncrementalAlterConfigsRequest(
        [
            incremental_alter_configs.AlterConfigsResource(
                TOPIC, own.topic, [incremental_alter_configs.AlterableConfig("segment.ms", SET, "2000")]
            )
        ],
        False,
    )


# The versions to send: the newest, and those that encode or place a field differently.
ASKED: list[tuple[Request, tuple[int, ...]]] = [
    (create, (7, 4, 2)),
    (create_assigned, (7,)),
    (grow, (3, 1)),
    (delete, (6, 5, 3)),
    (delete_by_id, (6,)),
    (delete_records, (2, 1)),
    (describe_partitions, (0,)),
    (log_dirs, (4, 2, 1)),
    (configs, (4, 3, 2)),
    (alter, (2, 1)),
    (change, (1, 0)),
]


# A case beyond the change of one field: its name, version and request.
Special = tuple[str, int, Request]


def special_cases() -> Iterator[Special]:
    for maker in (
        creating,
        growing,
        deleting,
        deleting_records,
        describing_partitions,
        describing_log_dirs,
        describing,
        altering,
        changing,
        listing_configs,
        of_the_offsets_topic,
    ):
        for name, version, request in maker():
            yield f"{maker.__name__}: {name}", version, request


NAMES = ("", ".", "..", "...", "a b", "x" * 249, "x" * 250, "é", "a/b", "-", "_")


def filled(name: str, own: OwnTopic) -> str:
    """Replace the placeholders: `TOPIC` by the case's own topic, `DOTTED` by a name that collides with it (a dot for an underscore)."""
    return name.replace("TOPIC", own.topic).replace("DOTTED", own.topic.replace("_", "."))


def named(text: str) -> str:
    return repr(text) if len(text) < 20 else f"{text[0]} {len(text)} times"


def creating() -> Iterator[Special]:
    def creatable(name: str, partitions: int = 1, replicas: int = 1, assigned: Any = (), settings: Any = ()) -> Callable[[OwnTopic], CreatableTopic]:
        return lambda own: CreatableTopic(
            filled(name, own),
            partitions,
            replicas,
            [CreatableReplicaAssignment(index, list(brokers)) for index, brokers in assigned],
            [CreatableTopicConfig(*setting) for setting in settings],
        )

    def asking(*topics: Callable[[OwnTopic], CreatableTopic], timeout: int = 5000, validate: bool = False) -> Request:
        return lambda own: CreateTopicsRequest([topic(own) for topic in topics], timeout, validate)

    for name in (*NAMES, "__consumer_offsets"):
        yield f"the name {named(name)}", 7, asking(creatable(name), validate=True)
    yield "the name '__cluster_metadata'", 7, asking(creatable("__cluster_metadata"))
    yield "again", 7, asking(creatable("TOPIC"))
    yield "again, only validated", 7, asking(creatable("TOPIC"), validate=True)
    yield "again, and colliding", 7, asking(creatable("TOPIC"), creatable("DOTTED"))
    yield "colliding", 7, asking(creatable("DOTTED"))
    yield "two that collide", 7, asking(creatable("TOPIC.new"), creatable("TOPIC_new"))
    yield "twice, and another", 7, asking(*[creatable("TOPIC-2")] * 2, creatable("TOPIC-3"))
    for partitions, replicas in ((0, 1), (-1, -1), (-2, 1), (1, 0), (1, 2), (1, -2), (10_001, 1), (3, -1)):
        yield f"{partitions} partitions, {replicas} replicas", 7, asking(creatable("TOPIC-new", partitions, replicas))
    for timeout in (0, -1, 1):
        yield f"a timeout of {timeout}", 7, asking(creatable("TOPIC-new"), timeout=timeout if timeout < 1 else 30_000)
    for title, assigned in {
        "two": [(0, [1]), (1, [1])],
        "backwards": [(1, [1]), (0, [1])],
        "with a gap": [(0, [1]), (2, [1])],
        "to an unknown broker": [(0, [2])],
        "twice to one broker": [(0, [1, 1])],
        "to no broker": [(0, [])],
        "of replicas of different numbers": [(0, [1]), (1, [1, 2])],
    }.items():
        yield f"assignments {title}", 7, asking(creatable("TOPIC-new", -1, -1, assigned))
    for title, settings in {
        "null": [("retention.ms", None)],
        "unknown": [("nope", "1")],
        "no number": [("retention.ms", "x")],
        "twice": [("retention.ms", "1"), ("retention.ms", "2")],
        "contradicting": [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")],
        "several": [("cleanup.policy", "compact,delete"), ("compression.type", "zstd")],
    }.items():
        yield f"settings {title}", 7, asking(creatable("TOPIC-new", 1, 1, (), settings))


def growing() -> Iterator[Special]:
    def topic(name: str, count: int, assigned: list[list[int]] | None = None) -> Callable[[OwnTopic], CreatePartitionsTopic]:
        brokers = None if assigned is None else [CreatePartitionsAssignment(list(replicas)) for replicas in assigned]
        return lambda own: CreatePartitionsTopic(filled(name, own), count, brokers)

    def asking(*topics: Callable[[OwnTopic], CreatePartitionsTopic], timeout: int = 5000, validate: bool = False) -> Request:
        return lambda own: CreatePartitionsRequest([topic(own) for topic in topics], timeout, validate)

    for count in (-1, 0, 1, 2, 3, 4, 10_002, 10_003, 10_004, (1 << 31) - 1):
        yield f"to {count}, only validated", 3, asking(topic("TOPIC", count), validate=True)
        if count < 10_000:  # larger counts keep Kafka busy for minutes
            yield f"to {count}", 3, asking(topic("TOPIC", count))
    assignments: list[tuple[str, int, list[list[int]]]] = [
        ("no list", 4, []),
        ("too few", 5, [[1]]),
        ("too many", 4, [[1], [1]]),
        ("to an unknown broker", 4, [[2]]),
        ("to a negative broker", 4, [[-1]]),
        ("twice to one broker", 4, [[1, 1]]),
        ("to no broker", 4, [[]]),
        ("to more replicas than there are", 4, [[1, 2]]),
        ("to no broker after one", 5, [[1], []]),
        ("with an unchanged count", 3, [[1]]),
        ("while it shrinks", 2, [[1]]),
    ]
    for title, count, assigned in assignments:
        yield f"assignments {title}", 3, asking(topic("TOPIC", count, assigned))
        yield f"assignments {title}, only validated", 3, asking(topic("TOPIC", count, assigned), validate=True)
    for name in (*NAMES, "nowhere"):
        yield f"the name {named(name)}", 3, asking(topic(name, 4))
    yield "twice", 3, asking(*[topic("TOPIC", 4)] * 2)
    yield "twice with other counts, and another", 3, asking(topic("TOPIC", 4), topic("nowhere", 2), topic("TOPIC", 5))
    yield "one good and one unknown", 3, asking(topic("nowhere", 4), topic("TOPIC", 4))
    for timeout in (0, -1):
        yield f"a timeout of {timeout}", 3, asking(topic("TOPIC", 4), timeout=timeout)


def deleting() -> Iterator[Special]:
    def target(name: str | None, id: bytes) -> Callable[[OwnTopic], DeleteTopicState]:
        return lambda own: DeleteTopicState(name and filled(name, own), own.id if id == OWN_ID else id)

    def asking(*topics: Callable[[OwnTopic], DeleteTopicState], timeout: int = 5000) -> Request:
        return lambda own: DeleteTopicsRequest([topic(own) for topic in topics], [], timeout)

    def names(*topics: str, timeout: int = 5000) -> Request:
        return lambda own: DeleteTopicsRequest([], [filled(topic, own) for topic in topics], timeout)

    yield "both name and id", 6, asking(target("TOPIC", OWN_ID))
    yield "neither", 6, asking(target(None, NO_ID))
    yield "neither, twice", 6, asking(*[target(None, NO_ID)] * 2)
    yield "an empty name and no id", 6, asking(target("", NO_ID))
    yield "an unknown id", 6, asking(target(None, UNKNOWN_ID))
    yield "an unknown id twice", 6, asking(*[target(None, UNKNOWN_ID)] * 2)
    yield "a wrong name beside an id", 6, asking(target("nowhere", OWN_ID))
    yield "the id twice", 6, asking(*[target(None, OWN_ID)] * 2)
    yield "the name twice", 6, asking(*[target("TOPIC", NO_ID)] * 2)
    yield "once by name, once by id", 6, asking(target("TOPIC", NO_ID), target(None, OWN_ID))
    yield "once by name, once by both", 6, asking(target("TOPIC", NO_ID), target("TOPIC", OWN_ID))
    yield "by id, with unknown ones", 6, asking(
        target("nowhere", NO_ID), target(None, UNKNOWN_ID), target(None, OWN_ID)
    )
    for version in (6, 5, 1):
        for timeout in (0, -1):
            if version == 6:
                yield f"a timeout of {timeout}, v6", 6, asking(target("TOPIC", NO_ID), timeout=timeout)
            else:
                yield f"a timeout of {timeout}, v{version}", version, names("TOPIC", timeout=timeout)
    for name in (*NAMES, "nowhere"):
        yield f"the name {named(name)}", 6, asking(target(name, NO_ID))
        yield f"the name {named(name)}, v5", 5, names(name)
    yield "the name twice, v5", 5, names(*["TOPIC"] * 2)
    yield "one good and one unknown, v1", 1, names("nowhere", "TOPIC")


def deleting_records() -> Iterator[Special]:
    def asking(*topics: tuple[str, list[tuple[int, int]]], timeout: int = 5000) -> Request:
        return lambda own: DeleteRecordsRequest(
            [
                DeleteRecordsTopic(name or own.topic, [DeleteRecordsPartition(number, offset) for number, offset in partitions])
                for name, partitions in topics
            ],
            timeout,
        )

    for offset in (-(1 << 63), -2, -1, 0, 1, 2, 5, 6, 7, (1 << 63) - 1):
        yield f"before {offset}", 2, asking(("", [(0, offset)]))
    for partition in (-1, 1, 2, 3, (1 << 31) - 1):
        for offset in (-1, 0, 1):
            yield f"of partition {partition} before {offset}", 2, asking(("", [(partition, offset)]))
    yield "of one partition twice, up", 2, asking(("", [(0, 2), (0, 4)]))
    yield "of one partition twice, down", 2, asking(("", [(0, 4), (0, 2)]))
    yield "of one topic twice", 2, asking(("", [(0, 2)]), ("", [(1, 0)]))
    yield "of one topic twice, the same partition", 2, asking(("", [(0, 4)]), ("", [(0, 2)]))
    yield "of several", 2, asking(("nowhere", [(0, 1)]), ("", [(2, 0), (0, 3), (9, 0)]))
    for name in (*NAMES[1:], "nowhere", "compacted", "both", "neither"):
        yield f"the name {named(name)}", 2, asking((name, [(0, 0), (7, 0)]))
    for timeout in (0, -1):
        yield f"a timeout of {timeout}", 2, asking(("", [(0, 3)]), timeout=timeout)


def describing_partitions() -> Iterator[Special]:
    def asking(*names: str | None, limit: int = 2000, cursor: tuple[str | None, int] | None = None) -> Request:
        def request(own: OwnTopic) -> Any:
            at = None if cursor is None else DescribeTopicPartitionsRequestCursor(own.topic if cursor[0] is None else cursor[0], cursor[1])
            return DescribeTopicPartitionsRequest([TopicRequest(own.topic if name is None else name) for name in names], limit, at)

        return request

    yield "one", 0, asking(None)
    yield "sorted, whatever the order", 0, asking("z-nowhere", None, "a-nowhere")
    yield "the same twice", 0, asking(None, None)
    for name in (*NAMES, "nowhere"):
        yield f"the name {named(name)}", 0, asking(name)
    for limit in (-(1 << 31), -1, 0, 1, 2, 3, 4, (1 << 31) - 1):
        yield f"a limit of {limit}", 0, asking(None, limit=limit)
        yield f"a limit of {limit}, with unknown ones", 0, asking("a-nowhere", None, "z-nowhere", limit=limit)
    for partition in (-2, -1, 0, 1, 2, 3, 4, 100):
        yield f"from partition {partition}", 0, asking(None, cursor=(None, partition))
        yield f"from partition {partition}, one of it", 0, asking(None, limit=1, cursor=(None, partition))
    yield "from a topic before", 0, asking(None, cursor=("a", 1))
    yield "from a topic behind", 0, asking(None, cursor=("z", 1))
    yield "from an empty name", 0, asking(None, cursor=("", 0))
    yield "from a topic between", 0, asking("a-nowhere", None, "z-nowhere", cursor=("b", 1))
    yield "from a requested unknown topic", 0, asking("a-nowhere", None, "z-nowhere", cursor=("a-nowhere", 1))
    yield "from a requested unknown topic, at its end", 0, asking("a-nowhere", None, "z-nowhere", cursor=("z-nowhere", 0))
    yield "several, one partition each time", 0, asking("both", None, "compacted", limit=1, cursor=("compacted", 0))
    yield "several, the limit within the last", 0, asking("both", "compacted", None, limit=4)
    yield "several, the limit at an end", 0, asking("both", "compacted", None, limit=2)


def describing_log_dirs() -> Iterator[Special]:
    def asking(*topics: tuple[str, list[int]]) -> Request:
        return lambda own: DescribeLogDirsRequest([DescribableLogDirTopic(name or own.topic, numbers) for name, numbers in topics])

    for version in (4, 3, 2, 1):
        yield f"some, v{version}", version, asking(("", [0, 1]))
    yield "unknown ones", 4, asking(("", [0, 7, -1]), ("nowhere", [0]))
    yield "a topic twice", 4, asking(("", [0]), ("", [1]))
    yield "a partition twice", 4, asking(("", [0, 0]))
    yield "no partitions", 4, asking(("", []))
    yield "the offsets topic", 4, asking(("__consumer_offsets", [9]))


def describing() -> Iterator[Special]:
    def asking(*resources: tuple[int, str, list[str] | None], synonyms: bool = True, documentation: bool = False) -> Request:
        return lambda own: DescribeConfigsRequest(
            [DescribeConfigsResource(type, name.replace("TOPIC", own.topic), keys) for type, name, keys in resources],
            synonyms,
            documentation,
        )

    for version in (4, 3, 2, 1):
        yield f"everything of a topic, v{version}", version, asking((TOPIC, "TOPIC", None))
        yield f"without synonyms, v{version}", version, asking((TOPIC, "TOPIC", None), synonyms=False)
        yield f"with documentation, v{version}", version, asking((TOPIC, "TOPIC", None), documentation=True)
    yield "no keys", 4, asking((TOPIC, "TOPIC", []))
    yield "unknown keys", 4, asking((TOPIC, "TOPIC", ["nope", "retention.ms", "", "segment.ms", "retention.ms"]))
    yield "of a compacted topic", 4, asking((TOPIC, "compacted", ["cleanup.policy"]))
    for name in (*NAMES, "nowhere"):
        yield f"the topic {named(name)}", 4, asking((TOPIC, name, None))
    for type in (-128, -1, 0, 1, 3, 5, 7, 9, 16, 32, 64, 127):
        for name in ("", "some"):
            yield f"type {type} name {name!r}", 4, asking((type, name, None))
    for name in ("", " ", "0", "1", "+1", "01", "2", "-1", "x", "99999999999"):
        for type in (BROKER, BROKER_LOGGER):
            yield f"type {type} name {name!r}, one key", 4, asking((type, name, ["nope"]))
    names = ["broker.id", "node.id", "log.retention.ms", "log.retention.hours", "num.partitions", "message.max.bytes", "ssl.key.password"]
    yield "some of a broker", 4, asking((BROKER, "1", [*names, "log.cleaner.threads", "nope"]), documentation=True)
    yield "some of a broker, without synonyms", 4, asking((BROKER, "1", names), synonyms=False)
    yield "some of a broker, v1", 1, asking((BROKER, "1", names))
    yield "a topic twice", 4, asking((TOPIC, "TOPIC", ["retention.ms"]), (TOPIC, "TOPIC", ["segment.ms"]))
    yield "several", 4, asking((TOPIC, "nowhere", None), (BROKER, "x", None), (TOPIC, "TOPIC", ["segment.ms"]), (GROUP, "g", None))
    yield "several, one of no type", 4, asking((TOPIC, "TOPIC", ["segment.ms"]), (3, "x", None), (TOPIC, "nowhere", None))
    yield "a group, without synonyms", 4, asking((GROUP, "g", None), synonyms=False)


def listing_configs() -> Iterator[Special]:
    def asking(kinds: list[int]) -> Request:
        return lambda own: ListConfigResourcesRequest(kinds)

    for kinds in ([BROKER], [BROKER_LOGGER, BROKER], [BROKER, BROKER], [CLIENT_METRICS], [GROUP], [GROUP, 1], [0], [-1], [127]):
        yield f"types {kinds}", 1, asking(kinds)
    yield "client metrics, v0", 0, asking([])


VALUES: list[tuple[str, str | None]] = [
    ("retention.ms", None),
    ("retention.ms", ""),
    ("retention.ms", "-1"),
    ("retention.ms", "-2"),
    ("retention.ms", " 5 "),
    ("retention.ms", RETENTION_MS),
    ("segment.bytes", "14"),
    ("segment.bytes", "1048576"),
    ("max.message.bytes", "-1"),
    ("message.timestamp.type", "LogAppendTime"),
    ("message.timestamp.type", "Nope"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "compact,delete"),
    ("cleanup.policy", ""),
    ("cleanup.policy", "nope"),
    ("compression.type", "zstd"),
    ("min.insync.replicas", "2"),
    ("remote.storage.enable", "true"),
    ("min.compaction.lag.ms", "9223372036854775807"),
    ("nope", "1"),
    ("nope", None),
    ("", "1"),
]


def altering() -> Iterator[Special]:
    def asking(*resources: tuple[int, str, list[tuple[str, str | None]]], validate: bool = False) -> Request:
        return lambda own: AlterConfigsRequest(
            [
                alter_configs.AlterConfigsResource(
                    type, name.replace("TOPIC", own.topic), [alter_configs.AlterableConfig(key, value) for key, value in settings]
                )
                for type, name, settings in resources
            ],
            validate,
        )

    for key, value in VALUES:
        yield f"{key}={value}", 2, asking((TOPIC, "TOPIC", [(key, value)]))
    yield "nothing", 2, asking((TOPIC, "TOPIC", []))
    yield "only validated", 2, asking((TOPIC, "TOPIC", [("segment.ms", "5")]), validate=True)
    yield "only validated, wrong", 2, asking((TOPIC, "TOPIC", [("segment.ms", "x")]), validate=True)
    yield "a name twice", 2, asking((TOPIC, "TOPIC", [("segment.ms", "5"), ("segment.ms", "6")]))
    yield "one right, one wrong", 2, asking((TOPIC, "TOPIC", [("segment.ms", "5"), ("segment.bytes", "x")]))
    yield "a topic twice", 2, asking((TOPIC, "TOPIC", [("segment.ms", "5")]), (TOPIC, "TOPIC", [("segment.bytes", "2000000")]))
    yield "a topic twice, and another", 2, asking((TOPIC, "TOPIC", []), (TOPIC, "both", [("segment.ms", "5")]), (TOPIC, "TOPIC", []), validate=True)
    yield from resources(asking, lambda key, value: (key, value))


def resources(asking: Any, setting: Callable[[str, str | None], Any]) -> Iterator[Special]:
    """Cases of AlterConfigs and IncrementalAlterConfigs that differ in the resource to change."""
    for name in (*NAMES, "nowhere"):
        yield f"the topic {named(name)}", 1, asking((TOPIC, name, [setting("segment.ms", "5")]))
        for key, value in (("segment.ms", "x"), ("nope", "1"), ("segment.ms", None)):
            yield f"the topic {named(name)} {key}={value}", 1, asking((TOPIC, name, [setting(key, value)]))
    for type in (-128, -1, 0, 1, 3, 5, 64, 127):
        yield f"type {type}", 1, asking((type, "some", [setting("segment.ms", "5")]))
        yield f"type {type}, nothing", 1, asking((type, "some", []))
    for name in ("", "1", "2", "x"):
        for key, value in (("log.cleaner.threads", "1"), ("nope", "1"), ("node.id", "1"), ("log.cleaner.threads", None)):
            yield f"broker {name!r} {key}={value}", 1, asking((BROKER, name, [setting(key, value)]), validate=True)
    for name in ("", "1", "x"):
        yield f"loggers of broker {name!r}", 1, asking((BROKER_LOGGER, name, [setting("nope", "DEBUG")]), validate=True)
    yield "client metrics", 1, asking((CLIENT_METRICS, "m", [setting("interval.ms", "100")]), validate=True)
    yield "client metrics, a wrong name", 1, asking((CLIENT_METRICS, "m", [setting("nope", "100")]), validate=True)
    yield "client metrics without a name", 1, asking((CLIENT_METRICS, "", [setting("interval.ms", "100")]), validate=True)
    yield "a group", 1, asking((GROUP, "g", [setting("consumer.session.timeout.ms", "50000")]), validate=True)
    yield "a group without a name", 1, asking((GROUP, "", [setting("consumer.session.timeout.ms", "50000")]), validate=True)
    yield "a group, a wrong name", 1, asking((GROUP, "g", [setting("nope", "50000")]), validate=True)
    yield "several", 1, asking((TOPIC, "nowhere", [setting("segment.ms", "5")]), (TOPIC, "TOPIC", [setting("segment.ms", "5")]))


def changing() -> Iterator[Special]:
    def asking(*resources: tuple[int, str, list[tuple[str, int, str | None]]], validate: bool = False) -> Request:
        return lambda own: IncrementalAlterConfigsRequest(
            [
                incremental_alter_configs.AlterConfigsResource(
                    type,
                    name.replace("TOPIC", own.topic),
                    [incremental_alter_configs.AlterableConfig(*setting) for setting in settings],
                )
                for type, name, settings in resources
            ],
            validate,
        )

    def of_topic(*settings: tuple[str, int, str | None]) -> Request:
        return asking((TOPIC, "TOPIC", list(settings)))

    for key, value in VALUES:
        yield f"set {key}={value}", 1, of_topic((key, SET, value))
        yield f"delete {key}={value}", 1, of_topic((key, DELETE, value))
    for operation in (APPEND, SUBTRACT):
        title = "append" if operation == APPEND else "subtract"
        for value in ("compact", "delete", "delete,compact", "compact,compact", "nope", "", None, " compact "):
            yield f"{title} cleanup.policy {value}", 1, of_topic(("cleanup.policy", operation, value))
        yield f"{title} retention.ms 5", 1, of_topic(("retention.ms", operation, "5"))
        yield f"{title} nope 5", 1, of_topic(("nope", operation, "5"))
        for name in ("", "a b", "nowhere"):
            for key in ("retention.ms", "nope", "cleanup.policy"):
                yield f"{title} the topic {name!r} {key} 5", 1, asking((TOPIC, name, [(key, operation, "5")]))
        yield f"{title} replicas", 1, of_topic(("leader.replication.throttled.replicas", operation, "0:1,1:1"))
    for operation in (4, -1, 127, -128):
        yield f"operation {operation}", 1, of_topic(("segment.ms", operation, "5"))
    yield "nothing", 1, of_topic()
    yield "only validated", 1, asking((TOPIC, "TOPIC", [("segment.ms", SET, "5")]), validate=True)
    yield "only validated, wrong", 1, asking((TOPIC, "TOPIC", [("segment.ms", SET, "x")]), validate=True)
    yield "a name twice", 1, of_topic(("segment.ms", SET, "5"), ("segment.ms", SET, "6"))
    yield "a name twice, in two ways", 1, of_topic(("segment.ms", SET, "5"), ("segment.ms", DELETE, None))
    yield "one set, one deleted", 1, of_topic(("segment.ms", SET, "5"), ("retention.ms", DELETE, None))
    yield "one right, one wrong", 1, of_topic(("segment.ms", SET, "5"), ("segment.bytes", SET, "x"))
    yield "a topic twice", 1, asking((TOPIC, "TOPIC", [("segment.ms", SET, "5")]), (TOPIC, "TOPIC", [("segment.bytes", SET, "2000000")]))
    yield from resources(asking, lambda key, value: (key, SET, value))
    yield "append to a broker's", 1, asking((BROKER, "1", [("log.cleanup.policy", APPEND, "compact")]), validate=True)


def of_the_offsets_topic() -> Iterator[Special]:
    """Cases about __consumer_offsets. They run last, as Kafka lets every client change this topic."""
    name = "__consumer_offsets"
    keys = ["cleanup.policy", "compression.type", "segment.bytes"]
    yield "describe it", 4, lambda own: DescribeConfigsRequest([DescribeConfigsResource(TOPIC, name, keys)], True, False)
    yield "describe its partition", 0, lambda own: DescribeTopicPartitionsRequest([TopicRequest(name)], 2000, None)
    yield "its size", 4, lambda own: DescribeLogDirsRequest([DescribableLogDirTopic(name, [0])])
    yield "delete its records", 2, lambda own: DeleteRecordsRequest([DeleteRecordsTopic(name, [DeleteRecordsPartition(0, -1)])], 5000)
    settings = [alter_configs.AlterableConfig("cleanup.policy", "delete")]
    yield "alter it", 2, lambda own: AlterConfigsRequest([alter_configs.AlterConfigsResource(TOPIC, name, settings)], False)
    yield "alter it, wrong", 2, lambda own: AlterConfigsRequest(
        [alter_configs.AlterConfigsResource(TOPIC, name, [alter_configs.AlterableConfig("cleanup.policy", "nope")])], False
    )
    yield "let it grow", 3, lambda own: CreatePartitionsRequest([CreatePartitionsTopic(name, 2, None)], 5000, False)
    yield "let it shrink", 3, lambda own: CreatePartitionsRequest([CreatePartitionsTopic(name, 1, None)], 5000, False)
    yield "delete it", 6, lambda own: DeleteTopicsRequest([DeleteTopicState(name, NO_ID)], [], 5000)
