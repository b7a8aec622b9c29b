"""What is read: each run publishes all or nothing, and each record once, despite kills and for any slicing of the log."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from pipeline import jobs, rounds
from pipeline.blocks import COMMON, chunk_of
from pipeline.coverage import merged
from pipeline.decode import NOTE, OFFSET
from pipeline.inputs import LogId
from pipeline.jobs import BadInput, Inputs, PlainEngine, Steps
from pipeline.progress import Progress
from pipeline.reconcile import reconcile
from pipeline.rows import Commit, Coverage, Segment
from pipeline.rows import Record as Row
from pipeline.schema import rows_of
from pipeline.splits import plan
from pipeline.tables import Batch, Tables
from storage import OsDisk
from storage.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, write_offsets
from tests.pipeline.segments import batch_of, commit, mutated, note, random_batches, reference, write_segment

pytestmark = pytest.mark.once

READ = Steps(builds=False)


def run(out: Path, *folders: Path, progress: Progress | None = None, **options: Any) -> dict[str, object]:
    return PlainEngine(progress or Progress()).round(Tables.open(out, create=True), Inputs.of(list(map(str, folders)), **options), READ)


def table(out: Path, name: str, row: Any) -> list[Any]:
    return rows_of(row, Tables.open(out).read(name))


def stored(out: Path) -> tuple[list[Row], list[tuple[Any, ...]]]:
    """The records, and the offset commits, of one partition of a log."""
    return table(out, "records", Row), [stored_commit(row) for row in table(out, "commits", Commit)]


def stored_commit(row: Any) -> tuple[Any, ...]:
    """What `commits` has of a record."""
    at_ms = row.append_ms if row.commit_ms is None else row.commit_ms
    return row.offset, row.append_ms, row.group, row.topic, row.topic_partition, row.committed, at_ms, row.metadata, row.tombstone, row.txn


def read(rows: Iterable[Row]) -> tuple[list[Row], list[tuple[Any, ...]]]:
    """What a run stores of these records."""
    rows = list(rows)
    commits = [stored_commit(row) for row in sorted(rows, key=lambda row: (row.group or "", row.topic or "", row.topic_partition or 0, row.offset)) if row.kind == OFFSET]
    return [row for row in rows if row.kind != OFFSET], commits


def reconciled(out: Path) -> bool:
    """Whether the tables that are built from what was read agree with each other."""
    tables = Tables.open(out)
    PlainEngine(Progress()).round(tables, None, Steps(reads=False))
    return all(check.holds for check in reconcile(tables, 10))


def offsets(out: Path) -> list[int]:
    records, commits = stored(out)
    return sorted([*(row.offset for row in records), *(row[0] for row in commits)])


def test_the_first_run_reads_everything_and_the_next_only_new_records(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    folder = data / "__consumer_offsets-3"
    write_segment(folder, batch_of(0, commit("g", "t", 0, 1, 2), commit("g", "t", 0, 2, 3)))
    write_segment(data / "__coordinator_notes-3", batch_of(0, note("g")))
    assert run(out, data)["records"] == 3
    assert run(out, data)["records"] == 0
    write_segment(folder, batch_of(2, commit("g", "t", 0, 3, 4)))
    assert run(out, data)["records"] == 1
    assert [(row.log, row.kind, row.offset) for row in table(out, "records", Row)] == [("notes", NOTE, 0)]
    assert [row.offset for row in table(out, "commits", Commit)] == [0, 1, 2]
    tables = Tables.open(out)
    published = tables.published()
    assert published.batch == 2
    assert {file.part[:2] for name in ("records", "commits") for file in tables.files_of(published, name)} == {("unknown", chunk_of("unknown", "g", published.chunks))}
    assert {LogId.from_text(name) for name in published.content["cursors"]} == {("unknown", "notes", 3), ("unknown", "offsets", 3)}


def test_the_files_of_a_chunk_have_its_groups_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    for name in ("__consumer_offsets-3", "__coordinator_notes-3", "__consumer_offsets-1"):
        write_segment(data / name, random_batches(1, 200))
    monkeypatch.setattr("pipeline.splits.SPLIT_BYTES", 20_000)
    monkeypatch.setattr("pipeline.blocks.RECORDS_MAX", 100)
    run(out, data)
    tables = Tables.open(out)
    published = tables.published()
    for name in ("records", "commits"):
        files = tables.files_of(published, name)
        assert len({file.part.chunk for file in files} - {COMMON}) == published.chunks
        for file in files:
            rows = tables.store.load(file).to_pylist()
            groups = {row["group"] for row in rows} - ({None, ""} if file.part.chunk == COMMON else set())
            assert {chunk_of("unknown", group, published.chunks) for group in groups} == ({file.part.chunk} if file.part.chunk != COMMON else set())
            keys = [(row["log"], row["partition"], row["offset"]) if name == "records" else (row["group"], row["topic"], row["topic_partition"]) for row in rows]
            assert keys == sorted(keys)
    assert sum(tables.rows_in(published, name) for name in ("records", "commits")) == sum(row.records for row in table(out, "segments", Segment))


@pytest.mark.parametrize("seed", range(2))
def test_slices_and_kills_at_any_step_give_the_result_of_one_run(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    data, out = tmp_path / "data", tmp_path / "out"
    folder = data / "__consumer_offsets-0"
    batches = random_batches(seed, 120, 5)
    at, died = 0, 0
    while at < len(batches):
        at = min(len(batches), at + rng.choice([1, 10, 40]))
        for number in range(0, at, 30):
            write_segment(folder, batches[number : min(number + 30, at)])
        for owner, step in rng.sample(STEPS, 2):
            if kill(monkeypatch, owner, step, lambda: run(out, data)):
                died += 1
        run(out, data)
    assert died
    once = tmp_path / "once"
    run(once, data)
    assert stored(out) == stored(once) == read(reference(folder))
    assert merged(table(out, "coverage", Coverage)) == merged(table(once, "coverage", Coverage))
    assert reconciled(out)


# Of a run, in order.
STEPS: list[tuple[Any, str]] = [
    (jobs, "plan"),
    (jobs, "blocks_of"),
    (Batch, "claim"),
    (Batch, "commit"),
    (jobs, "build_chunk"),
    (rounds, "_with_decided"),
    (Batch, "publish"),
]


def kill(monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, work: Callable[[], object]) -> bool:
    """Let the work be interrupted after the step, without any step that cleans up; whether it was."""

    real = getattr(owner, step)

    def dying(*positional: Any, **named: Any) -> Any:
        if step != "publish":
            real(*positional, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, dying)
        patch.setattr(Batch, "release", lambda batch: None)
        try:
            work()
        except KeyboardInterrupt:
            return True
        finally:
            monkeypatch.setattr("pipeline.tables._is_alive", lambda claim: False)  # the process has ended
    return False


def test_unreadable_batches_are_counted_and_end_a_range_of_coverage(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    folder = data / "__consumer_offsets-0"
    good, bad = batch_of(0, commit("g", "t", 0, 1, 2)), batch_of(1, commit("g", "t", 0, 1, 2), commit("g", "t", 0, 1, 2))
    bad = mutated(bad, 61, 3)
    write_segment(folder, [good, bad, batch_of(3, commit("g", "t", 0, 1, 2))])
    summary = run(out, data)
    assert (summary["records"], summary["damaged_batches"], summary["quarantined_bytes"]) == (2, 1, len(bad))
    (segment,) = table(out, "segments", Segment)
    assert (segment.batches, segment.records, segment.damaged_batches) == (2, 2, 1)
    ranges = [(row.from_offset, row.to_offset, row.why) for row in merged(table(out, "coverage", Coverage))]
    assert ranges == [(0, 0, ""), (1, 2, "damaged"), (3, 3, "")]
    with pytest.raises(BadInput, match="offset 1: unreadable batch"):
        run(tmp_path / "other", data, on_corrupt="fail")
    assert not Tables.open(tmp_path / "other", create=True).published().versions


def test_a_segment_swapped_after_planning_is_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    folder = data / "__consumer_offsets-0"
    write_segment(folder, [batch_of(at, commit("g", "t", 0, at, at)) for at in range(20)])
    write_segment(folder, batch_of(20, commit("g", "t", 0, 1, 2)))
    exchange_after_planning(monkeypatch, folder, [[19], [3, 19]])
    assert run(out, data)["records"] == 3
    assert offsets(out) == [3, 19, 20]
    assert sum(row.records for row in table(out, "segments", Segment)) == 3
    assert reconciled(out)


def test_segments_merged_after_planning_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    folder = data / "__consumer_offsets-0"
    for base in (0, 10, 20):
        write_segment(folder, [batch_of(at, commit("g", "t", 0, at, at)) for at in range(base, base + 10)])
    exchange_after_planning(monkeypatch, folder, [[2, 9, 11, 19]], removed=10)
    run(out, data)
    assert offsets(out) == [2, 9, 11, 19, *range(20, 30)]
    assert reconciled(out)


def test_a_segment_that_is_always_swapped_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    folder = data / "__consumer_offsets-0"
    write_segment(folder, [batch_of(at, commit("g", "t", 0, at, at)) for at in range(20)])
    exchange_after_planning(monkeypatch, folder, [[at, at + 1] for at in range(18)])
    with pytest.raises(BadInput, match=r"0000\.log: its segment is replaced faster than it can be read; copy the directory, or stop its broker"):
        run(out, data)
    assert Tables.open(out, create=True).published().batch == 0


def exchange_after_planning(monkeypatch: pytest.MonkeyPatch, folder: Path, exchanges: list[list[int]], removed: int | None = None) -> None:
    """After each plan the first segment is replaced by one with these offsets; with the first, the segment `removed` is merged into it."""
    remaining = iter(exchanges)

    def exchanging(*positional: Any) -> Any:
        planned = plan(*positional)
        if kept := next(remaining, []):
            write_segment(folder, [batch_of(at, commit("g", "t", 0, at, at)) for at in kept], 0)
            if removed is not None:
                (folder / f"{removed:020}.log").unlink()
        return planned

    monkeypatch.setattr(jobs, "plan", exchanging)


def test_bad_input_publishes_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        run(tmp_path / "out", tmp_path / "nowhere")
    assert Tables.open(tmp_path / "out", create=True).published().batch == 0


@pytest.mark.parametrize("checkpoint", [RECOVERY_POINTS, HIGH_WATERMARKS])
@pytest.mark.parametrize("log", ["__consumer_offsets-3", "__coordinator_notes-3"])
def test_a_log_whose_only_segment_is_gone_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str], log: str, checkpoint: str) -> None:
    """Also in a later run, which does not write the same again, and after its first records were read."""
    data, out = tmp_path / "data", tmp_path / "out"
    write_segment(data / "__consumer_offsets-1", batch_of(0, commit("g", "t", 0, 1, 2)))
    (data / log).mkdir()
    (data / "__consumer_offsets-5").mkdir()
    write_offsets(OsDisk(), str(data / checkpoint), {(log[:-2], 3): 40, ("__consumer_offsets", 5): 0, ("__consumer_offsets", 1): 1})
    kind = "offsets" if "offsets" in log else "notes"
    for number in (1, 1):
        run(out, data, progress=Progress(sys.stdout))
        assert f"{kind}-3 has no segment, but a checkpoint file names its records up to offset 39" in capsys.readouterr().out
        assert Tables.open(out).published().batch == number
        missing = [row for row in table(out, "coverage", Coverage) if not row.complete]
        assert missing == [Coverage("unknown", kind, 3, 0, 39, None, None, False, "missing-segment")]
    path = write_segment(data / log, batch_of(0, commit("g", "t", 0, 1, 2) if kind == "offsets" else note("g")))
    run(out, data)
    path.unlink()
    run(out, data)
    assert [(row.from_offset, row.to_offset) for row in table(out, "coverage", Coverage) if row[1:3] == (kind, 3) and row.from_offset == 1] == [(1, 39)]
