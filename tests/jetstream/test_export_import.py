"""`tenure store export|import` between a directory and JetStream, both ways, killed in between, and from a cluster in use."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker.stores.jetstream.topic_logs import StreamTopicLog
from protocol.batch import build_facts, facts_of, iterate_headers
from storage import LogId
from tests.cli.cluster_folders import CLUSTER_ID, IDS, ClusterFolder, Content, contents, described, topic_ids
from tests.cli.committing import Load, check_commits, check_producer_ids
from tests.jetstream.cluster import CLUSTER, StreamNodes
from tests.jetstream.moving import TenureCluster, command, store
from tests.running import environment, wait_until
from tests.stores.jetstream_nodes import JetStreamNode, NodesOverJetStream
from tests.support.nats_engine import NatsEngine

pytestmark = [pytest.mark.jetstream, pytest.mark.once]


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterFolder:
    return ClusterFolder(tmp_path / "data")


@pytest.fixture
def engine(one_server: NatsEngine) -> TenureCluster:
    return TenureCluster(one_server)


def test_a_directory_imported_into_jetstream_and_exported_again_is_the_same(cluster: ClusterFolder, engine: TenureCluster, tmp_path: Path) -> None:
    moved = store("import", "--from", cluster.path, "--to", *engine.place)
    assert (moved["cluster_id"], moved["logs"], moved["continued"]) == (CLUSTER_ID, 14, False)
    store("export", "--from", *engine.place, "--to", tmp_path / "back")
    before, after = contents(cluster.path), contents(tmp_path / "back")
    assert {name: found._replace(next_epoch=0) for name, found in after.items()} == {name: found._replace(next_epoch=0) for name, found in before.items()}
    assert all(after[name].next_epoch > found.next_epoch for name, found in before.items())
    assert topic_ids(tmp_path / "back").items() >= {name: id for name, id in topic_ids(cluster.path).items() if id}.items()


def kill_at(seconds: float, action: str, *arguments: object) -> bool:
    """Run a command and kill it after `seconds`. Return False if it ended by itself: it was done, or an earlier run had left nothing to do."""
    process = subprocess.Popen(command(action, *arguments), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        _, complaints = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return True
    assert process.returncode == 0 or "is not empty: it is cluster" in complaints or "has the export of" in complaints, complaints
    return False


def seconds_of(action: str, *arguments: object) -> float:
    begin = time.monotonic()
    store(action, *arguments)
    return time.monotonic() - begin


def test_an_import_and_an_export_that_are_killed_go_on(one_server: NatsEngine, tmp_path: Path) -> None:
    cluster = ClusterFolder(tmp_path / "data", 600)
    whole, engine = TenureCluster(one_server), TenureCluster(one_server)
    seconds = seconds_of("import", "--from", cluster.path, "--to", *whole.place)
    killed: list[bool] = []
    for part in (0.5, 0.6, 0.7, 0.8):
        if not killed or killed[-1]:
            killed.append(kill_at(seconds * part, "import", "--from", cluster.path, "--to", *engine.place))
    assert killed[0]
    if killed[-1]:
        kill_at(60, "import", "--from", cluster.path, "--to", *engine.place)
    seconds = seconds_of("export", "--from", *whole.place, "--to", tmp_path / "whole")
    killed = []
    for part in (0.4, 0.6, 0.7, 0.8):
        if not killed or killed[-1]:
            killed.append(kill_at(seconds * part, "export", "--from", *engine.place, "--to", tmp_path / "back"))
    assert killed[0]
    if killed[-1]:
        kill_at(60, "export", "--from", *engine.place, "--to", tmp_path / "back")
    assert contents(tmp_path / "back") == contents(tmp_path / "whole")
    before = contents(cluster.path)
    assert {name: found.batches for name, found in contents(tmp_path / "back").items()} == {name: found.batches for name, found in before.items()}


def test_no_node_begins_on_an_import_that_has_not_finished(engine: TenureCluster, tmp_path: Path) -> None:
    cluster = ClusterFolder(tmp_path / "data", 1_500)
    begun = subprocess.Popen(command("import", "--from", cluster.path, "--to", *engine.place), env=environment(), stderr=subprocess.PIPE, text=True)
    assert begun.stderr is not None
    assert begun.stderr.readline().startswith("verified: 14 logs")
    assert begun.stderr.readline().startswith("groups: ")
    begun.kill()
    begun.communicate()
    node = subprocess.run(
        [sys.executable, "-P", "-m", "tenure", "serve", "--store", *engine.place, "--node-id", "1", "--listen", "127.0.0.1:0"],
        env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )
    assert (node.returncode, "an import into it has not finished" in node.stderr) == (65, True), node.stderr
    refused = store("export", "--from", *engine.place, "--to", tmp_path / "back", code=69)
    assert "an import into it has not finished; repeat it" in refused
    other = ClusterFolder(tmp_path / "other", 3)
    refused = store("import", "--from", other.path, "--to", *engine.place, code=1)
    assert "has the unfinished import of another export" in refused
    assert store("import", "--from", cluster.path, "--to", *engine.place)["continued"]


def test_a_cluster_that_is_not_empty_is_refused(cluster: ClusterFolder, engine: TenureCluster) -> None:
    store("import", "--from", cluster.path, "--to", *engine.place)
    for more in ((), ("--dry-run",)):
        assert "is not empty: it is cluster" in store("import", "--from", cluster.path, "--to", *engine.place, *more, code=1)


def test_damage_is_named_before_anything_is_written(cluster: ClusterFolder, engine: TenureCluster) -> None:
    segments = [sorted((cluster.path / log).glob("*.log"))[0] for log in ("orders-0", "__consumer_offsets-2")]
    for segment in segments:
        data = bytearray(segment.read_bytes())
        data[100] ^= 4
        segment.write_bytes(data)
    complaints = store("import", "--from", cluster.path, "--to", *engine.place, code=65)
    assert all(f"{segment} is damaged at byte 0: a batch's checksum is wrong" in complaints for segment in segments)
    assert "nothing was imported: 2 logs cannot be" in complaints
    for segment in segments:
        data = bytearray(segment.read_bytes())
        data[100] ^= 4
        segment.write_bytes(data)
    assert not store("import", "--from", cluster.path, "--to", *engine.place)["continued"]


def test_an_export_that_was_changed_is_refused(cluster: ClusterFolder, engine: TenureCluster, tmp_path: Path) -> None:
    store("export", "--from", cluster.path, "--to", tmp_path / "copy")
    segment = sorted((tmp_path / "copy" / "orders-0").glob("*.log"))[0]
    data = bytearray(segment.read_bytes())
    data[15] ^= 1  # the epoch, which a batch's checksum does not cover
    segment.write_bytes(data)
    assert "orders-0: its batches are not the exported ones" in store("import", "--from", tmp_path / "copy", "--to", *engine.place, code=65)


def served(node: JetStreamNode, name: str, partition: int = 0) -> StreamTopicLog:
    log = node.acquired_topic(LogId(name, partition), IDS[name])
    assert isinstance(log, StreamTopicLog), log
    return log


def test_a_node_serves_what_was_imported(cluster: ClusterFolder, engine: TenureCluster, one_server: NatsEngine) -> None:
    store("import", "--from", cluster.path, "--to", *engine.place)
    before = contents(cluster.path)
    loop = asyncio.new_event_loop()
    nodes = NodesOverJetStream(one_server, engine.name, loop)
    try:
        node = nodes.start(1)
        assert node.store.cluster_id == CLUSTER_ID
        for name in ("__consumer_offsets-0", "__coordinator_notes-0", "__tenure_topics-0"):
            log = node.own(LogId(name[:-2], 0))
            assert node.keys(log) == [key for key, _ in facts_of(before[name].batches)]
            assert log.epoch > before[name].next_epoch
        for name in ("orders", "state", "late", "emptied"):
            topic, content = served(node, name), before[f"{name}-0"]
            assert (topic.records.start_offset, topic.records.next_offset) == (content.start, content.end)
            assert [epoch for epoch in topic.records.epochs if epoch[1] < content.end] == content.epochs
            assert topic.epoch > content.next_epoch
            assert {id: described(topic._producers, id) for id in topic._producers} == content.producers
            assert read_all(node, topic, content) == content.batches
            results: list[object] = []
            topic.append(bytearray(build_facts([(b"k", b"v")], 1)), results.append)
            node.wait(lambda results=results: results)  # type: ignore[misc]
            assert results == [content.end]
    finally:
        nodes.close()
        loop.close()


def read_all(node: JetStreamNode, topic: StreamTopicLog, content: Content) -> bytes:
    """Read the whole log as a consumer does that begins at the log start offset, which may be in a gap."""
    data = b""
    offset = content.start
    while offset < content.end:
        part = node.wait(lambda offset=offset: topic.records.read(offset, 1 << 20))  # type: ignore[misc]
        data += part
        offset = list(iterate_headers(part, 0, len(part)))[-1].next_offset
    return data


@pytest.mark.parametrize("servers", [1, 3])
def test_a_cluster_that_is_committing_is_copied_as_it_was(servers: int, tmp_path: Path) -> None:
    nodes = StreamNodes(tmp_path / "nodes", 1, "offsets.topic.num.partitions=4", servers=servers)
    try:
        nodes.start()
        place = (nodes.engine.url, "--cluster", CLUSTER, "--set", f"store.replicas={servers}")
        with Load(nodes.port(1)) as load:
            for number in range(2):
                promised = dict(load.committed)
                store("export", "--from", *place, "--to", tmp_path / f"copy{number}")
                copied = contents(tmp_path / f"copy{number}")
                check_commits(copied, promised)
                check_producer_ids(copied)
                rounds = load.rounds
                wait_until(lambda rounds=rounds: load.rounds > rounds + 50, 30)  # type: ignore[misc]
    finally:
        nodes.close()
