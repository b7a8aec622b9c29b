"""docker/compose.yaml works: its consumers keep their partitions through their own restarts and the broker's.

The tests run in containers if a Docker daemon answers, and always with processes of this machine that run the containers' commands.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from protocol.messages.metadata import MetadataRequest
from tests.docker.daemon import DockerServices
from tests.docker.files import EXAMPLE
from tests.docker.standing_in import LocalServices
from tests.kafka_process import free_ports
from tests.running import Client

pytestmark = pytest.mark.clients

SECONDS = 60
CONSUMERS = ("consumer-1", "consumer-2")
ASSIGNED = re.compile(r"assigned in generation (\d+): (.+)")
ORDER = re.compile(r"generation (\d+), orders-(\d) offset (\d+): order (\d+)")
SENT = re.compile(r"(\d+) orders sent")
OVER = re.compile(r"generation \d+ is over")

Example = LocalServices | DockerServices


class Seat(NamedTuple):
    """The last assignment of a consumer."""

    generation: str
    partitions: str


@pytest.fixture(params=["here", "in Docker"])
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Example]:
    (port,) = free_ports(1)
    started: Example
    if request.param == "here":
        started = LocalServices(EXAMPLE, tmp_path, SECONDS="0.2")
        for service in (*CONSUMERS, "producer"):
            started.up(service)
    else:
        started = DockerServices(EXAMPLE, KAFKA_PORT=str(port))
        started.up()
    yield started
    started.down()


def eventually(holds: Callable[[], object], example: Example) -> None:
    until = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < until, {service: example.lines(service)[-20:] for service in (*CONSUMERS, "tenure")}
        time.sleep(0.1)


def matches(pattern: re.Pattern[str], example: Example, service: str, after: int = 0) -> list[re.Match[str]]:
    return [match for line in example.lines(service)[after:] if (match := pattern.search(line))]


def seats(example: Example) -> list[Seat]:
    """The last assignment of each consumer; [] until these cover all partitions, in the same generation."""
    last = [Seat(*match.groups()) for consumer in CONSUMERS for match in matches(ASSIGNED, example, consumer)[-1:]]
    held = sorted(partition for seat in last for partition in seat.partitions.split(", "))
    all_held = held == [f"orders-{number}" for number in range(4)]
    return last if all_held and len(last) == len(CONSUMERS) and len({seat.generation for seat in last}) == 1 else []


def await_orders(example: Example) -> None:
    """Wait until each consumer has read two more orders."""
    counts = {consumer: len(example.lines(consumer)) for consumer in CONSUMERS}
    eventually(lambda: all(len(matches(ORDER, example, consumer, counts[consumer])) > 1 for consumer in CONSUMERS), example)


def await_settled_seats(example: Example) -> list[Seat]:
    """The seats, once they stay the same: the leader begins a second rebalance when it learns of the topic's partitions."""
    while True:
        eventually(lambda: seats(example), example)
        before = seats(example)
        await_orders(example)
        if before == seats(example):
            return before


def test_consumers_keep_their_partitions_over_restarts_and_no_record_is_lost_or_repeated(example: Example) -> None:
    before = await_settled_seats(example)
    begun = {consumer: len(example.lines(consumer)) for consumer in CONSUMERS}

    example.restart("consumer-1")
    eventually(lambda: matches(ASSIGNED, example, "consumer-1", begun["consumer-1"]), example)
    await_orders(example)
    example.restart("tenure")
    await_orders(example)

    assert example.stop("producer") == 0
    (sent,) = matches(SENT, example, "producer")
    orders = set(range(1, int(sent[1]) + 1))
    eventually(lambda: orders <= {int(order[4]) for consumer in CONSUMERS for order in matches(ORDER, example, consumer)}, example)
    for consumer in CONSUMERS:
        assert example.stop(consumer) == 0

    order_lines = [order for consumer in CONSUMERS for order in matches(ORDER, example, consumer)]
    assert sorted(int(order[4]) for order in order_lines) == sorted(orders)
    assert len({order.group(2, 3) for order in order_lines}) == len(orders)  # no two orders have the same offset
    assert seats(example) == before
    assert not [match for consumer in CONSUMERS for match in matches(OVER, example, consumer, begun[consumer])]
    assert {order[1] for consumer in CONSUMERS for order in matches(ORDER, example, consumer, begun[consumer])} == {before[0].generation}
    assert not matches(ASSIGNED, example, "consumer-2", begun["consumer-2"])


def test_the_broker_is_reachable_from_this_machine_and_from_containers() -> None:
    (port,) = free_ports(1)
    example = DockerServices(EXAMPLE, KAFKA_PORT=str(port))
    example.up("tenure", "producer")
    try:
        with Client(port) as client:
            (node,) = client.ask(MetadataRequest([]), 9).brokers
        assert (node.host, node.port) == ("127.0.0.1", port)
        eventually(lambda: example.compose("exec", "-T", "tenure", "tenure", "cluster").count("tenure"), example)
    finally:
        example.down()
