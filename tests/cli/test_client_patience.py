"""All calls of a command together wait no longer for what does not come than --timeout, and what answers is asked all the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from cli.arguments import addresses
from cli.client import Cluster, Failure, patience
from cli.client.patience import Patience, Wait, seconds_text
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.cli.fake_brokers import Answer, FakeBroker, metadata_of

pytestmark = pytest.mark.once  # no dependence on the Python version

METADATA, LIST, API_VERSIONS = 3, 16, 18


@pytest.fixture
def three_brokers() -> Iterator[list[FakeBroker]]:
    """Brokers 0, 1 and 2, of which 1 and 2 do not answer anything, though the system accepts connections for them."""
    with FakeBroker() as first, FakeBroker() as second, FakeBroker() as third:
        brokers = [first, second, third]
        for broker in brokers:
            broker.answers = {METADATA: metadata_of(*brokers), LIST: lambda request, version: ListGroupsResponse()}
        second.answers[API_VERSIONS] = third.answers[API_VERSIONS] = lambda request, version: None
        yield brokers


def test_several_silent_brokers_together_are_waited_for_no_longer_than_one(three_brokers: list[FakeBroker]) -> None:
    began = time.monotonic()
    with Cluster(addresses(three_brokers[0].address), 1.0) as cluster:
        for broker_id in (1, 2, 1, 2, 1, 2):
            with pytest.raises(Failure, match=f"broker {broker_id} cannot be reached"):
                cluster.send_to_broker(broker_id, ListGroupsRequest())
        assert cluster.send_to_broker(0, ListGroupsRequest()).groups == []
    assert time.monotonic() - began < 3  # 6 without the common limit


def test_answers_cost_no_patience(three_brokers: list[FakeBroker]) -> None:
    def slowly(request: Any, version: int) -> ListGroupsResponse:
        time.sleep(0.1)
        return ListGroupsResponse()

    three_brokers[0].answers[LIST] = slowly
    with Cluster(addresses(three_brokers[0].address), 0.4) as cluster:
        for _ in range(8):
            assert cluster.send_to_broker(0, ListGroupsRequest()).groups == []
        assert cluster.patience.left > 0.1


def test_a_broker_that_does_not_answer_gets_half_of_the_time_where_another_may_take_over(three_brokers: list[FakeBroker]) -> None:
    answers: list[Answer] = [lambda request, version: None, lambda request, version: ListGroupsResponse()]
    del three_brokers[1].answers[API_VERSIONS]
    three_brokers[1].answers[LIST] = lambda request, version: answers.pop(0)(request, version)
    with Cluster(addresses(three_brokers[0].address), 4.0) as cluster:
        assert cluster.send_to_broker(1, ListGroupsRequest()).groups == []


def test_a_loop_and_the_calls_in_it_spend_their_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    whole = Patience(lambda: 10.0)
    outer = Wait(whole, 10.0)
    inner = Wait(whole, 10.0)
    assert inner.again()
    assert inner.again()
    assert outer.again()
    assert whole.left == pytest.approx(10 - (now[0] - 100))
    while outer.again():
        pass
    assert now[0] <= 110
    assert whole.left <= patience.PAUSE_SECONDS_MAX
    whole.renew()
    assert (whole.left, whole.for_broker(answering=False)) == (10, 10)


def test_without_time_nothing_is_repeated_and_a_broker_still_has_a_moment() -> None:
    whole = Patience(lambda: 10.0)
    mark = whole.mark()
    whole.spend(mark._replace(at=mark.at - 20))
    assert whole.left == 0
    assert [whole.for_broker(answering=answering) for answering in (False, True)] == [patience.GRACE_SECONDS, patience.ANSWERING_SECONDS]
    assert not Wait(whole, whole.for_broker(answering=True)).again()


@pytest.mark.parametrize(("seconds", "text"), [(0.001, "0.1 s"), (0.34, "0.3 s"), (5.04, "5 s"), (120, "120 s")])
def test_seconds_are_rounded(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text
