"""Channels end at their deadlines, and a TLS channel with bytes on its socket need not have data for the caller."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from secured.channel import Channel, TlsChannel
from secured.hidden import Secret
from secured.tls import Tls, encrypt
from tests.secured.certificates import Certificates
from tests.secured.listeners import server_context

LONG = 20.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@contextmanager
def connected(certificates: Certificates, serve: Callable[[ssl.SSLSocket], None], newest: ssl.TLSVersion | None = None) -> Iterator[Channel]:
    """A TLS channel to a server of one connection."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(LONG)

    def run() -> None:
        with server_context(certificates.broker, newest=newest).wrap_socket(theirs, server_side=True) as encrypted:
            serve(encrypted)

    server = threading.Thread(target=run)
    server.start()
    tls = Tls(where=str, trusted_file=certificates.ca)
    channel = encrypt(ours, "127.0.0.1", tls, time.monotonic() + LONG, lambda deadline: ours)
    try:
        yield channel
    finally:
        channel.close()
        server.join(LONG)


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_what_has_arrived_is_data_and_not_a_session_ticket(certificates: Certificates, newest: ssl.TLSVersion) -> None:
    go, big = threading.Event(), bytes(range(256)) * 1000

    def serve(encrypted: ssl.SSLSocket) -> None:
        assert go.wait(LONG)
        encrypted.sendall(big)
        assert encrypted.recv(1) == b"x"

    with connected(certificates, serve, newest) as channel:
        assert isinstance(channel, TlsChannel)
        assert not channel.arrived(0.3)
        go.set()
        assert channel.arrived(LONG)
        assert channel.arrived(0)
        assert channel.receive_exactly(len(big), time.monotonic() + LONG) == big
        assert not channel.arrived(0)
        channel.send(b"x", time.monotonic() + LONG)
        assert channel.arrived(LONG)
        assert channel.receive(1, time.monotonic() + LONG) == b""


def test_calls_end_at_their_deadlines(certificates: Certificates) -> None:
    done = threading.Event()
    with connected(certificates, lambda encrypted: assert_true(done.wait(LONG))) as channel:
        for call in (lambda: channel.receive(1, time.monotonic() + 0.2), lambda: channel.send(bytes(50_000_000), time.monotonic() + 0.2)):
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                call()
            assert time.monotonic() - began < LONG / 2
        with pytest.raises(TimeoutError):
            channel.send(b"x", time.monotonic() - 1)
        done.set()


def assert_true(value: bool) -> None:
    assert value


def test_a_handshake_that_drips_ends_at_its_deadline(certificates: Certificates) -> None:
    """Each byte comes in time; all of them would not."""
    ours, theirs = socket.socketpair()
    done = threading.Event()

    def drip() -> None:
        while not done.wait(0.05):
            try:
                theirs.sendall(b"\x02")
            except OSError:
                return

    thread = threading.Thread(target=drip)
    head = b"\x16\x03\x03\x3f\xff"  # a record of 16,383 bytes
    theirs.sendall(head)
    thread.start()
    began = time.monotonic()
    try:
        with pytest.raises(TimeoutError):
            encrypt(ours, "127.0.0.1", Tls(where=str, trusted_file=certificates.ca), time.monotonic() + 0.5, lambda deadline: ours)
        assert time.monotonic() - began < LONG / 2
    finally:
        done.set()
        thread.join(LONG)
        theirs.close()


def test_a_key_is_in_a_file_only_while_it_is_loaded(certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    Tls(where=str, trusted_file=certificates.ca, chain_text=Path(certificates.client[0]).read_text(), key_text=Secret(Path(certificates.client[1]).read_text())).context()
    assert list(tmp_path.iterdir()) == []
