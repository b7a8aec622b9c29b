"""A log that leaves flushing to the operating system, whatever happens and whenever the power goes.

What it promises: what was flushed stays, and nothing is there that was not written; what is known of producers is what the
log says; a failure leaves it as it was, or repaired. When the power goes a closed segment may lose its end and the next one
not, as in Kafka.
"""

from __future__ import annotations

from random import Random

import pytest

from protocol.batch import Record, build, read_header
from storage import AppendFailed, Handles, Log, Producers, Recovery
from storage.swap import remove_deleted
from tests.storage.faulty_disk import Crashed, FaultyDisk
from tests.storage.logs import all_records, recover, stop

pytestmark = pytest.mark.once  # pure rules: one Python speaks for all

FOLDER = "/data/orders-0"


class Run:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = FaultyDisk(self.random)
        self.disk.make_folder("/data")
        self.count = 0
        self.told: dict[int, str] = {}  # what is at which offset
        self.written: dict[int, dict[int, int]] = {}  # of each producer the sequences, by offset
        self.point = 0  # the recovery point, as it was checkpointed last
        self.start = 0
        self.clean = False
        self.open()

    def open(self) -> Recovery:
        producers = Producers()
        clean, self.clean = self.clean, False
        self.log, recovery = Log.open(
            Handles(self.disk), FOLDER, 900, self.point, clean, deferred=True, start_offset=self.start, producers=producers
        )
        self.producers = producers
        return recovery

    def append(self) -> None:
        producer = self.random.choice((-1, 1, 2, 3))
        known = self.producers.get(producer)
        sequence = -1 if producer < 0 else known.last_sequence + 1 if known is not None else 0
        self.count += 1
        name = f"b{self.count}"
        made = [Record(0, 1_000 + self.count, name.encode(), bytes(self.random.randint(0, 300)))]
        data = bytearray(build(made, producer_id=producer, producer_epoch=min(producer, 0), base_sequence=sequence))
        header = read_header(data, 0)
        if producer >= 0:
            assert self.producers.check(header).error == 0
        offset = self.log.append(data, self.log.epoch)
        if producer >= 0:
            self.producers.note(header, offset)
            self.written.setdefault(producer, {})[offset] = sequence
        assert offset not in self.told
        self.told[offset] = name

    def append_on(self) -> None:
        while True:
            self.append()

    def retain(self) -> None:
        self.start = self.random.randint(self.log.start_offset, self.log.next_offset)
        self.log.delete_before(self.start)
        remove_deleted(self.disk, FOLDER, self.log.retain(0, 0, -1, -1))

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
        found = {record.offset: (record.key or b"").decode() for record in all_records(self.log)}
        begin = self.log._segments[0].base if self.log._segments else self.log.next_offset
        expected = {offset: name for offset, name in self.told.items() if offset >= begin}
        if lost:
            expected = {offset: name for offset, name in expected.items() if offset in found or offset < self.point}
        assert found == expected
        assert self.point <= self.log.next_offset
        assert self.log.start_offset >= max(begin, self.start)
        self.told = found
        for producer, written in self.written.items():
            self.written[producer] = left = {offset: sequence for offset, sequence in written.items() if offset in found}
            known = self.producers.get(producer)
            if left:
                assert known is not None
                newest = known.batches[-1][2], known.last_sequence
                # A snapshot may be there where the end of its segment is not.
                assert newest == max(left.items()) or (newest > max(left.items()) and newest in written.items())
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
def test_a_power_failure_at_any_step_loses_nothing_flushed(seed: int) -> None:
    run = Run(seed)
    for _ in range(12):
        run.disk.crash_at = run.random.randint(0, 25)
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
def test_the_disk_may_refuse_at_any_step(seed: int) -> None:
    run = Run(seed)
    run.append()
    for _ in range(8):
        run.disk.refuse_at = run.random.randint(0, 20)
        try:
            while True:
                run.step()
        except (AppendFailed, OSError):
            pass
        if not run.log.usable:
            with pytest.raises(OSError, match="Input/output error"):
                recover(run.log, keep_unflushed=True)
        run.disk.refuse_at = -1
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
def test_a_full_disk_leaves_everything_as_it_was(room: int) -> None:
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
