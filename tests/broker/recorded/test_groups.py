"""Every group request with every field at its extremes: our replies equal Kafka's, and no partition stops working.

groups.py has the cases, groups.json Kafka's replies; intended differences are listed here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.broker.recorded.extremes import CLOSED, NOTHING
from tests.broker.recorded.groups import ANSWERS, SETTINGS, Case, Peer, every_case, join
from tests.running import Broker, Client, broker
from tests.support.peers import defects

REPLY_SECONDS = 10
KAFKA_REPLIES: dict[str, Any] = json.loads(ANSWERS.read_text())


class Deviation(NamedTuple):
    """An intended difference. `cases`: a pattern of case names; `ours`: our reply."""

    cases: str
    why: str
    ours: Any = None


REFUSED_JOIN = {"error_code": 23, "generation_id": -1, "member_id": "", "members": []}
DEVIATIONS = [
    Deviation(
        r"join v\d protocols: (twice the same|10000 alike)",
        "a protocol that is offered twice is refused at once; Kafka fails when the join phase ends, and never answers the group",
        REFUSED_JOIN,
    ),
    Deviation(
        r"join v\d protocols.metadata: two MiB",
        "consumer metadata with a wrong topic count counts as no subscription, where Kafka fails when the join phase ends",
    ),
    Deviation(
        "commit v9: larger than a batch",
        "a commit too large for a batch is refused before it is applied; Kafka applies and reverts it, and then shows an earlier offset twice",
        {"topics": [{"name": "extremes", "partitions": ['300 times {"partition_index": #, "error_code": -#}']}]},
    ),
    Deviation(r"delete_offsets v0 topics(.partitions)?: 10000 alike", "the same partition ten thousand times keeps Kafka busy for minutes"),
]


@pytest.fixture(scope="module")
def started() -> Iterator[Broker]:
    flags = [flag for name, value in SETTINGS.items() for flag in ("--set", f"{name}={value}")]
    with broker("--profile", "test", *flags, "--set", "log.level=warning") as ours:
        yield ours
        assert not defects(ours)


@pytest.fixture(scope="module")
def peer(started: Broker) -> Peer:
    peer = Peer(started.port, REPLY_SECONDS)
    peer.prepare()
    return peer


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {case.name: case for case in every_case()}


@pytest.mark.parametrize("name", KAFKA_REPLIES)
def test_the_reply_equals_kafkas_and_the_partition_keeps_serving(peer: Peer, cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    answer = json.loads(json.dumps(peer.ask(case)))
    assert answer["answer"] != NOTHING, "a lost reply"
    deviation = next((deviation for deviation in DEVIATIONS if re.fullmatch(deviation.cases, name)), None)
    if deviation is None:
        assert answer == KAFKA_REPLIES[name]
    else:
        assert answer != KAFKA_REPLIES[name], f"deviations that no longer apply: {deviation.why}"
        assert answer["answer"] != CLOSED
        if deviation.ours is not None:
            assert deviation.ours.items() <= answer["answer"].items()
    an_ordinary_group_works(peer, case)


def an_ordinary_group_works(peer: Peer, case: Case) -> None:
    """Check the partition after a case: a new member joins, syncs, commits, heartbeats and leaves, and its group is deleted."""
    group = f"ordinary after {case.name}"[:200]
    with Client(peer.port) as client:
        own = peer.settle(client, group, join)
        assert client.ask(HeartbeatRequest(group, 1, own.member, "instance"), 4).error_code == 0
        (fetched,) = client.ask(OffsetFetchRequest([OffsetFetchRequestGroup(group, None, -1, None)]), 9).groups
        assert [partition.committed_offset for topic in fetched.topics for partition in topic.partitions] == [11]
        leave_reply = client.ask(LeaveGroupRequest(group, [MemberIdentity(own.member, "instance")]), 5)
        assert (leave_reply.error_code, leave_reply.members[0].error_code) == (0, 0)
        assert client.ask(DeleteGroupsRequest([group]), 2).results[0].error_code == 0


def test_every_case_is_recorded_and_every_deviation_occurs(cases: dict[str, Case]) -> None:
    assert cases.keys() == KAFKA_REPLIES.keys(), "python -m tests.broker.recorded.groups records the new cases"
    assert [deviation.cases for deviation in DEVIATIONS if not any(re.fullmatch(deviation.cases, name) for name in cases)] == []
