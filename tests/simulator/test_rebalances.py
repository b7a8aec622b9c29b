"""The promises about rebalances and expiring offsets: each with an event that breaks it, on real groups of a coordinator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.calls import JoinReply
from coordinator.classic.group import Group
from coordinator.classic.member import Member, PendingMember
from coordinator.committed import TopicOffsets
from coordinator.facts import expiring_offset_value, offset_key_prefix
from coordinator.notes import Cause
from coordinator.states import COMPLETING, EMPTY, PREPARING, STABLE
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse, JoinGroupResponseMember
from simulator.expiry import Expiry
from simulator.rebalances import Rebalances, check_subscription
from simulator.world import Broken

pytestmark = pytest.mark.once
SIZE_MAX = 3
TIMEOUT_MS = 10_000
DELAY_MS = 3_000
RETENTION_MS = 1_000


class Waiter:
    """The JoinGroup of a member."""

    member_id = ""
    reply: JoinReply | None = None

    def release(self) -> None: ...

    def fail(self, error: int) -> None: ...


def member(id: str, instance: str | None = None, new: bool = False) -> Member:
    return Member("g", id, instance, "client", "host", 10_000, 6_000, (("range", b""),), is_new=new)


def rebalancing(*ids: str) -> Group:
    """A group in a join phase from 5 to 100: these members wait with a JoinGroup, and one more member has not rejoined."""
    group = Group("g", 5, 5)
    group.state, group.phase_start_ms, group.deadline = PREPARING, 5, 100
    for id in ids:
        static = member(id)
        static.join_waiter = Waiter()
        group.add(static)
    group.add(member("late"))
    return group


def stable(*seats: tuple[str, str | None]) -> Group:
    group = Group("g", 5, 5)
    group.state, group.generation, group.protocol_name = STABLE, 4, "range"
    for id, instance in seats:
        group.add(member(id, instance))
    return group


def listing(generation: int, *members: tuple[str, str | None], metadata: bytes = b"") -> JoinGroupResponse:
    return JoinGroupResponse(generation_id=generation, members=[JoinGroupResponseMember(id, instance, metadata) for id, instance in members])


@pytest.fixture
def rebalances() -> Rebalances:
    return Rebalances(SIZE_MAX, {"g": TIMEOUT_MS}, DELAY_MS)


def deadline_moves(rebalances: Rebalances) -> None:
    group = rebalancing("a")
    rebalances.check(group, 0)
    group.add(member("b"))
    rebalances.check(group, 1)
    group.deadline = 101
    rebalances.check(group, 2)


def first_rebalance_goes_on(rebalances: Rebalances) -> None:
    group = rebalancing("a")
    group.rebalance_is_initial, group.delay_remaining_ms = True, 3_000
    rebalances.check(group, 0)
    group.deadline, group.delay_remaining_ms = 200, 2_000
    rebalances.check(group, 1)
    group.deadline = 300
    rebalances.check(group, 2)


def too_many_members(rebalances: Rebalances) -> None:
    group = stable(("a", None), ("b", None), ("c", None), ("d", "i"))
    group.laggards = ["d"]
    rebalances.check(group, 0)
    group.laggards = []
    rebalances.check(group, 1)


def laggard_in_the_generation(rebalances: Rebalances) -> None:
    group = stable(("a", None), ("d", "i"))
    group.laggards = ["d", "left"]
    rebalances.check(group, 0)
    group.laggards = ["a"]
    rebalances.check(group, 1)


def generation_with_other_seats(rebalances: Rebalances) -> None:
    group = stable(("a", None), ("b", "i"))
    rebalances.check(group, 0)
    group.remove(group.members["b"])
    group.add(member("c", "i"))
    rebalances.check(group, 1)
    group.remove(group.members["a"])
    rebalances.check(group, 2)


def leader_list_lacks_a_member(rebalances: Rebalances) -> None:
    group = stable(("a", None), ("b", "i"))
    rebalances.listed(group, listing(4, ("a", None), ("b", "i")))
    rebalances.listed(group, listing(3, ("a", None)))
    rebalances.listed(group, listing(4, ("a", None)))


def leader_list_has_another_subscription(rebalances: Rebalances) -> None:
    group = stable(("a", None), ("b", "i"))
    rebalances.listed(group, listing(4, ("a", None), ("before b", "i"), metadata=b""))
    rebalances.listed(group, listing(4, ("a", None), ("b", "i"), metadata=b"other"))


def subscription_is_not_kept(rebalances: Rebalances) -> None:
    group = stable(("a", None))
    for generation, subscription in ((4, b""), (3, b"other"), (4, b"other")):
        protocols = [JoinGroupRequestProtocol("range", subscription)]
        check_subscription(group, JoinGroupRequest("g", protocols=protocols), JoinGroupResponse(generation_id=generation, protocol_name="range", member_id="a"))


def join_phase_does_not_end(rebalances: Rebalances) -> None:
    group = rebalancing("a", "b")
    rebalances.check(group, 0)
    group.remove(group.members["late"])
    group.rebalance_is_initial = True
    rebalances.check(group, 1)
    group.rebalance_is_initial = False
    rebalances.check(group, 2)


def first_rebalance_is_not_extended(rebalances: Rebalances) -> None:
    for joined_at, member_id, ended_at, cause in (
        (2_500, "b", 6_000, Cause.JOIN_TIMEOUT),
        (3_500, "a", 6_000, Cause.JOIN_TIMEOUT),
        (3_500, "b", 4_000, Cause.EVERYONE_JOINED),
        (9_500, "b", 11_000, Cause.JOIN_TIMEOUT),
        (3_500, "b", 6_000, Cause.JOIN_TIMEOUT),
    ):
        rebalances.joined("g", "a", 1_000)
        rebalances.changed("g", EMPTY, PREPARING, Cause.NEW_MEMBER, 1_000)
        rebalances.joined("g", member_id, joined_at)
        rebalances.changed("g", PREPARING, COMPLETING, cause, ended_at)


def too_little_time_for_a_sync(rebalances: Rebalances) -> None:
    rebalances.sync_phase_ended("g", 500)
    rebalances.changed("g", PREPARING, COMPLETING, Cause.EVERYONE_JOINED, 1_000)
    rebalances.sync_phase_ended("g", 1_000 + TIMEOUT_MS)
    rebalances.sync_phase_ended("g", 999 + TIMEOUT_MS)


def heartbeat_succeeds_during_a_rebalance(rebalances: Rebalances) -> None:
    group = rebalancing("a")
    rebalances.check(group, 10)
    rebalances.heartbeat_accepted(group, 10, "Heartbeat")
    rebalances.heartbeat_accepted(group, 11, "Heartbeat")


def pending_id_not_waited_for(rebalances: Rebalances) -> None:
    group = rebalancing("a")
    group.pending_members["b"] = PendingMember("g", "b", 6_000)
    rebalances.check(group, 0)
    group.state = COMPLETING
    rebalances.ended(group, Cause.JOIN_TIMEOUT, 2, 6)
    rebalances.ended(group, Cause.EVERYONE_JOINED, 2, 6)


def member_not_waited_for(rebalances: Rebalances) -> None:
    group = rebalancing("a")
    rebalances.check(group, 0)
    group.state = COMPLETING
    group.laggards = ["b"]
    rebalances.ended(group, Cause.EVERYONE_JOINED, group.generation + 1, 6)  # the end of another rebalance, which must be ignored
    rebalances.ended(group, Cause.JOIN_TIMEOUT, group.generation, 6)
    rebalances.ended(group, Cause.EVERYONE_JOINED, group.generation, 6)


def expired_while_it_waits(rebalances: Rebalances) -> None:
    group = rebalancing("a")
    new = member("b", new=True)
    new.join_waiter = Waiter()
    group.add(new)
    rebalances.check(group, 0)
    rebalances.expired(group, "b")
    rebalances.expired(group, "a")


@pytest.mark.parametrize(
    "break_it",
    [
        deadline_moves,
        first_rebalance_goes_on,
        too_many_members,
        laggard_in_the_generation,
        generation_with_other_seats,
        leader_list_lacks_a_member,
        leader_list_has_another_subscription,
        subscription_is_not_kept,
        join_phase_does_not_end,
        first_rebalance_is_not_extended,
        too_little_time_for_a_sync,
        heartbeat_succeeds_during_a_rebalance,
        pending_id_not_waited_for,
        member_not_waited_for,
        expired_while_it_waits,
    ],
)
def test_a_rebalance_that_breaks_a_promise_is_noticed(rebalances: Rebalances, break_it: Callable[[Rebalances], None]) -> None:
    with pytest.raises(Broken):
        break_it(rebalances)


def test_the_join_phase_before_need_not_have_waited_for_an_id_of_this_one(rebalances: Rebalances) -> None:
    group = rebalancing("a")
    group.pending_members["b"] = PendingMember("g", "b", 6_000)
    rebalances.check(group, 0)
    rebalances.ended(group, Cause.EVERYONE_JOINED, 2, 5)


def with_offset(group: Group, commit_ms: int) -> Group:
    topic = TopicOffsets(offset_key_prefix("g", "t"))
    topic.values[0] = expiring_offset_value(1, b"", commit_ms, -1)
    group.offsets = {"t": topic}
    return group


def test_an_offset_of_a_topic_that_members_consume_stays() -> None:
    expiry = Expiry(RETENTION_MS, True)
    group = with_offset(stable(("a", None)), 0)
    group.protocol_type = "consumer"
    expiry.check(0, {"g": group}, 10_000)
    group.offsets = {}
    with pytest.raises(Broken, match="consume the topic"):
        expiry.check(0, {"g": group}, 10_000)


@pytest.mark.parametrize("group_goes_too", [False, True])
def test_an_offset_of_an_empty_group_stays_for_the_retention_time_after_the_last_member(group_goes_too: bool) -> None:
    for wall, is_kept in ((5_000 + RETENTION_MS, False), (4_999 + RETENTION_MS, True)):
        group = with_offset(Group("g", 5_000, 5_000), 0)
        group.state, group.protocol_type = EMPTY, "consumer"
        expiry = Expiry(RETENTION_MS, False)
        expiry.check(0, {"g": group}, wall)
        group.offsets = {}
        after = {} if group_goes_too else {"g": group}
        if is_kept:
            with pytest.raises(Broken, match="after the group became empty"):
                expiry.check(0, after, wall)
        else:
            expiry.check(0, after, wall)
