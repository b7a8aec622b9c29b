"""A repeated heartbeat is answered without being decoded, with the same reply and effect."""

from __future__ import annotations

import pytest

from broker.fastpath import heartbeat as heartbeat_again
from broker.fastpath.heartbeat import HeartbeatFastPath
from broker.fastpath.learning import LEARN_ATTEMPTS_MAX, LEARN_PAUSE_MS
from broker.runtime.turn import NEVER
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from tests.broker.fastpath.conftest import decoded_requests
from tests.support.group_harness import Defective, GroupClient, GroupHarness
from tests.support.group_requests import join_stable_group, joined, joining, syncing


@pytest.fixture
def learned_heartbeat(harness: GroupHarness, peer: GroupClient) -> HeartbeatRequest:
    """A heartbeat that was accepted and learned."""
    request = HeartbeatRequest("g", 1, join_stable_group(harness, peer))
    assert peer.ask(request, 4).error_code == 0
    assert peer.connection.fast_paths
    return request


@pytest.fixture
def decoded(harness: GroupHarness, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return decoded_requests(harness, monkeypatch, HeartbeatRequest.API_KEY)


@pytest.mark.parametrize("version", range(5))
def test_a_repeated_heartbeat_is_not_decoded_in_any_version(harness: GroupHarness, peer: GroupClient, decoded: list[int], version: int) -> None:
    request = HeartbeatRequest("g", 1, join_stable_group(harness, peer))
    for _ in range(3):
        assert peer.ask(request, version).error_code == 0  # each with its own correlation id
    assert len(decoded) == 1


def test_alternating_members_on_one_connection_are_not_learned_for_a_minute(harness: GroupHarness, peer: GroupClient, decoded: list[int]) -> None:
    beats = []
    for group in ("g0", "g1"):
        id = joined(harness, peer, joining(group=group, session=2 * LEARN_PAUSE_MS), 5).member_id
        sync = syncing(id, assigned={id: b"mine"})
        sync.group_id = group
        peer.ask(sync, 5)
        beats.append(HeartbeatRequest(group, 1, id))
    built = []
    for number in range(LEARN_ATTEMPTS_MAX + 4):
        assert peer.ask(beats[number % 2], 4).error_code == 0
        built += [fast_path for fast_path in peer.connection.fast_paths.values() if isinstance(fast_path, HeartbeatFastPath) and fast_path not in built]
    assert len(built) == LEARN_ATTEMPTS_MAX
    assert len(decoded) == LEARN_ATTEMPTS_MAX + 2  # the last fast path answers every second heartbeat
    harness.pass_ms(LEARN_PAUSE_MS)
    for _ in range(3):
        assert peer.ask(beats[0], 4).error_code == 0
    assert len(decoded) == LEARN_ATTEMPTS_MAX + 3


def test_a_fast_heartbeat_renews_the_session(harness: GroupHarness, peer: GroupClient, learned_heartbeat: HeartbeatRequest, decoded: list[int]) -> None:
    for _ in range(5):
        harness.pass_ms(9_999)
        assert peer.ask(learned_heartbeat, 4).error_code == 0
    harness.pass_ms(10_000)
    assert peer.ask(learned_heartbeat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert decoded == []


def test_a_late_fast_heartbeat_is_noted(harness: GroupHarness, peer: GroupClient, learned_heartbeat: HeartbeatRequest, decoded: list[int]) -> None:
    """The note about the late heartbeat is due before all other deadlines of the shard, so the turn must set its timer for it."""
    harness.pass_ms(9_000)
    harness.turn.armed_at = NEVER
    assert peer.ask(learned_heartbeat, 4).error_code == 0
    assert harness.turn.armed_at <= harness.shards.journal_of("g").wake_at
    assert decoded == []


@pytest.mark.plain
def test_a_defect_is_answered_once(harness: GroupHarness, peer: GroupClient, learned_heartbeat: HeartbeatRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = harness.shards.journal_of("g")
    with monkeypatch.context() as patched:
        patched.setattr(journal, "shard", Defective(journal.shard, "heartbeat"))
        assert peer.ask(learned_heartbeat, 4).error_code == -1
    assert peer.reply() is None
    assert peer.ask(learned_heartbeat, 4).error_code == ErrorCode.NONE


def test_a_heartbeat_with_changed_bytes_does_not_match(harness: GroupHarness, peer: GroupClient, learned_heartbeat: HeartbeatRequest, decoded: list[int]) -> None:
    for generation, member, version in ((2, learned_heartbeat.member_id, 4), (1, f"{learned_heartbeat.member_id}x", 4), (1, "", 4), (1, learned_heartbeat.member_id, 3)):
        code = peer.ask(HeartbeatRequest("g", generation, member), version).error_code
        assert code == (0 if version == 3 else ErrorCode.ILLEGAL_GENERATION if generation == 2 else ErrorCode.UNKNOWN_MEMBER_ID)
    assert len(decoded) == 4


@pytest.mark.plain
def test_a_repeated_heartbeat_skips_the_group_lookup(
    harness: GroupHarness, peer: GroupClient, learned_heartbeat: HeartbeatRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer.ask(learned_heartbeat, 4)
    journal = harness.shards.journal_of("g")
    monkeypatch.setattr(journal, "shard", Defective(journal.shard, "heartbeat"))
    for _ in range(3):
        assert peer.ask(learned_heartbeat, 4).error_code == 0


def test_learned_heartbeats_are_limited_by_bytes(peer: GroupClient, learned_heartbeat: HeartbeatRequest) -> None:
    (repeat,) = peer.connection.fast_paths.values()
    assert repeat.cost == 800 + 2 + len("client") + 1 + len(learned_heartbeat.encode(4))


def test_only_short_requests_are_learned(harness: GroupHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = GroupClient(harness, client_id="c" * heartbeat_again.HEARTBEAT_BYTES_MAX)
    request = HeartbeatRequest("g", 1, join_stable_group(harness, peer))
    assert peer.ask(request, 4).error_code == 0
    assert not peer.connection.fast_paths
