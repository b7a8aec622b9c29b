"""State and replies after a failover: section 12 of the conformance catalogue.

tests/broker/api/test_refusals.py tests the replies of a shard that is loading, or that another node owns.
"""

from __future__ import annotations

import pytest

from coordinator.facts import group_key, offset_key, offset_key_prefix, offset_value
from coordinator.notes import Removal
from coordinator.states import State
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.consumer_offsets import GroupMetadataValue, MemberMetadata
from protocol.messages.kinds import NoteKind
from protocol.records import with_version
from tests.coordinator.playbook import T0, Play, group_record, row, scenario

pytestmark = pytest.mark.once  # no dependence on the Python version

KEY = group_key("g")


@scenario("FO-01")
def test_loaded_members_keep_generation_and_assignment_with_a_full_session(play: Play) -> None:
    play.two_loaded()
    assert (play.session_left("m0"), play.session_left("m1")) == (10_000, 10_000)
    play.heartbeat("m0", 7).expect(ErrorCode.NONE)
    play.sync("m1", generation=7).expect(ErrorCode.NONE, 2)
    play.group_is(State.STABLE, generation=7, leader="m0", members=["m0", "m1"])


@scenario("FO-02")
def test_a_loaded_follower_that_rejoins_unchanged_is_answered_at_once(play: Play) -> None:
    play.two_loaded()
    play.join("m1").expect(generation=7, leader="m0", members=[])


@scenario("FO-03")
def test_a_loaded_member_is_known_to_support_the_chosen_protocol_alone(play: Play) -> None:
    play.two_loaded()
    play.join("m1", protocols=["range", "roundrobin"]).expect_parked()
    play.group_is(State.PREPARING, generation=7)


@scenario("FO-04")
def test_a_newcomer_to_a_loaded_group_must_know_its_protocol(play: Play) -> None:
    play.two_loaded()
    play.join("x", protocols=["roundrobin"]).expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="")
    play.join("x", protocols=["range", "roundrobin"]).expect(ErrorCode.MEMBER_ID_REQUIRED)


@scenario("FO-05")
def test_a_static_member_that_restarts_after_a_failover_keeps_its_place(play: Play) -> None:
    play.two_loaded_static()
    play.join("m1'", protocols=["range", "roundrobin"], session=30_000, rebalance=40_000).expect(generation=7, leader="m0", members=[])
    stored = play.expect_group_record("replacement").members[1]
    assert (stored.member_id, stored.assignment) == (play.id_of("m1'"), b"\x02")
    assert (stored.session_timeout, stored.rebalance_timeout) == (30_000, 40_000)
    play.heartbeat("m1", 7).expect(ErrorCode.FENCED_INSTANCE_ID)
    play.heartbeat("m1'", 7).expect(ErrorCode.NONE)


@scenario("FO-06")
@pytest.mark.parametrize("version", [5, 8])
def test_an_old_client_that_restarts_as_leader_of_a_loaded_group_becomes_a_follower(play: Play, version: int) -> None:
    play.two_loaded_static()
    play.join("m0'", version=version).expect(generation=7, leader="m0", members=[])
    play.group_is(State.STABLE, generation=7, leader="m0'")


@scenario("FO-07")
def test_a_loaded_group_empties_when_no_member_returns(play: Play) -> None:
    play.two_loaded(session={"m1": 12_000})
    play.at(9_999).group_is(State.STABLE)
    play.at(10_000).group_is(State.PREPARING, generation=7, leader="m1", members=["m1"])
    play.heartbeat("m1").expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.at(14_999).group_is(State.PREPARING)
    play.at(15_000).group_is(State.EMPTY, generation=8, members=[])
    play.expect_records("empty group")


@scenario("FO-08")
def test_a_loaded_empty_group_has_no_members(play: Play) -> None:
    play.load((KEY, group_record(3)))
    play.heartbeat("m0").expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.join("m0", id="m0").expect(ErrorCode.UNKNOWN_MEMBER_ID, id="m0")
    play.join("x").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.join("x").expect_parked()
    play.after(3_000).expect("x", generation=4, members=["x"])


@scenario("FO-09")
def test_a_pending_member_id_is_unknown_after_a_failover(play: Play) -> None:
    play.join("p").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.join("p").expect_parked()
    play.failover()
    play.group_is(State.EMPTY, generation=0)
    play.join("p").expect(ErrorCode.UNKNOWN_MEMBER_ID, id="p")
    play.join("q").expect(ErrorCode.MEMBER_ID_REQUIRED)


def rejoined_but_not_assigned(play: Play) -> None:
    """Generation 8 has joined, and the coordinator crashes before the log has that generation, as the leader has not assigned."""
    play.two_loaded()
    play.join("m0").expect_parked()
    play.join("m1").expect(generation=8)
    play.group_is(State.COMPLETING, generation=8)
    play.failover()


@scenario("FO-10")
def test_after_a_failover_the_number_of_an_unassigned_generation_is_used_again(play: Play) -> None:
    rejoined_but_not_assigned(play)
    play.group_is(State.STABLE, generation=7)
    play.sync("m0", generation=8).expect(ErrorCode.ILLEGAL_GENERATION)
    play.heartbeat("m0", 8).expect(ErrorCode.ILLEGAL_GENERATION)
    play.heartbeat("m0", 7).expect(ErrorCode.NONE)
    play.join("m0").expect_parked()
    play.join("m1").expect(generation=8, members=[])
    play.expect("m0", generation=8, leader="m0", members=["m0", "m1"])


@scenario("FO-11")
def test_a_newcomer_of_a_forgotten_generation_is_unknown(play: Play) -> None:
    play.two_loaded_static()
    play.join("x", instance="ix").expect_parked()
    play.join("m0").expect_parked()
    play.join("m1").expect(generation=8)
    play.failover()
    play.sync("x", generation=8).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.join("x").expect(ErrorCode.UNKNOWN_MEMBER_ID, id="x")
    play.join("x'").expect_parked()


@scenario("FO-12")
def test_a_static_member_that_restarted_during_a_forgotten_rebalance_is_not_fenced(play: Play) -> None:
    """The member's new id is in the log before its reply is sent. Kafka stores it only with the assignments, and fences the live process."""
    play.two_loaded_static()
    play.join("m0").expect_parked()
    play.join("m1'").expect(generation=8, id="m1'")
    group_record = play.expect_group_record("replacement in a rebalance")
    assert [member.member_id for member in group_record.members] == ["m0", play.id_of("m1'")]
    assert (group_record.generation, group_record.members[1].assignment) == (7, b"\x02")
    play.failover()
    play.sync("m1'", generation=8).expect(ErrorCode.ILLEGAL_GENERATION)
    play.heartbeat("m1'", 8).expect(ErrorCode.ILLEGAL_GENERATION)
    play.join("m1'").expect(generation=7, leader="m0", members=[])
    play.sync("m1'", generation=7).expect(ErrorCode.NONE, 2)
    play.heartbeat("m1", 7).expect(ErrorCode.FENCED_INSTANCE_ID)


@scenario("FO-12")
def test_a_leader_that_restarted_during_a_forgotten_rebalance_still_leads(play: Play) -> None:
    """The log has the leader's new id before its reply is sent, so the live process still leads after a failover."""
    play.two_loaded_static()
    play.join("m0'").expect(generation=7, leader="m0'", members=["m0'", "m1"], skip=True)
    play.expect_records("replacement")
    play.join("m1", metadata=b"\0\0\0\0\0\0\0\0\0\0").expect_parked()
    play.join("m0''").expect(generation=8, leader="m0''")
    assert play.expect_group_record("replacement in a rebalance").leader == play.id_of("m0''")
    play.failover()
    play.heartbeat("m0''", 7).expect(ErrorCode.NONE)


@scenario("FO-13")
@pytest.mark.parametrize("actor", ["a", "b"])
def test_assignments_in_the_log_survive_a_failover_before_their_replies(play: Play, actor: str) -> None:
    play.follower_awaits_assignment()
    play.hold_appends()
    play.sync("a", {"a": 1, "b": 2}).expect_parked()
    play.failover(written=True)
    play.sync(actor, generation=1).expect(ErrorCode.NONE, 1 if actor == "a" else 2)


@scenario("FO-14")
def test_a_departure_before_a_sync_is_forgotten_by_a_failover(play: Play) -> None:
    play.two_dynamic()
    play.leave("b").expect(ErrorCode.NONE)
    play.join("a").expect(generation=2, members=["a"])
    play.expect_records()
    play.failover()
    play.group_is(State.STABLE, generation=1, members=["a", "b"])
    play.keep_alive("a").at(9_999).group_is(State.STABLE)
    play.at(10_000).group_is(State.PREPARING, members=["a"])
    play.expect_note(NoteKind.MEMBER_GONE, member_id="b", how=Removal.EXPIRED)


@scenario("FO-15")
def test_an_empty_group_keeps_its_generation_over_a_failover(play: Play) -> None:
    play.one_dynamic().leave("a").expect(ErrorCode.NONE)
    play.failover()
    play.group_is(State.EMPTY, generation=2, members=[])


@scenario("FO-16", "JR-03")
def test_a_static_members_new_id_survives_a_failover(play: Play) -> None:
    play.two_static()
    play.join("b'").expect(generation=1)
    play.failover()
    play.heartbeat("b").expect(ErrorCode.FENCED_INSTANCE_ID)
    play.heartbeat("b'").expect(ErrorCode.NONE)
    play.sync("b'").expect(ErrorCode.NONE, 2)


@scenario("FO-17")
def test_a_static_rejoin_lost_in_a_failover_must_be_repeated(play: Play) -> None:
    play.two_static()
    play.hold_appends()
    held = play.join("b'")
    held.expect_parked()
    play.fail_log()
    held.expect(ErrorCode.NOT_COORDINATOR, id="")
    play.heartbeat("b").expect(ErrorCode.NONE)
    play.join("b''").expect(generation=1, id="b''", members=[])
    play.expect_records("replacement")
    play.heartbeat("b").expect(ErrorCode.FENCED_INSTANCE_ID)


def member(id: str, instance: str | None) -> MemberMetadata:
    return MemberMetadata(id, instance, "c", "/127.0.0.1", 5_000, 10_000, T0, b"")


@scenario("FO-18")
def test_two_members_with_one_instance_id_cannot_be_loaded(play: Play) -> None:
    with pytest.raises(ProtocolError, match="two members of group 'g' have the instance id 'i'"):
        play.load((KEY, group_record(7, [member("one", "i"), member("two", "i")])))
    play.shard = None


@scenario("FO-19")
def test_the_oldest_group_records_have_the_session_timeout_for_both(play: Play) -> None:
    old = with_version(GroupMetadataValue("consumer", 7, "range", "m", -1, [member("m", None)]), 0)
    play.load((KEY, old))
    loaded = play.group().members["m"]
    assert (loaded.session_timeout_ms, loaded.rebalance_timeout_ms) == (10_000, 10_000)


OFFSET = offset_key(offset_key_prefix("g", "t0"), 0)


@scenario("FO-20")
def test_offsets_without_a_group_record_make_a_simple_group(play: Play) -> None:
    play.load((OFFSET, offset_value(42, -1, b"", 1)))
    play.group_is(State.EMPTY, generation=0, members=[])
    assert play.listed()[0].protocol_type == ""
    play.fetch().expect(42, commit_ms=1)


@scenario("FO-21")
def test_an_offset_after_a_groups_tombstone_makes_it_a_simple_group(play: Play) -> None:
    play.load((KEY, group_record(7, [member("m", None)])), (KEY, None), (OFFSET, offset_value(42, -1, b"", 1)))
    play.group_is(State.EMPTY, generation=0, members=[])
    assert play.group().protocol_type is None
    play.fetch().expect(42)


@scenario("FO-21")
def test_an_offset_that_was_committed_after_its_group_had_ended_is_not_lost(play: Play) -> None:
    play.commit(None, {("t0", 0): 5, ("t0", 1): 5})
    play.delete().expect(ErrorCode.NONE)
    play.commit(None, {("t0", 0): 6}).expect(ErrorCode.NONE)
    play.failover()
    assert play.fetch_all() == {("t0", 0): 6}


@pytest.mark.parametrize("version", [row("FO-22", version) for version in range(9, 16)])
def test_records_of_share_and_streams_groups_are_ignored(play: Play, version: int) -> None:
    play.load((KEY, group_record(3)), (version.to_bytes(2, "big") + b"\0\1g", b"whatever it says"))
    assert list(play.shard.groups) == ["g"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        row("FO-23", b"", b""),
        row("FO-23", b"\0\2\0\5g", group_record(3)),
        row("FO-23", KEY, b"\0\3\0"),
        row("FO-23", KEY, group_record(7, [member("m", None)])[:-1]),
        row("FO-23", OFFSET, b"\0\3short"),
        row("FO-23", OFFSET[:-1], offset_value(42, -1, b"", 1)),
    ],
)
def test_records_that_cannot_be_understood_are_an_error(play: Play, key: bytes, value: bytes) -> None:
    with pytest.raises(ProtocolError):
        play.load((key, value))
    play.shard = None


@scenario("FO-26")
def test_unloading_a_shard_refuses_a_parked_join_with_its_own_member_id(play: Play) -> None:
    parked = play.leader_rejoins()
    play.unload()
    parked.expect(ErrorCode.NOT_COORDINATOR, id="a")


@scenario("FO-27")
def test_unloading_a_shard_refuses_a_parked_sync(play: Play) -> None:
    parked = play.follower_awaits_assignment()
    play.unload()
    parked.expect(ErrorCode.NOT_COORDINATOR)


@scenario("FO-28")
@pytest.mark.parametrize("orderly", [True, False])
def test_a_leader_with_assignments_in_flight_is_answered_once_when_the_shard_is_unloaded(play: Play, orderly: bool) -> None:
    """An orderly unload waits for the log, and the leader gets its assignment; if the log fails, it gets 16."""
    play.two_awaiting_assignment()
    play.hold_appends()
    held = play.sync("a", {"a": 1, "b": 2})
    held.expect_parked()
    if orderly:
        play.unload()
        held.expect(ErrorCode.NONE, 1)
    else:
        play.fail_log()
        held.expect(ErrorCode.NOT_COORDINATOR)


@scenario("FO-30")
def test_after_unloading_and_loading_sessions_start_again(play: Play) -> None:
    play.two_static()
    play.join("p").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.at(9_000).unload()
    play.load()
    assert (play.session_left("a"), play.session_left("b")) == (10_000, 10_000)
    play.at(18_999).group_is(State.STABLE, generation=1, members=["a", "b"], pending=[])
    play.at(19_000).group_is(State.EMPTY, members=[])


@scenario("FO-31")
def test_a_loaded_member_that_heartbeats_in_time_stays_and_a_silent_member_expires(play: Play) -> None:
    play.two_loaded()
    play.at(9_999).heartbeat("m0").expect(ErrorCode.NONE)
    play.at(10_000).group_is(State.PREPARING, members=["m0"])


@scenario("FO-32")
def test_subscriptions_are_read_from_the_log(play: Play) -> None:
    play.two_loaded()
    play.offset_delete(("t0", 0), ("t1", 0)).expect(ErrorCode.NONE, each=[ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE])
