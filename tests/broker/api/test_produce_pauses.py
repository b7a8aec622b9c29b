"""Batches that take seconds to check, on a started broker: other clients are answered in the meantime, and stops and kills work as usual."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from protocol.compression import compress
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.protocol.nasty_batches import LAYOUTS, body
from tests.running import Client
from tests.support.headers import encode_request
from tests.support.pinger import PAUSE_SECONDS_MAX, pinging, result_of
from tests.support.produce_batches import batch, plain_batch, record, varint
from tests.support.restartable import RestartableBroker

pytestmark = pytest.mark.once
MANY = 60_000
LONG = 250_000  # too many records for the short lane of the checker, so this batch is checked in the long lane
ANSWER_SECONDS = 60
STOP_SECONDS = 3.0


def batch_with_count(raw: bytes, count: int, codec: int) -> bytes:
    return batch(raw=compress(raw, codec), attributes=codec, record_count=count, last_offset_delta=count - 1)


def slow_batches() -> dict[str, tuple[str, bytes]]:
    in_turn = body(LAYOUTS["keys null and empty in turn"], MANY)
    headers = body(LAYOUTS["empty header each"], 60_000)
    return {
        "in turn, zstd": ("plain", batch_with_count(in_turn, MANY, 4)),
        "in turn, gzip": ("plain", batch_with_count(in_turn, MANY, 1)),
        "a header each, uncompressed": ("plain", batch_with_count(headers, 60_000, 0)),
        "headers of one record": ("plain", batch_with_count(record(headers=varint(400_000) + b"\0\1" * 400_000), 1, 0)),
        "zeros": ("plain", batch_with_count(record(value=bytes(95 << 20)), 1, 4)),
        "many empty gzip members": ("plain", batch(raw=compress(b"", 1) * 50_000, attributes=1, record_count=1, last_offset_delta=0)),
        "to be recompressed": ("gzip", batch_with_count(in_turn, MANY, 4)),
        "to be refused one by one": ("compact", batch_with_count(in_turn, MANY, 4)),
    }


def request(topic: str, data: bytes) -> ProduceRequest:
    return ProduceRequest(None, -1, 30_000, [TopicProduceData(topic, [PartitionProduceData(0, data)])])


def answer(client: Client, topic: str, data: bytes) -> tuple[int, int]:
    client.socket.settimeout(ANSWER_SECONDS)
    (part,) = client.ask(request(topic, data), 9).responses[0].partition_responses
    return part.error_code, part.base_offset


def answer_once_open(client: Client, topic: str, data: bytes) -> tuple[int, int]:
    """Produce until the log is open: after a start, logs open in the background, and producers get a retriable error meanwhile."""
    until = time.monotonic() + ANSWER_SECONDS
    while (result := answer(client, topic, data))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER and time.monotonic() < until:
        time.sleep(0.05)
    return result


def create_topics(client: Client) -> None:
    settings_by_topic = {"plain": {}, "gzip": {"compression.type": "gzip"}, "compact": {"cleanup.policy": "compact"}}
    topics = [
        CreatableTopic(name, 1, 1, [], [CreatableTopicConfig(key, value) for key, value in settings.items()]) for name, settings in settings_by_topic.items()
    ]
    client.ask(CreateTopicsRequest(topics, 10_000, False), 5)


@pytest.mark.alone
def test_checking_a_large_batch_does_not_block_other_clients(tmp_path: Path) -> None:
    batches = slow_batches()
    with RestartableBroker(tmp_path / "data", "log.level=warning") as restartable, Client(restartable.port) as client:
        assert restartable.broker is not None
        create_topics(client)
        with pinging(restartable.port, restartable.broker.pid) as pinger:
            answers = {name: answer(client, topic, data)[0] for name, (topic, data) in batches.items()}
            # Many expensive batches in one write, between cheap ones.
            frames = [framed(data) for data in [plain_batch(), irregular()] * 20]
            client.socket.sendall(b"".join(frames))
            for _ in frames:
                client.frame()
            result = result_of(pinger)
    assert set(answers.values()) == {0, 87}
    print(result)
    assert result["worked"] < PAUSE_SECONDS_MAX


def irregular() -> bytes:
    """A batch of as many records as the event loop itself checks, with as little in common as possible."""
    return batch_with_count(body(LAYOUTS["empty header each"], 1_400), 1_400, 0)


def framed(data: bytes) -> bytes:
    produce = request("plain", data)
    return encode_request(produce.API_KEY, 9, 1, "test", produce.encode(9))


def children(pid: int) -> list[int]:
    output = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(word) for word in output.split()]


def await_children(pid: int) -> list[int]:
    until = time.monotonic() + ANSWER_SECONDS
    while not (pids := children(pid)):
        assert time.monotonic() < until
        time.sleep(0.005)
    return pids


@pytest.mark.clients
def test_a_killed_checker_is_replaced_and_a_stop_ends_all_checkers(tmp_path: Path) -> None:
    long = batch_with_count(body(LAYOUTS["keys null and empty in turn"], LONG), LONG, 4)
    restartable = RestartableBroker(tmp_path / "data", "log.level=warning")
    with restartable, Client(restartable.port) as client, Client(restartable.port) as second_client:
        assert restartable.broker is not None
        create_topics(client)
        client.socket.settimeout(ANSWER_SECONDS)
        client.send(request("plain", long), 9)
        for pid in await_children(restartable.broker.pid):
            os.kill(pid, signal.SIGKILL)
        assert answer(second_client, "gzip", plain_batch()) == (0, 0)
        (part,) = client.receive(request("plain", long), 9).responses[0].partition_responses
        assert (part.error_code, part.base_offset, part.error_message) == (0, 0, None), restartable.broker.errors()

        client.send(request("plain", long), 9)
        time.sleep(0.2)
        checkers = await_children(restartable.broker.pid)
        begin = time.monotonic()
        restartable.stop()
        assert time.monotonic() - begin < STOP_SECONDS + 1
        for pid in checkers:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        try:  # the check may have ended before the stop, more often in the compiled build
            (part,) = client.receive(request("plain", long), 9).responses[0].partition_responses
            stored = 2 * LONG if part.error_code == 0 else LONG
        except ConnectionError:
            stored = LONG
        restartable.start()
        with Client(restartable.port) as reconnected:
            assert answer_once_open(reconnected, "plain", plain_batch()) == (0, stored)
