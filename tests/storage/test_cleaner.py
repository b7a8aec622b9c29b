"""The cleaner process: its request, its report, and a kill, which changes no file."""

from __future__ import annotations

import gc
import json
import os
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from protocol.batch import Record, build
from storage import Log, OsDisk
from storage.cleaner import ABANDONED, Report, main, owner_has_ended, request_line
from storage.swap import promote, remove_deleted
from tests.storage.logs import append_flushed, compaction, keyed_batch, overwrite, read, records_by_offset, reopen, values_by_key

pytestmark = pytest.mark.once  # the cleaner's protocol does not depend on the Python version

COMMAND = [sys.executable, "-P", "-m", "storage.cleaner"]
SETTINGS: dict[str, int | str] = {"first_dirty": 0, "now": 10_000, "delete_retention_ms": 1_000, "segment_bytes": 1 << 20, "map_bytes_max": 1 << 26, "token": "7"}


def filled(path: Path, count: int = 300, padding: int = 100) -> Log:
    log, _ = reopen(OsDisk(), str(path), segment_bytes=20_000)
    for number in range(count):
        append_flushed(log, keyed_batch((f"k{number % 10}", f"v{number}" + "x" * padding)))
    assert log.roll(0)
    return log


def request(log: Log) -> bytes:
    return request_line(log.folder, log.closed_segments, log.active_base, {7: 0}, **SETTINGS)


def run(log: Log) -> tuple[int, bytes, bytes]:
    """The exit code of the cleaner, and its standard output and error."""
    with Popen([*COMMAND, log.folder], stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(request(log))
        process.stdin.flush()
        return process.wait(30), process.stdout.read(), process.stderr.read()


def test_a_compaction_process_cleans_the_named_segments_and_reports_the_new_ones(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before = values_by_key(log)
    code, printed, complaint = run(log)
    assert (code, complaint) == (0, b"")
    report = Report(printed)
    assert (report.clean_to, report.bytes_before) == (300, log.size)
    assert values_by_key(log) == before
    remove_deleted(OsDisk(), log.folder, log.exchange(report.cleaned, promote(OsDisk(), log.folder, report.cleaned, "7")))
    assert values_by_key(log) == before
    assert (len(records_by_offset(log)), log.size) == (10, report.bytes_after)


def test_the_request_to_the_cleaner_names_live_producers() -> None:
    line = request_line("folder", [], 0, {7: 12, 8: 3}, first_dirty=0)
    assert json.loads(line)["producers"] == [[7, 12], [8, 3]]


def test_the_cleaner_exits_when_its_owner_is_gone(tmp_path: Path) -> None:
    log = filled(tmp_path, 2_000, 3_000)
    with Popen([*COMMAND, log.folder], stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(request(log))
        process.stdin.close()
        assert process.wait(30) == ABANDONED
        assert process.stdout is not None
        assert process.stdout.read() == b""
    assert len(records_by_offset(reopen(OsDisk(), str(tmp_path))[0])) == 2_000
    assert not [name for name in OsDisk().list(log.folder) if "cleaned" in name]


def test_a_failed_cleaning_reports_the_error_and_changes_nothing(tmp_path: Path) -> None:
    log = filled(tmp_path)
    path = f"{log.folder}/00000000000000000000.log"
    data = read(OsDisk(), path)
    overwrite(OsDisk(), path, data[:120] + b"?" + data[121:])
    code, printed, complaint = run(log)
    assert (code, printed) == (1, b"")
    assert b"is damaged at byte 0: a batch's checksum is wrong" in complaint


def test_a_malformed_cleaner_report_is_refused() -> None:
    for line in (b"", b"[]", b"{}", b'{"cleaned": [[1]]}', b'{"cleaned": 1}'):
        with pytest.raises(ValueError, match=r"report|Expecting|values"):
            Report(line)


# The cleaner, called in this process


class CleanerStdin:
    """Stands in for the broker, which holds the other end of the cleaner's standard input."""

    def __init__(self, write_end: int) -> None:
        self._write_end = write_end

    def write(self, line: bytes) -> None:
        os.write(self._write_end, line)

    def close(self) -> None:
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> Iterator[CleanerStdin]:
    read_end, write_end = os.pipe()
    owner_process = CleanerStdin(write_end)
    with open(read_end) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(gc, "disable", int)
        yield owner_process
        owner_process.close()


@pytest.mark.parametrize("producers", [None, {7: 0}, {7: 1}])
def test_the_cleaner_process_has_the_result_of_a_compaction_in_process(
    tmp_path: Path, owner: CleanerStdin, capsys: pytest.CaptureFixture[str], producers: dict[int, int] | None
) -> None:
    log, _ = reopen(OsDisk(), str(tmp_path))
    for sequence in range(2):
        log.append(build([Record(0, 5_000, b"a", b"1")], producer_id=7, producer_epoch=0, base_sequence=sequence), 0)
    append_flushed(log, keyed_batch(("a", "2")))
    assert log.roll(0)
    owner.write(request_line(log.folder, log.closed_segments, log.active_base, producers, **SETTINGS))
    assert main() == 0
    printed = capsys.readouterr()
    report = Report(printed.out.encode())
    job = compaction(OsDisk(), log, producers=producers, **SETTINGS | {"token": "8"})
    assert list(job.steps())
    expected = job.cleaned, job.clean_to, job.bytes_before, job.bytes_after
    assert (report.cleaned, report.clean_to, report.bytes_before, report.bytes_after) == expected
    assert len(set(map(str, expected))) == 4
    assert printed.err == ""


def test_a_cleaning_stops_halfway_when_its_owner_is_gone(tmp_path: Path, owner: CleanerStdin, capsys: pytest.CaptureFixture[str]) -> None:
    log = filled(tmp_path)
    owner.write(request(log))
    owner.close()
    assert main() == ABANDONED == 3
    assert capsys.readouterr().out == ""


def test_the_cleaner_reports_its_error(tmp_path: Path, owner: CleanerStdin, capsys: pytest.CaptureFixture[str]) -> None:
    log = filled(tmp_path)
    OsDisk().remove(f"{log.folder}/00000000000000000000.log")
    owner.write(request(log))
    assert main() == 1
    printed = capsys.readouterr()
    assert ("No such file" in printed.err, printed.out) == (True, "")


def test_the_owner_lives_until_standard_input_closes(owner: CleanerStdin, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    real_select = select.select

    def noted(read: list[int], write: list[int], odd: list[int], timeout: float) -> object:
        waits.append(timeout)
        return real_select(read, write, odd, timeout)

    monkeypatch.setattr(select, "select", noted)
    assert not owner_has_ended()
    owner.write(b"?")
    assert not owner_has_ended()
    owner.close()
    assert owner_has_ended()
    assert waits == [0, 0, 0]
