"""`tenure group history` on a cluster without notes, as Apache Kafka is: all it has are the group's records and commits in __consumer_offsets."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.facts import group_key
from protocol.batch import build
from protocol.batch_record import Record
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from protocol.messages.consumer_offsets import MemberMetadata, OffsetCommitKey, OffsetCommitValue
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from protocol.records import with_version
from tests.cli.conftest import Tenure
from tests.cli.fake_brokers import FakeBroker, metadata_of
from tests.cli.group_members import assignment
from tests.coordinator.playbook import group_record
from tests.coordinator.stage import T0

pytestmark = pytest.mark.once

OFFSETS = "__consumer_offsets"
ID = b"o" * 16
BEGIN_MS = 1_700_000_000_000
SESSION_MS = 45_000
MAY_NOT = "tenure: this user may not read __consumer_offsets, which has the history of groups; allow Read on it: kafka-acls.sh "

Entry = tuple[int, bytes, bytes | None]  # time, key and value


class FakeKafka:
    """A broker whose only partition of __consumer_offsets has these records, each in a batch of its own."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.epoch = 0  # of the coordinator
        self.epochs: dict[int, int] = {}  # by offset of a group record
        self.compacted: set[int] = set()  # offsets that compaction has removed
        self.topic_error = 0  # of __consumer_offsets in Metadata
        self.fetch_error = 0
        self.type = "classic"
        self.leader = 0  # of the partition
        self.broker = FakeBroker()
        self.broker.answers |= {
            MetadataRequest.API_KEY: metadata_of(self.broker, topics=self.topics),
            ListOffsetsRequest.API_KEY: self.list_offsets,
            FetchRequest.API_KEY: self.fetch,
            FindCoordinatorRequest.API_KEY: lambda request, version: FindCoordinatorResponse(
                coordinators=[Coordinator(key, 0, self.broker.host, self.broker.port) for key in request.coordinator_keys]
            ),
            ConsumerGroupDescribeRequest.API_KEY: lambda request, version: ConsumerGroupDescribeResponse(
                groups=[ConsumerGroup(0 if self.type == "consumer" else 69, None, name, "Stable") for name in request.group_ids]
            ),
            DescribeGroupsRequest.API_KEY: lambda request, version: DescribeGroupsResponse(
                groups=[DescribedGroup(0 if self.type == "classic" else 69, None, name, "Stable", "consumer", "range") for name in request.groups]
            ),
            ListGroupsRequest.API_KEY: lambda request, version: ListGroupsResponse(groups=[ListedGroup("g", "", "Stable", self.type)]),
        }

    def topics(self, request: Any) -> list[MetadataResponseTopic]:
        names = [topic.name for topic in request.topics or []]
        return [
            MetadataResponseTopic(self.topic_error, name, ID, True, [] if self.topic_error else [MetadataResponsePartition(0, 0, self.leader, 0, [0], [0], [])])
            if name == OFFSETS
            else MetadataResponseTopic(3, name)
            for name in names
        ]

    def list_offsets(self, request: Any, version: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(0, [ListOffsetsTopicResponse(OFFSETS, [ListOffsetsPartitionResponse(0, offset=0)])])

    def fetch(self, request: Any, version: int) -> FetchResponse:
        begin, end = request.topics[0].partitions[0].fetch_offset, len(self.log)
        data = b"".join(batch(offset, *self.log[offset], self.epochs.get(offset, 0)) for offset in range(begin, end) if offset not in self.compacted)
        records = PartitionData(0, self.fetch_error, end, end, 0, aborted_transactions=[], records=b"" if self.fetch_error else data)
        return FetchResponse(0, 0, 0, [FetchableTopicResponse(ID, OFFSETS, [records])])

    # What happened

    def stored(self, generation: int, at_ms: int, *members: MemberMetadata) -> None:
        self.epochs[len(self.log)] = self.epoch
        self.log.append((at_ms, group_key("g"), group_record(generation, members, state_ms=at_ms)))

    def committed(self, partition: int, *times: int) -> None:
        for at_ms in times:
            value = with_version(OffsetCommitValue(1, -1, "", at_ms, -1), 3)
            self.log.append((at_ms, with_version(OffsetCommitKey("g", "t0", partition), 1), value))

    def newer(self, at_ms: int) -> None:
        """A record of the group in the consumer protocol: key version 3."""
        self.log.append((at_ms, b"\0\3" + group_key("g")[2:], b"\0\0"))


def batch(offset: int, at_ms: int, key: bytes, value: bytes | None, epoch: int) -> bytes:
    data = bytearray(build([Record(0, at_ms, key, value, [])]))
    data[:8] = offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return bytes(data)


def member(name: str, *partitions: int, static: bool = False) -> MemberMetadata:
    return MemberMetadata(f"{name}-id", name if static else None, name, f"/{name}", 300_000, SESSION_MS, T0, assignment({"t0": partitions}))


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    fake = FakeKafka()
    with fake.broker:
        yield fake


@pytest.fixture
def history(kafka: FakeKafka, tenure: Tenure) -> Tenure:
    return lambda *words, stdin="": tenure("group", "history", "g", "--timeout", "10", "--bootstrap", kafka.broker.address, *words)


def grow_and_shrink(kafka: FakeKafka) -> None:
    """a, then b too; b crashes: it commits no more, and is removed a session later, while a commits on."""
    kafka.stored(1, BEGIN_MS, member("a", 0, 1))
    kafka.stored(2, BEGIN_MS + 60_000, member("a", 0), member("b", 1, static=True))
    times = range(BEGIN_MS + 65_000, BEGIN_MS + 100_000, 5_000)
    kafka.committed(0, *times)
    kafka.committed(1, *times)
    kafka.committed(0, *range(BEGIN_MS + 100_000, BEGIN_MS + 145_000, 5_000))
    kafka.stored(3, BEGIN_MS + 144_000, member("a", 0, 1))


def test_each_rebalance_follows_the_one_before_with_an_inferred_cause(kafka: FakeKafka, history: Tenure) -> None:
    grow_and_shrink(kafka)
    done = history()
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "2023-11-14T22:13:20Z  rebalance, generation 0 -> 1, duration unknown\n"
        "  why       the first stored generation has a-id (inferred from records, strong)\n"
        "  joined    a-id (a on a)\n"
        "  members   0 -> 1\n"
        "  moved     t0 0,1: no member -> a-id\n"
        "2023-11-14T22:14:20Z  rebalance, generation 1 -> 2, duration unknown\n"
        "  why       b joined and no member went away (inferred from records, strong)\n"
        "  joined    b (b on b)\n"
        "  members   1 -> 2\n"
        "  moved     t0 1: a-id -> b\n"
        "            1 partition stayed\n"
        "  stopped   every partition (range: members give up all partitions)\n"
        "2023-11-14T22:15:44Z  rebalance, generation 2 -> 3, duration unknown\n"
        "  why       b went away; by their commits, b had been silent for a session timeout (inferred from records, weak)\n"
        "  gone      b\n"
        "  members   2 -> 1\n"
        "  moved     t0 1: b -> a-id\n"
        "            1 partition stayed\n"
        "  stopped   every partition (range: members give up all partitions)\n"
    )


def test_a_cause_in_json_is_a_note_or_an_inference(kafka: FakeKafka, history: Tenure) -> None:
    grow_and_shrink(kafka)
    entries = json.loads(history("--json").out)["entries"]
    assert {(entry["kind"], entry["cause"], entry["noted"], entry["complete"]) for entry in entries} == {("rebalance", None, False, False)}
    assert [(entry["inferred"]["cause"], entry["inferred"]["confidence"], entry["inferred"]["instance_id"]) for entry in entries] == [
        ("formation", "strong", None),
        ("new_member", "strong", "b"),
        ("session_expired", "weak", "b"),
    ]
    assert [(entry["members_before"], entry["members_after"]) for entry in entries] == [(0, 1), (1, 2), (2, 1)]
    assert [(move["partition"], move["from"], move["to"]) for move in entries[2]["moved"]] == [(1, "b", "a-id")]


def test_the_owners_before_the_oldest_record_that_is_left_are_unknown(kafka: FakeKafka, history: Tenure) -> None:
    grow_and_shrink(kafka)
    kafka.compacted = {0}
    lines = history().out.splitlines()
    assert lines[0] == "2023-11-14T22:14:20Z  at least one rebalance is missing here: generation 0 -> 2, the records from then were compacted"
    assert "  moved     t0 0: unknown -> a-id" in lines
    assert "            t0 1: unknown -> b" in lines
    assert not any("no member ->" in line for line in lines)
    assert "2023-11-14T22:15:44Z  rebalance, generation 2 -> 3, duration unknown" in lines
    first, second = json.loads(history("--json").out)["entries"]
    assert (first["kind"], first["moved"], first["cause"], first["inferred"]) == ("gap", None, None, None)
    assert first["stored"]["members"][1]["assigned"] == [{"topic": "t0", "partitions": [1]}]
    assert second["kind"] == "rebalance"


def test_commits_that_compaction_removed_make_the_cause_weak(kafka: FakeKafka, history: Tenure) -> None:
    grow_and_shrink(kafka)
    kafka.compacted = {5}
    last = json.loads(history("--json").out)["entries"][-1]
    assert (last["inferred"]["confidence"], last["inferred"]["evidence"].endswith("records between them are missing")) == ("weak", True)


@pytest.mark.parametrize(("topic_error", "fetch_error"), [(29, 0), (0, 29)])
def test_a_history_that_this_user_may_not_read_is_not_an_empty_one(kafka: FakeKafka, history: Tenure, topic_error: int, fetch_error: int) -> None:
    grow_and_shrink(kafka)
    kafka.topic_error, kafka.fetch_error = topic_error, fetch_error
    done = history()
    assert (done.code, done.out, done.err.startswith(MAY_NOT)) == (77, "", True)
    assert json.loads(history("--json").out)["error"]["code"] == "forbidden"


def test_a_history_that_cannot_be_read_now_is_not_an_empty_one(kafka: FakeKafka, history: Tenure) -> None:
    kafka.fetch_error = 6
    done = history("--timeout", "1")
    assert (done.code, done.out) == (75, "")


@pytest.mark.parametrize(("type", "proposal"), [("consumer", "KIP-848"), ("share", "KIP-932"), ("streams", "KIP-1071")])
def test_a_group_of_another_type_is_named_as_such(kafka: FakeKafka, history: Tenure, type: str, proposal: str) -> None:
    kafka.type = type
    done = history()
    words = f"tenure: group g is a {type} group ({proposal}): this command does not understand all its records\n"
    assert (done.code, done.out, done.err) == (76, "", words)


def test_a_group_that_changed_to_a_newer_protocol_has_the_history_until_then(kafka: FakeKafka, history: Tenure) -> None:
    kafka.stored(1, BEGIN_MS, member("a", 0, 1))
    kafka.log.append((BEGIN_MS + 1_000, group_key("g"), None))
    kafka.newer(BEGIN_MS + 1_001)
    done = history()
    assert done.code == 76
    assert done.out.startswith("2023-11-14T22:13:20Z  rebalance, generation 0 -> 1")
    assert "deleted" not in done.out
    assert "group g is a consumer group (KIP-848) since 2023-11-14T22:13:21.001Z: this command does not understand" in done.err


def test_a_group_that_came_back_from_a_newer_protocol_says_so(kafka: FakeKafka, history: Tenure) -> None:
    kafka.stored(1, BEGIN_MS, member("a", 0, 1))
    kafka.log.append((BEGIN_MS + 1_000, group_key("g"), None))
    kafka.newer(BEGIN_MS + 1_001)
    kafka.stored(9, BEGIN_MS + 90_000, member("b", 0, 1))
    done = history()
    assert (done.code, done.err) == (0, "")
    assert "rebalances may be missing here: generation ? -> 9, the group used a newer protocol meanwhile" in done.out


def test_following_goes_on_at_the_next_leader_with_one_note(kafka: FakeKafka) -> None:
    kafka.stored(1, BEGIN_MS, member("a", 0, 1))
    kafka.leader = 1
    with FakeBroker(kafka.broker.answers) as second:
        for broker in (kafka.broker, second):
            broker.answers[MetadataRequest.API_KEY] = metadata_of(kafka.broker, second, topics=kafka.topics)
        command = [sys.executable, "-P", "-m", "tenure", "group", "history", "g", "--follow", "--json"]
        options = ["--timeout", "0.5", "--bootstrap", kafka.broker.address]
        with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout
            assert process.stderr
            try:
                assert json.loads(process.stdout.readline())["to_generation"] == 1
                second.close()
                note = process.stderr.readline()
                assert note.startswith("tenure: broker 1 cannot be reached at its advertised address: ")
                assert note.endswith("; the history goes on when a broker has the group's log again\n")
                kafka.stored(2, BEGIN_MS + 60_000, member("a", 0), member("b", 1))
                kafka.leader = 0
                assert json.loads(process.stdout.readline())["to_generation"] == 2
            finally:
                process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=30) == ("", "")
            assert process.returncode == 0


def test_members_that_an_outage_of_the_coordinator_cost_did_not_go(kafka: FakeKafka, history: Tenure) -> None:
    """All members come back under other ids, and the coordinator is another one: as `tenure analyze` says it."""
    kafka.stored(1, BEGIN_MS, member("a", 0), member("b", 1))
    kafka.epoch = 1
    kafka.stored(2, BEGIN_MS + 100_000)  # its sessions of the stored members ended
    first, second = json.loads(history("--json").out)["entries"]
    assert first["inferred"]["cause"] == "formation"
    assert (second["inferred"]["cause"], second["inferred"]["confidence"], second["inferred"]["member_id"]) == ("coordinator_moved", "weak", None)
    assert second["inferred"]["evidence"].endswith("perhaps no process was restarted")


def test_a_rebalance_since_a_time_follows_the_record_before_that_time(kafka: FakeKafka, history: Tenure) -> None:
    kafka.stored(1, BEGIN_MS, member("a", 0, 1))
    kafka.stored(2, BEGIN_MS + 7_200_000, member("a", 0), member("b", 1))
    (entry,) = json.loads(history("--json", "--since", "2023-11-15T00:00:00Z").out)["entries"]
    assert (entry["from_generation"], entry["to_generation"], entry["inferred"]["cause"]) == (1, 2, "new_member")
    assert [(move["partition"], move["from"], move["to"]) for move in entry["moved"]] == [(1, "a-id", "b-id")]
