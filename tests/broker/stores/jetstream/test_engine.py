"""The requests that are sent to the NATS server."""

from __future__ import annotations

from typing import Any, cast

from broker.stores.jetstream.connection import Connection
from broker.stores.jetstream.engine import CREATIONS_MAX, Engine
from tests.broker.stores.jetstream.fake_engine import message


class Requests:
    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def request(self, subject: str, payload: bytes, answered: Any, headers: bytes = b"", seconds: float = 0.0) -> None:
        self.waiting.append(answered)


def test_few_streams_are_created_at_a_time() -> None:
    requests = Requests()
    engine = Engine(cast(Connection, requests))
    made: list[object] = []
    for number in range(3 * CREATIONS_MAX):
        engine.create(f"S{number}", "subject", 3, {}, made.append)
    while requests.waiting:
        assert len(requests.waiting) == CREATIONS_MAX or len(made) > 2 * CREATIONS_MAX
        reply_to_request = requests.waiting.pop(0)
        reply_to_request(message({}) if len(made) % 2 else None)
    assert len(made) == 3 * CREATIONS_MAX
