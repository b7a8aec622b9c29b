"""`tenure consume --group`: a member like any other."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from cli.client import Cluster, Failure
from cli.records.commits import Commits, committed_offsets
from cli.records.membership import Member, Timeouts
from protocol.messages.describe_groups import DescribeGroupsRequest
from tests.cli.conftest import Tenure
from tests.running import environment

pytestmark = pytest.mark.once  # conversations with brokers: one Python says it for all

NUMBERS = count()
Run = Callable[..., object]
TIMES = Timeouts(session=6, rebalance=5, heartbeat=0.05)


@pytest.fixture
def name(tenure: Tenure, bootstrap: str) -> str:
    """A topic of two partitions with a record in each; also the name of a group of its own."""
    topic = f"shared-{next(NUMBERS)}.{bootstrap.rpartition(':')[2]}"
    tenure("topic", "create", topic, "--partitions", "2", "--bootstrap", bootstrap)
    for partition in ("0", "1"):
        assert tenure("produce", topic, "--partition", partition, "--value", f"v{partition}", "--bootstrap", bootstrap).code == 0
    return topic


@pytest.fixture
def consume(tenure: Tenure, bootstrap: str, name: str) -> Run:
    return lambda *arguments: tenure("consume", name, "--group", name, *arguments, "--bootstrap", bootstrap)


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    host, _, port = bootstrap.rpartition(":")
    with Cluster([(host, int(port))], 5) as opened:
        yield opened


def group_now(cluster: Cluster, group: str) -> object:
    return cluster.coordinator(group, DescribeGroupsRequest([group])).groups[0]


def member(cluster: Cluster, group: str, *topics: str, **more: object) -> Member:
    return Member(cluster.another(), group, topics or (group,), TIMES, **more)  # type: ignore[arg-type]


def await_loss(one: Member) -> None:
    """Until the coordinator tells it to give up its seat."""
    until = time.monotonic() + 5
    while not one.lost:
        assert time.monotonic() < until
        time.sleep(0.01)


def in_background(function: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    came: list[object] = []

    def run() -> None:
        try:
            came.append(function())
        except Failure as failure:
            came.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, came


def test_it_goes_on_where_the_group_was_and_leaves(consume, cluster, tenure, bootstrap, name):
    first = consume("--from-beginning", "--no-follow")
    assert (first.code, sorted(first.out.split()), first.err) == (0, ["v0", "v1"], "")
    assert group_now(cluster, name).group_state == "Empty"
    tenure("produce", name, "--value", "more", "--partition", "1", "--bootstrap", bootstrap)
    assert consume("--from-beginning", "--no-follow").out == "more\n"
    assert committed_offsets(cluster, name, [(name, 0), (name, 1)]) == {(name, 0): 1, (name, 1): 2}


def test_what_is_committed_is_what_was_printed(consume, cluster, tenure, bootstrap, name):
    tenure("produce", name, "--partition", "0", "--bootstrap", bootstrap, stdin="a\nb\nc\n")
    assert len(consume("--from-beginning", "--limit", "1").out.split()) == 1
    assert len(consume("--from-beginning", "--limit", "2").out.split()) == 2
    assert len(consume("--from-beginning", "--no-follow").out.split()) == 2
    assert committed_offsets(cluster, name, [(name, 0), (name, 1)]) == {(name, 0): 4, (name, 1): 1}


def test_without_commits_the_group_stays_where_it_was(consume, cluster, name):
    assert sorted(consume("--from-beginning", "--no-follow", "--no-commit").out.split()) == ["v0", "v1"]
    assert committed_offsets(cluster, name, [(name, 0), (name, 1)]) == {}


def test_a_new_group_begins_at_the_end_and_remembers_that(consume, cluster, name):
    assert consume("--no-follow") == (0, "", "")
    assert committed_offsets(cluster, name, [(name, 0), (name, 1)]) == {(name, 0): 1, (name, 1): 1}


def test_a_static_member_keeps_its_seat_unless_it_is_told_to_leave(consume, cluster, name):
    consume("--from-beginning", "--no-follow", "--instance", "desk")
    kept = group_now(cluster, name)
    assert [(one.group_instance_id, kept.group_state) for one in kept.members] == [("desk", "Stable")]
    told = consume("--no-follow", "--instance", "desk", "--verbose").err
    assert f"instance desk of group {name}, generation 1: {name}-0,1" in told
    consume("--no-follow", "--instance", "desk", "--leave")
    assert group_now(cluster, name).members == []


def test_members_share_and_a_leaver_gives_its_part_back(cluster, name):
    first, second = member(cluster, name), member(cluster, name, assignors=["roundrobin"])
    with first._cluster, second._cluster:
        assert first.join().places == [(name, 0), (name, 1)]
        thread, came = in_background(second.join)
        await_loss(first)
        seat = first.join()
        thread.join(5)
        assert sorted([*seat.places, *came[0].places]) == [(name, 0), (name, 1)]
        assert len(seat.places) == 1
        assert group_now(cluster, name).protocol_data == "roundrobin"
        second.leave()
        await_loss(first)
        assert first.join().places == [(name, 0), (name, 1)]
        first.leave()


def test_the_second_process_of_an_instance_fences_the_first(cluster, name):
    first, second = member(cluster, name, instance_id="desk"), member(cluster, name, instance_id="desk")
    with first._cluster, second._cluster:
        first.join()
        second.join()
        fenced = f"group {name}: another process has joined as instance desk and has its seat now; this one is fenced"
        with pytest.raises(Failure, match=fenced):
            await_loss(first)
        commits = Commits(first._cluster, first, wanted=True)
        commits.note((name, 0), 1)
        with pytest.raises(Failure, match=fenced):
            commits.commit(first.seat)
        first.rest()
        assert not second.lost
        second.leave()


def test_a_member_that_was_removed_joins_again_as_a_new_one(cluster, name):
    one = member(cluster, name)
    with one._cluster:
        seat = one.join()
        other = member(cluster, name)
        other._member_id = seat.member_id
        other.leave()
        other._cluster.close()
        await_loss(one)
        again = one.join()
        assert again.member_id != seat.member_id
        assert again.places == seat.places
        one.leave()


def test_what_was_committed_is_not_committed_again(cluster, name):
    one = member(cluster, name)
    with one._cluster:
        seat = one.join()
        commits = Commits(one._cluster, one, wanted=True)
        commits.note((name, 0), 1)
        assert commits.due
        assert commits.commit(seat)
        assert not commits.due
        one.leave()


def test_a_leader_sees_that_a_topic_has_grown(cluster, tenure, bootstrap, name):
    one = member(cluster, name)
    with one._cluster:
        one.join()
        assert not one.outgrown
        tenure("topic", "alter", name, "--partitions", "3", "--bootstrap", bootstrap)
        assert one.outgrown
        assert one.join().places == [(name, 0), (name, 1), (name, 2)]
        one.leave()


def test_a_group_that_wants_something_else_says_so(cluster, tenure, bootstrap, consume, name):
    one = member(cluster, name, assignors=["range"])
    with one._cluster:
        one.join()
        result = consume("--assignor", "roundrobin")
        assert result.code == 1
        assert result.err == (
            f"tenure: group {name}: its members have no assignor in common with this command (roundrobin), or are no consumers "
            f"(tenure group describe {name})\n"
        )
        one.leave()
    short = consume("--session-timeout", "0.05", "--heartbeat", "0.01")
    assert (short.code, "--session-timeout" in short.err) == (1, True)


def test_a_partition_that_is_added_meanwhile_is_read_from_its_beginning(consume, cluster, tenure, bootstrap, name, monkeypatch):
    monkeypatch.setattr("cli.records.consume.LOOK_SECONDS", 0.5)

    def grow() -> None:
        with cluster.another() as helper:
            while group_now(helper, name).group_state != "Stable":
                time.sleep(0.01)
        words = ("--bootstrap", bootstrap)
        for command in (("topic", "alter", name, "--partitions", "4"), ("produce", name, "--partition", "2", "--value", "early")):
            subprocess.run([sys.executable, "-P", "-m", "tenure", *command, *words], check=True, env=environment(), stdout=subprocess.DEVNULL)

    thread, _ = in_background(grow)
    done = consume("--limit", "1", "--idle", "20", "--from", "latest")
    thread.join(10)
    assert (done.code, done.out) == (0, "early\n")
    # The other new one, too, begins where a member that starts now would not look for it.
    assert committed_offsets(cluster, name, [(name, 2), (name, 3)]) == {(name, 2): 1, (name, 3): 0}


@pytest.mark.parametrize("begin", [(), ("--from", "latest"), ("--from", "-1"), ("--instance", "desk", "--leave")])
def test_a_member_that_starts_later_reads_an_added_partition_from_its_beginning(consume, tenure, bootstrap, name, begin):
    """Also where the group has not read a record yet: where it began is committed."""
    assert consume("--from", "latest", "--no-follow").out == ""
    tenure("topic", "alter", name, "--partitions", "3", "--bootstrap", bootstrap)
    tenure("produce", name, "--partition", "2", "--bootstrap", bootstrap, stdin="early\nlate\n")
    assert consume(*begin, "--no-follow").out == "early\nlate\n"
    assert consume(*begin, "--no-follow").out == ""


def test_members_that_begin_together_leave_out_what_was_there_before(cluster, name):
    """The one finds offsets of the other in the same topic: its own partition is not new for that."""
    from cli.records.consume import known_to_group

    places = {(name, 0), (name, 1)}
    before = committed_offsets(cluster, name, places)
    assert known_to_group(places, before) == places
    assert known_to_group({*places, (name, 2)}, {(name, 0): 1, (name, 1): 0}) == places
    assert known_to_group({*places, ("other", 0)}, {(name, 0): 1}) == {(name, 0), ("other", 0)}


def test_where_a_member_begins_is_committed_before_there_is_a_record(consume, cluster, name):
    def watch() -> bool:
        """Whether the offsets are there while the member is."""
        with cluster.another() as helper:
            until = time.monotonic() + 10
            while time.monotonic() < until:
                committed = committed_offsets(helper, name, [(name, 0), (name, 1)])
                if committed == {(name, 0): 1, (name, 1): 1}:
                    return bool(group_now(helper, name).members)
                time.sleep(0.01)
        return False

    thread, came = in_background(watch)
    assert consume("--from", "latest", "--idle", "1").out == ""
    thread.join(15)
    assert came == [True]
