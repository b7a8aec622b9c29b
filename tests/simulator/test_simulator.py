"""The simulator itself: a seed determines a run, each promise can be broken, and the options of the command line work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from coordinator.classic.member import Member
from coordinator.facts import offset_value
from coordinator.notes import Cause, Note, Removal
from coordinator.states import State
from protocol.message import Message
from protocol.messages.coordinator_notes import MemberGone, StateChange
from protocol.messages.join_group import JoinGroupResponse
from simulator.cluster_node import ClusterNode
from simulator.cluster_plan import NODE_FAULTS, TOPICS_RECREATED, with_nodes
from simulator.cluster_run import ClusterRun, new_run
from simulator.command import main, simulate_plan
from simulator.disk import data_disk
from simulator.drawing import draw
from simulator.explain import parts_removed, reductions, with_faults
from simulator.faults import FAULTS
from simulator.owners import LOCKS, OneOwner, uses
from simulator.plan import Plan
from simulator.promises import Generations, Instances, Offsets, Sessions
from simulator.records import Records
from simulator.recreated import RecreatedTopics
from simulator.story import print_story
from simulator.world import MS, SECOND, Broken, Promise, World
from storage import LogId
from storage.owners import FREE, GONE, NO_WRITER, lock_byte_of
from tests.simulator.planted import PATCH, ROOT

pytestmark = pytest.mark.once
PARTITION = ("g", "t", 0)


def at(world: World, seconds: float) -> None:
    world.now = round(seconds * SECOND)


@pytest.fixture
def world() -> World:
    return World(1)


def test_every_planted_bug_can_still_be_planted() -> None:
    for bug in ROOT.glob("tests/*/bugs/**/*.patch"):
        tried = subprocess.run([*PATCH, "--dry-run", "-i", bug], cwd=ROOT, capture_output=True, text=True, check=False)
        assert tried.returncode == 0, (bug.name, tried.stdout)


@pytest.mark.parametrize("nodes", ["1", "3"])
def test_a_seed_has_one_trace_for_any_hash_seed(nodes: str) -> None:
    digests = set()
    for hash_seed in ("1", "12345"):
        ended = subprocess.run(
            [sys.executable, "-m", "simulator", "--seed", "3", "--quiet", "--events", "3000", "--nodes", nodes],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        digests.add(ended.stdout.splitlines()[0])
    assert len(digests) == 1
    assert digests.pop().startswith("seed 3, digest ")


def test_a_run_has_faults_and_keeps_every_promise() -> None:
    outcome = simulate_plan(replace(draw(11), safety_seconds=30, fault_rate=5.0))
    assert not outcome.broken
    assert outcome.events > 300
    assert any(name.startswith("fault") or name in ("kill -9", "power failure") for name in outcome.counts)


def test_a_wrong_command_line_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--seeds", "0"])
    assert ended.value.code == 2
    assert "above 0" in capsys.readouterr().err


def test_a_plan_can_be_made_smaller_in_each_of_its_parts() -> None:
    plan = next(plan for plan in map(draw, range(100)) if len(plan.groups) > 1 and plan.producers)
    smaller = list(reductions(plan))
    assert any(len(smaller_plan.groups) < len(plan.groups) for smaller_plan in smaller)
    assert any(not smaller_plan.producers for smaller_plan in smaller)
    assert {fault for smaller_plan in smaller for fault in set(plan.faults) - set(smaller_plan.faults)} == set(plan.faults) <= {fault.name for fault in FAULTS}


def test_only_a_removed_fault_loses_its_rate() -> None:
    plan = replace(draw(4), faults=("reset", "kill"), connection_resets=0.5, leader_dies=0.02)  # runs about policies have rates for faults that they do not have
    assert (with_faults(plan, ("reset",)).connection_resets, with_faults(plan, ("reset",)).leader_dies) == (0.5, 0.02)
    assert (with_faults(plan, ("kill",)).connection_resets, with_faults(plan, ("kill",)).leader_dies) == (0.0, 0.02)


def test_parts_are_removed_in_halves_first_and_in_the_end_one_by_one() -> None:
    assert list(parts_removed((1, 2, 3))) == [(3,), (1, 2), (2, 3), (1, 3), (1, 2)]
    assert list(parts_removed((1,))) == [()]
    assert not list(parts_removed(()))


def test_one_needed_group_of_twenty_is_found_in_a_few_runs() -> None:
    plan = replace(draw(1), faults=(), producers=0, policies=None)
    names = [group.name for group in plan.groups]
    assert len(names) == 20
    for needed in names:
        groups, tries = plan.groups, 0
        while len(groups) > 1:
            for smaller in reductions(replace(plan, groups=groups)):
                tries += 1
                assert tries <= 10
                if any(group.name == needed for group in smaller.groups):
                    groups = smaller.groups
                    break


# Each promise, with events that break it and events that do not.


def lost_commit(world: World) -> None:
    offsets = Offsets(world)
    [first], [second] = offsets.send([PARTITION]), offsets.send([PARTITION])
    at(world, 1)
    offsets.acknowledged(PARTITION, first)
    [third] = offsets.send([PARTITION])
    at(world, 2)
    offsets.acknowledged(PARTITION, third)
    offsets.read(PARTITION, third, world.now)
    offsets.read(PARTITION, second, world.now)  # allowed, as the broker may have handled the second commit after the third
    at(world, 3)
    offsets.read(PARTITION, first, world.now)


def uncommitted_offset_is_read(world: World) -> None:
    Offsets(world).read(PARTITION, 7, 0)


def refused_commit(world: World) -> None:
    offsets = Offsets(world)
    [value] = offsets.send([PARTITION])
    offsets.read(PARTITION, value, 0)
    offsets.refused(PARTITION, value)
    offsets.read(PARTITION, value, 0)


def two_members_succeed_for_one_instance(world: World) -> None:
    instances = Instances(world)
    at(world, 1)
    instances.joined("g", "i", "first", 0)
    at(world, 3)
    instances.joined("g", "i", "second", 2 * SECOND)
    instances.succeeded("g", "first", 2 * SECOND, "Heartbeat")  # allowed, as it was sent before the reply to the second
    instances.succeeded("g", "first", 4 * SECOND, "Heartbeat")


def fenced_member_succeeds(world: World) -> None:
    instances = Instances(world)
    instances.fenced("g", "i", "first")
    instances.succeeded("g", "first", SECOND, "Heartbeat")


def member_is_fenced_without_another_claim(world: World) -> None:
    instances = Instances(world)
    first = instances.claims("g", "i")
    at(world, 1)
    first(JoinGroupResponse(error_code=0, member_id="first"))
    at(world, 2)
    second = instances.claims("g", "i")
    at(world, 3)
    second(JoinGroupResponse(error_code=0, member_id="second"))
    instances.fenced("g", "i", "first")
    lost = instances.claims("g", "other")
    kept = instances.claims("g", "other")
    lost(None)  # no reply: the broker may have handled this JoinGroup after the other
    kept(JoinGroupResponse(error_code=0, member_id="kept"))
    at(world, 4)
    instances.fenced("g", "other", "kept")
    instances.fenced("g", "i", "second")


def replaced_member_gets_unknown_member_id(world: World) -> None:
    instances = Instances(world)
    at(world, 1)
    instances.joined("g", "i", "second", 0)
    instances.unknown("g", "i", "first", "second", SECOND)  # allowed, as it was sent before the reply to the second
    instances.unknown("g", "i", "first", None, 2 * SECOND)
    instances.unknown("g", "i", "first", "second", 2 * SECOND)


def assignment_is_lost(world: World) -> None:
    generations = Generations(world, lambda group: True)
    generations.assigned("g", 1, "a", "leader@1", b"1", [("t", 0)], 0)
    generations.nothing_assigned("g", 1, "b", SECOND)
    generations.nothing_assigned("g", 1, "a", SECOND)


def two_sets_of_seats(world: World) -> None:
    generations = Generations(world, lambda group: True)
    generations.assigned("g", 1, "a", "leader@1", b"1", [], 0)
    generations.assigned("g", 1, "b", "leader@2", b"2", [], 0)


def two_owners(world: World) -> None:
    generations = Generations(world, lambda group: True)
    generations.assigned("g", 1, "a", "leader@1", b"1", [("t", 0)], 0)
    generations.assigned("g", 1, "b", "leader@1", b"2", [("t", 0)], 0)


def generation_goes_back(world: World) -> None:
    generations = Generations(world, lambda group: True)
    generations.assigned("g", 2, "a", "leader@1", b"1", [], 0)
    at(world, 1)
    generations.assigned("g", 1, "a", "leader@2", b"1", [], world.now)


def early_expiry(world: World) -> None:
    sessions = Sessions(world)
    sessions.renewed("g", "a", SECOND, 10 * SECOND, "Heartbeat")
    sessions.expired("g", "b", 2 * SECOND)
    sessions.expired("g", "a", 10 * SECOND)


def early_expiry_after_an_assignment(world: World) -> None:
    sessions = Sessions(world)
    sessions.renewed("g", "a", 0, 10 * SECOND, "Heartbeat")
    at(world, 5)
    sessions.sync_is_parked("g", "a", 5, "this node", 10 * SECOND)
    at(world, 6)
    sessions.synced("g", "a", 5, "this node")
    sessions.expired("g", "a", 11 * SECOND)


def removed_after_its_sync(world: World) -> None:
    sessions = Sessions(world)
    sessions.synced("g", "a", 5, "this node")
    sessions.removed_without_sync("g", "a", 5, "a node with an older log")
    sessions.removed_without_sync("g", "a", 6, "this node")
    sessions.removed_without_sync("g", "b", 5, "this node")
    sessions.removed_without_sync("g", "a", 5, "this node")


def lost_record(world: World) -> None:
    records = Records(world)
    records.acknowledged(("t", 0), 5, [b"value"], world.now)
    records.skipped(("t", 0), 0, 5, SECOND)
    records.skipped(("t", 0), 5, 6, SECOND)


def changed_record(world: World) -> None:
    records = Records(world)
    records.acknowledged(("t", 0), 5, [b"value"], world.now)
    records.read(("t", 0), 5, b"value")
    records.read(("t", 0), 5, b"another")


def record_deleted_early(world: World) -> None:
    records = Records(world, (), 10 * SECOND)
    records.acknowledged(("t", 0), 5, [b"value"], world.now)
    at(world, 11)
    records.acknowledged(("t", 0), 6, [b"newer"], world.now)
    records.check_and_forget_before(("t", 0), 6)
    at(world, 20)
    records.check_and_forget_before(("t", 0), 7)


def record_deleted_though_it_fits(world: World) -> None:
    records = Records(world, (), 10 * SECOND, retention_bytes=150)
    for offset in range(4):
        records.acknowledged(("t", 0), offset, [b"value"], world.now)
    records.check_and_forget_before(("t", 0), 2)  # allowed: the two remaining batches of 76 bytes still exceed the retention of 150 bytes
    records.check_and_forget_before(("t", 0), 3)


def deleted_record_returns(world: World) -> None:
    records = Records(world)
    records.acknowledged(("t", 0), 0, [b"first", b"second", b"third"], world.now)
    deleted = records.delete_before(("t", 0), 2)
    records.check_log_start(("t", 0), 0, world.now)
    deleted(2)
    records.check_log_start(("t", 0), 0, world.now)  # allowed, as the request was sent before the reply to the deletion
    records.check_and_forget_before(("t", 0), 2)
    records.lost_since(0)
    at(world, 1)
    records.check_log_start(("t", 0), 1, world.now)


def record_deleted_beyond_the_request(world: World) -> None:
    records = Records(world, (), 10 * SECOND)
    records.acknowledged(("t", 0), 0, [b"first", b"second", b"third"], world.now)
    records.delete_before(("t", 0), -1)(1)
    records.check_and_forget_before(("t", 0), 1)
    records.check_and_forget_before(("t", 0), 2)


def record_acknowledged_among_deleted_ones(world: World) -> None:
    records = Records(world)
    records.delete_before(("t", 0), 5)(5)
    records.acknowledged(("t", 0), 3, [b"sent before"], world.now)
    at(world, 1)
    records.acknowledged(("t", 0), 4, [b"sent later"], world.now)


def fewer_records_deleted_than_requested(world: World) -> None:
    Records(world).delete_before(("t", 0), 5)(4)


def old_generation_succeeds(world: World) -> None:
    generations = Generations(world, lambda group: True)
    generations.assigned("g", 2, "a", "leader@1", b"1", [], 0)
    generations.succeeded("g", 1, 0, "Heartbeat")  # allowed, as it was sent before the new generation was assigned
    at(world, 1)
    generations.succeeded("g", 2, world.now, "Heartbeat")
    generations.succeeded("g", 1, world.now, "Heartbeat")


def record_twice(world: World) -> None:
    records = Records(world)
    records.sent(("t", 0), [b"value"])
    records.acknowledged(("t", 0), 5, [b"value"], world.now)
    records.read(("t", 0), 6, b"value")


@pytest.mark.parametrize(
    "break_it",
    [
        lost_commit,
        uncommitted_offset_is_read,
        refused_commit,
        two_members_succeed_for_one_instance,
        fenced_member_succeeds,
        member_is_fenced_without_another_claim,
        replaced_member_gets_unknown_member_id,
        assignment_is_lost,
        two_sets_of_seats,
        two_owners,
        generation_goes_back,
        early_expiry,
        early_expiry_after_an_assignment,
        removed_after_its_sync,
        lost_record,
        changed_record,
        record_twice,
        record_deleted_early,
        record_deleted_though_it_fits,
        deleted_record_returns,
        record_deleted_beyond_the_request,
        record_acknowledged_among_deleted_ones,
        fewer_records_deleted_than_requested,
        old_generation_succeeds,
    ],
)
def test_a_broken_promise_is_noticed(world: World, break_it: Callable[[World], None]) -> None:
    with pytest.raises(Broken):
        break_it(world)


def test_a_stalled_claim_is_remembered_however_many_follow(world: World) -> None:
    instances = Instances(world)
    stalled = instances.claims("g", "i")
    for second in range(1, 200):
        at(world, second)
        latest = instances.claims("g", "i")
        latest(JoinGroupResponse(error_code=0, member_id=f"member {second}"))
    at(world, 200)
    stalled(None)  # no reply: the broker may have handled this JoinGroup last
    instances.fenced("g", "i", "member 199")


def test_a_power_failure_lifts_the_promise_for_its_last_moments(world: World) -> None:
    offsets = Offsets(world)
    [first] = offsets.send([PARTITION])
    at(world, 1)
    offsets.acknowledged(PARTITION, first)
    [second] = offsets.send([PARTITION])
    at(world, 2)
    offsets.acknowledged(PARTITION, second)
    offsets.lost_since(round(1.5 * SECOND))
    at(world, 3)
    offsets.read(PARTITION, first, world.now)
    with pytest.raises(Broken):  # the first offset was read since, so the lost second one must not reappear
        offsets.read(PARTITION, second, world.now + 1)


def test_a_reply_that_was_read_before_is_compared_again_when_its_records_are_no_longer_known(world: World) -> None:
    records = Records(world)

    def read(value: bytes) -> None:
        records.acknowledged(("t", 0), 5, [value], world.now)
        records.read_whole(("t", 0), 5, b"batch of " + value, 6)
        assert records.end_of_repeated_read(("t", 0), 5, b"batch of " + value) == 6
        assert records.end_of_repeated_read(("t", 0), 5, b"another batch") == -1
        assert records.end_of_repeated_read(("t", 0), 4, b"batch of " + value) == -1

    ways: list[Callable[[], None]] = [lambda: records.lost_since(0), lambda: records.deleted("t"), lambda: records.check_and_forget_before(("t", 0), 6)]
    for forget in ways:
        read(b"value")
        forget()
        assert records.end_of_repeated_read(("t", 0), 5, b"batch of value") == -1


def test_a_deletion_that_was_not_acknowledged_may_be_undone(world: World) -> None:
    records = Records(world)
    records.acknowledged(("t", 0), 0, [b"first", b"second", b"third"], world.now)
    records.delete_before(("t", 0), 2)  # never acknowledged: a reader sees its effect, then the broker is killed
    records.check_log_start(("t", 0), 2, world.now)
    records.check_and_forget_before(("t", 0), 2)
    at(world, 1)
    records.check_log_start(("t", 0), 0, world.now)
    records.read(("t", 0), 1, b"second")
    with pytest.raises(Broken, match="instead of"):
        records.read(("t", 0), 2, b"another")


def test_the_story_of_one_group_is_not_that_of_another_whose_name_begins_alike(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    at(world, 1)
    world.trace("g1/s0: starts", "g1")
    world.trace("g10/s0: starts", "g10")
    world.trace("administrator: removes i0 of g1")
    world.trace("g1/s0: OffsetCommit t0-0=7 (sent now) -> ok", "g1", routine=True)
    world.trace("g1/s0: OffsetCommit t0-0=8 (sent now) -> ok", "g1", routine=True)
    at(world, 60)
    print_story(world, Broken(Offsets.promise, "offset 7 is read for g1: t0-0, although it was replaced at 0:00:08.000000", "g1"))
    printed = capsys.readouterr().out
    assert "g1/s0: starts" in printed
    assert "of g1" in printed
    assert "g10" not in printed
    assert "\n> 0:00:01.000000  g1/s0: OffsetCommit t0-0=7" in printed
    assert "t0-0=8" not in printed
    assert "The promise: an acknowledged commit is not lost" in printed


def test_docs_list_every_promise() -> None:
    modules = [import_module(f"simulator.{path.stem}") for path in (ROOT / "simulator").glob("*.py") if path.stem != "__main__"]
    values = [value for module in modules for value in (*vars(module).values(), *(getattr(each, "promise", None) for each in vars(module).values()))]
    promises = {value.name for value in values if isinstance(value, Promise)}
    rows = re.findall(r"^\| ([a-z, ]+) \| .* \| `.*` \|$", (ROOT / "docs/simulator.md").read_text(), re.MULTILINE)
    assert {name for row in rows for name in row.split(", ")} == promises


def test_a_run_whose_requests_are_traced_is_the_same_run() -> None:
    plan = replace(draw(11), safety_seconds=20)
    runs = [new_run(plan) for _ in range(2)]
    runs[1].world.traced_clients = (plan.groups[0].name,)
    for run in runs:
        run.run()
    assert [run.world.events for run in runs] == [runs[0].world.events] * 2
    plain, traced = [[str(line) for line in run.world.lines] for run in runs]
    assert set(plain) < set(traced)
    assert any("SyncGroup, generation 1" in line for line in traced)


def test_a_deleted_group_may_begin_again_after_a_power_failure() -> None:
    """The power failure loses the newest generation of a group without offsets, which may then begin again with generation 1."""
    world = World(0)
    has_offsets = False
    generations = Generations(world, lambda group: has_offsets)
    for second, generation in enumerate((3, 5)):
        at(world, second)
        generations.assigned("g", generation, "a", f"leader@{second}", b"1", [("t", 0)], world.now)
    generations.lost_since(world.now)
    for second, generation in enumerate((1, 2, 3), 2):
        at(world, second)
        generations.assigned("g", generation, "a", f"leader@{second}", b"1", [("t", 0)], world.now)
        has_offsets = True


def test_a_session_is_compared_with_the_moment_of_its_end_and_not_with_that_of_a_late_note() -> None:
    run = new_run(replace(draw(11), safety_seconds=20, faults=(), varied_sessions=False))
    run.run()
    (audit,) = run.audits.values()
    in_memory = [(group.name, audit.memory.find(group.name)) for group in run.plan.groups]
    name = next(name for name, found in in_memory if found is not None and found.policies is None)
    audit.check()
    first, second = list(audit.memory.find(name).members.values())[:2]
    journal = run.node.broker.shards.journal_of(name)

    def note_a_second_late(body: Message) -> None:
        at_ms = run.node.wall_ms
        run.world.now += SECOND  # the note is made one second after its own timestamp
        run._note(run.node, journal, Note(name, at_ms, 1, State.STABLE, body))

    def note_removal(member: Member) -> None:
        body = MemberGone(member.id, member.instance_id, Removal.EXPIRED, 3_600_000, member.session_timeout_ms)
        note_a_second_late(body)

    run.world.now += 3600 * SECOND
    audit.forget_notes(name)  # the audit loses track of the group, as it does when notes are missing
    note_a_second_late(StateChange(State.COMPLETING, State.STABLE, Cause.ASSIGNED))  # new sessions begin
    run.world.now += first.session_timeout_ms * MS
    note_removal(first)
    run.world.now += SECOND
    with pytest.raises(Broken, match="after the end of its session"):
        note_removal(second)
    audit.clock_set()  # after a change of the clock, the moments in late notes cannot be checked
    note_removal(second)


def test_after_a_power_failure_an_unused_epoch_may_have_another_owner() -> None:
    shared_machine: Any = None
    owners = OneOwner(World(0), shared_machine)
    first, second = (cast(ClusterNode, SimpleNamespace(name=f"node {number}", id=number, life=1)) for number in (1, 2))
    owners._note(first, LogId("t", 0), 4)
    owners.power_failed()
    owners._note(second, LogId("t", 0), 4)
    with pytest.raises(Broken, match="at epoch 4, although node 2"):
        owners._note(first, LogId("t", 0), 4)


def test_an_absence_is_not_judged_by_a_clock_that_was_set() -> None:
    plan = replace(draw(11), safety_seconds=20, faults=(), late_leader_syncs=0.0, early_commits=0.0, new_user_data=0.0)
    run = new_run(replace(plan, broker={**plan.broker, "group.policy.registration.timeout.ms": 5_000}))
    run.run()
    (audit,) = run.audits.values()
    name = next(group.name for group in run.plan.groups if group.static > 1)
    first, second = [member for member in audit.memory.find(name).members.values() if member.instance_id is not None][:2]

    def note_removal(member: Member) -> None:
        body = MemberGone(member.id, member.instance_id, Removal.EXPIRED, member.session_timeout_ms, member.session_timeout_ms)
        journal = run.node.broker.shards.journal_of(name)
        note = Note(name, run.node.wall_ms, 1, State.STABLE, body)
        run.policies.note(journal.partition, note, run.world.now, audit.clock_is_steady)

    with pytest.raises(Broken, match="instead of being away"):
        note_removal(first)
    audit.clock_set()
    note_removal(second)


def test_each_open_file_reports_a_failed_sync_once() -> None:
    disk = data_disk()
    first, second = disk.open("/data/file", create=True), disk.open("/data/file")
    disk.fail_syncs = 1
    for file in (first, second):
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
        file.sync()
    disk.open("/data/file").sync()  # opened after the failure


# Several nodes.


SEED_WHOSE_NODES_LIVE: Final = 3  # at the end of a run some nodes may stay dead


def cluster_plan(*faults: str) -> Plan:
    """Two nodes without other faults, a group of two topics, and a producer."""
    plan = with_nodes(draw(SEED_WHOSE_NODES_LIVE), 2)
    return replace(plan, faults=faults, fault_rate=10.0, nodes=2, flush="always", producers=1, safety_seconds=20, connection_resets=0.0, stalled=0.0, leader_dies=0.0)


@pytest.fixture(scope="module")
def cluster() -> ClusterRun:
    run = new_run(cluster_plan())
    assert isinstance(run, ClusterRun)
    run.run()
    run.one_owner.check_locks()
    return run


def owner_of(run: ClusterRun, id: LogId) -> ClusterNode:
    return next(node for node in run.shared_machine.nodes if uses(node, id))


DATA: Final = LogId("data0", 0)


def test_a_node_with_an_open_log_has_its_lock(cluster: ClusterRun, monkeypatch: pytest.MonkeyPatch) -> None:
    node = owner_of(cluster, DATA)
    monkeypatch.delitem(node.disk.byte_owners, (LOCKS, lock_byte_of(DATA)))
    with pytest.raises(Broken, match=f"{node.name} has the log of data0-0 open, and not its lock"):
        cluster.one_owner.check_locks()


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"writer": NO_WRITER}, "the table of owners has"), ({"node": 7}, "the table of owners has"), ({"state": FREE}, "the table of owners has"), ({"state": GONE}, "has")],
)
def test_the_table_of_owners_names_the_node_that_serves_a_log(cluster: ClusterRun, change: dict[str, int], problem: str) -> None:
    table = owner_of(cluster, DATA).broker.shards._store._table
    before = table.read(DATA)
    table.write(DATA, before._replace(**change))
    try:
        with pytest.raises(Broken, match=problem):
            cluster.one_owner.check_locks()
    finally:
        table.write(DATA, before)
    cluster.one_owner.check_locks()


def test_the_slot_of_a_free_log_is_not_that_of_a_deleted_topic(cluster: ClusterRun) -> None:
    controller = next(node for node in cluster.shared_machine.nodes if node.broker.cluster.registry.is_controller)
    store = controller.broker.shards._store
    before = store._table.read(DATA)
    store._table.write(DATA, before._replace(state=GONE))
    try:
        with pytest.raises(Broken, match="that of a deleted topic, although the log is that of a topic that exists"):
            cluster.one_owner._check_slots(controller, store)
    finally:
        store._table.write(DATA, before)


def test_each_node_has_the_address_of_each_other(cluster: ClusterRun, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not cluster.one_owner.problem(False)
    monkeypatch.setattr(cluster.shared_machine.nodes[1], "port", 9099)
    assert cluster.one_owner.problem(False) == "node 1 has ports [9093] of node 2, which listens on 9099"


def test_an_acknowledged_record_is_in_the_log_whichever_node_acknowledged_it(cluster: ClusterRun) -> None:
    cluster._check_records()
    _, end = cluster.records.bounds(DATA)
    cluster.records.acknowledged(DATA, end + 100, [b"lost"], cluster.world.now)
    cluster.world.now += 1
    with pytest.raises(Broken, match=f"offset {end + 100} is lost"):
        cluster._check_records()


def test_a_restarted_node_listens_elsewhere_and_each_clock_is_its_own() -> None:
    run = new_run(cluster_plan("ports", "clocks"))
    assert isinstance(run, ClusterRun)
    node = run.shared_machine.nodes[0]
    run.world.after(3 * SECOND, node.crash, False)
    run.run()
    assert node.life == 2
    assert node.port == node.broker.config.listeners[0].port != 9092
    assert len({node.wall_offset_ns for node in run.nodes}) == 2
    assert run.world.counts["fault: clock of a node set"]


def test_each_fault_of_several_nodes_is_explained() -> None:
    plans = [with_nodes(draw(seed), 0) for seed in range(60)]
    assert {fault for plan in plans for fault in plan.faults} >= {*NODE_FAULTS, *TOPICS_RECREATED, "clocks", "ports", "delete_topic"}
    for plan in plans:
        assert new_run(plan).lines()[-1].count(";") == len(plan.faults) - 1


class KnownTopics:
    """A node with these topics."""

    def __init__(self, **ids: bytes) -> None:
        self.running, self.server, self.life, self.frozen_until = True, object(), 1, 0
        self.loop = SimpleNamespace(dead=False)
        self.topics = {name: SimpleNamespace(id=id) for name, id in ids.items()}
        self.broker = SimpleNamespace(topics=SimpleNamespace(by_name=self.topics))

    def has(self, name: str, id: bytes) -> None:
        self.topics[name] = SimpleNamespace(id=id)


def stored_offset(offset: int) -> Any:
    value = offset_value(offset, -1, b"", 0)
    return SimpleNamespace(all_offsets=lambda: [("t", 0, value)])


def test_offsets_of_a_deleted_topic_are_gone_and_those_of_the_new_one_stay(world: World) -> None:
    offsets = Offsets(world)
    node: Any = KnownTopics(t=b"old")
    recreated = RecreatedTopics(world, offsets, lambda: [node])
    (old,) = offsets.send([PARTITION])
    offsets.acknowledged(PARTITION, old)
    at(world, 1)
    assert recreated.delete("t")
    assert recreated.unknown_at(node) == ["t"]
    assert not recreated.delete("t")  # no node has a topic that can be deleted
    removal = offsets.send_removal(PARTITION)
    recreated.removed("t", [(PARTITION, removal)])
    (late,) = offsets.send([PARTITION])
    offsets.unknown(PARTITION, late)  # acknowledged by a node that has the old topic
    recreated.committed(node, PARTITION, late)

    def check(seconds: float, group: Any) -> None:
        at(world, seconds)
        recreated.check([("g", "t", node, group)])

    check(2, stored_offset(late))  # the node has the old topic
    node.has("t", b"new")
    assert recreated.unknown_at(node) == []
    check(3, stored_offset(late))
    check(3.5, stored_offset(late))  # the removal may be under way
    check(5, None)
    for offset in (old, late):
        with pytest.raises(Broken, match=f"offset {offset} of g: t-0, of a deleted topic"):
            check(8, stored_offset(offset))
    (new,) = offsets.send([PARTITION])
    offsets.acknowledged(PARTITION, new)
    check(9, stored_offset(new))
    with pytest.raises(Broken, match="which was acknowledged, is not in the coordinator's memory"):
        check(10, None)
