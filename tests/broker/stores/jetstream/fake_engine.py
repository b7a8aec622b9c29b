"""A fake NATS server with one JetStream stream, at the interface of its connection. The test decides which appends and replies are lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from broker.stores.jetstream.chain import Chain
from broker.stores.jetstream.connection import AnswerHandler, Connection
from broker.stores.jetstream.engine import Engine
from broker.stores.jetstream.entry import CLAIM, HEADER, Entry, parse_entry
from broker.stores.jetstream.streams import Stream
from broker.stores.jetstream.wire import NO_RESPONDERS, NOT_FOUND, Message
from storage import AppendFailed
from tests.support.stepped_loop import SteppedLoop

STREAM = Stream("orders-0", "T-orders", "t.orders")


class FakeConnection:
    """A connection to a stream of `entries`. `delivers` False: appends are lost. `acknowledges` False: appends arrive, but their replies are lost."""

    payload_max = 1 << 20

    def __init__(self) -> None:
        self.loop = SteppedLoop()
        self.entries: list[tuple[str, bytes]] = []
        self.acknowledges = True
        self.delivers = True
        self.error: dict[str, Any] | None = None
        self.receives = True  # False: the server replies that nobody receives appends
        self.lacks = 0  # sequence of an entry that was removed
        self.copies = 0
        self.held: list[Callable[[], None]] | None = None  # replies that wait until the test calls them; None: replies are immediate

    def append(self, subject: str, payload: bytes | bytearray, headers: bytes, answered: AnswerHandler) -> None:
        self.copies += 1
        if not self.delivers:
            return
        if not self.receives:
            answered(Message("", 1, b"", NO_RESPONDERS))
            return
        reply = self._store(headers, bytes(payload))
        if self.acknowledges:
            if self.held is None:
                answered(reply)
            else:
                self.held.append(lambda: answered(reply))

    def _store(self, headers: bytes, payload: bytes) -> Message:
        lines = dict(line.split(": ", 1) for line in headers.decode().split("\r\n") if line)
        if self.error is not None:
            return message({"error": self.error})
        if int(lines["Nats-Expected-Last-Sequence"]) != len(self.entries):
            return message({"error": {"code": 400, "err_code": 10071, "description": f"wrong last sequence: {len(self.entries)}"}})
        self.entries.append((lines[HEADER], payload))
        return message({"stream": STREAM.name, "seq": len(self.entries)})

    def request(self, subject: str, payload: bytes, answered: AnswerHandler, headers: bytes = b"", seconds: float = 0.0) -> None:
        seq = json.loads(payload)["seq"]
        if seq > len(self.entries) or seq == self.lacks:
            answered(Message("", 1, b"", NOT_FOUND))
        else:
            text, stored = self.entries[seq - 1]
            answered(Message("", 1, stored, 0, {HEADER: text, "Nats-Sequence": str(seq)}))

    def claim_by_another(self, epoch: int) -> None:
        self.entries.append((Entry(CLAIM, epoch, 9, "other", 1, self.next_offset, 0, 0).text(), b""))

    @property
    def next_offset(self) -> int:
        return parse_entry(self.entries[-1][0]).next_offset


def message(body: dict[str, Any]) -> Message:
    return Message("", 1, json.dumps(body).encode())


class ChainHarness:
    """A `Chain` that has claimed an empty log, and the results of its appends."""

    def __init__(self) -> None:
        self.connection = FakeConnection()
        claim = Entry(CLAIM, 3, 1, "mine", 1, 0, 0, 0)
        self.connection.entries.append((claim.text(), b""))
        self.results: list[int | AppendFailed] = []
        self.failures: list[AppendFailed] = []
        self.suspected = 0
        self._number = 1
        engine = Engine(cast(Connection, self.connection))
        self.chain = Chain(engine, STREAM, claim, 1, self._next, self.failures.append, self._suspect)

    def _suspect(self) -> None:
        self.suspected += 1

    def _next(self) -> int:
        self._number += 1
        return self._number

    def append(self, payload: bytes = b"batch", records: int = 1) -> None:
        self.chain.append(payload, records, self.results.append)

    def seconds(self, seconds: float) -> None:
        self.connection.loop.jump(seconds)
        self.connection.loop.run()

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, payload in self.connection.entries[1:]]
