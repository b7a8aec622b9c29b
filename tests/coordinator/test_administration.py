"""OffsetDelete, DeleteGroups, DescribeGroups, ListGroups: section 18 of the conformance catalogue.

Authorization, versions, filters and several coordinators are tested in tests/broker.
"""

from __future__ import annotations

import pytest

from coordinator import DescribedMember, Description, GroupConfig, ListedGroup, Shard
from coordinator.facts import group_key
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.consumer_offsets import GroupMetadataValue, MemberMetadata
from protocol.records import with_version
from tests.coordinator.playbook import T0, Play, row, scenario, subscription

pytestmark = pytest.mark.once  # no dependence on the Python version


@scenario("AD-01")
def test_offset_delete_for_an_unknown_group_is_refused(play: Play) -> None:
    play.offset_delete(("t0", 0)).expect(ErrorCode.GROUP_ID_NOT_FOUND, each=[])
    play.offset_delete(("t0", 0), group="").expect(ErrorCode.INVALID_GROUP_ID, each=[])
    play.expect_records()


@scenario("AD-02")
def test_offsets_of_topics_that_consumers_subscribe_to_stay(play: Play) -> None:
    play.one_dynamic()
    play.commit("a", {("t0", 0): 5, ("t1", 0): 6})
    play.expect_records("offset", "offset")
    play.offset_delete(("t0", 0), ("t1", 0)).expect(ErrorCode.NONE, each=[ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE])
    (record,) = play.expect_records("offset tombstone")
    assert (record.topic, record.partition) == ("t1", 0)
    assert play.fetch_all() == {("t0", 0): 5}


@scenario("AD-03")
def test_offset_delete_is_refused_for_a_live_group_of_another_protocol_type(play: Play) -> None:
    play.one_dynamic(type="connect")
    play.commit("a")
    play.offset_delete(("t0", 0)).expect(ErrorCode.NON_EMPTY_GROUP, each=[])
    play.fetch().expect(1)


@scenario("AD-04")
@pytest.mark.parametrize("type", ["consumer", "connect"])
def test_offsets_of_an_empty_group_can_be_deleted_even_when_missing(play: Play, type: str) -> None:
    play.one_dynamic(type=type)
    play.commit("a", {("t0", 0): 5})
    play.leave("a").expect(ErrorCode.NONE)
    play.expect_records("offset", "empty group")
    play.offset_delete(("t0", 0), ("t0", 1), ("t1", 0)).expect(ErrorCode.NONE, each=[ErrorCode.NONE] * 3)
    play.expect_records("offset tombstone")
    assert play.fetch_all() == {}
    play.group_is(State.EMPTY)


@scenario("AD-04")
def test_all_offsets_of_a_group_loaded_empty_can_be_deleted(play: Play) -> None:
    play.one_dynamic()
    play.commit("a", {("t0", 0): 5})
    play.leave("a").expect(ErrorCode.NONE)
    play.failover()
    play.offset_delete(("t0", 0)).expect(ErrorCode.NONE, each=[ErrorCode.NONE])
    assert play.fetch_all() == {}


@scenario("AD-05")
def test_subscriptions_are_unknown_during_the_first_join_phase(play: Play) -> None:
    play.join("a", instance="ia").expect_parked()
    play.group_is(State.PREPARING)
    play.offset_delete(("t0", 0), ("t1", 0)).expect(ErrorCode.NONE, each=[ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 2)


@pytest.mark.parametrize(
    ("state", "code"),
    [
        row("AD-06", "none", ErrorCode.GROUP_ID_NOT_FOUND),
        row("AD-06", "empty", ErrorCode.NONE),
        row("AD-06", "stable", ErrorCode.NON_EMPTY_GROUP),
        row("AD-06", "preparing", ErrorCode.NON_EMPTY_GROUP),
        row("AD-06", "completing", ErrorCode.NON_EMPTY_GROUP),
    ],
)
def test_only_a_group_that_is_empty_can_be_deleted(play: Play, state: str, code: int) -> None:
    if state == "empty":
        play.one_dynamic().leave("a").expect(ErrorCode.NONE)
    elif state == "stable":
        play.one_dynamic()
    elif state == "preparing":
        play.join("a", instance="ia").expect_parked()
    elif state == "completing":
        play.two_awaiting_assignment()
    play.delete().expect(code)
    assert ("g" in [group.group_id for group in play.listed()]) == (code == ErrorCode.NON_EMPTY_GROUP)


@scenario("AD-07")
def test_a_deleted_group_takes_its_offsets_along(play: Play) -> None:
    play.one_dynamic()
    play.commit("a", {("t0", 0): 1, ("t0", 1): 2, ("t1", 0): 3})
    play.leave("a").expect(ErrorCode.NONE)
    play.expect_records("offset", "offset", "offset", "empty group")
    play.delete().expect(ErrorCode.NONE)
    records = play.expect_records("offset tombstone", "offset tombstone", "offset tombstone", "group tombstone")
    assert {(record.topic, record.partition) for record in records[:3]} == {("t0", 0), ("t0", 1), ("t1", 0)}
    assert play.describe() == Description("Dead")
    play.failover()
    assert play.listed() == []


@scenario("AD-07")
def test_a_pending_member_id_does_not_prevent_group_deletion(play: Play) -> None:
    play.join("p").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.delete().expect(ErrorCode.NONE)
    play.join("p").expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.after(10_000)  # past the deadline of the pending id, which went with the group


@scenario("AD-11")
def test_an_unknown_group_is_described_as_dead(play: Play) -> None:
    assert play.describe() == Description("Dead", "", "", ())


def described_member(play: Play, actor: str, metadata: bytes, assignment: bytes) -> DescribedMember:
    return DescribedMember(play.id_of(actor), f"i{actor}", "c", "/127.0.0.1", metadata, assignment)


@scenario("AD-12")
def test_describe_of_a_stable_group_has_protocol_metadata_and_assignments(play: Play) -> None:
    play.two_static()
    assert play.describe() == Description("Stable", "consumer", "range", (described_member(play, "a", T0, b"\1"), described_member(play, "b", T0, b"\2")))


@scenario("AD-13")
def test_describe_during_the_join_phase_has_old_assignments_and_no_protocol(play: Play) -> None:
    play.leader_rejoins()
    members = (described_member(play, "a", b"", b"\1"), described_member(play, "b", b"", b"\2"))
    assert play.describe() == Description("PreparingRebalance", "consumer", "", members)


@scenario("AD-14")
def test_describe_before_the_first_assignment_shows_no_assignments(play: Play) -> None:
    play.two_awaiting_assignment()
    members = (described_member(play, "a", b"", b""), described_member(play, "b", b"", b""))
    assert play.describe() == Description("CompletingRebalance", "consumer", "", members)


@scenario("AD-15")
def test_describe_of_an_empty_group_has_its_protocol_type(play: Play) -> None:
    play.one_dynamic().leave("a").expect(ErrorCode.NONE)
    assert play.describe() == Description("Empty", "consumer", "", ())


@scenario("AD-16")
def test_a_describe_of_an_unlogged_group_waits_for_the_log(play: Play) -> None:
    """Kafka replies that the group does not exist. Here the reply has the new group, and waits until the group is in the log."""
    play.hold_appends()
    play.join("a", instance="ia").expect_parked()
    assert play.describe().state == "PreparingRebalance"
    assert play.listed() == [ListedGroup("g", "consumer", "PreparingRebalance")]
    held = play.heartbeat("nobody", group="another")  # also a reply that does not depend on the facts in flight
    held.expect_parked()
    play.confirm()
    held.expect(ErrorCode.UNKNOWN_MEMBER_ID)


@scenario("AD-23")
def test_a_pending_member_id_is_not_described_as_a_member(play: Play) -> None:
    play.join("p").expect(ErrorCode.MEMBER_ID_REQUIRED)
    assert play.describe() == Description("Empty", "", "", ())


@scenario("AD-17")
def test_every_group_is_listed_with_its_type_and_state(play: Play) -> None:
    play.one_dynamic(group="stable")
    play.settled("b", group="empty")
    play.leave("b", group="empty").expect(ErrorCode.NONE)
    play.commit(None, group="simple")
    assert play.listed() == [
        ListedGroup("stable", "consumer", "Stable"),
        ListedGroup("empty", "consumer", "Empty"),
        ListedGroup("simple", "", "Empty"),
    ]
    play.group_is(State.STABLE, group="stable")


def test_subscriptions_are_those_of_the_newest_generation(play: Play) -> None:
    play.one_static(metadata=subscription("t0"))
    play.commit("a", {("t0", 0): 1, ("t1", 0): 1})
    play.offset_delete(("t0", 0)).expect(each=[ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
    play.join("a", metadata=subscription("t1")).expect()
    play.sync("a", {"a": b"A"}).expect()
    play.offset_delete(("t0", 0), ("t1", 0)).expect(each=[ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])


def test_a_leader_stored_as_second_member_stays_leader_when_a_follower_leaves(play: Play) -> None:
    members = [MemberMetadata(name, None, "c", "/127.0.0.1", 5_000, 10_000, T0, b"") for name in ("m0", "m1", "m2")]
    stored = GroupMetadataValue("consumer", 7, "range", "m1", play.now, members)
    play.load((group_key("g"), with_version(stored, 3)))
    play.group_is(State.STABLE, leader="m1", members=["m0", "m1", "m2"])
    play.leave("m0").expect(ErrorCode.NONE)
    play.group_is(State.PREPARING, leader="m1", members=["m1", "m2"])
    play.leave("m1").expect(ErrorCode.NONE)
    play.group_is(State.PREPARING, leader="m2", members=["m2"])


def test_describe_of_an_unknown_group_has_only_a_state(play: Play) -> None:
    assert play.describe("nobody") == Description("Dead", "", "", ())


def test_default_limits_are_kafkas() -> None:
    assert Shard(GroupConfig(), str)._config == GroupConfig(
        group_min_session_timeout_ms=6_000,
        group_max_session_timeout_ms=1_800_000,
        group_initial_rebalance_delay_ms=3_000,
        group_max_size=2_147_483_647,
        offset_metadata_max_bytes=4_096,
        offsets_retention_ms=604_800_000,
        offsets_retention_check_interval_ms=600_000,
        batch_bytes_max=1_048_588,
    )
