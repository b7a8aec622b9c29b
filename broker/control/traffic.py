"""The connections of a cluster: what faults do to their requests, the last requests, and who waits for one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from broker.control.carrying import Carrier
from broker.control.exchange import Done, Exchange
from broker.control.frames import first_error, reply_of
from broker.control.tap import Outcome, Tap, TapOwner, decoded
from broker.faults.book import Book, Request
from broker.faults.fault import Fault
from protocol.apis import APIS
from protocol.errors import ProtocolError
from protocol.wire import UNREADABLE

OBSERVER: Final = "tenure"  # the client id of the command
REQUESTS_KEPT: Final = 200
ERROR_BYTES_MAX: Final = 1 << 16  # a longer reply is not searched for its error


class Traffic(TapOwner):
    def __init__(
        self,
        book: Book,
        carrier: Carrier,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        within: Callable[[Callable[[], None]], None],
    ) -> None:
        self.book = book
        self.carrier = carrier
        self.now = now  # type: ignore[method-assign]
        self.within = within  # type: ignore[method-assign,assignment]
        self._wall_ms = wall_ms
        self.taps: dict[Tap, None] = {}
        self.done: deque[Done] = deque(maxlen=REQUESTS_KEPT)
        self.watchers: dict[object, Callable[[Request], None]] = {}  # called with each request
        self.frozen = False
        self._number = 0

    def tap(self, connection: Any) -> Tap:
        """Stand between a client and this connection."""
        self._number += 1
        return Tap(connection, self, self._number)

    @property
    def watching(self) -> bool:  # type: ignore[override]
        return bool(self.book) or bool(self.watchers)

    def decide(self, tap: Tap, exchange: Exchange, frame: bytes) -> Outcome | None:
        if exchange.client_id == OBSERVER and not any(OBSERVER in installed.fault.client_id for installed in self.book):
            return None  # the command `tenure` looks on
        message = decoded(frame, exchange)
        if message is None:
            return None
        request = Request(
            exchange.key,
            APIS[exchange.key].name,
            exchange.version,
            exchange.client_id,
            tap.peer,
            tap.listener,
            exchange.correlation_id,
            message,
            self._wall_ms(),
        )
        for watcher in list(self.watchers.values()):
            watcher(request)
        match = self.book.match(request)
        return None if match is None else self.carrier.outcome(match, message)

    def answered(self, tap: Tap, exchange: Exchange, reply: bytes | None, fault: int | None = None) -> None:
        if exchange.client_id == OBSERVER:
            return
        api = APIS.get(exchange.key)
        self.done.append(
            Done(
                self._wall_ms(),
                tap.number,
                tap.peer,
                api.name if api is not None else str(exchange.key),
                exchange.version,
                exchange.client_id,
                exchange.size,
                exchange.reply_bytes,
                "" if reply is None or len(reply) > ERROR_BYTES_MAX else error_in(exchange, reply),
                round((self.now() - exchange.began) * 1000, 1),
                fault,
            )
        )

    def opened(self, tap: Tap) -> None:
        self.taps[tap] = None
        if self.frozen:
            tap.freeze()

    def closed(self, tap: Tap) -> None:
        self.taps.pop(tap, None)

    def install(self, fault: Fault) -> dict[str, Any]:
        self.carrier.check(fault)
        return self.book.install(fault).report()

    def freeze(self) -> None:
        self.frozen = True
        for tap in self.taps:
            tap.freeze()

    def thaw(self) -> None:
        self.frozen = False
        for tap in list(self.taps):
            tap.thaw()


def error_in(exchange: Exchange, reply: bytes) -> str:
    try:
        return first_error(reply_of(exchange, reply))
    except (ProtocolError, *UNREADABLE):
        return ""
