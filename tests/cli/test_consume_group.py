"""`tenure consume --group`: a member of a consumer group."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from cli.client import Cluster, Failure, TopicPartition
from cli.records.commits import Commits, committed_offsets
from cli.records.consume import known_partitions_of_group
from cli.records.membership import Member
from protocol.messages.describe_groups import DescribedGroup
from tests.cli.conftest import CommandResult, Tenure
from tests.cli.consumers import described, member
from tests.running import environment, wait_until

pytestmark = pytest.mark.once  # no dependence on the Python version


@pytest.fixture
def topic(client_command: Tenure, name: str) -> str:
    """A topic of two partitions with a record in each; also the name of its group."""
    client_command("topic", "create", name, "--partitions", "2")
    for partition in ("0", "1"):
        assert client_command("produce", name, "--partition", partition, "--value", f"v{partition}").code == 0
    return name


@pytest.fixture
def consume(client_command: Tenure, topic: str) -> Tenure:
    return lambda *arguments, stdin="": client_command("consume", topic, "--group", topic, *arguments, stdin=stdin)


def await_loss(owner: Member) -> None:
    """Wait until the coordinator has told the member that another process has its seat."""
    wait_until(lambda: owner.must_rejoin)


def in_background(function: Callable[[], object]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(function())
        except Failure as failure:
            results.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


def stable(group: DescribedGroup) -> DescribedGroup | None:
    return group if group.group_state == "Stable" else None


def delete_topic(name: str, bootstrap: str) -> None:
    """Delete a topic in another process: in this one the command under test uses the standard streams."""
    command = (sys.executable, "-P", "-m", "tenure", "topic", "delete", name, "--yes", "--bootstrap", bootstrap)
    subprocess.run(command, check=True, env=environment(), stdout=subprocess.DEVNULL)


def test_a_member_continues_at_the_groups_offsets_and_leaves(consume: Tenure, cluster: Cluster, client_command: Tenure, topic: str) -> None:
    first = consume("--from-beginning", "--no-follow")
    assert (first.code, sorted(first.out.split()), first.err) == (0, ["v0", "v1"], "")
    assert described(cluster, topic).group_state == "Empty"
    client_command("produce", topic, "--value", "more", "--partition", "1")
    assert consume("--from-beginning", "--no-follow").out == "more\n"
    assert committed_offsets(cluster, topic, [(topic, 0), (topic, 1)]) == {(topic, 0): 1, (topic, 1): 2}


def test_the_committed_offset_follows_the_printed_records(consume: Tenure, cluster: Cluster, client_command: Tenure, topic: str) -> None:
    client_command("produce", topic, "--partition", "0", stdin="a\nb\nc\n")
    assert len(consume("--from-beginning", "--limit", "1").out.split()) == 1
    assert len(consume("--from-beginning", "--limit", "2").out.split()) == 2
    assert len(consume("--from-beginning", "--no-follow").out.split()) == 2
    assert committed_offsets(cluster, topic, [(topic, 0), (topic, 1)]) == {(topic, 0): 4, (topic, 1): 1}


def test_without_commits_the_groups_offsets_are_unchanged(consume: Tenure, cluster: Cluster, topic: str) -> None:
    assert sorted(consume("--from-beginning", "--no-follow", "--no-commit").out.split()) == ["v0", "v1"]
    assert committed_offsets(cluster, topic, [(topic, 0), (topic, 1)]) == {}


def test_a_new_group_begins_at_the_end_and_commits_this_position(consume: Tenure, cluster: Cluster, topic: str) -> None:
    assert consume("--no-follow") == (0, "", "")
    assert committed_offsets(cluster, topic, [(topic, 0), (topic, 1)]) == {(topic, 0): 1, (topic, 1): 1}


def test_a_static_member_keeps_its_assignment_unless_it_leaves(consume: Tenure, cluster: Cluster, topic: str) -> None:
    consume("--from-beginning", "--no-follow", "--instance", "desk")
    group = described(cluster, topic)
    assert [(member_row.group_instance_id, group.group_state) for member_row in group.members] == [("desk", "Stable")]
    reported = consume("--no-follow", "--instance", "desk", "--verbose").err
    assert f"instance desk of group {topic}, generation 1: {topic}-0,1" in reported
    consume("--no-follow", "--instance", "desk", "--leave")
    assert described(cluster, topic).members == []


def test_members_share_partitions_and_a_leaving_member_releases_its_own(cluster: Cluster, topic: str) -> None:
    first, second = member(cluster, topic), member(cluster, topic, assignors=["roundrobin"])
    with first._cluster, second._cluster:
        assert first.join().partitions == [(topic, 0), (topic, 1)]
        thread, results = in_background(second.join)
        await_loss(first)
        seat = first.join()
        thread.join(5)
        assert sorted([*seat.partitions, *results[0].partitions]) == [(topic, 0), (topic, 1)]
        assert len(seat.partitions) == 1
        assert described(cluster, topic).protocol_data == "roundrobin"
        second.leave()
        await_loss(first)
        assert first.join().partitions == [(topic, 0), (topic, 1)]
        first.leave()


def test_the_second_process_of_an_instance_fences_the_first(cluster: Cluster, topic: str) -> None:
    first, second = member(cluster, topic, instance_id="desk"), member(cluster, topic, instance_id="desk")
    with first._cluster, second._cluster:
        seat = first.join()
        second.join()
        fenced = f"group {topic}: another process has joined as instance desk and has its seat now; this one is fenced"
        with pytest.raises(Failure, match=fenced):
            await_loss(first)
        commits = Commits(first._cluster, first, enabled=True)
        commits.add((topic, 0), 1)
        with pytest.raises(Failure, match=fenced):
            commits.commit(seat)
        first.stop_heartbeats()
        assert not second.must_rejoin
        second.leave()


def test_a_removed_member_joins_again_as_a_new_member(cluster: Cluster, topic: str) -> None:
    owner = member(cluster, topic)
    with owner._cluster:
        seat = owner.join()
        impostor = member(cluster, topic)
        impostor._member_id = seat.member_id
        impostor.leave()
        impostor._cluster.close()
        await_loss(owner)
        rejoined = owner.join()
        assert rejoined.member_id != seat.member_id
        assert rejoined.partitions == seat.partitions
        owner.leave()


def test_unchanged_offsets_are_not_committed_again(cluster: Cluster, topic: str) -> None:
    owner = member(cluster, topic)
    with owner._cluster:
        seat = owner.join()
        commits = Commits(owner._cluster, owner, enabled=True)
        commits.add((topic, 0), 1)
        assert commits.due
        assert commits.commit(seat)
        assert not commits.due
        owner.leave()


def test_a_leader_sees_that_a_topic_has_grown(cluster: Cluster, client_command: Tenure, topic: str) -> None:
    owner = member(cluster, topic)
    with owner._cluster:
        owner.join()
        assert not owner.partitions_changed
        client_command("topic", "alter", topic, "--partitions", "3")
        assert owner.partitions_changed
        assert owner.join().partitions == [(topic, 0), (topic, 1), (topic, 2)]
        owner.leave()


def test_a_group_of_another_protocol_is_reported(cluster: Cluster, client_command: Tenure, consume: Tenure, topic: str) -> None:
    owner = member(cluster, topic, assignors=["range"])
    with owner._cluster:
        owner.join()
        result = consume("--assignor", "roundrobin")
        assert result.code == 1
        assert result.err == (
            f"tenure: group {topic}: its members have no assignor in common with this command (roundrobin), or are no consumers "
            f"(tenure group describe {topic})\n"
        )
        owner.leave()
    short = consume("--session-timeout", "0.05", "--heartbeat", "0.01")
    assert (short.code, "--session-timeout" in short.err) == (1, True)


def test_a_partition_added_while_consuming_is_read_from_its_beginning(
    consume: Tenure, cluster: Cluster, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.records.consume.METADATA_SECONDS", 0.5)

    def grow() -> None:
        with cluster.separate_client() as helper:
            wait_until(lambda: described(helper, topic).group_state == "Stable")
        words = ("--bootstrap", bootstrap)
        for command in (("topic", "alter", topic, "--partitions", "4"), ("produce", topic, "--partition", "2", "--value", "early")):
            subprocess.run([sys.executable, "-P", "-m", "tenure", *command, *words], check=True, env=environment(), stdout=subprocess.DEVNULL)

    thread, _ = in_background(grow)
    done = consume("--limit", "1", "--idle", "20", "--from", "latest")
    thread.join(10)
    assert (done.code, done.out) == (0, "early\n")
    # The other new partition is read from 0 too, and not from the latest offset, as a newly started member would.
    assert committed_offsets(cluster, topic, [(topic, 2), (topic, 3)]) == {(topic, 2): 1, (topic, 3): 0}


@pytest.mark.parametrize("begin", [(), ("--from", "latest"), ("--from", "-1"), ("--instance", "desk", "--leave")])
def test_a_member_that_starts_later_reads_an_added_partition_from_its_beginning(
    consume: Tenure, client_command: Tenure, topic: str, begin: tuple[str, ...]
) -> None:
    """This holds even if the group has read no record yet, because members commit their start positions."""
    assert consume("--from", "latest", "--no-follow").out == ""
    client_command("topic", "alter", topic, "--partitions", "3")
    client_command("produce", topic, "--partition", "2", stdin="early\nlate\n")
    assert consume(*begin, "--no-follow").out == "early\nlate\n"
    assert consume(*begin, "--no-follow").out == ""


def test_members_started_together_skip_earlier_records(cluster: Cluster, topic: str) -> None:
    """Offsets that the other member has just committed do not make this member's partition look like an added one."""
    partitions = {(topic, 0), (topic, 1)}
    before = committed_offsets(cluster, topic, partitions)
    assert known_partitions_of_group(partitions, before) == partitions
    assert known_partitions_of_group({*partitions, (topic, 2)}, {(topic, 0): 1, (topic, 1): 0}) == partitions
    assert known_partitions_of_group({*partitions, ("other", 0)}, {(topic, 0): 1}) == {(topic, 0), ("other", 0)}


def test_the_start_position_is_committed_before_the_first_record(consume: Tenure, cluster: Cluster, topic: str) -> None:
    def watch() -> bool:
        """Wait for the first committed offsets; returns whether the group still has a member then."""
        with cluster.separate_client() as helper:
            wait_until(lambda: committed_offsets(helper, topic, [(topic, 0), (topic, 1)]) == {(topic, 0): 1, (topic, 1): 1})
            return bool(described(helper, topic).members)

    thread, results = in_background(watch)
    assert consume("--from", "latest", "--idle", "1").out == ""
    thread.join(15)
    assert results == [True]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.records.consume.METADATA_SECONDS", 0.05)
    monkeypatch.setattr("cli.records.fetching.DELETED_AFTER_SECONDS", 0.3)


def assert_ended_by_deletion(done: CommandResult, topic: str) -> None:
    assert (done.code, done.err) == (66, f"tenure: topic {topic} was deleted\n")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("metadata_seconds", [0.05, 60], ids=["noticed-in-metadata", "noticed-by-fetch"])
def test_a_deleted_topic_ends_a_reading_member(
    consume: Tenure, cluster: Cluster, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch, metadata_seconds: float
) -> None:
    """Either the check for new partitions notices the deletion, before the leader assigns no partitions, or a fetch does."""
    monkeypatch.setattr("cli.records.consume.METADATA_SECONDS", metadata_seconds)

    def delete() -> None:
        with cluster.separate_client() as helper:
            wait_until(lambda: committed_offsets(helper, topic, [(topic, 0), (topic, 1)]) == {(topic, 0): 1, (topic, 1): 1})
        delete_topic(topic, bootstrap)

    thread, _ = in_background(delete)
    assert_ended_by_deletion(consume("--from-beginning", "--idle", "8"), topic)
    thread.join(10)
    assert described(cluster, topic).members == []


@pytest.mark.usefixtures("quick")
def test_a_deleted_topic_ends_a_member_without_partitions(client_command: Tenure, cluster: Cluster, bootstrap: str, name: str) -> None:
    client_command("topic", "create", name, "--partitions", "1")
    owner = member(cluster, name, instance_id="a")

    def delete() -> list[TopicPartition]:
        await_loss(owner)
        partitions = owner.join().partitions
        delete_topic(name, bootstrap)
        return partitions

    with owner._cluster:
        owner.join()
        thread, partitions_of_owner = in_background(delete)
        assert_ended_by_deletion(client_command("consume", name, "--group", name, "--instance", "z", "--idle", "8"), name)
        thread.join(10)
        assert partitions_of_owner == [[(name, 0)]]
        owner.stop_heartbeats()


@pytest.mark.usefixtures("quick")
def test_a_deleted_topic_ends_a_member_that_has_to_rejoin(
    consume: Tenure, cluster: Cluster, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message warns of printed records whose offsets are not committed: records of a deleted topic cannot be read again."""
    monkeypatch.setattr("cli.records.consume.METADATA_SECONDS", 60)
    monkeypatch.setattr(Commits, "commit", lambda self, seat: True)  # the offsets stay uncommitted, as when the topic no longer exists
    impostor = member(cluster, topic)

    def delete_and_remove() -> None:
        with cluster.separate_client() as helper:
            group = wait_until(lambda: stable(described(helper, topic)))
        delete_topic(topic, bootstrap)
        impostor._member_id = group.members[0].member_id
        impostor.leave()

    with impostor._cluster:
        thread, _ = in_background(delete_and_remove)
        assert_ended_by_deletion(consume("--from-beginning", "--idle", "8", "--heartbeat", "0.05"), topic)
        thread.join(10)
