"""A heartbeat that is the same as before is answered without being read, and no client can tell."""

from __future__ import annotations

from typing import Any

import pytest

from broker.fastpath import heartbeat as heartbeat_again
from broker.fastpath.heartbeat import HeartbeatFastPath
from broker.fastpath.learning import LEARN_ATTEMPTS_MAX, LEARN_PAUSE_MS
from broker.runtime.turn import NEVER
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.support.group_desk import Defective, Desk, Peer, Refusing
from tests.support.group_requests import committing, joined, joining, stable, syncing


class Changeable(Refusing):
    """Open, until the test says otherwise."""

    open = True


@pytest.fixture
def desk() -> Desk:
    return Desk(Changeable((3, 3, "g")))


@pytest.fixture
def peer(desk: Desk) -> Peer:
    return Peer(desk)


@pytest.fixture
def beating(desk: Desk, peer: Peer) -> HeartbeatRequest:
    """A heartbeat that was accepted, and is remembered."""
    request = HeartbeatRequest("g", 1, stable(desk, peer))
    assert peer.ask(request, 4).error_code == 0
    assert peer.connection.fast_paths
    return request


@pytest.fixture
def unread(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the handler of heartbeats was called with from here on."""
    called: list[Any] = []
    route = desk.dispatch.routes[HeartbeatRequest.API_KEY]
    handle = route.handle

    def noting(call: Any, request: Any) -> Any:
        called.append(request)
        return handle(call, request)

    monkeypatch.setattr(route, "handle", noting)
    return called


@pytest.mark.parametrize("version", range(5))
def test_it_is_not_read_again_in_any_version(desk: Desk, peer: Peer, version: int) -> None:
    request = HeartbeatRequest("g", 1, stable(desk, peer))
    called: list[Any] = []
    for _ in range(3):
        assert peer.ask(request, version).error_code == 0  # each with a correlation id of its own
        route = desk.dispatch.routes[HeartbeatRequest.API_KEY]
        route.handle = lambda call, asked: called.append(asked)
    assert called == []


def test_members_in_turn_on_one_connection_build_no_fast_paths_for_a_minute(desk: Desk, peer: Peer, unread: list[Any]) -> None:
    beats = []
    for group in ("g0", "g1"):
        id = joined(desk, peer, joining(group=group, session=2 * LEARN_PAUSE_MS), 5).member_id
        sync = syncing(id, assigned={id: b"mine"})
        sync.group_id = group
        peer.ask(sync, 5)
        beats.append(HeartbeatRequest(group, 1, id))
    built = []
    for number in range(LEARN_ATTEMPTS_MAX + 4):
        assert peer.ask(beats[number % 2], 4).error_code == 0
        built += [one for one in peer.connection.fast_paths.values() if isinstance(one, HeartbeatFastPath) and one not in built]
    assert len(built) == LEARN_ATTEMPTS_MAX
    assert len(unread) == LEARN_ATTEMPTS_MAX + 2  # the last fast path answers every second heartbeat
    desk.pass_ms(LEARN_PAUSE_MS)
    for _ in range(3):
        assert peer.ask(beats[0], 4).error_code == 0
    assert len(unread) == LEARN_ATTEMPTS_MAX + 3


def test_every_answer_is_that_of_the_moment(desk: Desk, peer: Peer, beating: HeartbeatRequest, unread: list[Any]) -> None:
    newcomer = Peer(desk)
    newcomer.send(joining(instance="new"), 9)
    assert peer.ask(beating, 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    peer.send(joining(id=beating.member_id), 9)
    desk.pass_ms(0)
    assert peer.reply().generation_id == 2
    assert peer.ask(beating, 4).error_code == ErrorCode.ILLEGAL_GENERATION
    desk.pass_ms(100_000)
    assert peer.ask(beating, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert unread == []


def test_it_keeps_a_member_alive(desk: Desk, peer: Peer, beating: HeartbeatRequest, unread: list[Any]) -> None:
    for _ in range(5):
        desk.pass_ms(9_999)
        assert peer.ask(beating, 4).error_code == 0
    desk.pass_ms(10_000)
    assert peer.ask(beating, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert unread == []


def test_a_late_one_is_noted_in_time(desk: Desk, peer: Peer, beating: HeartbeatRequest, unread: list[Any]) -> None:
    """It is the only one to set a deadline that is earlier than others: whoever wakes the shard hears of it."""
    desk.pass_ms(9_000)
    desk.turn.armed_at = NEVER
    assert peer.ask(beating, 4).error_code == 0
    assert desk.turn.armed_at <= desk.shards.of("g").wake_at
    assert unread == []


@pytest.mark.parametrize(("refusal", "code"), [(14, 0), (15, 15), (16, 16)])
def test_a_partition_that_does_not_serve_says_so(desk: Desk, peer: Peer, beating: HeartbeatRequest, refusal: int, code: int) -> None:
    desk.shards.of("g").refusal = refusal
    assert peer.ask(beating, 4).error_code == code


def test_it_waits_for_what_is_on_its_way_to_the_log(desk: Desk, peer: Peer, beating: HeartbeatRequest) -> None:
    log = desk.log_of("g")
    log.waiting = True
    Peer(desk).send(committing(generation=1, id=beating.member_id), 9)
    peer.send(beating, 4)
    assert peer.reply() is None
    log.succeed()
    desk.loop.run()
    assert peer.reply().error_code == 0


def test_rights_that_were_taken_away_are_gone(
    desk: Desk, peer: Peer, beating: HeartbeatRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk.authorizer, "open", False)
    assert peer.ask(beating, 4).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_defect_is_answered_once(desk: Desk, peer: Peer, beating: HeartbeatRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = desk.shards.of("g")
    with monkeypatch.context() as patched:
        patched.setattr(journal, "shard", Defective(journal.shard, "heartbeat"))
        assert peer.ask(beating, 4).error_code == -1
    assert peer.reply() is None
    assert peer.ask(beating, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_other_bytes_are_another_request(desk: Desk, peer: Peer, beating: HeartbeatRequest, unread: list[Any]) -> None:
    for generation, member, version in ((2, beating.member_id, 4), (1, f"{beating.member_id}x", 4), (1, "", 4), (1, beating.member_id, 3)):
        code = peer.ask(HeartbeatRequest("g", generation, member), version).error_code
        assert code == (0 if version == 3 else ErrorCode.ILLEGAL_GENERATION if generation == 2 else ErrorCode.UNKNOWN_MEMBER_ID)
    assert len(unread) == 4


def test_several_at_once_are_answered_in_their_order(desk: Desk, peer: Peer, beating: HeartbeatRequest) -> None:
    log = desk.log_of("g")
    log.waiting = True
    peer.send(committing(generation=1, id=beating.member_id), 9)
    for _ in range(3):
        peer.send(beating, 4)  # which wait for the reply to the commit
    assert peer.reply() is None
    log.succeed()
    desk.loop.run()
    assert [one.error_code for one in peer.reply().topics[0].partitions] == [0]
    assert [peer.reply().error_code for _ in range(3)] == [0, 0, 0]


def test_a_plain_one_asks_its_group_for_nothing(
    desk: Desk, peer: Peer, beating: HeartbeatRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer.ask(beating, 4)
    journal = desk.shards.of("g")
    monkeypatch.setattr(journal, "shard", Defective(journal.shard, "heartbeat"))
    for _ in range(3):
        assert peer.ask(beating, 4).error_code == 0


def test_what_is_kept_of_one_is_counted_by_its_bytes(peer: Peer, beating: HeartbeatRequest) -> None:
    (repeat,) = peer.connection.fast_paths.values()
    assert repeat.cost == 800 + 2 + len("client") + 1 + len(beating.encode(4))


def test_only_short_ones_are_remembered(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(desk, client_id="c" * heartbeat_again.HEARTBEAT_BYTES_MAX)
    request = HeartbeatRequest("g", 1, stable(desk, peer))
    assert peer.ask(request, 4).error_code == 0
    assert not peer.connection.fast_paths


def test_nothing_is_remembered_where_every_frame_is_shown(desk: Desk, peer: Peer) -> None:
    shown: list[Any] = []
    desk.host.trace = lambda direction, call, message: shown.append(message)
    request = HeartbeatRequest("g", 1, stable(desk, peer))
    before = len(shown)
    for _ in range(3):
        assert peer.ask(request, 4).error_code == 0
    assert len(shown) == before + 6


def test_a_commit_that_may_not_go_the_short_way_any_more_leaves_its_connection_ready(desk: Desk, peer: Peer) -> None:
    """It is refused the usual way, and what comes behind it is answered."""
    id = stable(desk, peer)
    request = committing(generation=1, id=id)
    for _ in range(3):
        assert peer.ask(request, 9).topics[0].partitions[0].error_code == 0
    other = Peer(desk)
    other.send(joining(), 3)
    (member,) = [member for member in desk.shards.of("g").shard.groups["g"].members.values() if member.id == id]
    peer.ask(LeaveGroupRequest("g", [MemberIdentity(id, None)]), 3)
    assert member.id not in desk.shards.of("g").shard.groups["g"].members
    assert peer.ask(request, 9).topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert not peer.connection.busy
    assert peer.ask(HeartbeatRequest("g", 1, id), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
