"""The start and end of logs, and the first record at or after a time, from the leader of each partition."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.client import by_topic
from cli.failure import Exit, Failure
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from cli.client import Cluster, TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
ATTEMPT_SECONDS: Final = 2.5  # the time of a leader in the first attempt, if the cluster has several brokers

# Errors that new metadata, or a short wait, may resolve.
RETRIABLE: Final = frozenset(
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


class LogOffset(NamedTuple):
    offset: int  # -1: none
    timestamp: int
    error: int


Question = Mapping["TopicPartition", int]  # the timestamp, EARLIEST or LATEST whose offset is asked for
Answer = dict["TopicPartition", LogOffset]


def log_offsets(cluster: Cluster, requested: Question, *, retry: bool = True, committed: bool = False, timeout: float | None = None) -> Answer:
    """The offset of each partition at the requested timestamp, EARLIEST or LATEST. `retry`: ask again within --timeout for those whose leader is not
    known or does not answer; `committed`: LATEST is the last stable offset, before the first open transaction; `timeout`: of a leader's first attempt.

    What is still unknown then has an error. Raises Failure, with `retry`, if no leader answered at all.
    """
    return ask(cluster, [requested], retry, committed, timeout)[0]


def log_bounds(cluster: Cluster, partitions: Iterable[TopicPartition], *, retry: bool = True) -> tuple[Answer, Answer]:
    """The start and the end of each log; as `log_offsets`, and within the same time for both."""
    listed = list(partitions)
    starts, ends = ask(cluster, [dict.fromkeys(listed, EARLIEST), dict.fromkeys(listed, LATEST)], retry, committed=False)
    return starts, ends


def ask(cluster: Cluster, questions: Sequence[Question], retry: bool, committed: bool, timeout: float | None = None) -> list[Answer]:
    answers: list[Answer] = [{} for _ in questions]
    unanswered = [dict(question) for question in questions]
    names = sorted({topic for question in questions for topic, _ in question})
    wait = cluster.wait()
    # A leader that does not answer may be replaced: look again soon, and give it more time with each attempt.
    attempt = timeout or (ATTEMPT_SECONDS if retry else cluster.timeout)
    while names:
        unreachable: list[Failure] = []
        for answer, question, replies in zip(answers, unanswered, ask_leaders(cluster, unanswered, committed, wait.deadline, attempt, unreachable), strict=True):
            answer |= replies
            for tp, reply in replies.items():
                if reply.error not in RETRIABLE:
                    del question[tp]
        if not any(unanswered):
            break
        if retry and wait.again():
            attempt *= 2
            try:
                cluster.topics(names, refresh=True)
                continue
            except Failure as failure:
                if failure.exit_code != Exit.UNREACHABLE:
                    raise
        if retry and unreachable and all(reply.error for answer in answers for reply in answer.values()):
            raise unreachable[0]
        break
    return answers


def ask_leaders(
    cluster: Cluster, questions: Sequence[Question], committed: bool, deadline: float, attempt: float, unreachable: list[Failure]
) -> list[Answer]:
    """Send each leader one ListOffsets for each question. For an unreachable leader, append the Failure to `unreachable`: another broker may lead soon."""
    answers: list[Answer] = [{} for _ in questions]
    asked = {tp for question in questions for tp in question}
    topics = cluster.topics(sorted({topic for topic, _ in asked}))
    by_leader: dict[int, set[TopicPartition]] = {}
    errors: dict[TopicPartition, int] = {}
    for tp in asked:
        topic = topics[tp[0]]
        partition = topic.partitions.get(tp[1])
        if topic.error or partition is None:
            errors[tp] = topic.error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif partition.leader not in cluster.brokers:
            errors[tp] = ErrorCode.LEADER_NOT_AVAILABLE
        else:
            by_leader.setdefault(partition.leader, set()).add(tp)
    only_one = len(cluster.brokers) == 1
    for number, leader in enumerate(cluster.answering_first(by_leader)):
        partitions = by_leader[leader]
        for question, answer in zip(questions, answers, strict=True):
            of_leader = {tp: timestamp for tp, timestamp in question.items() if tp in partitions and tp not in errors}
            if not of_leader:
                continue
            share = max((deadline - time.monotonic()) / (len(by_leader) - number), cluster.least_seconds(leader))
            timeout = share if only_one else min(share, attempt)
            request = ListOffsetsRequest(-1, int(committed), topics_of(of_leader), int(timeout * 1000))
            try:
                reply = cluster.send_to_broker(leader, request, retry=False, timeout=timeout)
            except Failure as failure:
                if failure.exit_code != Exit.UNREACHABLE:
                    raise
                unreachable.append(failure)
                errors |= dict.fromkeys(of_leader, int(ErrorCode.NETWORK_EXCEPTION))
                continue
            for topic in reply.topics:
                for entry in topic.partitions:
                    answer[topic.name, entry.partition_index] = LogOffset(entry.offset, entry.timestamp, entry.error_code)
    for question, answer in zip(questions, answers, strict=True):
        for tp in question:
            answer.setdefault(tp, LogOffset(-1, -1, errors.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR)))
    return answers


def topics_of(requested: Question) -> list[ListOffsetsTopic]:
    return [
        ListOffsetsTopic(name, [ListOffsetsPartition(number, timestamp=requested[name, number]) for number in numbers])
        for name, numbers in by_topic(sorted(requested)).items()
    ]
