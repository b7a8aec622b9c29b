"""Random histories of topics: produce, delete records, compact, retain, delete and recreate, with kills of the process in the middle of
any change of a file. A model in memory has the records that must be readable.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from random import Random
from typing import cast

import cli
from broker.settings.load import load_config
from broker.stores.topic_logs import LocalTopicStore
from broker.topics.retention import Retention
from protocol.batch import Record, build, iterate_headers, read_header, records
from simulator.disk import Crashed, Folder, data_disk
from tests.storage.logs import clean, scan
from tests.support.topic_broker import DeleteRecordsCall, TopicBroker, delete_records
from tests.support.topic_logs import disk_log

NAMES = ("orders", "payments")
SEGMENT_BYTES = 2_000
EVERY_MS = 1_000


def copy_out(folder: Folder, target: Path) -> None:
    """Write the files of a simulated disk to the real one."""
    target.mkdir()
    for name, entry in folder.cached.items():
        if isinstance(entry, Folder):
            copy_out(entry, target / name)
        else:
            (target / name).write_bytes(entry.cached)


class TopicHistory:
    """The expected state of one topic."""

    def __init__(self, id: bytes, compacted: bool) -> None:
        self.id = id
        self.compacted = compacted
        self.records: dict[int, tuple[bytes, bytes]] = {}  # acknowledged records
        self.in_flight: dict[int, tuple[bytes, bytes]] = {}  # the batch being appended: if the process dies, all of it is stored or nothing
        self.start = 0  # the highest log start offset that a DeleteRecords reply confirmed


class TopicWorld(TopicBroker):
    """A broker under random actions and kills, and the expected state of its topics."""

    def __init__(self, folder: Path, seed: int) -> None:
        """`folder`: on the real disk; copies of the data go there for `tenure log verify`."""
        self.chance = Random(seed)
        self.folder = folder
        self.now = self.verified = 0
        self.histories: dict[str, TopicHistory] = {}
        self.calls: list[tuple[TopicHistory, DeleteRecordsCall]] = []
        self.kills = self.readable = self.compactions = 0
        disk = data_disk(seed)
        disk.recording = False
        disk.stays_down = True
        super().__init__(disk)

    def start(self) -> None:
        super().start()
        rounds = ("log.retention.check.interval.ms", "log.flush.start.offset.checkpoint.interval.ms", "log.flush.offset.checkpoint.interval.ms")
        config = load_config(data=[self.path], settings=[f"{name}={EVERY_MS}" for name in rounds], environ={})
        self.retention = Retention(config, self.partitions, LocalTopicStore(self.store), cast(asyncio.AbstractEventLoop, self.loop), lambda: self.now)
        self.partitions.open_all()

    def run(self, actions: int) -> None:
        for _ in range(actions):
            if self.disk.changes_until_crash < 0 and self.chance.random() < 0.2:
                self.disk.changes_until_crash = self.chance.choice((0, 1, 2, 3, 5, 8, 13, 30, 60))
            try:
                self._act()
            except Crashed:
                self._come_back()
            self._learn_acknowledged()
        self.disk.changes_until_crash = -1
        self.settle()
        self._check()
        self.restart(clean_stop=True)
        self.verify()

    def _come_back(self) -> None:
        """Restart the killed process, and perhaps kill it once more while it starts."""
        self.kills += 1
        self._learn_acknowledged()
        self.calls.clear()
        for step in (self.chance.randint(0, 20), -1):
            self.disk.kill()
            self.disk.changes_until_crash = step
            try:
                self.start()
                self.settle()
                break
            except Crashed:
                self.kills += 1
        self.disk.changes_until_crash = -1
        self.settle()
        self._check()
        if self.chance.random() < 0.2:
            self.restart(clean_stop=True)
            self.verify()
            self._check()

    def verify(self) -> None:
        self.verified += 1
        target = self.folder / str(self.verified)
        copy_out(self.disk.folder(self.path), target)
        assert cli.main(["log", "verify", str(target)]) == 0
        shutil.rmtree(target)

    # Actions

    def _act(self) -> None:
        name = self.chance.choice(NAMES)
        if self.topics.by_name.get(name) is None or name not in self.histories:
            self._create_topic(name)
            return
        actions = (self._produce, self._produce, self._produce, self._delete_records, self._pass_time, self._compact, self._roll, self._create_topic)
        self.chance.choices(actions, (6, 6, 6, 3, 3, 3, 1, 1))[0](name)

    def _create_topic(self, name: str) -> None:
        """Create a topic; one that has this name is deleted first."""
        self.histories.pop(name, None)
        if name in self.topics.by_name:
            self.delete(name)
            self.loop.run()
        for _ in range(self.chance.choice((0, 20))):
            self._run_pending_work()
        compacted = self.chance.random() < 0.5
        policy = {"cleanup_policy": "compact"} if compacted else {}
        topic = self.create_topic(name, 1, segment_bytes=str(SEGMENT_BYTES), file_delete_delay_ms="3000", **policy)
        self.loop.run()
        self.histories[name] = TopicHistory(topic.id, compacted)

    def _produce(self, name: str) -> None:
        topic_history, partition = self.histories[name], self.find(name)
        if partition.error:
            self._run_pending_work()
            return
        new_records = [
            Record(number, 1 + self.now + number, b"k%d" % self.chance.randint(0, 4), b"%d " % self.chance.getrandbits(60) + bytes(99))
            for number in range(self.chance.randint(1, 3))
        ]
        data = bytearray(build(new_records))
        topic_history.in_flight = {partition.high_watermark + record.offset: (record.key or b"", record.value or b"") for record in new_records}
        partition.append(data, read_header(data, 0))
        topic_history.records |= topic_history.in_flight
        topic_history.in_flight = {}

    def _delete_records(self, name: str) -> None:
        partition = self.find(name)
        if partition.error or self.histories[name].compacted:
            return
        call = DeleteRecordsCall()
        self.calls.append((self.histories[name], call))
        delete_records(self, call, name, self.chance.randint(partition.start_offset, partition.high_watermark))

    def _learn_acknowledged(self) -> None:
        """Learn which deletions were acknowledged."""
        for topic_history, call in self.calls:
            if call.released:
                (result,) = call.reply.topics[0].partitions
                if not result.error_code:
                    topic_history.start = max(topic_history.start, result.low_watermark)
        self.calls = [call for call in self.calls if not call[1].released]

    def _pass_time(self, name: str) -> None:
        self.now += EVERY_MS
        self.loop.jump(EVERY_MS / 1000)
        for _ in range(self.chance.randint(0, 20)):
            self._run_pending_work()

    def _compact(self, name: str) -> None:
        partition = self.find(name)
        if partition.error or not self.histories[name].compacted or not disk_log(partition).closed_segments:
            return
        log = disk_log(partition)
        log.begin_compaction()
        if self.chance.random() < 0.3:  # the topic is deleted meanwhile: its folder stays until the compaction ends
            self._create_topic(name)
            self._run_pending_work()
            assert self.disk.exists(f"{log.folder}/partition.metadata")
        clean(self.disk, log, segment_bytes=self.chance.choice((SEGMENT_BYTES, 1 << 20)))
        log.end_compaction()
        self.compactions += 1

    def _roll(self, name: str) -> None:
        partition = self.find(name)
        if not partition.error:
            disk_log(partition).roll(0)

    def _run_pending_work(self) -> None:
        """Run one job of the threads, or else let 50 ms pass, in which turns and timers run."""
        if self.threads.jobs and self.chance.random() < 0.7:
            self.threads.run()
            return
        self.loop.jump(0.05)

    def settle(self) -> None:
        for _ in range(4):
            super().settle()
            self.loop.jump(0.05)

    # Invariants

    def _check(self) -> None:
        for name, topic_history in list(self.histories.items()):
            topic = self.topics.by_name.get(name)
            if topic is None or topic.id != topic_history.id:  # the kill came before its creation was durable
                del self.histories[name]
                continue
            partition = self.find(name)
            self.settle()
            assert not partition.error, partition.refusal_reason
            stored: dict[int, tuple[bytes, bytes]] = {}
            for chunk in scan(disk_log(partition), partition.start_offset):
                at = 0
                for header in iterate_headers(chunk, 0, len(chunk)):
                    stored |= {record.offset: (record.key or b"", record.value or b"") for record in records(chunk, at)}
                    at += header.size
            stored = {offset: record for offset, record in stored.items() if offset >= partition.start_offset}
            if topic_history.in_flight and partition.high_watermark == max(topic_history.in_flight) + 1:
                topic_history.records |= topic_history.in_flight
            topic_history.in_flight = {}
            assert partition.start_offset >= topic_history.start
            assert all(topic_history.records[offset] == record for offset, record in stored.items())
            expected = {offset: record for offset, record in topic_history.records.items() if offset >= partition.start_offset}
            if topic_history.compacted:
                newest = {key: offset for offset, (key, _) in sorted(expected.items())}
                expected = {offset: expected[offset] for offset in newest.values()}
            assert stored.items() >= expected.items()
            assert partition.high_watermark == max(topic_history.records, default=-1) + 1
            self.readable += len(stored)
