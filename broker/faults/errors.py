"""Replies that carry an error for some of a request's things: by the API's own error reply, or entry by entry where that is for the whole."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any, Final

from broker.faults.shapes import narrowed, paths, shape_of
from protocol.apis import APIS
from protocol.messages.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
from protocol.messages.describe_quorum import (
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
)
from protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.messages.leave_group import LeaveGroupResponse, MemberResponse
from protocol.messages.offset_delete import OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic
from protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

ErrorReply = Callable[[Any, int, int], Any]  # of an API, for a whole request: request, version, error code
Keys = tuple[Any, ...]
Entries = Callable[[Any, list[Keys], int, int], Any]  # request, keys of the selected things, version, error code

UNKNOWN_OFFSET: Final = -1
OFFSET_FETCH: Final = 9
DESCRIBE_LOG_DIRS: Final = 35


def by_topic(keys: list[Keys]) -> list[tuple[Any, list[Any]]]:
    return [(topic, [key[-1] for key in group]) for topic, group in groupby(keys, lambda key: key[-2])]


def fetch(request: Any, keys: list[Keys], version: int, code: int) -> Any:
    topics = [
        FetchableTopicResponse(
            topic_id=topic if isinstance(topic, bytes) else bytes(16),
            topic="" if isinstance(topic, bytes) else topic,
            partitions=[PartitionData(index, code, -1, aborted_transactions=[], records=b"") for index in partitions],
        )
        for topic, partitions in by_topic(keys)
    ]
    return FetchResponse(0, 0, request.session_id, topics)


def offset_fetch(request: Any, keys: list[Keys], version: int, code: int) -> Any:
    if version < 8:
        topics = [
            OffsetFetchResponseTopic(topic, [OffsetFetchResponsePartition(index, UNKNOWN_OFFSET, -1, "", code) for index in partitions])
            for topic, partitions in by_topic(keys)
        ]
        return OffsetFetchResponse(groups=[], topics=topics)
    groups = []
    for group, group_keys in groupby(keys, lambda key: key[0]):
        inner = [key for key in group_keys if len(key) == 3]
        topics_of_group = [
            OffsetFetchResponseTopics(
                "" if isinstance(topic, bytes) else topic,
                [OffsetFetchResponsePartitions(index, UNKNOWN_OFFSET, -1, "", code) for index in partitions],
                topic if isinstance(topic, bytes) else bytes(16),
            )
            for topic, partitions in by_topic(inner)
        ]
        groups.append(OffsetFetchResponseGroup(group, topics_of_group, 0 if inner else code))
    return OffsetFetchResponse(groups=groups, topics=[])


def leave_group(request: Any, keys: list[Keys], version: int, code: int) -> Any:
    chosen = {key[0] for key in keys}
    members = [member for member in request.members if (member.member_id or member.group_instance_id) in chosen]
    return LeaveGroupResponse(members=[MemberResponse(member.member_id, member.group_instance_id, code) for member in members])


def offset_delete(request: Any, keys: list[Keys], version: int, code: int) -> Any:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(topic, [OffsetDeleteResponsePartition(index, code) for index in partitions])
            for topic, partitions in by_topic(keys)
        ]
    )


def describe_quorum(request: Any, keys: list[Keys], version: int, code: int) -> Any:
    topics = [
        DescribeQuorumResponseTopicData(
            topic,
            [
                DescribeQuorumResponsePartitionData(index, code, None, -1, -1, -1, current_voters=[], observers=[])
                for index in partitions
            ],
        )
        for topic, partitions in by_topic(keys)
    ]
    return DescribeQuorumResponse(topics=topics, nodes=[])


# APIs whose own error reply is for the whole request, or changes the code.
ENTRIES: Final[dict[int, Entries]] = {1: fetch, OFFSET_FETCH: offset_fetch, 13: leave_group, 47: offset_delete, 55: describe_quorum}


def whole_error(key: int, request: Any, version: int, code: int, error_reply: ErrorReply) -> Any:
    """The reply to a request that failed as a whole."""
    if key == OFFSET_FETCH:
        return offset_fetch_error(request, version, code)
    if key == DESCRIBE_LOG_DIRS and version < 3:  # without an error of the whole reply
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(code, "", [])])
    return error_reply(request, version, code)


def offset_fetch_error(request: Any, version: int, code: int) -> Any:
    if version >= 8:
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group.group_id, [], code) for group in request.groups], topics=[])
    if version >= 2:
        return OffsetFetchResponse(groups=[], topics=[], error_code=code)
    shape = shape_of(OFFSET_FETCH, version)
    assert shape is not None
    return offset_fetch(request, [path.keys for path in paths(shape, request)], version, code)


def some_errors(key: int, request: Any, version: int, code: int, selected: frozenset[Keys], error_reply: ErrorReply, *, things_inside: bool) -> Any:
    """A reply with an error entry for each selected thing, and no other entry.

    `things_inside`: the innermost things were selected; otherwise what contains them gets the error as one.
    """
    shape = shape_of(key, version)
    assert shape is not None
    chosen = [path.keys for path in paths(shape, request) if path.keys in selected]
    build = ENTRIES.get(key)
    if build is None:
        reply = error_reply(narrowed(shape, request, selected.__contains__)[0], version, code)
        return APIS[key].response.decode(reply.encode(version), 0, version)[0]  # the broker builds some replies without their classes
    if not things_inside:
        chosen = list(dict.fromkeys((keys[0],) for keys in chosen))
    return build(request, chosen, version, code)
