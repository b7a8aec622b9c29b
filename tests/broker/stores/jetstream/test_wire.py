from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.settings.servers import parse_servers
from broker.stores.jetstream.connection import server_version
from broker.stores.jetstream.wire import Message, NatsError, Parser, publish_parts

STREAM = (
    b'INFO {"version":"2.15.1"}\r\nPING\r\n'
    b"MSG in.1 7 5\r\nhello\r\n"
    b"MSG in.4 7 _R.1 2\r\nyo\r\n"
    b"HMSG in.2 7 _R 23 25\r\nNATS/1.0\r\nName: one\r\n\r\nhi\r\n"
    b"HMSG in.3 1 30 30\r\nNATS/1.0 503 No Responders\r\n\r\n\r\n+OK\r\n"
)
PARSED = [
    b'INFO {"version":"2.15.1"}',
    b"PING",
    Message("in.1", 7, b"hello"),
    Message("in.4", 7, b"yo", reply="_R.1"),
    Message("in.2", 7, b"hi", 0, {"Name": "one"}, "_R"),
    Message("in.3", 1, b"", 503, {}),
    b"+OK",
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_messages_are_parsed_wherever_the_bytes_are_cut(cuts: list[int]) -> None:
    parser = Parser()
    found = []
    at = 0
    for cut in [*sorted(cuts), len(STREAM)]:
        found += parser.feed(STREAM[at:cut])
        at = cut
    assert found == PARSED


def test_bytes_that_violate_the_protocol_are_refused() -> None:
    with pytest.raises(NatsError, match="cannot be parsed"):
        Parser().feed(b"MSG a b c\r\n")
    with pytest.raises(NatsError, match="too long"):
        Parser().feed(bytes(2 << 20))


def test_a_publication_with_headers_has_both_sizes() -> None:
    assert b"".join(publish_parts("to", b"xy", "_R", b"A: b\r\n")) == b"HPUB to _R 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nxy\r\n"
    assert b"".join(publish_parts("to", b"xy", "", b"")) == b"PUB to 2\r\nxy\r\n"


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("nats://a", (("a", 4222),)),
        ("nats://a:1,b:2", (("a", 1), ("b", 2))),
        ("tls://[::1]:7", (("::1", 7),)),
        ("nats://me:secret@a:1,nats://b", (("a", 1), ("b", 4222))),
    ],
)
def test_addresses_of_servers(text: str, addresses: tuple[tuple[str, int], ...]) -> None:
    assert parse_servers(text).addresses == addresses


def test_a_password_is_never_shown() -> None:
    servers = parse_servers("nats://me:se%40cret@a:1,b:2")
    assert servers.login() == {"user": "me", "pass": "se@cret"}
    assert str(servers) == "nats://a:1,b:2"
    assert parse_servers("nats://token@a").login() == {"auth_token": "token"}


@pytest.mark.parametrize("text", ["a:1", "http://a", "nats://", "nats://a:x", "nats://a/b", "nats://a,,b"])
def test_a_malformed_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"begin with|HOST:PORT"):
        parse_servers(text)


@pytest.mark.parametrize(("text", "version"), [("2.15.1", (2, 15)), ("2.9.10", (2, 9)), ("v2.12.0-beta", (2, 12)), ("", (0, 0))])
def test_versions_of_servers(text: str, version: tuple[int, int]) -> None:
    assert server_version({"version": text}) == version
