"""Reading continues at another broker when the leader closes its connections, or does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cli.arguments import addresses
from cli.client import Cluster, Exit, Failure, Limits
from cli.records.fetching import Fetcher
from protocol.batch import Record, build
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from tests.cli.consumers import poll_until
from tests.cli.fake_brokers import FakeBroker, metadata_of

pytestmark = pytest.mark.once

ID = b"t" * 16
TIMEOUT = 0.3
LEASE = 0.9  # seconds from the failure of the leader until another broker leads


class BrokerPair:
    """Brokers 0 and 1; `leader` leads the only partition of topic t."""

    def __init__(self, first: FakeBroker, second: FakeBroker) -> None:
        self.brokers = (first, second)
        self.leader: Callable[[], int] = lambda: 1
        for broker in self.brokers:
            broker.answers = {
                MetadataRequest.API_KEY: metadata_of(first, second, topics=self._topics),
                FetchRequest.API_KEY: self._fetch,
            }

    def _topics(self, request: Any) -> list[MetadataResponseTopic]:
        leader = self.leader()
        return [MetadataResponseTopic(0, "t", ID, False, [MetadataResponsePartition(0, 0, leader, 0, [leader], [leader], [])])]

    def _fetch(self, request: Any, version: int) -> FetchResponse:
        batch = bytes(build([Record(0, 0, None, b"v", [])]))
        return FetchResponse(0, 0, 0, [FetchableTopicResponse(ID, "t", [PartitionData(0, 0, 1, 1, 0, aborted_transactions=[], records=batch)])])


@pytest.fixture
def pair() -> Iterator[BrokerPair]:
    with FakeBroker() as first, FakeBroker() as second:
        yield BrokerPair(first, second)


@pytest.fixture
def cluster(pair: BrokerPair) -> Iterator[Cluster]:
    with Cluster(addresses(pair.brokers[0].address), TIMEOUT) as cluster:
        yield cluster


@pytest.fixture
def fetcher(cluster: Cluster) -> Iterator[Fetcher]:
    fetcher = Fetcher(cluster, lambda text: None)
    fetcher.assign({("t", 0): 0})
    yield fetcher
    fetcher.close()


def move_leader(pair: BrokerPair) -> None:
    moved_at = time.monotonic() + LEASE
    pair.leader = lambda: int(time.monotonic() < moved_at)


def test_reading_continues_when_another_broker_leads(pair: BrokerPair, cluster: Cluster, fetcher: Fetcher) -> None:
    cluster.limits = Limits(20, TIMEOUT)
    pair.brokers[1].close()
    move_leader(pair)
    assert poll_until(fetcher, 1) == ["v"]


def test_a_leader_that_does_not_answer_is_replaced(pair: BrokerPair, cluster: Cluster, fetcher: Fetcher) -> None:
    cluster.limits = Limits(20, TIMEOUT)
    pair.brokers[1].answers[FetchRequest.API_KEY] = lambda request, version: None
    move_leader(pair)
    assert poll_until(fetcher, 1) == ["v"]


def test_without_a_longer_limit_a_closed_leader_ends_reading_after_the_timeout(pair: BrokerPair, fetcher: Fetcher) -> None:
    pair.brokers[1].close()
    with pytest.raises(Failure, match="broker 1 cannot be reached") as raised:
        poll_until(fetcher, 1)
    assert raised.value.exit_code == Exit.UNREACHABLE
