from __future__ import annotations

import os
from pathlib import Path
from struct import pack

import pytest

from pipeline.end_samples import SAMPLE_MS, from_directory, from_list_offsets
from pipeline.rows import EndOffset
from protocol.batch import Record, build
from storage.checkpoints import LOG_STARTS, write_offsets
from storage.disk import OsDisk

pytestmark = pytest.mark.once  # no dependence on the Python version

T0 = 1_700_000_000_000
MTIME = T0 + 500_000


def segment(folder: Path, base: int, times: list[int], mtime: int = MTIME, index: bool = True) -> None:
    """Write a segment with one record in each batch, and a time index entry for each but the first."""
    folder.mkdir(exist_ok=True)
    data, entries, places = b"", b"", b""
    for place, at in enumerate(times):
        batch = bytearray(build([Record(0, at, None, b"v")]))
        batch[:8] = pack(">q", base + place)
        if place and index:
            entries += pack(">qi", at, place)
            places += pack(">ii", place, len(data))
        data += bytes(batch)
    (folder / f"{base:020d}.log").write_bytes(data)
    (folder / f"{base:020d}.timeindex").write_bytes(entries + bytes(36))  # zeros at the end, as Kafka preallocates index files
    (folder / f"{base:020d}.index").write_bytes(places + bytes(24))
    os.utime(folder / f"{base:020d}.log", ns=(mtime * 1_000_000, mtime * 1_000_000))


def sample(at: int, end: int, start: int | None = None, origin: str = "segments") -> EndOffset:
    return EndOffset("c", "orders", 0, at, end, start, origin, None)


def test_end_samples_are_from_time_indexes_and_the_last_batch(tmp_path: Path) -> None:
    segment(tmp_path / "orders-0", 100, [T0 + n * SAMPLE_MS for n in range(4)])
    segment(tmp_path / "orders-0", 104, [T0 + (4 + n) * SAMPLE_MS for n in range(3)])
    segment(tmp_path / "others-0", 0, [T0])
    rows = from_directory("c", str(tmp_path), {"orders"})
    assert rows == [sample(T0 + n * SAMPLE_MS, 101 + n) for n in (1, 2, 3, 5, 6)] + [sample(MTIME, 107, 100)]


def test_without_indexes_the_end_comes_from_the_batches(tmp_path: Path) -> None:
    segment(tmp_path / "orders-0", 5, [T0, T0 + 7, T0 + 9], index=False)
    for name in ("index", "timeindex"):
        (tmp_path / "orders-0" / f"{5:020d}.{name}").unlink()
    assert from_directory("c", str(tmp_path), {"orders"}) == [sample(T0 + 9, 8), sample(MTIME, 8, 5)]


def test_end_samples_are_correct_despite_a_wrong_index_and_a_torn_end(tmp_path: Path) -> None:
    segment(tmp_path / "orders-0", 5, [T0, T0 + 7, T0 + 9])
    log = tmp_path / "orders-0" / f"{5:020d}.log"
    log.write_bytes(log.read_bytes()[:-3])
    (tmp_path / "orders-0" / f"{5:020d}.index").write_bytes(pack(">ii", 1, 33))
    os.utime(log, ns=(MTIME * 1_000_000, MTIME * 1_000_000))
    assert from_directory("c", str(tmp_path), {"orders"})[-1] == sample(MTIME, 7, 5)


def test_checkpoint_samples_have_the_time_of_the_checkpoint(tmp_path: Path) -> None:
    write_offsets(OsDisk(), str(tmp_path / "replication-offset-checkpoint"), {("orders", 0): 44, ("others", 0): 3})
    write_offsets(OsDisk(), str(tmp_path / LOG_STARTS), {("orders", 0): 7})
    os.utime(tmp_path / "replication-offset-checkpoint", ns=(MTIME * 1_000_000, MTIME * 1_000_000))
    assert from_directory("c", str(tmp_path), {"orders"}) == [sample(MTIME, 44, 7, "checkpoint")]
    segment(tmp_path / "orders-0", 5, [T0, T0 + 7], mtime=T0 + 8)
    assert from_directory("c", str(tmp_path), {"orders"})[-2:] == [sample(T0 + 8, 7, 7), sample(MTIME, 44, 7, "checkpoint")]


def test_missing_and_malformed_files_give_no_samples(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-1").write_text("no folder")
    (tmp_path / "orders-2").mkdir()
    (tmp_path / "orders-2" / f"{0:020d}.log").write_bytes(b"\xff" * 100)
    (tmp_path / "orders-2" / f"{0:020d}.timeindex").write_bytes(b"\xff" * 17)
    assert [(row.topic_partition, row.end_offset) for row in from_directory("c", str(tmp_path), {"orders"})] == [(2, 0)]


def test_end_samples_of_broker_replies() -> None:
    assert from_list_offsets("c", T0, {("orders", 0): (None, 9)}) == [sample(T0, 9, None, "live")]
