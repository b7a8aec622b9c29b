"""OffsetCommit over a connection: the code of each partition, and the result of OffsetFetch afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.batch import facts_of
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.coordinator.scenarios import scenario
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.group_requests import (
    COMMIT_VERSIONS,
    FETCH_VERSIONS,
    codes_of_commit,
    committing,
    committing_topics,
    fetch_offsets,
    join_stable_group,
)


def unknown_topic(version: int, by_name: int) -> int:
    """The error of a topic that does not exist: by its name, or by its id."""
    return ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else by_name


def by_id(*topics: tuple[bytes, list[int]], offset: int = 5, generation: int = -1, id: str = "", group: str = "g") -> OffsetCommitRequest:
    requested = [OffsetCommitRequestTopic("", [OffsetCommitRequestPartition(index, offset, -1, "") for index in indexes], topic) for topic, indexes in topics]
    return OffsetCommitRequest(group, generation, id, None, -1, requested)


def codes_by_id(reply: Any) -> list[tuple[bytes, list[tuple[int, int]]]]:
    return [(topic.topic_id, [(partition.partition_index, partition.error_code) for partition in topic.partitions]) for topic in reply.topics]


@scenario("OC-13", "OF-01", "OF-02", "OF-03", "OF-11", "VS-11")
@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_committed_offsets_are_fetched_in_every_version(peer: GroupClient, version: int) -> None:
    assert codes_of_commit(peer.ask(committing_topics(("t", [(0, 7, "seven"), (2, 8, None)]), version=version), version)) == {("t", 0): 0, ("t", 2): 0}
    epoch = 3 if version >= 6 else -1
    for fetch_version in FETCH_VERSIONS:
        fetched_epoch = epoch if fetch_version >= 5 else -1
        codes = fetch_offsets(peer, fetch_version, ("t", [0, 1, 2, 99]), ("nowhere", [-1]))
        nothing_committed = (-1, -1, "", 0)
        assert codes == {
            ("t", 0): (7, fetched_epoch, "seven", 0), ("t", 2): (8, fetched_epoch, "", 0),
            ("t", 1): nothing_committed, ("t", 99): nothing_committed, ("nowhere", -1): (-1, -1, "", unknown_topic(fetch_version, ErrorCode.NONE)),
        }  # fmt: skip
        if fetch_version >= 2:
            assert fetch_offsets(peer, fetch_version, everything=True) == {("t", 0): (7, fetched_epoch, "seven", 0), ("t", 2): (8, fetched_epoch, "", 0)}
        assert fetch_offsets(peer, fetch_version) == {}


@scenario("OC-14", "VS-11")
def test_a_commit_with_a_retention_has_no_leader_epoch_and_expires(harness: GroupHarness, peer: GroupClient) -> None:
    peer.ask(committing_topics(("t", [(0, 7, "kept")]), version=4, retention=60_000), 4)
    assert fetch_offsets(peer, 9, ("t", [0])) == {("t", 0): (7, -1, "kept", 0)}
    harness.pass_ms(600_000)
    harness.loop.run()
    assert fetch_offsets(peer, 9, ("t", [0])) == {("t", 0): (-1, -1, "", 0)}


@scenario("OC-12", "OC-18")
@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_each_partition_of_a_commit_has_its_code_and_refused_ones_come_first(peer: GroupClient, version: int) -> None:
    request = committing_topics(("t", [(0, 1, ""), (3, 1, ""), (-1, 1, "")]), ("nowhere", [(0, 1, "")]), ("u", [(1, 1, "m" * 5000), (0, 1, "")]), version=version)
    reply = peer.ask(request, version)
    codes = [(topic.name, [(partition.partition_index, partition.error_code) for partition in topic.partitions]) for topic in reply.topics]
    nowhere = unknown_topic(version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert codes == [("t", [(3, 3), (-1, 3), (0, 0)]), ("nowhere", [(0, nowhere)]), ("u", [(1, 12), (0, 0)])]
    assert fetch_offsets(peer, 9, everything=True).keys() == {("t", 0), ("u", 0)}


def test_of_duplicate_partitions_only_those_with_too_long_metadata_are_refused(peer: GroupClient) -> None:
    reply = peer.ask(committing_topics(("t", [(0, 1, "m" * 4097), (0, 2, "short")])), 9)
    assert [partition.error_code for partition in reply.topics[0].partitions] == [12, 0]
    assert fetch_offsets(peer, 9, ("t", [0])) == {("t", 0): (2, 3, "short", 0)}


@pytest.mark.parametrize(("text", "error"), [("m" * 4096, 0), ("m" * 4097, 12), ("\U0001f600" * 2048, 0), ("\U0001f600" * 2049, 12)])
def test_metadata_length_is_counted_as_in_java(peer: GroupClient, text: str, error: int) -> None:
    assert codes_of_commit(peer.ask(committing_topics(("t", [(0, 1, text)])), 9)) == {("t", 0): error}


@scenario("OC-02")
@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_a_commit_to_an_unknown_group_is_named_so_from_version_9(peer: GroupClient, version: int) -> None:
    codes = codes_of_commit(peer.ask(committing(generation=1, id="me", partitions=(0, 2)), version))
    assert set(codes.values()) == {69 if version >= 9 else 22}


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_a_commit_refused_by_its_group_still_names_unknown_topics(harness: GroupHarness, peer: GroupClient, version: int) -> None:
    id = join_stable_group(harness, peer)
    for generation, member, error in ((2, id, 22), (1, "stranger", 25), (-1, "", 25), (1, id, 0)):
        assert codes_of_commit(peer.ask(committing(generation=generation, id=member, partitions=(0, 9)), version)) == {("t", 0): error, ("t", 9): 3}


@scenario("OC-20")
def test_the_empty_group_id_is_accepted(peer: GroupClient) -> None:
    assert codes_of_commit(peer.ask(committing(""), 9)) == {("t", 0): 0}
    (group,) = peer.ask(OffsetFetchRequest([OffsetFetchRequestGroup("", topics=None)]), 8).groups
    assert (group.group_id, group.error_code, group.topics[0].partitions[0].committed_offset) == ("", 0, 5)


@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize("stored", [True, False])
def test_a_commit_for_a_topic_that_was_just_created_waits_for_its_record(harness: GroupHarness, peer: GroupClient, stored: bool, version: int) -> None:
    """Otherwise a power failure could remove the topic, and the offsets with it."""
    harness.registry_log.immediate = False
    harness.topics.create("new", 1, {}, 0)
    harness.turn.call_first_at_turn_end(harness.registry)
    peer.send(committing(topic="new", partitions=(0, 5)), version)
    assert peer.reply() is None
    if stored:
        harness.registry_log.succeed()
    else:
        harness.registry_log.refuse()
    harness.loop.run()
    assert codes_of_commit(peer.reply()) == {("new", 0): 0 if stored else ErrorCode.COORDINATOR_NOT_AVAILABLE, ("new", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("topic_in_flight", [False, True])
def test_a_refusal_by_a_group_whose_facts_are_lost_is_not_sent(harness: GroupHarness, peer: GroupClient, topic_in_flight: bool) -> None:
    id = join_stable_group(harness, peer)
    log = harness.hold_appends()
    GroupClient(harness).send(committing(generation=1, id=id), 9)
    if topic_in_flight:
        harness.registry_log.immediate = False
        harness.topics.create("new", 1, {}, 0)
        harness.turn.call_first_at_turn_end(harness.registry)
    peer.send(committing(generation=2, id=id, partitions=(0, 9)), 9)
    log.refuse()
    if topic_in_flight:
        harness.registry_log.succeed()
    harness.loop.run()
    assert codes_of_commit(peer.reply()) == {("t", 0): ErrorCode.NOT_COORDINATOR, ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_commit_whose_append_fails_while_a_topic_is_created_is_refused(harness: GroupHarness, peer: GroupClient) -> None:
    log = harness.hold_appends()
    harness.registry_log.immediate = False
    harness.topics.create("new", 1, {}, 0)
    harness.turn.call_first_at_turn_end(harness.registry)
    peer.send(committing(topic="new"), 9)
    log.refuse()
    harness.registry_log.succeed()
    harness.loop.run()
    assert codes_of_commit(peer.reply()) == {("new", 0): ErrorCode.NOT_COORDINATOR}


# By topic id, with the replies of Kafka 4.4.0.


def test_partitions_of_unknown_ids_are_refused_and_the_others_stored(harness: GroupHarness, peer: GroupClient) -> None:
    t, u = (harness.topics.by_name[name].id for name in ("t", "u"))
    unknown, zero = b"?" * 16, bytes(16)
    reply = peer.ask(by_id((t, [0, 3]), (unknown, [0, 1]), (u, [1]), (zero, [0])), 10)
    assert codes_by_id(reply) == [(t, [(3, 3), (0, 0)]), (unknown, [(0, 100), (1, 100)]), (zero, [(0, 100)]), (u, [(1, 0)])]
    reply = peer.ask(by_id((unknown, [0]), (t, [3, 0]), (u, [0]), (unknown, [1])), 10)
    assert codes_by_id(reply) == [(unknown, [(0, 100), (1, 100)]), (t, [(3, 3), (0, 0)]), (u, [(0, 0)])]
    assert codes_by_id(peer.ask(by_id((unknown, []), (t, []), (u, [0])), 10)) == [(unknown, []), (u, [(0, 0)])]
    assert fetch_offsets(peer, 9, everything=True).keys() == {("t", 0), ("u", 0), ("u", 1)}


def test_a_commit_of_unknown_ids_alone_does_not_ask_the_group(harness: GroupHarness, peer: GroupClient) -> None:
    t, unknown = harness.topics.by_name["t"].id, b"?" * 16
    request = by_id((unknown, [0]), generation=1, id="me", group="nowhere")
    assert codes_by_id(peer.ask(request, 10)) == [(unknown, [(0, 100)])]
    request = by_id((unknown, [0]), (t, [0]), generation=1, id="me", group="nowhere")
    assert codes_by_id(peer.ask(request, 10)) == [(unknown, [(0, 100)]), (t, [(0, 69)])]


def test_the_id_of_a_deleted_topic_commits_nothing_to_its_successor(harness: GroupHarness, peer: GroupClient) -> None:
    before = harness.topics.by_name["t"].id
    assert codes_by_id(peer.ask(by_id((before, [0])), 10)) == [(before, [(0, 0)])]
    harness.deletions.delete(["t"], lambda error: None)
    harness.loop.run()
    after = harness.topics.create("t", 3, {}, 0).id
    harness.turn.call_first_at_turn_end(harness.registry)
    harness.loop.run()
    assert codes_by_id(peer.ask(by_id((before, [0])), 10)) == [(before, [(0, 100)])]
    assert fetch_offsets(peer, 9, ("t", [0])) == {("t", 0): (-1, -1, "", 0)}
    assert codes_by_id(peer.ask(by_id((before, [0]), (after, [0]), offset=9), 10)) == [(before, [(0, 100)]), (after, [(0, 0)])]
    assert fetch_offsets(peer, 10, ("t", [0])) == {("t", 0): (9, -1, "", 0)}


def test_a_commit_by_id_stores_the_record_of_a_commit_by_name(harness: GroupHarness, peer: GroupClient) -> None:
    log = harness.log_of("g")
    stored = []
    for version in (9, 10):
        assert codes_of_commit(peer.ask(committing(partitions=(0, 2)), version)) == {("t", 0): 0, ("t", 2): 0}
        stored.append(list(facts_of(log.batches[-1])))
    assert stored[0] == stored[1]
