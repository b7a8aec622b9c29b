"""`tenure group offsets` with two brokers: which broker gets which requests, and partitions without a leader."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from cli.groups import offsets_change
from protocol.message import Message
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.cli.conftest import Tenure
from tests.cli.fake_brokers import Close, FakeBroker, metadata_of

pytestmark = pytest.mark.once  # no dependence on the Python version

LEADERS = {"t": (0, 1, 0), "headless": (-1,)}


class BrokerPair:
    """Two brokers. Group G, coordinated by broker 1, has committed 5 for every partition and for a deleted topic."""

    def __init__(self) -> None:
        self.brokers = [FakeBroker(), FakeBroker()]
        self.refused: dict[int, int] = {}  # by partition of topic t: the error to OffsetCommit and OffsetDelete
        self.moved = False
        self.listed: list[ListedGroup] = []
        self.absent = 0  # how often Metadata has no leader of partition 1 of topic t yet
        self.forbidden: set[str] = set()
        for number, broker in enumerate(self.brokers):
            broker.answers |= {
                MetadataRequest.API_KEY: metadata_of(*self.brokers, topics=self.topics),
                FindCoordinatorRequest.API_KEY: self.coordinators,
                ListOffsetsRequest.API_KEY: partial(self.offsets, number),
                OffsetFetchRequest.API_KEY: self.committed,
                OffsetCommitRequest.API_KEY: self.commit,
                OffsetDeleteRequest.API_KEY: self.delete,
                ListGroupsRequest.API_KEY: lambda request, version: ListGroupsResponse(groups=self.listed),
                DescribeGroupsRequest.API_KEY: self.described,
                ConsumerGroupDescribeRequest.API_KEY: lambda request, version: ConsumerGroupDescribeResponse(
                    groups=[ConsumerGroup(69, None, group) for group in request.group_ids]
                ),
            }

    def topics(self, request: Any) -> list[MetadataResponseTopic]:
        absent = self.absent > 0
        self.absent -= absent
        return [
            MetadataResponseTopic(
                0 if name in LEADERS else 3,
                name,
                partitions=[
                    MetadataResponsePartition(0, number, -1 if absent and number == 1 else leader) for number, leader in enumerate(LEADERS.get(name, ()))
                ],
            )
            for name in (LEADERS if request.topics is None else [topic.name for topic in request.topics])
        ]

    def coordinators(self, request: Any, version: int) -> Message:
        broker = self.brokers[1]
        return FindCoordinatorResponse(coordinators=[Coordinator(key, 1, broker.host, broker.port) for key in request.coordinator_keys])

    def offsets(self, broker: int, request: Any, version: int) -> Message:
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                stale = self.moved and partition.partition_index == 1
                error = 6 if stale or LEADERS[topic.name][partition.partition_index] != broker else 0
                partitions.append(ListOffsetsPartitionResponse(partition.partition_index, error, -1, {-2: 2, -1: 9}.get(partition.timestamp, 3)))
            topics.append(ListOffsetsTopicResponse(topic.name, partitions))
        self.moved = False
        return ListOffsetsResponse(topics=topics)

    def committed(self, request: Any, version: int) -> Message:
        every = [(name, number) for name, leaders in LEADERS.items() for number in range(len(leaders))] + [("gone", 0), ("gone", 1), ("t", 3)]
        topics = [
            OffsetFetchResponseTopics(name, [OffsetFetchResponsePartitions(number, 5) for topic, number in every if topic == name])
            for name in ("t", "headless", "gone")
        ]
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group.group_id, [] if group.group_id in {"N", *self.forbidden} else topics, 30 * (group.group_id in self.forbidden))
                for group in request.groups
            ]
        )

    def commit(self, request: Any, version: int) -> Message:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    topic.name, [OffsetCommitResponsePartition(partition.partition_index, self.refused.get(partition.partition_index, 0)) for partition in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def delete(self, request: Any, version: int) -> Message:
        topics = []
        for topic in request.topics:
            refused = self.refused if topic.name == "t" else {}
            partitions = [OffsetDeleteResponsePartition(partition.partition_index, refused.get(partition.partition_index, 0)) for partition in topic.partitions]
            topics.append(OffsetDeleteResponseTopic(topic.name, partitions))
        return OffsetDeleteResponse(topics=topics)

    def described(self, request: Any, version: int) -> Message:
        return DescribeGroupsResponse(groups=[DescribedGroup(69 if group == "N" else 0, None, group, "Empty") for group in request.groups])

    def brokers_asked(self, kind: type[Message]) -> list[int]:
        """The sorted numbers of the brokers that received such a request, once for each request."""
        return sorted(number for number, broker in enumerate(self.brokers) for request, _ in broker.requests if isinstance(request, kind))


@pytest.fixture
def pair() -> Iterator[BrokerPair]:
    brokers = BrokerPair()
    yield brokers
    for broker in brokers.brokers:
        broker.close()


@pytest.fixture
def offsets(pair: BrokerPair, tenure: Tenure) -> Tenure:
    return lambda *arguments, stdin="": tenure("--bootstrap", pair.brokers[0].address, "--timeout", "3", "group", "offsets", *arguments, stdin=stdin)


def test_offsets_of_many_groups_need_two_requests_per_leader_and_one_per_coordinator(pair: BrokerPair, offsets: Tenure) -> None:
    result = offsets("show", "G", "H", "G", "--topic", "t")
    assert (result.code, result.err) == (0, "")
    assert [line.split() for line in result.out.splitlines()[1:4]] == [["G", "t", str(number), "5", "2", "9", "4"] for number in range(3)]
    assert result.out.splitlines()[-2:] == ["G: lag 12 in 3 partitions", "H: lag 12 in 3 partitions"]
    assert pair.brokers_asked(OffsetFetchRequest) == [1]
    assert pair.brokers_asked(ListOffsetsRequest) == [0, 0, 1, 1]


def test_partitions_without_a_leader_are_shown_with_the_reason(pair: BrokerPair, offsets: Tenure) -> None:
    rows = json.loads(offsets("show", "G", "--json").out)["groups"][0]["offsets"]
    notes = {(row["topic"], row["partition"]): row["note"] for row in rows if row["note"]}
    no_topic = "there is no such topic or partition"
    assert notes == {("gone", 0): no_topic, ("gone", 1): no_topic, ("t", 3): no_topic, ("headless", 0): "no leader at the moment; try again"}
    assert all((row["lag"], row["latest_offset"], row["committed_offset"]) == (None, None, 5) for row in rows if row["note"])


def test_a_moved_leader_is_found_again(pair: BrokerPair, offsets: Tenure) -> None:
    pair.moved = True
    assert offsets("reset", "G", "--to-earliest", "--topic", "t").code == 0
    (commit,) = [request for request, _ in pair.brokers[1].requests if isinstance(request, OffsetCommitRequest)]
    assert [(partition.partition_index, partition.committed_offset) for partition in commit.topics[0].partitions] == [(0, 2), (1, 2), (2, 2)]
    assert (commit.generation_id_or_member_epoch, commit.member_id, commit.group_instance_id) == (-1, "", None)


def committed_by(pair: BrokerPair) -> dict[tuple[str, int], int]:
    """The offsets in all OffsetCommit requests."""
    requests = [request for broker in pair.brokers for request, _ in broker.requests if isinstance(request, OffsetCommitRequest)]
    return {(topic.name, entry.partition_index): entry.committed_offset for request in requests for topic in request.topics for entry in topic.partitions}


def test_a_reset_sets_what_it_can_and_names_the_partition_without_a_leader(pair: BrokerPair, offsets: Tenure) -> None:
    words = ("reset", "G", "--to-latest", "--topic", "t", "--topic", "headless", "--timeout", "2")
    planned = offsets(*words, "--dry-run")
    assert (planned.code, planned.err) == (75, "tenure: headless:0 would not be set: no leader at the moment; try again\n")
    assert planned.out.splitlines()[1].split(maxsplit=7) == ["headless", "0", "5", "-", "-", "-", "-", "not set: no leader at the moment; try again"]
    assert planned.out.splitlines()[-1] == "dry run: nothing was changed, 3 partitions would be set"
    assert committed_by(pair) == {}
    done = offsets(*words)
    assert (done.code, done.err) == (75, "tenure: headless:0 not set: no leader at the moment; try again\n")
    assert done.out.splitlines()[-1] == "set 3 partitions of group G: t:0-2"
    assert committed_by(pair) == {("t", 0): 9, ("t", 1): 9, ("t", 2): 9}
    document = json.loads(offsets(*words, "--json").out)
    assert [(row["topic"], row["from_offset"], row["to_offset"], row["error"] and row["error"]["code"]) for row in document["offsets"]] == [
        ("headless", 5, None, "leader-not-available"),
        *[("t", 5, 9, None)] * 3,
    ]
    assert (document["error"]["code"], [error["code"] for error in document["errors"]]) == ("leader-not-available", ["leader-not-available"])


def test_a_reset_to_current_needs_no_leader(pair: BrokerPair, offsets: Tenure) -> None:
    done = offsets("reset", "G", "--to-current", "--topic", "t:0", "--topic", "headless", "--timeout", "2")
    assert (done.code, done.err, done.out.splitlines()[-1]) == (0, "", "set 2 partitions of group G")
    assert done.out.splitlines()[1].split() == ["headless", "0", "5", "5", "0", "-", "-"]
    assert committed_by(pair) == {("t", 0): 5, ("headless", 0): 5}


def test_a_reset_that_reaches_no_partition_changes_nothing(pair: BrokerPair, offsets: Tenure) -> None:
    done = offsets("reset", "G", "--to-latest", "--topic", "headless", "--timeout", "2")
    assert done == (75, "", "tenure: headless:0: no leader at the moment; try again; nothing was changed\n")
    assert committed_by(pair) == {}


def test_a_reset_that_ends_in_the_middle_says_what_was_set(pair: BrokerPair, offsets: Tenure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_change, "PARTITIONS_AT_ONCE", 1)
    done_once: list[int] = []

    def commit(request: Any, version: int) -> Message:
        if done_once:
            raise Close
        done_once.append(1)
        return pair.commit(request, version)

    for broker in pair.brokers:
        broker.answers[OffsetCommitRequest.API_KEY] = commit
    done = offsets("reset", "G", "--to-latest", "--topic", "t", "--timeout", "2")
    assert (done.code, done.out.splitlines()[-1]) == (75, "set 1 partition of group G: t:0")
    assert done.err.startswith("tenure: t:1")
    assert "t:2" in done.err or "t:1-2" in done.err


def test_a_total_with_unknown_partitions_is_a_lower_bound(pair: BrokerPair, offsets: Tenure) -> None:
    shown = offsets("show", "G", "--timeout", "2")
    assert (shown.code, shown.err) == (75, "tenure: the lag of headless:0 is unknown: no leader at the moment; try again\n")
    assert shown.out.splitlines()[-1] == "G: lag at least 12 (1 partition unknown) in 7 partitions"
    (group,) = json.loads(offsets("show", "G", "--timeout", "2", "--json").out)["groups"]
    assert (group["lag"], group["unknown_partitions"]) == (None, 1)


def test_a_leader_that_answers_within_the_timeout_leaves_nothing_unknown(pair: BrokerPair, offsets: Tenure) -> None:
    pair.absent = 2  # times that Metadata is answered without a leader of partition 1
    shown = offsets("show", "G", "--topic", "t")
    assert (shown.code, shown.err, shown.out.splitlines()[-1]) == (0, "", "G: lag 12 in 3 partitions")
    assert pair.absent == 0


def test_a_silent_leader_does_not_keep_the_others_from_being_asked(pair: BrokerPair, offsets: Tenure) -> None:
    pair.brokers[0].answers[ListOffsetsRequest.API_KEY] = lambda request, version: None
    begin = time.monotonic()
    shown = offsets("show", "G", "--topic", "t", "--timeout", "3")
    assert time.monotonic() - begin < 20
    assert (shown.code, shown.out.splitlines()[-1]) == (75, "G: lag at least 4 (2 partitions unknown) in 3 partitions")
    assert shown.err == "tenure: the lag of t:0,2 is unknown: the broker that leads it cannot be reached; try again\n"


def test_a_forbidden_group_does_not_hide_the_others(pair: BrokerPair, offsets: Tenure, tenure: Tenure) -> None:
    pair.forbidden = {"S"}
    shown = offsets("show", "G", "S", "--topic", "t")
    assert (shown.code, shown.err) == (77, "tenure: group S: this user may not use the group\n")
    assert shown.out.splitlines()[-1] == "G: lag 12 in 3 partitions"
    assert offsets("show", "S").code == 77


def test_all_topics_skips_deleted_topics(pair: BrokerPair, offsets: Tenure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEADERS, "headless", (1,))
    result = offsets("reset", "G", "--to-latest", "--all-topics", "--dry-run")
    assert result.code == 0
    assert result.err.splitlines() == [
        "tenure: topic gone: there is no such topic or partition; the committed offset of gone:0-1 stays",
        "tenure: topic t: there is no such topic or partition; the committed offset of t:3 stays",
    ]
    assert "4 partitions would be" in result.out


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (25, 1, "group G has members now: stop them first"),
        (22, 1, "group G has members now"),
        (30, 77, "this user may not use the group"),
        (12, 1, "group G: "),
        (69, 1, "is not a consumer group, and accepts no offsets"),
    ],
)
def test_refused_partitions_are_named_with_the_reason(error: int, code: int, words: str, pair: BrokerPair, offsets: Tenure) -> None:
    pair.refused = {0: error, 2: error}
    result = offsets("reset", "G", "--to-latest", "--topic", "t")
    assert (result.code, result.out.splitlines()[-1]) == (code, "set 1 partition of group G: t:1")
    assert result.err.startswith("tenure: t:0,2 not set: ")
    assert words in result.err
    document = json.loads(offsets("reset", "G", "--to-latest", "--topic", "t", "--json").out)
    assert [offset["error"] is None for offset in document["offsets"]] == [False, True, False]


def test_offsets_of_a_subscribed_topic_are_not_deleted(pair: BrokerPair, offsets: Tenure) -> None:
    pair.refused = {1: 86}
    result = offsets("delete", "G", "--topic", "t:0-1", "--topic", "gone")
    assert result.code == 1
    assert result.err == (
        "tenure: t:1 not deleted: members of group G are subscribed to the topic: stop them first, or remove them (tenure group remove-member)\n"
    )
    assert result.out.splitlines()[-1] == "deleted the offsets of 3 partitions of group G: gone:0-1, t:0"


def test_groups_of_other_types_are_named(pair: BrokerPair, offsets: Tenure) -> None:
    pair.listed = [ListedGroup("N", "share", "Stable", "Share")]
    words = "tenure: group N is a share group, which commits no offsets; use kafka-share-groups.sh\n"
    assert offsets("reset", "N", "--to-latest", "--topic", "t", "--dry-run") == (1, "", words)
    assert offsets("show", "N").err == words
    pair.listed = [ListedGroup("N", "streams", "Stable", "Streams")]
    assert offsets("reset", "N", "--to-latest", "--topic", "t") == (1, "", "tenure: group N is Stable: stop its members first\n")
    pair.listed = [ListedGroup("N", "streams", "Empty", "Streams")]
    assert offsets("reset", "N", "--to-latest", "--topic", "t").code == 0
