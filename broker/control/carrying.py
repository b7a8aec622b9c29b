"""Carries out what a fault asks for: turns its action into what happens to a request and to its reply."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from broker.control.exchange import Exchange
from broker.control.frames import reply_of, request_frame, response_frame
from broker.control.memory_disk import MemoryDisk, system_error
from broker.control.tap import Outcome, Tap
from broker.faults.book import Installed, Match, matches_any
from broker.faults.errors import some_errors, whole_error
from broker.faults.fault import BEFORE, LATE, LATE_MS, BadFault, Fault
from broker.faults.shapes import Kind, copied, merged, name_of, narrowed, shape_of
from broker.net.dispatch import Route
from protocol.apis import APIS
from protocol.errors import ErrorCode, ProtocolError
from protocol.message import field_names

TROUBLES: Final = {"full": errno.ENOSPC, "io-error": errno.EIO}
PRODUCE: Final = 0
UNANSWERED_SECONDS: Final = 0.005


class Kept:
    """A request that a fault holds until it is released."""

    def __init__(self, installed: Installed, go_on: Callable[[], None]) -> None:
        self.installed = installed
        self.go_on = go_on


class Carrier:
    def __init__(
        self,
        routes: Callable[[], Mapping[int, Route]],
        call_later: Callable[[float, Callable[[], object]], object],
        disk: Callable[[], object],
        stand_still: Callable[[int], None],
    ) -> None:
        """`stand_still`: let the broker do nothing for so many milliseconds."""
        self._routes = routes
        self._call_later = call_later
        self._disk = disk
        self._stand_still = stand_still
        self.kept: list[Kept] = []

    def check(self, fault: Fault) -> None:
        """Refuse a fault that could never do what it says. Raises BadFault."""
        action = fault.action
        keys = fault.api_keys or tuple(self._routes())
        if action.error is not None:
            without = [APIS[key].name for key in keys if key in APIS and key not in self._routes()]
            if fault.apis and without:
                raise BadFault(f"{', '.join(without)}: this broker does not serve it, so no such request is answered", "leave it out")
        if action.log is not None and not isinstance(self._disk(), MemoryDisk):
            raise BadFault("the log of a data directory cannot be made to fail", "use a cluster in memory")
        if action.throttle_ms is not None:
            unable = [APIS[key].name for key in fault.api_keys if not throttles(key)]
            if unable:
                raise BadFault(f"{', '.join(unable)}: its reply has no throttle time", "use the action delay_ms")

    def outcome(self, match: Match, message: Any) -> Outcome | None:
        """What becomes of a request that meets a fault; None: it is served as always."""
        action = match.installed.fault.action
        if action.observe:
            return None
        return partial(getattr(self, f"_{action.name.removesuffix('_ms')}"), match, message)

    def release(self, installed: Installed) -> int:
        """Let go what this fault holds; returns how many requests that were."""
        mine = [kept for kept in self.kept if kept.installed is installed]
        self.kept = [kept for kept in self.kept if kept.installed is not installed]
        for kept in mine:
            kept.go_on()
        return len(mine)

    # The actions.

    def _error(self, match: Match, message: Any, tap: Tap, exchange: Exchange, frame: bytes) -> None:
        fault = match.installed.fault
        code = ErrorCode[fault.action.error or ""].value
        route = self._routes()[exchange.key]
        before = fault.action.apply == BEFORE
        selected = None if fault.action.top_level else match.selected
        shape = shape_of(exchange.key, exchange.version)

        def answer(reply: Any) -> None:
            tap.answer(response_frame(exchange, reply), exchange, match.installed.id)

        if selected is None or shape is None:
            if shape is not None and fault.selects_things and not fault.action.top_level and getattr(message, shape.request) is None:
                exchange.on_reply = lambda data: self._mark(match, exchange, tap, data, code)  # it asks for all: which, its reply tells
                tap.pass_on(frame, exchange)
                return
            error = whole_error(exchange.key, message, exchange.version, code, route.error_response)
            if before:
                exchange.on_reply = lambda data: answer(error)  # a reply comes when what it tells of is stored
                tap.pass_on(frame, exchange)
            else:
                self._in_order(tap, lambda: answer(error))
            return
        inside = bool(fault.topic or fault.topic_id or fault.partitions or shape.kind is not Kind.GROUP)
        errors = some_errors(exchange.key, message, exchange.version, code, selected, route.error_response, things_inside=inside)
        rest, count = (message, 1) if before else narrowed(shape, message, lambda keys: keys not in selected)
        if not count:
            self._in_order(tap, lambda: answer(errors))
            return

        def replied(data: bytes) -> None:
            answer(merged(shape, reply_of(exchange, data), errors))

        exchange.on_reply = replied
        tap.pass_on(frame if before else request_frame(exchange, rest), exchange)

    def _mark(self, match: Match, exchange: Exchange, tap: Tap, data: bytes, code: int) -> None:
        """Put the error into those entries of a reply that the fault is for."""
        shape = shape_of(exchange.key, exchange.version)
        assert shape is not None
        reply, fault = reply_of(exchange, data), match.installed.fault
        def marked(entry: Any) -> Any:
            name = name_of(entry, shape.reply_key)
            patterns = fault.topic if shape.kind is Kind.TOPIC else fault.resource if shape.kind is Kind.RESOURCE else fault.group
            chosen = not patterns or (isinstance(name, str) and matches_any(name, patterns))
            return copied(entry, **{shape.error: code}) if chosen and hasattr(entry, shape.error) else entry

        entries = [marked(entry) for entry in getattr(reply, shape.reply) or ()]
        tap.answer(response_frame(exchange, copied(reply, **{shape.reply: entries})), exchange, match.installed.id)

    def _drop(self, match: Match, message: Any, tap: Tap, exchange: Exchange, frame: bytes) -> None:
        self._instead(match, message, tap, exchange, frame, tap.cut)

    def _blackhole(self, match: Match, message: Any, tap: Tap, exchange: Exchange, frame: bytes) -> None:
        self._instead(match, message, tap, exchange, frame, tap.swallow)

    def _instead(self, match: Match, message: Any, tap: Tap, exchange: Exchange, frame: bytes, end: Callable[[], None]) -> None:
        """End the connection instead of a reply, at once or when the request is served and stored."""
        tap.keep()
        if match.installed.fault.action.apply != BEFORE:
            end()
            tap.owner.answered(tap, exchange, None, match.installed.id)
            return

        def replied(data: bytes) -> None:
            end()
            tap.owner.answered(tap, exchange, None, match.installed.id)

        exchange.on_reply = replied
        tap.pass_on(frame, exchange)
        if exchange.key == PRODUCE and message.acks == 0:
            self._call_later(UNANSWERED_SECONDS, end)  # no reply says that it is stored

    def _delay(self, match: Match, message: Any, tap: Tap, exchange: Exchange, frame: bytes) -> None:
        seconds = (match.installed.fault.action.delay_ms or 0) / 1000
        self._later(match, tap, exchange, frame, lambda go_on: self._call_later(seconds, go_on))

    def _hold(self, match: Match, message: Any, tap: Tap, exchange: Exchange, frame: bytes) -> None:
        self._later(match, tap, exchange, frame, lambda go_on: self.kept.append(Kept(match.installed, go_on)))

    def _later(self, match: Match, tap: Tap, exchange: Exchange, frame: bytes, wait: Callable[[Callable[[], None]], object]) -> None:
        """Serve the request later, or serve it now and answer later; the connection's next requests wait as long."""
        tap.keep()
        if match.installed.fault.action.apply == BEFORE:

            def replied(data: bytes) -> None:
                def answer() -> None:
                    tap.answer(data, exchange, match.installed.id)
                    tap.release()

                wait(answer)

            exchange.on_reply = replied
            tap.pass_on(frame, exchange)
            return

        def serve() -> None:
            if not tap.gone:
                tap.pass_on(frame, exchange)
                tap.release()

        wait(serve)

    def _throttle(self, match: Match, message: Any, tap: Tap, exchange: Exchange, frame: bytes) -> None:
        """The reply says the time at once, and the connection is not read for as long, as Kafka does it."""
        ms = match.installed.fault.action.throttle_ms or 0
        tap.keep()

        def replied(data: bytes) -> None:
            try:
                reply = copied(reply_of(exchange, data), throttle_time_ms=ms)
                data = response_frame(exchange, reply)
            except ProtocolError:
                pass
            tap.answer(data, exchange, match.installed.id)
            self._call_later(ms / 1000, tap.release)

        exchange.on_reply = replied
        tap.pass_on(frame, exchange)

    def _log(self, match: Match, message: Any, tap: Tap, exchange: Exchange, frame: bytes) -> None:
        """The disk fails until this request is answered, or its next write hangs. The broker writes in its loop, and stands still meanwhile."""
        disk = self._disk()
        assert isinstance(disk, MemoryDisk)
        action = match.installed.fault.action

        def trouble(path: str) -> None:
            if not path.endswith(".log"):
                return
            if action.log == LATE:
                disk.trouble = None
                self._stand_still(LATE_MS if action.late_ms is None else action.late_ms)
            else:
                raise system_error(TROUBLES[action.log or ""])

        def replied(data: bytes) -> None:
            disk.trouble = None
            tap.answer(data, exchange, match.installed.id)

        disk.trouble = trouble
        exchange.on_reply = replied
        tap.pass_on(frame, exchange)

    # Order.

    def _in_order(self, tap: Tap, answer: Callable[[], None]) -> None:
        """Answer when the replies to earlier requests of the connection have left."""
        if tap.idle:
            answer()
            return
        tap.keep()

        def again() -> None:
            if tap.gone:
                return
            if tap.idle:
                answer()
                tap.release()
            else:
                self._call_later(0.001, again)

        self._call_later(0.001, again)


def throttles(key: int) -> bool:
    return "throttle_time_ms" in field_names(APIS[key].response)
