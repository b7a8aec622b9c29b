"""Groups of real clients, each kind by itself: static members restart without a rebalance, and members that do not return."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tests.clients.each import kafka
from tests.clients.members import AIOKAFKA, CONFLUENT, JAVA_CLIENT, KINDS, ClientKind, Member
from tests.clients.membership import Group
from tests.running import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

SHORT_MS = 3_000  # a session that members on a busy machine can keep


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> ClientKind:
    kind: ClientKind = request.param
    return kind


def start_settled_members(group: Group, kind: ClientKind, count: int, **settings: Any) -> list[Member]:
    """Start static members, and wait until the group has settled."""
    members = [group.start(kind, f"seat-{number}", **settings) for number in range(count)]
    group.await_settled(*members)
    return members


def test_static_members_restart_one_after_the_other_without_a_rebalance_and_without_a_message_lost_or_seen_twice(kind: ClientKind, group: Group) -> None:
    members = start_settled_members(group, kind, 3)
    story, generation = group.state_changes(), group.generation()
    group.feed.begin()
    for number, member in enumerate(members):
        member.await_progress()
        partitions = set(member.partitions)
        member.close()
        members[number] = group.start(kind, f"seat-{number}")
        members[number].await_progress()
        assert members[number].partitions == partitions
    group.feed.end()
    group.await_consumed()
    assert group.state_changes() == story
    assert group.generation() == generation
    assert (group.lost(), group.seen_twice(), group.disturbances()) == (set(), set(), {})


def test_a_static_member_that_is_killed_and_returns_costs_no_rebalance(kind: ClientKind, group: Group) -> None:
    keeper = group.start(kind, "keeper")
    victim = group.start(kind, "victim", alone=True)
    group.await_settled(keeper, victim)
    story, generation = group.state_changes(), group.generation()
    group.feed.begin()
    victim.await_progress()
    partitions = set(victim.partitions)
    victim.kill()
    returned = group.start(kind, "victim")
    returned.await_progress()
    group.feed.end()
    group.await_consumed()
    assert returned.partitions == partitions
    assert (group.state_changes(), group.generation()) == (story, generation)
    assert (group.lost(), group.seen_twice_without_need(), group.disturbances()) == (set(), set(), {})


def test_of_two_processes_with_one_instance_id_the_newer_keeps_the_seat(kind: ClientKind, group: Group) -> None:
    second_member, first = start_settled_members(group, kind, 2)
    story, generation = group.state_changes(), group.generation()
    partitions = set(first.partitions)
    group.feed.begin()
    first.await_progress()
    contested = len(first.events)
    second = group.start(kind, first.instance)
    if kind.fenced is None:
        # The two processes fence each other until one gets the error as the reply to SyncGroup, and ends. The other members do not notice.
        first.await_event(lambda event: event["event"] in ("commit_refused", "revoked", "error"), contested)
        first.close()
        second.close()
        second = group.start(kind, first.instance)
    else:
        # A commit may be refused before the client reports that it was fenced.
        pattern = kind.fenced
        first.await_event(lambda event: event["event"] in ("error", "commit_refused") and bool(re.fullmatch(pattern, event["name"])))
    second.await_progress()
    assert second.partitions == partitions
    group.feed.end()
    group.await_consumed()
    assert (group.state_changes(), group.generation()) == (story, generation)
    assert (group.lost(), group.seen_twice_without_need(), second_member.disturbances()) == (set(), set(), [])


def remove(group: Group, kind: ClientKind, *instances: str) -> None:
    """Remove members by instance id, with the client's own admin class if it has such a call."""
    if kind is JAVA_CLIENT:
        group.members[0].do("remove", bootstrap=group.bootstrap, group=group.name, instances=instances)
        group.members[0].await_event(lambda event: event["event"] == "did" and event["word"] == "remove")
        return
    admin = kafka.KafkaAdminClient(bootstrap_servers=group.bootstrap)
    try:
        leaving = [kafka.admin.MemberToRemove(group_instance_id=instance) for instance in instances]
        assert {error.errno for error in admin.remove_group_members(group.name, leaving).values()} == {0}
    finally:
        admin.close()


def test_partitions_of_a_removed_member_are_reassigned_at_once(kind: ClientKind, group: Group) -> None:
    members = start_settled_members(group, kind, 3)
    before = group.rebalances()
    members[2].close()
    assert group.describe()[0] == "Stable"
    assert len(group.describe()[1]) == 3
    assert group.rebalances() == before
    remove(group, kind, "seat-2")
    group.await_settled(*members[:2])
    assert group.rebalances() == [*before, "admin_removed"]


def test_a_removal_without_names_removes_all_members(group: Group) -> None:
    """Kafka's Admin describes the group and then removes each member."""
    members = [group.start(JAVA_CLIENT, "seat"), group.start(AIOKAFKA, "other")]
    group.await_settled(*members)
    for member in members:
        member.close()
    assert len(group.describe()[1]) == 2
    remove(group, JAVA_CLIENT)
    assert group.describe() == ("Empty", {})


def test_only_librdkafka_gives_up_a_static_seat_when_it_unsubscribes(kind: ClientKind, group: Group) -> None:
    stays, leaves = start_settled_members(group, kind, 2)
    story = group.state_changes()
    leaves.do("unsubscribe")
    if kind is CONFLUENT:
        group.await_settled(stays)
        assert group.state_changes()[len(story)]["cause"] == "member_left"
    else:
        leaves.await_event(lambda event: event["event"] == "did")
        if kind is JAVA_CLIENT:
            leaves.close()
        else:
            leaves.kill()  # aiokafka's consumer cannot be closed after it has unsubscribed
        assert len(group.describe()[1]) == 2
        assert group.state_changes() == story


def test_a_removed_running_member_rejoins_by_itself(kind: ClientKind, group: Group) -> None:
    members = start_settled_members(group, kind, 2)
    before = group.rebalances()
    group.feed.begin()
    members[1].await_progress()
    old_id = group.describe()[1][members[1].name_in_replies][0]
    remove(group, kind, "seat-1")
    wait_until(lambda: group.describe()[1].get(members[1].name_in_replies, (old_id,))[0] != old_id, 20)
    group.await_settled(*members)
    members[1].await_progress()
    group.feed.end()
    group.await_consumed()
    assert group.rebalances()[: len(before) + 1] == [*before, "admin_removed"]
    assert (group.lost(), group.seen_twice_without_need()) == (set(), set())
    assert [member.events_named("error") for member in members] == [[], []]


def test_an_absent_static_member_is_removed_exactly_after_its_session(kind: ClientKind, group: Group) -> None:
    stays, leaves = start_settled_members(group, kind, 2, session_ms=SHORT_MS)
    before = group.rebalances()
    leaves.close()
    went = time.time()
    group.await_settled(stays)
    assert group.rebalances() == [*before, "session_expired"]
    missed = next(line for line in group.state_changes() if line["cause"] == "session_expired")
    after = datetime.fromisoformat(missed["time"]).timestamp() - went
    assert SHORT_MS / 1000 - 1.5 < after < SHORT_MS / 1000 + 2  # the session counts from the last heartbeat before the kill
    returned = group.start(kind, leaves.instance, session_ms=SHORT_MS)
    group.await_settled(stays, returned)
    assert group.rebalances() == [*before, "session_expired", "new_member"]


def test_dynamic_members_join_and_leave_a_group_with_static_members(kind: ClientKind, group: Group) -> None:
    static = group.start(kind, "static")
    dynamic = group.start(kind)
    group.await_settled(static, dynamic)
    group.feed.begin()
    before = group.rebalances()
    static.await_progress()
    static.close()
    static = group.start(kind, "static")
    static.await_progress()
    assert group.rebalances() == before
    assert dynamic.disturbances() == []
    dynamic.close()  # sends LeaveGroup, unlike a static member
    group.await_settled(static)
    assert group.rebalances() == [*before, "member_left"]
    newcomer = group.start(kind)
    group.await_settled(static, newcomer)
    newcomer.await_progress()
    group.feed.end()
    group.await_consumed()
    assert (group.lost(), group.seen_twice()) == (set(), set())


def test_a_session_shorter_than_the_broker_allows_is_an_error_of_the_client(kind: ClientKind, make_group: Callable[..., Group]) -> None:
    group = make_group(group_min_session_timeout_ms="6000")
    hasty = group.start(kind, session_ms=2_000)
    assert re.search("INVALID_SESSION_TIMEOUT|InvalidSessionTimeout", hasty.await_error())
    assert group.describe() == ("Dead", {})


def test_a_member_that_does_not_poll_loses_its_partitions_until_it_polls_again(kind: ClientKind, group: Group) -> None:
    busy = group.start(kind, session_ms=2_000, poll_interval_ms=2_000)
    patient_member = group.start(kind, session_ms=2_000, poll_interval_ms=60_000)
    group.await_settled(busy, patient_member)
    group.feed.send_some(60)
    group.await_consumed()
    before = group.rebalances()
    busy.do_and_wait("pause")
    wait_until(lambda: patient_member.partitions == group.partitions, 20, state=lambda: (patient_member, group.rebalances()))
    assert group.rebalances()[len(before) :][0] in ("member_left", "session_expired")
    busy.do("resume")
    group.await_settled(busy, patient_member)
    group.feed.send_some(60)
    group.await_consumed()
    assert (group.lost(), group.seen_twice()) == (set(), set())
