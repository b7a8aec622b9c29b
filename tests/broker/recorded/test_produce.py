"""Produce, record batches and InitProducerId with every field at its extremes: our replies and stored batches equal Kafka's.

produce_cases.py has the cases, produce.json Kafka's replies; intended differences are listed here.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import pytest

from broker.net.connection import Connection, FastPath
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.recorded.extremes import CLOSED, NOTHING, decoded, framed
from tests.broker.recorded.produce import ANSWERS, answered, own_partitions, stored, topics_to_create
from tests.broker.recorded.produce_cases import Case, every_case, families
from tests.support.produce_batches import plain_batch
from tests.support.produce_harness import ProduceClient, ProduceHarness

pytestmark = pytest.mark.plain  # no dependence on the Python version

NAMES = [case.name for case in every_case()]
KAFKA_REPLIES: dict[str, Any] = json.loads(ANSWERS.read_text())
OWN_PARTITIONS = own_partitions()
TOPICS = {topic.name: (topic.num_partitions, {config.name: config.value or "" for config in topic.configs}) for topic in topics_to_create(OWN_PARTITIONS)}
HARNESS = ProduceHarness(TOPICS | {"ordinary": (1, {})})


class Deviation(NamedTuple):
    """An intended difference. `cases`: a pattern of case names; `error`: the error in our reply."""

    cases: str
    why: str
    error: int


DEVIATIONS = [
    Deviation(
        r"record: (an offset delta of (?!six).*|offset deltas (0, 0, 0|2, 1, 0|0, 2, 5)(, zstd)?)|.*: records at offsets 0, 0, 5",
        "offsets in a batch that are not 0, 1, 2, ...: Kafka stores them, renumbers them or fails with -1, depending on the batch",
        87,
    ),
    Deviation(
        r"record: (of length .*|a length that is wrong by .*), zstd|zstd: a byte changed",
        "records that no consumer could read: Kafka stores them when they are compressed",
        87,
    ),
    Deviation(r"record: a length of six bytes", "Kafka fails with -1, but answers 87 for similar records", 87),
    Deviation(r"length 2147483647", "Kafka fails with -1, since its calculation with this length overflows", 87),
    Deviation(r"null(, v\d+)?", "Kafka never answers a partition without records", 87),
    Deviation(
        r"of a producer, transactional, with an id|producer id v\d: .*(a transactional id|of the greatest length)", "no transactions", 53
    ),
]


def ask(case: Case, harness: ProduceHarness, caller: ProduceClient) -> dict[str, Any]:
    own = OWN_PARTITIONS[case.name]
    harness.clock.tick()
    now = harness.clock.wall
    answers: list[Any] = []
    for body in case.requests:
        caller.send(framed(case.key, case.version, body(own.topic, own.partition, now), b"client"))
        harness.registry.release_replies()
        harness.settle()
        frames = caller.replies()
        if frames:
            (frame,) = frames
            answers.append(answered(case, decoded(case.key, case.version, frame), now))
        else:
            answers.append(CLOSED if caller.closed else NOTHING)
    result: dict[str, Any] = {"answers": answers}
    if case.key == ProduceRequest.API_KEY:
        partition = harness.partitions.find(own.topic, own.partition)
        assert partition is not None
        result["stored"] = stored(partition.data, now)
    return result


def difference(name: str, result: dict[str, Any]) -> str:
    """A description of an unintended difference from Kafka, or "" if there is none."""
    result = json.loads(json.dumps(result))
    deviation = next((deviation for deviation in DEVIATIONS if re.fullmatch(deviation.cases, name)), None)
    if deviation is None:
        return "" if result == KAFKA_REPLIES[name] else f"{name}: {result}, where Kafka has {KAFKA_REPLIES[name]}"
    if result == KAFKA_REPLIES[name]:
        return f"{name}: met no more: {deviation.why}"
    right = f'"error_code": {deviation.error},' in json.dumps(result["answers"][-1]) and not result.get("stored")
    return "" if right else f"{name}: {result}"


@pytest.mark.parametrize("family", families())
def test_produce_replies_and_stored_batches_equal_kafkas(family: str) -> None:
    wrong = []
    for case in families()[family]():
        wrong.append(difference(case.name, ask(case, HARNESS, HARNESS.caller())))
        ordinary(HARNESS.caller())
    assert [problem for problem in wrong if problem] == []


def ordinary(caller: ProduceClient) -> None:
    """Check that an ordinary batch is still stored."""
    partition = HARNESS.partitions.find("ordinary", 0)
    assert partition is not None
    before = partition.high_watermark
    request = ProduceRequest(None, -1, 1000, [TopicProduceData("ordinary", [PartitionProduceData(0, plain_batch())])])
    for number in range(3):  # the third request takes the fast path that the first two built
        (topic,) = caller.ask(request, 9).responses
        (part,) = topic.partition_responses
        assert (part.error_code, part.base_offset) == (0, before + number)


def test_repeated_produce_requests_are_answered_and_stored_equally() -> None:
    """Every case once more, on connections that sent two requests of the same topic and version before."""
    harness = ProduceHarness({name: (partitions + 1, settings) for name, (partitions, settings) in TOPICS.items()})
    callers: dict[tuple[str, int], LearnedCaller] = {}
    wrong = []
    stored_undecoded = 0
    for case in every_case():
        if case.key != ProduceRequest.API_KEY or "10000" in case.name or case.version < ProduceRequest.VERSIONS[0]:
            continue
        caller = callers.get((case.kind, case.version))
        if caller is None or caller.closed or not caller.is_learned:
            caller = callers[case.kind, case.version] = learned(harness, case)
        wrong.append(difference(case.name, ask(case, harness, caller)))
        stored_undecoded += caller.undecoded
    assert [problem for problem in wrong if problem] == []
    assert stored_undecoded > 300


class Counted(FastPath):
    """Counts the requests that a fast path answers."""

    def __init__(self, fast_path: FastPath) -> None:
        super().__init__(0, any_size=True)
        self._fast_path = fast_path
        self.answered = 0

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        reply = self._fast_path.answer(connection, data)
        self.answered += reply is not None
        return reply


class LearnedCaller(ProduceClient):
    """`undecoded`: the number of requests answered by the fast path since the last call."""

    def __init__(self, harness: ProduceHarness) -> None:
        super().__init__(harness)
        self._counted: Counted | None = None

    def learn(self) -> None:
        (kind,) = self.connection.fast_paths
        self._counted = Counted(self.connection.fast_paths[kind])
        self.connection.drop_fast_paths()
        self.connection.add_fast_path(bytes(4) + kind, self._counted)

    @property
    def is_learned(self) -> bool:
        return self._counted in self.connection.fast_paths.values()

    @property
    def undecoded(self) -> int:
        assert self._counted is not None
        answered, self._counted.answered = self._counted.answered, 0
        return answered


def learned(harness: ProduceHarness, case: Case) -> LearnedCaller:
    caller = LearnedCaller(harness)
    spare = TOPICS[case.kind][0]
    data = plain_batch(base_timestamp=-1, max_timestamp=-1)  # without a timestamp, so every topic's time limits accept it
    for _ in range(2):
        request = ProduceRequest(None, -1, 1500, [TopicProduceData(case.kind, [PartitionProduceData(spare, data)])])
        (topic,) = caller.ask(request, case.version).responses
        assert topic.partition_responses[0].error_code == 0
    caller.learn()
    return caller


def test_every_case_is_recorded_and_every_deviation_occurs() -> None:
    assert set(NAMES) == KAFKA_REPLIES.keys(), "python -m tests.broker.recorded.produce records the new cases"
    assert [deviation.cases for deviation in DEVIATIONS if not any(re.fullmatch(deviation.cases, name) for name in NAMES)] == []
