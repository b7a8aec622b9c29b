"""Fetch, ListOffsets and OffsetForLeaderEpoch with every field at its extremes: our replies equal Kafka's.

fetch.py has the cases, fetch.json Kafka's replies; intended differences are listed here.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.broker.recorded.extremes import CLOSED, NOTHING
from tests.broker.recorded.fetch import APPENDED, EPOCHS, TRIMMED, Case, TopicIds, answer_of, every_case, kafkas_answers
from tests.support.fetch_harness import FetchClient, FetchHarness
from tests.support.headers import encode_request
from tests.support.topic_logs import disk_log

KAFKA_REPLIES = kafkas_answers()


class Deviation(NamedTuple):
    """An intended difference. `cases`: a pattern of case names; `ours` computes our reply from the match and Kafka's reply."""

    cases: str
    why: str
    ours: Callable[[re.Match[str], Any], Any]


def with_more_records(match: re.Match[str], kafkas: Any) -> Any:
    ours = copy.deepcopy(kafkas)
    ours["responses"][0]["partitions"][1]["records"] = [[number, number + 1] for number in range(0, 12, 2)]
    return ours


NO_LATEST: dict[str, Any] = {"name": "emptied", "partitions": [{"partition_index": 0, "error_code": 0, "timestamp": -1, "offset": -1, "leader_epoch": -1}]}
DEVIATIONS = [
    Deviation(
        r"fetch v\d+ cluster_id: (null|not UTF-8|half a surrogate)",
        "a tagged field whose size differs from the size in its tag is malformed",
        lambda match, kafkas: CLOSED,
    ),
    Deviation(
        r"fetch v\d+ session_epoch: 0|fetching v\d+: session \d, epoch 0( of nothing)?",
        "KIP-227 allows a broker to open no fetch session",
        lambda match, kafkas: kafkas | {"session_id": 0},
    ),
    Deviation(
        r"(fetch v\d+) session_id: the (least|greatest)",
        "an impossible session id is ignored, where Kafka fails",
        lambda match, kafkas: KAFKA_REPLIES[match[1]],
    ),
    Deviation(
        r"fetching v\d+: (41000|70000) bytes of large batches in all",
        "batches are sent whole: the bytes that Kafka uses for a cut batch go to the next partition",
        with_more_records,
    ),
    Deviation(
        r"listing v10: -3 of emptied-0",
        "a deleted record is never the record with the latest timestamp",
        lambda match, kafkas: {"topics": [NO_LATEST]},
    ),
]


class Ours:
    """Our handlers, over logs with the same batches and epochs as Kafka's."""

    def __init__(self) -> None:
        self.harness = FetchHarness()
        self.topic_ids = TopicIds({name: self.harness.create_topic(name, len(parts)) for name, parts in APPENDED.items()})
        for start, epoch in enumerate(EPOCHS):
            for name, parts in APPENDED.items():
                for index, appended in enumerate(parts):
                    while self.harness.partition(name, index).leader_epoch < epoch:
                        self.harness.new_epoch(name, index)
                    if appended[start]:
                        self.harness.append(name, index, *appended[start])
        for name, offset in TRIMMED.items():
            disk_log(self.harness.partition(name)).delete_before(offset)
        self.harness.topics.delete("deleted", 0)
        self._client = FetchClient(self.harness)

    def reply_to(self, key: int, version: int, body: bytes) -> bytes | str:
        wire, connection = self._client.wire, self._client.connection
        self.harness.clock.tick()
        connection.data_received(encode_request(key, version, 7, "c", body))
        for passed in range(1_000):
            if not wire.open:
                self._client = FetchClient(self.harness)
                return CLOSED
            if wire.data:
                break
            if passed and not self.harness.loop.busy:
                self.harness.loop.advance(0.001)
            self.harness.end_turn()
        while self.harness.loop.busy:
            self.harness.end_turn()
        frames = wire.frames()
        return frames[0] if frames else NOTHING


@pytest.fixture(scope="module")
def ours() -> Iterator[Ours]:
    ours = Ours()
    yield ours
    assert len(ours.harness.fetches) == 0, "a fetch still waits"


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {case.name: case for case in every_case()}


def test_fetch_replies_equal_kafkas(ours: Ours, cases: dict[str, Case]) -> None:
    different = []
    for name, case in cases.items():
        answer = answer_of(ours, case)
        expected = KAFKA_REPLIES[name]
        for deviation in DEVIATIONS:
            if match := re.fullmatch(deviation.cases, name):
                assert answer != expected, f"{name} no longer applies: {deviation.why}"
                expected = deviation.ours(match, expected)
        if answer != expected:
            different.append(f"{name}\n  ours     {json.dumps(answer)}\n  expected {json.dumps(expected)}")
    assert not different, f"{len(different)} replies differ:\n" + "\n".join(different[:20])


def test_every_case_is_recorded_and_every_deviation_occurs(cases: dict[str, Case]) -> None:
    assert cases.keys() == KAFKA_REPLIES.keys(), "python -m tests.broker.recorded.fetch records the replies again"
    assert [deviation.cases for deviation in DEVIATIONS if not any(re.fullmatch(deviation.cases, name) for name in cases)] == []
