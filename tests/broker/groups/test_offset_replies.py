"""Replies of OffsetCommit and OffsetFetch have the bytes of the generated messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.offset_replies import CommitReply, OffsetFetchReply
from coordinator.facts import expiring_offset_value, offset_value
from protocol.errors import ProtocolError
from protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tests.support.group_requests import COMMIT_VERSIONS, FETCH_VERSIONS

TEXT = st.text(st.characters(codec="utf-8"), max_size=200)
OFFSETS = st.integers(-(1 << 63), (1 << 63) - 1)
EPOCHS = st.integers(-(1 << 31), (1 << 31) - 1)
INDEXES = EPOCHS
STORED = st.builds(lambda offset, epoch, text: (offset, epoch, text, offset_value(offset, epoch, text.encode(), 9)), OFFSETS, EPOCHS, TEXT)
EXPIRING = st.builds(lambda offset, text: (offset, -1, text, expiring_offset_value(offset, text.encode(), 8, 9)), OFFSETS, TEXT)
VALUES = st.one_of(st.none(), STORED, EXPIRING)
IDS_FROM = 10  # replies name topics by id


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"x")[:16]


def key(name: str, version: int) -> str | bytes:
    return name if version < IDS_FROM else topic_id(name)


TOPICS = st.lists(st.tuples(TEXT, st.lists(st.tuples(INDEXES, VALUES), max_size=130), st.sampled_from([0, 29])), max_size=3)


@given(TOPICS, TEXT, st.sampled_from([0, 14, 16, 30]))
def test_a_fetch_reply_has_the_bytes_of_the_generated_message(topics: Any, group: str, error: int) -> None:
    for version in FETCH_VERSIONS:
        raw: list[Any] = [
            (key(name, version), [index for index, _ in stored], [value[3] if value else None for _, value in stored], code) for name, stored, code in topics
        ]
        reply = OffsetFetchReply([(group, raw, error)])
        expected_topics: list[Any] = []
        topic_type, partition_type = (
            (OffsetFetchResponseTopics, OffsetFetchResponsePartitions) if version >= 8 else (OffsetFetchResponseTopic, OffsetFetchResponsePartition)
        )
        for name, stored, code in topics:
            partitions: list[Any] = []
            for index, value in stored:
                offset, epoch, text = value[:3] if value else (-1, -1, "")
                partitions.append(partition_type(index, offset, epoch if version >= 5 else -1, text, 0 if value else code))
            expected_topics.append(topic_type(name, partitions) if version < 10 else OffsetFetchResponseTopics("", partitions, topic_id(name)))
        if version >= 8:
            expected = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group, expected_topics, error)])
        else:
            expected = OffsetFetchResponse(topics=expected_topics, error_code=error if version >= 2 else 0)
        assert reply.encode(version) == expected.encode(version)


@given(st.lists(st.tuples(TEXT, st.lists(INDEXES, max_size=130)), max_size=3), st.sampled_from([0, 25]))
def test_a_commit_reply_has_the_bytes_of_the_generated_message(topics: list[tuple[str, list[int]]], error: int) -> None:
    expected = OffsetCommitResponse(
        0, [OffsetCommitResponseTopic(name, [OffsetCommitResponsePartition(index, error) for index in indexes], topic_id(name)) for name, indexes in topics]
    )
    for version in COMMIT_VERSIONS:
        reply = CommitReply([(key(name, version), [OffsetCommitRequestPartition(index) for index in indexes]) for name, indexes in topics], error)
        assert reply.encode(version) == expected.encode(version)


def test_a_name_too_long_for_a_reply_raises_encode_error() -> None:
    for version in FETCH_VERSIONS[: IDS_FROM - 1]:
        with pytest.raises(ProtocolError):
            OffsetFetchReply([("g", [("n" * 32_768, [], [], 0)], 0)]).encode(version)
    for version in COMMIT_VERSIONS[: IDS_FROM - 2]:
        with pytest.raises(ProtocolError):
            CommitReply([("n" * 32_768, [])]).encode(version)
