"""Ten thousand logs open under continuous Metadata requests, about as fast as without them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from protocol.batch import Record, build
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.running import Broker, Client, broker

pytestmark = [pytest.mark.clients, pytest.mark.once]

TOPICS, PARTITIONS = 100, 100


def arguments(data: Path) -> tuple[str, ...]:
    return ("--data", str(data), "--listen", "127.0.0.1:0", "--set", "partitions.max=20000")


def write_all(data: Path) -> None:
    """Create all topics, and append a record to each partition."""
    batch = build([Record(0, 1_000, b"k", bytes(50), [])])
    with broker(*arguments(data)) as started, Client(started.port) as client:
        for number in range(TOPICS):
            name = f"t{number}"
            created = client.ask(CreateTopicsRequest([CreatableTopic(name, PARTITIONS, 1, [], [])], 60_000), 7)
            assert not created.topics[0].error_code
            partitions = [PartitionProduceData(index, batch) for index in range(PARTITIONS)]
            written = client.ask(ProduceRequest(None, 1, 60_000, [TopicProduceData(name, partition_data=partitions)]), 9)
            assert not any(partition_response.error_code for partition_response in written.responses[0].partition_responses)
        assert started.stop() == 0


def opened(client: Client) -> int:
    (log_dir,) = client.ask(DescribeLogDirsRequest(None), 4).results
    return sum(len(topic.partitions) for topic in log_dir.topics if not topic.name.startswith("__"))


class MetadataClient(threading.Thread):
    """Requests the metadata of all topics in a loop."""

    def __init__(self, started: Broker) -> None:
        super().__init__(daemon=True)
        self.client = Client(started.port)
        self.replies = 0
        self.enough = False

    def run(self) -> None:
        request = MetadataRequest(None)
        while not self.enough:
            self.client.send(request, 12)
            unread = int.from_bytes(self.client.exactly(4), "big")
            while unread:
                unread -= len(self.client.socket.recv(min(unread, 1 << 20)))
            self.replies += 1


def seconds_to_open(data: Path, asks: bool) -> tuple[float, int]:
    """The seconds from listening until all logs are open, and the Metadata replies in that time. `asks`: whether a client sends requests."""
    with broker(*arguments(data)) as started, Client(started.port) as client:
        begin = time.monotonic()
        asking = MetadataClient(started)
        if asks:
            asking.start()
        while opened(client) < TOPICS * PARTITIONS:
            assert time.monotonic() - begin < 120
            time.sleep(0.2)
        seconds = time.monotonic() - begin
        asking.enough = True
        if asks:
            asking.join()
        asking.client.socket.close()
        assert started.stop() == 0
        return seconds, asking.replies


def test_continuous_metadata_requests_hardly_delay_the_opening_of_logs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_all(data)
    without_requests, _ = seconds_to_open(data, asks=False)
    with_requests, replies = seconds_to_open(data, asks=True)
    assert replies > 100
    assert with_requests < 5 * without_requests + 5, (without_requests, with_requests)
