"""OffsetCommit, OffsetFetch and OffsetDelete with topics, rights and versions: rows of sections 14, 16 and 18 of the catalogue."""

from __future__ import annotations

from typing import Any

import pytest

from broker.security.authorizer import Operation, Resource
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics
from tests.coordinator.scenarios import row, scenario
from tests.support.group_desk import Desk, Peer, Refusing
from tests.support.group_requests import codes_of_commit, stable

READ_GROUP, DESCRIBE_GROUP, DELETE_GROUP = [(operation, Resource.GROUP) for operation in (Operation.READ, Operation.DESCRIBE, Operation.DELETE)]
READ_TOPIC, DESCRIBE_TOPIC = [(operation, Resource.TOPIC) for operation in (Operation.READ, Operation.DESCRIBE)]
Offsets = dict[tuple[str, int], int]


def commit(
    peer: Peer,
    offsets: Offsets,
    group: str = "g",
    *,
    generation: int = -1,
    id: str = "",
    epoch: int = -1,
    metadata: str | None = "",
    retention: int = -1,
    version: int = 9,
) -> dict[tuple[str, int], int]:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(OffsetCommitRequestPartition(partition, offset, epoch, metadata))
    requested_topics = [OffsetCommitRequestTopic(name, partitions) for name, partitions in topics.items()]
    return codes_of_commit(peer.ask(OffsetCommitRequest(group, generation, id, None, retention, requested_topics), version))


def fetch(
    peer: Peer,
    partitions_by_topic: dict[str, list[int]] | None,
    group: str = "g",
    *,
    version: int = 7,
    stable_only: bool = False,
    member: str | None = None,
) -> Any:
    """The reply of version 7 or before; from version 8 the group's part."""
    if version < 8:
        topics = None if partitions_by_topic is None else [OffsetFetchRequestTopic(name, partitions) for name, partitions in partitions_by_topic.items()]
        return peer.ask(OffsetFetchRequest(None, group, topics, stable_only), version)
    several = None if partitions_by_topic is None else [OffsetFetchRequestTopics(name, partitions) for name, partitions in partitions_by_topic.items()]
    request = OffsetFetchRequest([OffsetFetchRequestGroup(group, member, -1, several)], require_stable=stable_only)
    return peer.ask(request, version).groups[0]


def offsets_of(reply: Any) -> dict[tuple[str, int], tuple[int, int, str, int]]:
    return {
        (topic.name, partition.partition_index): (partition.committed_offset, partition.committed_leader_epoch, partition.metadata, partition.error_code)
        for topic in reply.topics
        for partition in topic.partitions
    }


NOTHING = (-1, -1, "", 0)


# OffsetCommit


@scenario("OC-02")
@pytest.mark.parametrize(("version", "code"), [(9, 69), (8, 22), (2, 22)])
def test_a_commit_with_a_generation_to_an_unknown_group_is_refused(peer: Peer, version: int, code: int) -> None:
    assert commit(peer, {("t", 0): 1}, generation=5, id="m", version=version) == {("t", 0): code}


@scenario("OC-12")
def test_too_long_metadata_fails_only_its_partition(desk: Desk, peer: Peer) -> None:
    long = OffsetCommitRequestPartition(0, 5, -1, "m" * 4_097)
    request = OffsetCommitRequest("g", -1, "", None, -1, [OffsetCommitRequestTopic("t", [long, OffsetCommitRequestPartition(1, 6)])])
    assert codes_of_commit(peer.ask(request, 9)) == {("t", 0): 12, ("t", 1): 0}
    assert offsets_of(fetch(peer, {"t": [0, 1]})) == {("t", 0): NOTHING, ("t", 1): (6, -1, "", 0)}


@scenario("OC-13")
@pytest.mark.parametrize("version", [2, 8])
def test_null_metadata_is_returned_as_empty(peer: Peer, version: int) -> None:
    commit(peer, {("t", 0): 5}, metadata=None, version=version)
    assert offsets_of(fetch(peer, {"t": [0]})) == {("t", 0): (5, -1, "", 0)}


@scenario("OC-14")
@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_retention_time_is_honoured_in_versions_2_to_4(desk: Desk, peer: Peer, version: int) -> None:
    commit(peer, {("t", 0): 5}, retention=1_000, version=version)
    value = desk.shards.journal_of("g").shard.groups["g"].offsets["t"].values[0]
    assert value[:2] == b"\0\1"
    assert int.from_bytes(value[-8:], "big") == desk.clock.now + 1_000


@scenario("OC-18")
def test_partitions_that_do_not_exist_are_refused_and_the_others_kept(peer: Peer) -> None:
    codes = commit(peer, {("t", 0): 1, ("t", 3): 2, ("t", -1): 3, ("nowhere", 0): 4, ("u", 1): 5})
    assert codes == {("t", 0): 0, ("t", 3): 3, ("t", -1): 3, ("nowhere", 0): 3, ("u", 1): 0}
    assert offsets_of(fetch(peer, None)) == {("t", 0): (1, -1, "", 0), ("u", 1): (5, -1, "", 0)}


@scenario("OC-19")
def test_without_rights_to_any_topic_the_group_is_not_checked() -> None:
    desk = Desk(Refusing((*READ_TOPIC, None)))
    assert commit(Peer(desk), {("t", 0): 1, ("u", 0): 2}, generation=99, id="nobody") == {("t", 0): 29, ("u", 0): 29}
    assert desk.shards.journal_of("g").shard.groups == {}


def test_without_rights_to_one_topic_the_others_are_kept() -> None:
    peer = Peer(Desk(Refusing((*READ_TOPIC, "u"))))
    assert commit(peer, {("u", 0): 1, ("t", 0): 2}) == {("u", 0): 29, ("t", 0): 0}


def test_without_rights_to_the_group_no_topic_is_checked() -> None:
    peer = Peer(Desk(Refusing((*READ_GROUP, "g"))))
    assert commit(peer, {("nowhere", 0): 1, ("t", 0): 2}) == {("nowhere", 0): 30, ("t", 0): 30}


@scenario("OC-20")
def test_a_group_with_an_empty_name_has_offsets(peer: Peer) -> None:
    assert commit(peer, {("t", 0): 5}, group="") == {("t", 0): 0}
    assert offsets_of(fetch(peer, {"t": [0]}, group="")) == {("t", 0): (5, -1, "", 0)}
    assert fetch(peer, None, group="", version=9).error_code == 0


# OffsetFetch


@scenario("OF-01")
@pytest.mark.parametrize("version", [1, 5, 7, 9])
def test_a_partition_without_a_commit_is_no_error(peer: Peer, version: int) -> None:
    reply = fetch(peer, {"t": [0], "nowhere": [7]}, version=version)
    assert offsets_of(reply) == {("t", 0): NOTHING, ("nowhere", 7): NOTHING}
    assert reply.error_code == 0


@scenario("OF-02")
@pytest.mark.parametrize("version", [2, 7, 9])
def test_a_fetch_of_all_topics_returns_all_commits(peer: Peer, version: int) -> None:
    commit(peer, {("t", 0): 1, ("t", 2): 2, ("u", 1): 3})
    assert {where: committed[0] for where, committed in offsets_of(fetch(peer, None, version=version)).items()} == {("t", 0): 1, ("t", 2): 2, ("u", 1): 3}


@scenario("OF-03")
@pytest.mark.parametrize("version", [2, 7, 9])
def test_an_empty_topic_list_fetches_nothing(peer: Peer, version: int) -> None:
    commit(peer, {("t", 0): 1})
    reply = fetch(peer, {}, version=version)
    assert (reply.error_code, reply.topics) == (0, [])


@scenario("OF-04")
def test_version_1_has_a_groups_error_on_each_partition() -> None:
    """Z19: Kafka hides it, and an empty success makes a consumer reset its position."""
    reply = fetch(Peer(Desk(Refusing((*DESCRIBE_GROUP, "g")))), {"t": [0, 1]}, version=1)
    assert offsets_of(reply) == {("t", 0): (-1, -1, "", 30), ("t", 1): (-1, -1, "", 30)}


@pytest.mark.parametrize("version", [row("OF-05", version) for version in range(2, 8)])
def test_from_version_2_a_groups_error_is_at_the_top_level(version: int) -> None:
    reply = fetch(Peer(Desk(Refusing((*DESCRIBE_GROUP, "g")))), {"t": [0]}, version=version)
    assert (reply.error_code, reply.topics) == (30, [])


@pytest.mark.parametrize("version", [row("OF-06", version) for version in (8, 9)])
def test_from_version_8_each_group_has_its_own_error(version: int) -> None:
    peer = Peer(Desk(Refusing((*DESCRIBE_GROUP, "y"))))
    for group in ("x", "y", "z"):
        commit(peer, {("t", 0): 5}, group=group)
    groups = [OffsetFetchRequestGroup(group, None, -1, [OffsetFetchRequestTopics("t", [0])]) for group in ("z", "y", "x")]
    replies = peer.ask(OffsetFetchRequest(groups), version).groups
    assert [(reply.group_id, reply.error_code, len(reply.topics)) for reply in replies] == [("z", 0, 1), ("y", 30, 0), ("x", 0, 1)]


@scenario("OF-08")
def test_unauthorized_topics_are_errors_if_named_and_omitted_from_all() -> None:
    peer = Peer(Desk(Refusing((*DESCRIBE_TOPIC, "u"))))
    commit(peer, {("t", 0): 1, ("u", 0): 2})
    reply = fetch(peer, {"u": [0], "t": [0]})
    assert [topic.name for topic in reply.topics] == ["t", "u"]
    assert offsets_of(reply) == {("t", 0): (1, -1, "", 0), ("u", 0): (-1, -1, "", 29)}
    assert offsets_of(fetch(peer, None)) == {("t", 0): (1, -1, "", 0)}


@scenario("OF-09")
@pytest.mark.parametrize("stable_only", [False, True])
def test_a_fetch_after_a_commit_returns_it_once_durable(desk: Desk, peer: Peer, stable_only: bool) -> None:
    """Z17: every fetch waits; Kafka returns the old offset unless stable offsets are required."""
    commit(peer, {("t", 0): 5})
    desk.hold_appends()
    writer = Peer(desk)
    writer.send(OffsetCommitRequest("g", -1, "", None, -1, [OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition(0, 6)])]), 9)
    peer.send(OffsetFetchRequest(None, "g", [OffsetFetchRequestTopic("t", [0])], stable_only), 7)
    assert peer.reply() is None
    desk.append_succeeds()
    assert offsets_of(peer.reply()) == {("t", 0): (6, -1, "", 0)}


@scenario("OF-10")
def test_an_offset_fetch_does_not_check_its_member(desk: Desk, peer: Peer) -> None:
    stable(desk, peer)
    commit(peer, {("t", 0): 1}, group="g2")
    assert fetch(peer, {"t": [0]}, group="g2", version=9, member="nobody").error_code == 0
    assert fetch(peer, {"t": [0]}, group="g", version=9, member="nobody").error_code == 0


@pytest.mark.parametrize(("version", "epoch"), [row("OF-11", 4, -1), row("OF-11", 5, 9)])
def test_leader_epochs_are_shown_from_version_5(peer: Peer, version: int, epoch: int) -> None:
    commit(peer, {("t", 0): 1}, epoch=9)
    assert offsets_of(fetch(peer, {"t": [0]}, version=version)) == {("t", 0): (1, epoch, "", 0)}


# OffsetDelete


def delete(peer: Peer, *partitions: tuple[str, int]) -> Any:
    topics = [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(partition)]) for name, partition in partitions]
    reply = peer.ask(OffsetDeleteRequest("g", topics), 0)
    return reply.error_code, codes_of_commit(reply)


@scenario("AD-01")
def test_offset_delete_of_a_missing_group_is_a_top_level_error(peer: Peer) -> None:
    assert delete(peer, ("t", 0)) == (69, {})
    assert delete(peer, ("nowhere", 0)) == (69, {})
    assert delete(peer) == (69, {})


@scenario("AD-04")
def test_offsets_of_a_group_without_members_are_deleted(peer: Peer) -> None:
    commit(peer, {("t", 0): 1, ("t", 1): 2})
    codes = {("t", 0): 0, ("t", 2): 0, ("nowhere", 0): 3, ("u", 9): 3, ("u", -1): 3}
    assert delete(peer, *codes) == (0, codes)
    assert list(offsets_of(fetch(peer, None))) == [("t", 1)]


def test_deleting_offsets_needs_rights_to_the_group_and_the_topic() -> None:
    peer = Peer(Desk(Refusing((*DELETE_GROUP, "other"), (*READ_TOPIC, "u"))))
    commit(peer, {("t", 0): 1})
    assert delete(peer, ("u", 0), ("t", 0)) == (0, {("u", 0): 29, ("t", 0): 0})
    assert Peer(Desk(Refusing((*DELETE_GROUP, "g")))).ask(OffsetDeleteRequest("g", []), 0).error_code == 30


@scenario("AD-03")
def test_offset_delete_is_refused_for_a_group_of_another_type_with_members(desk: Desk, peer: Peer) -> None:
    stable(desk, peer)
    desk.shards.journal_of("g").shard.groups["g"].protocol_type = "connect"
    assert delete(peer, ("t", 0), ("nowhere", 0)) == (68, {})
