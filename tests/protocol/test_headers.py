"""Request and response headers, against kio's."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from protocol.apis import API_VERSIONS, APIS
from protocol.errors import EncodeError, ProtocolError
from tests.protocol.foreign import cases, kio_bytes, kio_class
from tests.support.headers import decode_request_header, encode_request, encode_response, request_header_version, response_header_version

pytestmark = pytest.mark.once  # no dependence on the Python version

CASES = list(cases())
KEYS = {api.name: key for key, api in APIS.items()}


def key_of(name: str) -> int:
    return KEYS[name.removesuffix("Request").removesuffix("Response")]


def test_request_headers_are_kios() -> None:
    for name, version in CASES:
        if name.endswith("Request"):
            check_request_header(name, version)


def check_request_header(name: str, version: int) -> None:
    header_class: Any = kio_class(name, version).__header_schema__
    key = key_of(name)
    assert request_header_version(key, version) == header_class.__version__
    for client_id in (None, "", "rdkafka", "é" * 100):
        values = {"request_api_key": key, "request_api_version": version, "correlation_id": -7, "client_id": client_id}
        header = kio_bytes(header_class(**values))
        frame = encode_request(key, version, -7, client_id, b"body")
        assert frame == (len(header) + 4).to_bytes(4, "big") + header + b"body"
        read, at = decode_request_header(frame[4:])
        assert (read.api_key, read.api_version, read.correlation_id, read.client_id) == (key, version, -7, client_id)
        assert frame[4 + at :] == b"body"


def test_response_headers_are_kios() -> None:
    for name, version in CASES:
        if name.endswith("Response"):
            header_class: Any = kio_class(name, version).__header_schema__
            key = key_of(name)
            assert response_header_version(key, version) == header_class.__version__, (name, version)
            header = kio_bytes(header_class(correlation_id=1 << 30))
            assert encode_response(key, version, 1 << 30, b"body") == (len(header) + 4).to_bytes(4, "big") + header + b"body"


def test_the_answer_to_api_versions_always_has_the_old_header() -> None:
    assert [response_header_version(API_VERSIONS, version) for version in range(5)] == [0] * 5
    assert [request_header_version(API_VERSIONS, version) for version in range(5)] == [1, 1, 1, 2, 2]


def test_an_api_versions_request_newer_than_ours_has_a_header_that_can_be_read() -> None:
    header, at = decode_request_header(bytes.fromhex("0012 0063 00000005 0001 63 00 aabb"))
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id, at) == (18, 99, 5, "c", 12)


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    _, at = decode_request_header(bytes.fromhex("000c 0004 00000005 ffff 02 05 01 aa 06 00 bb"))
    assert at == 16


def test_a_request_header_cut_anywhere_is_refused() -> None:
    frame = bytes.fromhex("000c 0004 00000005 0003 616263 01 05 01 aa")
    for cut in range(len(frame)):
        with pytest.raises(ProtocolError):
            decode_request_header(frame[:cut])


def test_an_unknown_api_is_refused() -> None:
    with pytest.raises(ProtocolError, match="there is no api 999"):
        decode_request_header(bytes.fromhex("03e7 0000 00000005 ffff"))


def test_noise_is_a_header_or_a_protocol_error() -> None:
    random = Random(3)
    for _ in range(2000):
        noise = b"\0" + bytes(random.choices((0, 1, 3, 12, 18, 127, 128, 255), k=random.randrange(24)))
        try:
            _, at = decode_request_header(noise)
        except ProtocolError:
            continue
        assert at <= len(noise)


def test_a_client_id_that_does_not_fit_cannot_be_sent() -> None:
    with pytest.raises(EncodeError):
        encode_request(12, 4, 1, "c" * 32768, b"")
    with pytest.raises(EncodeError):
        encode_request(12, 4, 1 << 31, "c", b"")
