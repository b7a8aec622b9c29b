"""Groups that pass from one protocol to the other, online and while they are empty, and groups whose members speak both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from coordinator.consumer.config import MigrationPolicy
from coordinator.facts import group_key, read_group
from coordinator.policies.door import resolve
from protocol.messages.consumer_offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
)
from protocol.messages.kinds import CONSUMER_OFFSETS
from protocol.records import read_key, read_offsets_key
from tests.coordinator.consumer.playing import Play, error, ok, partitions
from tests.coordinator.consumer.programs import CONFIG, GROUP, Answer
from tests.coordinator.scenarios import row, scenario

ALL = (0, 1, 2, 3)


def playing(policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL, **settings: Any) -> Play:
    play = Play(CONFIG._replace(consumer=CONFIG.consumer._replace(migration_policy=policy, **settings)))
    play.topic("t", 4)
    return play


@pytest.fixture
def play() -> Play:
    return playing()


def rejoin(play: Play, name: str, *topics: str, **fields: Any) -> Answer:
    return play.play({"do": "classic_join", "name": name, "topics": topics or ["t"], **fields})


def join(play: Play, name: str, *topics: str, **fields: Any) -> Answer:
    """The first JoinGroup of a member, in a version that gives it its id at once."""
    return rejoin(play, name, *topics, **{"new": True, "v": 3, **fields})


def sync(play: Play, name: str, generation: int, **fields: Any) -> Answer:
    return play.play({"do": "classic_sync", "name": name, "generation": generation, **fields})


def beat(play: Play, name: str, generation: int, instance: str | None = None) -> int:
    return int(play.play({"do": "classic_beat", "member": name, "epoch": generation, "instance": instance})["error"])


def joined(name: str, generation: int, protocol: str = "range") -> Answer:
    """The answer to the JoinGroup of a classic member in a group of the consumer protocol."""
    return {"error": 0, "member": name, "generation": generation, "type": "consumer", "protocol": protocol, "leader": "", "members": [], "skip": False}


def synced(*numbers: int, protocol: str = "range") -> Answer:
    return {"error": 0, "type": "consumer", "protocol": protocol, "assigned": partitions(*numbers) if numbers else {}}


def classic_group(play: Play, instance: str | None = None) -> None:
    """A classic group with the members x, who leads, and y, at generation 2."""
    assert join(play, "x")["leader"] == "x"
    assert sync(play, "x", 1, assignments={"x": {"t": ALL}})["error"] == 0
    assert join(play, "y", instance=instance) == {"parked": True}
    assert beat(play, "x", 1) == 27
    assert len(rejoin(play, "x")["members"]) == 2
    assert play.play({"do": "look"})["arrived"][0][:2] == ["y", "join"]
    assert sync(play, "x", 2, assignments={"x": {"t": [0, 1]}, "y": {"t": [2, 3]}})["assigned"] == partitions(0, 1)
    assert sync(play, "y", 2)["assigned"] == partitions(2, 3)


def mixed(play: Play) -> None:
    """The classic x has partitions 0 and 1, and y, of the consumer protocol, 2 and 3, at epoch 3."""
    play.join("y", "t")
    assert join(play, "x")["generation"] == 3
    play.poll("y")
    play.ack("y")
    assert beat(play, "x", 3) == 27
    assert rejoin(play, "x") == joined("x", 3)
    assert sync(play, "x", 3)["error"] == 0
    assert play.epochs_shown == ("Stable", 3, 3)


def names_of(play: Play, since: int) -> list[tuple[str, bool]]:
    """The kinds of the records that were written, and whether each is a value."""
    shown: list[tuple[str, bool]] = []
    for key, value in play.log[since:]:
        message = read_offsets_key(key) or read_key(CONSUMER_OFFSETS, key)
        shown.append((type(message).__name__.removesuffix("Key"), value is not None))
    return shown


GROUP_RECORD = GroupMetadataKey.__name__.removesuffix("Key")
EPOCH, MEMBER, TARGET_EPOCH, TARGET, CURRENT, OLD_TOPICS = [
    key.__name__.removesuffix("Key")
    for key in (
        ConsumerGroupMetadataKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupPartitionMetadataKey,
    )
]


# A classic group is upgraded.


@scenario("CP-40")
def test_a_member_of_the_consumer_protocol_upgrades_a_classic_group(play: Play) -> None:
    classic_group(play)
    before = len(play.log)
    assert play.join("a", "t") == ok(3, {})
    assert names_of(play, before)[:8] == [(GROUP_RECORD, False), (MEMBER, True), (MEMBER, True), (EPOCH, True), (TARGET, True), (TARGET, True), (TARGET_EPOCH, True), (CURRENT, True)]
    assert play.epochs_shown == ("Reconciling", 3, 3)
    shown = play.look()["members"]
    assert (shown["x"]["assigned"], shown["y"]["assigned"]) == (partitions(0, 1), partitions(2, 3))
    assert [(shown[name]["epoch"], "classic" in shown[name]) for name in ("a", "x", "y")] == [(3, False), (2, True), (2, True)]


def test_parked_requests_are_told_of_another_rebalance_by_an_upgrade(play: Play) -> None:
    classic_group(play)
    assert join(play, "z") == {"parked": True}
    assert rejoin(play, "x") == {"parked": True}
    assert play.join("a", "t")["error"] == 0
    assert play.look()["arrived"] == [[name, "join", {"error": 27, "member": name}] for name in ("x", "z")]


def test_a_parked_sync_is_told_of_another_rebalance_by_an_upgrade(play: Play) -> None:
    classic_group(play)
    rejoin(play, "x", "t", "u")
    rejoin(play, "y")
    play.look()
    assert sync(play, "y", 3) == {"parked": True}
    play.join("a", "t")
    assert play.look()["arrived"] == [["y", "sync", error(27)]]


def test_members_of_an_upgraded_group_hand_partitions_over(play: Play) -> None:
    classic_group(play)
    play.join("a", "t")
    for name in ("x", "y"):
        assert beat(play, name, 2) == 27
        rejoin(play, name)  # an eager member gives everything up
        assert play.shown(name)["epoch"] == 3
    play.ack("a")
    for _ in range(2):
        for name in ("x", "y"):
            rejoin(play, name)
            assert sync(play, name, 3)["error"] == 0
    assert play.epochs_shown == ("Stable", 3, 3)


@scenario("CP-47")
def test_a_static_member_upgrades_the_group_in_its_own_place_without_a_new_epoch(play: Play) -> None:
    classic_group(play, instance="iy")
    assert play.join("a", "t", instance="iy") == ok(2, partitions(2, 3))
    assert play.epochs_shown == ("Stable", 2, 2)
    assert beat(play, "y", 2) == 25
    assert beat(play, "y", 2, "iy") == 82


def test_a_group_that_has_no_generation_yet_is_upgraded_too(play: Play) -> None:
    play.config = CONFIG
    play.shard._config = play.shard._out.config = play.shard._out.config._replace(group_initial_rebalance_delay_ms=3_000)
    assert join(play, "x") == {"parked": True}
    assert play.join("a", "t")["epoch"] == 1
    assert play.look()["arrived"][0][2]["error"] == 27


def test_a_newcomer_that_does_not_know_the_protocol_of_the_last_generation_is_upgraded_too(play: Play) -> None:
    join(play, "x", protocols=["cooperative-sticky", "range"])
    sync(play, "x", 1, protocol="cooperative-sticky", assignments={"x": {"t": ALL}})
    assert join(play, "y") == {"parked": True}
    assert play.join("a", "t") == ok(2, {})
    assert play.look()["arrived"][0][2]["error"] == 27


@pytest.mark.parametrize(
    ("policy", "settings", "fields"),
    [
        row("CP-50", MigrationPolicy.DISABLED, {}, {}),
        row("CP-50", MigrationPolicy.DOWNGRADE, {}, {}),
        row("CP-46", MigrationPolicy.BIDIRECTIONAL, {}, {"type": "connect"}),
        row("CP-40", MigrationPolicy.BIDIRECTIONAL, {}, {"damaged": True}),
        row("CP-40", MigrationPolicy.BIDIRECTIONAL, {"max_size": 0}, {}),
    ],
)
def test_a_group_that_may_not_be_upgraded_stays_as_it_is(policy: MigrationPolicy, settings: dict[str, Any], fields: dict[str, Any]) -> None:
    play = playing(policy, **settings)
    join(play, "x", **fields)
    sync(play, "x", 1, **({"type": None} if "type" in fields else {}))
    before = play.look()
    assert play.join("a", "t") == error(69)
    assert play.look() == before
    assert beat(play, "x", 1) == 0


def test_an_assignment_with_data_of_an_assignor_is_not_upgraded(play: Play) -> None:
    join(play, "x")
    sync(play, "x", 1, assignments={"x": {"t": ALL}}, user_data=True)
    assert play.join("a", "t") == error(69)


def test_a_heartbeat_that_is_refused_upgrades_nothing(play: Play) -> None:
    classic_group(play)
    assert rejoin(play, "x") == {"parked": True}
    assert play.join("a", regex="(") == error(128)
    assert play.look()["listed"][0] == "classic"
    assert rejoin(play, "y")["error"] == 0
    assert play.say("a", 1) == error(69)


def with_policies(**policies: str) -> Play:
    consumer = CONFIG.consumer._replace(migration_policy=MigrationPolicy.BIDIRECTIONAL)
    values = resolve({name.replace("_", "."): value for name, value in policies.items()})
    play = Play(CONFIG._replace(consumer=consumer, default_policies=values))
    play.topic("t", 4)
    return play


def test_a_member_that_is_away_at_an_upgrade_has_a_session_and_its_time_again() -> None:
    play = with_policies(registration_timeout_ms="60000")
    classic_group(play, instance="iy")
    for _ in range(6):
        play.wait(11_000)
        beat(play, "x", 2)
    assert play.shard.groups[GROUP].away
    assert play.join("a", "t")["error"] == 0
    assert len(play.look()["members"]) == 3
    play.wait(44_000)
    play.ack("a")
    play.wait(30_000)
    assert play.look()["members"].keys() == {"a", "y"}
    play.ack("a")
    play.wait(40_000)
    play.ack("a")
    play.wait(10_000)
    assert play.look()["members"].keys() == {"a"}


def test_newcomers_that_wait_by_a_policy_are_told_to_join_the_upgraded_group() -> None:
    play = with_policies(expansion_timeout_ms="5000")
    join(play, "x")
    play.wait(5_000)
    play.look()
    assert sync(play, "x", 1)["error"] == 0
    assert join(play, "y") == {"parked": True}
    assert beat(play, "x", 1) == 0
    play.join("a", "t")
    assert play.look()["arrived"] == [["y", "join", {"error": 27, "member": ""}]]
    play.wait(10_000)


# A group of the consumer protocol is downgraded.


def leaves(play: Play) -> None:
    assert play.poll("y", -1)["error"] == 0


def is_removed_by_its_instance(play: Play) -> None:
    assert play.play({"do": "leave", "members": [["y", None]]}) == {"codes": [0]}


def is_silent(play: Play) -> None:
    for _ in range(4):
        play.wait(15_000)
        beat(play, "x", 3)


@pytest.mark.parametrize("goes", [row("CP-41", leaves), row("CP-41", is_removed_by_its_instance), row("CP-41", is_silent)])
def test_the_group_is_classic_when_its_last_member_of_the_consumer_protocol_goes(play: Play, goes: Any) -> None:
    mixed(play)
    before = len(play.log)
    goes(play)
    assert names_of(play, before) == [
        *[(CURRENT, False)] * 2,
        *[(TARGET, False)] * 2,
        (TARGET_EPOCH, False),
        *[(MEMBER, False)] * 2,
        (OLD_TOPICS, False),
        (EPOCH, False),
        (GROUP_RECORD, True),
    ]
    stored = read_group(play.log[-1][1] or b"")
    assert (stored.generation, stored.protocol_type, stored.protocol) == (3, "consumer", "range")
    look = play.look()
    assert look["classic"]["state"] == "PreparingRebalance"
    assert look["classic"]["members"]["x"]["assigned"] == play.owned.get("x", partitions(2, 3))
    assert beat(play, "x", 2) == 22
    assert beat(play, "x", 3) == 27
    assert rejoin(play, "x")["generation"] == 4


def test_members_of_both_protocols_leave_together(play: Play) -> None:
    mixed(play)
    join(play, "z")
    assert play.play({"do": "leave", "members": [["y", None], ["z", None]]}) == {"codes": [0, 0]}
    assert play.look()["classic"]["members"].keys() == {"x"}


def test_a_group_of_classic_members_only_is_downgraded_when_one_of_them_leaves(play: Play) -> None:
    mixed(play)
    join(play, "z")
    assert rejoin(play, "y")["error"] == 0
    assert play.look()["listed"][0] == "consumer"
    assert play.play({"do": "leave", "members": [["z", None]]}) == {"codes": [0]}
    assert play.look()["classic"]["members"].keys() == {"x", "y"}


@pytest.mark.parametrize("policy", [row("CP-50", MigrationPolicy.UPGRADE), row("CP-50", MigrationPolicy.BIDIRECTIONAL)])
def test_a_group_that_may_not_be_downgraded_keeps_its_classic_members(policy: MigrationPolicy) -> None:
    play = playing(policy)
    if policy is MigrationPolicy.BIDIRECTIONAL:
        play.config = CONFIG
        play.shard._config = play.shard._out.config = play.shard._out.config._replace(group_max_size=0)
    mixed(play)
    leaves(play)
    assert play.epochs_shown == ("Assigning", 4, 3)


@scenario("CP-48")
def test_a_static_member_that_returns_with_the_classic_protocol_downgrades_the_group(play: Play) -> None:
    play.join("y", "t", instance="iy")
    before = play.shown("y")["assigned"]
    assert join(play, "z", instance="iy", v=9) == joined("z", 2)
    look = play.look()
    assert look["classic"] == {"state": "Stable", "protocol": "range", "members": {"z": {"instance": "iy", "assigned": before}}}
    assert beat(play, "z", 2, "iy") == 0
    assert sync(play, "z", 2) == synced(*ALL)


def test_a_static_member_that_returns_with_other_topics_begins_a_rebalance(play: Play) -> None:
    play.topic("u", 1)
    play.join("y", "t", instance="iy")
    assert join(play, "z", "t", "u", instance="iy", v=9)["generation"] == 0
    assert play.look()["classic"]["state"] == "PreparingRebalance"
    assert beat(play, "z", 0, "iy") == 22


# Members of both protocols.


@scenario("CP-42")
def test_a_classic_member_joins_a_group_of_the_consumer_protocol(play: Play) -> None:
    play.join("y", "t")
    answer = rejoin(play, "x", new=True)
    assert answer["error"] == 79
    assert play.look()["members"].keys() == {"y"}  # the id is remembered nowhere
    assert rejoin(play, "x") == joined("x", 3)
    assert sync(play, "x", 3) == synced()
    assert beat(play, "x", 3) == 0  # it waits for what y holds
    play.poll("y")
    play.ack("y")
    assert beat(play, "x", 3) == 27
    assert rejoin(play, "x") == joined("x", 3)
    assert sync(play, "x", 3)["assigned"] == play.shown("x")["assigned"]
    assert play.epochs_shown == ("Stable", 3, 3)


@scenario("CP-43")
def test_a_cooperative_member_gives_partitions_up_in_two_steps(play: Play) -> None:
    play.join("y", "t")
    cooperative = {"protocols": ["cooperative-sticky"]}
    mixed_with(play, cooperative)
    play.join("z", "t")
    had = play.shown("x")["assigned"]["t"]
    assert beat(play, "x", 3) == 27
    assert sync(play, "x", 3, protocol="cooperative-sticky") == error(27)
    assert rejoin(play, "x", owned=partitions(*had), **cooperative) == joined("x", 3, "cooperative-sticky")
    kept = sync(play, "x", 3, protocol="cooperative-sticky")["assigned"]["t"]
    assert set(kept) < set(had)
    assert beat(play, "x", 3) == 27
    assert rejoin(play, "x", owned=partitions(*kept), **cooperative) == joined("x", 4, "cooperative-sticky")


def mixed_with(play: Play, fields: dict[str, Any]) -> None:
    join(play, "x", **fields)
    play.poll("y")
    play.ack("y")
    rejoin(play, "x", **fields)
    assert play.epochs_shown == ("Stable", 3, 3)


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_whose_version_has_no_owned_partitions_owns_none(play: Play, version: int) -> None:
    mixed(play)
    play.join("z", "t")
    had = play.shown("x")["assigned"]
    assert rejoin(play, "x", sv=version, owned=had) == joined("x", 4 if version == 0 else 3)


@pytest.mark.parametrize(
    ("member", "generation", "fields", "code"),
    [
        row("CP-43", "nobody", 3, {}, 25),
        row("CP-43", "y", 3, {}, 25),
        row("CP-43", "x", 2, {}, 22),
        row("CP-43", "x", 4, {}, 22),
        row("CP-43", "x", 3, {"instance": "ix"}, 25),
        row("CP-43", "x", 3, {"type": "connect"}, 23),
        row("CP-43", "x", 3, {"protocol": "other"}, 23),
        row("CP-43", "x", 3, {"type": None, "protocol": None}, 0),
    ],
)
def test_a_sync_with_wrong_fields_is_refused(play: Play, member: str, generation: int, fields: dict[str, Any], code: int) -> None:
    mixed(play)
    assert sync(play, member, generation, **fields)["error"] == code


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        row("CP-42", {"type": "connect"}, 23),
        row("CP-42", {"protocols": ["other"]}, 23),
        row("CP-42", {"protocols": []}, 23),
        row("CP-42", {"damaged": True}, 23),
        row("CP-42", {"protocols": ["other", "range"]}, 0),
        row("CP-42", {"instance": "ix"}, 25),
    ],
)
def test_a_join_with_wrong_fields_is_refused(play: Play, fields: dict[str, Any], code: int) -> None:
    mixed(play)
    join(play, "z")
    assert rejoin(play, "w", **fields)["error"] == code


def test_the_instances_of_both_protocols_are_told_apart(play: Play) -> None:
    play.join("y", "t", instance="iy")
    play.join("z", "t")
    assert join(play, "x", instance="ix", v=9)["error"] == 0
    assert rejoin(play, "y", instance="ix")["error"] == 82
    assert (beat(play, "y", 3, "ix"), beat(play, "x", play.shown("x")["epoch"], "nobody")) == (82, 25)
    assert join(play, "w", instance="ix", v=9)["error"] == 0  # the older process is fenced
    assert beat(play, "x", 4, "ix") == 82
    assert play.join("v", "t", instance="ix")["error"] == 0  # and so it is by a process of the other protocol
    assert "classic" not in play.shown("v")


def test_a_member_changes_its_protocol_and_keeps_its_partitions(play: Play) -> None:
    mixed(play)
    before = play.shown("x")
    id = play.identities.id_of("x")
    assert play.say("x", 3, owned=before["assigned"]) == ok(3, None, "x")
    assert "classic" not in play.shown("x")
    assert beat(play, "x", 3) == 25
    assert rejoin(play, "y", owned=play.shown("y")["assigned"]) == joined("y", 3)
    assert play.shown("y")["classic"]
    assert play.group.members[id].profile.classic is None


@scenario("CP-49")
@pytest.mark.parametrize("silent", ["session", "join", "sync"])
def test_a_classic_member_that_stays_silent_is_removed(play: Play, silent: str) -> None:
    times = {"session": 5_000, "timeout": 60_000} if silent == "session" else {"session": 20_000, "timeout": 2_000}
    mixed(play)
    assert rejoin(play, "x", owned=play.shown("x")["assigned"], **times)["error"] == 0
    if silent != "sync":
        assert sync(play, "x", 3)["error"] == 0
    play.join("z", "t")
    if silent == "join":
        assert beat(play, "x", 3) == 27
        play.wait(1_000)
        assert beat(play, "x", 3) == 27  # its time does not begin again
    play.wait(4_900 if silent == "session" else 900 if silent == "join" else 1_900)
    assert "x" in play.look()["members"]
    play.wait(200)
    assert play.look()["members"].keys() == {"y", "z"}


def test_a_classic_member_has_its_own_session_after_its_first_request_to_a_new_coordinator(play: Play) -> None:
    mixed(play)
    rejoin(play, "x", owned=play.shown("x")["assigned"], session=5_000)
    sync(play, "x", 3)
    play.restart()
    play.wait(10_000)
    play.ack("y")
    assert beat(play, "x", 3) == 0
    play.wait(5_100)
    assert play.look()["listed"][0] == "consumer"
    assert play.look()["members"].keys() == {"y"}


@scenario("CP-53")
def test_a_new_coordinator_goes_on_in_the_middle_of_an_upgrade(play: Play) -> None:
    classic_group(play)
    play.join("a", "t")
    play.restart()
    assert beat(play, "x", 2) == 27
    assert rejoin(play, "x") == joined("x", 3)


def test_commits_of_classic_members_name_their_generation(play: Play) -> None:
    mixed(play)
    assert play.commit_as("x", 3, partitions(0), v=8) == 0
    assert play.commit_as("x", 4, partitions(0), v=8) == 22
    assert play.fetch("x", 4)["error"] == 22


@pytest.mark.parametrize("policy", [row("CP-44", policy) for policy in MigrationPolicy])
def test_an_empty_group_changes_its_protocol_under_every_policy(policy: MigrationPolicy) -> None:
    play = playing(policy)
    join(play, "x")
    play.play({"do": "leave", "members": [["x", None]]})
    play.commit_as("", -1, partitions(0))
    assert play.join("a", "t") == ok(2, partitions(*ALL))
    play.poll("a", -1)
    assert join(play, "x")["generation"] == 1
    assert play.fetch(None, -1)["offsets"] == [["t", 0]]


@scenario("CP-45")
def test_joins_are_refused_where_migration_is_disabled_also_those_of_members() -> None:
    play = playing()
    mixed(play)
    disabled = play.config.consumer._replace(migration_policy=MigrationPolicy.DISABLED)
    play.shard.consumers.config = disabled
    assert (join(play, "z")["error"], rejoin(play, "x")["error"]) == (23, 23)
    assert beat(play, "x", 3) == 0


def test_a_full_group_refuses_newcomers_of_the_classic_protocol() -> None:
    play = playing(max_size=2)
    mixed(play)
    assert (join(play, "z")["error"], rejoin(play, "z")["error"], join(play, "z", instance="iz", v=9)["error"]) == (81, 81, 81)
    assert rejoin(play, "x", owned=play.shown("x")["assigned"])["error"] == 0


def test_a_join_that_brings_more_than_a_member_may_keep_is_refused(play: Play) -> None:
    mixed(play)
    play.shard._out.config = play.shard._out.config._replace(group_member_metadata_max_bytes=600)
    refused: list[Sequence[object]] = []
    play.shard._out._limit_sink = lambda *limit: refused.append(limit)
    assert join(play, "z", "t" * 249, "u" * 249)["error"] == 81
    assert refused[0][0] == "group.member.metadata.max.bytes"


@pytest.mark.parametrize("silent", [False, True])
def test_a_member_that_is_told_to_rejoin_by_its_sync_has_its_time_for_it(play: Play, silent: bool) -> None:
    mixed(play)
    had = play.shown("x")["assigned"]
    assert rejoin(play, "x", owned=had, timeout=2_000)["error"] == 0
    play.join("z", "t")
    assert sync(play, "x", 3) == error(27)
    assert rejoin(play, "x", owned=had, timeout=2_000)["error"] == 0
    assert sync(play, "x", 3)["error"] == 0  # it is told what to give up
    assert beat(play, "x", 3) == 27
    if not silent:
        assert rejoin(play, "x", timeout=2_000) == joined("x", 4)
        assert sync(play, "x", 4)["error"] == 0
    play.wait(2_100)
    assert ("x" in play.look()["members"]) is not silent


def test_changes_that_do_not_fit_into_a_batch_are_not_made(play: Play) -> None:
    mixed(play)
    play.shard._out.config = play.shard._out.config._replace(batch_bytes_max=450)
    leaves(play)
    assert play.epochs_shown == ("Assigning", 4, 3)  # the target of x lags
    assert play.shard.kept.bytes == play.group.kept_bytes
    other = playing()
    classic_group(other)
    other.shard._out.config = other.shard._out.config._replace(batch_bytes_max=600)
    assert other.join("a", "t") == error(69)


def test_members_of_a_downgraded_group_have_their_own_sessions(play: Play) -> None:
    mixed(play)
    leaves(play)
    rejoin(play, "x")
    assert sync(play, "x", 4)["error"] == 0
    assert play.play({"do": "delete_offsets", "partitions": {"t": [0]}})["codes"] == [86]  # the topics that it reads are known
    play.wait(60_100)
    assert play.look()["listed"][2] == "Empty"


def test_a_downgraded_group_whose_members_are_silent_ends(play: Play) -> None:
    play.join("y", "t", instance="iy")
    join(play, "z", instance="iy", v=9, session=5_000)
    play.wait(5_100)
    assert play.look()["classic"]["state"] != "Stable"


def test_a_join_with_the_same_protocol_twice_is_refused(play: Play) -> None:
    mixed(play)
    assert rejoin(play, "w", protocols=["range", "range"])["error"] == 23


def test_the_memory_of_all_groups_bounds_newcomers_and_not_members(play: Play) -> None:
    mixed(play)
    play.shard._out.config = play.shard._out.config._replace(groups_metadata_max_bytes=play.shard.kept.bytes + 100)
    assert rejoin(play, "w")["error"] == 81
    assert rejoin(play, "x", owned=play.shown("x")["assigned"])["error"] == 0


def test_the_offsets_stay_through_both_changes(play: Play) -> None:
    classic_group(play)
    assert play.play({"do": "commit", "member": "x", "epoch": 2, "partitions": {"t": [0]}, "v": 8}) == error(0)
    play.join("a", "t")
    assert play.fetch(None, -1)["offsets"] == [["t", 0]]
    play.poll("a", -1)
    assert play.look()["listed"][0] == "classic"
    assert play.fetch(None, -1)["offsets"] == [["t", 0]]
    assert (group_key(GROUP), None) in play.log
