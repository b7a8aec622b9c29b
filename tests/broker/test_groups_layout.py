"""A commit like the one before is read by its offsets alone, and no client can tell."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.dispatch import Constant
from broker.handlers.commit_layout import LAYOUT_BYTES_MAX, LAYOUTS_MAX, Layout
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.broker.group_desk import Defective, Desk, Peer
from tests.broker.test_groups_again import Changeable
from tests.broker.test_groups_members import joining, stable
from tests.broker.test_groups_offsets import COMMITS, fetched
from tests.broker.test_groups_refusing import codes_of_commit


@pytest.fixture
def desk() -> Desk:
    return Desk(Changeable((3, 3, "g")))


@pytest.fixture
def peer(desk: Desk) -> Peer:
    return Peer(desk)


@pytest.fixture
def decoded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions of the commits that were decoded."""
    seen: list[int] = []
    route = desk.dispatch.routes[OffsetCommitRequest.API_KEY]
    decode = route.decode

    def noting(data: bytes, at: int, version: int) -> Any:
        seen.append(version)
        return decode(data, at, version)

    monkeypatch.setattr(route, "decode", noting)
    return seen


def commit(id: str, offset: int, partitions: tuple[int, ...] = (0, 2), text: str = "m", topic: str = "t", generation: int = 1) -> OffsetCommitRequest:
    wanted = [OffsetCommitRequestPartition(index, offset + index, -1, text) for index in partitions]
    return OffsetCommitRequest("g", generation, id, None, -1, [OffsetCommitRequestTopic(topic, wanted)])


@pytest.mark.parametrize("version", COMMITS)
def test_the_third_of_its_kind_is_read_by_its_offsets(desk: Desk, peer: Peer, decoded: list[int], version: int) -> None:
    id = stable(desk, peer)
    for offset in (5, 6, 7, -(1 << 62), 8):
        assert codes_of_commit(peer.ask(commit(id, offset), version)) == {("t", 0): 0, ("t", 2): 0}
        assert fetched(peer, 9, ("t", [0, 2])) == {("t", 0): (offset, -1, "m", 0), ("t", 2): (offset + 2, -1, "m", 0)}
    assert decoded == [version, version]


def test_another_layout_is_decoded_and_then_known(desk: Desk, peer: Peer, decoded: list[int]) -> None:
    id = stable(desk, peer)
    others = ((0, 1), "m", "t"), ((0, 2), "n", "t"), ((0,), "m", "t"), ((0, 1), "m", "u"), ((0, 2), "longer", "t")
    for number, (partitions, text, topic) in enumerate(others):
        for offset in range(10 * number, 10 * number + 4):
            reply = peer.ask(commit(id, offset, partitions, text, topic), 9)
            assert codes_of_commit(reply) == {(topic, index): 0 for index in partitions}
            told = fetched(peer, 9, (topic, list(partitions)))
            assert told == {(topic, index): (offset + index, -1, text, 0) for index in partitions}
    # One of another size is noted, the next makes the layout; of the same size one is enough.
    assert len(decoded) == 2 + 1 + 2 + 2 + 2


def test_every_answer_is_that_of_the_moment(desk: Desk, peer: Peer, decoded: list[int]) -> None:
    id = stable(desk, peer)
    for offset in range(4):
        assert set(codes_of_commit(peer.ask(commit(id, offset), 9)).values()) == {0}
    newcomer = Peer(desk)
    newcomer.send(joining(instance="new"), 9)
    peer.send(joining(id=id), 9)
    desk.pass_ms(0)
    assert peer.reply().generation_id == 2
    assert codes_of_commit(peer.ask(commit(id, 9), 9)) == {("t", 0): ErrorCode.ILLEGAL_GENERATION, ("t", 2): ErrorCode.ILLEGAL_GENERATION}
    desk.pass_ms(100_000)
    desk.shards.of("g").refusal = 15
    assert set(codes_of_commit(peer.ask(commit(id, 9), 9)).values()) == {15}
    desk.shards.of("g").refusal = 0
    assert set(codes_of_commit(peer.ask(commit(id, 9), 9)).values()) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert fetched(peer, 9, ("t", [0])) == {("t", 0): (3, -1, "m", 0)}
    assert len(decoded) == 2


def test_a_topic_that_is_gone_or_made_anew_is_looked_at_again(desk: Desk, peer: Peer) -> None:
    id = stable(desk, peer)
    for offset in range(4):
        peer.ask(commit(id, offset), 9)
    desk.topics._drop("t")
    assert codes_of_commit(peer.ask(commit(id, 9), 9)) == {("t", 0): 3, ("t", 2): 3}
    desk.topics.create("t", 1, {}, 0)
    assert codes_of_commit(peer.ask(commit(id, 9), 9)) == {("t", 0): 0, ("t", 2): 3}


def test_rights_that_were_taken_away_are_gone(desk: Desk, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    id = stable(desk, peer)
    for offset in range(4):
        peer.ask(commit(id, offset), 9)
    monkeypatch.setattr(desk.groups._authorizer, "open", False)
    assert codes_of_commit(peer.ask(commit(id, 9), 9)) == {("t", 0): 30, ("t", 2): 30}


def test_it_waits_for_its_append_and_fails_with_it(desk: Desk, peer: Peer) -> None:
    id = stable(desk, peer)
    for offset in range(4):
        peer.ask(commit(id, offset), 9)
    log = desk.log_of("g")
    log.waiting = True
    for end, code in ((log.succeed, 0), (log.refuse, 16)):
        peer.send(commit(id, 9), 9)
        assert peer.reply() is None
        end()
        desk.loop.run()
        assert codes_of_commit(peer.reply()) == {("t", 0): code, ("t", 2): code}


def test_a_defect_is_answered_once(desk: Desk, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    id = stable(desk, peer)
    for offset in range(4):
        peer.ask(commit(id, offset), 9)

    journal = desk.shards.of("g")
    with monkeypatch.context() as patched:
        patched.setattr(journal, "shard", Defective(journal.shard, "commit"))
        assert set(codes_of_commit(peer.ask(commit(id, 9), 9)).values()) == {-1}
    assert peer.reply() is None
    assert set(codes_of_commit(peer.ask(commit(id, 9), 9)).values()) == {ErrorCode.GROUP_ID_NOT_FOUND}  # the log here keeps nothing


def test_what_is_kept_of_a_connection_is_bounded(desk: Desk, peer: Peer, decoded: list[int]) -> None:
    id = stable(desk, peer)
    many = tuple(range(200))
    large = commit(id, 1, many, "m" * 20, "v")
    assert len(large.encode(9)) > LAYOUT_BYTES_MAX
    for _ in range(4):
        peer.ask(large, 9)
    assert peer.connection.recalled.layout is None
    for number in range(LAYOUTS_MAX + 3):
        text = "m" * (number + 1)
        for offset in range(3):
            assert set(codes_of_commit(peer.ask(commit(id, offset, text=text), 9)).values()) == {0}
    assert peer.connection.recalled.layout is None
    assert len(decoded) == 4 + 2 * LAYOUTS_MAX + 3 * 3


# Against the codec

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
OFFSETS = st.integers(-(1 << 63), (1 << 63) - 1)
PARTITIONS = st.lists(st.builds(OffsetCommitRequestPartition, st.integers(-3, 300), OFFSETS, st.just(-1), st.none() | TEXT), max_size=4)
REQUESTS = st.builds(
    OffsetCommitRequest, TEXT, st.integers(-1, 300), TEXT, st.none(), st.just(-1), st.lists(st.builds(OffsetCommitRequestTopic, TEXT, PARTITIONS), max_size=3)
)


def layout_of(request: OffsetCommitRequest, version: int) -> Layout:
    return Layout(request, version, None, None, [], Constant(OffsetCommitResponse()))  # type: ignore[arg-type]


@given(REQUESTS, st.sampled_from(COMMITS), st.data())
def test_a_layout_reads_what_the_codec_reads(request_: OffsetCommitRequest, version: int, data: st.DataObject) -> None:
    before = request_.encode(version)
    layout = layout_of(request_, version)
    assert request_.encode(version) == before
    assert layout.read(b"head" + before, 4)
    for topic in request_.topics:
        for one in topic.partitions:
            one.committed_offset = data.draw(OFFSETS)
    other = request_.encode(version)
    assert layout.read(before, 0)
    assert request_.encode(version) == before
    assert layout.read(other, 0)
    assert request_.encode(version) == other


@given(REQUESTS, st.sampled_from(COMMITS), st.data())
def test_bytes_that_differ_elsewhere_are_not_of_the_layout(request_: OffsetCommitRequest, version: int, data: st.DataObject) -> None:
    body = bytearray(request_.encode(version))
    layout = layout_of(request_, version)
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    changed = bytes(body)
    assert layout.read(changed, 0) == only_offsets_differ(changed, request_, version)
    assert not layout.read(changed + b"\0", 0)
    assert not layout.read(changed[:-1], 0)


def only_offsets_differ(body: bytes, request: OffsetCommitRequest, version: int) -> bool:
    try:
        found, end = OffsetCommitRequest.decode(body, 0, version)
    except ProtocolError:
        return False
    if found.encode(version) != body or end != len(body) or [len(topic.partitions) for topic in found.topics] != [len(topic.partitions) for topic in request.topics]:
        return False
    for mine, other in zip(found.topics, request.topics, strict=True):
        for one, like in zip(mine.partitions, other.partitions, strict=True):
            one.committed_offset = like.committed_offset
    return found == request
