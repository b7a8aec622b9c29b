"""A compacted topic's log in a stream, the replies to its writer, and the records that a reader must find."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from broker.stores.jetstream.topic_cleaning import Cleanable, TopicLogCleaner, cleanable
from broker.stores.jetstream.topic_logs import StreamTopicLog
from protocol.batch import Record, build, iterate_headers, records
from storage import AppendFailed, LogId
from tests.stores.jetstream_nodes import JetStreamNode

READ_BYTES = 1 << 20


class CleaningSettings(NamedTuple):
    """Settings of a topic with which every closed part of the log is cleaned."""

    compact: bool = True
    segment_bytes: int = 1 << 20
    delete_retention_ms: int = 1_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 1 << 60
    min_cleanable_dirty_ratio: float = 0.0


class Written:
    """The records that a writer has sent to a log, and how many of them were acknowledged."""

    def __init__(self, id: LogId, segment_bytes: int = 2_000) -> None:
        self.id = id
        self.sent: list[Record] = []  # in order; the record at position n, if the log has it, is at offset n
        self.acknowledged = 0  # how many of `sent`, from the first on, were acknowledged
        self.failed = False
        self._segment_bytes = segment_bytes

    def own(self, node: JetStreamNode) -> StreamTopicLog:
        log = node.acquired_topic(self.id)
        assert isinstance(log, StreamTopicLog)
        log.set_segment_limits(self._segment_bytes, 0)
        return log

    def append(self, log: StreamTopicLog, *facts: tuple[bytes, bytes | None]) -> None:
        """Append a batch, without waiting for the reply."""
        base = len(self.sent)
        batch = [Record(base + at, 1_000 + base, key, value, []) for at, (key, value) in enumerate(facts)]
        self.sent += batch

        def done(result: int | AppendFailed) -> None:
            if isinstance(result, int):
                assert result == base
                assert self.acknowledged == base, "acknowledged out of order"
                self.acknowledged = base + len(batch)
            else:
                self.failed = True

        log.append(bytearray(build([Record(at, record.timestamp, record.key, record.value, []) for at, record in enumerate(batch)])), done)

    def settle(self, node: JetStreamNode) -> None:
        node.wait(lambda: self.acknowledged == len(self.sent))

    def check(self, node: JetStreamNode, log: StreamTopicLog, cleaned_to: int = 0) -> list[int]:
        """Check that a reader finds only written records, and the newest one of each key, except tombstones. Returns their offsets."""
        log_records = read_log(node, log)
        end = log.records.high_watermark
        assert self.acknowledged <= end <= len(self.sent)
        newest = {record.key: record.offset for record in self.sent[:end]}
        for record in log_records:
            sent = self.sent[record.offset]
            assert (record.key, record.value, record.timestamp) == (sent.key, sent.value, sent.timestamp)
        offsets = [record.offset for record in log_records]
        assert offsets == sorted(set(offsets))
        lost = [offset for offset in newest.values() if self.sent[offset].value is not None and offset not in set(offsets)]
        assert lost == []
        clean = [record.key for record in log_records if record.offset < cleaned_to]
        assert len(set(clean)) == len(clean), "a key has two records in the cleaned part"
        return offsets


def read_log(node: JetStreamNode, log: StreamTopicLog) -> list[Record]:
    """All records, as a consumer gets them."""
    records_read: list[Record] = []
    offset = log.records.start_offset

    async def read() -> None:
        nonlocal offset
        async with asyncio.timeout(30):
            while offset < log.records.high_watermark:
                data = log.records.read(offset, READ_BYTES)
                at = 0
                for header in iterate_headers(data, 0, len(data)):
                    records_read.extend(record for record in records(data, at) if record.offset >= offset)
                    at += header.size
                    offset = header.next_offset
                if not data:
                    await asyncio.sleep(0.001)

    node.loop.run_until_complete(read())
    return records_read


def begin_cleaning(node: JetStreamNode, log: StreamTopicLog, now: int, done: Callable[[bool], None]) -> Cleanable:
    cleaning = TopicLogCleaner(node.store.engine, lambda: (), node.store.topic_log, lambda: now, time.monotonic, 3_600, 1 << 20)
    cleanable_log = cleanable(log, CleaningSettings(), now)
    assert cleanable_log is not None
    cleaning.clean(log, cleanable_log, CleaningSettings(), done)
    return cleanable_log


def clean(node: JetStreamNode, log: StreamTopicLog, now: int = 10_000, meanwhile: Callable[[], None] = lambda: None) -> int:
    """Compact the closed part; returns its end offset."""
    done: list[bool] = []
    cleaning = begin_cleaning(node, log, now, done.append)

    def ended() -> bool:
        meanwhile()
        return bool(done)

    node.wait(ended)
    assert done == [True]
    return cleaning.until.base


def first_sequence(node: JetStreamNode, log: StreamTopicLog) -> int:
    infos: list[object] = []
    node.store.engine.info(log.stream.name, infos.append)
    node.wait(lambda: infos)
    return int(getattr(infos[0], "first_seq"))  # noqa: B009


