"""Links between nodes over messages of an engine that a test may delay or lose."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from broker.stores.jetstream import node_links
from broker.stores.jetstream.connection import AnswerHandler, MessageHandler
from broker.stores.jetstream.node_links import CHUNK_BYTES, REQUESTED_MAX, WINDOW, Kind, NodeLinks, Process, Transport
from broker.stores.jetstream.streams import ClusterNames
from broker.stores.jetstream.wire import NO_RESPONDERS, Message

pytestmark = [pytest.mark.asyncio, pytest.mark.once]

INCARNATIONS = {1: "1" * 12, 2: "2" * 12}
TWO = 2


class Bus:
    """What an engine passes on: each message in a later pass of the loop, in order."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.subscribed: dict[str, MessageHandler] = {}
        self.loses: Callable[[int], bool] = lambda kind: False
        self.passed: list[tuple[int, int]] = []  # kind and size of each message
        self.in_flight = 0
        self.most_in_flight = 0

    def send(self, subject: str, payload: bytes, reply: str = "") -> None:
        self.passed.append((payload[0], len(payload)))
        if not self.loses(payload[0]):
            self.in_flight += len(payload)
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self.loop.call_soon(self._deliver, subject, payload, reply)

    def _deliver(self, subject: str, payload: bytes, reply: str) -> None:
        self.in_flight -= len(payload)
        if subject in self.subscribed:
            self.subscribed[subject](Message(subject, 1, payload, reply=reply))


class Engine:
    """The connection of one node."""

    def __init__(self, bus: Bus, payload_max: int) -> None:
        self.loop = bus.loop
        self.payload_max = payload_max
        self._bus = bus
        self._inboxes = 0

    def publish(self, subject: str, payload: bytes, reply: str = "") -> None:
        self._bus.send(subject, payload, reply)

    def request(self, subject: str, payload: bytes, answered: AnswerHandler, headers: bytes = b"", seconds: float = 0.0) -> None:
        self._inboxes += 1
        inbox = f"inbox.{id(self)}.{self._inboxes}"
        waits = [answered]

        def answer(message: Message | None) -> None:
            while waits:
                waits.pop()(message)

        self._bus.subscribed[inbox] = answer
        self.loop.call_later(seconds, answer, None)
        if subject in self._bus.subscribed:
            self._bus.send(subject, payload, inbox)
        else:
            self.loop.call_soon(answer, Message(inbox, 1, b"", NO_RESPONDERS))

    def subscribe(self, subject: str, receive: MessageHandler) -> None:
        self._bus.subscribed[subject] = receive


class End:
    """The protocol at one end of a link."""

    def __init__(self, answers: bool = False) -> None:
        self.received = bytearray()
        self.lost = asyncio.Event()
        self.transport: Any = None
        self.paused = 0
        self._answers = answers

    def connection_made(self, transport: Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self._answers:
            self.transport.write(data)

    def pause_writing(self) -> None:
        self.paused += 1

    def resume_writing(self) -> None:
        self.paused -= 1

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()


class Pair:
    """Two nodes; node 1 opens links to node 2."""

    def __init__(self, answers: bool = False, payload_max: int = 1 << 20) -> None:
        self.bus = Bus()
        self.live = dict(INCARNATIONS)
        self.found: dict[int, str] = {}  # by the next search
        self.accepted: list[End] = []
        self.accepts = True
        self._answers = answers
        self.one, self.two = (self._links(Process(id, INCARNATIONS[id]), payload_max) for id in (1, 2))

    def _links(self, me: Process, payload_max: int) -> NodeLinks:
        links = NodeLinks(Engine(self.bus, payload_max), ClusterNames("c"), me, self._incarnation, self._refresh, random.randbytes, self._accept)
        links.listen()
        links.start()
        return links

    def _incarnation(self, node: int) -> str | None:
        return self.live.get(node)

    def _refresh(self, done: Callable[[], None]) -> None:
        self.live |= self.found
        self.bus.loop.call_soon(done)

    def _accept(self) -> End | None:
        if not self.accepts:
            return None
        self.accepted.append(End(self._answers))
        return self.accepted[-1]

    async def connect(self) -> End:
        end = End()
        await self.one.connect(TWO, lambda: end)
        return end

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0)

    @property
    def open_links(self) -> list[int]:
        return [len(links._links) for links in (self.one, self.two)]


@pytest.mark.parametrize("size", [1, 100, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 40 * CHUNK_BYTES + 7])
@pytest.mark.parametrize("payload_max", [300, 1 << 20])
async def test_bytes_arrive_in_order_and_both_directions(size: int, payload_max: int) -> None:
    pair = Pair(True, payload_max)
    end = await pair.connect()
    sent = random.randbytes(min(size, 100 * payload_max))
    for at in range(0, len(sent), 70_000):
        end.transport.write(sent[at : at + 70_000])
    await pair.until(lambda: len(end.received) == len(sent))
    assert bytes(end.received) == sent == bytes(pair.accepted[0].received)
    assert max(size for _, size in pair.bus.passed) <= payload_max
    assert end.paused == pair.accepted[0].paused == 0


async def test_no_more_is_on_its_way_than_a_window() -> None:
    pair = Pair()
    end = await pair.connect()
    end.transport.write(bytes(4 << 20))
    assert end.paused == 1
    await pair.until(lambda: len(pair.accepted[0].received) == 4 << 20)
    assert pair.bus.most_in_flight <= (WINDOW + 1) * (CHUNK_BYTES + 100)


async def test_a_protocol_that_does_not_read_stops_the_other_end() -> None:
    pair = Pair()
    end = await pair.connect()
    pair.accepted[0].transport.pause_reading()
    end.transport.write(bytes(4 << 20))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not pair.accepted[0].received
    assert end.transport.get_write_buffer_size() == (4 << 20) - WINDOW * CHUNK_BYTES
    pair.accepted[0].transport.resume_reading()
    await pair.until(lambda: len(pair.accepted[0].received) == 4 << 20)


@pytest.mark.parametrize("by", ["opener", "accepter"])
@pytest.mark.parametrize("how", ["close", "abort"])
async def test_a_link_ends_at_both_ends(by: str, how: str) -> None:
    pair = Pair()
    end = await pair.connect()
    ends = [end, pair.accepted[0]] if by == "opener" else [pair.accepted[0], end]
    ends[0].transport.write(b"x" * 3 * CHUNK_BYTES * WINDOW)
    getattr(ends[0].transport, how)()
    ends[0].transport.write(b"more")
    await asyncio.wait_for(asyncio.gather(*(each.lost.wait() for each in ends)), 20)
    assert pair.open_links == [0, 0]
    if how == "close":
        assert len(ends[1].received) == 3 * CHUNK_BYTES * WINDOW


async def test_a_lost_message_ends_the_link() -> None:
    pair = Pair()
    end = await pair.connect()
    pair.bus.loses = lambda kind: kind == Kind.DATA
    end.transport.write(b"lost")
    pair.bus.loses = lambda kind: False
    end.transport.write(b"next")
    await asyncio.wait_for(asyncio.gather(end.lost.wait(), pair.accepted[0].lost.wait()), 20)
    assert not pair.accepted[0].received
    assert pair.open_links == [0, 0]


async def test_links_end_with_the_connection_to_the_engine() -> None:
    """At the other node, too, which learns it when there is a new connection."""
    pair = Pair()
    end = await pair.connect()
    pair.bus.loses = lambda kind: True
    pair.one.engine_changed(False)
    await asyncio.wait_for(end.lost.wait(), 20)
    pair.bus.loses = lambda kind: False
    assert pair.open_links == [0, 1]
    pair.one.engine_changed(True)
    await asyncio.wait_for(pair.accepted[0].lost.wait(), 20)
    again = await pair.connect()
    again.transport.write(b"hello")
    await pair.until(lambda: pair.accepted[1].received == b"hello")


async def test_links_end_with_the_node() -> None:
    pair = Pair()
    end = await pair.connect()
    del pair.live[1]
    pair.two.node_ended(1)
    await asyncio.wait_for(pair.accepted[0].lost.wait(), 20)
    end.transport.write(b"of the dead")
    await asyncio.wait_for(end.lost.wait(), 20)  # it lives, after all
    with pytest.raises(ConnectionError):
        await pair.connect()
    assert pair.open_links == [0, 0]


async def test_only_live_processes_get_links() -> None:
    pair = Pair()
    pair.live = {2: INCARNATIONS[2]}
    with pytest.raises(ConnectionError, match="accepts no link"):
        await pair.connect()
    pair.live[1] = "another"
    with pytest.raises(ConnectionError, match="accepts no link"):
        await pair.connect()
    assert not pair.accepted
    del pair.live[1]
    pair.found = {1: INCARNATIONS[1]}
    await pair.connect()
    assert len(pair.accepted) == 1


async def test_a_node_that_is_not_there_is_refused_at_once() -> None:
    pair = Pair()
    del pair.live[2]
    with pytest.raises(ConnectionError, match="not live"):
        await pair.connect()
    pair.live[2] = "3" * 12  # its subject has no subscriber
    with pytest.raises(ConnectionError, match="not connected"):
        await pair.connect()
    assert pair.open_links == [0, 0]


@pytest.mark.plain  # replaces a constant
async def test_a_request_for_a_link_that_is_not_answered_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_links, "OPEN_SECONDS", 0.01)
    pair = Pair()
    pair.bus.loses = lambda kind: kind == Kind.OPENED
    with pytest.raises(ConnectionError, match="no answer"):
        await pair.connect()
    await asyncio.wait_for(pair.accepted[0].lost.wait(), 20)
    assert pair.open_links == [0, 0]


async def test_a_node_that_starts_lets_links_wait() -> None:
    pair = Pair()
    pair.two._started = False
    waiting = [asyncio.create_task(pair.connect()) for _ in range(2)]
    await pair.until(lambda: len(pair.two._requested) == 2)
    assert not pair.accepted
    waiting[0].cancel()
    await pair.until(lambda: len(pair.two._requested) == 1)
    pair.two.start()
    await asyncio.wait_for(waiting[1], 20)
    assert len(pair.accepted) == 1
    pair.two._started = False
    others = [asyncio.create_task(pair.connect()) for _ in range(REQUESTED_MAX + 5)]
    await pair.until(lambda: len(pair.two._requested) == REQUESTED_MAX)
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await pair.until(lambda: not pair.two._requested)


async def test_a_node_that_has_too_many_links_or_stops_refuses_another() -> None:
    pair = Pair()
    pair.accepts = False
    with pytest.raises(ConnectionError, match="accepts no link"):
        await pair.connect()
    pair.accepts = True
    pair.two.close()
    with pytest.raises(ConnectionError, match="accepts no link"):
        await pair.connect()
    assert pair.open_links == [0, 0]


@pytest.mark.parametrize("junk", [b"", b"\x01", bytes(29), bytes(200), b"\x03" + bytes(28), b"\xff" * 60])
async def test_messages_that_nodes_do_not_send_have_no_effect(junk: bytes) -> None:
    pair = Pair()
    end = await pair.connect()
    for subject in list(pair.bus.subscribed):
        if subject.startswith("tenure"):
            pair.bus.subscribed[subject](Message(subject, 1, junk))
    end.transport.write(b"hello")
    await pair.until(lambda: pair.accepted[0].received == b"hello")


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.ACKNOWLEDGED, Kind.OPENED, 99])
async def test_a_message_with_a_wrong_number_ends_the_link(kind: int) -> None:
    pair = Pair()
    end = await pair.connect()
    for link in list(pair.two._links.values()):
        link.receive(kind, 77, b"data")
    await asyncio.wait_for(asyncio.gather(end.lost.wait(), pair.accepted[0].lost.wait()), 20)
    assert not pair.accepted[0].received
