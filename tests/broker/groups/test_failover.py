"""kill -9 in every phase of a rebalance, and an orderly stop: the replies of the next broker to the members."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.many_offsets import TOPIC, write_offsets
from tests.support.phases import PHASES, Initial, Phase
from tests.support.restartable import (
    Actor,
    RestartableBroker,
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

pytestmark = pytest.mark.once  # does not depend on the Python version, and leaves files of killed brokers


@pytest.fixture
def restartable(tmp_path: Path) -> Iterator[RestartableBroker]:
    with RestartableBroker(tmp_path / "data") as started:
        yield started


@pytest.fixture(params=["always", "interval"])
def flush(request: pytest.FixtureRequest) -> str:
    return f"offsets.flush={request.param}"


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
def test_a_kill_in_each_phase_has_only_the_documented_effects(phase: type[Phase], tmp_path: Path) -> None:
    # The weaker one of `always` and `interval`; the soak test uses both.
    flush = "offsets.flush=interval"
    delay_ms = (3000, 300) if phase is Initial else (0, 0)
    restartable = RestartableBroker(tmp_path / "data")
    try:
        restartable.start(flush, f"group.initial.rebalance.delay.ms={delay_ms[0]}")
        played = phase(restartable.port)
        played.begin()
        restartable.kill()
        played.reconnect()
        restartable.start(flush, f"group.initial.rebalance.delay.ms={delay_ms[1]}")
        played.end()
        played.close()
    finally:
        restartable.__exit__()


def test_a_member_has_a_full_session_to_return_after_any_downtime(restartable: RestartableBroker) -> None:
    member, absent = Actor(restartable.port, "g", "a", session_ms=1000), Actor(restartable.port, "g", "b", session_ms=1000)
    settle(member, absent)
    for actor in (member, absent):
        actor.close()
    restartable.kill()
    time.sleep(1.2)
    begin = time.monotonic()
    restartable.start()
    assert member.heartbeat() == 0
    while member.heartbeat() == 0:
        assert time.monotonic() - begin < 10
        time.sleep(0.02)
    # A member that does not return is removed after its session, and not before.
    assert time.monotonic() - begin >= 1.0
    assert [member.group_instance_id for member in described(restartable.port, "g").members] == ["a"]
    member.close()


def test_members_that_continue_after_a_kill_do_not_rebalance(restartable: RestartableBroker, flush: str) -> None:
    create_topic(restartable.port, "orders")
    members = [Actor(restartable.port, "g", "a"), Actor(restartable.port, "g", "b"), Actor(restartable.port, "g"), Actor(restartable.port, "g")]
    settle(*members)
    for number in range(2):
        assert [member.commit("orders", 0, number) for member in members] == [0] * 4
        for member in members:
            member.close()
        before = described(restartable.port, "g")
        restartable.kill()
        restartable.start(flush)
        assert stored_offsets(restartable.port, "g") == {("orders", 0): (number, "")}
        assert [member.heartbeat() for member in members] == [0] * 4
        assert described(restartable.port, "g") == before
        assert [member.sync().assignment for member in members] == [assignment_of(member) for member in members]
    for member in members:
        member.close()


def test_sigterm_changes_no_group(restartable: RestartableBroker) -> None:
    settled, alone = Actor(restartable.port, "settled", "a"), Actor(restartable.port, "settled")
    settle(settled, alone)
    former = Actor(restartable.port, "empty")
    settle(former)
    assert former.leave() == 0
    before = [described(restartable.port, group) for group in ("settled", "empty")]
    restartable.stop()
    for actor in (settled, alone, former):
        actor.close()
    restartable.start()
    assert [described(restartable.port, group) for group in ("settled", "empty")] == before
    assert (settled.heartbeat(), alone.heartbeat()) == (0, 0)
    for actor in (settled, alone):
        actor.close()


def test_members_parked_at_sigterm_get_not_coordinator(restartable: RestartableBroker) -> None:
    first, second = Actor(restartable.port, "joining", "a"), Actor(restartable.port, "joining", "b")
    settle(first)
    second.send_join()
    await_members(restartable.port, "joining", 2)
    leader, member = Actor(restartable.port, "syncing", "a"), Actor(restartable.port, "syncing", "b")
    gather(leader, member)
    member.send_sync()
    assert leader.heartbeat() == 0
    restartable.stop()
    reply = second.receive()
    assert (reply.error_code, reply.generation_id, bool(reply.member_id)) == (16, -1, True)
    assert member.receive().error_code == 16
    for actor in (first, second, leader, member):
        actor.close()
    restartable.start()
    assert first.heartbeat() == 0
    assert second.join(reply.member_id).error_code == 25
    # A generation without assignments is not stored: the group is Empty, as before that generation.
    assert described(restartable.port, "syncing").group_state == "Empty"
    await_state(restartable.port, "joining", "Stable")
    for actor in (first, second):
        actor.close()


def test_requests_during_a_long_load_get_retriable_errors(tmp_path: Path) -> None:
    with RestartableBroker(tmp_path / "data", "offsets.topic.num.partitions=1") as before:
        create_topic(before.port, TOPIC)
        before.kill()
    # One partition, so that every requested group is still loading.
    groups = list(write_offsets(tmp_path / "data", 2_000, 100, 10, 1))
    restartable = RestartableBroker(tmp_path / "data", "offsets.topic.num.partitions=1", "offsets.retention.minutes=2147483647")
    try:
        restartable.start(loaded=False)
        actor = Actor(restartable.port, groups[0], "a")
        actor.member_id, actor.generation = "a-1", 1
        # The replies are Kafka's, except that of SyncGroup: 14 would end a Java consumer.
        while_loading = [
            described(restartable.port, groups[0]).error_code,
            actor.join().error_code,
            actor.sync().error_code,
            actor.heartbeat(),
            actor.leave(),
            actor.commit(TOPIC, 0, 1),
            fetch_code(restartable.port, groups[0]),
            list_code(restartable.port),
        ]
        assert while_loading == [14, 14, 27, 0, 14, 14, 14, 14]
        await_loaded(restartable.port)
        assert actor.join().error_code == 25
        assert len(stored_offsets(restartable.port, groups[-1])) == 100
        actor.close()
    finally:
        restartable.__exit__()
