"""Properties that all fast paths of group requests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from broker.fastpath.commit import CommitFastPath
from broker.fastpath.heartbeat import HeartbeatFastPath
from broker.fastpath.offset_fetch import OffsetFetchFastPath
from broker.fastpath.rejoin import JoinFastPath, SyncFastPath
from broker.net.connection import FastPath
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from tests.broker.fastpath.test_commit import commit
from tests.broker.fastpath.test_offset_fetch import fetching
from tests.broker.fastpath.test_rejoin import Pair
from tests.support.group_harness import Harness, Peer
from tests.support.group_requests import stable


class Repeated(NamedTuple):
    """A request that a test repeats; `send` returns the error code of the reply."""

    fast_path: type[FastPath]
    peer: Peer
    send: Callable[[], int]
    codes: dict[int, int]  # error codes of the replies that differ from the partition's refusal

    @property
    def learned(self) -> bool:
        return any(type(fast_path) is self.fast_path for fast_path in self.peer.connection.fast_paths.values())


def heartbeats(harness: Harness) -> Repeated:
    peer = Peer(harness)
    request = HeartbeatRequest("g", 1, stable(harness, peer))
    codes: dict[int, int] = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NONE}
    return Repeated(HeartbeatFastPath, peer, lambda: peer.ask(request, 4).error_code, codes)


def commits(harness: Harness) -> Repeated:
    peer = Peer(harness)
    request = commit(stable(harness, peer), 3)
    return Repeated(CommitFastPath, peer, lambda: peer.ask(request, 9).topics[0].partitions[0].error_code, {})


def offset_fetches(harness: Harness) -> Repeated:
    peer = Peer(harness)
    peer.ask(commit("", 3, generation=-1), 9)
    codes: dict[int, int] = {ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_COORDINATOR}
    return Repeated(OffsetFetchFastPath, peer, lambda: peer.ask(fetching(9), 9).groups[0].error_code, codes)


def joins(harness: Harness) -> Repeated:
    follower = Pair(harness).b

    def send() -> int:
        follower.join()
        return int(follower.joined().error_code)

    return Repeated(JoinFastPath, follower.peer, send, {})


def syncs(harness: Harness) -> Repeated:
    follower = Pair(harness).b

    def send() -> int:
        follower.sync()
        return int(follower.peer.reply().error_code)

    codes: dict[int, int] = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.REBALANCE_IN_PROGRESS}
    return Repeated(SyncFastPath, follower.peer, send, codes)


@pytest.fixture(params=[heartbeats, commits, offset_fetches, joins, syncs])
def build(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def learned(harness: Harness, build: Callable[[Harness], Repeated]) -> Repeated:
    repeated = build(harness)
    for _ in range(3):
        assert repeated.send() == 0
    assert repeated.learned
    return repeated


@pytest.mark.parametrize("refusal", [14, 15, 16])
def test_a_partition_that_does_not_serve_refuses(harness: Harness, learned: Repeated, refusal: int) -> None:
    journal = harness.shards.journal_of("g")
    journal.refusal = refusal
    emitted = journal.shard.hold.emitted
    assert learned.send() == learned.codes.get(refusal, refusal)
    assert journal.shard.hold.emitted == emitted


def test_revoked_rights_are_respected(harness: Harness, learned: Repeated) -> None:
    harness.authorizer.open = False
    assert learned.send() == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_no_request_is_learned_while_frames_are_logged(harness: Harness, build: Callable[[Harness], Repeated]) -> None:
    traced: list[Any] = []
    harness.host.trace = lambda direction, call, message: traced.append(message)
    repeated = build(harness)
    before = len(traced)
    for _ in range(3):
        assert repeated.send() == 0
    assert len(traced) == before + 6
    assert not repeated.learned
