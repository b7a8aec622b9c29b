"""Compaction of topic logs in JetStream: records keep their offsets, no newest record is lost, and superseded entries are deleted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from broker.settings.load import load_config
from broker.stores.jetstream import topic_cleaning
from broker.stores.jetstream.store_client import StoreClient
from broker.stores.jetstream.topic_cleaning import cleanable
from broker.stores.jetstream.topic_logs import StreamTopicLog
from protocol.batch import records
from storage import LogId, RetentionLimits
from storage.log_copy import LogEnd, LogState
from tests.stores.jetstream_nodes import JetStreamNode, NodesOverJetStream, over_jetstream
from tests.stores.stream_topics import CleaningSettings, Written, begin_cleaning, clean, first_sequence, read_log
from tests.support.nats_engine import NatsEngine

pytestmark = pytest.mark.jetstream

TOPIC = LogId("states", 0)
UNLIMITED_RETENTION = RetentionLimits(-1, -1, 0)


@pytest.fixture
def nodes(one_server: NatsEngine) -> Iterator[NodesOverJetStream]:
    yield from over_jetstream(one_server, 60_000)


@pytest.fixture(autouse=True)
def small_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the size of the cleaner's entries, so that it writes several, and its state between them."""
    monkeypatch.setattr(topic_cleaning, "COPY_BYTES", 400)
    monkeypatch.setattr(topic_cleaning, "SEGMENT_BYTES_MAX", 1_000)


def fill(written: Written, node: JetStreamNode, log: StreamTopicLog, batches: int, keys: int = 20, seed: int = 1) -> None:
    chance = random.Random(seed)
    for number in range(batches):
        written.append(log, *((b"key-%d" % chance.randrange(keys), b"%d-%d" % (number, at)) for at in range(3)))
        if number % 10 == 0:
            written.settle(node)
    written.settle(node)


def await_cut(node: JetStreamNode, log: StreamTopicLog, offset: int) -> None:
    """Wait until NATS has deleted the entries up to sequence number `offset`, which happens soon after the cleaner has stored its state."""
    for _ in range(100):
        if first_sequence(node, log) > offset:
            return
        node.loop.run_until_complete(asyncio.sleep(0.05))
    raise AssertionError


def test_the_newest_records_stay_at_their_offsets_and_older_ones_are_removed(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    written = Written(TOPIC)
    log = written.own(first)
    fill(written, first, log, 300)
    assert len(log.segment_states) > 4
    count = 0

    def meanwhile() -> None:
        nonlocal count
        count += 1
        if count <= 30:
            written.append(log, (b"key-%d" % count, b"meanwhile"))

    until = clean(first, log, meanwhile=meanwhile)
    written.settle(first)
    assert log.clean_to == until
    offsets = written.check(first, log, until)
    assert len([offset for offset in offsets if offset < until]) <= 20
    await_cut(first, log, 50)
    nodes.end(first, second)

    acquired = written.own(second)
    assert written.check(second, acquired, until) == offsets
    fill(written, second, acquired, 200, seed=2)
    cleaned_again = clean(second, acquired)
    assert cleaned_again > until
    offsets = written.check(second, acquired, cleaned_again)
    assert len([offset for offset in offsets if offset < cleaned_again]) <= 20 + 30
    await_cut(second, acquired, 100)


def test_readers_go_on_through_a_cleaning_at_any_offset(nodes: NodesOverJetStream) -> None:
    node = nodes.start(1)
    written = Written(TOPIC)
    log = written.own(node)
    fill(written, node, log, 200)
    until = clean(node, log)
    records_read = read_log(node, log)
    for offset in range(0, until, 7):
        node.wait(lambda offset=offset: log.records.read(offset, 10_000))  # type: ignore[misc]
        after = [record.offset for record in records_read if record.offset >= offset]
        extent = log.records.extent(offset, 10_000)
        assert extent is not None
        assert int.from_bytes(extent.read(8), "big") <= after[0]
    times = [entry for entry in log.records.find_time(1_000 + until - 1) if entry is not None]
    assert times or log.records.high_watermark  # the lookup may have no result yet, while entries are fetched


def test_a_tombstone_is_removed_after_its_retention_and_a_log_may_become_empty(nodes: NodesOverJetStream) -> None:
    node = nodes.start(1)
    written = Written(TOPIC)
    log = written.own(node)
    for number in range(40):
        written.append(log, (b"key-%d" % number, b"x" * 100))
    written.settle(node)
    for number in range(40):
        written.append(log, (b"key-%d" % number, None))
    for _ in range(40):
        written.append(log, (b"other", b"y" * 100))
    written.settle(node)
    until = clean(node, log, now=10_000)
    offsets = written.check(node, log, until)
    assert set(range(40, 80)) <= set(offsets), "a slow reader may not have seen the tombstones"
    for _ in range(40):
        written.append(log, (b"other", b"z" * 100))
    written.settle(node)
    until = clean(node, log, now=10_000 + 2_000)
    assert [offset for offset in written.check(node, log, until) if offset < until - 1] == []


def test_an_unfinished_cleaning_pass_changes_nothing(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    written = Written(TOPIC)
    log = written.own(first)
    fill(written, first, log, 200, keys=2_000)
    before, start = log.chain.committed_seq, first_sequence(first, log)
    begin_cleaning(first, log, 10_000, lambda cleaned: None)
    first.wait(lambda: log.chain.committed_seq > before)
    nodes.end(first, second)
    acquired = written.own(second)
    assert acquired.clean_to == 0
    assert first_sequence(second, acquired) == start
    assert written.check(second, acquired) == list(range(len(written.sent)))
    until = clean(second, acquired)
    written.check(second, acquired, until)


def test_a_fenced_owner_cannot_end_its_cleaning_pass(nodes: NodesOverJetStream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 2 takes the log over after node 1 has copied everything, before node 1 ends its pass."""
    first, second = nodes.start(1), nodes.start(2)
    written = Written(TOPIC)
    log = written.own(first)
    fill(written, first, log, 200, keys=2_000)
    start = first_sequence(first, log)
    second.store.view().is_live = lambda node, incarnation: False  # type: ignore[method-assign]
    first.store.meta.owner_published = lambda id, owner: None  # node 1 does not hear of the new owner
    done: list[bool] = []
    held: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(log, "use_cleaned", lambda *arguments: held.append(arguments))
        begin_cleaning(first, log, 10_000, done.append)
        first.wait(lambda: held)
    acquired = written.own(second)
    log.use_cleaned(*held[0])
    first.wait(lambda: done)
    assert done == [False]
    assert log.chain.failure is not None
    assert first_sequence(second, acquired) == start
    assert written.check(second, acquired) == list(range(len(written.sent)))


def test_retention_deletes_cleaned_entries_too(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    written = Written(TOPIC)
    log = written.own(first)
    fill(written, first, log, 200)
    until = clean(first, log)
    newest = max(part.max_timestamp for part in log.segment_states if part.cleaned)
    assert log.apply_retention(newest + 10, 0, RetentionLimits(5, -1, 0)) > 0
    assert log.records.start_offset >= until
    first.wait(lambda: not log.chain.pending)
    assert not [part for part in log.segment_states if part.cleaned]
    remaining = [record.offset for record in read_log(first, log)]
    nodes.end(first, second)
    acquired = written.own(second)
    assert acquired.records.start_offset == log.records.start_offset
    assert [record.offset for record in read_log(second, acquired)] == remaining


def test_the_last_segment_rolls_by_its_age_so_that_it_can_be_cleaned(nodes: NodesOverJetStream) -> None:
    node = nodes.start(1)
    written = Written(TOPIC, segment_bytes=1 << 20)
    log = written.own(node)
    fill(written, node, log, 20)
    assert cleanable(log, CleaningSettings(), 10_000) is None
    log.set_segment_limits(1 << 20, 500)
    for monotonic in (0, 400, 600):
        assert len(log.segment_states) == 1
        log.apply_retention(-1, monotonic, UNLIMITED_RETENTION)
    assert len(log.segment_states) == 2
    node.wait(lambda: not log.chain.pending)
    until = clean(node, log)
    assert until == len(written.sent)
    written.check(node, log, until)


@pytest.mark.parametrize(
    ("rules", "due"),
    [
        (CleaningSettings(), True),
        (CleaningSettings(min_cleanable_dirty_ratio=1.0), False),
        (CleaningSettings(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=10), True),
        (CleaningSettings(min_compaction_lag_ms=1 << 40), False),
    ],
)
def test_a_log_is_due_by_kafkas_rules(nodes: NodesOverJetStream, rules: CleaningSettings, due: bool) -> None:
    node = nodes.start(1)
    written = Written(TOPIC)
    log = written.own(node)
    fill(written, node, log, 60)
    assert (cleanable(log, rules, 1 << 39) is not None) == due


def test_an_export_during_a_cleaning_has_all_remaining_records(nodes: NodesOverJetStream) -> None:
    node = nodes.start(1)
    written = Written(TOPIC)
    log = written.own(node)
    fill(written, node, log, 200)
    clean(node, log)
    config = load_config(settings=[f"store={nodes.url}", f"cluster.name={nodes.cluster}", "node.id=1", "store.replicas=1"], environ={})

    async def open_client() -> StoreClient:
        store_client = StoreClient(config)
        await store_client.open()
        return store_client

    async def exported(end: LogEnd) -> tuple[list[int], LogState]:
        reading = store_client.read(log.stream, end)
        records_read = [record async for _, _, batch in reading.batches() for record in records(batch, 0)]
        assert [written.sent[record.offset].value for record in records_read] == [record.value for record in records_read]
        return [record.offset for record in records_read], reading.state

    store_client = node.loop.run_until_complete(open_client())
    try:
        end = node.loop.run_until_complete(store_client.end_of(TOPIC, log.stream))
        assert end is not None
        offsets, state = node.loop.run_until_complete(exported(end))
        assert offsets == written.check(node, log)
        assert (state.start_offset, state.next_offset) == (0, len(written.sent))
        fill(written, node, log, 200, seed=2)
        clean(node, log)
        offsets, state = node.loop.run_until_complete(exported(end))
        assert offsets == written.check(node, log)
        assert state.next_offset == len(written.sent)
    finally:
        store_client.close()


def test_an_entry_that_the_engine_is_too_small_for_ends_a_cleaning_pass_and_nothing_is_lost(nodes: NodesOverJetStream) -> None:
    """As after a reconnection to a server with a smaller `max_payload`: the batches were written to another one."""
    first = nodes.start(1)
    written = Written(TOPIC)
    log = written.own(first)
    fill(written, first, log, 100)
    connection = first.store.connection
    limit = connection.payload_max
    connection.payload_max = 512 + 20
    done: list[bool] = []
    begin_cleaning(first, log, 10_000, done.append)
    first.wait(lambda: done)
    connection.payload_max = limit
    assert done == [False]
    assert log.clean_to == 0
    assert written.check(first, log) == list(range(len(written.sent)))
    until = clean(first, log)
    written.check(first, log, until)
