"""A TCP proxy between a node and a NATS server."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class EngineProxy:
    """Forwards the bytes of both directions, and can drop those of either."""

    def __init__(self, target: int) -> None:
        self.drops_requests = False
        self.drops_replies = False
        self.port = 0
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            engine_reader, engine_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        self._writers += [writer, engine_writer]
        await asyncio.gather(self._pass(reader, engine_writer, "drops_requests"), self._pass(engine_reader, writer, "drops_replies"))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: str) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if not getattr(self, lost):
                    writer.write(data)
                    await writer.drain()
        with suppress(OSError):
            writer.close()

    def cut(self) -> None:
        """End every connection."""
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.transport.abort()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.sleep(0.01)
