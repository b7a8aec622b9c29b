"""Hostile bytes to a running broker: their connection is closed with a logged reason, and other clients notice nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from random import Random
from struct import pack

import pytest

from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.running import Broker, Client, broker
from tests.support.peers import (
    EVERY_TOPIC,
    LOOPS,
    NO_TOPIC,
    becomes_true,
    bytes_of,
    clients,
    close_reasons,
    defects,
    is_served,
    log_lines,
    serve_options,
)

pytestmark = pytest.mark.once  # bytes and sockets do not depend on the Python version

TOO_LONG = "socket.request.max.bytes"
TLS_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(range(64))


def frame(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


def head(key: int, version: int, client_id: bytes = b"\0\4peer") -> bytes:
    return pack(">hhi", key, version, 7) + client_id


@pytest.fixture(scope="module", params=LOOPS)
def running(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with broker(*serve_options(request.param)) as started:
        yield started
        assert defects(started) == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (pack(">i", -1), TOO_LONG),
        (pack(">i", -(1 << 31)), TOO_LONG),
        (pack(">i", (1 << 31) - 1), TOO_LONG),
        (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", "it looks like HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", TOO_LONG),
        (TLS_HELLO, "it looks like TLS"),
        (frame(b""), "a request of 0 bytes has no room"),
        (frame(b"nonsense"), "a request of 8 bytes has no room"),
        (frame(head(3, 12)[:10] + b"\xff"), "Metadata"),
        (frame(head(4, 7)), "API key 4"),  # LeaderAndIsr, which only brokers send
        (frame(head(999, 0)), "API key 999"),
        (frame(head(-1, 0)), "API key -1"),
        (frame(head(3, 99)), "Metadata version 99"),
        (frame(head(3, -1)), "Metadata version -1"),
        (frame(head(18, -1)), "ApiVersions version -1"),
        (frame(head(3, 1, b"\x7f\xff") + bytes(20)), "client id"),
        (frame(head(3, 1, b"\xff\xfe") + bytes(20)), "client id"),
        (frame(head(3, 1) + pack(">i", 500_000_000)), "array"),
        (frame(head(3, 1) + pack(">ih", 1, 30_000)), "cut short"),
        (frame(head(3, 12) + b"\0\xff\xff\xff\xff\x07"), "array"),
        (frame(head(3, 12) + b"\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "varint"),
        (frame(head(3, 12) + b"\xff\xff\xff\xff\x0f"), "varint"),
        (frame(head(19, 4) + pack(">i", 1 << 30)), "array"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[:12].hex(),
)
def test_each_kind_of_malformed_frame_closes_its_connection_with_a_reason(running: Broker, data: bytes, reason: str) -> None:
    reasons_before = len(close_reasons(running))
    with clients(2, running.port) as (bystander_client, hostile):
        hostile.socket.sendall(data)
        assert hostile.await_close()
        assert becomes_true(lambda: len(close_reasons(running)) > reasons_before)
        assert reason in close_reasons(running)[-1]
        assert "\n" not in close_reasons(running)[-1]
        assert is_served(bystander_client)


def test_requests_before_a_malformed_frame_are_answered(running: Broker) -> None:
    reasons_before = len(close_reasons(running))
    with Client(running.port) as hostile:
        hostile.socket.sendall(NO_TOPIC + NO_TOPIC + frame(b"nonsense") + NO_TOPIC)
        for _ in range(2):
            assert hostile.receive(MetadataRequest([]), 12).brokers
        assert hostile.await_close()
    assert becomes_true(lambda: len(close_reasons(running)) > reasons_before)  # wait for this line, so that the next test does not count it


def test_an_incomplete_frame_uses_only_the_memory_of_received_bytes(running: Broker) -> None:
    before = running.memory_kib()
    with clients(50, running.port) as liars:
        for client in liars:
            client.socket.sendall(pack(">i", 100_000_000) + head(3, 12))
        with Client(running.port) as bystander_client:
            assert is_served(bystander_client)
        assert running.memory_kib() - before < 4 * 1024


# Many hostile frames


def valid_requests() -> list[bytes]:
    """Requests of five APIs, in old and new formats, as sent over the wire."""
    config = CreatableTopicConfig("cleanup.policy", "compact")
    topics = [CreatableTopic(f"hostile-{number}", 3, 1, [], [config]) for number in range(3)]
    names = [MetadataRequestTopic(name="some-topic"), MetadataRequestTopic(name="another")]
    return [
        *(bytes_of(ApiVersionsRequest("peer", "1.0"), version) for version in (0, 3, 4)),
        *(bytes_of(MetadataRequest(names, False), version) for version in (4, 8, 9, 12)),
        *(bytes_of(FindCoordinatorRequest(key="group", coordinator_keys=["group", "other"]), version) for version in (0, 3, 4)),
        *(bytes_of(CreateTopicsRequest(topics, 5000, validate_only=True), version) for version in (2, 5, 7)),
        *(bytes_of(DescribeClusterRequest(), version) for version in (0, 1)),
        EVERY_TOPIC,
    ]


def hostile_bytes(seed: int, count: int) -> Iterator[bytes]:
    """Every truncation of every valid request, then random changes of valid requests: `count` requests in all."""
    valid = valid_requests()
    truncated = [frame(request[4:end]) for request in valid for end in range(4, len(request))]
    yield from truncated
    random = Random(seed)
    for _ in range(count - len(truncated)):
        yield mutated(bytearray(random.choice(valid)), random)


def mutated(data: bytearray, random: Random) -> bytes:
    kind = random.randrange(8)
    if kind == 0:  # bits flipped anywhere, including the length prefix
        for _ in range(random.randint(1, 8)):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif kind == 1:  # bits flipped after the length prefix
        for _ in range(random.randint(1, 8)):
            data[random.randrange(4, len(data))] ^= 1 << random.randrange(8)
    elif kind == 2:  # a false length or count: four bytes anywhere
        at = random.randrange(4, len(data) - 3)
        data[at : at + 4] = pack(">i", random.choice((-1, -2, 1 << 30, (1 << 31) - 1, -(1 << 31), 100_000)))
    elif kind == 3:  # a false varint
        at = random.randrange(4, len(data))
        data[at : at + 1] = random.choice((b"\xff" * 4 + b"\x0f", b"\xff" * 9 + b"\x01", b"\xff" * 12, b"\0", b"\x01"))
        data[:4] = pack(">i", len(data) - 4)
    elif kind == 4:  # another API, another version
        data[4:8] = pack(">hh", random.randrange(-2, 95), random.randrange(-1, 20))
    elif kind == 5:  # bytes lost or doubled
        at, end = sorted(random.randrange(4, len(data)) for _ in range(2))
        data[at:end] = data[at:end] * random.choice((0, 2, 5))
        data[:4] = pack(">i", len(data) - 4)
    elif kind == 6:  # random bytes
        return frame(random.randbytes(random.randrange(200)))
    else:
        return random.randbytes(random.randrange(1, 200))
    return bytes(data)


def send_and_drain(port: int, data: bytes) -> None:
    """Send the bytes, end the stream, and read until the broker closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock, contextlib.suppress(ConnectionError):
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65_536):
            pass


class Bystander(threading.Thread):
    """Asks for metadata continuously on one connection, and records how long each reply takes."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._port = port
        self._over = threading.Event()

    def run(self) -> None:
        with Client(self._port) as client:
            while not self._over.wait(0.002):
                begin = time.monotonic()
                assert is_served(client)
                self.waits.append(time.monotonic() - begin)

    def stop(self) -> list[float]:
        self._over.set()
        self.join()
        return sorted(self.waits)


@pytest.mark.alone
@pytest.mark.parametrize(("loop", "count"), [("uvloop", 10_000), ("asyncio", 4_000)])
def test_thousands_of_hostile_frames_change_nothing(loop: str, count: int) -> None:
    storm = hostile_bytes(20_251_121, count)
    with broker(*serve_options(loop, "partitions.max=60")) as started:
        for _ in range(count // 4):
            send_and_drain(started.port, next(storm))
        before, reasons_before = started.memory_kib(), len(close_reasons(started))
        bystander = Bystander(started.port)
        bystander.start()
        try:
            for data in storm:
                send_and_drain(started.port, data)
        finally:
            waits = bystander.stop()
        assert started.memory_kib() - before < 4 * 1024
        assert len(waits) > 100
        assert waits[int(len(waits) * 0.99)] < 0.25
        assert len(close_reasons(started)) - reasons_before > count // 4
        assert defects(started) == []
        transactions = "transactions are not served by this broker"  # logged once for each transactional id
        usual = {"setting", "listening", "connection closed", "data is temporary: it is removed when this process ends", transactions}
        assert {entry["event"] for entry in log_lines(started)} <= usual
        with Client(started.port) as client:
            assert is_served(client)
        assert started.stop() == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_peers_that_disconnect_midway_leave_no_state(loop: str) -> None:
    """Peers reset their connections in the middle of a request, or before they have read the replies."""
    with broker(*serve_options(loop)) as started, Client(started.port) as bystander_client:
        for number in range(1_000):
            sock = socket.create_connection(("127.0.0.1", started.port), timeout=10)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
            sock.sendall(EVERY_TOPIC[: number % (len(EVERY_TOPIC) + 1)] if number % 2 else EVERY_TOPIC * 5)
            sock.close()
        assert is_served(bystander_client)
        assert defects(started) == []
        assert started.stop() == 0
