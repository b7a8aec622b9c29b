"""Every request about topics and their settings with every field at its extremes: replies and results equal Kafka's.

topics.py has the cases, topics.json Kafka's replies; intended differences are listed here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.broker.recorded.extremes import CLOSED, NOTHING
from tests.broker.recorded.topics import ANSWERS, SETTINGS, Case, Peer, every_case
from tests.running import Broker, broker
from tests.support.peers import defects

REPLY_SECONDS = 10
KAFKA_REPLIES: dict[str, Any] = json.loads(ANSWERS.read_text())


class Deviation(NamedTuple):
    """An intended difference. `cases`, `place`: patterns of case names and of paths in the result; `ours`: a pattern of our value."""

    cases: str
    place: str
    why: str
    ours: str = ".*"


GREAT = r"of (the greatest length|a great length in UTF-16)"
DEVIATIONS = [
    Deviation(
        rf"(create|create_assigned|alter|change) .*: {GREAT}|configs v\d resources.resource_name: {GREAT}",
        r"answer.*error_(code|message)",
        "a message too long for a reply is cut, where Kafka fails with error -1",
        "40|17|said",
    ),
    Deviation(
        r"(create|create_assigned) v7 validate_only: the other|creating: (the name (x 249 times|'(-|_|\.\.\.)'))",
        r"answer.topics\[\d+\].topic_id",
        "a topic that was only validated has no id, where Kafka generates one",
        "0{32}",
    ),
    Deviation(
        ".*",
        r"answer.*\.configs\.min\.insync\.replicas\[(2|4)\]",
        "min.insync.replicas is shown as a default, not as set for the cluster",
        r"5|\[\{'name': 'min.insync.replicas', 'value': '1', 'source': 5\}\]",
    ),
    Deviation(
        "describing: (some of a broker.*|type (16|32) name 'some'|several|a group.*)",
        r"answer.*\.configs\..*\[1\]",
        "broker settings do not change while the broker runs, and groups and client metrics have no such settings: all are shown as read-only",
        "True",
    ),
    Deviation(
        "describing: some of a broker(, v1)?",
        r"answer.*\.configs\.node\.id\[4\]",
        "node.id has a default here",
        r".*'source': 4.*'source': 5.*",
    ),
    Deviation(
        "(altering|changing): (broker '1?' (log.cleaner.threads|nope)=1|client metrics|append to a broker's)|changing: loggers of broker '1'",
        r"answer.responses\[0\].error_(code|message)",
        "settings of the broker, and of resources that are not served, cannot be changed",
        "42|said",
    ),
    Deviation(
        r"describing: (type 32 name 'some'|several|a group.*)",
        r"answer.results\[\d\].configs.consumer.(assignment|heartbeat).interval.ms\[\d\]",
        "groups of the consumer protocol are quicker under --profile test",
    ),
    Deviation(
        r"(change v\d .*config_operation: .*|changing: operation .*)",
        r"answer.responses\[0\].error_(code|message)",
        "an unknown operation is an invalid request, where Kafka fails with error -1",
        "42|said",
    ),
    Deviation(
        r"growing: to (10004|2147483647), only validated",
        r"answer.results\[0\].error_(code|message)",
        "more partitions than one request may add are refused as in CreateTopics, where Kafka fails with error -1",
        "44|said",
    ),
    Deviation(
        "creating: two that collide",
        "answer.topics.*",
        "if two names in one request differ only in '.' and '_', the second collides with the first, where Kafka creates both",
    ),
    Deviation(
        r"describe_partitions v0 cursor.partition_index: the greatest",
        "answer.next_cursor",
        "a cursor after the last partition gets no partitions, where Kafka's sum overflows",
        "None",
    ),
    Deviation(
        "describing_partitions: the name ''",
        "answer.topics.*",
        "an empty name is an invalid name, where Kafka fails with error -1",
        "17|3576",
    ),
    Deviation(
        "of_the_offsets_topic: (let it grow|let it shrink|alter it|delete it)",
        "answer.*error_(code|message)|answer.*topic_id|then.*",
        "groups depend on the partitions and settings of the offsets topic, so it cannot be changed; Kafka changes it and loses offsets",
        "17|42|said|absent|<id>",
    ),
]


@pytest.fixture(scope="module")
def started() -> Iterator[Broker]:
    flags = [flag for name, value in SETTINGS.items() for flag in ("--set", f"{name}={value}")]
    with broker("--profile", "test", *flags, "--set", "log.level=warning", "--set", "partitions.max=100000") as ours:
        yield ours
        assert not defects(ours)


@pytest.fixture(scope="module")
def peer(started: Broker) -> Iterator[Peer]:
    peer = Peer(started.port, REPLY_SECONDS)
    peer.prepare()
    yield peer
    peer.close()


def differences(ours: Any, kafkas: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, dict) and isinstance(kafkas, dict):
        for name in ours | kafkas:
            yield from differences(ours.get(name, "absent"), kafkas.get(name, "absent"), f"{place}.{name}".lstrip("."))
    elif isinstance(ours, list) and isinstance(kafkas, list) and len(ours) == len(kafkas):
        for number, (mine_item, kafkas_item) in enumerate(zip(ours, kafkas, strict=True)):
            yield from differences(mine_item, kafkas_item, f"{place}[{number}]")
    elif ours != kafkas:
        yield place, ours, kafkas


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {case.name: case for case in every_case()}


@pytest.mark.parametrize("about", dict.fromkeys(re.split("[ :]", name)[0] for name in KAFKA_REPLIES))
def test_topic_replies_equal_kafkas(peer: Peer, cases: dict[str, Case], about: str) -> None:
    wrong = []
    for name, case in cases.items():
        if re.split("[ :]", name)[0] == about:
            wrong += [f"{name}: {problem}" for problem in problems(name, json.loads(json.dumps(peer.ask(case))))]
    assert not wrong, "\n".join(wrong)


def problems(name: str, ours: Any) -> Iterator[str]:
    kafkas = KAFKA_REPLIES[name]
    if ours["answer"] in (NOTHING, CLOSED):
        yield f"{ours['answer']}"
        return
    if kafkas["answer"] == NOTHING:
        return
    deviations = {deviation for deviation in DEVIATIONS if re.fullmatch(deviation.cases, name)}
    met = set()
    for place, mine, theirs in differences(ours, kafkas):
        matching = {deviation for deviation in deviations if re.fullmatch(deviation.place, place) and re.fullmatch(deviation.ours, str(mine))}
        met |= matching
        if not matching:
            yield f"{place}: ours {mine!r}, Kafka's {theirs!r}"
    for deviation in deviations - met:
        if deviation.cases != ".*":
            yield f"met no more: {deviation.why}"


def test_every_case_is_recorded_and_every_deviation_occurs(cases: dict[str, Case]) -> None:
    assert cases.keys() == KAFKA_REPLIES.keys(), "python -m tests.broker.recorded.topics records the new cases"
    assert [deviation.cases for deviation in DEVIATIONS if not any(re.fullmatch(deviation.cases, name) for name in cases)] == []
