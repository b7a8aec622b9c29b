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
from broker.runtime.contain import DEFECTS
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from tests.broker.fastpath.test_commit import commit
from tests.broker.fastpath.test_offset_fetch import fetching
from tests.broker.fastpath.test_rejoin import LeaderAndFollower
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.group_requests import committing, join_stable_group


class Repeated(NamedTuple):
    """A request that a test repeats."""

    fast_path: type[FastPath]
    peer: GroupClient
    send: Callable[[], None]
    code_of: Callable[[Any], int]  # the error code of a reply
    codes: dict[int, int]  # error codes of the replies that differ from the partition's refusal

    def reply(self) -> int | None:
        """The error code of the reply, None while there is none."""
        reply = self.peer.reply()
        return None if reply is None else self.code_of(reply)

    def ask(self) -> int | None:
        self.send()
        return self.reply()

    @property
    def learned(self) -> bool:
        return any(type(fast_path) is self.fast_path for fast_path in self.peer.connection.fast_paths.values())


def error_code(reply: Any) -> int:
    return int(reply.error_code)


def heartbeats(harness: GroupHarness) -> Repeated:
    peer = GroupClient(harness)
    request = HeartbeatRequest("g", 1, join_stable_group(harness, peer))
    codes: dict[int, int] = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NONE}
    return Repeated(HeartbeatFastPath, peer, lambda: peer.send(request, 4), error_code, codes)


def commits(harness: GroupHarness, version: int = 9) -> Repeated:
    peer = GroupClient(harness)
    request = commit(join_stable_group(harness, peer), 3)
    return Repeated(CommitFastPath, peer, lambda: peer.send(request, version), lambda reply: error_code(reply.topics[0].partitions[0]), {})


def commits_by_id(harness: GroupHarness) -> Repeated:
    return commits(harness, 10)


def offset_fetches(harness: GroupHarness, version: int = 9) -> Repeated:
    peer = GroupClient(harness)
    peer.ask(commit("", 3, generation=-1), 9)
    codes: dict[int, int] = {ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_COORDINATOR}
    return Repeated(OffsetFetchFastPath, peer, lambda: peer.send(fetching(version), version), lambda reply: error_code(reply.groups[0]), codes)


def offset_fetches_by_id(harness: GroupHarness) -> Repeated:
    return offset_fetches(harness, 10)


def joins(harness: GroupHarness) -> Repeated:
    follower = LeaderAndFollower(harness).b
    return Repeated(JoinFastPath, follower.peer, follower.join, error_code, {})


def syncs(harness: GroupHarness) -> Repeated:
    follower = LeaderAndFollower(harness).b
    codes: dict[int, int] = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.REBALANCE_IN_PROGRESS}
    return Repeated(SyncFastPath, follower.peer, follower.sync, error_code, codes)


@pytest.fixture(params=[heartbeats, commits, commits_by_id, offset_fetches, offset_fetches_by_id, joins, syncs])
def build(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def learned(harness: GroupHarness, build: Callable[[GroupHarness], Repeated]) -> Repeated:
    repeated = build(harness)
    for _ in range(3):
        assert repeated.ask() == 0
    assert repeated.learned
    return repeated


@pytest.mark.parametrize("refusal", [14, 15, 16])
def test_a_partition_that_does_not_serve_refuses(harness: GroupHarness, learned: Repeated, refusal: int) -> None:
    journal = harness.shards.journal_of("g")
    journal.refusal = refusal
    emitted = journal.shard.hold.emitted
    assert learned.ask() == learned.codes.get(refusal, refusal)
    assert journal.shard.hold.emitted == emitted


def test_revoked_rights_are_respected(harness: GroupHarness, learned: Repeated) -> None:
    harness.authorizer.allows_all = False
    assert learned.ask() == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_reply_waits_for_appends_in_flight_and_fails_with_them(harness: GroupHarness, learned: Repeated) -> None:
    log = harness.hold_appends()
    journal = harness.shards.journal_of("g")
    group = next(name for name in map(str, range(100)) if harness.shards.journal_of(name) is journal)
    for end, code in ((log.succeed, ErrorCode.NONE), (log.refuse, ErrorCode.NOT_COORDINATOR)):
        GroupClient(harness).send(committing(group), 9)
        learned.send()
        assert learned.reply() is None
        while log.pending:
            end()
            harness.loop.run()
        assert learned.reply() == code


def test_no_request_is_learned_while_frames_are_logged(harness: GroupHarness, build: Callable[[GroupHarness], Repeated]) -> None:
    traced: list[Any] = []
    harness.context.trace = lambda direction, call, message: traced.append(message)
    repeated = build(harness)
    before = len(traced)
    for _ in range(3):
        assert repeated.ask() == 0
    assert len(traced) == before + 6
    assert not repeated.learned


@pytest.mark.plain
def test_a_defect_ends_only_its_request(harness: GroupHarness, learned: Repeated, monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(*arguments: Any) -> None:
        raise RuntimeError("a defect")

    defects = DEFECTS.count
    with monkeypatch.context() as patched:
        patched.setattr(learned.fast_path, "answer", defect)
        assert learned.ask() == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (DEFECTS.count, learned.peer.connection.fast_paths, learned.peer.connection.busy) == (defects + 1, {}, False)
    assert learned.ask() == 0
