"""The life of a cluster, its clock, and its verbs, by way of the library."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from tenure.testing import Broker, Cluster, Control, ControlError, NotReached, Process, RebalanceSeen
from tests.running import Client, environment
from tests.support.controlled import code_under_test, port_of
from tests.testing.groups import COMMIT, Static, wait_until_refused


@pytest.fixture
def member(kafka: Cluster) -> Iterator[Static]:
    kafka.topic("orders", 2)
    joined = Static(kafka, "billing", "billing-1")
    assert joined.join() == 0
    yield joined
    joined.close()


def test_clusters_know_nothing_of_each_other(process: Process) -> None:
    with Cluster.make(process.control, topics={"orders": 3}) as one, Cluster.make(process.control, settings={"num.partitions": 5}) as other:
        assert one.bootstrap != other.bootstrap
        assert (one.topics(), other.topics()) == ({"orders": 3}, {})
        one.write("orders", "a", {"key": "k", "value": "b", "partition": 2})
        assert [record["value"] for record in one.records("orders")] == ["a", "b"]
        with pytest.raises(ControlError, match="no topic 'orders'"):
            other.records("orders")
        with Static(one, "g", "i").client as client, Static(other, "g", "i").client as stranger:
            assert {client.ask(ApiVersionsRequest("t", "1"), 3).error_code, stranger.ask(ApiVersionsRequest("t", "1"), 3).error_code} == {0}
        assert one.groups() == other.groups() == []


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_restart_keeps_what_was_acknowledged_and_the_address(kafka: Cluster, member: Static, how: str) -> None:
    assert member.commit("orders", 7) == 0
    kafka.write("orders", "a")
    bootstrap = kafka.bootstrap
    kafka.restart(how)
    assert kafka.control.get(f"/v1/clusters/{kafka.id}")["bootstrap"] == bootstrap
    assert kafka.group("billing").committed("orders") == 7
    assert [record["value"] for record in kafka.records("orders")] == ["a"]
    assert kafka.group("billing").member(instance="billing-1").id == member.id
    again = Static(kafka, "billing", "billing-1")
    again.id, again.generation = member.id, member.generation
    assert again.heartbeat() == 0
    again.close()


def test_while_it_is_away_connections_are_refused(kafka: Cluster) -> None:
    restarting = threading.Thread(target=lambda: kafka.restart("kill", away=0.5))
    restarting.start()
    wait_until_refused(port_of(kafka))
    restarting.join()
    with Client(port_of(kafka)) as client:
        assert client.ask(ApiVersionsRequest("t", "1"), 3).error_code == 0


def test_connections_can_be_refused_and_cut(kafka: Cluster) -> None:
    with Client(port_of(kafka), client_id="cut") as client:
        assert client.ask(ApiVersionsRequest("t", "1"), 3).error_code == 0
        kafka.refuse(0.3)
        with pytest.raises(ConnectionRefusedError):
            Client(port_of(kafka))
        assert client.ask(ApiVersionsRequest("t", "1"), 3).error_code == 0
        assert [each["client_id"] for each in kafka.connections()] == ["cut"]
        assert kafka.close_connections("cut") == 1
        assert client.await_close()
    deadline = time.monotonic() + 10
    while True:
        try:
            Client(port_of(kafka)).socket.close()
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_frozen_broker_accepts_and_answers_later(kafka: Cluster) -> None:
    kafka.pause(0.3)
    begin = time.monotonic()
    with Client(port_of(kafka)) as client:
        assert client.ask(ApiVersionsRequest("t", "1"), 3).error_code == 0
    assert time.monotonic() - begin > 0.2


def test_an_expired_member_is_gone_by_the_rule_of_sessions(kafka: Cluster, member: Static) -> None:
    begin = time.monotonic()
    kafka.group("billing").member(instance="billing-1").expire()
    assert time.monotonic() - begin < 5
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    last = kafka.group("billing").last_rebalance
    assert last.cause == "session-expired"
    assert "billing-1" in last.sentence


def test_time_passes_in_order(kafka: Cluster, member: Static) -> None:
    before = kafka.time_ms()
    assert kafka.advance(44)["expired"] == []
    assert member.heartbeat() == 0
    assert kafka.advance(44)["expired"] == []
    happened = kafka.advance(2)
    assert happened["expired"] == [{"group": "billing", "member": member.id}]
    assert happened["rebalances"] == {"billing": 2}
    assert 89_000 < kafka.time_ms() - before < 150_000
    assert kafka.group("billing").state == "Empty"


def test_retention_and_offsets_expire(process: Process) -> None:
    settings = {"log.retention.ms": 60_000, "log.segment.bytes": 1_048_576, "log.retention.check.interval.ms": 10_000, "offsets.retention.minutes": 5}
    with Cluster.make(process.control, topics={"orders": 1}, settings=settings) as kafka:
        member = Static(kafka, "billing", "billing-1")
        assert (member.join(), member.commit("orders", 1)) == (0, 0)
        kafka.write("orders", "x" * 1000)
        kafka.advance(100)
        assert kafka.group("billing").state == "Empty"
        kafka.write("orders", "y")
        assert kafka.advance(3_600)["offsets_removed"] == 1
        assert kafka.groups() == []
        member.close()


def test_reset_is_a_new_cluster_on_the_same_port(kafka: Cluster, member: Static) -> None:
    kafka.fault(api="Fetch", drop=True)
    kafka.advance(1000)
    bootstrap = kafka.bootstrap
    kafka.reset(topics={"refunds": 2})
    assert kafka.control.get(f"/v1/clusters/{kafka.id}")["bootstrap"] == bootstrap
    assert (kafka.topics(), kafka.groups(), kafka.end_faults()) == ({"refunds": 2}, [], [])
    assert abs(kafka.time_ms() - time.time() * 1000) < 60_000


def test_before_means_stored(kafka: Cluster, member: Static) -> None:
    with kafka.fault(api="OffsetCommit", group="billing", error="REQUEST_TIMED_OUT", apply="before"):
        assert member.commit("orders", 9) == ErrorCode.REQUEST_TIMED_OUT
    with kafka.fault(api="OffsetCommit", drop=True, apply="before"):
        member.client.send(member.commit_request("orders", 11, 1), COMMIT)
        assert member.client.await_close()
    kafka.kill()
    group = kafka.group("billing")
    assert (group.committed("orders", 0), group.committed("orders", 1)) == (9, 11)


def test_never_means_not_done(kafka: Cluster, member: Static) -> None:
    with kafka.fault(api="OffsetCommit", topic="orders", partition=0, error="REQUEST_TIMED_OUT"):
        assert member.commit("orders", 9) == ErrorCode.REQUEST_TIMED_OUT
    assert kafka.group("billing").committed("orders") == -1


@pytest.mark.parametrize("trouble", ["full", "io-error"])
def test_a_failing_log_is_a_failing_log(kafka: Cluster, member: Static, trouble: str) -> None:
    with kafka.fault(api="OffsetCommit", log=trouble):
        assert member.commit("orders", 5) != 0
    deadline = time.monotonic() + 20
    while member.commit("orders", 6):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert kafka.group("billing").committed("orders") == 6
    assert any("log suspended" in line for line in kafka.log_lines())


def test_a_coordinator_that_forgets_loads_again(kafka: Cluster, member: Static) -> None:
    assert member.commit("orders", 4) == 0
    group = kafka.group("billing")
    group.forget_coordinator(0.3)
    assert member.heartbeat() == ErrorCode.NOT_COORDINATOR
    deadline = time.monotonic() + 10
    while (code := member.heartbeat()) == ErrorCode.NOT_COORDINATOR:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert code == 0
    assert group.committed("orders") == 4


def test_no_rebalance_and_rebalances(kafka: Cluster, member: Static) -> None:
    with kafka.no_rebalance("billing"):
        again = Static(kafka, "billing", "billing-1")  # the process starts anew
        assert again.join() == 0
    assert kafka.group("billing").restarts_kept == 1
    assert kafka.group("billing").kept("billing-1")
    with kafka.rebalances("billing", exactly=1, cause="leader-rejoined"):
        assert again.join() == 0
    with pytest.raises(RebalanceSeen, match=r"0 rebalances were expected, and 1 happened:\n.*billing-1, the leader, rejoined") as seen, kafka.no_rebalance("billing"):
        assert again.join() == 0
    assert "its history:" in str(seen.value)
    with kafka.no_rebalance("billing", except_causes=["leader-rejoined"]):
        assert again.join() == 0
    again.close()


def test_each_record_once(kafka: Cluster, member: Static) -> None:
    kafka.write("orders", *({"value": str(number), "partition": 0} for number in range(5)))
    with pytest.raises(AssertionError, match=r"partition 0: 5 of 5 records are not committed"):
        kafka.assert_each_record_once("orders", "billing")
    assert member.commit("orders", 5) == 0
    kafka.assert_each_record_once("orders", "billing")
    assert (member.commit("orders", 2), member.commit("orders", 5)) == (0, 0)
    with pytest.raises(AssertionError, match="partition 0: read again from 2 after 5 was committed"):
        kafka.assert_each_record_once("orders", "billing")


def test_waits(kafka: Cluster, member: Static) -> None:
    assert kafka.wait_group("billing", stable=True, members=1)["generation"] == 1
    with pytest.raises(NotReached, match="it is Stable with 1 members in generation 1"):
        kafka.wait_group("billing", members=2, timeout=0.05)
    with pytest.raises(NotReached, match="nothing is committed"):
        kafka.wait_committed("billing", "orders", timeout=0.05)
    later = threading.Timer(0.1, member.commit, ("orders", 3))
    later.start()
    assert kafka.wait_committed("billing", "orders", offset=3) == 3
    beat = threading.Timer(0.1, member.heartbeat)
    beat.start()
    assert kafka.wait_request(api="Heartbeat", group="billing")[0]["client_id"] == "client-billing-1"
    beat.join()
    with pytest.raises(NotReached, match="no such request came"):
        kafka.wait_request(api="Heartbeat", timeout=0.05)


def test_the_last_requests_and_the_story_of_a_failure(kafka: Cluster, member: Static) -> None:
    with kafka.fault(api="Heartbeat", error="REBALANCE_IN_PROGRESS"):
        assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    last = kafka.requests(1, api="Heartbeat")[0]
    assert (last["error"], last["client_id"], last["fault"]) == ("REBALANCE_IN_PROGRESS", "client-billing-1", 1)
    story = kafka.story()
    assert "billing-1 joined the empty group" in story
    assert "Heartbeat v4 of client-billing-1: REBALANCE_IN_PROGRESS" in story


def test_purge_removes_what_has_the_prefix(kafka: Cluster, member: Static) -> None:
    kafka.topic("test-1-orders")
    other = Static(kafka, "test-1-billing", "x")
    assert other.join() == 0
    assert kafka.purge("test-1-") == {"topics": ["test-1-orders"], "groups": ["test-1-billing"]}
    assert (kafka.topics(), kafka.groups()) == ({"orders": 2}, ["billing"])
    other.close()


def test_a_rebalance_by_force(kafka: Cluster, member: Static) -> None:
    kafka.group("billing").rebalance()
    assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert member.join() == 0
    assert kafka.wait_group("billing", stable=True)["members"][0]["instance"] == "billing-1"


def test_wrong_calls_name_the_remedy(kafka: Cluster, process: Process) -> None:
    for call, words in (
        (lambda: kafka.control.post(f"/v1/clusters/{kafka.id}/groups/expire", {"grup": "g"}), "did you mean 'group'"),
        (lambda: kafka.control.post(f"/v1/clusters/{kafka.id}/groups/expire", {}), "group is missing"),
        (lambda: kafka.group("none").state, "there is no group 'none'"),
        (lambda: kafka.control.post("/v1/clusters/none/reset"), "clusters: default"),
        (lambda: kafka.control.post(f"/v1/clusters/{kafka.id}/grops/expire"), "GET /v1 lists the calls"),
        (lambda: kafka.control.get(f"/v1/clusters/{kafka.id}/reset"), "takes POST, not GET"),
        (lambda: kafka.restart("slowly"), "none of stop, kill"),
        (lambda: kafka.topic("orders", 0), "less than 1"),
        (lambda: Cluster.make(process.control, settings={"group.max.sise": 3}), "group.max.size"),
        (lambda: Cluster.make(process.control, settings={"log.dirs": "/tmp"}), "the control's to choose"),
    ):
        with pytest.raises(ControlError, match=words):
            call()


def test_only_who_knows_the_token_gets_in(process: Process) -> None:
    stranger = Control(process.control.url, "wrong")
    with pytest.raises(ControlError, match="token") as refused:
        stranger.get("/v1/clusters")
    assert refused.value.status == 401
    stranger.close_all()
    page = Control(process.control.url.replace("127.0.0.1", "localhost"), process.control.token)
    assert "clusters" in page.get("/v1/clusters")
    page.close_all()
    verbs = process.control.get("/v1")["verbs"]
    described = process.control.get("/v1/openapi.json")["paths"]
    assert {verb["call"].split()[1] for verb in verbs} == set(described)


def test_a_directory_survives_a_kill(tmp_path: Path) -> None:
    with code_under_test():
        kafka = Broker(topics={"orders": 1}, data=tmp_path / "data")
        member = Static(kafka, "billing", "billing-1")
        assert member.join() == 0
        with kafka.fault(api="OffsetCommit", error="REQUEST_TIMED_OUT", apply="before"):
            assert member.commit("orders", 3) == ErrorCode.REQUEST_TIMED_OUT
        member.close()
        kafka.process.kill()
        kafka.close()
        with Broker(data=tmp_path / "data") as again:
            assert again.group("billing").committed("orders") == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--test-control", "0.0.0.0:0"], "--test-control-anywhere"),
        (["--test-control", "nowhere"], "nowhere"),
        (["--test-control", "127.0.0.1:0", "--data", "DATA"], "--test-control-on-data"),
    ],
)
def test_what_is_not_safe_is_refused(tmp_path: Path, arguments: list[str], words: str) -> None:
    given = [str(tmp_path) if word == "DATA" else word for word in arguments]
    command = [sys.executable, "-P", "-m", "tenure", "serve", "--profile", "test", *given]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(), check=False, stdin=subprocess.DEVNULL)
    assert ended.returncode != 0
    assert words in ended.stderr


def test_an_image_s_data_directory_is_not_for_tests(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "tenure", "serve", "--profile", "test", "--test-control", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment(TENURE_LOG_DIRS=str(tmp_path)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        assert [line.split()[0] for line in (child.stdout.readline(), child.stdout.readline())] == ["listening", "control"]
        child.kill()
    assert list(tmp_path.iterdir()) == []


def test_an_ordinary_broker_loads_none_of_it() -> None:
    code = "import sys, broker.server, cli.serve; sys.exit(any(name.startswith(('broker.control', 'broker.faults', 'broker.http', 'h11')) for name in sys.modules))"
    assert subprocess.run([sys.executable, "-P", "-c", code], env=environment(), check=False, timeout=60).returncode == 0


def test_the_first_cluster_is_as_small_as_the_others(process: Process) -> None:
    with pytest.raises(ControlError, match="there are 3 partitions of groups"):
        process.control.post("/v1/clusters/default/coordinator/forget", {"partition": 3})
