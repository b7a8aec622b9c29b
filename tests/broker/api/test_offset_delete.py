"""OffsetDelete over a connection."""

from __future__ import annotations

from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from tests.coordinator.scenarios import scenario
from tests.support.group_harness import GroupClient
from tests.support.group_requests import committing_topics, fetch_offsets


@scenario("AD-01", "AD-03", "AD-04", "VS-12")
def test_offsets_are_deleted_unless_members_subscribe_to_them(peer: GroupClient) -> None:
    def delete(group: str, *topics: tuple[str, list[int]]) -> Any:
        requested = [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(index) for index in indexes]) for name, indexes in topics]
        reply = peer.ask(OffsetDeleteRequest(group, requested), 0)
        codes = [(topic.name, [(partition.partition_index, partition.error_code) for partition in topic.partitions]) for topic in reply.topics]
        return reply.error_code, codes

    assert delete("nowhere", ("t", [0]), ("nowhere", [0])) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    peer.ask(committing_topics(("t", [(0, 1, ""), (1, 1, "")])), 9)
    assert delete("g", ("t", [0, 2, 7, -1]), ("nowhere", [0]), ("u", [])) == (0, [("t", [(7, 3), (-1, 3), (0, 0), (2, 0)]), ("nowhere", [(0, 3)])])
    assert fetch_offsets(peer, 9, everything=True).keys() == {("t", 1)}
    assert delete("g") == (0, [])
