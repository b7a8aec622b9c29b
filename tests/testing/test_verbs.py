"""Verbs of the library that groups, faults and names have: each against a broker."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from struct import pack

import pytest

from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from tenure.testing import Cluster, ControlError, FaultNotFired, RebalanceSeen
from tests.running import Client
from tests.testing.groups import Static


@pytest.fixture
def member(kafka: Cluster) -> Iterator[Static]:
    kafka.topic("orders", 2)
    joined = Static(kafka, "billing", "billing-1")
    assert joined.join() == 0
    yield joined
    joined.close()


def test_lag_is_what_is_not_committed(kafka: Cluster, member: Static) -> None:
    kafka.write("orders", *({"value": str(number), "partition": number % 2} for number in range(6)))
    assert member.commit("orders", 1) == 0
    assert kafka.group("billing").lags() == {"orders": {0: 2}}
    assert member.commit("orders", 3, 1) == 0
    assert (kafka.group("billing").lags(), kafka.group("billing").lag) == ({"orders": {0: 2, 1: 0}}, 2)


def test_lag_counts_from_the_first_record_where_nothing_is_committed(kafka: Cluster) -> None:
    kafka.topic("orders", 2)
    kafka.write("orders", *({"value": str(number), "partition": 1} for number in range(3)))
    member = Static(kafka, "billing", "billing-1")
    member.assignment = pack(">hih6siii", 0, 1, 6, b"orders", 1, 1, -1)  # partition 1
    assert member.join() == 0
    assert kafka.group("billing").lags() == {"orders": {1: 3}}
    member.close()


def test_a_rebalance_says_what_triggered_it_and_who_had_to_rejoin(kafka: Cluster, member: Static) -> None:
    assert member.join() == 0
    last = kafka.group("billing").last_rebalance
    assert (last.triggers, last.stopped) == (["leader-rejoined"], [member.id])
    assert kafka.group("billing").rebalances[0].stopped == []


def test_causes_that_do_not_count(kafka: Cluster, member: Static) -> None:
    with kafka.rebalances("billing", exactly=0, except_causes=["leader_rejoined"]):
        assert member.join() == 0
    with pytest.raises(RebalanceSeen), kafka.rebalances("billing", exactly=0, except_causes=["new-member"]):
        assert member.join() == 0


def test_names_of_a_test_are_purged(kafka: Cluster) -> None:
    with kafka.namespace("a test/1") as names:
        topic = names.topic("orders", 2)
        assert topic.startswith("a-test-1-")
        assert topic.endswith("-orders")
        member = Static(kafka, names("billing"), "billing-1")
        assert member.join() == 0
        assert (kafka.topics(), kafka.groups()) == ({topic: 2}, [names("billing")])
        with kafka.namespace("a test/1") as others:
            assert others("orders") != names("orders")
        assert kafka.topics() == {topic: 2}
    assert (kafka.topics(), kafka.groups()) == ({}, [])
    member.close()


def test_a_leader_and_a_coordinator_of_one_node_cannot_be_moved(kafka: Cluster) -> None:
    for verb, fields in (("move", {"group": "billing", "node": 2}), ("leader", {"topic": "orders", "partition": 0, "node": 2})):
        with pytest.raises(ControlError, match="the cluster has one node") as refused:
            kafka.control.post(f"/v1/clusters/{kafka.id}/coordinator/{verb}", fields)
        assert refused.value.status == 409


def test_connections_name_the_client_s_software(kafka: Cluster) -> None:
    with Client(int(kafka.bootstrap.rpartition(":")[2]), client_id="app") as client:
        assert client.ask(ApiVersionsRequest("librdkafka", "2.16"), 3).error_code == 0
        assert [(each["client_id"], each["software"]) for each in kafka.connections()] == [("app", "librdkafka 2.16")]


FAULTS = [{"api": "Heartbeat", "error": "NOT_COORDINATOR"}, {"api": "OffsetCommit", "group": "billing", "drop": True}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("faults.json", json.dumps(FAULTS)),
        ("wrapped.json", json.dumps({"faults": FAULTS})),
        ("faults.yaml", "- api: Heartbeat\n  error: NOT_COORDINATOR\n- api: OffsetCommit\n  group: billing\n  drop: true\n"),
    ],
)
def test_faults_of_a_file(kafka: Cluster, member: Static, tmp_path: Path, name: str, text: str) -> None:
    if name.endswith("yaml"):
        pytest.importorskip("yaml", reason="PyYAML is not installed for this Python")
    (tmp_path / name).write_text(text)
    beat, commit = kafka.faults.load(tmp_path / name)
    assert member.heartbeat() == 16
    assert (beat.hits, commit.hits, len(kafka.faults.list())) == (1, 0, 2)
    with pytest.raises(FaultNotFired), commit:
        ...


def test_a_wrong_file_installs_nothing_and_is_named(kafka: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    for text, words in (("[", "faults.json"), ("[]", "a list of faults"), ("3", "a list of faults")):
        path.write_text(text)
        with pytest.raises(ValueError, match=words):
            kafka.faults.load(path)
    path.write_text(json.dumps([FAULTS[0], {"api": "Heartbit", "drop": True}]))
    with pytest.raises(ControlError, match="Heartbit"):
        kafka.faults.load(path)
    assert kafka.faults.list() == []


def test_without_a_parser_of_yaml_one_line_names_the_extra(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "faults.yaml").write_text("- drop: true\n")
    with pytest.raises(ValueError, match=r"pip install tenure\[yaml\]"):
        kafka.faults.load(tmp_path / "faults.yaml")


def test_a_log_that_is_late_holds_everything_up(kafka: Cluster, member: Static) -> None:
    other = Static(kafka, "refunds", "refunds-1")
    assert other.join() == 0
    with kafka.fault(api="OffsetCommit", log="late", late_ms=400):
        begin = time.monotonic()
        member.client.send(member.commit_request("orders", 5), 8)
        while not kafka.faults.list()[0]["hits"]:
            ...
        assert other.heartbeat() == 0  # of another shard: the broker writes in its loop
        waited = time.monotonic() - begin
    assert waited > 0.35
    assert kafka.group("billing").committed("orders") == 5
    assert not any("suspended" in line for line in kafka.log_lines())
    other.close()


def test_a_session_that_ends_while_the_disk_hangs_goes_on(kafka: Cluster) -> None:
    """The broker was late itself, so its members are not judged by that time."""
    kafka.topic("orders", 1)
    quick = Static(kafka, "billing", "billing-1", session_ms=500)
    assert quick.join() == 0
    begin = time.monotonic()
    with kafka.fault(api="OffsetCommit", log="late", late_ms=1500):
        assert quick.commit("orders", 1) == 0
    assert time.monotonic() - begin > 1.4  # its own reply waits for the disk too
    assert quick.heartbeat() == 0
    quick.close()


def test_a_restart_ends_a_pause(kafka: Cluster, member: Static) -> None:
    kafka.pause(60)
    kafka.restart("kill")
    with Client(int(kafka.bootstrap.rpartition(":")[2])) as client:
        assert client.ask(ApiVersionsRequest("t", "1"), 3).error_code == 0


def test_a_paused_broker_answers_no_parked_request(kafka: Cluster) -> None:
    kafka.topic("orders", 1)
    first = Static(kafka, "billing", "billing-1")
    assert first.join() == 0
    kafka.pause(0.3)
    with pytest.raises(ControlError, match="paused"):
        kafka.advance(60)
    begin = time.monotonic()
    assert first.heartbeat() == 0
    assert time.monotonic() - begin > 0.2
    first.close()


def test_a_member_that_comes_back_is_waited_for(kafka: Cluster, member: Static) -> None:
    with pytest.raises(AssertionError, match=r"billing-1 has not come back .*\n(.*\n)*.*joined the empty group"):
        kafka.group("billing").wait_kept("billing-1", timeout=0.05)
    again = Static(kafka, "billing", "billing-1")
    later = threading.Timer(0.2, again.join)
    later.start()
    kafka.group("billing").wait_kept("billing-1")
    later.join()
    again.close()


def test_an_older_broker_is_one_that_serves_older_versions(kafka: Cluster) -> None:
    newest = kafka.versions()
    kafka.topic("orders", 2)
    kafka.limit_versions({"OffsetCommit": 7, "heartbeat": [1, 3], "DeleteGroups": None})
    limited = kafka.versions()
    assert (limited["OffsetCommit"], limited["Heartbeat"]) == ([newest["OffsetCommit"][0], 7], [1, 3])
    assert newest.keys() - limited.keys() == {"DeleteGroups"}
    port = int(kafka.bootstrap.rpartition(":")[2])
    with Client(port) as client:
        told = client.ask(ApiVersionsRequest("test", "1"), 3).api_keys
        assert {api.api_key: [api.min_version, api.max_version] for api in told if api.api_key in (8, 12, 42)} == {8: limited["OffsetCommit"], 12: [1, 3]}
        client.send(HeartbeatRequest("g", 1, "m", None), 4)
        assert client.await_close()
    with Client(port) as client:
        assert client.ask(HeartbeatRequest("g", 1, "m", None), 3).error_code == 25
    assert kafka.topics() == {"orders": 2}
    kafka.restart()
    assert kafka.versions() == limited
    kafka.limit_versions({})
    assert kafka.versions() == newest
    kafka.limit_versions({"Fetch": 11})
    kafka.reset()
    assert kafka.versions() == newest


@pytest.mark.parametrize(
    ("apis", "told"),
    [
        ({"OffsetComit": 7}, "there is no API 'OffsetComit'"),
        ({"ApiVersions": 0}, "ApiVersions cannot be limited"),
        ({"Heartbeat": [3, 1]}, "is no limit"),
        ({"Heartbeat": "3"}, "is no limit"),
        ({"Heartbeat": True}, "is no limit"),
        ({"Heartbeat": [40, 41]}, "none of these versions is served"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(kafka: Cluster, apis: dict[str, object], told: str) -> None:
    with pytest.raises(ControlError, match=told) as refused:
        kafka.limit_versions(apis)
    assert (refused.value.status, bool(refused.value.hint)) == (400, True)
