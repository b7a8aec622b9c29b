"""A member that waits for others: in a rebalance that does not end, and for a coordinator that does not answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from cli.records import membership, parking
from protocol.errors import ErrorCode
from protocol.message import Message
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from tests.cli.conftest import Tenure
from tests.cli.fake_brokers import FakeBroker, metadata_of

pytestmark = pytest.mark.once  # no dependence on the Python version


class Group:
    """Broker 0 knows the topic, broker 1 is the coordinator of group g, whose rebalance does not end."""

    def __init__(self, first: FakeBroker, second: FakeBroker) -> None:
        self.brokers = (first, second)
        self.coordinator = second
        for broker in self.brokers:
            broker.answers = {
                MetadataRequest.API_KEY: metadata_of(first, second, topics=self._topics),
                FindCoordinatorRequest.API_KEY: self._find,
                DescribeGroupsRequest.API_KEY: lambda request, version: DescribeGroupsResponse(
                    groups=[DescribedGroup(0, None, "g", "PreparingRebalance", "consumer", "", [])]
                ),
                OffsetFetchRequest.API_KEY: lambda request, version: OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", [], 0)]),
                JoinGroupRequest.API_KEY: self._join,
                LeaveGroupRequest.API_KEY: lambda request, version: LeaveGroupResponse(),
            }

    def _topics(self, request: Any) -> list[MetadataResponseTopic]:
        return [MetadataResponseTopic(0, "t", b"t" * 16, False, [MetadataResponsePartition(0, 0, 0, 0, [0], [0], [])])]

    def _find(self, request: Any, version: int) -> FindCoordinatorResponse:
        id = self.brokers.index(self.coordinator)
        return FindCoordinatorResponse(coordinators=[Coordinator("g", id, self.coordinator.host, self.coordinator.port, 0, None)])

    def _join(self, request: Any, version: int) -> Message | None:
        return None if request.member_id else JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m")

    def sent(self, kind: type[Message]) -> int:
        return sum(isinstance(request, kind) for broker in self.brokers for request, _ in broker.requests)


@pytest.fixture
def group() -> Iterator[Group]:
    with FakeBroker() as first, FakeBroker() as second:
        yield Group(first, second)


def consume(tenure: Tenure, group: Group, *more: str) -> tuple[int, str, float]:
    began = time.monotonic()
    result = tenure("consume", "t", "--group", "g", "--bootstrap", group.brokers[0].address, *more)
    assert result.out == ""
    return result.code, result.err, time.monotonic() - began


def test_a_rebalance_that_does_not_end_is_an_answer_at_the_timeout(tenure: Tenure, group: Group) -> None:
    code, err, seconds = consume(tenure, group, "--timeout", "1")
    line = "group g is rebalancing: its other members have not joined again within 1 s (tenure group describe g shows them)"
    assert (code, err) == (75, f"tenure: {line}\n")
    assert 1 <= seconds < 4
    assert group.sent(LeaveGroupRequest) == 1  # so that the others need not wait for this member


def test_a_coordinator_that_freezes_meanwhile_is_an_answer_within_the_timeout(tenure: Tenure, group: Group) -> None:
    answers = [group.coordinator.answers[DescribeGroupsRequest.API_KEY]]
    group.coordinator.answers[DescribeGroupsRequest.API_KEY] = lambda request, version: answers.pop()(request, version) if answers else None
    code, err, seconds = consume(tenure, group, "--timeout", "1.5")
    assert code == 69
    assert err.startswith(f"tenure: {group.coordinator.address} does not answer DescribeGroups within ")
    assert seconds < 4


def test_a_member_joins_at_the_new_coordinator_when_the_old_one_is_replaced_meanwhile(
    tenure: Tenure, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "CHECK_SECONDS", 0.05)
    first, second = group.brokers

    def moved(request: Any, version: int) -> DescribeGroupsResponse:
        code = ErrorCode.NOT_COORDINATOR if group.coordinator is first else ErrorCode.NONE
        return DescribeGroupsResponse(groups=[DescribedGroup(code, None, "g", "PreparingRebalance", "consumer", "", [])])

    def join(request: Any, version: int) -> Message | None:
        group.coordinator = first
        return group._join(request, version) if not request.member_id else None

    second.answers |= {DescribeGroupsRequest.API_KEY: moved, JoinGroupRequest.API_KEY: join}
    first.answers[JoinGroupRequest.API_KEY] = lambda request, version: JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)
    code, err, _ = consume(tenure, group, "--timeout", "20")
    assert (code, err.startswith("tenure: group g: the group accepts no more members")) == (1, True)


def test_a_long_rebalance_is_reported_once(tenure: Tenure, group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(membership, "REPORT_SECONDS", 0.1)
    code, err, _ = consume(tenure, group, "--timeout", "1")
    assert code == 75
    assert err.splitlines()[0] == "tenure: group g is rebalancing: its other members have not joined again yet"
    assert len(err.splitlines()) == 2
    assert len(consume(tenure, group, "--timeout", "1", "--quiet")[1].splitlines()) == 1
