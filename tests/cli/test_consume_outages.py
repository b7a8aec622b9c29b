"""Reading while one of two leaders does not answer: what can be read is read, and what cannot is reported, or ends the reading in time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from cli.arguments import addresses
from cli.client import Cluster, Exit, Failure
from cli.records.fetching import Fetcher
from protocol.batch import Record, build
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from tests.cli.fake_brokers import FakeBroker, metadata_of
from tests.running import wait_until

pytestmark = pytest.mark.once  # no dependence on the Python version

ID = b"t" * 16
TIMEOUT = 0.4


class Leaders:
    """Brokers 0 and 1, each of which leads the partition of topic t with its number, and has one record there for each offset asked for."""

    def __init__(self, first: FakeBroker, second: FakeBroker) -> None:
        self.brokers = (first, second)
        self.leaders = [0, 1]
        self.reported: list[str] = []
        for broker in self.brokers:
            broker.answers = {MetadataRequest.API_KEY: metadata_of(first, second, topics=self._topics), FetchRequest.API_KEY: self._fetch}

    def _topics(self, request: Any) -> list[MetadataResponseTopic]:
        partitions = [MetadataResponsePartition(0 if leader >= 0 else 5, at, leader, 0, [0, 1], [0], []) for at, leader in enumerate(self.leaders)]
        return [MetadataResponseTopic(0, "t", ID, False, partitions)]

    def _fetch(self, request: Any, version: int) -> FetchResponse:
        time.sleep(0.01)
        return FetchResponse(0, 0, 0, [FetchableTopicResponse(ID, "t", [
            PartitionData(
                part.partition, 0, 1, 1, 0, aborted_transactions=[],
                records=bytes(build([Record(part.fetch_offset, 0, None, b"v", [])])),
            )
            for part in request.topics[0].partitions
        ])])  # fmt: skip

    def read(self, cluster: Cluster, *, endless: bool) -> Fetcher:
        fetcher = Fetcher(cluster, self.reported.append, endless=endless)
        fetcher.assign({("t", 0): 0, ("t", 1): 0})
        return fetcher


@pytest.fixture
def leaders() -> Iterator[Leaders]:
    with FakeBroker() as first, FakeBroker() as second:
        yield Leaders(first, second)


@pytest.fixture
def cluster(leaders: Leaders) -> Iterator[Cluster]:
    with Cluster(addresses(leaders.brokers[0].address), TIMEOUT) as cluster:
        yield cluster


def poll(fetcher: Fetcher, cluster: Cluster) -> bool:
    cluster.patience.renew()
    fetcher.poll(0.05)
    return False


@pytest.mark.parametrize(("kind", "code"), [("frozen", Exit.UNREACHABLE), ("dead", Exit.UNREACHABLE), ("none", Exit.AGAIN)])
def test_a_partition_that_cannot_be_read_ends_a_reading_with_an_end_although_others_can(leaders: Leaders, cluster: Cluster, kind: str, code: int) -> None:
    match kind:
        case "frozen":
            leaders.brokers[1].answers[FetchRequest.API_KEY] = lambda request, version: None
        case "dead":
            leaders.brokers[1].close()
        case "none":
            leaders.leaders = [0, -1]
    fetcher = leaders.read(cluster, endless=False)
    began = time.monotonic()
    with pytest.raises(Failure) as raised:
        wait_until(lambda: poll(fetcher, cluster), 20)
    assert raised.value.exit_code == code
    assert time.monotonic() - began < 5
    assert fetcher.positions["t", 0] > 0
    fetcher.close()


def test_an_endless_reading_goes_on_and_says_once_what_it_does_not_read(leaders: Leaders, cluster: Cluster) -> None:
    answer = leaders.brokers[1].answers[FetchRequest.API_KEY]
    leaders.brokers[1].answers[FetchRequest.API_KEY] = lambda request, version: None
    fetcher = leaders.read(cluster, endless=True)
    wait_until(lambda: poll(fetcher, cluster) or leaders.reported, 20)
    position = fetcher.positions["t", 0]
    wait_until(lambda: poll(fetcher, cluster) or fetcher.positions["t", 0] > position + 20, 20)
    assert len(leaders.reported) == 1
    assert leaders.reported[0].startswith("t 1 cannot be read at the moment, and will be when it can: ")
    leaders.brokers[1].answers[FetchRequest.API_KEY] = answer
    wait_until(lambda: poll(fetcher, cluster) or fetcher.positions["t", 1] > 0, 20)
    assert leaders.reported[1:] == ["t 1 is read again"]
    fetcher.close()


def test_an_endless_reading_ends_when_nothing_can_be_read(leaders: Leaders, cluster: Cluster) -> None:
    for broker in leaders.brokers:
        broker.answers[FetchRequest.API_KEY] = lambda request, version: None
    fetcher = leaders.read(cluster, endless=True)
    with pytest.raises(Failure):
        wait_until(lambda: poll(fetcher, cluster), 20)
    fetcher.close()
