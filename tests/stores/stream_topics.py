"""A compacted topic's log in a stream, what its writer was told of it, and what a reader has to find."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from broker.stores.jetstream.topic_cleaning import Cleanable, TopicCleaning, cleanable
from broker.stores.jetstream.topic_logs import StreamTopicLog
from protocol.batch import Record, build, iterate, records
from storage import AppendFailed, HeldBy, LogId, Unreadable
from tests.stores.jetstream_nodes import JetStreamNode

READ_BYTES = 1 << 20


class Rules(NamedTuple):
    """Settings of a topic: all that is closed is cleaned."""

    compact: bool = True
    segment_bytes: int = 1 << 20
    delete_retention_ms: int = 1_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 1 << 60
    min_cleanable_dirty_ratio: float = 0.0


class Written:
    """Records by offset, as their writer sent them."""

    def __init__(self, id: LogId, segment_bytes: int = 2_000) -> None:
        self.id = id
        self.sent: list[Record] = []  # in their order, each at the offset of its place, if the log has it
        self.acknowledged = 0  # so many of the first ones
        self.failed = False
        self._segment_bytes = segment_bytes

    def own(self, node: JetStreamNode) -> StreamTopicLog:
        log = node.own_topic(self.id)
        assert not isinstance(log, HeldBy | Unreadable), log
        assert isinstance(log, StreamTopicLog)
        log.set_segment_limits(self._segment_bytes, 0)
        return log

    def append(self, log: StreamTopicLog, *facts: tuple[bytes, bytes | None]) -> None:
        """One batch, without waiting for the answer."""
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

        log.append(bytearray(build([Record(at, one.timestamp, one.key, one.value, []) for at, one in enumerate(batch)])), done)

    def settle(self, node: JetStreamNode) -> None:
        node.wait(lambda: self.acknowledged == len(self.sent))

    def check(self, node: JetStreamNode, log: StreamTopicLog, cleaned_to: int = 0) -> list[int]:
        """What a reader finds is what was written; the newest record of each key is there, but for tombstones. Returns the offsets."""
        found = read_log(node, log)
        end = log.records.high_watermark
        assert self.acknowledged <= end <= len(self.sent)
        newest = {record.key: record.offset for record in self.sent[:end]}
        for record in found:
            sent = self.sent[record.offset]
            assert (record.key, record.value, record.timestamp) == (sent.key, sent.value, sent.timestamp)
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        lost = [offset for offset in newest.values() if self.sent[offset].value is not None and offset not in set(offsets)]
        assert lost == []
        clean = [record.key for record in found if record.offset < cleaned_to]
        assert len(set(clean)) == len(clean), "a key has two records in what was cleaned"
        return offsets


def read_log(node: JetStreamNode, log: StreamTopicLog) -> list[Record]:
    """All records, as a consumer gets them."""
    found: list[Record] = []
    offset = log.records.start_offset

    async def read() -> None:
        nonlocal offset
        async with asyncio.timeout(30):
            while offset < log.records.high_watermark:
                data = log.records.read(offset, READ_BYTES)
                at = 0
                for header in iterate(data, 0, len(data)):
                    found.extend(one for one in records(data, at) if one.offset >= offset)
                    at += header.size
                    offset = header.next_offset
                if not data:
                    await asyncio.sleep(0.001)

    node.loop.run_until_complete(read())
    return found


def begin_cleaning(node: JetStreamNode, log: StreamTopicLog, now: int, done: Callable[[bool], None]) -> Cleanable:
    cleaning = TopicCleaning(node.store.engine, lambda: (), node.store.topic_log, lambda: now, time.monotonic, 3_600, 1 << 20)
    found = cleanable(log, Rules(), now)
    assert found is not None
    cleaning.clean(log, found, Rules(), done)
    return found


def clean(node: JetStreamNode, log: StreamTopicLog, now: int = 10_000, meanwhile: Callable[[], None] = lambda: None) -> int:
    """Compact what is closed; up to which offset that is."""
    done: list[bool] = []
    found = begin_cleaning(node, log, now, done.append)

    def ended() -> bool:
        meanwhile()
        return bool(done)

    node.wait(ended)
    assert done == [True]
    return found.until.base


def first_sequence(node: JetStreamNode, log: StreamTopicLog) -> int:
    found: list[object] = []
    node.store.engine.info(log.place.stream, found.append)
    node.wait(lambda: found)
    return int(getattr(found[0], "first_seq"))  # noqa: B009


