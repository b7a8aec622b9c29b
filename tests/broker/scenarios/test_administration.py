"""DescribeGroups, ListGroups and DeleteGroups with rights, versions and filters: rows of section 18 of the catalogue."""

from __future__ import annotations

from typing import Any

import pytest

from broker.security.authorizer import CLUSTER_NAME, Operation, Resource
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from tests.coordinator.scenarios import row, scenario
from tests.support.group_desk import Desk, Peer, Refusing
from tests.support.group_requests import committing, joining, stable

NOT_ASKED = -(1 << 31)
DESCRIBE_GROUP, DELETE_GROUP = (Operation.DESCRIBE, Resource.GROUP), (Operation.DELETE, Resource.GROUP)
DESCRIBE_CLUSTER = (Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)


def describe(peer: Peer, *groups: str, version: int = 5, rights: bool = False) -> list[Any]:
    described: list[Any] = peer.ask(DescribeGroupsRequest(list(groups), rights), version).groups
    return described


@scenario("AD-09")
def test_a_group_that_is_named_twice_is_deleted_once(peer: Peer) -> None:
    peer.ask(committing("x"), 9)
    assert [(result.group_id, result.error_code) for result in peer.ask(DeleteGroupsRequest(["x", "x"]), 2).results] == [("x", 0)]


def test_unauthorized_groups_of_a_delete_are_answered_last() -> None:
    peer = Peer(Desk(Refusing((*DELETE_GROUP, "x"))))
    for group in ("x", "y"):
        peer.ask(committing(group), 9)
    results = peer.ask(DeleteGroupsRequest(["x", "y", "none"]), 2).results
    assert [(result.group_id, result.error_code) for result in results] == [("y", 0), ("none", 69), ("x", 30)]


@pytest.mark.parametrize(
    ("version", "rights", "operations"), [row("AD-11", 3, True, 3400), row("AD-11", 5, True, 3400), row("AD-11", 5, False, NOT_ASKED)]
)
def test_an_unknown_group_is_described_as_dead_without_error(peer: Peer, version: int, rights: bool, operations: int) -> None:
    (group,) = describe(peer, "none", version=version, rights=rights)
    assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data, group.members) == (0, "Dead", "", "", [])
    assert group.authorized_operations == operations


def test_from_version_6_describing_an_unknown_group_is_an_error(peer: Peer) -> None:
    """KIP-1043, as Kafka 4.3.1 answers."""
    (group,) = describe(peer, "none", version=6, rights=True)
    assert (group.error_code, group.error_message, group.group_state) == (69, "Group none not found.", "Dead")
    assert group.authorized_operations == NOT_ASKED


@pytest.mark.parametrize(("version", "instance"), [row("AD-12", 4, "instance"), row("AD-12", 3, None)])
def test_instance_ids_are_shown_from_version_4(desk: Desk, peer: Peer, version: int, instance: str | None) -> None:
    id = stable(desk, peer, "instance")
    (group,) = describe(peer, "g", version=version)
    assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (0, "Stable", "consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.group_instance_id) == (id, instance)
    assert (member.client_id, member.client_host, member.member_metadata, member.member_assignment) == (
        "client",
        "/127.0.0.1",
        b"topics",
        b"mine",
    )


@scenario("AD-16")
@pytest.mark.parametrize("request_", [DescribeGroupsRequest(["g"]), ListGroupsRequest()], ids=["describe", "list"])
def test_a_group_is_described_once_it_is_in_the_log(desk: Desk, peer: Peer, request_: Any) -> None:
    """Z17: Kafka replies that the group does not exist."""
    desk.hold_appends()
    Peer(desk).send(joining(instance="instance"), 9)
    peer.send(request_, 4)
    assert peer.reply() is None
    desk.append_succeeds()
    (group,) = peer.reply().groups
    assert (group.group_id, group.group_state) == ("g", "PreparingRebalance")


@pytest.fixture
def three(desk: Desk, peer: Peer) -> Peer:
    """Groups "g", Stable, "e", Empty, and "s", of offsets only."""
    stable(desk, peer)
    joiner = Peer(desk)
    joiner.send(joining("e"), 3)
    desk.pass_ms(0)
    peer.ask(LeaveGroupRequest("e", [MemberIdentity(joiner.reply().member_id)]), 3)
    peer.ask(committing("s"), 9)
    return peer


ALL = {("g", "consumer", "Stable"), ("e", "consumer", "Empty"), ("s", "", "Empty")}


def listed(peer: Peer, version: int, states: list[str] | None = None, types: list[str] | None = None) -> Any:
    reply = peer.ask(ListGroupsRequest(states, types), version)
    assert reply.error_code == 0
    return {(group.group_id, group.protocol_type, group.group_state) for group in reply.groups}


@pytest.mark.parametrize(
    ("version", "states", "names"),
    [
        row("AD-17", 4, [], ["g", "e", "s"]),
        row("AD-17", 4, [" stable "], ["g"]),
        row("AD-17", 4, ["EMPTY"], ["e", "s"]),
        row("AD-17", 4, ["Stable", "empty"], ["g", "e", "s"]),
        row("AD-17", 4, ["bogus"], []),
        row("AD-17", 4, ["bogus", "Stable"], ["g"]),
    ],
)
def test_groups_are_listed_by_their_states(three: Peer, version: int, states: list[str], names: list[str]) -> None:
    assert listed(three, version, states) == {listing for listing in ALL if listing[0] in names}


@pytest.mark.parametrize(
    ("types", "every"),
    [
        row("AD-18", ["Classic"], True),
        row("AD-18", ["consumer"], False),
        row("AD-18", ["bogus"], False),
        row("AD-18", ["bogus", "classic"], True),
    ],
)
def test_groups_are_listed_by_their_types(three: Peer, types: list[str], every: bool) -> None:
    assert listed(three, 5, types=types) == (ALL if every else set())


@scenario("AD-17", "AD-19")
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_versions_list_neither_states_nor_types(three: Peer, version: int) -> None:
    assert listed(three, version) == {(name, kind, "") for name, kind, _ in ALL}
    assert all(group.group_type == "" for group in three.ask(ListGroupsRequest(), version).groups)


def test_the_newest_version_lists_the_type(three: Peer) -> None:
    assert {group.group_type for group in three.ask(ListGroupsRequest(), 5).groups} == {"classic"}
    assert {group.group_type for group in three.ask(ListGroupsRequest(), 4).groups} == {""}


@scenario("AD-20")
def test_without_cluster_rights_only_permitted_groups_are_listed() -> None:
    peer = Peer(Desk(Refusing(DESCRIBE_CLUSTER, (*DESCRIBE_GROUP, "hidden"))))
    for group in ("x", "hidden"):
        peer.ask(committing(group), 9)
    assert listed(peer, 4) == {("x", "", "Empty")}


def test_with_rights_to_the_cluster_all_groups_are_listed() -> None:
    peer = Peer(Desk(Refusing((*DESCRIBE_GROUP, None))))
    peer.ask(committing("x"), 9)
    assert listed(peer, 4) == {("x", "", "Empty")}


@scenario("AD-21")
def test_unauthorized_groups_of_a_describe_are_answered_first() -> None:
    peer = Peer(Desk(Refusing((*DESCRIBE_GROUP, "first"), (*DESCRIBE_GROUP, "middle"))))
    groups = describe(peer, "first", "a", "middle", "b", rights=True)
    assert [group.group_id for group in groups[:2]] == ["first", "middle"]
    assert {group.group_id for group in groups[2:]} == {"a", "b"}
    assert [(group.error_code, group.group_state, group.authorized_operations) for group in groups[:2]] == [(30, "", NOT_ASKED)] * 2


@scenario("AD-22")
def test_the_group_without_a_name_is_described_as_any_other(peer: Peer) -> None:
    (group,) = describe(peer, "")
    assert (group.error_code, group.group_id, group.group_state) == (0, "", "Dead")


@scenario("AD-06")
def test_the_group_without_a_name_is_deleted_as_any_other(peer: Peer) -> None:
    peer.ask(committing(""), 9)
    assert [result.error_code for result in peer.ask(DeleteGroupsRequest([""]), 2).results] == [0]
    assert [result.error_code for result in peer.ask(DeleteGroupsRequest([""]), 2).results] == [69]


@scenario("AD-23")
def test_pending_member_ids_are_not_described(peer: Peer) -> None:
    assert peer.ask(joining(), 9).error_code == 79
    (group,) = describe(peer, "g")
    assert (group.group_state, group.protocol_type, group.members) == ("Empty", "", [])
