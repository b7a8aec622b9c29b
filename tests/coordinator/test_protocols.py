"""Protocol selection, leadership and parsed subscriptions: section 11 of the conformance catalogue."""

from __future__ import annotations

import pytest

from coordinator.states import State
from protocol.errors import ErrorCode
from tests.coordinator.playbook import T0_T1, Play, row, scenario

pytestmark = pytest.mark.once  # no dependence on the Python version


@scenario("PR-01")
def test_most_votes_win_over_the_leaders_preference(play: Play) -> None:
    preferences = ["sticky", "range"]
    play.joined("a", "b", "c", protocols={"a": ["range", "sticky"], "b": preferences, "c": preferences})
    play.group_is(State.COMPLETING, protocol="sticky")


@scenario("PR-02")
def test_a_vote_goes_to_the_first_protocol_that_all_members_support(play: Play) -> None:
    play.joined("a", "b", "c", protocols={"a": ["range", "sticky", "rr"], "b": ["rr", "sticky"], "c": ["sticky", "rr"]})
    play.group_is(State.COMPLETING, protocol="sticky")


def test_the_leader_gets_the_metadata_of_each_member_for_the_selected_protocol(play: Play) -> None:
    a = play.join("a", protocols=[("range", b"a range"), ("rr", b"a rr")], version=3)
    b = play.join("b", protocols=[("rr", b"b rr"), ("sticky", b"b sticky")], version=3)
    play.at(6_000)
    a.expect(generation=1, leader="a", members=["a", "b"])
    b.expect(generation=1)
    assert [member[2] for member in a.reply.members] == [b"a rr", b"b rr"]
    assert play.group().members[play.id_of("b")].metadata("range") == b""


def test_a_pending_member_may_join_after_all_others_left(play: Play) -> None:
    """In PreparingRebalance with no members left, any protocol is accepted."""
    play.join("p").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.join("a", protocols=["range"], version=3).expect_parked()
    play.leave("a")
    play.group_is(State.PREPARING, members=[], pending=["p"])
    p = play.join("p", protocols=["sticky"]).expect_parked()
    play.at(6_000)
    p.expect(generation=1, leader="p", members=["p"], at=6_000)


@scenario("PR-03")
def test_a_new_member_must_support_a_protocol_of_all_members(play: Play) -> None:
    play.joined("a", "b", protocols={"a": ["range", "sticky"], "b": ["sticky", "rr"]})
    play.join("c", protocols=["range", "rr"], version=3).expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="")
    play.group_is(State.COMPLETING, members=["a", "b"], protocol="sticky")


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        row("PR-04", "range", "roundrobin", "range"),
        row("PR-04", "range", "sticky", "sticky"),
        row("PR-04", "range", "cooperative-sticky", "range"),
        row("PR-04", "sticky", "cooperative-sticky", "sticky"),
        row("PR-04", "roundrobin", "sticky", "sticky"),
        row("PR-04", "roundrobin", "cooperative-sticky", "roundrobin"),
        row("PR-04", "a", "b", "a"),
    ],
)
@pytest.mark.parametrize("leader_first", [True, False])
def test_a_tie_is_decided_by_the_order_of_javas_map(play: Play, first: str, second: str, chosen: str, leader_first: bool) -> None:
    forth, reversed_order = [first, second], [second, first]
    play.joined("a", "b", protocols={"a": forth if leader_first else reversed_order, "b": reversed_order if leader_first else forth})
    play.group_is(State.COMPLETING, protocol=chosen)


def the_leader_knows_one_more(play: Play) -> None:
    play.two_static()
    play.join("a'", protocols=["cooperative-sticky", "range"]).expect(generation=1, leader="a'", members=["a'", "b"], skip=True)


@scenario("PR-05")
def test_the_first_member_of_a_rolling_protocol_upgrade_causes_no_rebalance(play: Play) -> None:
    the_leader_knows_one_more(play)
    play.expect_records("replacement")
    play.group_is(State.STABLE, generation=1, protocol="range")


def all_know_one_more(play: Play) -> None:
    the_leader_knows_one_more(play)
    play.join("b'", protocols=["cooperative-sticky", "range"]).expect_parked()


@scenario("PR-06")
def test_the_last_member_of_a_rolling_protocol_upgrade_causes_a_rebalance(play: Play) -> None:
    all_know_one_more(play)
    play.expect_records("replacement")
    play.group_is(State.PREPARING, generation=1, members=["a'", "b'"])


@scenario("PR-07", "E2E-10")
def test_once_all_know_a_protocol_the_old_one_may_be_dropped(play: Play) -> None:
    all_know_one_more(play)
    play.join("a''", protocols=["cooperative-sticky"]).expect(generation=2, leader="a''", protocol="cooperative-sticky")
    play.expect("b'", generation=2, leader="a''", protocol="cooperative-sticky")


@scenario("PR-08")
def test_another_member_leads_after_the_leader_left(play: Play) -> None:
    play.settled("a", "b", "c")
    play.leave("a").expect(ErrorCode.NONE)
    survivors = {play.id_of("b"), play.id_of("c")}
    assert play.group().leader in survivors
    play.join("b").expect_parked()
    leads = play.join("c").expect(generation=2).reply.leader
    assert leads in survivors
    play.expect("b", generation=2, leader=leads)


@scenario("PR-09")
@pytest.mark.parametrize("cause", ["a newcomer", "a follower that changed", "the leader itself"])
def test_a_leader_that_rejoins_keeps_leading(play: Play, cause: str) -> None:
    play.two_dynamic()
    if cause == "a newcomer":
        play.join("c", version=3).expect_parked()
        play.join("b").expect_parked()
    elif cause == "a follower that changed":
        play.join("b", metadata=T0_T1).expect_parked()
    else:
        play.join("a").expect_parked()
        play.join("b")
        play.expect("a", generation=2, leader="a")
        return
    play.join("a").expect(generation=2, leader="a")


@scenario("PR-10")
def test_a_leader_that_missed_the_join_phase_does_not_lead_again_when_it_is_back(play: Play) -> None:
    play.two_static()
    play.keep_alive("a")
    play.join("b", metadata=T0_T1).expect_parked()
    play.at(20_000).expect("b", generation=2, leader="b", members=["a", "b"])
    play.join("a").expect(generation=2, leader="b", members=[])
    play.sync("b", {"a": 1, "b": 2}).expect(ErrorCode.NONE, 2)
    play.sync("a").expect(ErrorCode.NONE, 1)
    play.join("b").expect_parked()
    play.join("a").expect(generation=3, leader="b", members=[])


@scenario("PR-11")
def test_a_protocol_that_is_offered_twice_is_refused(play: Play) -> None:
    """Kafka accepts it, fails at the end of the join phase, and never answers any JoinGroup of the group."""
    play.one_dynamic()
    play.join("b", protocols=[("range", b"one"), ("range", b"two")], version=3).expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="")
    play.join("a", protocols=["range", "range"]).expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="a")
    play.group_is(State.STABLE, generation=1, members=["a"])
    play.join("c", instance="ic", protocols=["range", "range"], group="new").expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


NOTHING_READ = "subscription unknown: deletion is refused"


@pytest.mark.parametrize(
    ("metadata", "unknown"),
    [
        row("PR-12", b"", NOTHING_READ),
        row("PR-12", b"\0", NOTHING_READ),
        row("PR-12b", bytes.fromhex("000000000000"), NOTHING_READ),
        row("PR-12b", bytes.fromhex("000000000000ffffffff"), ""),
        row("PR-12c", bytes.fromhex("0000000000010003616263"), NOTHING_READ),
        # In Kafka these subscriptions make the end of the join phase fail, after the generation was raised: no member gets a reply.
        row("PR-13", bytes.fromhex("000000000001"), NOTHING_READ),
        row("PR-13", bytes.fromhex("00000000000100036162"), NOTHING_READ),
        row("PR-13", bytes.fromhex("000000000001ffff"), NOTHING_READ),
        row("PR-13", bytes.fromhex("0000000003e8"), NOTHING_READ),
        row("PR-13", bytes.fromhex("0000ffffffff"), NOTHING_READ),
        row("PR-13", bytes.fromhex("000000000001000361626300000009"), NOTHING_READ),
    ],
)
def test_the_join_phase_ends_for_any_subscription(play: Play, metadata: bytes, unknown: str) -> None:
    play.one_dynamic(metadata=metadata)
    expected = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if unknown else ErrorCode.NONE
    play.offset_delete(("t0", 0), ("t1", 0)).expect(ErrorCode.NONE, each=[expected, expected])
    play.join("b", version=3, metadata=metadata).expect_parked()
    play.join("a").expect(generation=2, members=["a", "b"])


@scenario("PR-14")
@pytest.mark.parametrize("metadata", [b"", b"\xff" * 9, bytes.fromhex("0000ffffffff")])
def test_metadata_of_other_protocol_types_is_not_parsed(play: Play, metadata: bytes) -> None:
    play.one_dynamic(type="connect", metadata=metadata)
    play.offset_delete(("t0", 0)).expect(ErrorCode.NON_EMPTY_GROUP, each=[])
    assert play.group().subscribed is None


@scenario("PR-15")
def test_when_the_first_member_of_a_new_group_leaves_a_parked_member_leads(play: Play) -> None:
    for name in ("a", "b", "c"):
        play.join(name, instance=f"i{name}").expect_parked()
    play.leave("a").expect(ErrorCode.NONE)
    play.at(6_000)
    leader = play.group().leader
    assert leader in {play.id_of("b"), play.id_of("c")}
    play.expect("b", generation=1, leader=leader)
    play.expect("c", generation=1, leader=leader)
