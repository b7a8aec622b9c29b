"""Bronze tables: each run publishes all or nothing, and each record once, despite kills and for any slicing of the log."""

from __future__ import annotations

import random
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pipeline import ingest as ingesting
from pipeline.coverage import merged
from pipeline.ingest import BadInput, Inputs, ingest
from pipeline.inputs import LogId
from pipeline.progress import Progress
from pipeline.rows import Coverage, Segment
from pipeline.rows import Record as Row
from pipeline.runner import SequentialRunner
from pipeline.schema import rows_of
from pipeline.warehouse import Warehouse
from storage import OsDisk
from storage.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, write_offsets
from tests.pipeline.segments import batch_of, commit, mutated, note, random_batches, reference, write_segment

pytestmark = pytest.mark.once

QUIET = Progress()


def run(out: Path, *folders: Path, **options: Any) -> dict[str, object]:
    warehouse = Warehouse.open(out, create=True)
    with warehouse.locked():
        return ingest(warehouse, SequentialRunner(QUIET), Inputs.of(list(map(str, folders)), **options), QUIET)


def table(out: Path, name: str = "records", row: Any = Row) -> list[Any]:
    return rows_of(row, Warehouse.open(out).read(name))


def test_the_first_run_reads_everything_and_the_next_only_new_records(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    folder = data / "__consumer_offsets-3"
    write_segment(folder, batch_of(0, commit("g", "t", 0, 1, 2), commit("g", "t", 0, 2, 3)))
    write_segment(data / "__coordinator_notes-3", batch_of(0, note("g")))
    assert run(out, data)["records"] == 3
    assert run(out, data)["records"] == 0
    write_segment(folder, batch_of(2, commit("g", "t", 0, 3, 4)))
    assert run(out, data)["records"] == 1
    assert [(row.log, row.offset) for row in table(out)] == [("notes", 0), ("offsets", 0), ("offsets", 1), ("offsets", 2)]
    current = Warehouse.open(out).current()
    assert current.run == 2
    assert {file.bucket for file in current.files} == {"unknown/3"}
    assert {LogId.from_text(name) for name in current.cursors} == {("unknown", "notes", 3), ("unknown", "offsets", 3)}


def test_a_file_has_one_log_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    for name in ("__consumer_offsets-3", "__coordinator_notes-3", "__consumer_offsets-1"):
        write_segment(data / name, random_batches(1, 200))
    for module in ("ingest", "splits"):
        monkeypatch.setattr(f"pipeline.{module}.SPLIT_BYTES", 20_000)
    run(out, data)
    warehouse = Warehouse.open(out)
    files = warehouse.current().files_of("records")
    assert len(files) > 6
    spans = []
    for file in files:
        rows = warehouse.load(file)
        logs, offsets = set(rows["log"].to_pylist()), rows["offset"].to_pylist()
        assert len(logs) == 1
        assert offsets == sorted(offsets)
        spans.append((file.bucket, logs.pop(), offsets[0], offsets[-1]))
    spans.sort()
    assert all(span[3] < later[2] for span, later in pairwise(spans) if span[:2] == later[:2])
    assert len(table(out)) == sum(row.records for row in table(out, "segments", Segment))


@pytest.mark.parametrize("seed", range(4))
def test_slices_and_kills_at_any_step_give_the_result_of_one_run(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    data, out = tmp_path / "data", tmp_path / "out"
    folder = data / "__consumer_offsets-0"
    batches = random_batches(seed, 120, 5)
    at = 0
    while at < len(batches):
        at = min(len(batches), at + rng.choice([1, 10, 40]))
        for number in range(0, at, 30):
            write_segment(folder, batches[number : min(number + 30, at)])
        died = False
        for step in rng.sample(["survey_all", "write_rows", "_with_losses", "_write_by_bucket", "publish"], 2):
            with monkeypatch.context() as patch:
                target: Any = Warehouse if step == "publish" else ingesting
                real = getattr(target, step)

                def dying(*positional: Any, real: Any = real, step: str = step, **named: Any) -> Any:
                    if step != "publish":
                        real(*positional, **named)
                    raise KeyboardInterrupt

                patch.setattr(target, step, dying)
                try:
                    run(out, data)
                except KeyboardInterrupt:
                    died = True
        assert died
        run(out, data)
    once = tmp_path / "once"
    run(once, data)
    assert table(out) == table(once) == reference(folder)
    assert merged(table(out, "coverage", Coverage)) == merged(table(once, "coverage", Coverage))
    assert {path.name for path in out.rglob("*.parquet")} >= {Path(file.path).name for file in Warehouse.open(out).current().files}


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
    assert not Warehouse.open(tmp_path / "other").current().files


def test_a_segment_swapped_after_planning_is_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    folder = data / "__consumer_offsets-0"
    write_segment(folder, [batch_of(at, commit("g", "t", 0, at, at)) for at in range(20)])
    write_segment(folder, batch_of(20, commit("g", "t", 0, 1, 2)))
    surveyed = ingesting.survey_all
    exchanges = iter([[19], [3, 19]])

    def exchanging(*positional: Any) -> Any:
        plan = surveyed(*positional)
        if offsets := next(exchanges, []):
            write_segment(folder, [batch_of(at, commit("g", "t", 0, at, at)) for at in offsets], 0)
        return plan

    monkeypatch.setattr(ingesting, "survey_all", exchanging)
    run(out, data)
    assert [row.offset for row in table(out)] == [3, 19, 20]


def test_bad_input_publishes_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        run(tmp_path / "out", tmp_path / "nowhere")
    assert Warehouse.open(tmp_path / "out").current().run == 0


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
        warehouse = Warehouse.open(out, create=True)
        with warehouse.locked():
            ingest(warehouse, SequentialRunner(QUIET), Inputs.of([str(data)]), Progress(sys.stdout))
        assert f"{kind}-3 has no segment, but a checkpoint file names its records up to offset 39" in capsys.readouterr().out
        assert warehouse.current().run == number
        missing = [row for row in table(out, "coverage", Coverage) if not row.complete]
        assert missing == [Coverage("unknown", kind, 3, 0, 39, None, None, False, "missing-segment")]
    path = write_segment(data / log, batch_of(0, commit("g", "t", 0, 1, 2) if kind == "offsets" else note("g")))
    run(out, data)
    path.unlink()
    run(out, data)
    assert [(row.from_offset, row.to_offset) for row in table(out, "coverage", Coverage) if row[1:3] == (kind, 3) and row.from_offset == 1] == [(1, 39)]
