"""OffsetCommit, OffsetFetch and OffsetDelete over a connection, and their replies as bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.offset_replies import AllCommitted, Fetched
from coordinator.facts import expiring_offset_value, offset_value
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tests.broker.api.test_groups import stable
from tests.broker.api.test_refusals import codes_of_commit, committing
from tests.support.group_desk import Desk, Peer

COMMITS, FETCHES = range(2, 10), range(1, 10)


def commit(*topics: tuple[str, list[tuple[int, int, str | None]]], version: int = 9, retention: int = -1) -> OffsetCommitRequest:
    wanted = [
        OffsetCommitRequestTopic(name, [OffsetCommitRequestPartition(index, offset, 3 if version >= 6 else -1, text) for index, offset, text in some])
        for name, some in topics
    ]
    return OffsetCommitRequest("g", -1, "", None, retention, wanted)


def fetched(peer: Peer, version: int, *topics: tuple[str, list[int]], everything: bool = False) -> Any:
    if version >= 8:
        wanted = None if everything else [OffsetFetchRequestTopics(name, partitions) for name, partitions in topics]
        (reply,) = peer.ask(OffsetFetchRequest([OffsetFetchRequestGroup("g", topics=wanted)]), version).groups
    else:
        one = None if everything else [OffsetFetchRequestTopic(name, partitions) for name, partitions in topics]
        reply = peer.ask(OffsetFetchRequest(None, "g", one), version)
    assert reply.error_code == 0
    return {
        (topic.name, one.partition_index): (one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code)
        for topic in reply.topics
        for one in topic.partitions
    }


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def peer(desk: Desk) -> Peer:
    return Peer(desk)


@pytest.mark.parametrize("version", COMMITS)
def test_what_is_committed_is_fetched_in_every_version(peer: Peer, version: int) -> None:
    assert codes_of_commit(peer.ask(commit(("t", [(0, 7, "seven"), (2, 8, None)]), version=version), version)) == {("t", 0): 0, ("t", 2): 0}
    epoch = 3 if version >= 6 else -1
    for asked in FETCHES:
        shown = epoch if asked >= 5 else -1
        told = fetched(peer, asked, ("t", [0, 1, 2, 99]), ("nowhere", [-1]))
        nothing = (-1, -1, "", 0)
        assert told == {
            ("t", 0): (7, shown, "seven", 0), ("t", 1): nothing, ("t", 2): (8, shown, "", 0), ("t", 99): nothing, ("nowhere", -1): nothing,
        }  # fmt: skip
        if asked >= 2:
            assert fetched(peer, asked, everything=True) == {("t", 0): (7, shown, "seven", 0), ("t", 2): (8, shown, "", 0)}
        assert fetched(peer, asked) == {}


def test_a_commit_with_a_retention_has_no_epoch_and_expires_by_itself(desk: Desk, peer: Peer) -> None:
    peer.ask(commit(("t", [(0, 7, "kept")]), version=4, retention=60_000), 4)
    assert fetched(peer, 9, ("t", [0])) == {("t", 0): (7, -1, "kept", 0)}
    desk.pass_ms(600_000)
    desk.loop.run()
    assert fetched(peer, 9, ("t", [0])) == {("t", 0): (-1, -1, "", 0)}


@pytest.mark.parametrize("version", COMMITS)
def test_each_partition_of_a_commit_has_its_code_and_refused_ones_come_first(peer: Peer, version: int) -> None:
    request = commit(("t", [(0, 1, ""), (3, 1, ""), (-1, 1, "")]), ("nowhere", [(0, 1, "")]), ("u", [(1, 1, "m" * 5000), (0, 1, "")]), version=version)
    reply = peer.ask(request, version)
    told = [(topic.name, [(one.partition_index, one.error_code) for one in topic.partitions]) for topic in reply.topics]
    assert told == [("t", [(3, 3), (-1, 3), (0, 0)]), ("nowhere", [(0, 3)]), ("u", [(1, 12), (0, 0)])]
    assert fetched(peer, 9, everything=True).keys() == {("t", 0), ("u", 0)}


def test_of_one_partition_twice_only_the_metadata_that_is_too_long_is_refused(peer: Peer) -> None:
    reply = peer.ask(commit(("t", [(0, 1, "m" * 4097), (0, 2, "short")])), 9)
    assert [one.error_code for one in reply.topics[0].partitions] == [12, 0]
    assert fetched(peer, 9, ("t", [0])) == {("t", 0): (2, 3, "short", 0)}


@pytest.mark.parametrize(("text", "error"), [("m" * 4096, 0), ("m" * 4097, 12), ("\U0001f600" * 2048, 0), ("\U0001f600" * 2049, 12)])
def test_metadata_is_as_long_as_java_counts(peer: Peer, text: str, error: int) -> None:
    assert codes_of_commit(peer.ask(commit(("t", [(0, 1, text)])), 9)) == {("t", 0): error}


@pytest.mark.parametrize("version", COMMITS)
def test_a_commit_to_no_group_says_so_from_version_9(peer: Peer, version: int) -> None:
    codes = codes_of_commit(peer.ask(committing(generation=1, id="me", partitions=(0, 2)), version))
    assert set(codes.values()) == {69 if version >= 9 else 22}


@pytest.mark.parametrize("version", COMMITS)
def test_a_commit_that_its_group_refuses_is_refused_for_what_is_there_alone(desk: Desk, peer: Peer, version: int) -> None:
    id = stable(desk, peer)
    for generation, member, error in ((2, id, 22), (1, "stranger", 25), (-1, "", 25), (1, id, 0)):
        assert codes_of_commit(peer.ask(committing(generation=generation, id=member, partitions=(0, 9)), version)) == {("t", 0): error, ("t", 9): 3}


def test_no_group_id_is_a_group_too(peer: Peer) -> None:
    assert codes_of_commit(peer.ask(committing(""), 9)) == {("t", 0): 0}
    (group,) = peer.ask(OffsetFetchRequest([OffsetFetchRequestGroup("", topics=None)]), 8).groups
    assert (group.group_id, group.error_code, group.topics[0].partitions[0].committed_offset) == ("", 0, 5)


def test_several_groups_are_answered_in_the_order_of_the_request(peer: Peer) -> None:
    peer.ask(committing("a"), 9)
    peer.ask(committing("b", partitions=(1,)), 9)
    wanted = [OffsetFetchRequestGroup(name, "member", 5, None) for name in ("b", "nowhere", "a", "b")]
    groups = peer.ask(OffsetFetchRequest(wanted), 9).groups
    told = [(one.group_id, [partition.partition_index for topic in one.topics for partition in topic.partitions]) for one in groups]
    assert told == [("b", [1]), ("nowhere", []), ("a", [0]), ("b", [1])]
    assert peer.ask(OffsetFetchRequest([]), 8).groups == []


def test_offsets_are_deleted_unless_members_subscribe_to_them(peer: Peer) -> None:
    def delete(group: str, *topics: tuple[str, list[int]]) -> Any:
        wanted = [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(index) for index in some]) for name, some in topics]
        reply = peer.ask(OffsetDeleteRequest(group, wanted), 0)
        codes = [(topic.name, [(one.partition_index, one.error_code) for one in topic.partitions]) for topic in reply.topics]
        return reply.error_code, codes

    assert delete("nowhere", ("t", [0]), ("nowhere", [0])) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    peer.ask(commit(("t", [(0, 1, ""), (1, 1, "")])), 9)
    assert delete("g", ("t", [0, 2, 7]), ("nowhere", [0]), ("u", [])) == (0, [("t", [(7, 3), (0, 0), (2, 0)]), ("nowhere", [(0, 3)])])
    assert fetched(peer, 9, everything=True).keys() == {("t", 1)}
    assert delete("g") == (0, [])


# Replies written straight into bytes

TEXT = st.text(st.characters(codec="utf-8"), max_size=200)
OFFSETS = st.integers(-(1 << 63), (1 << 63) - 1)
EPOCHS = st.integers(-(1 << 31), (1 << 31) - 1)
INDEXES = EPOCHS
STORED = st.builds(lambda offset, epoch, text: (offset, epoch, text, offset_value(offset, epoch, text.encode(), 9)), OFFSETS, EPOCHS, TEXT)
EXPIRING = st.builds(lambda offset, text: (offset, -1, text, expiring_offset_value(offset, text.encode(), 8, 9)), OFFSETS, TEXT)
VALUES = st.one_of(st.none(), STORED, EXPIRING)
TOPICS = st.lists(st.tuples(TEXT, st.lists(st.tuples(INDEXES, VALUES), max_size=130), st.sampled_from([0, 29])), max_size=3)


@given(TOPICS, TEXT, st.sampled_from([0, 14, 16, 30]))
def test_a_fetch_reply_has_the_bytes_of_the_generated_message(topics: Any, group: str, error: int) -> None:
    raw = [(name, [index for index, _ in some], [value[3] if value else None for _, value in some], code) for name, some, code in topics]
    reply = Fetched([(group, raw, error)])
    for version in FETCHES:
        made: list[Any] = []
        topic_type, partition_type = (
            (OffsetFetchResponseTopics, OffsetFetchResponsePartitions) if version >= 8 else (OffsetFetchResponseTopic, OffsetFetchResponsePartition)
        )
        for name, some, code in topics:
            partitions: list[Any] = []
            for index, value in some:
                offset, epoch, text = value[:3] if value else (-1, -1, "")
                partitions.append(partition_type(index, offset, epoch if version >= 5 else -1, text, 0 if value else code))
            made.append(topic_type(name, partitions))
        if version >= 8:
            expected = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group, made, error)])
        else:
            expected = OffsetFetchResponse(topics=made, error_code=error if version >= 2 else 0)
        assert reply.encode(version) == expected.encode(version)


@given(st.lists(st.tuples(TEXT, st.lists(INDEXES, max_size=130)), max_size=3))
def test_a_commit_reply_has_the_bytes_of_the_generated_message(topics: list[tuple[str, list[int]]]) -> None:
    reply = AllCommitted([(name, [OffsetCommitRequestPartition(index) for index in some]) for name, some in topics])
    expected = OffsetCommitResponse(0, [OffsetCommitResponseTopic(name, [OffsetCommitResponsePartition(index) for index in some]) for name, some in topics])
    for version in COMMITS:
        assert reply.encode(version) == expected.encode(version)


def test_a_name_that_no_reply_can_hold_is_an_error_of_encoding() -> None:
    for version in FETCHES:
        with pytest.raises(ProtocolError):
            Fetched([("g", [("n" * 32_768, [], [], 0)], 0)]).encode(version)
    for version in COMMITS:
        with pytest.raises(ProtocolError):
            AllCommitted([("n" * 32_768, [])]).encode(version)
