"""With `offsets.flush=always`: one flush for the appends of a turn to many logs, without loss through any failure."""

from __future__ import annotations

import asyncio
import itertools
from random import Random
from typing import cast

import google_crc32c
import pytest

from broker.internal_topics import NOTES_LOG
from broker.runtime.start import ExitCode, StartError
from broker.stores import turn_flushes
from broker.stores.local import LocalStore
from broker.stores.owned import LocalLog
from broker.stores.turn_flushes import LOGS_MIN
from protocol.batch import build_facts
from simulator.disk import Crashed, SimDisk
from storage import AppendFailed, LogId, Unreadable
from storage.turn_format import file_header
from storage.turn_log import is_turn_log
from tests.storage.logs import overwrite, read
from tests.support.local_stores import StoreHarness, config

MANY = LOGS_MIN + 2


class Writers(StoreHarness):
    """A store with many logs, and the acknowledged keys of each."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__(disk, "always")
        self.logs = self.more_logs(MANY)
        self.acknowledged: list[list[bytes]] = [[] for _ in self.logs]
        self.numbers = itertools.count()

    def append(self, *logs: int) -> None:
        """Append to these logs, in one turn."""
        for number in logs or range(MANY):
            key = b"%d" % next(self.numbers)

            def results(result: int | AppendFailed, number: int = number, key: bytes = key) -> None:
                if not isinstance(result, AppendFailed):
                    self.acknowledged[number].append(key)

            self.logs[number].append(build_facts([(key, b"value")], 1), 1, results)
        self.loop.run()

    def append_durably(self) -> None:
        self.append()
        self.threads.run_all()

    def keep_over_a_crash(self, acknowledged: list[list[bytes]]) -> None:
        """Check that after a power failure the logs have exactly these keys."""
        self.crash()
        assert self.stored() == acknowledged

    def crash(self) -> None:
        """Let the power fail, and open all logs again."""
        self.disk.crash()
        self.start()
        self.logs = self.more_logs(MANY)

    def stored(self) -> list[list[bytes]]:
        return [keys(log) for log in self.logs]

    @property
    def files(self) -> list[str]:
        return [name for name in self.disk.list("/data") if is_turn_log(name)]


def keys(log: LocalLog) -> list[bytes]:
    return [key for facts in log.replay() for key, _ in facts]


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(7))


@pytest.fixture
def writers(disk: SimDisk) -> Writers:
    return Writers(disk)


def test_many_logs_are_durable_after_one_flush(writers: Writers) -> None:
    writers.append()
    assert (len(writers.threads.jobs), writers.acknowledged) == (1, [[]] * MANY)
    before = writers.disk.syncs
    writers.threads.run()
    assert writers.disk.syncs == before + 1
    assert (writers.acknowledged, writers.threads.jobs) == ([[b"%d" % number] for number in range(MANY)], [])
    assert [log.high_watermark for log in writers.logs] == [1] * MANY
    assert writers.stored() == writers.acknowledged
    acknowledged = writers.acknowledged
    writers.keep_over_a_crash(acknowledged)
    writers.threads.run_all()
    assert writers.files == []  # turn files are removed once the logs themselves are flushed
    writers.keep_over_a_crash(acknowledged)


def test_appends_during_a_turn_flush_go_with_the_next_flush(writers: Writers) -> None:
    writers.append(0, 1, 2, 3)
    writers.append(4, 5)
    writers.append(4, 5)
    assert len(writers.threads.jobs) == 1
    writers.threads.run()
    assert [len(keys) for keys in writers.acknowledged] == [1, 1, 1, 1, 0, 0]
    assert len(writers.threads.jobs) == 1
    writers.threads.run()
    assert [len(keys) for keys in writers.acknowledged] == [1, 1, 1, 1, 2, 2]
    acknowledged = writers.acknowledged
    writers.keep_over_a_crash(acknowledged)


def test_a_log_may_be_flushed_alone_and_with_others_in_turn(writers: Writers) -> None:
    for appends in ((0,), (), (0, 1), (), (1,)):
        writers.append(*appends)
        writers.threads.run_all()
    acknowledged = writers.acknowledged
    assert [len(keys_of_log) for keys_of_log in acknowledged] == [4, 4, 2, 2, 2, 2]
    writers.keep_over_a_crash(acknowledged)


@pytest.mark.parametrize("fault", ["fail_writes", "fail_syncs", "fail_folder_syncs"])
def test_each_log_is_flushed_if_the_turn_file_cannot_be_written(
    writers: Writers, fault: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 1_000.0
    monkeypatch.setattr(writers.store.turn_flushes, "_monotonic", lambda: seconds)
    if fault != "fail_folder_syncs":
        writers.append_durably()
    writers.append()
    setattr(writers.disk, fault, 1)
    writers.threads.run_all()
    rounds = 1 + (fault != "fail_folder_syncs")
    assert [len(keys_of_log) for keys_of_log in writers.acknowledged] == [rounds] * MANY
    assert [log.log.flushed_offset for log in writers.logs] == [rounds] * MANY
    assert writers.files == []
    writers.append()
    assert len(writers.threads.jobs) > 1
    writers.threads.run_all()
    seconds += turn_flushes.RETRY_SECONDS
    writers.append()
    assert len(writers.threads.jobs) == 1
    writers.threads.run_all()
    acknowledged = writers.acknowledged
    assert [len(keys_of_log) for keys_of_log in acknowledged] == [rounds + 2] * MANY
    writers.keep_over_a_crash(acknowledged)


def test_a_large_turn_file_is_removed_after_its_logs_are_flushed(writers: Writers) -> None:
    writers.store.turn_flushes.bytes_max = 1_000
    file_names = set()
    for _ in range(20):
        writers.append_durably()
        file_names |= set(writers.files)
        assert sum(writers.disk.open(f"/data/{name}").size() for name in writers.files) <= 2_000
    assert len(file_names) > 5
    acknowledged = writers.acknowledged
    writers.keep_over_a_crash(acknowledged)


def test_a_turn_file_stays_while_a_log_cannot_be_flushed(writers: Writers) -> None:
    writers.store.turn_flushes.bytes_max = 0
    writers.append()
    writers.threads.run()  # at the limit of 0 bytes the turn file is full at once
    writers.disk.fail_syncs = 1
    writers.threads.run_all()
    assert "turns.1" in writers.files
    acknowledged = writers.acknowledged
    assert [len(keys_of_log) for keys_of_log in acknowledged] == [1] * MANY
    writers.keep_over_a_crash(acknowledged)


@pytest.mark.parametrize("flushed_before", [0, 1])
@pytest.mark.parametrize("dropped", [False, True])
def test_batches_lost_by_a_failed_flush_are_restored_from_the_turn_file(writers: Writers, flushed_before: int, dropped: bool) -> None:
    for _ in range(flushed_before):
        writers.append(0)
        writers.threads.run_all()
    writers.append()
    writers.append_durably()
    acknowledged = [list(keys_of_log) for keys_of_log in writers.acknowledged]
    results: list[AppendFailed | None] = []
    writers.disk.fail_syncs = 1
    log = writers.logs[0]
    log.flusher.flush(results.append)
    writers.threads.run_all()
    assert isinstance(results.pop(), AppendFailed)
    if dropped:
        content = writers.disk.content(f"{log.log.folder}/{0:020}.log")
        content.cached = bytearray(content.durable)
    log.recover(results.append)
    writers.threads.run_all()
    assert results == [None]
    assert writers.stored() == acknowledged
    writers.append_durably()
    acknowledged = writers.acknowledged
    assert len(acknowledged[0]) == flushed_before + 3
    writers.keep_over_a_crash(acknowledged)


def test_an_orderly_stop_leaves_no_turn_file(writers: Writers) -> None:
    writers.append_durably()
    assert writers.files == ["turns.1"]
    problems: list[str] = []
    writers.store.finish(True, problems.append)
    while not problems:
        writers.threads.run_all()
    assert (problems, writers.files) == ([""], [])
    acknowledged = writers.acknowledged
    writers.crash()
    assert writers.store.directory.clean
    assert writers.stored() == acknowledged


def test_an_unreadable_turn_file_prevents_the_start(writers: Writers) -> None:
    writers.append_durably()
    writers.disk.crash()
    writers.disk.unreadable = "turns."
    with pytest.raises(Exception, match="data directory /data: Input/output error"):
        writers.start()
    assert not writers.disk.locks
    writers.disk.unreadable = ""
    acknowledged = writers.acknowledged
    writers.keep_over_a_crash(acknowledged)


def test_a_turn_file_stays_until_every_log_in_it_was_opened(writers: Writers) -> None:
    writers.append_durably()
    acknowledged = writers.acknowledged
    for opened in (0, 1, MANY - 1):
        writers.disk.crash()
        writers.start()
        writers.more_logs(opened)
        writers.threads.run_all()
        assert writers.files == ["turns.1"]
    writers.keep_over_a_crash(acknowledged)


@pytest.mark.parametrize("seed", range(100))
def test_acknowledged_records_survive_a_power_failure_at_any_step(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random turns of few and of many logs, with failed flushes and removals of turn files; the power fails before a random disk operation."""
    random = Random(seed)
    monkeypatch.setattr(turn_flushes, "BYTES_MAX", random.choice([0, 300, 3_000]))
    monkeypatch.setattr(turn_flushes, "RETRY_SECONDS", random.choice([0.0, 15.0]))
    disk = SimDisk(random)
    disk.failed_sync_loses = random.choice([True, False])
    writers = Writers(disk)
    for _ in range(3):
        disk.changes_until_crash = random.randrange(150)
        try:
            for _ in range(30):
                if random.random() < 0.1:
                    disk.fail_syncs = 1
                usable = [number for number, log in enumerate(writers.logs) if log.log.usable]
                if usable:
                    writers.append(*sorted(random.sample(usable, random.randint(1, len(usable)))))
                for _ in range(random.randint(0, 3)):
                    if writers.threads.jobs:
                        writers.threads.run()
        except Crashed:
            pass
        acknowledged = [list(keys_of_log) for keys_of_log in writers.acknowledged]
        writers.crash()
        assert [[key for key in stored if key in promised] for stored, promised in zip(writers.stored(), acknowledged, strict=True)] == acknowledged


# Damaged turn files


def lose_unsynced(disk: SimDisk) -> None:
    """Let the power fail so that all unsynced bytes are lost."""
    disk.random = Random(0)
    disk.random.randint = lambda a, b: a  # type: ignore[method-assign]
    disk.crash()


def acquired(writers: Writers) -> dict[int, LocalLog | Unreadable]:
    """Acquire all logs after a restart; returns each log, or the reason why it is refused."""
    opened_logs: dict[int, LocalLog | Unreadable] = {}
    for number in range(MANY):

        def results(log: object, number: int = number) -> None:
            opened_logs[number] = cast("LocalLog | Unreadable", log)

        writers.store.acquire(LogId("values", number + 1), results)
        writers.threads.run_all()
    return opened_logs


def test_a_flipped_bit_in_a_turn_file_refuses_only_the_affected_logs(capfd: pytest.CaptureFixture[str]) -> None:
    clean = b""
    refusals = set()
    for at in range(30, 3_000, 41):
        disk = SimDisk(Random(7))
        writers = Writers(disk)
        writers.append_durably()
        writers.append(0, 1, 2, 3)
        writers.threads.run_all()
        last = len(read(disk, "/data/turns.1"))
        writers.append(1, 2, 3, 4)
        writers.threads.run_all()
        acknowledged = [list(keys_of_log) for keys_of_log in writers.acknowledged]
        lose_unsynced(disk)
        clean = read(disk, "/data/turns.1")
        if at >= last:
            break
        data = bytearray(clean)
        data[at] ^= 0x10
        overwrite(disk, "/data/turns.1", bytes(data))
        for restart in range(2):  # a second start must find the same: nothing was repaired
            writers.start()
            opened_logs = acquired(writers)
            refused = {number for number, log in opened_logs.items() if isinstance(log, Unreadable)}
            for number, log in opened_logs.items():
                if isinstance(log, Unreadable):
                    assert log.damaged
                    assert "/data/turns.1 is damaged at byte" in log.reason
                else:
                    assert keys(log) == acknowledged[number]
            assert "log of turns is damaged" in capfd.readouterr().out
            problems: list[str] = []
            writers.store.finish(True, problems.append)
            while not problems:
                writers.threads.run_all()
            assert read(disk, "/data/turns.1") == bytes(data)
            if restart == 0:
                disk.locks.clear()
        refusals.add(frozenset(refused))
        assert refused
    assert len(refusals) > 5, "one bit in a batch concerns one log"
    assert len(clean) > 1_000


def test_a_possibly_incomplete_registry_prevents_the_start_but_notes_do_not(disk: SimDisk) -> None:
    writers = Writers(disk)
    writers.append_durably()
    lose_unsynced(disk)
    data = bytearray(read(disk, "/data/turns.1"))
    data[30] ^= 1  # the header of the only turn: its logs are unknown
    overwrite(disk, "/data/turns.1", bytes(data))
    with pytest.raises(StartError, match="a turn cannot be read, and may have batches of values-0 that the log lacks"):
        writers.start()
    disk.locks.clear()
    store = LocalStore(config("always"), cast(asyncio.AbstractEventLoop, writers.loop), disk)
    notes: list[object] = []
    store.acquire(LogId(NOTES_LOG, 0), notes.append)
    assert isinstance(notes[0], LocalLog)
    store.close()


def test_a_damaged_end_of_a_log_is_restored_from_the_turn_file(disk: SimDisk, capfd: pytest.CaptureFixture[str]) -> None:
    writers = Writers(disk)
    writers.append(0)
    writers.threads.run_all()
    writers.append_durably()
    acknowledged = writers.acknowledged
    path = f"{writers.logs[0].log.folder}/{0:020}.log"
    data = bytearray(read(disk, path))
    data[-1] ^= 1
    overwrite(disk, path, bytes(data))
    disk.locks.clear()
    writers.start()
    opened_logs = acquired(writers)
    assert [keys(log) for log in opened_logs.values() if isinstance(log, LocalLog)] == acknowledged
    assert "damaged end of a log cut off and kept" in capfd.readouterr().out
    assert len(disk.list("/data/set-aside")) == 1


def test_a_turn_file_of_a_newer_version_prevents_the_start(disk: SimDisk) -> None:
    Writers(disk).store.close()
    disk.locks.clear()
    header = bytearray(file_header(0, 0)[:-4])
    header[5] += 1
    overwrite(disk, "/data/turns.7", bytes(header) + google_crc32c.value(bytes(header)).to_bytes(4, "big"))
    with pytest.raises(StartError, match="it has version 2 and this version reads up to 1") as caught:
        LocalStore(config("always"), cast(asyncio.AbstractEventLoop, None), disk)
    assert caught.value.code == ExitCode.DATA
    assert not disk.locks
