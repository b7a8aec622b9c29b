"""Clients: connections that match replies to requests, and client processes, which are generators.

A process yields a number of nanoseconds to sleep, or a Request to wait for its reply.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator
from functools import lru_cache
from typing import Any, Final

from protocol import headers
from protocol.apis import API_VERSIONS, APIS
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.sync_group import SyncGroupRequest
from simulator.network import Network, Stream
from simulator.node import Node
from simulator.story import ROUTINE, describe_reply, describe_request
from simulator.world import MS, SECOND, Broken, Promise, World, format_time

Process = Generator[Any, Any, None]

NEVER: Final = 1 << 62
REPLIES_KEPT: Final = 2_000
ANSWER_NS: Final = 20 * SECOND  # an append is late after five seconds, and repairs of logs run one after the other
MAY_WAIT_FOR_MEMBERS: Final = (JoinGroupRequest, SyncGroupRequest)
FORWARDED: Final = (CreateTopicsRequest, CreatePartitionsRequest, DeleteTopicsRequest, IncrementalAlterConfigsRequest)  # to another node, which may be frozen
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
REPLIES_IN_ORDER: Final = Promise("replies in order", "replies arrive whole and in the order of their requests")
ANSWERS: Final = Promise(
    "answers",
    "every request is answered, or its connection ends; a JoinGroup or SyncGroup that waits is parked in its group",
)


@lru_cache(REPLIES_KEPT)
def decode_reply(key: int, version: int, data: bytes) -> tuple[Any, int]:
    """Decode a reply from the bytes after its correlation id; also returns the number of undecoded bytes. Cached: most replies repeat an earlier one."""
    reply, end = APIS[key].response.decode(data, REPLY_HEADER[key, version], version)
    return reply, len(data) - end


class Request:
    """A request in flight. `reply` is None until it arrives, and stays None when the connection is lost or the request times out."""

    __slots__ = ("done", "key", "late_at", "lost", "message", "node", "number", "on_settled", "reply", "sent", "text", "timeout", "unknown_topics", "version", "waiter")

    def __init__(self, node: Node, number: int, key: int, version: int, message: Any, sent: int, timeout: int) -> None:
        self.node = node
        self.number = number
        self.key = key
        self.version = version
        self.message = message
        self.sent = sent
        self.reply: Any = None
        self.done = False  # answered or lost
        self.lost = False
        self.timeout = timeout
        self.late_at = sent + timeout
        self.waiter: Callable[[], None] | None = None
        self.text = ""  # the description of the request, if the trace shows the requests of this client
        self.on_settled: Callable[[Any], None] | None = None
        self.unknown_topics: Collection[str] = node.unknown_topics()  # as of the moment at which the request was sent

    def when_settled(self, on_settled: Callable[[Any], None]) -> None:
        """Call back with the reply; with None once the broker can no longer handle the request."""
        if self.lost:
            on_settled(None)
        else:
            self.on_settled = on_settled

    def finish(self, reply: Any) -> None:
        """Call the waiting process, and `on_settled`, once."""
        on_settled, self.on_settled = self.on_settled, None
        waiter, self.waiter = self.waiter, None
        if on_settled is not None:
            on_settled(reply)
        if waiter is not None:
            waiter()


class ClientConnection:
    """One connection of a client."""

    def __init__(self, world: World, network: Network, node: Node, client_id: str, address: str) -> None:
        self.world = world
        self.client_id = client_id
        self.open = True
        self.node = node
        self.life = node.life
        self._number = 0
        self.waiting: deque[Request] = deque()
        self._data = b""
        self._unsettled: list[Request] = []
        self._next_check = NEVER  # the moment of the next check for requests that time out
        self.stream: Stream | None = network.connect(node, address, self._received, self._lost)
        if self.stream is None:
            self.open = False
        else:
            self.stream.on_settled = self._broker_is_gone

    @property
    def arrives_at(self) -> int:
        """When the last request reaches the broker. On a stalled connection this may be long after the client has ended."""
        return self.stream.arrives_at if self.stream is not None else -1

    def send(self, message: Any, version: int, timeout: int, body: bytes | None = None) -> Request:
        """Send a request. Without a reply within `timeout`, the client closes the connection. `body`: the message, if already encoded."""
        key = message.API_KEY
        self._number += 1
        request = Request(self.node, self._number, key, version, message, self.world.now, timeout)
        if self.stream is None or not self.open:
            request.done = request.lost = True
            return request
        self.waiting.append(request)
        if request.late_at < self._next_check:
            self._next_check = request.late_at
            self.world.at(request.late_at, self._check_timeouts, request.late_at)
        if body is None:
            body = message.encode(version)
        if self.world.traced_clients and self.client_id.partition("/")[0] in self.world.traced_clients:
            request.text = describe_request(key, version, body)
        self.stream.send(headers.encode_request(key, version, version >= FLEXIBLE_FROM[key], self._number, self.client_id, body))
        return request

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
            raise Broken(REPLIES_IN_ORDER, f"{self.client_id}: a reply to request {number}, and the oldest unanswered request is {expected}")
        request = self.waiting.popleft()
        reply, unread_bytes = decode_reply(request.key, request.version, frame[4:])
        if unread_bytes:
            raise Broken(REPLIES_IN_ORDER, f"{self.client_id}: {unread_bytes} bytes after the reply to {type(request.message).__name__}")
        self.world.events += 1
        request.reply = reply
        request.done = True
        if request.text:
            self._trace(request)
        request.finish(reply)

    def _trace(self, request: Request) -> None:
        """Add the request and its reply to the trace."""
        reply = describe_reply(request.reply)
        name = request.text.partition(",")[0]
        routine = name in ROUTINE and (reply == "ok" or "=" in reply or "high watermark" in reply or reply.startswith("epoch "))
        text = f"{self.client_id}: {request.text} (sent {format_time(request.sent)}) -> {reply}"
        self.world.trace(text, self.client_id.partition("/")[0], routine)

    def _check_timeouts(self, moment: int) -> None:
        """Close the connection if a request has timed out; otherwise check again at the earliest timeout."""
        if moment != self._next_check or not self.open:
            return
        self._next_check = NEVER
        if not self.waiting:
            return
        first = min(self.waiting, key=lambda request: request.late_at)
        if first.late_at <= self.world.now:
            self.world.count("request timed out")
            self._expect_answer(first)
            self.close()
        else:
            self._next_check = first.late_at
            self.world.at(first.late_at, self._check_timeouts, first.late_at)

    def _expect_answer(self, request: Request) -> None:
        """Raise Broken if the request timed out although neither the network nor the broker has stalled since it was sent."""
        stream, node = self.stream, self.node
        if stream is None or request is not self.waiting[0] or node.life != self.life or not node.serving:
            return
        frozen_until = node.answers_from() if isinstance(request.message, FORWARDED) else node.frozen_until
        quiet_since = max(stream.busy_until, frozen_until, request.sent)
        waits_for_members = isinstance(request.message, MAY_WAIT_FOR_MEMBERS)
        if waits_for_members and self._phase_is_extended(node):
            return
        if self.world.now - quiet_since > (request.timeout - MS if waits_for_members else ANSWER_NS):
            api = type(request.message).__name__.removesuffix("Request")
            raise Broken(ANSWERS, f"{self.client_id}: {api} of {format_time(request.sent)} has no reply", self.client_id.partition("/")[0])

    def _phase_is_extended(self, node: Node) -> bool:
        """Whether an append in progress at its deadline has extended the group's phase, which may then last longer than the client's timeout."""
        broker: Any = node.broker
        groups = (journal.shard.groups.get(self.client_id.partition("/")[0]) for journal in broker.shards.journals)
        return any(group is not None and group.extended_since_ms == group.phase_start_ms for group in groups)

    def close(self) -> None:
        """The client closes the connection; the broker may still handle requests that it sent before."""
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
                self._trace(request)
        if self.stream is None or self.stream.on_settled is None:
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
    """A client process, which runs a generator. `end` stops it at once, as kill -9 does."""

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
        """Stop the client for a while, as a long garbage collection does."""
        self.frozen_until = max(self.frozen_until, self.world.now + duration)

    def _resume(self, process: Process, life: int) -> None:
        world = self.world
        if life != self._life:
            return
        if self.frozen_until > world.now:
            world.at(self.frozen_until, self._resume, process, life)
            return
        try:
            step = next(process)
        except StopIteration:
            self.running = False
            return
        if type(step) is int:
            world.after(step, self._resume, process, life)
        elif step.done:
            world.after(0, self._resume, process, life)
        else:
            step.waiter = lambda: self._resume(process, life)
