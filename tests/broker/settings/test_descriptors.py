"""When descriptors run out, accepting pauses, and served clients do not notice."""

from __future__ import annotations

import resource
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from broker.runtime.start import ExitCode, StartError
from broker.settings.descriptors import CONNECTION_BYTES, FIXED, divide_descriptors, memory_bytes, with_connections
from broker.settings.load import load_config
from protocol.batch import Record, build
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.running import Broker, Client, broker, start
from tests.support.peers import LOOPS, NO_TOPIC, arguments_for, becomes_true, cpu_seconds, creating, defects, is_served, log_lines, readable

pytestmark = [
    pytest.mark.once,  # no dependence on the Python version
    pytest.mark.skipif(sys.platform != "linux", reason="limits one process with prlimit and looks into /proc"),
]

DESCRIPTORS = 128
PEERS = 110  # above the connection limit, below the descriptor limit


@contextmanager
def short_of_descriptors(directory: Path, loop: str) -> Iterator[tuple[Broker, list[socket.socket]]]:
    """A broker with few file descriptors and more peers than it can accept, each of which has sent a request."""
    arguments = arguments_for(directory, f"event.loop={loop}", "offsets.flush=always")
    with broker(*arguments, command=("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")) as started, ExitStack() as stack:
        peers = [stack.enter_context(socket.create_connection(("127.0.0.1", started.port), 10)) for _ in range(PEERS)]
        for peer in peers:
            peer.sendall(NO_TOPIC)
        started.await_line("accepting pauses")
        yield started, peers


def served(peers: list[socket.socket], seconds: float) -> list[socket.socket]:
    """Wait; returns the peers that have a reply by then."""
    time.sleep(seconds)
    return readable(peers)


@pytest.mark.parametrize("loop", LOOPS)
def test_accepting_pauses_with_one_log_line_and_without_processor_time(tmp_path: Path, loop: str) -> None:
    with short_of_descriptors(tmp_path, loop) as (started, peers):
        at_first, now_served = -1, 0
        until = time.monotonic() + 15
        # Wait until all accepted peers are answered. From then on the broker only checks once a second for a free descriptor.
        while (now_served <= 30 or now_served != at_first) and time.monotonic() < until:
            before = cpu_seconds(started)
            at_first, now_served = now_served, len(served(peers, 1.3))
        assert cpu_seconds(started) - before < 0.2
        assert at_first == divide_descriptors(DESCRIPTORS, 2).connections
        assert now_served == at_first, "connections use reserved descriptors"
        assert len(log_lines(started, "accepting pauses")) == 1
        assert f"{at_first} connections are open" in log_lines(started, "accepting pauses")[0]["reason"]


@pytest.mark.parametrize("loop", LOOPS)
def test_waiting_connections_are_served_as_others_leave(tmp_path: Path, loop: str) -> None:
    with short_of_descriptors(tmp_path, loop) as (started, peers):
        while peers:
            assert becomes_true(lambda: bool(served(peers, 0)))
            for peer in served(peers, 0):
                peer.close()
                peers.remove(peer)
        assert becomes_true(lambda: len(log_lines(started, "accepting resumes")) == 1)
        assert len(log_lines(started, "accepting pauses")) == 1
        with Client(started.port) as client:
            assert is_served(client)
        assert becomes_true(lambda: len(list(Path(f"/proc/{started.pid}/fd").iterdir())) < 30), "descriptors leak"


def test_a_too_small_descriptor_limit_is_logged_at_start(tmp_path: Path) -> None:
    process = start(*arguments_for(tmp_path), command=("prlimit", "--nofile=50:50"))
    _, errors = process.communicate(timeout=20)
    assert process.returncode == ExitCode.PLATFORM
    assert "50 open files are allowed, and a broker needs 66: raise the limit (ulimit -n, LimitNOFILE)" in errors


def test_the_smallest_allowed_limit_serves_clients(tmp_path: Path) -> None:
    with broker(*arguments_for(tmp_path), command=("prlimit", "--nofile=66:66")) as started, ExitStack() as stack:
        clients = [stack.enter_context(Client(started.port)) for _ in range(divide_descriptors(66, 2).connections)]
        for number, client in enumerate(clients):
            assert client.ask(creating(f"made-{number}"), 7).topics[0].error_code == 0
        write_everywhere(clients[0])
        assert started.stop() == 0


def test_accepting_pauses_while_no_descriptor_is_free(tmp_path: Path) -> None:
    with broker(*arguments_for(tmp_path)) as started, Client(started.port) as before:
        assert is_served(before)
        started.await_line('"listening"')  # what the log needs is imported
        resource.prlimit(started.pid, resource.RLIMIT_NOFILE, (5, 256))
        with Client(started.port) as late:
            late.send(MetadataRequest([]), 12)
            assert "no descriptor is free" in started.await_line("accepting pauses")
            used = cpu_seconds(started)
            assert is_served(before)
            assert served([late.socket], 0.3) == []
            assert cpu_seconds(started) - used < 0.1
            resource.prlimit(started.pid, resource.RLIMIT_NOFILE, (256, 256))
            assert late.receive(MetadataRequest([]), 12).brokers
        assert len(log_lines(started, "accepting pauses")) == 1


# Many logs beside many connections


def write_everywhere(client: Client, partitions: int = 100, groups: int = 60) -> None:
    """Produce one batch to each partition of a topic and commit for each group: all requests succeed."""
    assert client.ask(creating("wide", partitions), 7).topics[0].error_code == 0
    records = build([Record(0, 1_000, b"key", b"value", [])])
    until = time.monotonic() + 20
    for index in range(partitions):
        data = TopicProduceData("wide", [PartitionProduceData(index, records)])
        while (code := client.ask(ProduceRequest(None, -1, 10_000, [data]), 8).responses[0].partition_responses[0].error_code) == 6:
            assert time.monotonic() < until
        assert code == 0, index
    for number in range(groups):
        commit = OffsetCommitRequestTopic("wide", [OffsetCommitRequestPartition(0, number)])
        request = OffsetCommitRequest(f"group-{number}", -1, topics=[commit])
        while (code := client.ask(request, 8).topics[0].partitions[0].error_code) in (14, 16):
            assert time.monotonic() < until
        assert code == 0, number


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("limit", [80, 256])
def test_with_connections_at_the_limit_every_partition_and_group_can_be_written(tmp_path: Path, loop: str, limit: int) -> None:
    fits = divide_descriptors(limit, 2).connections
    arguments = arguments_for(tmp_path, f"event.loop={loop}", "offsets.flush=always")
    with broker(*arguments, command=("prlimit", f"--nofile={limit}:{limit}")) as started, ExitStack() as stack:
        with Client(started.port) as client:
            idle = [stack.enter_context(socket.create_connection(("127.0.0.1", started.port), 10)) for _ in range(fits + 20)]
            started.await_line("accepting pauses")
            write_everywhere(client)
            assert len(list(Path(f"/proc/{started.pid}/fd").iterdir())) < limit
        with Client(started.port) as late:  # for this connection the broker closes a silent one
            assert is_served(late)
            assert becomes_true(lambda: bool(log_lines(started, "idle connections were closed for new ones")))
        for peer in idle:
            peer.close()
        with Client(started.port) as after:
            assert is_served(after)
        assert defects(started) == []
        assert started.stop() == 0
    assert not [entry for entry in log_lines(started) if entry["event"] in ("partition cannot be written", "log suspended")]


def test_an_idle_file_is_closed_to_open_another(tmp_path: Path) -> None:
    """The limit is lowered below the number of open files: the broker closes idle log files, and can open further ones."""
    with broker(*arguments_for(tmp_path)) as started, Client(started.port) as client:
        write_everywhere(client, 40, 0)
        opened = [int(entry.name) for entry in Path(f"/proc/{started.pid}/fd").iterdir()]
        assert len(opened) > 50
        lowered = max(opened) + 1
        resource.prlimit(started.pid, resource.RLIMIT_NOFILE, (lowered, lowered))
        for name in ("more", "still-more"):
            assert client.ask(creating(name, 60), 7).topics[0].error_code == 0
            records = build([Record(0, 1_000, b"key", b"value", [])])
            for index in range(60):
                data = TopicProduceData(name, [PartitionProduceData(index, records)])
                assert client.ask(ProduceRequest(None, -1, 10_000, [data]), 8).responses[0].partition_responses[0].error_code == 0, index
        assert defects(started) == []


def test_the_descriptor_limit_is_divided_among_its_uses() -> None:
    assert divide_descriptors(66, 2)[1:] == (8, 12, 46)
    assert divide_descriptors(1_024, 2)[1:] == (225, 677, 928)
    assert divide_descriptors(65_536, 2)[1:] == (512, 64_902, 65_440)
    for limit in range(66, 3_000):
        shared = divide_descriptors(limit, 2)
        assert shared.connections > 0
        assert FIXED + 2 + shared.logs + shared.connections == shared.reserve_from
    with pytest.raises(StartError, match="65 open files are allowed, and a broker needs 66"):
        divide_descriptors(65, 2)


def test_the_default_connection_limit_fits_the_descriptor_limit(capsys: pytest.CaptureFixture[str]) -> None:
    shared = divide_descriptors(1_024, 2)
    by_default = with_connections(load_config(), shared, 1 << 40)
    assert (by_default.max_connections, by_default.given["max.connections"]) == (677, "677")
    assert with_connections(load_config(), shared, 100 * CONNECTION_BYTES).max_connections == 100
    assert with_connections(load_config(settings=["max.connections=500"]), shared, 1).max_connections == 500
    assert capsys.readouterr().out == ""
    assert with_connections(load_config(settings=["max.connections=5000"]), shared, 1 << 40).max_connections == 677
    assert "max.connections is lowered to the open-file limit" in capsys.readouterr().out
    assert memory_bytes() > 1 << 26
