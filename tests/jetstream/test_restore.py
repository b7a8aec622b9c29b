"""`tenure store import --only`: damaged logs of a cluster are replaced by those of an export."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from broker.settings.load import load_config
from broker.stores.jetstream.engine import reply_of
from broker.stores.jetstream.entry import DATA, RELEASE, Entry
from broker.stores.jetstream.store_client import StoreClient, await_result
from broker.stores.jetstream.stream_copy import StreamCopy
from broker.stores.jetstream.topic_logs import StreamTopicLog
from protocol.batch import build_facts, facts_of, read_header
from protocol.messages.consumer_offsets import OffsetCommitKey
from protocol.records import read_offsets_key
from storage import LogId
from tests.cli.cluster_folders import IDS, ClusterFolder, contents, topic_key
from tests.cli.log_folders import run as tenure
from tests.jetstream.moving import TenureCluster, store
from tests.stores.jetstream_nodes import NodesOverJetStream
from tests.support.nats_engine import NatsEngine

pytestmark = [pytest.mark.jetstream, pytest.mark.once]
GROUPS = LogId("__consumer_offsets", 0)
ORDERS = LogId("orders", 1)


@pytest.fixture
def backup(tmp_path: Path) -> ClusterFolder:
    return ClusterFolder(tmp_path / "backup", 3)


@pytest.fixture
def imported(one_server: NatsEngine, backup: ClusterFolder) -> TenureCluster:
    imported = TenureCluster(one_server)
    store("import", "--from", backup.path, "--to", *imported.place)
    return imported


@pytest.fixture
def nodes(one_server: NatsEngine, imported: TenureCluster) -> Iterator[NodesOverJetStream]:
    loop = asyncio.new_event_loop()
    nodes = NodesOverJetStream(one_server, imported.name, loop)
    yield nodes
    nodes.close()
    loop.close()


def damage(imported: TenureCluster, id: LogId, records: int = 0) -> None:
    """Append an entry of `records` records with a wrong checksum, then a sound entry; with 0 records, delete the stream instead."""

    async def append(store_client: StoreClient) -> None:
        await store_client.open()
        stream = store_client.stream_of(id, IDS[id.name] if id == ORDERS else None)
        if not records:
            await await_result(partial(store_client.engine.delete, stream.name))
            await store_client.make_stream(stream, {})
            return
        state = await store_client.stream_state(stream)
        last = await store_client.entry_of(stream, state.last_seq)
        assert last is not None
        batch = bytearray(build_facts([(b"k", b"v")] * records, 1))
        batch[-1] ^= 1
        for number, (kind, payload, count) in enumerate(((DATA, bytes(batch), records), (RELEASE, b"", 0))):
            entry = Entry(kind, last.epoch + 1, 0, "broken", number, last.next_offset + records * number, count, last.state_seq)
            headers = entry.headers(state.last_seq + number)
            message = await await_result(lambda done, at=(stream.subject, payload, headers): store_client.connection.request(at[0], at[1], done, at[2]))  # type: ignore[misc]
            assert isinstance(reply_of(message), dict)

    async def run() -> None:
        settings = [f"store={imported.url}", f"cluster.name={imported.name}", "node.id=1", "store.replicas=1"]
        store_client = StoreClient(load_config(settings=settings, environ={}))
        try:
            await append(store_client)
        finally:
            store_client.close()

    asyncio.run(run())


@pytest.mark.parametrize("records", [0, 2])
def test_a_damaged_log_of_groups_is_replaced(records: int, backup: ClusterFolder, imported: TenureCluster, nodes: NodesOverJetStream, tmp_path: Path) -> None:
    damage(imported, GROUPS, records)
    assert "is damaged at" in store("export", "--from", *imported.place, "--to", tmp_path / "damaged", code=65)
    for more in (("--dry-run",), ()):
        restored = store("import", "--from", backup.path, "--to", *imported.place, "--only", str(GROUPS), *more)
        assert (restored["logs"], restored["dry_run"]) == (1, bool(more))
    before = contents(backup.path)
    node = nodes.start(1)
    assert node.keys(node.own(GROUPS)) == [key for key, _ in facts_of(before[str(GROUPS)].batches)]
    node.stop()
    store("export", "--from", *imported.place, "--to", tmp_path / "back")
    assert {name: found.batches for name, found in contents(tmp_path / "back").items()} == {name: found.batches for name, found in before.items()}


def test_a_replaced_damaged_log_of_a_topic_continues_at_its_former_end_offset(backup: ClusterFolder, imported: TenureCluster, nodes: NodesOverJetStream) -> None:
    damage(imported, ORDERS, 5)
    store("import", "--from", backup.path, "--to", *imported.place, "--only", str(ORDERS))
    node = nodes.start(1)
    log = node.acquired_topic(ORDERS, IDS["orders"])
    assert isinstance(log, StreamTopicLog)
    assert (log.records.start_offset, log.records.next_offset) == (0, 6)
    passed = read_header(node.wait(lambda: log.records.read(3, 1_000)), 0)  # the position of a consumer
    assert (passed.base_offset, passed.next_offset, passed.record_count) == (1, 6, 0)
    results: list[object] = []
    log.append(bytearray(build_facts([(b"k", b"v")], 1)), results.append)
    node.wait(lambda: results)
    assert results == [6]


def test_a_topic_whose_end_is_lost_is_not_replaced(backup: ClusterFolder, imported: TenureCluster) -> None:
    damage(imported, ORDERS)
    assert "its end is lost" in store("import", "--from", backup.path, "--to", *imported.place, "--only", str(ORDERS), code=1)


def test_offsets_of_topics_that_were_deleted_since_do_not_come_back(backup: ClusterFolder, one_server: NatsEngine, tmp_path: Path) -> None:
    shutil.copytree(backup.path, tmp_path / "later")
    later = backup.path
    backup.path = tmp_path / "later"
    backup.append("__tenure_topics", 0, [(topic_key("late"), None)])
    imported = TenureCluster(one_server)
    store("import", "--from", tmp_path / "later", "--to", *imported.place)
    damage(imported, GROUPS)
    store("import", "--from", later, "--to", *imported.place, "--only", str(GROUPS))
    store("export", "--from", *imported.place, "--to", tmp_path / "back")
    committed = {
        found.topic: value
        for key, value in facts_of(contents(tmp_path / "back")[str(GROUPS)].batches)
        if isinstance(found := read_offsets_key(key), OffsetCommitKey)
    }
    assert (committed["orders"] is not None, committed["late"]) == (True, None)


@pytest.mark.parametrize(
    ("name", "code", "line"),
    [
        ("__consumer_offsets-1", 1, "it is not damaged in"),
        ("__tenure_topics-0", 1, "the registry cannot be restored alone"),
        ("nosuch-0", 66, "there is no such log in"),
    ],
)
def test_what_cannot_be_replaced_is_refused(name: str, code: int, line: str, backup: ClusterFolder, imported: TenureCluster) -> None:
    assert line in store("import", "--from", backup.path, "--to", *imported.place, "--only", name, code=code)


def test_a_log_is_not_replaced_while_a_node_runs(backup: ClusterFolder, imported: TenureCluster, nodes: NodesOverJetStream) -> None:
    damage(imported, GROUPS)
    nodes.start(1)
    refused = partial(store, "import", "--from", backup.path, "--to", *imported.place, "--set", "store.lease.ms=2000", "--only", str(GROUPS), code=1)
    assert "node 1 runs; stop all nodes first" in nodes.loop.run_until_complete(nodes.loop.run_in_executor(None, refused))


def test_a_restore_that_was_interrupted_goes_on(backup: ClusterFolder, imported: TenureCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The interrupted restore has deleted the damaged stream; the next one must still know its end offset."""
    damage(imported, ORDERS, 5)
    arguments = ("store", "import", "--from", backup.path, "--to", *imported.place, "--only", ORDERS)
    with monkeypatch.context() as patch:
        patch.setattr(StreamCopy, "finish", lambda *ignored: 1 / 0)
        assert tenure(*arguments) == 70
    assert "has not finished" in store("export", "--from", *imported.place, "--to", tmp_path / "back", code=69)
    assert "the unfinished import of another export" in store("import", "--from", backup.path, "--to", *imported.place, "--only", str(GROUPS), code=1)
    assert tenure(*arguments) == 0
    store("export", "--from", *imported.place, "--to", tmp_path / "back")
    assert contents(tmp_path / "back")[str(ORDERS)].end == 6
