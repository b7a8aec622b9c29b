"""Live, draining and restarted nodes, as one node knows them from the store's view and the other nodes' greetings."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.cluster import members as module
from broker.cluster.members import NodeMembership, ignore_reply
from protocol.messages.node_requests import DrainingNode, NodeRequest, NodeResponse
from storage import NodeInfo

pytestmark = pytest.mark.plain  # replaces the log

ME, OTHER, THIRD = 1, 2, 3
GREETING = NodeRequest(1, ME)


class Peers:
    def __init__(self) -> None:
        self.sent: list[tuple[int, NodeRequest]] = []
        self.replies: list[Callable[[NodeResponse | None], None]] = []
        self.ended: list[int] = []

    def send(self, node: int, request: NodeRequest, done: Callable[[NodeResponse | None], None]) -> None:
        self.sent.append((node, request))
        self.replies.append(done)

    def node_ended(self, node: int) -> None:
        self.ended.append(node)


class World:
    def __init__(self, started: bool = True) -> None:
        self.nodes = [ME, OTHER, THIRD]
        self.peers = Peers()
        self.searches = 0
        self.changes = 0
        store = SimpleNamespace(find_new_nodes=self._find)
        view = SimpleNamespace(nodes=lambda: [NodeInfo(id, ()) for id in self.nodes])
        self.members = NodeMembership(ME, cast(Any, store), cast(Any, view), cast(Any, self.peers), GREETING, self._changed)
        if started:
            self.members.start()
            self.changes = 0

    def _find(self) -> None:
        self.searches += 1

    def _changed(self) -> None:
        self.changes += 1


def draining(*nodes: int) -> NodeResponse:
    return NodeResponse(draining=[DrainingNode(node) for node in nodes])


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    logged: list[tuple[str, int]] = []
    monkeypatch.setattr(module, "log", SimpleNamespace(info=lambda event, node: logged.append((event, node))))
    return logged


def test_the_nodes_of_the_view_are_live(world: World) -> None:
    assert (world.members.live, world.members.other_nodes) == ([ME, OTHER, THIRD], [OTHER, THIRD])


def test_nodes_count_once_the_node_takes_part_itself(lines: list[tuple[str, int]]) -> None:
    world = World(started=False)
    world.members.node_changed(OTHER, True)
    world.members.node_changed(THIRD, False)
    assert (world.peers.sent, world.peers.ended, world.changes) == ([], [THIRD], 0)
    world.members.start()
    assert world.changes == 1
    assert lines == [("node is alive", OTHER), ("node is gone", THIRD)]


def test_a_node_that_arrives_is_greeted_and_keeps_its_links(world: World) -> None:
    world.members.node_changed(OTHER, True)
    assert world.peers.sent == [(OTHER, GREETING)]
    assert (world.peers.ended, world.changes) == ([], 1)


def test_a_node_that_ends_drains_no_more_and_loses_its_links(world: World) -> None:
    world.members.drain(OTHER, True)
    world.members.drain(THIRD, True)
    world.changes = 0
    world.members.node_changed(OTHER, False)
    assert (world.members.draining, world.peers.ended, world.peers.sent, world.changes) == ({THIRD}, [OTHER], [], 1)
    world.members.node_changed(OTHER, True)
    assert world.members.draining == {THIRD}


def test_a_node_does_not_greet_itself(world: World) -> None:
    world.members.greet([ME, OTHER, THIRD])
    assert [node for node, _ in world.peers.sent] == [OTHER, THIRD]


def test_each_node_is_believed_about_itself_alone(world: World) -> None:
    world.members.greet([OTHER])
    (noted,) = world.peers.replies
    noted(draining(OTHER, THIRD))
    assert (world.members.draining, world.changes) == ({OTHER}, 1)
    noted(draining(OTHER))
    assert (world.members.draining, world.changes) == ({OTHER}, 1)
    noted(draining(THIRD))
    assert (world.members.draining, world.changes) == (set(), 2)


@pytest.mark.parametrize("why", ["no reply", "the node has ended", "this node stops"])
def test_a_late_reply_changes_nothing(world: World, why: str) -> None:
    world.members.greet([OTHER])
    if why == "the node has ended":
        world.nodes.remove(OTHER)
    elif why == "this node stops":
        world.members.stop()
    world.peers.replies[0](None if why == "no reply" else draining(OTHER))
    assert (world.members.draining, world.changes) == (set(), 0)


def test_a_new_process_of_a_node_is_looked_for_and_does_not_drain(world: World) -> None:
    assert world.members.answer_greeting(OTHER, 77).draining == []
    assert (world.searches, world.changes) == (1, 1)
    world.members.drain(OTHER, True)
    world.members.drain(THIRD, True)
    assert [node.id for node in world.members.answer_greeting(OTHER, 77).draining] == [OTHER, THIRD]
    assert (world.searches, world.changes) == (1, 3)
    assert [node.id for node in world.members.answer_greeting(OTHER, 78).draining] == [THIRD]
    assert (world.searches, world.changes) == (2, 4)
    world.members.node_changed(OTHER, False)
    world.members.answer_greeting(OTHER, 78)  # it returned unnoticed
    assert world.searches == 3


def test_only_a_live_node_is_drained_and_any_is_undrained(world: World, lines: list[tuple[str, int]]) -> None:
    world.members.drain(9, True)
    assert (world.members.draining, world.changes, lines) == (set(), 0, [])
    world.members.drain(OTHER, True)
    assert (world.members.draining, world.changes) == ({OTHER}, 1)
    world.nodes.remove(OTHER)
    world.members.drain(OTHER, False)
    assert (world.members.draining, world.changes) == (set(), 2)
    world.members.drain(OTHER, False)
    assert lines == [("node is drained", OTHER), ("node is no longer drained", OTHER), ("node is no longer drained", OTHER)]


def test_all_other_nodes_are_notified(world: World) -> None:
    request = NodeRequest(5, ME)
    world.members.notify_all(request)
    assert world.peers.sent == [(OTHER, request), (THIRD, request)]
    assert world.peers.replies == [ignore_reply] * 2
