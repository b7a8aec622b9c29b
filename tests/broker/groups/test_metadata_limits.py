"""What members may keep in memory is bounded over all partitions, refusals leave few log lines, and parked requests keep no bytes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from broker.groups import limit_lines
from broker.groups.line_counts import LINE_MS
from protocol.errors import ErrorCode
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.group_logs import CONFIG
from tests.support.group_requests import joined, joining, syncing

LARGE = 3_000


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []

    class Log:
        def warning(self, event: str, **fields: object) -> None:
            written.append({"event": event, **fields})

    monkeypatch.setattr(limit_lines, "log", Log())
    return written


def filled(peers: list[GroupClient], harness: GroupHarness) -> int:
    """Fill the memory from one static member in each of many groups; returns how many were parked or answered without an error."""
    for number in range(100):
        peer = GroupClient(harness, "10.0.0.9")
        peer.send(joining(f"g{number}", instance="i", protocols=(("range", bytes(LARGE)),)), 9)
        peers.append(peer)
        reply = peer.reply()
        if reply is not None and reply.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED:
            return number
    raise AssertionError("no bound")


def test_groups_of_all_partitions_share_one_bound_and_give_it_back() -> None:
    harness = GroupHarness(config=CONFIG._replace(groups_metadata_max_bytes=100_000))
    peers: list[GroupClient] = []
    count = filled(peers, harness)
    assert 20 <= count < 100_000 // LARGE
    assert len({harness.shards.journal_of(f"g{number}") for number in range(count)}) > 1
    assert harness.shards.kept.bytes <= 100_000
    for peer in peers:
        peer.connection.connection_lost(None)
    harness.pass_ms(400_000)
    assert harness.shards.kept.bytes < count * 100  # the records of empty groups
    assert filled(peers, harness) >= count - 3


def test_a_partition_that_is_suspended_or_unloaded_keeps_nothing() -> None:
    harness = GroupHarness(config=CONFIG._replace(groups_metadata_max_bytes=100_000))
    filled([], harness)
    for journal in harness.shards.journals:
        journal.unload(lambda: None)
    assert harness.shards.kept.bytes == 0


@pytest.mark.plain  # replaces the log
def test_refusals_leave_one_line_a_minute_for_each_setting(lines: list[dict[str, Any]]) -> None:
    harness = GroupHarness(config=CONFIG._replace(group_member_metadata_max_bytes=LARGE))
    peer = GroupClient(harness, "10.0.0.9")
    large = (("range", bytes(LARGE)),)
    for number in range(5):
        assert peer.ask(joining(f"g{number}", protocols=large), 9).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    member = joined(harness, peer, joining("g"))
    refused = peer.ask(syncing(member.member_id, assigned={member.member_id: bytes(LARGE + 1)}), 5)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert [(line["setting"], line["group"], line["host"], line["requests"]) for line in lines] == [
        ("group.member.metadata.max.bytes", "g0", "10.0.0.9", 1)
    ]
    harness.pass_ms(LINE_MS)
    peer.ask(joining("late", id="", protocols=large), 9)
    assert [(line["group"], line["requests"]) for line in lines[1:]] == [("late", 6)]


def test_parked_requests_keep_nothing_but_what_their_members_do() -> None:
    """The assignments that a follower sends are never used."""
    harness = GroupHarness()
    leader, follower = GroupClient(harness), GroupClient(harness)
    first = joined(harness, leader, joining())
    leader.send(joining(id=first.member_id), 9)
    follower.send(joining(instance="i"), 9)
    leader.send(joining(id=first.member_id), 9)
    harness.pass_ms(0)
    while (reply := leader.reply()) is not None:
        generation = reply.generation_id
    reply = follower.reply()
    assert reply.error_code == 0
    unused = syncing(reply.member_id, generation, {"nobody": bytes(500_000)}, "i")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        follower.send(unused, 5)
        assert follower.reply() is None
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()
