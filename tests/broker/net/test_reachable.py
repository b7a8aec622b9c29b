"""Where a broker listens, and the addresses that it advertises to clients."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.net.sockets import open_sockets
from broker.runtime.start import ExitCode, StartError
from broker.settings.listeners import Listener
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest
from tests.running import Broker, Client, broker
from tests.support.peers import arguments_for, has_ipv6, is_served

NAMED = "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.2:0,OUTSIDE://127.0.0.1:0"
ADVERTISED = "INSIDE://broker.inside.invalid:9094,OUTSIDE://[2001:db8::7]:0"


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def advertised(started: Broker, name: str) -> set[tuple[str, int]]:
    """The broker addresses in every reply that has some, requested at one listener."""
    host, port = started.listeners[name]
    with Client(port, host) as client:
        metadata = client.ask(MetadataRequest([]), 12).brokers
        cluster = client.ask(DescribeClusterRequest(), 1).brokers
        new = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"]), 4).coordinators
        old = client.ask(FindCoordinatorRequest(key="a"), 3)
    return {(node.host, node.port) for node in (*metadata, *cluster, *new, old)}


@pytest.fixture(scope="module")
def named() -> Iterator[Broker]:
    arguments = ("--set", f"listeners={NAMED}", "--set", f"advertised.listeners={ADVERTISED}")
    with broker("--profile", "test", *arguments, listeners=3) as started:
        yield started


def test_each_listener_is_printed_with_its_real_port(named: Broker) -> None:
    assert {name: host for name, (host, _) in named.listeners.items()} == {"PLAINTEXT": "127.0.0.1", "INSIDE": "127.0.0.2", "OUTSIDE": "127.0.0.1"}
    assert len({port for _, port in named.listeners.values()} - {0}) == 3


def test_a_listener_without_an_advertised_address_advertises_its_own(named: Broker) -> None:
    assert advertised(named, "PLAINTEXT") == {named.listeners["PLAINTEXT"]}


def test_an_advertised_name_is_passed_on_unresolved(named: Broker) -> None:
    assert advertised(named, "INSIDE") == {("broker.inside.invalid", 9094)}


def test_an_advertised_port_of_0_is_the_port_listened_on_and_a_literal_has_no_brackets(named: Broker) -> None:
    assert advertised(named, "OUTSIDE") == {("2001:db8::7", named.listeners["OUTSIDE"][1])}


@pytest.mark.once  # no dependence on the Python version
def test_a_wildcard_listener_advertises_only_its_advertised_address() -> None:
    with broker("--profile", "test", "--listen", "0.0.0.0:0", "--advertise", "kafka.example.invalid:19092") as started:
        assert started.listeners["PLAINTEXT"][0] == "0.0.0.0"
        started.listeners["PLAINTEXT"] = ("127.0.0.1", started.port)
        assert advertised(started, "PLAINTEXT") == {("kafka.example.invalid", 19092)}
        assert "every client that reaches the port may do everything" in started.await_line("can be reached")


@pytest.mark.once  # no dependence on the Python version
@needs_ipv6
def test_an_ipv6_literal_is_listened_on_and_advertised(tmp_path: Path) -> None:
    with broker("--listen", "[::1]:0", "--data", str(tmp_path)) as started:
        assert advertised(started, "PLAINTEXT") == {("::1", started.port)}


@pytest.mark.once  # no dependence on the Python version
@needs_ipv6
def test_an_empty_host_is_every_address_of_both_families() -> None:
    with broker("--profile", "test", "--listen", ":0", "--advertise", "here.invalid:0") as started:
        for host in ("127.0.0.1", "127.0.0.3", "::1"):
            with Client(started.port, host) as client:
                assert [(node.host, node.port) for node in client.ask(MetadataRequest([]), 12).brokers] == [("here.invalid", started.port)]


@pytest.mark.once  # no dependence on the Python version
@needs_ipv6
def test_listeners_of_both_families_may_share_a_port(tmp_path: Path) -> None:
    with broker(*arguments_for(tmp_path)) as first:
        port = first.port
    with broker("--data", str(tmp_path), "--set", f"listeners=OLD://127.0.0.1:{port},NEW://[::1]:{port}", listeners=2) as started:
        assert advertised(started, "OLD") == {("127.0.0.1", port)}
        assert advertised(started, "NEW") == {("::1", port)}


@pytest.mark.once  # no dependence on the Python version
def test_localhost_is_advertised_as_localhost_and_answers_on_all_its_addresses() -> None:
    with broker("--profile", "test", "--listen", "localhost:0") as started:
        assert advertised(started, "PLAINTEXT") == {("localhost", started.port)}
        addresses = {address[0] for *_, address in socket.getaddrinfo("localhost", started.port, type=socket.SOCK_STREAM)}
        for address in addresses:
            with Client(started.port, str(address)) as client:
                assert is_served(client)


# Tests with a made-up name that has several addresses.


def listener(port: int = 0) -> Listener:
    return Listener("PLAINTEXT", "several.invalid", port, "several.invalid", port)


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    def resolve(host: str | None, port: int, **options: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        families = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in addresses]
        return [(family, socket.SOCK_STREAM, 6, "", (address, port)) for family, address in zip(families, addresses, strict=True)]

    monkeypatch.setattr("broker.net.sockets.socket.getaddrinfo", resolve)


def bound_addresses(sockets: list[socket.socket]) -> set[tuple[str, int]]:
    addresses = {sock.getsockname()[:2] for sock in sockets}
    for sock in sockets:
        sock.close()
    return addresses


@needs_ipv6
def test_a_host_name_listens_on_all_its_addresses_on_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, "127.0.0.1", "::1", "127.0.0.2", "127.0.0.1")
    sockets, port = open_sockets(listener(), 16)
    assert bound_addresses(sockets) == {("127.0.0.1", port), ("::1", port), ("127.0.0.2", port)}


def test_an_address_of_a_host_name_foreign_to_this_machine_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, "2001:db8::1", "127.0.0.1")
    sockets, port = open_sockets(listener(), 16)
    assert bound_addresses(sockets) == {("127.0.0.1", port)}


def test_a_port_taken_on_one_address_of_a_host_name_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, "127.0.0.1", "127.0.0.2")
    with socket.create_server(("127.0.0.2", 0)) as other_server:
        port = other_server.getsockname()[1]
        with pytest.raises(StartError, match="another process uses the port") as refused:
            open_sockets(listener(port), 16)
        assert refused.value.code == ExitCode.LISTEN
        socket.create_server(("127.0.0.1", port)).close()  # succeeds, as the socket that was opened on the first address has been closed


def test_a_free_port_is_free_on_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port found on the first address may be taken on the second: then another port is tried."""
    resolve_to(monkeypatch, "127.0.0.1", "127.0.0.2")
    bind = socket.socket.bind
    refusals = [errno.EADDRINUSE] * 3

    def taken_at_first(sock: socket.socket, address: tuple[str, int]) -> None:
        if address[0] == "127.0.0.2" and refusals:
            raise OSError(refusals.pop(), "in use")
        bind(sock, address)

    monkeypatch.setattr("broker.net.sockets.socket.socket.bind", taken_at_first)
    sockets, port = open_sockets(listener(), 16)
    assert refusals == []
    assert bound_addresses(sockets) == {("127.0.0.1", port), ("127.0.0.2", port)}
