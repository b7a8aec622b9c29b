"""Clients: connections that match replies to requests, and the processes that use them, written as generators.

A process yields a number of nanoseconds to sleep, or a Request to wait for its reply.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Any, Final

from protocol import headers
from protocol.apis import API_VERSIONS, APIS
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.sync_group import SyncGroupRequest
from simulator.network import Network, Stream
from simulator.node import Node
from simulator.tell import ROUTINE, describe_reply, describe_request
from simulator.world import MS, SECOND, Broken, World, format_time

Process = Generator[Any, Any, None]

NEVER: Final = 1 << 62
REPLIES_KEPT: Final = 2_000
ANSWER_NS: Final = 20 * SECOND  # a slow log is reported after five seconds, and repairs stand in line
RETRIED: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)
FLEXIBLE_FROM: Final = {key: api.flexible_from for key, api in APIS.items()}
REPLY_HEADER: Final = {
    (key, version): 1 if version >= api.flexible_from and key != API_VERSIONS else 0
    for key, api in APIS.items()
    for version in range(api.served[0], api.served[1] + 1)
}


@lru_cache(REPLIES_KEPT)
def decode_reply(key: int, version: int, data: bytes) -> tuple[Any, int]:
    """A reply without its number, and how many bytes are behind it. Most replies are like others before them."""
    reply, end = APIS[key].response.decode(data, REPLY_HEADER[key, version], version)
    return reply, len(data) - end


class Request:
    """A request on its way. `reply` is None until it is answered, and stays None when the connection is lost or time is up."""

    __slots__ = ("done", "key", "late_at", "lost", "message", "number", "reply", "sent", "settled", "text", "timeout", "version", "waiter")

    def __init__(self, number: int, key: int, version: int, message: Any, sent: int, timeout: int) -> None:
        self.number = number
        self.key = key
        self.version = version
        self.message = message
        self.sent = sent
        self.reply: Any = None
        self.done = False  # answered, lost, or no longer waited for
        self.lost = False
        self.timeout = timeout
        self.late_at = sent + timeout
        self.waiter: Callable[[], None] | None = None
        self.text = ""  # what is asked, where the trace tells it
        # Called with the reply; or with None once the broker can no longer handle the request.
        self.settled: Callable[[Any], None] | None = None

    def finish(self, reply: Any) -> None:
        """Tell what waits for the reply, once."""
        settled, self.settled = self.settled, None
        waiter, self.waiter = self.waiter, None
        if settled is not None:
            settled(reply)
        if waiter is not None:
            waiter()


class Wire:
    """One connection of a client."""

    def __init__(self, world: World, network: Network, node: Node, client_id: str, address: str) -> None:
        self.world = world
        self.client_id = client_id
        self.open = True
        self._node = node
        self.life = node.life
        self._number = 0
        self.waiting: deque[Request] = deque()
        self._data = b""
        self._unsettled: list[Request] = []
        self._look_at = NEVER  # when it is next asked whether a request waits for too long
        self.stream: Stream | None = network.connect(node, address, self._received, self._lost)
        if self.stream is None:
            self.open = False
        else:
            self.stream.settled = self._broker_is_gone

    @property
    def arrives_at(self) -> int:
        """When the last request reaches the broker: long after its client is gone, if the connection stalls."""
        return self.stream.arrives_at if self.stream is not None else -1

    def ask(
        self, message: Any, version: int, timeout: int, settled: Callable[[Any], None] | None = None, body: bytes | None = None
    ) -> Request:
        """Send a request. `timeout`: then the client closes the connection. `body`: the encoded message, where it is known."""
        key = message.API_KEY
        self._number += 1
        request = Request(self._number, key, version, message, self.world.now, timeout)
        request.settled = settled
        if self.stream is None or not self.open:
            request.done = request.lost = True
            if settled is not None:
                settled(None)
            return request
        self.waiting.append(request)
        if request.late_at < self._look_at:
            self._look_at = request.late_at
            self.world.at(request.late_at, self._look, request.late_at)
        if body is None:
            body = message.encode(version)
        if self.world.told and self.world.told == self.client_id.partition("/")[0]:
            request.text = describe_request(key, version, body)
        self.stream.send(headers.encode_request(key, version, version >= FLEXIBLE_FROM[key], self._number, self.client_id, body))
        return request

    def tell(self, message: Any, version: int) -> None:
        """Send a request to which there is no reply (Produce with acks=0)."""
        key = message.API_KEY
        self._number += 1
        if self.stream is not None and self.open:
            body = message.encode(version)
            self.stream.send(headers.encode_request(key, version, version >= FLEXIBLE_FROM[key], self._number, self.client_id, body))

    def _received(self, data: bytes) -> None:
        if self._data:
            data = self._data + data
        at = 0
        end = len(data)
        while end - at >= 4:
            size = int.from_bytes(data[at : at + 4], "big")
            if end - at - 4 < size:
                break
            self._answered(data[at + 4 : at + 4 + size])
            at += 4 + size
            if not self.open:
                return
        self._data = data[at:] if at < end else b""

    def _answered(self, frame: bytes) -> None:
        number = int.from_bytes(frame[:4], "big")
        if not self.waiting or self.waiting[0].number != number:
            expected = self.waiting[0].number if self.waiting else None
            raise Broken("replies in order", f"{self.client_id}: a reply to request {number}, and {expected} is the next one that waits")
        request = self.waiting.popleft()
        reply, rest = decode_reply(request.key, request.version, frame[4:])
        if rest:
            raise Broken("replies in order", f"{self.client_id}: {rest} bytes after the reply to {type(request.message).__name__}")
        self.world.events += 1
        request.reply = reply
        request.done = True
        if request.text:
            self._tell(request)
        request.finish(reply)

    def _tell(self, request: Request) -> None:
        """Add what was asked and heard to the trace."""
        heard = describe_reply(request.reply)
        name = request.text.partition(" ")[0]
        routine = name in ROUTINE and (heard == "ok" or "=" in heard)
        self.world.say(
            f"{self.client_id}: {request.text}, sent {format_time(request.sent)}: {heard}", self.client_id.partition("/")[0], routine
        )

    def _look(self, moment: int) -> None:
        """Give the connection up if a request waits for too long; look again when the next one would."""
        if moment != self._look_at or not self.open:
            return
        self._look_at = NEVER
        if not self.waiting:
            return
        first = min(self.waiting, key=lambda request: request.late_at)
        if first.late_at <= self.world.now:
            self.world.count("request timed out")
            self._expect_answer(first)
            self.close()
        else:
            self._look_at = first.late_at
            self.world.at(first.late_at, self._look, first.late_at)

    def _expect_answer(self, request: Request) -> None:
        """No reply is forgotten: where neither the network nor the broker stood still lately, time must not run out."""
        stream, node = self.stream, self._node
        if stream is None or request is not self.waiting[0] or node.life != self.life or not node.serving:
            return
        quiet_since = max(stream.busy_until, node.frozen_until, request.sent)
        waits_for_members = isinstance(request.message, JoinGroupRequest | SyncGroupRequest)
        if self.world.now - quiet_since > (request.timeout - MS if waits_for_members else ANSWER_NS):
            what = type(request.message).__name__.removesuffix("Request")
            raise Broken("answers", f"{self.client_id}: {what} of {format_time(request.sent)} has no reply", self.client_id.partition("/")[0])

    def close(self) -> None:
        """The client closes the connection; what it sent may still be handled."""
        if self.open and self.stream is not None:
            self.stream.close()
            self._lost()

    def _lost(self) -> None:
        if not self.open:
            return
        self.open = False
        waiting = list(self.waiting)
        self.waiting.clear()
        self._unsettled += waiting
        for request in waiting:
            request.done = request.lost = True
            if request.text:
                self._tell(request)
        if self.stream is None or self.stream.settled is None:
            self._settle()
        for request in waiting:
            waiter, request.waiter = request.waiter, None
            if waiter is not None:
                waiter()

    def _broker_is_gone(self) -> None:
        if not self.open:
            self._settle()

    def _settle(self) -> None:
        unsettled, self._unsettled = self._unsettled, []
        for request in unsettled:
            request.finish(None)


class Client:
    """A process that runs a generator. `end` stops it where it stands, as kill -9 would."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.running = False
        self._life = 0
        self.frozen_until = 0

    def run(self, process: Process) -> None:
        self._life += 1
        self.running = True
        self.world.after(0, self._resume, process, self._life)

    def end(self) -> None:
        self._life += 1
        self.running = False

    def freeze(self, duration: int) -> None:
        """Stop for a while, as a long garbage collection does."""
        self.frozen_until = max(self.frozen_until, self.world.now + duration)

    def _resume(self, process: Process, life: int) -> None:
        world = self.world
        if life != self._life:
            return
        if self.frozen_until > world.now:
            world.at(self.frozen_until, self._resume, process, life)
            return
        try:
            wanted = next(process)
        except StopIteration:
            self.running = False
            return
        if type(wanted) is int:
            world.after(wanted, self._resume, process, life)
        elif wanted.done:
            world.after(0, self._resume, process, life)
        else:
            wanted.waiter = lambda: self._resume(process, life)
