"""The process is stopped for longer than a session (SIGSTOP, a sleeping laptop): requests sent in that time count."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from protocol.messages.metadata import MetadataRequest
from tests.running import Broker, Client, broker
from tests.support.peers import LOOPS, NO_TOPIC, becomes_true, bytes_of, clients, close_reasons, creating, defects, is_served, serve_options

pytestmark = [
    pytest.mark.once,  # no dependence on the Python version
    pytest.mark.skipif(sys.platform != "linux", reason="asks /proc whether the process is stopped"),
]

IDLE_MS = 1500  # long enough for a busy machine to answer three hundred clients
STOPPED_SECONDS = 2.0


def stopped(started: Broker) -> bool:
    return Path(f"/proc/{started.pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"


@pytest.mark.parametrize("loop", LOOPS)
def test_connections_with_requests_are_answered_and_silent_ones_closed(loop: str) -> None:
    with broker(*serve_options(loop, f"connections.max.idle.ms={IDLE_MS}")) as started:
        with clients(20, started.port) as silent, clients(300, started.port) as talking, clients(20, started.port) as half:
            assert all(is_served(client) for client in (*silent, *talking, *half))
            started.signal(signal.SIGSTOP)
            assert becomes_true(lambda: stopped(started))
            time.sleep(STOPPED_SECONDS / 2)
            for client in talking:
                client.socket.sendall(NO_TOPIC)
            for client in half:
                client.socket.sendall(NO_TOPIC[:11])
            time.sleep(STOPPED_SECONDS / 2)
            started.signal(signal.SIGCONT)
            for client in talking:
                assert client.receive(MetadataRequest([]), 12).brokers
            for client in half:
                client.socket.sendall(NO_TOPIC[11:])
                assert client.receive(MetadataRequest([]), 12).brokers
            assert all(client.await_close() for client in silent)
        assert started.stop() == 0
        assert len([reason for reason in close_reasons(started) if "idle" in reason]) == len(silent)
        assert defects(started) == []


@pytest.mark.parametrize("loop", LOOPS)
def test_connections_opened_while_stopped_are_served(loop: str) -> None:
    with broker(*serve_options(loop, f"connections.max.idle.ms={IDLE_MS}")) as started:
        started.signal(signal.SIGSTOP)
        assert becomes_true(lambda: stopped(started))
        with clients(200, started.port) as waiting:
            for number, client in enumerate(waiting):
                client.socket.sendall(bytes_of(creating(f"of-{number}"), 7))
            time.sleep(STOPPED_SECONDS)
            started.signal(signal.SIGCONT)
            for client in waiting:
                assert client.receive(creating(""), 7).topics[0].error_code == 0
        assert close_reasons(started) == []


def test_a_signal_sent_to_a_stopped_process_ends_it_when_continued() -> None:
    with broker("--profile", "test") as started, Client(started.port) as client:
        assert is_served(client)
        started.signal(signal.SIGSTOP)
        assert becomes_true(lambda: stopped(started))
        started.signal(signal.SIGTERM)
        started.signal(signal.SIGCONT)
        assert started.wait() == 0
