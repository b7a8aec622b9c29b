"""Links to other nodes in virtual time: which request uses which link, and what a lost, late or unreadable reply does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from broker.cluster.messages import encode
from broker.cluster.peers import FORWARD_TIMEOUT_SECONDS, TIMEOUT_SECONDS, WARN_SECONDS, Link, Peers
from protocol.messages.node_requests import NodeRequest, NodeResponse
from storage import NodeInfo
from tests.support.stepped_loop import SteppedLoop

pytestmark = pytest.mark.plain  # replaces the log

OTHER, THIRD = 2, 3
REQUEST = NodeRequest(5, 1)


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.aborted = True


def reply_frame(correlation_id: int, offset: int) -> bytes:
    body = correlation_id.to_bytes(4, "big") + b"\0" + NodeResponse(offset=offset).encode(0)
    return len(body).to_bytes(4, "big") + body


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = SteppedLoop()
        self.warned: list[tuple[float, dict[str, Any]]] = []
        self.errors: list[str] = []
        monkeypatch.setattr("broker.cluster.peers.log.warning", lambda event, **fields: self.warned.append((self.loop.time(), fields)))
        monkeypatch.setattr("broker.cluster.peers.log.error", lambda event, reason: self.errors.append(reason))
        self.nodes = [NodeInfo(OTHER, ()), NodeInfo(THIRD, ())]
        self.made: list[tuple[int, Link, Transport]] = []
        self.refusal: OSError | None = None
        self.replies: list[Any] = []
        self.peers = Peers(cast(Any, self.loop), lambda: self.nodes, cast(Any, self._connect), 1 << 20)

    async def _connect(self, node: int, new_protocol: Callable[[], Link]) -> None:
        if self.refusal is not None:
            raise self.refusal
        link, transport = new_protocol(), Transport()
        self.made.append((node, link, transport))
        link.connection_made(transport)

    def send(self, name: str, node: int = OTHER, forward: bool = False) -> None:
        send = self.peers.forward if forward else self.peers.send
        send(node, REQUEST, lambda reply: self.replies.append((name, None if reply is None else reply.offset)))
        self.loop.run()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_all_requests_to_a_node_share_one_link(world: World) -> None:
    for name, node in (("a", OTHER), ("b", OTHER), ("c", THIRD)):
        world.send(name, node)
    assert [node for node, _, _ in world.made] == [OTHER, THIRD]
    _, link, transport = world.made[0]
    assert transport.written == [encode(REQUEST, 1), encode(REQUEST, 2)]
    assert world.replies == []
    frames = reply_frame(1, 11) + reply_frame(2, 22)
    link.data_received(frames[:9])
    assert world.replies == []
    link.data_received(frames[9:])
    assert (world.replies, link.busy) == ([("a", 11), ("b", 22)], False)
    world.send("d")
    assert len(world.made) == 2
    assert transport.written[2:] == [encode(REQUEST, 3)]


def test_requests_wait_for_the_connection(world: World) -> None:
    world.peers.send(OTHER, REQUEST, lambda reply: None)
    world.peers.send(OTHER, REQUEST, lambda reply: None)
    assert world.made == []
    world.loop.run()
    ((_, link, transport),) = world.made
    assert transport.written == [encode(REQUEST, 1), encode(REQUEST, 2)]
    again = Transport()
    link.connection_made(again)
    assert again.written == []


def test_a_forwarded_request_has_a_link_for_itself(world: World) -> None:
    """It may wait for a disk."""
    for name in ("a", "b"):
        world.send(name, forward=True)
    world.send("c")
    assert len(world.made) == 3
    world.made[0][1].data_received(reply_frame(1, 11))
    world.send("d", forward=True)
    assert len(world.made) == 3
    assert world.made[0][2].written == [encode(REQUEST, 1), encode(REQUEST, 2)]
    world.made[0][1].connection_lost(None)
    world.made[1][1].data_received(reply_frame(1, 12))
    world.send("e", forward=True)
    assert world.replies == [("a", 11), ("d", None), ("b", 12)]
    assert len(world.made) == 3
    assert len(world.made[1][2].written) == 2


@pytest.mark.parametrize(("forward", "seconds"), [(False, TIMEOUT_SECONDS), (True, FORWARD_TIMEOUT_SECONDS)])
def test_a_link_whose_reply_is_late_ends(world: World, forward: bool, seconds: float) -> None:
    world.send("a", forward=forward)
    world.loop.pass_ms(seconds * 1_000 - 1)
    assert (world.replies, world.made[0][2].aborted) == ([], False)
    world.loop.pass_ms(1)
    assert (world.replies, world.made[0][2].aborted) == ([("a", None)], True)
    world.send("b", forward=forward)
    assert len(world.made) == 2


def test_an_answered_request_leaves_no_timer(world: World) -> None:
    world.send("a")
    assert world.loop.delays() == [TIMEOUT_SECONDS]
    world.made[0][1].data_received(reply_frame(1, 11))
    assert world.loop.delays() == []
    world.send("b")
    world.made[0][1].connection_lost(None)
    assert (world.loop.delays(), world.replies) == ([], [("a", 11), ("b", None)])
    world.made[0][1].end()
    assert len(world.replies) == 2


@pytest.mark.parametrize("frame", [reply_frame(7, 1), (5).to_bytes(4, "big") + b"\0\0\0\1\xff", b"\xff\xff\xff\xff"])
def test_an_unreadable_reply_ends_the_link(world: World, frame: bytes) -> None:
    world.send("a")
    world.made[0][1].data_received(frame)
    assert (world.replies, world.made[0][2].aborted, len(world.errors)) == ([("a", None)], True, 1)


def test_a_link_that_has_ended_refuses_requests(world: World) -> None:
    world.send("a")
    link = world.made[0][1]
    link.end()
    link.send(REQUEST, lambda reply: world.replies.append(("b", reply)), 1.0)
    assert (world.replies, world.loop.delays()) == ([("a", None), ("b", None)], [])


def test_a_link_ends_once(world: World) -> None:
    ends: list[Link] = []
    link = Link(cast(Any, world.loop), 1 << 20, ends.append)
    for _ in range(2):
        link.end()
    assert ends == [link]


def test_a_link_that_has_ended_before_it_is_made_sends_nothing(world: World) -> None:
    link = Link(cast(Any, world.loop), 1 << 20, lambda link: None)
    transport = Transport()
    link.send(REQUEST, world.replies.append, 5.0)
    link.end()
    link.connection_made(transport)
    assert (transport.aborted, transport.written, world.replies) == (True, [], [None])
    made = Link(cast(Any, world.loop), 1 << 20, lambda link: None)
    transport = Transport()
    made.connection_made(transport)
    assert not transport.aborted
    made.end()
    assert transport.aborted


@pytest.mark.parametrize("forward", [False, True])
def test_a_node_that_is_not_live_is_not_connected_to(world: World, forward: bool) -> None:
    world.send("a", node=9, forward=forward)
    assert (world.replies, world.made) == ([("a", None)], [])
    world.peers.close()
    world.send("b", forward=forward)
    assert (world.replies, world.made) == ([("a", None), ("b", None)], [])


def test_a_node_that_cannot_be_reached_is_warned_of_every_fifteen_seconds(world: World) -> None:
    world.refusal = OSError(111, "Connection refused")
    begin = world.loop.time()
    for second in range(2 * int(WARN_SECONDS)):
        world.send("a")
        assert len(world.replies) == second + 1
        world.loop.advance(1)
    world.send("b", node=THIRD)
    assert [round(when - begin) for when, _ in world.warned] == [0, 15, 30]
    assert world.warned[0][1] == {"node": OTHER, "reason": "Connection refused"}
    assert world.warned[-1][1]["node"] == THIRD
    world.refusal = OSError("no number")
    world.loop.advance(2 * WARN_SECONDS)
    world.send("c")
    assert world.warned[-1][1]["reason"] == "no number"


@pytest.mark.parametrize("close", [False, True])
def test_the_links_of_an_ended_node_end(world: World, close: bool) -> None:
    for name, node, forward in (("a", OTHER, False), ("b", OTHER, True), ("c", THIRD, False), ("d", THIRD, True)):
        world.send(name, node, forward)
    if close:
        world.peers.close()
    else:
        world.peers.node_ended(OTHER)
        world.peers.node_ended(OTHER)
    ended = {node for node, _, transport in world.made if transport.aborted}
    assert ended == ({OTHER, THIRD} if close else {OTHER})
    assert sorted(world.replies) == [(name, None) for name in ("abcd" if close else "ab")]


def test_a_late_end_of_an_earlier_link_leaves_the_next_one(world: World) -> None:
    world.send("a")
    first = world.made[0][1]
    world.peers._links[OTHER].ended = True
    world.send("b")
    assert len(world.made) == 2
    first.ended = False
    first.end()
    world.send("c")
    assert len(world.made) == 2
