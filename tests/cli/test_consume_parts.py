"""The parts of consuming that need no cluster: assignors, record formats, start positions, and fetched batches."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from typing import Any

import pytest

from cli.arguments import TIMEOUT_DEFAULT
from cli.client import Cluster, Limits
from cli.client.patience import Patience
from cli.command_line import parse
from cli.failure import Exit, Failure
from cli.records.assignors import ASSIGNORS, Subscriber
from cli.records.batches import Chunk, chunk_of
from cli.records.consume import member_limits
from cli.records.drafts import json_line_parser
from cli.records.layout import LONG, ConsumedRecord, Layout, as_bytes, as_safe_text, as_text, document
from cli.records.membership import Member, Timeouts
from cli.records.positions import StartPosition, parse_position
from protocol.batch import Compression, Record, TimestampType, build
from protocol.messages.fetch import AbortedTransaction


def shares(assignor: str, members: Sequence[Subscriber], **partitions: int) -> dict[str, str]:
    assigned = ASSIGNORS[assignor](members, partitions)
    return {member_id: " ".join(f"{topic}{''.join(map(str, numbers))}" for topic, numbers in sorted(share.items())) for member_id, share in assigned.items()}


def test_range_gives_the_first_members_an_extra_partition_of_each_topic() -> None:
    members = [Subscriber("m2", None, ["a", "b"]), Subscriber("m1", None, ["a", "b"])]
    assert shares("range", members, a=3, b=3) == {"m1": "a01 b01", "m2": "a2 b2"}
    assert shares("range", members, a=1, b=4) == {"m1": "a0 b01", "m2": "b23"}


def test_round_robin_distributes_partitions_in_turn() -> None:
    members = [Subscriber("m2", None, ["a", "b"]), Subscriber("m1", None, ["a", "b"])]
    assert shares("roundrobin", members, a=3, b=3) == {"m1": "a02 b1", "m2": "a1 b02"}


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_only_subscribers_of_a_topic_get_its_partitions_and_a_missing_topic_has_none(assignor: str) -> None:
    members = [Subscriber("m1", None, ["a"]), Subscriber("m2", None, ["a", "b", "gone"]), Subscriber("m3", None, [])]
    assert shares(assignor, members, a=2, b=2) == {"m1": "a0", "m2": "a1 b01", "m3": ""}


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_static_members_are_ordered_by_instance_id_not_by_member_id(assignor: str) -> None:
    first = [Subscriber("m9", "desk-1", ["a"]), Subscriber("m1", "desk-2", ["a"]), Subscriber("m0", None, ["a"])]
    restarted = [Subscriber("m0", None, ["a"]), Subscriber("m1", "desk-1", ["a"]), Subscriber("m9", "desk-2", ["a"])]
    assert shares(assignor, first, a=3) == {"m9": "a0", "m1": "a1", "m0": "a2"}
    assert shares(assignor, restarted, a=3) == {"m1": "a0", "m9": "a1", "m0": "a2"}


@pytest.mark.once
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # kafka-python reads its schema files in a deprecated way
@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_assignments_are_those_of_kafka_python(assignor: str) -> None:
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    theirs = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}[assignor]
    chance = random.Random(4)
    for _ in range(100):
        partitions = {f"t{n}": chance.randrange(1, 7) for n in range(chance.randrange(1, 4))}
        # kafka-python's roundrobin has a bug with different subscriptions in one group, so with roundrobin all members subscribe to all topics.
        least = 1 if assignor == "range" else len(partitions)
        members = [
            Subscriber(f"m{n}", None, sorted(chance.sample(sorted(partitions), chance.randrange(least, len(partitions) + 1))))
            for n in range(chance.randrange(1, 5))
        ]
        ours = ASSIGNORS[assignor](members, {topic: count for topic, count in partitions.items() if any(topic in m.topics for m in members)})
        cluster = KafkaPythonCluster(partitions)
        subscriptions = {member.member_id: member for member in members}
        assigned = assign_with(theirs, cluster, subscriptions)
        assert ours == assigned, members


class KafkaPythonCluster:
    def __init__(self, partitions: dict[str, int]) -> None:
        self.partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.partitions[topic])) if topic in self.partitions else None


def assign_with(theirs: Any, cluster: KafkaPythonCluster, members: dict[str, Subscriber]) -> dict[str, dict[str, list[int]]]:
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

    group = [
        type("Joined", (), {"member_id": member_id, "group_instance_id": None, "metadata": ConsumerProtocolSubscription(version=0, topics=list(topics.topics))})()
        for member_id, topics in members.items()
    ]
    assigned = theirs.assign(cluster, group)
    return {member_id: {topic: sorted(numbers) for topic, numbers in share.assigned_partitions if numbers} for member_id, share in assigned.items()}


# How records are printed


def consumed(
    key: bytes | None = b"k", value: bytes | None = b"v", timestamp: int = 1_700_000_000_123, headers: Sequence[tuple[bytes, bytes | None]] = ()
) -> ConsumedRecord:
    return ConsumedRecord("orders", 2, Record(7, timestamp, key, value, headers))


def test_a_template_has_placeholders_escapes_and_braces() -> None:
    layout = Layout("{topic}/{partition}@{offset}\\t{key}={value} {{{headers}}}", as_text)
    assert layout.line(consumed(headers=[(b"a", b"1"), (b"b", None)])) == b"orders/2@7\tk=v {a=1, b=null}\n"


@pytest.mark.parametrize(
    ("template", "key", "value", "line"),
    [
        ("%k %s", b"k", b"v", b"k v\n"),
        ("%k=%s;", None, None, b"=;\n"),
        ("%t-%p@%o %T", b"k", b"v", b"orders-2@7 1700000000123\n"),
        ("%K %S", b"key", None, b"3 -1\n"),
        ("%k\\t%s\\n", b"k", b"v", b"k\tv\n"),
        ("{value}\\n", b"k", b"v", b"v\n"),
        ("100%% {key} %h", b"k", b"v", b"100% k a=1,b=NULL\n"),
    ],
)
def test_kcats_letters_print_what_kcat_prints(template: str, key: bytes | None, value: bytes | None, line: bytes) -> None:
    assert Layout(template, as_text).line(consumed(key, value, headers=[(b"a", b"1"), (b"b", None)])) == line


@pytest.mark.parametrize(("template", "wrong"), [("%x", "%x is none of %t, %p, "), ("100%", "% is none of"), ("%", "percent sign"), ("%R", "%R is none of")])
def test_an_unknown_letter_is_refused_with_the_known_ones(template: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        Layout(template, as_text)


@pytest.mark.parametrize("template", ["{foo}", "{", "{value", "}", "{key:", "{}"])
def test_an_invalid_template_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"brace"):
        Layout(template, as_text)


def test_the_long_format_omits_missing_fields() -> None:
    layout = Layout(LONG, as_text)
    assert layout.line(consumed(headers=[(b"n", b"v")])) == b"2023-11-14T22:13:20.123Z  orders-2@7  k: v  [n=v]\n"
    assert layout.line(consumed(key=None, value=None)) == b"2023-11-14T22:13:20.123Z  orders-2@7  null\n"


@pytest.mark.parametrize(
    ("value", "piped", "safe", "raw"),
    [
        ("gr\u00fcn".encode(), "gr\u00fcn", "gr\u00fcn", "gr\u00fcn".encode()),
        (b"a\x1b[2Jb\n\tc", "a\x1b[2Jb\n\tc", "a\\x1b[2Jb\\n\\tc", b"a\x1b[2Jb\n\tc"),
        (b"\xff\x1b", "\\xff\\x1b", "\\xff\\x1b", b"\xff\x1b"),
        ("\u202egpj.exe".encode(), "\u202egpj.exe", "\\u202egpj.exe", "\u202egpj.exe".encode()),
        (None, "null", "null", b""),
    ],
)
def test_control_characters_are_escaped_on_a_terminal_but_not_in_a_pipe(value: bytes | None, piped: str, safe: str, raw: bytes) -> None:
    assert as_text(value).decode() == piped
    assert as_safe_text(value).decode() == safe
    assert as_bytes(value) == raw


@pytest.mark.parametrize("timestamp", [-1, 0, 1_700_000_000_123, (1 << 63) - 1, -5])
@pytest.mark.parametrize("data", [b"text", "\u6f22".encode(), b"\x00\xff", b"", None])
def test_a_record_printed_as_json_can_be_produced_again_unchanged(data: bytes | None, timestamp: int) -> None:
    record = consumed(data, data, timestamp, [(b"n", data), (b"n", b"again")])
    line = json.dumps(document(record)).encode()
    if timestamp < -1:
        with pytest.raises(Failure, match="line 3 has a timestamp"):
            json_line_parser(None, [], None, False)(line, 3)
        return
    draft = json_line_parser(None, [], None, False)(line, 3)
    next_record = draft.record(7, -1)
    assert (draft.partition, next_record) == (2, record.record)


# Where reading begins


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("earliest", StartPosition("earliest")),
        ("latest", StartPosition("latest")),
        ("17", StartPosition("offset", 17)),
        ("-3", StartPosition("last", 3)),
        ("2023-11-14T22:13:20Z", StartPosition("time", 1_700_000_000_000)),
        ("2023-11-14T23:13:20+01:00", StartPosition("time", 1_700_000_000_000)),
        ("2023-11-14", StartPosition("time", 1_699_920_000_000)),
    ],
)
def test_from_accepts_ends_offsets_and_times(text: str, begin: StartPosition) -> None:
    assert parse_position(text) == begin


def test_from_takes_an_age() -> None:
    begin = parse_position("15m")
    assert begin.kind == "time"
    assert abs(time.time() * 1000 - 900_000 - begin.number) < 5000


@pytest.mark.parametrize("text", ["", "--3", "1.5", "yesterday", "2023-02-30", "1960-01-01", "9" * 19 + "9", "\u0663"])
def test_from_refuses_other_values(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a position|before 1970|2023-02 has no day 30"):
        parse_position(text)


# Fetched batches


def batch(first: int, *values: bytes, **more: Any) -> bytes:
    return build([Record(first + at, 1000, None, value) for at, value in enumerate(values)], base_offset=first, **more)


def values(chunk: Chunk) -> list[tuple[int, bytes | None]]:
    return [(record.record.offset, record.record.value) for record in chunk.records]


@pytest.mark.parametrize("codec", list(Compression))
def test_records_before_the_position_and_an_incomplete_batch_are_skipped(codec: Compression) -> None:
    data = batch(4, b"a", b"b", b"c", compression=codec) + batch(7, b"d", compression=codec) + batch(8, b"e" * 50)[:-3]
    chunk = chunk_of("t", 0, 5, data, None)
    assert values(chunk) == [(5, b"b"), (6, b"c"), (7, b"d")]
    assert chunk.next_offset == 8
    assert chunk_of("t", 0, 8, batch(8, b"e" * 50)[:-3], None).next_offset == 8


def test_a_batch_of_control_records_moves_the_position_and_shows_nothing() -> None:
    chunk = chunk_of("t", 0, 0, batch(0, b"a") + batch(1, b"marker", control=True), None)
    assert (values(chunk), chunk.next_offset) == ([(0, b"a")], 2)


def test_records_of_aborted_transactions_are_skipped_up_to_their_marker() -> None:
    def marker(offset: int, kind: int) -> bytes:
        record = Record(offset, 1000, b"\0\0" + kind.to_bytes(2, "big"), b"\0\0\0\0\0\0")
        return build([record], base_offset=offset, control=True, transactional=True, producer_id=9, producer_epoch=0)

    def of_producer_9(offset: int, value: bytes) -> bytes:
        return batch(offset, value, transactional=True, producer_id=9, producer_epoch=0, base_sequence=0)

    data = of_producer_9(0, b"kept") + marker(1, 1) + of_producer_9(2, b"gone") + batch(3, b"plain") + marker(4, 0) + of_producer_9(5, b"kept too")
    assert values(chunk_of("t", 0, 0, data, [AbortedTransaction(9, 2)])) == [(0, b"kept"), (3, b"plain"), (5, b"kept too")]
    assert len(values(chunk_of("t", 0, 0, data, None))) == 4


def test_a_damaged_batch_is_named_with_its_offset() -> None:
    data = bytearray(batch(40, b"value"))
    data[-1] ^= 1
    with pytest.raises(Failure, match="t-0: the batch at offset 40 is damaged: a batch's checksum is wrong"):
        chunk_of("t", 0, 40, bytes(data), None)


def test_a_batch_of_an_old_format_is_reported() -> None:
    data = bytearray(batch(0, b"value"))
    data[16] = 1
    with pytest.raises(Failure, match=r"before Kafka 0\.11"):
        chunk_of("t", 0, 0, bytes(data), None)


def test_log_append_time_applies_to_all_records_of_a_batch() -> None:
    data = build([Record(0, 1, None, b"a"), Record(1, 5, None, b"b")], timestamp_type=TimestampType.LOG_APPEND_TIME)
    chunk = chunk_of("t", 0, 0, data, None)
    assert [(record.record.timestamp, record.append_time) for record in chunk.records] == [(5, True), (5, True)]


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("earliest", "from the start of the log"),
        ("latest", "from the end of the log"),
        ("7", "from offset 7 on"),
        ("-1", "the last record of each partition"),
        ("-10", "the last 10 records of each partition"),
        ("2026-11-21T08:30:00+01:00", "from 2026-11-21T07:30:00Z on"),
    ],
)
def test_the_start_of_reading_is_described_in_words(text: str, description: str) -> None:
    assert parse_position(text).text == description


class WithoutCoordinator:
    """A cluster in which no broker is coordinator of the group."""

    timeout = 0.2
    limits = Limits(timeout, timeout)

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.patience = Patience(lambda: self.timeout)

    def send_to_coordinator(self, group: str, request: object, *, oldest: int = 0, timeout: float | None = None) -> object:
        self.waits.append(self.timeout if timeout is None else timeout)
        time.sleep(self.timeout)
        raise Failure(Exit.AGAIN, f"group {group}: no coordinator")

    def coordinators(self, groups: object) -> dict[int, list[str]]:
        return {1: ["g"]}

    def forget_coordinator(self, group: str) -> None:
        pass


def test_a_member_does_not_wait_for_a_coordinator_that_does_not_serve_its_group() -> None:
    cluster = WithoutCoordinator()
    with pytest.raises(Failure, match="no coordinator"):
        Member(cluster, "g", ["t"], Timeouts(45, 60, 3)).join()  # type: ignore[arg-type]
    assert cluster.waits == [cluster.timeout]


@pytest.mark.parametrize(
    ("arguments", "limits"),
    [
        ("", Limits(45, TIMEOUT_DEFAULT)),
        ("--session-timeout 6", Limits(TIMEOUT_DEFAULT, TIMEOUT_DEFAULT)),
        ("--timeout 3", Limits(3, 3)),
        ("--timeout 90", Limits(90, 90)),
    ],
)
def test_requests_of_a_member_are_retried_for_its_session_timeout_by_default(arguments: str, limits: Limits) -> None:
    options = parse(["consume", "t", "--group", "g", *arguments.split()])
    assert options is not None
    with Cluster.of(options) as cluster:
        assert cluster.limits == Limits(cluster.timeout, cluster.timeout)
        assert member_limits(options, cluster.limits) == limits
