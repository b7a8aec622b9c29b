"""Setting policies: stored, replayed, and without effect on a group that has none."""

from __future__ import annotations

import pytest

from coordinator import GroupConfig, Shard
from coordinator.notes import Cause
from coordinator.policies.declaration import NO_POLICIES
from coordinator.policies.door import resolve
from coordinator.policies.subscription_change import SUBSCRIPTION_CHANGE
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import T0_T1, Play, subscription

CHANGE = {"subscription.change": "rebalance"}


def shard_of(play: Play) -> Shard:
    assert play.shard is not None
    return play.shard


def test_policies_are_replayed_with_and_without_their_group(play: Play) -> None:
    play.one_static()
    assert not play.set_policies(CHANGE)
    assert not play.set_policies(CHANGE, group="later")
    play.expect_records("policies", "policies")
    play.failover()
    for group in ("g", "later"):
        assert shard_of(play).policies.texts(group) == CHANGE
        assert shard_of(play).policies.of(group) == resolve(CHANGE)
    assert play.group().policies is not None
    play.group_is_absent("later")


def test_the_same_policies_again_write_nothing(play: Play) -> None:
    play.one_static()
    play.set_policies(CHANGE)
    play.set_policies(CHANGE)
    play.expect_records("policies")


def test_the_last_policy_leaves_a_tombstone(play: Play) -> None:
    play.set_policies(CHANGE)
    assert not play.set_policies({})
    _, last = play.expect_records("policies", "policies")
    assert last.value is None
    play.failover()
    assert shard_of(play).policies.of("g") == NO_POLICIES
    assert not shard_of(play).policies.group_ids()


def test_a_refused_set_changes_nothing(play: Play) -> None:
    play.set_policies(CHANGE)
    play.expect_records("policies")
    assert len(play.set_policies({"subscription.change": "no", "nonsense": "1"})) == 2
    play.expect_records()
    assert shard_of(play).policies.texts("g") == CHANGE


def test_policies_survive_the_deletion_of_their_group(play: Play) -> None:
    play.set_policies(CHANGE)
    play.one_static()
    play.leave("a").expect()
    play.delete().expect()
    play.failover()
    play.group_is_absent()
    assert SUBSCRIPTION_CHANGE.of(shard_of(play).policies.of("g"))


def test_defaults_apply_to_groups_without_values_of_their_own(play: Play) -> None:
    play.configure(default_policies=resolve(CHANGE))
    play.one_static()
    policies = play.group().policies
    assert policies is not None
    assert SUBSCRIPTION_CHANGE.of(policies.values)
    play.set_policies({"subscription.change": "none"})
    assert not SUBSCRIPTION_CHANGE.of(policies.values)


def test_a_group_without_policies_has_no_state_of_policies() -> None:
    shard = Shard(GroupConfig(), lambda: "id")
    assert shard.policies.of("g") == NO_POLICIES


# subscription.change


def test_by_default_a_returning_member_with_other_topics_causes_no_rebalance(play: Play) -> None:
    play.two_static()
    play.join("b'", metadata=T0_T1).expect(generation=1)
    play.group_is(State.STABLE, generation=1)


def test_a_returning_member_with_other_topics_causes_a_rebalance(play: Play) -> None:
    play.two_static()
    play.set_policies(CHANGE)
    play.join("b'", metadata=T0_T1).expect_parked()
    play.group_is(State.PREPARING)
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.STATIC_PROTOCOL_CHANGED, to_state=State.PREPARING)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (subscription("a", "b"), subscription("b", "a")),
        (subscription("a"), subscription("a")[:-4] + b"\0\0\0\4mine"),  # the user data of cooperative-sticky
        (subscription("a"), b"?"),
        (b"?", subscription("a")),
    ],
)
def test_only_the_sets_of_topics_are_compared(play: Play, before: bytes, after: bytes) -> None:
    play.two_static(metadata=before)
    play.set_policies(CHANGE)
    play.join("b'", metadata=after).expect(generation=1)


# rebalance.request


def test_a_request_makes_all_members_rejoin_once(play: Play) -> None:
    play.two_static()
    assert not play.set_policies({"rebalance.request": "new rack"}, "new rack")
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.REQUESTED, text="new rack")
    play.heartbeat("a", 1).expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.join("b").expect_parked()
    play.join("a").expect(generation=2, members=["a", "b"])
    play.sync("a", {"a": 1, "b": 2}).expect(assignment=1)
    play.sync("b").expect(assignment=2)
    play.set_policies({"rebalance.request": "new rack"}, "new rack")
    play.group_is(State.PREPARING, generation=2)


def test_a_request_supersedes_a_rebalance_that_awaits_assignments(play: Play) -> None:
    waiting = play.follower_awaits_assignment()
    play.set_policies({"rebalance.request": "x"}, "x")
    waiting.expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.group_is(State.PREPARING)


def test_a_request_does_not_act_again_after_a_failover(play: Play) -> None:
    play.two_static()
    play.set_policies({"rebalance.request": "x"}, "x")
    play.failover()
    play.group_is(State.STABLE, generation=1)
    play.keep_alive("a", "b").after(60_000)
    play.group_is(State.STABLE, generation=1)


def test_another_policy_that_is_set_does_not_repeat_the_request(play: Play) -> None:
    play.two_static()
    play.set_policies({"rebalance.request": "x", **CHANGE})
    play.group_is(State.STABLE, generation=1)


def test_a_rebalance_request_for_a_group_without_members_is_only_stored(play: Play) -> None:
    assert not play.set_policies({"rebalance.request": "x"}, "x")
    assert shard_of(play).policies.texts("g") == {"rebalance.request": "x"}
    assert play.set_policies({"rebalance.request": ""}, "")
