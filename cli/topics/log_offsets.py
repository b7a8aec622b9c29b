"""Where the logs of partitions begin and end, and which record was the first at a time: asked of each partition's leader."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.failure import EXIT, Failure
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from cli.client import Cluster

EARLIEST: Final = -2
LATEST: Final = -1
PAUSE_SECONDS: Final = 0.1

# Errors that new metadata, or a short wait, may resolve.
PASSING: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)

Place = tuple[str, int]  # topic and partition


class Answer(NamedTuple):
    offset: int  # -1: there is none
    timestamp: int
    error: int


def log_offsets(cluster: Cluster, asked: Mapping[Place, int], *, patient: bool = True, committed: bool = False) -> dict[Place, Answer]:
    """For each partition the offset at a timestamp, EARLIEST or LATEST; `patient`: partitions without a leader are
    waited for; `committed`: logs end where the first open transaction begins."""
    answers: dict[Place, Answer] = {}
    left = dict(asked)
    deadline = time.monotonic() + cluster.timeout
    while True:
        absent: list[Failure] = []
        for place, answer in ask_leaders(cluster, left, committed, absent).items():
            answers[place] = answer
            if answer.error not in PASSING:
                del left[place]
        if patient and absent and time.monotonic() >= deadline:
            raise absent[0]
        if not left or not patient or time.monotonic() >= deadline:
            return answers
        time.sleep(PAUSE_SECONDS)
        cluster.topics(sorted({topic for topic, _ in left}), refresh=True)


def ask_leaders(cluster: Cluster, asked: Mapping[Place, int], committed: bool, absent: list[Failure]) -> dict[Place, Answer]:
    """One request for each leader; failures go into `absent`: another broker may lead soon."""
    topics = cluster.topics(sorted({topic for topic, _ in asked}))
    answers: dict[Place, Answer] = {}
    by_leader: dict[int, list[Place]] = {}
    for place in asked:
        topic = topics[place[0]]
        partition = topic.partitions.get(place[1])
        if topic.error or partition is None:
            answers[place] = Answer(-1, -1, topic.error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif partition.leader not in cluster.brokers:
            answers[place] = Answer(-1, -1, ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            by_leader.setdefault(partition.leader, []).append(place)
    for leader, places in by_leader.items():
        request = ListOffsetsRequest(-1, int(committed), topics_of(places, asked), int(cluster.timeout * 1000))
        try:
            reply = cluster.node(leader, request, patient=False)
        except Failure as failure:
            if failure.code != EXIT.UNREACHABLE:
                raise
            absent.append(failure)
            answers |= dict.fromkeys(places, Answer(-1, -1, ErrorCode.NETWORK_EXCEPTION))
            continue
        for topic in reply.topics:
            for found in topic.partitions:
                answers[topic.name, found.partition_index] = Answer(found.offset, found.timestamp, found.error_code)
    for place in asked:
        answers.setdefault(place, Answer(-1, -1, ErrorCode.UNKNOWN_SERVER_ERROR))
    return answers


def topics_of(places: Iterable[Place], asked: Mapping[Place, int]) -> list[ListOffsetsTopic]:
    topics: dict[str, ListOffsetsTopic] = {}
    for name, partition in places:
        topic = topics.setdefault(name, ListOffsetsTopic(name))
        topic.partitions.append(ListOffsetsPartition(partition, timestamp=asked[name, partition]))
    return list(topics.values())
