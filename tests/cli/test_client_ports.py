"""Ports without a Kafka broker that the command can use: it prints one line that names the listener, within the timeout."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from cli.arguments import addresses
from cli.client import Cluster, Exit, Failure
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from tests.cli.fake_brokers import Close, FakeBroker, exactly, frame_of, read_frame
from tests.cli.other_servers import (
    OtherServer,
    Serve,
    answer_as_web_server,
    answer_half,
    answer_slowly,
    answer_with,
    close,
    keep_silent,
    reset,
)

pytestmark = pytest.mark.once  # no dependence on the Python version

TLS = "wants TLS: name a file with security.protocol=SSL, or SASL_SSL for a login, by --config (docs/secured.md)"
LONG_TIMEOUT = 5.0  # enough for an answer on a busy machine


def failure(address: str, timeout: float = LONG_TIMEOUT) -> Failure:
    begin = time.monotonic()
    with Cluster(addresses(address), timeout) as cluster, pytest.raises(Failure) as raised:
        cluster.brokers  # noqa: B018 (asks)
    assert time.monotonic() - begin < timeout + 1
    assert raised.value.exit_code == Exit.UNREACHABLE
    assert "\n" not in raised.value.line
    return raised.value


def tls(connection: socket.socket) -> None:
    """A TLS server without a certificate: the handshake fails with an alert, which shows that it speaks TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.wrap_socket(connection, server_side=True).close()


def tls_that_ignores_others(connection: socket.socket) -> None:
    """A TLS server that is silent to clients that do not begin with a TLS handshake."""
    if connection.recv(1, socket.MSG_PEEK) == b"\x16":
        tls(connection)
    keep_silent(connection)


def tls_that_hangs_up_on_others(connection: socket.socket) -> None:
    if connection.recv(1, socket.MSG_PEEK) == b"\x16":
        tls(connection)


@pytest.mark.parametrize(
    ("serve", "line"),
    [
        (answer_with(b"\x15\x03\x03\0\2\2\x50"), TLS),
        (answer_with(b"\x15\x03\x01\0\2\2\x46"), TLS),
        (tls, TLS),
        (tls_that_hangs_up_on_others, TLS),
        (answer_with(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "is a web server (HTTP), not a Kafka broker"),
        (answer_with(b"SSH-2.0-OpenSSH_9.2\r\n"), "is not a Kafka broker: it sends 'SSH-2.0-OpenSSH_9.2'"),
        (answer_with(b"-ERR unknown\x1b[31m command\r\n"), "is not a Kafka broker: its answer is not in Kafka's protocol"),
        (answer_with(struct.pack(">ii", 4, 99)), "is not a Kafka broker: its answer is not in Kafka's protocol"),
        (answer_with(struct.pack(">i", -1)), "is not a Kafka broker: its answer is not in Kafka's protocol"),
        (answer_with(struct.pack(">iih", 6, 1, 0)), ": its reply to ApiVersions is invalid"),
        (close, "closes connections without an answer: is a Kafka broker there?"),
        (reset, "closes connections without an answer: is a Kafka broker there?"),
        (answer_half, "closes connections without an answer: is a Kafka broker there?"),
    ],
)
def test_another_protocol_on_the_port_is_named_at_once(serve: Serve, line: str) -> None:
    with OtherServer(serve) as port:
        begin = time.monotonic()
        assert failure(port.address).line.startswith(f"{port.address}{line if line.startswith(':') else f' {line}'}")
        assert time.monotonic() - begin < LONG_TIMEOUT


@pytest.mark.parametrize(
    ("serve", "line"),
    [
        (tls_that_ignores_others, TLS),
        (answer_as_web_server, "is a web server (HTTP), not a Kafka broker"),
        (keep_silent, "accepts connections, but does not answer within 0.7 s"),
        (answer_slowly, "accepts connections, but does not answer within 0.7 s"),
    ],
)
def test_a_silent_port_is_probed_for_other_protocols_within_the_timeout(serve: Serve, line: str) -> None:
    with OtherServer(serve) as port:
        assert failure(port.address, 0.7).line == f"{port.address} {line}"


def test_a_refused_connection_is_reported_at_once() -> None:
    with OtherServer(keep_silent) as port:
        address = port.address
    begin = time.monotonic()
    assert failure(address, 30).line == f"{address}: connection refused (is a broker running there?)"
    assert time.monotonic() - begin < 5


def test_a_host_name_without_an_address_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*arguments: object, **options: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert failure("kafka.example").line == "kafka.example:9092: unknown host name (Name or service not known)"


def test_looking_up_a_name_takes_no_longer_than_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: answered.wait(20) and [])
    assert failure("kafka.example:9092", 0.2).line == "kafka.example:9092 does not answer within 0.2 s"
    answered.set()


def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch, bootstrap: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as blocker:
        nobody = blocker.getsockname()
    host, _, port = bootstrap.rpartition(":")
    entries = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in (nobody, (host, int(port)))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: entries)
    with Cluster([("kafka.example", 9092)], LONG_TIMEOUT) as cluster:
        assert cluster.id


@pytest.fixture(scope="module")
def ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6: enable it on the loopback interface")


@pytest.mark.usefixtures("ipv6")
def test_an_ipv6_address_is_connected_to_and_printed_in_brackets() -> None:
    with OtherServer(close, "::1") as port:
        assert failure(port.address).line.startswith("[::1]:")


class SaslBroker(FakeBroker):
    """Answers ApiVersions and SaslHandshake, and closes the connection at any other request before authentication."""

    def __init__(self, mechanisms: tuple[str, ...]) -> None:
        self._mechanisms = [name.encode() for name in mechanisms]
        super().__init__(versions={18: (0, 4), 3: (0, 13), 17: (0, 1)})

    def serve(self, connection: socket.socket) -> None:
        while True:
            frame = read_frame(connection)
            key, version, correlation_id = struct.unpack(">hhi", frame[:8])
            if key == 18:
                body = ApiVersionsResponse(api_keys=[ApiVersion(key, *span) for key, span in self.versions.items()]).encode(version)
            elif key == 17:
                names = b"".join(struct.pack(">h", len(name)) + name for name in self._mechanisms)
                body = struct.pack(">hi", 33, len(self._mechanisms)) + names
            else:
                raise Close
            connection.sendall(frame_of(struct.pack(">i", correlation_id) + body))


@pytest.fixture
def sasl() -> Iterator[SaslBroker]:
    with SaslBroker(("PLAIN", "SCRAM-SHA-512\x1b[31m")) as broker:
        yield broker


def test_a_sasl_listener_is_named_with_its_mechanisms(sasl: SaslBroker) -> None:
    offered = "PLAIN, SCRAM-SHA-512\\x1b[31m"
    remedy = "name a file with security.protocol and sasl.jaas.config by --config, or use --user (docs/secured.md)"
    expected = f"{sasl.address} wants a login ({offered}): {remedy}"
    assert failure(sasl.address).line == expected


def test_a_closed_connection_alone_does_not_mean_sasl() -> None:
    def cut(request: object, version: int) -> None:
        raise Close

    with FakeBroker({3: cut}, versions={18: (0, 4), 3: (0, 13), 17: (0, 1)}) as broker:
        assert failure(broker.address, 1.0).line == f"{broker.address} closed the connection before it answered Metadata"


def test_a_controller_is_distinguished_from_a_broker() -> None:
    with FakeBroker(versions={18: (0, 4), 52: (0, 2)}) as controller:
        assert failure(controller.address).line == f"{controller.address} is no broker (a KRaft controller, perhaps): name a listener for clients"


def test_the_fake_brokers_read_whole_frames() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"abc")
        assert exactly(right, 3) == b"abc"
