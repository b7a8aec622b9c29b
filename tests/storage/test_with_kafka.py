"""Files written by Kafka, opened by us; files of ours, checked by Kafka's tool."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from protocol.batch import build_facts, iterate_headers, records
from storage import Handles, Log, OsDisk
from tests.oracle import run_java
from tests.storage.logs import DUMP, FOLDER, batch, newest_timestamp, reopen, scan, stop

pytestmark = pytest.mark.once

# Sixty records in batches of their own and five in a compressed one, written by Apache Kafka 4.3.1 with
# index.interval.bytes=1024 and copied while it ran: a hundred of the zeros preallocated after the index entries are left.
WRITTEN = Path(__file__).parent / "kafka_written" / "stored1-0"


@pytest.mark.parametrize("clean", [False, True])
def test_a_segment_written_by_kafka_opens_and_accepts_appends(tmp_path: Path, clean: bool) -> None:
    folder = tmp_path / "stored1-0"
    shutil.copytree(WRITTEN, folder)
    log, truncation = Log.open(Handles(OsDisk()), str(folder), 1 << 20, 65, clean)
    assert (truncation.cut_bytes, log.next_offset, log.epoch) == (0, 65, 1)
    decoded = [record for chunk in scan(log) for header in batches(chunk) for record in records(chunk, header)]
    assert [record.offset for record in decoded] == list(range(65))
    assert [record.key for record in decoded[:60]] == [b"k%d" % n for n in range(60)]
    assert [(record.key, record.headers) for record in decoded[60:]] == [(b"gzip%d" % n, ((b"h", b"1"),)) for n in range(5)]
    assert newest_timestamp(log) == 1_700_000_001_004
    for offset in (0, 17, 33, 59, 62):
        chunk = next(scan(log, offset))
        header = next(iterate_headers(chunk, 0, len(chunk)))
        assert header.base_offset <= offset <= header.last_offset
    assert log.append(batch("ours"), log.epoch) == 65
    stop(log)
    assert (folder / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n1 65\n"


def batches(chunk: bytes) -> list[int]:
    at, starts = 0, []
    for header in iterate_headers(chunk, 0, len(chunk)):
        starts.append(at)
        at += header.size
    return starts


def test_the_index_that_kafka_wrote_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "stored1-0"
    shutil.copytree(WRITTEN, folder)
    log, _ = Log.open(Handles(OsDisk()), str(folder), 1 << 20, 65, True)
    index = log._segments[0].index
    assert index.stored_offsets > 3
    assert 0 < index.before(4095)[0] < 4096  # denser than our index


@pytest.mark.kafka
def test_kafkas_tool_finds_no_problem_in_our_segments_and_indexes(tmp_path: Path) -> None:
    log, _ = reopen(OsDisk(), str(tmp_path), segment_bytes=30_000)
    for number in range(100):
        log.append(batch(f"b{number}", 2, padding=300, timestamp=1_000 + 7 * number), 0)
    log.append(build_facts([(b"key", b"value"), (b"gone", None)], 5_000), 0)
    stop(log)
    folder = tmp_path / FOLDER
    logs = sorted(folder.glob("*.log"))
    assert len(logs) == 3
    assert dumped(logs) == list(range(202))
    no_complaint_about_indexes(folder, 3)


def dumped(logs: list[Path]) -> list[int]:
    """The offsets printed by Kafka's tool."""
    printed = run_java(DUMP, "--files", ",".join(map(str, logs)), "--print-data-log", "--deep-iteration")
    assert "isvalid: false" not in printed
    assert "isvalid: true" in printed
    return [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", printed, re.MULTILINE)]


def no_complaint_about_indexes(folder: Path, count: int) -> None:
    complaints = re.compile(r"mismatch|found invalid|out of order|not found|corrupt|is not|exception", re.IGNORECASE)
    for check in ("--index-sanity-check", "--verify-index-only"):
        files = [*map(str, sorted(folder.glob("*.index"))), *map(str, sorted(folder.glob("*.timeindex")))]
        assert len(files) == 2 * count
        printed = run_java(DUMP, "--files", ",".join(files), check)
        assert not complaints.search(printed), printed
        assert check != "--index-sanity-check" or printed.count("passed sanity check") == 2 * count
