"""A log with deferred flushing, through any events and a power failure at any time.

The guarantees: flushed data stays, and the log has no bytes that were not written; producer state agrees with the log; a failed append
or flush leaves the log unchanged or repaired. As in Kafka, a closed segment may lose its end by a power failure, while the next keeps its own.
"""

from __future__ import annotations

from random import Random

import pytest

from protocol.batch import Record, build, read_header
from simulator.disk import Crashed, SimDisk
from storage import AppendFailed, Handles, Log, Producers, Truncation
from storage.swap import remove_deleted
from tests.storage.logs import all_records, recover, stop

pytestmark = pytest.mark.once  # no dependence on the Python version

FOLDER = "/data/orders-0"


class Run:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimDisk(self.random)
        self.disk.make_folder("/data")
        self.count = 0
        self.acknowledged: dict[int, str] = {}  # batches by offset
        self.written: dict[int, dict[int, int]] = {}  # sequences of each producer, by offset
        self.point = 0  # the last checkpointed recovery point
        self.start = 0
        self.clean = False
        self.open()

    def open(self) -> Truncation:
        producers = Producers()
        clean, self.clean = self.clean, False
        self.log, truncation = Log.open(
            Handles(self.disk), FOLDER, 900, self.point, clean, deferred=True, start_offset=self.start, producers=producers
        )
        self.producers = producers
        return truncation

    def append(self) -> None:
        producer = self.random.choice((-1, 1, 2, 3))
        state = self.producers.get(producer)
        sequence = -1 if producer < 0 else state.last_sequence + 1 if state is not None else 0
        self.count += 1
        name = f"b{self.count}"
        records = [Record(0, 1_000 + self.count, name.encode(), bytes(self.random.randint(0, 300)))]
        data = bytearray(build(records, producer_id=producer, producer_epoch=min(producer, 0), base_sequence=sequence))
        header = read_header(data, 0)
        if producer >= 0:
            assert self.producers.check(header).error == 0
        offset = self.log.append(data, self.log.epoch)
        if producer >= 0:
            self.producers.note(header, offset)
            self.written.setdefault(producer, {})[offset] = sequence
        assert offset not in self.acknowledged
        self.acknowledged[offset] = name

    def append_on(self) -> None:
        while True:
            self.append()

    def retain(self) -> None:
        self.start = self.random.randint(self.log.start_offset, self.log.next_offset)
        self.log.delete_before(self.start)
        remove_deleted(self.disk, FOLDER, self.log.apply_retention(0, 0, -1, -1))

    def flush(self) -> None:
        flush = self.log.start_flush(closed=self.random.random() < 0.5)
        try:
            flush.run()
        except OSError as error:
            self.log.finish_flush(flush, error)
        self.log.finish_flush(flush, None)
        self.point = self.log.flushed_offset

    def stop(self) -> None:
        stop(self.log)
        self.point, self.clean = self.log.flushed_offset, True

    def check(self, lost: bool = False) -> None:
        keys = {record.offset: (record.key or b"").decode() for record in all_records(self.log)}
        begin = self.log._segments[0].base if self.log._segments else self.log.next_offset
        expected = {offset: name for offset, name in self.acknowledged.items() if offset >= begin}
        if lost:
            expected = {offset: name for offset, name in expected.items() if offset in keys or offset < self.point}
        assert keys == expected
        assert self.point <= self.log.next_offset
        assert self.log.start_offset >= max(begin, self.start)
        self.acknowledged = keys
        for producer, written in self.written.items():
            self.written[producer] = surviving = {offset: sequence for offset, sequence in written.items() if offset in keys}
            state = self.producers.get(producer)
            if surviving:
                assert state is not None
                newest = state.batches[-1][2], state.last_sequence
                # A snapshot may exist for an offset past the end of a cut segment.
                assert newest == max(surviving.items()) or (newest > max(surviving.items()) and newest in written.items())
                self.written[producer][newest[0]] = newest[1]

    def step(self) -> None:
        match self.random.randint(0, 19):
            case 0 | 1:
                self.flush()
            case 2:
                self.retain()
            case 3:
                self.stop()
                self.open()
                self.check()
            case 4:  # the process is killed
                self.open()
                self.check()
            case _:
                self.append()


@pytest.mark.parametrize("seed", range(30))
def test_a_power_failure_at_any_step_loses_no_flushed_data(seed: int) -> None:
    run = Run(seed)
    for _ in range(12):
        run.disk.changes_until_crash = run.random.randint(0, 25)
        try:
            while True:
                run.step()
        except Crashed:
            run.disk.crash()
        run.clean = False
        run.open()
        run.check(lost=True)
        run.append()
        run.check()


@pytest.mark.parametrize("seed", range(30))
def test_a_disk_error_at_any_step_is_survived(seed: int) -> None:
    run = Run(seed)
    run.append()
    for _ in range(8):
        run.disk.changes_until_refusal = run.random.randint(0, 20)
        try:
            while True:
                run.step()
        except (AppendFailed, OSError):
            pass
        if not run.log.usable:
            with pytest.raises(OSError, match="Input/output error"):
                recover(run.log, keep_unflushed=True)
        run.disk.changes_until_refusal = -1
        run.clean = False
        if not run.log.usable:
            recover(run.log, keep_unflushed=True)
        run.point = min(run.point, run.log.flushed_offset)
        run.check()
        run.append()
        if run.random.random() < 0.5:
            run.open()
            run.check()


@pytest.mark.parametrize("room", range(0, 4_000, 97))
def test_a_full_disk_leaves_the_log_unchanged(room: int) -> None:
    run = Run(room)
    run.disk.room = room
    with pytest.raises(AppendFailed, match="is full"):
        run.append_on()
    run.disk.room = None
    if not run.log.usable:
        recover(run.log, keep_unflushed=True)
    run.check()
    run.append()
    run.check()
    run.open()
    run.check()
