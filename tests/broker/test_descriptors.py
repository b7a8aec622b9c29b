"""When descriptors run out: accepting pauses, and those who are served do not notice."""

from __future__ import annotations

import resource
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from protocol.messages.metadata import MetadataRequest
from tests.broker.peers import LOOPS, NO_TOPIC, answered, cpu_seconds, create, entries, eventually, kept_in, readable
from tests.running import Broker, Client, broker

pytestmark = [
    pytest.mark.once,  # the system more than Python
    pytest.mark.skipif(sys.platform != "linux", reason="limits one process with prlimit and looks into /proc"),
]

DESCRIPTORS = 128
PEERS = 110  # more than may be served, fewer than descriptors


@contextmanager
def short_of_descriptors(directory: Path, loop: str) -> Iterator[tuple[Broker, list[socket.socket]]]:
    """A broker that may open few files, and more peers than that, each with a request."""
    arguments = kept_in(directory, f"event.loop={loop}", "offsets.flush=always")
    with broker(*arguments, command=("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")) as started, ExitStack() as stack:
        peers = [stack.enter_context(socket.create_connection(("127.0.0.1", started.port), 10)) for _ in range(PEERS)]
        for peer in peers:
            peer.sendall(NO_TOPIC)
        started.await_line("accepting pauses")
        yield started, peers


def served(peers: list[socket.socket], seconds: float) -> list[socket.socket]:
    """Those who have an answer to read after so long."""
    time.sleep(seconds)
    return readable(peers)


@pytest.mark.parametrize("loop", LOOPS)
def test_accepting_pauses_with_one_line_and_costs_nothing_while_it_does(tmp_path: Path, loop: str) -> None:
    with short_of_descriptors(tmp_path, loop) as (started, peers):
        at_first, later = -1, 0
        until = time.monotonic() + 15
        # Whoever was accepted is answered, however busy the machine is; then it looks once a second whether a descriptor became free.
        while (later <= 30 or later != at_first) and time.monotonic() < until:
            before = cpu_seconds(started)
            at_first, later = later, len(served(peers, 1.3))
        assert cpu_seconds(started) - before < 0.2
        assert 30 < at_first < DESCRIPTORS - 50
        assert later == at_first, "the reserve is given away bit by bit"
        assert len(entries(started, "accepting pauses")) == 1
        assert "open-file limit" in entries(started, "accepting pauses")[0]["reason"]


@pytest.mark.parametrize("loop", LOOPS)
def test_those_who_are_served_have_descriptors_for_their_requests(tmp_path: Path, loop: str) -> None:
    with broker(*kept_in(tmp_path, f"event.loop={loop}"), command=("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")) as started:
        with Client(started.port) as client, ExitStack() as stack:
            for _ in range(PEERS):
                stack.enter_context(socket.create_connection(("127.0.0.1", started.port), 10))
            started.await_line("accepting pauses")
            for number in range(20):
                assert client.ask(create(f"made-{number}"), 7).topics[0].error_code == 0
            assert len(list(Path(f"/proc/{started.pid}/fd").iterdir())) <= DESCRIPTORS - 50
        assert started.stop() == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_whoever_waited_is_served_as_others_leave(tmp_path: Path, loop: str) -> None:
    with short_of_descriptors(tmp_path, loop) as (started, peers):
        while peers:
            assert eventually(lambda: bool(served(peers, 0)))
            for peer in served(peers, 0):
                peer.close()
                peers.remove(peer)
        assert eventually(lambda: len(entries(started, "accepting goes on")) == 1)
        assert len(entries(started, "accepting pauses")) == 1
        with Client(started.port) as client:
            assert answered(client)
        assert eventually(lambda: len(list(Path(f"/proc/{started.pid}/fd").iterdir())) < 30), "descriptors leak"


def test_a_limit_below_the_reserve_still_serves_somebody(tmp_path: Path) -> None:
    with broker(*kept_in(tmp_path), command=("prlimit", "--nofile=22:22")) as started:
        for number in range(5):
            with Client(started.port) as client:
                assert client.ask(create(f"made-{number}"), 7).topics[0].error_code == 0


def test_when_not_one_descriptor_is_left_accepting_pauses_until_there_is(tmp_path: Path) -> None:
    with broker(*kept_in(tmp_path)) as started, Client(started.port) as before:
        assert answered(before)
        resource.prlimit(started.pid, resource.RLIMIT_NOFILE, (5, 256))
        with Client(started.port) as late:
            late.send(MetadataRequest([]), 12)
            assert "no descriptor is free" in started.await_line("accepting pauses")
            used = cpu_seconds(started)
            assert answered(before)
            assert served([late.socket], 0.3) == []
            assert cpu_seconds(started) - used < 0.1
            resource.prlimit(started.pid, resource.RLIMIT_NOFILE, (256, 256))
            assert late.receive(MetadataRequest([]), 12).brokers
        assert len(entries(started, "accepting pauses")) == 1
