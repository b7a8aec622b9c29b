"""The stream of an owned log is deleted, made anew, set back or purged below its owner: the owner notices, and no node serves the rest."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.stores.jetstream.group_cleaning import GroupLogCleaner
from broker.stores.jetstream.logs import GroupLog
from broker.stores.jetstream.reading import EntryReader
from protocol.batch import build_facts
from storage import AppendFailed, DamagedLog, Fenced, LogId, Undecided, Unreadable
from tests.stores.conftest import started
from tests.stores.jetstream_nodes import JetStreamNode, NodesOverJetStream, over_jetstream
from tests.stores.nodes import append
from tests.support.nats_engine import NatsEngine

pytestmark = pytest.mark.jetstream

LOG = LogId("__consumer_offsets", 3)
OTHER = LogId("__consumer_offsets", 4)
LEASE_MS = 60_000


def call(node: JetStreamNode, api: str, body: dict[str, object] | None = None) -> None:
    done: list[object] = []
    node.store.engine.call(api, body or {}, done.append)
    node.wait(lambda: done)


def delete(node: JetStreamNode, log: GroupLog) -> None:
    call(node, f"STREAM.DELETE.{log.stream.name}")


def make(node: JetStreamNode, log: GroupLog) -> None:
    done: list[object] = []
    node.store.engine.create(log.stream.name, log.stream.subject, node.store._replicas, {}, done.append)
    node.wait(lambda: done)


def check_refused(node: JetStreamNode, reason: str) -> None:
    refused = node.acquire(LOG)
    assert isinstance(refused, Unreadable)
    assert refused.damaged
    assert reason in refused.reason
    assert reason in node.store.quarantined[LOG]


def check_noticed(first: JetStreamNode, second: JetStreamNode, log: GroupLog, reason: str) -> None:
    """Check that the owner has quarantined the log, and that neither node can claim it, while another log goes on."""
    assert reason in first.store.quarantined[LOG]
    assert not log.usable()
    check_refused(first, reason)
    check_refused(second, reason)
    assert isinstance(append(first, first.own(OTHER), b"other"), int)


def send(node: JetStreamNode, log: GroupLog, key: bytes) -> list[int | AppendFailed]:
    results: list[int | AppendFailed] = []
    log.append(build_facts([(key, b"1")], 1), 1, results.append)
    return results


@pytest.mark.parametrize("entries", [0, 1], ids=["empty", "with an entry"])
def test_a_stream_made_anew_is_noticed_by_the_next_append(nodes: NodesOverJetStream, entries: int) -> None:
    nodes.lease_ms = LEASE_MS
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    delete(second, log)
    make(second, log)
    stored: list[object] = []
    for _ in range(entries):
        second.store.connection.request(log.stream.subject, b"", stored.append)
    second.wait(lambda: len(stored) == entries)
    results = send(first, log, b"b")
    first.wait(lambda: results)
    assert isinstance(results[0], AppendFailed)
    check_noticed(first, second, log, "created anew")


def test_a_stream_made_anew_is_noticed_without_an_append(nodes: NodesOverJetStream) -> None:
    nodes.lease_ms = LEASE_MS
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    failures: list[AppendFailed] = []
    log.watch(failures.append)
    delete(second, log)
    make(second, log)
    first.wait(lambda: failures)
    assert isinstance(failures[0], Fenced)
    check_noticed(first, second, log, "created anew")


def test_a_deleted_stream_is_noticed_without_an_append(nodes: NodesOverJetStream) -> None:
    nodes.lease_ms = LEASE_MS
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    delete(second, log)
    first.wait(lambda: LOG in first.store.quarantined)
    check_noticed(first, second, log, "does not exist any more")


@pytest.fixture
def over_three(three_servers: NatsEngine) -> Iterator[NodesOverJetStream]:
    yield from over_jetstream(three_servers, LEASE_MS)


@pytest.mark.parametrize("anew", [True, False], ids=["made anew", "deleted"])
def test_three_servers_agree_that_a_stream_is_gone(over_three: NodesOverJetStream, anew: bool) -> None:
    first, second = over_three.start(1), over_three.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    delete(second, log)
    if anew:
        make(second, log)
    results = send(first, log, b"b")
    first.wait(lambda: results)
    assert isinstance(results[0], AppendFailed)
    check_noticed(first, second, log, "created anew" if anew else "does not exist any more")


@pytest.mark.parametrize("appends", [0, 1])
def test_a_purge_is_noticed_though_the_engine_accepts_appends(nodes: NodesOverJetStream, appends: int) -> None:
    nodes.lease_ms = LEASE_MS
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    call(second, f"STREAM.PURGE.{log.stream.name}")
    for _ in range(appends):
        append(first, log, b"b")
    first.wait(lambda: LOG in first.store.quarantined)
    check_noticed(first, second, log, "entries 1 to 2 were removed" if appends else "the stream is empty")


@pytest.fixture
def set_back(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodesOverJetStream]:
    """Nodes over a NATS server of their own."""
    for engine in started(tmp_path_factory, 1):
        yield from over_jetstream(engine, LEASE_MS)


def restore(engine: NatsEngine, stream: str, backup: Path) -> None:
    """Start the server again with an older state of one stream."""
    (server,) = engine.servers
    server.kill()
    (folder,) = server.folder.glob(f"jetstream/*/streams/{stream}")
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    server.start()
    server.wait()
    engine.wait_healthy()


def backed_up(engine: NatsEngine, stream: str, to: Path) -> Path:
    """A copy of the stream's files, made while the server is stopped."""
    (server,) = engine.servers
    server.stop()
    (folder,) = server.folder.glob(f"jetstream/*/streams/{stream}")
    shutil.copytree(folder, to)
    server.start()
    server.wait()
    engine.wait_healthy()
    return to


def own_after_restart(node: JetStreamNode, id: LogId) -> GroupLog:
    """Own the log as soon as the node has noticed that its server was restarted."""
    while not isinstance(owned := node.acquire(id), GroupLog):
        assert "does not answer" in str(owned), owned
    return owned


def test_a_stream_that_was_set_back_is_noticed_by_the_next_append(set_back: NodesOverJetStream, tmp_path: Path) -> None:
    first, second = set_back.start(1), set_back.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    backup = backed_up(set_back.engine, log.stream.name, tmp_path / "backup")
    for number in range(5):
        append(first, log, b"%d" % number)
    restore(set_back.engine, log.stream.name, backup)
    results = send(first, log, b"z")
    first.wait(lambda: results)
    assert isinstance(results[0], AppendFailed)
    check_noticed(first, second, log, "the stream ends at 2, although its owner had more")


def test_a_whole_copy_of_the_stream_ends_the_quarantine(set_back: NodesOverJetStream, tmp_path: Path) -> None:
    first = set_back.start(1)
    log = first.own(LOG)
    append(first, log, b"a")
    older = backed_up(set_back.engine, log.stream.name, tmp_path / "older")
    append(first, log, b"b")
    whole = backed_up(set_back.engine, log.stream.name, tmp_path / "whole")
    restore(set_back.engine, log.stream.name, older)
    first.wait(lambda: LOG in first.store.quarantined)
    restore(set_back.engine, log.stream.name, whole)
    again = own_after_restart(first, LOG)
    assert first.keys(again) == [b"a", b"b"]
    assert not first.store.quarantined


def test_a_log_that_lost_its_unpublished_end_is_not_claimed_again(set_back: NodesOverJetStream, tmp_path: Path) -> None:
    """Every two seconds an owner publishes how far its log goes; its own claims know what it has got since."""
    first = set_back.start(1)
    log = first.own(LOG)
    append(first, log, b"a")
    backup = backed_up(set_back.engine, log.stream.name, tmp_path / "backup")
    first.wait(lambda: first.store.connection.connected)
    append(first, log, b"b")
    log.fence(Undecided("the lease is over"))
    restore(set_back.engine, log.stream.name, backup)
    recovered: list[AppendFailed | None] = [AppendFailed("the engine does not answer")]
    while "does not answer" in str(recovered[0]):
        recovered.clear()
        log.recover(recovered.append)
        first.wait(lambda: recovered)
    assert "although its owner had more" in str(recovered[0])


def test_the_stream_of_nodes_and_owners_that_was_set_back_is_noticed(set_back: NodesOverJetStream, tmp_path: Path) -> None:
    first = set_back.start(1)
    stopped: list[bool] = []
    first.store.on_meta_lost = lambda: stopped.append(True)
    append(first, first.own(LOG), b"a")
    name = first.store.names.meta_stream
    backup = backed_up(set_back.engine, name, tmp_path / "backup")
    append(first, own_after_restart(first, OTHER), b"a")
    set_back.settle()
    restore(set_back.engine, name, backup)
    first.wait(lambda: stopped)
    assert first.store.meta.closed


# Entries that an earlier owner deletes late.


def compacted(node: JetStreamNode, log: GroupLog) -> int:
    """Compact the log, except that the old entries are not deleted yet; returns the sequence before which they end."""
    purged: list[int] = []
    engine = node.store.engine
    held = engine.purge
    engine.purge = lambda name, before_seq, done: purged.append(before_seq)  # type: ignore[method-assign]
    cleaner = GroupLogCleaner(engine, list, lambda: 1, node.loop.time)
    cleaner.clean(log)
    node.wait(lambda: purged)
    cleaner.stop()
    engine.purge = held  # type: ignore[method-assign]
    return purged[0]


@pytest.mark.plain
def test_a_late_purge_of_the_earlier_owner_is_no_loss(nodes: NodesOverJetStream) -> None:
    nodes.lease_ms = LEASE_MS
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    for number in range(20):
        append(first, log, b"%d" % (number % 3))
    before = compacted(first, log)
    nodes.end(first, second)
    acquired = second.own(LOG)
    assert set(second.keys(acquired)) == {b"0", b"1", b"2"}
    call(second, f"STREAM.PURGE.{log.stream.name}", {"seq": before})
    second.loop.run_until_complete(asyncio.sleep(4.0))
    assert not second.store.quarantined
    assert isinstance(append(second, acquired, b"b"), int)


@pytest.mark.plain
def test_a_purge_during_a_replay_is_no_damage(nodes: NodesOverJetStream) -> None:
    nodes.lease_ms = LEASE_MS
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    for number in range(20):
        append(first, log, b"%d" % (number % 3))
    before = compacted(first, log)
    nodes.end(first, second)
    acquired = second.own(LOG)
    acquired.first_seq = 2  # as if the replay had read the first entry before the purge
    call(second, f"STREAM.PURGE.{log.stream.name}", {"seq": before})
    with pytest.raises(OSError, match=f"entries before {before} were deleted while the log was read"):
        second.keys(acquired)
    assert not second.store.quarantined
    second.release(LOG)
    assert set(second.keys(second.own(LOG))) == {b"0", b"1", b"2"}


def test_a_hole_in_a_stream_is_damage(nodes: NodesOverJetStream) -> None:
    first = nodes.start(1)
    done: list[object] = []
    stream = first.store.names.internal(LOG)
    first.store.engine.create(stream.name, stream.subject, 1, {"deny_delete": False}, done.append)
    first.wait(lambda: done)
    log = first.own(LOG)
    for number in range(5):
        append(first, log, b"%d" % number)
    call(first, f"STREAM.MSG.DELETE.{stream.name}", {"seq": 3})
    changed: list[bool] = []
    reader = EntryReader(first.store.engine, stream, 1, 6, lambda: changed.append(True))
    first.wait(lambda: reader.problem)
    assert isinstance(reader.problem, DamagedLog)
    assert "entries 3 to 3 are missing" in str(reader.problem)
