"""Frames that real clients and Apache Kafka 4.3.1 exchanged: read, and written again byte for byte.

`golden/<api>.json` has one frame per version, side and client: kafka-python 3.0.12, aiokafka 0.14.0, librdkafka 2.16.0
(through confluent-kafka) and the Java tools of Kafka 4.3.1, each without its length prefix. Responses are Kafka's. The versions that are new in
Kafka 4.4.0, and those that name topics by id, are from its Java client and broker.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.apis import APIS
from protocol.generator.from_toml import snake
from tests.support.headers import decode_request_header, encode_request, encode_response, response_header_version

GOLDEN = Path(__file__).parent / "golden"
MODULES = {snake(api.name): api for api in APIS.values()}
FRAMES = [(path.stem, frame) for path in sorted(GOLDEN.glob("*.json")) for frame in json.loads(path.read_text())]


def ids(value: Any) -> str:
    return f"v{value['version']}-{value['side']}-{value['client']}" if isinstance(value, dict) else str(value)


@pytest.mark.parametrize(("name", "golden"), [frame for frame in FRAMES if frame[1]["side"] == "request"], ids=ids)
def test_a_clients_request_is_encoded_byte_for_byte(name: str, golden: dict[str, Any]) -> None:
    api, frame = MODULES[name], bytes.fromhex(golden["frame"])
    header, at = decode_request_header(frame)
    assert (header.api_key, header.api_version) == (api.key, golden["version"])
    message, end = api.request.decode(frame, at, header.api_version)
    assert end == len(frame)
    body = message.encode(header.api_version)
    encoded = encode_request(api.key, header.api_version, header.correlation_id, header.client_id, body)
    assert encoded == len(frame).to_bytes(4, "big") + frame


@pytest.mark.parametrize(("name", "golden"), [frame for frame in FRAMES if frame[1]["side"] == "response"], ids=ids)
def test_kafkas_response_is_encoded_byte_for_byte(name: str, golden: dict[str, Any]) -> None:
    api, frame, version = MODULES[name], bytes.fromhex(golden["frame"]), golden["version"]
    at = 4 + response_header_version(api.key, version)
    message, end = api.response.decode(frame, at, version)
    assert end == len(frame)
    correlation_id = int.from_bytes(frame[:4], "big")
    encoded = encode_response(api.key, version, correlation_id, message.encode(version))
    assert encoded == len(frame).to_bytes(4, "big") + frame


def test_the_golden_frames_cover_the_apis_that_clients_use() -> None:
    captured = {(name, golden["client"]) for name, golden in FRAMES}
    for client in ("kafka-python", "aiokafka", "librdkafka", "java"):
        for name in ("api_versions", "metadata", "join_group", "sync_group", "offset_commit", "find_coordinator"):
            assert (name, client) in captured or client == "java"
    assert len(FRAMES) > 150
