"""A node goes on following the controller, whatever the controller's records do to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from broker.cluster.following import FAILED_SECONDS, RegistryFollower
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
