from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.settings.endpoints import format_endpoint, is_loopback, is_wildcard, normal_address, parse_endpoint


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("localhost:0", "localhost", 0),
        ("kafka_1.compose-net.example.:65535", "kafka_1.compose-net.example.", 65535),
        ("[::1]:9092", "::1", 9092),
        ("[::ffff:10.0.0.1]:1", "::ffff:10.0.0.1", 1),
        ("[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
        (":9092", "", 9092),
    ],
)
def test_host_and_port_are_read_and_written_back(text: str, host: str, port: int) -> None:
    assert parse_endpoint(text) == (host, port)
    assert format_endpoint(host, port) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("localhost", "port is missing"),
        ("", "port is missing"),
        ("localhost:", "0 to 65535"),
        ("localhost:65536", "0 to 65535"),
        ("localhost:-1", "0 to 65535"),
        ("localhost:+1", "0 to 65535"),
        ("localhost:9 2", "0 to 65535"),
        ("localhost:\u0663", "0 to 65535"),
        ("localhost:000000001", "0 to 65535"),
        ("::1:9092", r"write \[::1\]:9092"),
        ("a:b:1", "write HOST:PORT"),
        ("[::1]", r"\[ADDRESS\]:PORT"),
        ("[::1", r"\[ADDRESS\]:PORT"),
        ("[::1]9092", r"\[ADDRESS\]:PORT"),
        ("[127.0.0.1]:9092", r"\[ADDRESS\]:PORT"),
        ("[::g]:9092", r"\[ADDRESS\]:PORT"),
        ("127.0.0.256:1", "neither an IPv4 address nor a name"),
        ("127.1:1", "neither an IPv4 address nor a name"),
        ("0:1", "neither an IPv4 address nor a name"),
        ("0x7f.0x1:1", "neither an IPv4 address nor a name"),
        ("a b:1", "not a host name"),
        ("a..b:1", "not a host name"),
        ("käse:1", "not a host name"),
        ("a" * 254 + ":1", "not a host name"),
        ("host/path:1", "not a host name"),
    ],
)
def test_a_malformed_endpoint_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_endpoint(text)


@given(st.text())
def test_any_text_is_an_endpoint_or_a_value_error(text: str) -> None:
    try:
        host, port = parse_endpoint(text)
    except ValueError:
        return
    assert parse_endpoint(format_endpoint(host, port)) == (host, port)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "0:0:0:0:0:0:0:0", "::0.0.0.0", "::ffff:0.0.0.0"])
def test_every_spelling_of_the_wildcard_address_is_recognized(host: str) -> None:
    assert is_wildcard(host)
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost", "LocalHost.", "a.localhost"])
def test_loopback_is_recognised_by_its_spelling(host: str) -> None:
    assert is_loopback(host)
    assert not is_wildcard(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "::2", "fe80::1", "localhost.example", "example"])
def test_other_hosts_are_neither_wildcard_nor_loopback(host: str) -> None:
    assert not is_loopback(host)
    assert not is_wildcard(host)


def test_addresses_are_normalised_as_sockets_report_them() -> None:
    assert normal_address("0:0:0:0:0:0:0:1") == "::1"
    assert normal_address("2001:DB8::1") == "2001:db8::1"
    assert normal_address("::ffff:10.0.0.1") == "10.0.0.1"
    assert normal_address("localhost") is None
