"""A node goes on following the controller, whatever the controller's records do to it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.cluster import following
from broker.cluster.following import FAILED_SECONDS, RegistryFollower
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
