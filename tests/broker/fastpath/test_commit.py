"""The fast path of a repeated OffsetCommit, of which only the offsets are read: replies and stored offsets are those of the usual path."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.fastpath.commit import COMMIT_BYTES_MAX, CommitFastPath, commit_layout
from broker.fastpath.learning import LEARN_ATTEMPTS_MAX, LEARN_PAUSE_MS
from broker.net import connection
from broker.net.connection import KIND_BYTES
from broker.runtime.contain import DEFECTS
from coordinator import read_offset
from protocol.batch import facts_of, validate
from protocol.batch_writing import CUT_BYTES as OFFSET_BYTES
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests.broker.fastpath.conftest import decoded_requests
from tests.support.group_harness import Defective, GroupClient, GroupHarness
from tests.support.group_requests import COMMIT_VERSIONS, codes_of_commit, fetch_offsets, join_stable_group
from tests.support.headers import encode_request


class Recorder:
    """Records the bytes that a peer would receive."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.data_received = chunks.append


@pytest.fixture
def decoded(harness: GroupHarness, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return decoded_requests(harness, monkeypatch, OffsetCommitRequest.API_KEY)


def commit(id: str, offset: int, partitions: tuple[int, ...] = (0, 2), text: str = "m", topic: str = "t", generation: int = 1) -> OffsetCommitRequest:
    requested = [OffsetCommitRequestPartition(index, offset + index, -1, text) for index in partitions]
    return OffsetCommitRequest("g", generation, id, None, -1, [OffsetCommitRequestTopic(topic, requested)])


def member_with_learned_commit(harness: GroupHarness, peer: GroupClient) -> str:
    """The id of a member whose commits take the fast path: its first two were decoded."""
    id = join_stable_group(harness, peer)
    for offset in range(4):
        assert set(codes_of_commit(peer.ask(commit(id, offset), 9)).values()) == {0}
    return id


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_the_third_equal_commit_takes_the_fast_path(harness: GroupHarness, peer: GroupClient, decoded: list[int], version: int) -> None:
    id = join_stable_group(harness, peer)
    for offset in (5, 6, 7, -(1 << 62), 8):
        assert codes_of_commit(peer.ask(commit(id, offset), version)) == {("t", 0): 0, ("t", 2): 0}
        assert fetch_offsets(peer, 9, ("t", [0, 2])) == {("t", 0): (offset, -1, "m", 0), ("t", 2): (offset + 2, -1, "m", 0)}
    assert len(decoded) == 2


def test_a_commit_with_a_new_layout_is_decoded_once(harness: GroupHarness, peer: GroupClient, decoded: list[int]) -> None:
    id = join_stable_group(harness, peer)
    layouts = ((0, 1), "m", "t"), ((0, 2), "n", "t"), ((0,), "m", "t"), ((0, 1), "m", "u"), ((0, 2), "longer", "t")
    for number, (partitions, text, topic) in enumerate(layouts):
        for offset in range(10 * number, 10 * number + 4):
            reply = peer.ask(commit(id, offset, partitions, text, topic), 9)
            assert codes_of_commit(reply) == {(topic, index): 0 for index in partitions}
            stored = fetch_offsets(peer, 9, (topic, list(partitions)))
            assert stored == {(topic, index): (offset + index, -1, text, 0) for index in partitions}
    # A commit of a new size is learned at its second request; another commit of a known size is learned at once.
    assert len(decoded) == 2 + 1 + 2 + 1 + 2


def test_fast_commit_checks_a_deleted_or_recreated_topic_again(harness: GroupHarness, peer: GroupClient) -> None:
    id = member_with_learned_commit(harness, peer)
    harness.topics._drop("t")
    assert codes_of_commit(peer.ask(commit(id, 9), 9)) == {("t", 0): 3, ("t", 2): 3}
    harness.topics.create("t", 1, {}, 0)
    assert codes_of_commit(peer.ask(commit(id, 9), 9)) == {("t", 0): 0, ("t", 2): 3}


def test_fast_commit_by_id_is_refused_once_the_topic_is_recreated(harness: GroupHarness, peer: GroupClient, decoded: list[int]) -> None:
    id = join_stable_group(harness, peer)
    former = harness.topics.by_name["t"].id

    def commit_by_former_id(offset: int) -> set[int]:
        request = commit(id, offset, topic="")
        request.topics[0].topic_id = former
        return {partition.error_code for topic in peer.ask(request, 10).topics for partition in topic.partitions}

    for offset in range(4):
        assert commit_by_former_id(offset) == {0}
    assert len(decoded) == 2
    harness.topics._drop("t")
    assert commit_by_former_id(9) == {100}
    harness.topics.create("t", 3, {}, 0)
    for _ in range(3):
        assert commit_by_former_id(9) == {100}
    assert fetch_offsets(peer, 9, ("t", [0])) == {("t", 0): (3, -1, "m", 0)}


@pytest.mark.plain
@pytest.mark.parametrize("after", [False, True])
def test_a_defect_is_answered_and_counted_once(harness: GroupHarness, peer: GroupClient, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    id = member_with_learned_commit(harness, peer)
    (repeat,) = learned_commits(peer)
    defects = DEFECTS.count
    with monkeypatch.context() as patched:
        patched.setattr(repeat, "_commit", Defective(repeat._commit, "try_accept", after))
        assert set(codes_of_commit(peer.ask(commit(id, 9), 9)).values()) == {16 if after else -1}  # 16: the hold already had the reply, and fails it
    assert peer.reply() is None
    assert DEFECTS.count == defects + 1
    assert ", a request failed inside the broker: RuntimeError: a defect" in DEFECTS.last
    assert set(codes_of_commit(peer.ask(commit(id, 9), 9)).values()) == {0}


@pytest.mark.parametrize("cut_at", [None, 1, 11, 40])
def test_a_chunk_of_several_requests_is_split_into_frames(
    harness: GroupHarness, peer: GroupClient, monkeypatch: pytest.MonkeyPatch, cut_at: int | None
) -> None:
    """Two commits arrive in one read, or cut into two reads; each begins with the bytes of the learned commit."""
    id = member_with_learned_commit(harness, peer)
    assert learned_commits(peer)
    sent: list[bytes] = []
    with monkeypatch.context() as patched:
        patched.setattr(peer, "connection", Recorder(sent))
        for offset in (8, 9):
            peer.send(commit(id, offset), 9)
    stream = b"".join(sent)
    end = len(stream) if cut_at is None else len(sent[0]) + cut_at
    for chunk in filter(None, (stream[:end], stream[end:])):
        peer.connection.data_received(chunk)
    harness.loop.run()
    assert [codes_of_commit(peer.reply()) for _ in range(2)] == [{("t", 0): 0, ("t", 2): 0}] * 2
    assert fetch_offsets(peer, 9, ("t", [0])) == {("t", 0): (9, -1, "m", 0)}


def test_changes_of_other_topics_keep_a_commit_on_the_fast_path(harness: GroupHarness, peer: GroupClient, decoded: list[int]) -> None:
    id = member_with_learned_commit(harness, peer)
    before = len(decoded)
    harness.topics.create("beside", 1, {}, 0)
    assert set(codes_of_commit(peer.ask(commit(id, 8), 9)).values()) == {0}
    harness.topics._drop("u")
    assert set(codes_of_commit(peer.ask(commit(id, 9), 9)).values()) == {0}
    assert len(decoded) == before
    harness.topics._drop("t")
    harness.topics.create("t", 3, {}, 0)
    assert set(codes_of_commit(peer.ask(commit(id, 9), 9)).values()) == {0}
    assert len(decoded) == before + 1  # the recreated topic is another topic, so the commit is learned anew


@pytest.mark.parametrize("partitions", [(0,), (0, 1, 2)])
def test_learned_commits_are_limited_by_bytes_and_partitions(harness: GroupHarness, peer: GroupClient, partitions: tuple[int, ...]) -> None:
    id = join_stable_group(harness, peer)
    for offset in range(2):
        peer.ask(commit(id, offset, partitions), 9)
    (repeat,) = learned_commits(peer)
    size = len(framed(commit(id, 1, partitions), 9))
    assert repeat.cost == 1_800 + 4 * size + repeat._commit.size + 200 * len(partitions)


def learned_commits(peer: GroupClient) -> list[CommitFastPath]:
    return [repeat for repeat in peer.connection.fast_paths.values() if isinstance(repeat, CommitFastPath)]


def test_a_large_commit_is_not_learned(harness: GroupHarness, peer: GroupClient, decoded: list[int]) -> None:
    id = join_stable_group(harness, peer)
    large = commit(id, 1, tuple(range(200)), "m" * 20, "v")
    assert len(large.encode(9)) > COMMIT_BYTES_MAX
    for _ in range(4):
        peer.ask(large, 9)
    assert learned_commits(peer) == []
    assert len(decoded) == 4


def test_a_client_with_changing_commits_is_not_learned_for_a_minute(harness: GroupHarness, peer: GroupClient, decoded: list[int]) -> None:
    id = join_stable_group(harness, peer)
    for number in range(2 * LEARN_ATTEMPTS_MAX):
        peer.ask(commit(id, 1, text=f"{number:03}"), 9)
    assert len(decoded) == 2 * LEARN_ATTEMPTS_MAX
    followed = f"{LEARN_ATTEMPTS_MAX:03}"  # the last commit that was learned: the first of all was only counted
    peer.ask(commit(id, 1, text=followed), 9)
    assert len(decoded) == 2 * LEARN_ATTEMPTS_MAX
    for _ in range(10):
        harness.pass_ms(LEARN_PAUSE_MS // 10)
        peer.ask(HeartbeatRequest("g", 1, id), 4)
    for _ in range(3):
        peer.ask(commit(id, 1, text="new"), 9)
    assert len(decoded) == 2 * LEARN_ATTEMPTS_MAX + 1


def test_a_connection_keeps_few_learned_commits_and_drops_the_oldest(harness: GroupHarness, peer: GroupClient) -> None:
    id = join_stable_group(harness, peer)
    for size in range(connection.FAST_PATHS_MAX + 1):
        for _ in range(2):
            peer.ask(commit(id, 1, text="m" * size), 9)
    fast_paths = learned_commits(peer)
    assert len(fast_paths) == connection.FAST_PATHS_MAX
    assert harness.context.fast_path_bytes == sum(fast_path.cost for fast_path in fast_paths)


@pytest.mark.plain
def test_learned_requests_of_all_connections_share_a_limit(harness: GroupHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    peers = [GroupClient(harness) for _ in range(3)]
    id = join_stable_group(harness, peers[0])
    for _ in range(2):
        peers[0].ask(commit(id, 1), 9)
    (fast_path,) = learned_commits(peers[0])
    written: list[int] = []

    def counted(*call: Any) -> Any:
        written.append(1)
        return commit_layout(*call)

    monkeypatch.setattr("broker.api.offset_commit.commit_layout", counted)
    monkeypatch.setattr(connection, "FAST_PATH_BYTES_MAX", fast_path.cost + fast_path.cost // 2)
    for peer in peers[1:]:
        for offset in range(4):
            assert codes_of_commit(peer.ask(commit(id, offset), 9)) == {("t", 0): 0, ("t", 2): 0}
        assert learned_commits(peer) == []
    assert len(written) == 2  # after the limit is reached, learning is not tried for each request
    assert harness.context.fast_path_bytes <= connection.FAST_PATH_BYTES_MAX
    peers[0].connection.connection_lost(None)
    for _ in range(8):
        harness.pass_ms(LEARN_PAUSE_MS // 8)
        peers[1].ask(HeartbeatRequest("g", 1, id), 4)
    peers[1].ask(commit(id, 1), 9)
    assert len(learned_commits(peers[1])) == 1
    peers[1].connection.connection_lost(None)
    peers[2].connection.connection_lost(None)
    assert harness.context.fast_path_bytes == 0


@pytest.mark.once
@pytest.mark.parametrize("partitions", [1, 10, 100])
def test_the_counted_size_of_a_learned_commit_is_its_memory(harness: GroupHarness, peer: GroupClient, partitions: int) -> None:
    id = join_stable_group(harness, peer)
    indexes = tuple(range(partitions))
    for _ in range(2):  # on other connections first, so that the objects that connections share exist already
        second_peer = GroupClient(harness)
        for _ in range(3):
            second_peer.ask(commit(id, 1, indexes, "", "v"), 9)
    allocated = []
    for _ in range(3):  # other memory of the process may grow at the same moment, but hardly each time
        peer = GroupClient(harness)
        peer.ask(commit(id, 1, indexes, "", "v"), 9)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        peer.ask(commit(id, 1, indexes, "", "v"), 9)
        gc.collect()
        allocated.append(tracemalloc.get_traced_memory()[0] - before)
        tracemalloc.stop()
    (fast_path,) = learned_commits(peer)
    assert fast_path.cost / 2 < sorted(allocated)[1] < 1.5 * fast_path.cost


def test_fast_commits_write_the_same_records(harness: GroupHarness, peer: GroupClient) -> None:
    """The records are equal whether commits take the fast path or are decoded, in one batch or in several."""
    id = join_stable_group(harness, peer)
    log = harness.log_of("g")
    for offset in range(3):
        peer.ask(commit(id, offset), 9)
    remembering, decoding = GroupClient(harness), GroupClient(harness)
    for _ in range(2):
        remembering.ask(commit(id, 5), 9)
    before = len(log.batches)
    for client in (peer, decoding, remembering):
        client.connection.data_received(encode_request(OffsetCommitRequest.API_KEY, 9, 7, "client", commit(id, 77).encode(9)))
    harness.loop.run()
    (batch,) = log.batches[before:]
    facts = list(facts_of(batch))
    assert facts[:2] == facts[2:4] == facts[4:]
    assert [read_offset(value)[:3] for _, value in facts[:2] if value is not None] == [(77, -1, "m"), (79, -1, "m")]
    assert validate(batch, 0, len(batch)).record_count == 6


# Against the codec

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
OFFSETS = st.integers(-(1 << 63), (1 << 63) - 1)
PARTITIONS = st.lists(
    st.builds(OffsetCommitRequestPartition, st.integers(-3, 300), OFFSETS, st.just(-1), st.none() | TEXT), min_size=1, max_size=4
)
REQUESTS = st.builds(
    OffsetCommitRequest,
    TEXT,
    st.integers(-1, 300),
    TEXT,
    st.none(),
    st.just(-1),
    st.lists(st.builds(OffsetCommitRequestTopic, TEXT, PARTITIONS), min_size=1, max_size=3),
)


def framed(request: OffsetCommitRequest, version: int, correlation_id: int = 7) -> bytes:
    return encode_request(OffsetCommitRequest.API_KEY, version, correlation_id, "client", request.encode(version))


@given(REQUESTS, st.sampled_from(COMMIT_VERSIONS), st.data())
def test_offsets_are_found_where_the_codec_writes_them(request_: OffsetCommitRequest, version: int, data: st.DataObject) -> None:
    frame = framed(request_, version)
    layout = commit_layout(frame, request_, version)
    assert layout is not None
    assert framed(request_, version) == frame
    constant = layout.constant_parts.unpack(frame)
    for topic in request_.topics:
        for partition in topic.partitions:
            partition.committed_offset = data.draw(OFFSETS)
    changed = framed(request_, version, 8)
    assert layout.constant_parts.unpack(changed) == constant
    assert [int.from_bytes(changed[at : at + OFFSET_BYTES], "big", signed=True) for at in layout.offset_positions] == [
        partition.committed_offset for topic in request_.topics for partition in topic.partitions
    ]


@given(REQUESTS, st.sampled_from(COMMIT_VERSIONS), st.data())
def test_a_commit_with_other_changed_bytes_does_not_match(request_: OffsetCommitRequest, version: int, data: st.DataObject) -> None:
    frame = framed(request_, version)
    layout = commit_layout(frame, request_, version)
    assert layout is not None
    at = data.draw(st.integers(0, len(frame) - 1))
    changed = bytearray(frame)
    changed[at] ^= data.draw(st.integers(1, 255))
    matches = layout.constant_parts.unpack(bytes(changed)) == layout.constant_parts.unpack(frame)
    # The first bytes were compared when the frame was matched to its fast path.
    assert matches == (at < KIND_BYTES + 4 or any(position <= at < position + OFFSET_BYTES for position in layout.offset_positions))


def test_a_commit_in_an_unusual_encoding_is_not_learned() -> None:
    request_ = commit("id", 1)
    body = request_.encode(9)
    assert body[-1] == 0
    tagged = body[:-1] + b"\1\5\1x"  # an unknown tagged field
    OffsetCommitRequest.decode(tagged, 0, 9)
    assert commit_layout(encode_request(8, 9, 7, "client", tagged), request_, 9) is None


def test_a_closed_connection_leaves_only_committed_offsets_in_the_group(harness: GroupHarness, peer: GroupClient) -> None:
    """The group refers to the connection's fast paths for undecoded commits; after the close it has only decoded offsets."""
    later_peers = [GroupClient(harness) for _ in range(3)]
    id = join_stable_group(harness, peer)
    for offset in range(4):
        for number, sender in enumerate((peer, *later_peers)):
            sender.ask(commit(id, 10 * number + offset), 9)
    group = harness.shards.journal_of("g").shard.groups["g"]
    assert len(group._undecoded) == 4
    for sender in later_peers[::-1]:
        sender.connection.connection_lost(None)
    assert harness.context.fast_path_bytes == sum(repeat.cost for repeat in peer.connection.fast_paths.values())
    assert list(group._undecoded) in ([], [repeat._commit for repeat in learned_commits(peer)])
    peer.connection.connection_lost(None)
    assert harness.context.fast_path_bytes == 0
    assert not group._undecoded
    assert {value[2:10] for stored in group.offsets.values() for value in stored.values.values()} == {(33).to_bytes(8, "big"), (35).to_bytes(8, "big")}
