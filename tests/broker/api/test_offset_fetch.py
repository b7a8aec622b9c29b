"""OffsetFetch of several groups, and by topic id."""

from __future__ import annotations

from typing import Any

from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.coordinator.scenarios import scenario
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.group_requests import committing, join_stable_group


@scenario("OF-10")
def test_several_groups_are_answered_in_the_order_of_the_request_whatever_their_member(harness: GroupHarness, peer: GroupClient) -> None:
    join_stable_group(harness, peer)
    peer.ask(committing("a"), 9)
    peer.ask(committing("b", partitions=(1,)), 9)
    requested = [OffsetFetchRequestGroup(name, "member", 5, None) for name in ("b", "nowhere", "a", "b", "g")]
    groups = peer.ask(OffsetFetchRequest(requested), 9).groups
    partitions = [(group.group_id, [partition.partition_index for topic in group.topics for partition in topic.partitions]) for group in groups]
    assert partitions == [("b", [1]), ("nowhere", []), ("a", [0]), ("b", [1]), ("g", [])]
    assert {group.error_code for group in groups} == {0}
    assert peer.ask(OffsetFetchRequest([]), 8).groups == []


# By topic id, with the replies of Kafka 4.4.0.


def asked(*topics: tuple[bytes, list[int]], group: str = "g") -> OffsetFetchRequestGroup:
    return OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics("", indexes, id) for id, indexes in topics])


def answered(group: Any) -> list[tuple[bytes, list[tuple[int, int, int]]]]:
    return [
        (topic.topic_id, [(partition.partition_index, partition.committed_offset, partition.error_code) for partition in topic.partitions])
        for topic in group.topics
    ]


def test_unknown_ids_come_last_with_their_error(harness: GroupHarness, peer: GroupClient) -> None:
    t, u = (harness.topics.by_name[name].id for name in ("t", "u"))
    unknown, zero = b"?" * 16, bytes(16)
    peer.ask(committing(topic="t"), 10)
    peer.ask(committing(topic="u"), 10)
    (group,) = peer.ask(OffsetFetchRequest([asked((t, [0, 1]), (unknown, [0, 3]), (u, [0, 9]), (zero, [0]))]), 10).groups
    assert answered(group) == [(t, [(0, 5, 0), (1, -1, 0)]), (u, [(0, 5, 0), (9, -1, 0)]), (unknown, [(0, -1, 100), (3, -1, 100)]), (zero, [(0, -1, 100)])]
    (group,) = peer.ask(OffsetFetchRequest([asked((unknown, [0]), (t, [0]), (unknown, [1]), (t, [1]))]), 10).groups
    assert answered(group) == [(t, [(0, 5, 0)]), (t, [(1, -1, 0)]), (unknown, [(0, -1, 100)]), (unknown, [(1, -1, 100)])]
    groups = peer.ask(OffsetFetchRequest([asked((unknown, [0])), asked((unknown, [0]), (t, [5]), group="nowhere"), asked((t, [0]))]), 10).groups
    assert [answered(group) for group in groups] == [[(unknown, [(0, -1, 100)])], [(t, [(5, -1, 0)]), (unknown, [(0, -1, 100)])], [(t, [(0, 5, 0)])]]
    assert {group.error_code for group in groups} == {0}


def test_a_fetch_of_all_topics_has_their_ids_and_leaves_out_deleted_ones(harness: GroupHarness, peer: GroupClient) -> None:
    t, u = (harness.topics.by_name[name].id for name in ("t", "u"))
    peer.ask(committing(topic="t"), 10)
    peer.ask(committing(topic="u"), 10)
    everything = OffsetFetchRequest([OffsetFetchRequestGroup("g", topics=None)])
    assert answered(peer.ask(everything, 10).groups[0]) == [(t, [(0, 5, 0)]), (u, [(0, 5, 0)])]
    harness.topics._drop("t")  # its offsets are not removed yet
    assert answered(GroupClient(harness).ask(everything, 10).groups[0]) == [(u, [(0, 5, 0)])]


def test_a_recreated_topic_has_no_offsets_and_its_former_id_is_unknown(harness: GroupHarness, peer: GroupClient) -> None:
    before = harness.topics.by_name["t"].id
    peer.ask(committing(topic="t"), 10)
    harness.deletions.delete(["t"], lambda error: None)
    harness.loop.run()
    after = harness.topics.create("t", 3, {}, 0).id
    (group,) = peer.ask(OffsetFetchRequest([asked((before, [0]), (after, [0]))]), 10).groups
    assert answered(group) == [(after, [(0, -1, 0)]), (before, [(0, -1, 100)])]
