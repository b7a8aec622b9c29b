"""The process that cleans: what it is told, what it tells, and that it changes nothing when it is ended."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from storage import Log, OsDisk
from storage.cleaner import ABANDONED, Report, request_line
from storage.swap import promote, remove_deleted
from tests.storage.logs import overwrite, read, reopen
from tests.storage.test_compaction import keyed, replayed, shown

COMMAND = [sys.executable, "-P", "-m", "storage.cleaner"]
SETTINGS = {"first_dirty": 0, "now": 10_000, "delete_retention_ms": 1_000, "segment_bytes": 1 << 20, "map_bytes_max": 1 << 26, "token": "7"}


def filled(path: Path, count: int = 300, padding: int = 100) -> Log:
    log, _ = reopen(OsDisk(), str(path), segment_bytes=20_000)
    for number in range(count):
        log.append(keyed((f"k{number % 10}", f"v{number}" + "x" * padding)), 0)
    log.flush()
    assert log.roll(0)
    return log


def request(log: Log) -> bytes:
    return request_line(log.folder, log.closed, log.last_base, {7: 0}, **SETTINGS)


def run(log: Log) -> tuple[int, bytes, bytes]:
    """Its exit code and what it printed, on both ways."""
    with Popen([*COMMAND, log.folder], stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(request(log))
        process.stdin.flush()
        return process.wait(30), process.stdout.read(), process.stderr.read()


def test_a_process_cleans_what_it_is_told_and_says_what_it_made(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before = replayed(log)
    code, printed, complaint = run(log)
    assert (code, complaint) == (0, b"")
    report = Report(printed)
    assert (report.clean_to, report.bytes_before) == (300, log.size)
    assert replayed(log) == before
    remove_deleted(OsDisk(), log.folder, log.exchange(report.cleaned, promote(OsDisk(), log.folder, report.cleaned, "7")))
    assert replayed(log) == before
    assert (len(shown(log)), log.size) == (10, report.bytes_after)


def test_it_hears_which_producers_live() -> None:
    line = request_line("folder", [], 0, {7: 12, 8: 3}, first_dirty=0)
    assert json.loads(line)["producers"] == [[7, 12], [8, 3]]


def test_it_ends_when_its_owner_is_gone(tmp_path: Path) -> None:
    log = filled(tmp_path, 2_000, 3_000)
    with Popen([*COMMAND, log.folder], stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(request(log))
        process.stdin.close()
        assert process.wait(30) == ABANDONED
        assert process.stdout is not None
        assert process.stdout.read() == b""
    assert len(shown(reopen(OsDisk(), str(tmp_path))[0])) == 2_000
    assert not [name for name in OsDisk().list(log.folder) if "cleaned" in name]


def test_it_says_what_is_wrong_and_leaves_everything(tmp_path: Path) -> None:
    log = filled(tmp_path)
    path = f"{log.folder}/00000000000000000000.log"
    whole = read(OsDisk(), path)
    overwrite(OsDisk(), path, whole[:120] + b"?" + whole[121:])
    code, printed, complaint = run(log)
    assert (code, printed) == (1, b"")
    assert b"is damaged at byte 0: a batch's checksum is wrong" in complaint


def test_what_is_no_report_is_refused() -> None:
    for line in (b"", b"[]", b"{}", b'{"cleaned": [[1]]}', b'{"cleaned": 1}'):
        with pytest.raises(ValueError, match=r"report|Expecting|values"):
            Report(line)
