"""`tenure serve --nodes N`: nodes are started, restarted and stopped together; an impossible start prints one clear line."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from broker.runtime.start import SUPERVISOR, ExitCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest
from tests.nodes.cluster import Nodes, consecutive_ports
from tests.running import Broker, Client, environment, start, wait_until

pytestmark = pytest.mark.once  # processes and signals do not depend on the Python version
SECONDS = 20


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path / "data", 2, "cluster.node.timeout.ms=1500")
    yield nodes
    nodes.close()


def refused(*arguments: str) -> tuple[int, list[str]]:
    """Run `tenure serve` with arguments that it must refuse; returns the exit code and its error lines."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tenure", "serve", *arguments], capture_output=True, text=True, env=environment(), timeout=SECONDS, check=False
    )
    return done.returncode, [line for line in done.stderr.splitlines() if line.startswith("tenure: ")]


def listening_on(port: int) -> socket.socket | None:
    with suppress(OSError):
        return socket.create_server(("127.0.0.1", port))
    return None


def pids(nodes: Nodes) -> list[int]:
    return [nodes.pid(id) for id in nodes.ids]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_all_nodes_in_order(nodes: Nodes, number: signal.Signals) -> None:
    nodes.start()
    assert nodes.supervisor is not None
    started = pids(nodes)
    nodes.supervisor.signal(number)
    assert nodes.supervisor.wait() == 0, nodes.supervisor.errors()
    assert not any(map(alive, started))
    assert sorted(line["node_id"] for line in nodes.lines if line["event"] == "stopped") == [1, 2], nodes.supervisor.errors()
    assert nodes.lines[-1]["event"] == "all nodes are stopped"


def test_a_second_signal_kills_nodes_that_do_not_stop(nodes: Nodes) -> None:
    nodes.start()
    assert nodes.supervisor is not None
    started = pids(nodes)
    os.kill(started[0], signal.SIGSTOP)
    nodes.supervisor.signal(signal.SIGTERM)
    nodes.supervisor.await_line("stopping all nodes")
    nodes.supervisor.signal(signal.SIGTERM)
    assert nodes.supervisor.wait() == 128 + signal.SIGTERM
    wait_until(lambda: not any(map(alive, started)))


def test_a_killed_node_is_restarted_on_its_port(nodes: Nodes) -> None:
    nodes.start()
    before = pids(nodes)
    nodes.kill(2)
    nodes.await_settled(2)
    nodes.await_settled()
    assert nodes.pid(1) == before[0]
    assert nodes.pid(2) != before[1]
    (line,) = [line for line in nodes.lines if line["event"] == "node has ended and is started again"]
    assert (line["node"], line["ended"]) == (2, "SIGKILL")


def test_a_node_that_cannot_restart_is_retried_after_growing_pauses(nodes: Nodes) -> None:
    nodes.start()
    nodes.kill(2)
    with wait_until(lambda: listening_on(nodes.port(2))):
        ended = wait_until(lambda: (pauses := [line for line in nodes.lines if "pause_ms" in line])[3:] and pauses, SECONDS)
        assert [line["ended"] for line in ended[1:]] == [f"exit code {ExitCode.LISTEN.value}"] * (len(ended) - 1)
        assert all(2 * ended_process["pause_ms"] == then["pause_ms"] for ended_process, then in pairwise(ended[1:]))
        assert nodes.is_settled(2)
    nodes.await_settled()
    assert nodes.supervisor is not None
    (error_line,) = [line for line in nodes.supervisor.lines if line.startswith("tenure: ")]
    assert error_line.startswith(f"tenure: cannot listen on 127.0.0.1:{nodes.port(2)}: ")


def test_a_node_that_does_not_answer_is_killed_and_restarted(nodes: Nodes) -> None:
    nodes.start()
    frozen = nodes.pid(1)
    os.kill(frozen, signal.SIGSTOP)
    wait_until(lambda: any(line["event"] == "node does not answer and is killed" for line in nodes.lines), SECONDS)
    nodes.await_settled()
    assert nodes.pid(1) != frozen


def test_nodes_end_with_a_killed_supervisor(nodes: Nodes) -> None:
    nodes.start()
    started = pids(nodes)
    nodes.close()
    wait_until(lambda: not any(map(alive, started)))


def test_a_node_may_be_started_and_stopped_by_hand(nodes: Nodes) -> None:
    nodes.start()
    nodes.ids = range(1, 4)
    by_hand = Broker("--node-id", "3", "--listen", f"127.0.0.1:{nodes.port(3)}", "--data", str(nodes.data))
    try:
        nodes.await_settled()
        assert int(nodes.status(3)["status.groups.partitions"]) > 10
        assert by_hand.stop() == 0
    finally:
        by_hand.kill()
    nodes.await_settled(3)
    assert nodes.stop() == 0


def test_nodes_reach_each_other_where_they_listen_not_where_clients_are_told_to_connect(tmp_path: Path) -> None:
    """As in a container, in which the advertised name does not resolve and the published port is not open."""
    first = consecutive_ports(2)
    supervisor = Broker(
        "--nodes", "2", "--listen", f"0.0.0.0:{first}", "--advertise", "tenure.example.invalid:9092", "--data", str(tmp_path / "data"), listeners=1
    )
    try:
        for id in (1, 2):
            supervisor.await_line(f'"event": "node serves", "node": {id}')
        with Client(first) as client:
            created = client.ask(CreateTopicsRequest([CreatableTopic("topic", 6, 1)], 5_000), 7)
            assert [topic.error_code for topic in created.topics] == [0]
        for port in (first, first + 1):
            with Client(port) as client:
                reply = client.ask(MetadataRequest(None), 12)
            assert [(node.node_id, node.host, node.port) for node in reply.brokers] == [(id, "tenure.example.invalid", 9091 + id) for id in (1, 2)]
            assert "topic" in [topic.name for topic in reply.topics]
        assert supervisor.stop() == 0
        assert not [line for line in supervisor.lines if '"warning"' in line and "other machines" not in line and "experimental" not in line]
    finally:
        supervisor.kill()


def test_a_node_that_waits_for_a_frozen_controller_says_so_and_can_be_stopped(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path / "data", 2, "cluster.node.timeout.ms=0")
    nodes.start()
    frozen = nodes.controller()
    nodes.signal(signal.SIGSTOP, frozen)
    try:
        with start("--node-id", "3", "--listen", "127.0.0.1:0", "--data", str(nodes.data)) as waiting:
            assert waiting.stderr is not None
            line = next(line for line in waiting.stderr if "the controller has not sent its topics yet" in line)
            assert json.loads(line)["controller"] == frozen
            waiting.send_signal(signal.SIGTERM)
            try:
                assert waiting.wait(SECONDS / 4) == 0
            finally:
                waiting.kill()
            assert "stopped before the node served" in waiting.stderr.read()
    finally:
        nodes.signal(signal.SIGCONT, frozen)
        nodes.close()


def test_a_port_in_use_is_reported_in_one_line_and_no_node_is_started(tmp_path: Path) -> None:
    first = consecutive_ports(2)
    with socket.create_server(("127.0.0.1", first + 1)):
        code, lines = refused("--nodes", "2", "--listen", f"127.0.0.1:{first}", "--data", str(tmp_path / "data"))
    assert code == ExitCode.LISTEN
    (line,) = lines
    assert line.startswith(f"tenure: node 2 cannot listen on 127.0.0.1:{first + 1}: ")
    assert not (tmp_path / "data").exists()


def test_a_node_that_cannot_start_ends_all_nodes(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    code, lines = refused("--nodes", "2", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    assert code == ExitCode.DIRECTORY
    assert lines == [f"tenure: data directory {tmp_path / 'data'}: not a directory"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--nodes", "3", "--listen", "127.0.0.1:1-2"), "--listen 127.0.0.1:1-2: 3 nodes need 3 ports, and this range has 2"),
        (("--listen", "127.0.0.1:1-2"), "--listen 127.0.0.1:1-2: a range of ports is for --nodes N"),
        (("--nodes", "2", "--set", "node.id=4"), "--nodes 2: node.id=4 is set too, but each node gets its own id; leave it out"),
        (("--nodes", "65"), "--nodes 65: must be a whole number from 1 to 64"),
        (("--nodes", "2", "--listen", "127.0.0.1:65535"), "node 2 would listen on port 65536, and 65535 is the last one"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(arguments: tuple[str, ...], line: str) -> None:
    assert refused(*arguments) == (ExitCode.CONFIG, [f"tenure: {line}"])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this scheduling policy")
def test_nodes_do_not_preempt_the_clients_that_they_share_cores_with(nodes: Nodes) -> None:
    nodes.start()
    assert [os.sched_getscheduler(nodes.pid(node)) for node in nodes.ids] == [os.SCHED_BATCH] * len(nodes.ids)


def test_the_log_lines_of_a_node_carry_its_id(nodes: Nodes) -> None:
    nodes.start()
    assert nodes.supervisor is not None
    listening = wait_until(lambda: (lines := [line for line in nodes.lines if line["event"] == "listening"])[1:] and lines)
    assert sorted((line["node_id"], line["port"]) for line in listening) == [(id, nodes.port(id)) for id in nodes.ids]


def test_a_node_whose_supervisor_ended_before_it_began_stops(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(SECONDS)
    command = [sys.executable, "-P", "-m", "tenure", "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--set", "exit.with.parent=true"]
    settings = ["--set", "cluster.nodes=2", "--set", "node.id=1"]
    env = environment() | {SUPERVISOR: str(ended.pid)}
    done = subprocess.run([*command, *settings], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert "the process that started this one has ended" in done.stderr
