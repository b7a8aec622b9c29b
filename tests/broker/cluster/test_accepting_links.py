"""How a node accepts links of other nodes: a few in each call, as many as it may have, and again after a failure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.cluster import channel as module
from broker.cluster.channel import ACCEPTS_PER_CALL, CHANNEL, PEER, RETRY_SECONDS, WARN_SECONDS, AcceptedLinks, UnixChannel
from tests.support.stepped_loop import SteppedLoop

pytestmark = pytest.mark.plain  # replaces connections and the log

LINKS_MAX = 100


class Socket:
    """A listening socket with pending links; `failures` are raised first."""

    def __init__(self) -> None:
        self.pending = 0
        self.failures: list[OSError] = []
        self.accepted: list[Any] = []
        self.closed = False

    def fileno(self) -> int:
        return 77

    def accept(self) -> tuple[Any, str]:
        if self.failures:
            raise self.failures.pop(0)
        if not self.pending:
            raise BlockingIOError
        self.pending -= 1
        accepted = SimpleNamespace(closes=[])
        accepted.close = lambda: accepted.closes.append(True)
        self.accepted.append(accepted)
        return accepted, ""

    def close(self) -> None:
        self.closed = True


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = SteppedLoop()
        self.socket = Socket()
        self.live: set[Any] = set()
        self.warned: list[tuple[float, str]] = []
        self.connected: list[tuple[Any, Any]] = []
        self.reader: Any = None
        monkeypatch.setattr("broker.cluster.channel.log.warning", lambda event, reason: self.warned.append((self.loop.time(), reason)))
        monkeypatch.setattr(module, "Connection", lambda *arguments: SimpleConnection(arguments))
        monkeypatch.setattr(module, "AcceptedSockets", lambda *arguments: SimpleNamespace(connect=lambda connection, sock: self.connected.append((connection, sock))))
        connections = SimpleNamespace(live=self.live, add=self.live.add)
        self.links = AcceptedLinks(cast(Any, "context"), cast(Any, connections), LINKS_MAX)
        self.channel = UnixChannel(cast(Any, self.loop), cast(Any, self.socket), self._connect, self.links, False)
        cast(Any, self.loop).add_reader = self._add_reader
        cast(Any, self.loop).remove_reader = self._remove_reader
        self.asked: list[tuple[int, Any]] = []

    async def _connect(self, node: int, new_protocol: Any) -> None:
        self.asked.append((node, new_protocol))

    def _add_reader(self, descriptor: int, callback: Any) -> None:
        assert descriptor == 77
        self.reader = callback

    def _remove_reader(self, descriptor: int) -> None:
        assert descriptor == 77
        self.reader = None


class SimpleConnection:
    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self.arguments = arguments


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_each_link_gets_a_connection_of_the_channel(world: World) -> None:
    world.channel.start()
    world.socket.pending = ACCEPTS_PER_CALL + 2
    world.reader()
    assert len(world.connected) == ACCEPTS_PER_CALL  # the loop goes on with other work
    world.reader()
    assert len(world.connected) == ACCEPTS_PER_CALL + 2
    assert world.connected[0][0].arguments == ("context", CHANNEL, PEER)
    assert [sock for _, sock in world.connected] == world.socket.accepted
    assert world.live == {connection for connection, _ in world.connected}
    assert (world.warned, world.loop.delays()) == ([], [])


def test_links_beyond_the_limit_are_closed_and_warned_of_at_times(world: World) -> None:
    world.channel.start()
    world.live |= set(range(LINKS_MAX - 1))
    world.socket.pending = 3
    begin = world.loop.time()
    world.reader()
    assert (len(world.connected), [len(accepted.closes) for accepted in world.socket.accepted]) == (1, [0, 1, 1])
    for seconds in (WARN_SECONDS - 0.5, 0.5):
        world.loop.advance(seconds)
        world.socket.pending = 1
        world.reader()
    assert world.warned == [(begin, "100 links are open"), (begin + WARN_SECONDS, "100 links are open")]


@pytest.mark.parametrize("error", [InterruptedError(), ConnectionAbortedError(), BlockingIOError()])
def test_a_link_that_is_gone_already_is_no_failure(world: World, error: OSError) -> None:
    world.channel.start()
    world.socket.failures, world.socket.pending = [error], 1
    world.reader()
    assert (world.connected, world.warned, world.reader is not None) == ([], [], True)
    world.reader()
    assert len(world.connected) == 1


@pytest.mark.parametrize(("error", "reason"), [(OSError(24, "Too many open files"), "Too many open files"), (OSError("no number"), "no number")])
def test_a_node_without_descriptors_accepts_again_after_a_second(world: World, error: OSError, reason: str) -> None:
    world.channel.start()
    world.socket.failures, world.socket.pending = [error], 1
    world.reader()
    assert (world.reader, world.loop.delays(), [warned for _, warned in world.warned]) == (None, [RETRY_SECONDS], [reason])
    world.loop.pass_ms(RETRY_SECONDS * 1_000)
    world.reader()
    assert len(world.connected) == 1


def test_a_defect_pauses_the_accepting(world: World, planted_defect: None) -> None:
    world.channel.start()
    world.socket.pending = 1

    def fail(now: float) -> None:
        raise ValueError("a defect")

    cast(Any, world.links).new = fail
    world.reader()
    assert (world.reader, world.loop.delays()) == (None, [RETRY_SECONDS])


def test_a_closed_channel_accepts_nothing_more(world: World) -> None:
    world.channel.start()
    world.socket.failures = [OSError(24, "Too many open files")]
    world.reader()
    world.channel.start()
    for _ in range(2):
        world.channel.close()
        assert (world.reader, world.socket.closed) == (None, True)
        world.socket.closed = True
    world.loop.pass_ms(RETRY_SECONDS * 2_000)
    assert world.reader is None


def test_a_link_to_another_node_is_connected_with_its_protocol(world: World) -> None:
    protocol = object
    step = world.channel.connect(5, protocol)
    with pytest.raises(StopIteration):
        step.send(None)
    assert world.asked == [(5, protocol)]
