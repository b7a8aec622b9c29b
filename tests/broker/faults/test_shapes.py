"""Requests are taken apart by the things that they name, and replies put together again, for every API and version."""

from __future__ import annotations

from typing import Any

import pytest

from broker.faults.shapes import ROWS, Path, error_codes, merged, narrowed, paths, shape_of
from protocol.apis import APIS
from tests.broker.faults.samples import request_of, shaped
from tests.protocol.foreign import MESSAGES

IDS = [f"{APIS[key].name}-{version}" for key, version in shaped()]
TOPIC_IDS = {"alpha": bytes([1]) * 16, "beta": bytes([2]) * 16}


def things(key: int, version: int) -> tuple[Any, list[Path]]:
    shape = shape_of(key, version)
    assert shape is not None
    request = request_of(APIS[key], version, TOPIC_IDS)
    return request, list(paths(shape, request))


@pytest.mark.parametrize(("key", "version"), shaped(), ids=IDS)
def test_a_request_is_narrowed_to_any_of_its_things(key: int, version: int) -> None:
    shape = shape_of(key, version)
    assert shape is not None
    request, found = things(key, version)
    assert len(found) == 2 ** len(found[0].keys)
    for chosen in found:
        rest, count = narrowed(shape, request, lambda keys, chosen=chosen: keys != chosen.keys)  # type: ignore[misc]
        assert count == len(found) - 1
        again = APIS[key].request.decode(rest.encode(version), 0, version)[0]
        assert [path.keys for path in paths(shape, again)] == [path.keys for path in found if path is not chosen]
    nothing, count = narrowed(shape, request, lambda keys: False)
    assert (count, list(paths(shape, nothing))) == (0, [])
    everything, count = narrowed(shape, request, lambda keys: True)
    assert (count, everything) == (len(found), request)


def test_each_api_whose_request_and_reply_have_a_list_of_names_has_a_row() -> None:
    """A new API must get its row: the lists of its request and reply that name groups, topics or resources are found by their fields."""
    names = {"name", "topic", "topic_name", "group_id", "resource_name"}
    texts = {"coordinator_keys", "groups", "groups_names", "topic_names", "group_ids"}
    # Not for some of several things: filters of a list, one group's assignment, and requests whose replies are in another order of things.
    without = {"ListGroups", "JoinGroup", "ConsumerGroupHeartbeat", "AlterReplicaLogDirs", "DescribeLogDirs", "ListPartitionReassignments"}
    wanted = set()
    for api in APIS.values():
        for field in MESSAGES[f"{api.name}Request"][1].struct.fields:
            if field.kind == "array" and (field.name in texts or (field.struct is not None and names & {part.name for part in field.struct.fields})):
                wanted.add(api.name)
    assert {APIS[key].name for key in ROWS} == (wanted - without) | {"LeaveGroup"}


def test_entries_of_a_reply_replace_those_of_their_keys() -> None:
    from protocol.messages.offset_commit import OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic

    def reply(**codes: dict[int, int]) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[OffsetCommitResponseTopic(topic, [OffsetCommitResponsePartition(*pair) for pair in parts.items()]) for topic, parts in codes.items()]
        )

    shape = shape_of(8, 8)
    assert shape is not None
    both = merged(shape, reply(alpha={0: 0, 1: 0}), reply(alpha={1: 7}, beta={0: 7}))
    assert dict(error_codes(shape, both)) == {("alpha", 0): 0, ("alpha", 1): 7, ("beta", 0): 7}
