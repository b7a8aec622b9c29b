"""kill -9 in every phase of a rebalance, and an orderly stop: the replies of the next broker to the members."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lasting import (
    Actor,
    LastingBroker,
    assignment_of,
    await_loaded,
    await_members,
    await_state,
    create_topic,
    described,
    fetch_code,
    gather,
    list_code,
    settle,
    stored_offsets,
)
from tests.support.many_offsets import TOPIC, write_offsets
from tests.support.phases import PHASES, Initial, Phase

pytestmark = pytest.mark.once  # leaves files of killed brokers


@pytest.fixture
def lasting(tmp_path: Path) -> Iterator[LastingBroker]:
    with LastingBroker(tmp_path / "data") as started:
        yield started


@pytest.fixture(params=["always", "interval"])
def flush(request: pytest.FixtureRequest) -> str:
    return f"offsets.flush={request.param}"


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
def test_a_kill_in_each_phase_has_only_the_documented_effects(phase: type[Phase], tmp_path: Path) -> None:
    # Of the two policies that survive a kill, the weaker; the soak has both.
    flush = "offsets.flush=interval"
    delay_ms = (3000, 300) if phase is Initial else (0, 0)
    lasting = LastingBroker(tmp_path / "data")
    try:
        lasting.start(flush, f"group.initial.rebalance.delay.ms={delay_ms[0]}")
        played = phase(lasting.port)
        played.begin()
        lasting.kill()
        played.reconnect()
        lasting.start(flush, f"group.initial.rebalance.delay.ms={delay_ms[1]}")
        played.end()
        played.close()
    finally:
        lasting.__exit__()


def test_a_member_has_a_full_session_to_return_after_any_downtime(lasting: LastingBroker) -> None:
    member, absent = Actor(lasting.port, "g", "a", session_ms=1000), Actor(lasting.port, "g", "b", session_ms=1000)
    settle(member, absent)
    for actor in (member, absent):
        actor.close()
    lasting.kill()
    time.sleep(1.2)
    begin = time.monotonic()
    lasting.start()
    assert member.beat() == 0
    while member.beat() == 0:
        assert time.monotonic() - begin < 10
        time.sleep(0.02)
    # A member that does not return is removed after its session, and not before.
    assert time.monotonic() - begin >= 1.0
    assert [member.group_instance_id for member in described(lasting.port, "g").members] == ["a"]
    member.close()


def test_members_that_continue_after_a_kill_do_not_rebalance(lasting: LastingBroker, flush: str) -> None:
    create_topic(lasting.port, "orders")
    members = [Actor(lasting.port, "g", "a"), Actor(lasting.port, "g", "b"), Actor(lasting.port, "g"), Actor(lasting.port, "g")]
    settle(*members)
    for number in range(2):
        assert [member.commit("orders", 0, number) for member in members] == [0] * 4
        for member in members:
            member.close()
        before = described(lasting.port, "g")
        lasting.kill()
        lasting.start(flush)
        assert stored_offsets(lasting.port, "g") == {("orders", 0): (number, "")}
        assert [member.beat() for member in members] == [0] * 4
        assert described(lasting.port, "g") == before
        assert [member.sync().assignment for member in members] == [assignment_of(member) for member in members]
    for member in members:
        member.close()


def test_sigterm_changes_no_group(lasting: LastingBroker) -> None:
    settled, alone = Actor(lasting.port, "settled", "a"), Actor(lasting.port, "settled")
    settle(settled, alone)
    former = Actor(lasting.port, "empty")
    settle(former)
    assert former.leave() == 0
    before = [described(lasting.port, group) for group in ("settled", "empty")]
    lasting.stop()
    for actor in (settled, alone, former):
        actor.close()
    lasting.start()
    assert [described(lasting.port, group) for group in ("settled", "empty")] == before
    assert (settled.beat(), alone.beat()) == (0, 0)
    for actor in (settled, alone):
        actor.close()


def test_members_parked_at_sigterm_get_not_coordinator(lasting: LastingBroker) -> None:
    first, second = Actor(lasting.port, "joining", "a"), Actor(lasting.port, "joining", "b")
    settle(first)
    second.say_join()
    await_members(lasting.port, "joining", 2)
    leader, member = Actor(lasting.port, "syncing", "a"), Actor(lasting.port, "syncing", "b")
    gather(leader, member)
    member.say_sync()
    assert leader.beat() == 0
    lasting.stop()
    reply = second.hear()
    assert (reply.error_code, reply.generation_id, bool(reply.member_id)) == (16, -1, True)
    assert member.hear().error_code == 16
    for actor in (first, second, leader, member):
        actor.close()
    lasting.start()
    assert first.beat() == 0
    assert second.join(reply.member_id).error_code == 25
    # A generation without assignments is forgotten: the group is as before it, without members.
    assert described(lasting.port, "syncing").group_state == "Empty"
    await_state(lasting.port, "joining", "Stable")
    for actor in (first, second):
        actor.close()


def test_requests_during_a_long_load_get_retriable_errors(tmp_path: Path) -> None:
    with LastingBroker(tmp_path / "data", "offsets.topic.num.partitions=1") as before:
        create_topic(before.port, TOPIC)
        before.kill()
    # One partition, so that every requested group is still loading.
    groups = list(write_offsets(tmp_path / "data", 2_000, 100, 10, 1))
    lasting = LastingBroker(tmp_path / "data", "offsets.topic.num.partitions=1", "offsets.retention.minutes=2147483647")
    try:
        lasting.start(loaded=False)
        actor = Actor(lasting.port, groups[0], "a")
        actor.member_id, actor.generation = "a-1", 1
        # As Kafka answers, except SyncGroup, whose 14 would end a Java consumer.
        while_loading = [
            described(lasting.port, groups[0]).error_code,
            actor.join().error_code,
            actor.sync().error_code,
            actor.beat(),
            actor.leave(),
            actor.commit(TOPIC, 0, 1),
            fetch_code(lasting.port, groups[0]),
            list_code(lasting.port),
        ]
        assert while_loading == [14, 14, 27, 0, 14, 14, 14, 14]
        await_loaded(lasting.port)
        assert actor.join().error_code == 25
        assert len(stored_offsets(lasting.port, groups[-1])) == 100
        actor.close()
    finally:
        lasting.__exit__()
