"""A node goes on following the controller, whatever the controller's records do to it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.cluster import following
from broker.cluster.following import FAILED_SECONDS, RegistryFollower
from broker.cluster.messages import NodeRequestKind
from broker.topics.leaders import NO_NODE
from protocol.errors import ProtocolError
from protocol.messages.node_requests import NodeRequest, NodeResponse
from tests.support.stepped_loop import SteppedLoop

ME, CONTROLLER = 1, 2


class Registry:
    """A registry that follows; `failures` are raised by the next replies."""

    is_controller = False

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.applied = 0
        self.begun_anew = 0

    def request(self, node_id: int, kind: int) -> NodeRequest:
        return NodeRequest(kind, node_id)

    def apply_records(self, request: NodeRequest, reply: NodeResponse) -> bool:
        if self.failures:
            raise self.failures.pop()
        self.applied += 1
        return False

    def follow(self) -> None:
        self.begun_anew += 1


class Peers:
    def __init__(self) -> None:
        self.asked: list[Callable[[NodeResponse | None], None]] = []

    def send(self, node: int, request: NodeRequest, done: Callable[[NodeResponse | None], None]) -> None:
        self.asked.append(done)


def test_records_that_cannot_be_applied_end_nothing() -> None:
    loop, peers, registry = SteppedLoop(), Peers(), Registry()
    follower = RegistryFollower(ME, cast(Any, loop), cast(Any, peers), cast(Any, registry), lambda: CONTROLLER)
    done: list[str] = []
    registry.failures = [ValueError("a record of a newer version")]
    follower.follow(lambda: done.append("first"))
    peers.asked.pop()(NodeResponse())
    assert (done, registry.begun_anew, peers.asked) == ([], 1, [])
    follower.follow(lambda: done.append("second"))
    loop.jump(FAILED_SECONDS / 2)
    assert peers.asked == []
    loop.jump(FAILED_SECONDS)
    peers.asked.pop()(NodeResponse())
    while peers.asked:
        peers.asked.pop()(NodeResponse())
    assert done == ["first", "second"]
    follower.follow(lambda: done.append("third"))
    peers.asked.pop()(NodeResponse())
    assert done == ["first", "second", "third"]


@pytest.mark.parametrize("place", ["begin", "timer", "reply"])
def test_a_defect_while_reading_ends_only_this_attempt(place: str, planted_defect: None) -> None:
    """Where the callbacks of a reply, a timer or `follow` itself raise."""
    loop, peers, registry = SteppedLoop(), Peers(), Registry()
    answers: list[int | Exception] = []

    def controller() -> int:
        answer = answers.pop(0) if answers else CONTROLLER
        if isinstance(answer, Exception):
            raise answer
        return answer

    follower = RegistryFollower(ME, cast(Any, loop), cast(Any, peers), cast(Any, registry), controller)
    done: list[str] = []
    if place == "begin":
        answers.append(RuntimeError("a defect"))
    elif place == "timer":
        answers.extend([NO_NODE, RuntimeError("a defect"), RuntimeError("another")])
    follower.follow(lambda: done.append("first"))
    if place == "reply":
        registry.failures = [ValueError("a defect")]
        answers.append(RuntimeError("a defect while the first one is logged"))
        peers.asked.pop()(NodeResponse())
    follower.follow(lambda: done.append("second"))
    for _ in range(4):
        loop.jump(FAILED_SECONDS)
    while peers.asked:
        assert len(peers.asked) == 1
        peers.asked.pop()(NodeResponse())
    assert done == ["first", "second"]


def test_the_log_line_about_a_newer_record_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(following, "log", SimpleNamespace(error=lambda event, **fields: lines.append(fields)))
    loop, peers, registry = SteppedLoop(), Peers(), Registry()
    registry.failures = [ProtocolError("TopicValue has no version 9")]
    follower = RegistryFollower(ME, cast(Any, loop), cast(Any, peers), cast(Any, registry), lambda: CONTROLLER)
    follower.follow(lambda: None)
    peers.asked.pop()(NodeResponse())
    (line,) = lines
    assert "run the same version on all nodes (TopicValue has no version 9)" in line["reason"]


class World:
    """A follower whose controller, registry and peers are the test's."""

    def __init__(self) -> None:
        self.loop, self.peers, self.registry = SteppedLoop(), Peers(), Registry()
        self.controller = CONTROLLER
        self.sent: list[tuple[int, NodeRequest]] = []
        self.more: list[bool] = []  # whether more records follow, for the next replies
        self.done: list[str] = []
        send = self.peers.send

        def record(node: int, request: NodeRequest, done: Callable[[NodeResponse | None], None]) -> None:
            self.sent.append((node, request))
            send(node, request, done)

        cast(Any, self.peers).send = record
        apply_records = self.registry.apply_records
        cast(Any, self.registry).apply_records = lambda request, reply: apply_records(request, reply) or bool(self.more and self.more.pop(0))
        self.follower = RegistryFollower(ME, cast(Any, self.loop), cast(Any, self.peers), cast(Any, self.registry), lambda: self.controller)

    def follow(self, name: str) -> None:
        self.follower.follow(lambda: self.done.append(name))

    def answer(self, reply: NodeResponse | None) -> None:
        self.peers.asked.pop()(reply)


def test_the_controller_is_asked_until_it_has_no_more_records() -> None:
    world = World()
    world.more = [True, True, False]
    world.follow("first")
    assert (world.sent[0][0], world.sent[0][1].kind, world.sent[0][1].node) == (CONTROLLER, NodeRequestKind.FOLLOW, ME)
    for asked in (2, 3):
        world.answer(NodeResponse())
        assert (len(world.sent), world.done) == (asked, [])
    world.answer(NodeResponse())
    assert (len(world.sent), world.done) == (3, ["first"])
    world.loop.jump(10)
    assert len(world.sent) == 3


def test_records_that_are_announced_while_a_reply_is_awaited_are_asked_for_after_it() -> None:
    """The reply may have been written before the announced records."""
    world = World()
    world.follow("first")
    world.follow("second")
    assert len(world.sent) == 1
    world.answer(NodeResponse())
    assert (len(world.sent), world.done) == (2, [])
    world.answer(NodeResponse())
    assert (len(world.sent), world.done) == (2, ["first", "second"])
    world.follow("third")
    world.answer(NodeResponse())
    assert (len(world.sent), world.done) == (3, ["first", "second", "third"])


@pytest.mark.parametrize("why", ["no controller", "its own id", "no reply", "an error"])
def test_a_controller_that_does_not_answer_is_asked_again_soon(why: str) -> None:
    """With its own id: the node owns the registry, and has not read it yet."""
    world = World()
    if why in ("no controller", "its own id"):
        world.controller = NO_NODE if why == "no controller" else ME
    world.follow("first")
    if world.peers.asked:
        world.answer(None if why == "no reply" else NodeResponse(41))
    sent = len(world.sent)
    assert world.loop.delays() == [following.RETRY_SECONDS]
    world.controller = CONTROLLER
    world.loop.pass_ms(following.RETRY_SECONDS * 1_000)
    assert len(world.sent) == sent + 1
    world.answer(NodeResponse())
    assert world.done == ["first"]
    assert world.registry.applied == 1


def test_the_controller_itself_has_all_records() -> None:
    world = World()
    world.registry.is_controller = True
    world.follow("first")
    assert (world.done, world.sent, world.loop.delays()) == (["first"], [], [])


@pytest.mark.parametrize("when", ["before a request", "before a reply"])
def test_a_node_that_becomes_the_controller_has_all_records(when: str) -> None:
    world = World()
    if when == "before a request":
        world.controller = NO_NODE
    world.follow("first")
    world.registry.is_controller = True
    if when == "before a request":
        world.loop.jump(following.RETRY_SECONDS)
    else:
        world.answer(NodeResponse())
    assert (world.done, world.registry.applied, world.loop.delays()) == (["first"], 0, [])
    world.registry.is_controller = False
    world.controller = CONTROLLER
    world.follow("second")
    world.answer(NodeResponse())
    assert world.done == ["first", "second"]


def test_a_stopped_follower_asks_nothing_more() -> None:
    world = World()
    world.follow("first")
    world.answer(None)
    world.follower.stop()
    world.loop.jump(10)
    assert (len(world.sent), world.done, world.loop.delays()) == (1, [], [])


def test_a_failing_waiter_does_not_keep_the_others_waiting(planted_defect: None) -> None:
    world = World()

    def fail() -> None:
        raise RuntimeError("a defect")

    world.follower.follow(fail)
    world.follow("second")
    for _ in range(2):
        world.answer(NodeResponse())
    assert world.done == ["second"]
    world.registry.is_controller = True
    world.follower.follow(fail)


def test_the_log_line_about_unusable_records_names_the_controller_and_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(following, "log", SimpleNamespace(error=lambda event, **fields: lines.append({"event": event} | fields)))
    world = World()
    world.registry.failures = [KeyError("offset")]
    world.follow("first")
    world.answer(NodeResponse())
    assert lines == [
        {"event": "this node cannot follow the controller", "controller": CONTROLLER, "reason": "KeyError: 'offset'", "again_seconds": FAILED_SECONDS}
    ]
    assert world.loop.delays() == [FAILED_SECONDS]
