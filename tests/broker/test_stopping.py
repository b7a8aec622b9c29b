"""SIGTERM, SIGINT and SIGHUP: the broker stops in order and in time, whatever its clients and its disk do."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from struct import unpack

import pytest

from broker.runtime.start import ExitCode
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreateTopicsResponse
from protocol.messages.metadata import MetadataRequest
from tests.running import Broker, Client, broker, environment, start
from tests.support.peers import (
    EVERY_TOPIC,
    LOOPS,
    NO_TOPIC,
    STOP_SECONDS,
    SlowDisk,
    arguments_for,
    becomes_true,
    bytes_of,
    clients,
    creating,
    defects,
    frames_until_end,
    is_served,
    log_lines,
    refused,
    send_until_stuck,
    serve_options,
)

pytestmark = pytest.mark.once  # no dependence on the Python version

STORMERS = 8
CREATED_EACH = 300


def timed_stop(started: Broker, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
    begin = time.monotonic()
    started.signal(number)
    return started.wait(), time.monotonic() - begin


def idle_clients(started: Broker, stack: ExitStack) -> None:
    for client in stack.enter_context(clients(200, started.port)):
        client.send(MetadataRequest([]), 12)


def half_sent_clients(started: Broker, stack: ExitStack) -> None:
    for cut, client in enumerate(stack.enter_context(clients(len(NO_TOPIC), started.port))):
        client.socket.sendall(NO_TOPIC[:cut])


def unread_clients(started: Broker, stack: ExitStack) -> None:
    for client in stack.enter_context(clients(3, started.port)):
        send_until_stuck(client.socket, EVERY_TOPIC * 100, 1 << 26, quiet=0.1)


def no_clients(started: Broker, stack: ExitStack) -> None:
    """No client is connected."""


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("clients_are", [no_clients, idle_clients, half_sent_clients, unread_clients])
def test_idle_half_sent_and_unread_connections_do_not_delay_the_stop(loop: str, clients_are: Callable[[Broker, ExitStack], None]) -> None:
    with broker(*serve_options(loop)) as started, ExitStack() as stack:
        clients_are(started, stack)
        code, seconds = timed_stop(started)
    assert (code, defects(started)) == (0, [])
    assert seconds < STOP_SECONDS
    assert [entry["event"] for entry in log_lines(started)][-2:] == ["stopping", "stopped"]


def test_an_interrupt_stops_the_broker_like_sigterm() -> None:
    with broker("--profile", "test") as started, Client(started.port) as client:
        assert is_served(client)
        assert timed_stop(started, signal.SIGINT)[0] == 0
        assert client.await_close()
    assert log_lines(started, "stopping")[0]["signal"] == "SIGINT"


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_a_closed_terminal_stops_the_broker_like_sigterm(tmp_path: Path, nodes: str) -> None:
    arguments = ("--data", str(tmp_path), "--listen", "127.0.0.1:0", "--nodes", nodes)
    with broker(*arguments) as started:
        started.signal(signal.SIGHUP)  # sent by the kernel and by the shell
        assert timed_stop(started, signal.SIGHUP)[0] == 0
    if nodes == "1":
        assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_nohup_keeps_the_broker_running(tmp_path: Path) -> None:
    with broker("--profile", "test", command=("nohup",)) as started, Client(started.port) as client:
        started.signal(signal.SIGHUP)
        assert is_served(client)
        assert timed_stop(started)[0] == 0
    assert log_lines(started, "stopping")[0]["signal"] == "SIGTERM"


@pytest.mark.parametrize("loop", LOOPS)
def test_no_connection_is_accepted_while_the_broker_stops(loop: str) -> None:
    with broker(*serve_options(loop)) as started, Client(started.port) as stuck:
        send_until_stuck(stuck.socket, EVERY_TOPIC * 100, 1 << 26, quiet=0.1)
        started.signal(signal.SIGTERM)
        assert becomes_true(lambda: refused(started.port), 2)
        assert started.process.poll() is None, "it ended before it could refuse a connection"
        assert started.wait() == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_replies_reach_a_client_that_reads_while_the_broker_stops(loop: str) -> None:
    with broker(*serve_options(loop)) as started, Client(started.port) as reader:
        send_until_stuck(reader.socket, EVERY_TOPIC * 100, 1 << 26, quiet=0.1)
        started.signal(signal.SIGTERM)
        frames, partial_frame = frames_until_end(reader.socket)
        assert started.wait() == 0
    assert (len(frames) > 100, partial_frame) == (True, b"")


def test_a_second_signal_ends_the_broker_at_once() -> None:
    with broker("--profile", "test") as started, Client(started.port) as stuck:
        send_until_stuck(stuck.socket, EVERY_TOPIC * 100, 1 << 26, quiet=0.1)
        started.signal(signal.SIGTERM)
        started.await_line("stopping")
        code, seconds = timed_stop(started)
    assert code == 128 + signal.SIGTERM
    assert seconds < 1
    assert log_lines(started, "stopped") == []


@pytest.mark.parametrize("loop", LOOPS)
def test_a_stop_answers_exactly_the_durable_requests(tmp_path: Path, loop: str) -> None:
    """The stop comes amid many CreateTopics requests, whose records are flushed before their replies."""
    arguments = arguments_for(tmp_path, f"event.loop={loop}", "offsets.flush=always")
    registry = tmp_path / "__tenure_topics-0" / "00000000000000000000.log"
    with broker(*arguments) as started, clients(STORMERS, started.port) as storm:
        answers: list[tuple[list[bytes], bytes]] = []
        readers = [threading.Thread(target=lambda c=client: answers.append(frames_until_end(c.socket))) for client in storm]
        for reader in readers:
            reader.start()
        for number, client in enumerate(storm):
            client.socket.sendall(b"".join(bytes_of(creating(f"t{number}-{index}"), 7) for index in range(CREATED_EACH)))
        assert becomes_true(lambda: registry.exists() and registry.stat().st_size > 2_000)
        code, seconds = timed_stop(started)
        for reader in readers:
            reader.join()
    assert (code, defects(started)) == (0, [])
    assert seconds < STOP_SECONDS
    acknowledged = [CreateTopicsResponse.decode(frame, 5, 7)[0].topics[0] for frames, _ in answers for frame in frames]
    assert all(topic.error_code == ErrorCode.NONE for topic in acknowledged)
    assert all(partial_frame == b"" for _, partial_frame in answers)
    assert 0 < len(acknowledged) < STORMERS * CREATED_EACH, "the stop was not in the middle"
    with broker(*arguments) as restarted, Client(restarted.port) as client:
        stored = {topic.name: topic.topic_id for topic in client.ask(MetadataRequest(None), 12).topics if not topic.is_internal}
    assert stored == {topic.name: topic.topic_id for topic in acknowledged}


def test_a_hanging_disk_does_not_delay_the_stop(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path)
    arguments = arguments_for(tmp_path / "data", "offsets.flush=always")
    with broker(*arguments, **disk.environment) as started, clients(2, started.port) as (held, unread):
        assert is_served(unread)
        send_until_stuck(unread.socket, EVERY_TOPIC * 100, 1 << 26, quiet=0.1)
        disk.stick()
        held.send(creating("never-durable"), 7)
        held.send(creating("never-begun"), 7)
        code, seconds = timed_stop(started)
        assert held.await_close()
    assert code == ExitCode.DISK
    assert seconds < STOP_SECONDS
    assert defects(started) == []
    assert [line for line in started.lines if line.startswith("tenure: stopped, but")], "one line reports the end"


def test_a_held_reply_leaves_during_the_stop_when_the_disk_recovers(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path)
    with broker(*arguments_for(tmp_path / "data"), **disk.environment) as started, Client(started.port) as held:
        assert is_served(held)
        disk.stick()
        held.send(creating("held"), 7)
        assert not held_reply_came(held)
        started.signal(signal.SIGTERM)
        started.await_line("stopping")
        disk.resume()
        frames, partial_frame = frames_until_end(held.socket)
        assert started.wait() == 0
    assert (len(frames), partial_frame) == (1, b"")
    assert unpack(">i", frames[0][:4]) == (2,)


def held_reply_came(client: Client) -> bool:
    """Whether a held reply arrives within a short time."""
    client.socket.settimeout(0.1)
    try:
        return bool(client.socket.recv(1))
    except TimeoutError:
        return False


def test_only_an_orderly_stop_writes_the_clean_shutdown_marker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    marker = data / ".kafka_cleanshutdown"
    disk = SlowDisk(tmp_path)
    with broker(*arguments_for(data), **disk.environment) as started, Client(started.port) as client:
        assert is_served(client)
        assert not marker.exists()
        assert started.stop() == 0
    assert marker.exists()
    with broker(*arguments_for(data), **disk.environment) as killed:
        assert not marker.exists()
        killed.kill()
    assert not marker.exists()
    with broker(*arguments_for(data), **disk.environment) as stuck, Client(stuck.port) as client:
        client.ask(creating("durable"), 7)
        disk.stick()
        client.send(creating("never-durable"), 7)
        assert not held_reply_came(client)
        assert stuck.stop() == ExitCode.DISK
    assert not marker.exists()


@pytest.mark.parametrize("delay", [0.0, 0.03, 0.06, 0.09, 0.12, 0.18])
def test_sigterm_during_the_start_ends_it_quickly_and_quietly(tmp_path: Path, delay: float) -> None:
    started = start("--profile", "test", TMPDIR=str(tmp_path))
    time.sleep(delay)  # the signal may arrive at any point of the start
    started.send_signal(signal.SIGTERM)
    output, errors = started.communicate(timeout=STOP_SECONDS)
    assert started.returncode == 0 or (started.returncode, output) == (-signal.SIGTERM, "")
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


SIGNALLED_AS_IT_RUNS = """
import os, signal, sys
from broker.server import Server
from cli import main

run = Server.run

async def signalled(self):
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1000):  # time for a handler of Python's
        pass
    return await run(self)

Server.run = signalled
sys.exit(main(["serve", *sys.argv[1:]]))
"""


@pytest.mark.plain  # replaces a method
@pytest.mark.parametrize("loop", LOOPS)
def test_a_signal_at_the_start_of_the_loop_counts_once(tmp_path: Path, loop: str) -> None:
    """Both the loop's signal handler and the one installed before it may see the signal."""
    command = (sys.executable, "-P", "-c", SIGNALLED_AS_IT_RUNS, *serve_options(loop))
    done = subprocess.run(command, env=environment(TMPDIR=str(tmp_path)), timeout=10, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert list(tmp_path.iterdir()) == []
