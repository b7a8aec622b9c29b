"""Plans of reading directories: the valid batches, missing offsets with their reason, and the position of the next run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pipeline import inputs
from pipeline.coverage import merged
from pipeline.inputs import BadInput, Inputs, LogId
from pipeline.reading import read_split
from pipeline.resuming import Cursor
from pipeline.rows import Coverage, Segment
from pipeline.rows import Record as Row
from pipeline.schema import rows_of
from pipeline.splits import Plan, plan
from storage.segment import segment_bases
from tests.pipeline.segments import EPOCH_MS, batch_of, commit, marker, note, random_batches, reference, write_segment

pytestmark = pytest.mark.once  # no dependence on the Python version

ID = LogId("unknown", "offsets", 0)


def fact(offset: int = 0, at_ms: int = EPOCH_MS) -> tuple[bytes | None, bytes | None]:
    return commit("g", "t", 0, offset, at_ms)


def read(planned: Plan) -> list[Row]:
    return [row for split in planned.splits for batch in read_split(split) for row in rows_of(Row, batch)]


def planned(*folders: Path, cursors: dict[LogId, Cursor] | None = None, **options: object) -> Plan:
    return plan(Inputs.of(list(map(str, folders)), **options), cursors or {})  # type: ignore[arg-type]


def offsets(split_plan: Plan) -> list[int]:
    return [row.offset for row in read(split_plan)]


def coverage_of(split_plan: Plan) -> list[tuple[int, int, str]]:
    return [(row.from_offset, row.to_offset, row.why or "complete") for row in split_plan.coverage]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "__consumer_offsets-0"


# Damage


def test_a_segment_cut_at_any_byte_is_read_up_to_the_cut(folder: Path) -> None:
    batches = [batch_of(0, fact(), fact()), batch_of(2, fact()), batch_of(3, fact(), fact(), fact())]
    data = b"".join(batches)
    ends = [len(b"".join(batches[:number])) for number in range(4)]
    for size in range(len(data)):
        write_segment(folder, data[:size] if size else b"", 0)
        split_plan = planned(folder)
        sound = max(number for number in range(4) if ends[number] <= size)
        assert offsets(split_plan) == list(range((0, 2, 3, 6)[sound]))
        assert sum(row.torn_bytes for row in split_plan.segments) == size - ends[sound]
        assert not any(row.damaged_batches for row in split_plan.segments)


def test_a_flipped_bit_costs_one_batch_and_is_counted(folder: Path) -> None:
    batches = [batch_of(0, fact(), fact()), batch_of(2, fact()), batch_of(3, fact(), fact(), fact()), batch_of(6, fact())]
    intact = b"".join(batches)
    rng = random.Random(1)
    for at in range(len(intact)):
        data = bytearray(intact)
        data[at] ^= 1 << rng.randrange(8)
        write_segment(folder, bytes(data), 0)
        split_plan = planned(folder)
        (segment,) = split_plan.segments
        rows = read(split_plan)
        inside = next(number for number in range(4) if at < len(b"".join(batches[: number + 1])))
        within = at - len(b"".join(batches[:inside]))
        if within in range(12, 16):  # the leader's epoch, which no checksum covers
            assert len(rows) == 7
            continue
        lost = segment.quarantined_bytes + segment.torn_bytes
        moved = inside == 3 and within < 8  # a larger offset of the last batch cannot be noticed, as no batch follows
        assert lost == len(batches[inside]) or (moved and lost == 0 and segment.missing_offsets)
        assert len(rows) == 7 - (2, 1, 3, 1)[inside] + moved * (lost == 0)
        if inside < 3:
            assert [row.why for row in split_plan.coverage if not row.complete] == ["damaged"]


def test_garbage_is_counted_in_the_middle_and_at_the_end(folder: Path) -> None:
    first, second = batch_of(0, fact()), batch_of(5, fact())
    write_segment(folder, first + b"garbage" * 100 + second + bytes(5_000))
    split_plan = planned(folder)
    assert offsets(split_plan) == [0, 5]
    assert (split_plan.segments[0].quarantined_bytes, split_plan.segments[0].torn_bytes) == (700, 5_000)
    assert coverage_of(split_plan) == [(0, 0, "complete"), (1, 4, "damaged"), (5, 5, "complete")]


def test_a_torn_end_of_a_segment_that_is_not_the_last_is_quarantined(folder: Path) -> None:
    write_segment(folder, batch_of(0, fact()) + batch_of(1, fact())[:-3])
    write_segment(folder, batch_of(2, fact()))
    split_plan = planned(folder)
    assert offsets(split_plan) == [0, 2]
    assert [row.damaged_batches for row in split_plan.segments] == [1, 0]
    assert coverage_of(split_plan) == [(0, 0, "complete"), (1, 1, "torn"), (2, 2, "complete")]


def test_damage_is_refused_on_request(folder: Path) -> None:
    path = write_segment(folder, batch_of(0, fact()) + b"garbage" * 20 + batch_of(1, fact()))
    with pytest.raises(BadInput, match=rf"{path}: byte \d+: .*; --on-corrupt=quarantine skips and counts it"):
        planned(folder, on_corrupt="fail")
    write_segment(folder, batch_of(0, fact()) + batch_of(1, fact())[:-3])
    assert offsets(planned(folder, on_corrupt="fail")) == [0]


# Directories


def test_a_missing_directory_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is empty"):
        planned(tmp_path)
    (tmp_path / "other").mkdir()
    with pytest.raises(BadInput, match="contains no folder __consumer_offsets-N"):
        planned(tmp_path)
    with pytest.raises(BadInput, match="No such file"):
        planned(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="Not a directory"):
        planned(tmp_path / "file")


def test_the_cluster_is_named_by_meta_properties_unless_an_option_names_it(tmp_path: Path) -> None:
    write_segment(tmp_path / "__consumer_offsets-4", batch_of(0, fact()))
    (tmp_path / "meta.properties").write_text("#\nversion=1\ncluster.id = abc\nnode.id=1\n")
    assert [row.cluster for row in read(planned(tmp_path))] == ["abc"]
    assert [row.cluster for row in read(planned(tmp_path, cluster="mine"))] == ["mine"]
    assert [row.partition for row in read(planned(tmp_path / "__consumer_offsets-4"))] == [4]


def test_other_files_and_folders_are_ignored(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    path = write_segment(folder, batch_of(0, fact()))
    for ending in (".cleaned", ".swap", ".deleted"):
        path.with_name(path.name + ending).write_bytes(b"never read")
    path.with_suffix(".index").write_bytes(b"nor this")
    write_segment(tmp_path / "__consumer_offsets-0.abc-delete", batch_of(0, fact()))
    write_segment(tmp_path / "orders-0", batch_of(0, fact()))
    assert offsets(planned(tmp_path)) == [0]


@pytest.mark.parametrize("listing", [1, 2])
def test_a_folder_changed_by_the_cleaner_is_listed_again(folder: Path, monkeypatch: pytest.MonkeyPatch, listing: int) -> None:
    write_segment(folder, batch_of(0, fact(), fact()))
    write_segment(folder, batch_of(2, fact()))
    listed = segment_bases
    exchanges = iter([number == listing for number in range(1, 4)])

    def exchanging(disk: object, path: str) -> list[int]:
        names = listed(disk, path)  # type: ignore[arg-type]
        if next(exchanges, False):  # a compaction merges both segments while they are listed
            write_segment(folder.with_name("new"), batch_of(0, fact(), fact()) + batch_of(2, fact())).rename(folder / f"{0:020}.log")
            (folder / f"{2:020}.log").unlink(missing_ok=True)
        return names

    monkeypatch.setattr(inputs, "segment_bases", exchanging)
    split_plan = planned(folder)
    assert offsets(split_plan) == [0, 1, 2]
    assert len(split_plan.segments) == 1


def test_reading_stops_at_an_offset(tmp_path: Path) -> None:
    write_segment(tmp_path / "__consumer_offsets-0", [batch_of(0, fact()), batch_of(1, fact(), fact()), batch_of(3, fact())])
    write_segment(tmp_path / "__consumer_offsets-1", [batch_of(0, fact()), batch_of(1, fact())])
    assert offsets(planned(tmp_path, until={0: 3})) == [0, 1, 2, 0, 1]
    assert offsets(planned(tmp_path, until={0: 2})) == [0, 0, 1]
    assert offsets(planned(tmp_path, until={0: 0, 1: 0})) == []


def test_notes_may_be_in_another_directory(tmp_path: Path) -> None:
    write_segment(tmp_path / "a" / "__consumer_offsets-0", batch_of(0, fact()))
    write_segment(tmp_path / "b" / "__coordinator_notes-0", batch_of(5, note("g")))
    write_segment(tmp_path / "b" / "__consumer_offsets-0", batch_of(7, fact()))
    assert [(row.log, row.offset) for row in read(planned(tmp_path / "a", notes=[str(tmp_path / "b")]))] == [("notes", 5), ("offsets", 0)]
    with pytest.raises(BadInput, match="contains no folder __coordinator_notes-N"):
        planned(tmp_path / "a", notes=[str(tmp_path / "a")])


# Holes


def test_offsets_removed_by_compaction_end_a_range_of_coverage(folder: Path) -> None:
    write_segment(folder, [batch_of(3, fact()), batch_of(100, *[fact()] * 100)], 0)
    write_segment(folder, batch_of(300, *[fact()] * 10))
    split_plan = planned(folder)
    assert coverage_of(split_plan) == [(0, 99, "compacted"), (100, 199, "complete"), (200, 299, "compacted"), (300, 309, "complete")]
    assert split_plan.segments[0].missing_offsets == 96


def test_missing_offsets_at_the_log_start_are_attributed_to_retention(tmp_path: Path) -> None:
    folder = tmp_path / "__coordinator_notes-0"
    write_segment(folder, batch_of(50, fact()))
    write_segment(folder, batch_of(60, fact()))
    assert coverage_of(planned(folder)) == [(0, 49, "retention"), (50, 50, "complete"), (51, 59, "missing-segment"), (60, 60, "complete")]


def test_an_offset_gap_without_compaction_is_a_missing_segment(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    write_segment(folder, batch_of(0, fact()))
    write_segment(folder, batch_of(60, fact()))
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\n__consumer_offsets 0 1\n")
    assert coverage_of(planned(tmp_path)) == [(0, 0, "complete"), (1, 59, "missing-segment"), (60, 60, "complete")]


# Transactions


def test_only_committed_transactions_count_and_aborted_ones_are_counted(folder: Path) -> None:
    write_segment(
        folder,
        [
            batch_of(0, fact(), transactional=True, producer=1),
            batch_of(1, fact(), fact(), transactional=True, producer=2),
            batch_of(3, fact()),
            marker(4, 1, commits=True),
            marker(5, 2, commits=False),
            batch_of(6, fact()),
        ],
    )
    split_plan = planned(folder)
    rows = read(split_plan)
    assert [(row.offset, row.kind, row.txn) for row in rows] == [
        (0, "offset", True), (3, "offset", False), (4, "control", True), (5, "control", True), (6, "offset", False),
    ]  # fmt: skip
    assert split_plan.segments[0].aborted == 2
    assert coverage_of(split_plan) == [(0, 6, "complete")]


def test_only_the_records_of_an_open_transaction_wait_for_its_end(folder: Path) -> None:
    batches = [batch_of(0, fact()), batch_of(1, fact(), transactional=True, producer=1), batch_of(2, fact())]
    write_segment(folder, batches)
    first = planned(folder)
    assert [(offsets(first._replace(splits=[split])), split.waits) for split in first.splits] == [([0, 2], False), ([1], True)]
    assert [transaction[:2] for transaction in first.cursors[ID].open] == [(1, 1)]
    assert first.segments[0].records == 2
    for commits in (True, False):
        write_segment(folder, [*batches, marker(3, 1, commits=commits)])
        second = planned(folder, cursors=first.cursors)
        assert (offsets(second), second.ended, second.cursors[ID].open) == ([3], {ID: {1: commits}}, ())


def test_an_open_transaction_is_ignored_after_a_day(folder: Path) -> None:
    hanging = batch_of(0, fact(), transactional=True, producer=1)
    late = batch_of(1, fact(), at_ms=EPOCH_MS + 24 * 3_600_000 + 1)
    write_segment(folder, [hanging, late, marker(2, 1, commits=True, at_ms=EPOCH_MS + 25 * 3_600_000)])
    split_plan = planned(folder)
    assert offsets(split_plan) == [1, 2]
    assert split_plan.segments[0].aborted == 1
    write_segment(folder, [hanging, late])
    assert offsets(planned(folder)) == [1]


# Replicas


def test_each_record_of_several_replicas_is_read_once(tmp_path: Path) -> None:
    batches = random_batches(5, 60)
    for name, part in {"a": batches[:50], "b": batches, "c": batches[20:40]}.items():
        write_segment(tmp_path / name / "__consumer_offsets-0", part)
    split_plan = planned(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    expected = reference(tmp_path / "b" / "__consumer_offsets-0")
    assert [row[:-2] for row in read(split_plan)] == [row[:-2] for row in expected]
    assert sum(row.records for row in split_plan.segments) == len(expected)
    assert not any(row.diverged for row in split_plan.segments)


def test_an_uncompacted_replica_fills_the_gaps_of_another(tmp_path: Path) -> None:
    batches = [batch_of(at, fact(), fact()) for at in range(0, 20, 2)]
    write_segment(tmp_path / "a" / "__consumer_offsets-0", batches[:3] + batches[7:], 0)
    write_segment(tmp_path / "b" / "__consumer_offsets-0", batches[:8])
    split_plan = planned(tmp_path / "a", tmp_path / "b")
    assert offsets(split_plan) == list(range(20))
    assert coverage_of(split_plan) == [(0, 19, "complete")]


def test_replicas_that_differ_are_reported_and_the_later_leader_counts(tmp_path: Path) -> None:
    def of(epoch: int, offset: int) -> bytes:
        batch = bytearray(batch_of(0, fact(offset)))
        batch[12:16] = epoch.to_bytes(4, "big")
        return bytes(batch)

    write_segment(tmp_path / "a" / "__consumer_offsets-0", [of(1, 11), batch_of(1, fact())])
    write_segment(tmp_path / "b" / "__consumer_offsets-0", of(2, 22))
    split_plan = planned(tmp_path / "a", tmp_path / "b")
    assert [row.committed for row in read(split_plan)] == [22, 0]
    assert {Path(row.path).parts[-3]: row.diverged for row in split_plan.segments} == {"a": 1, "b": 0}


# Slices


def grown(folder: Path, batches: list[bytes], end: int, per_segment: int) -> None:
    for number in range(0, end, per_segment):
        write_segment(folder, batches[number : min(number + per_segment, end)])


@pytest.mark.parametrize("seed", range(8))
def test_reading_in_slices_gives_the_result_of_one_run(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    folder = tmp_path / "__consumer_offsets-0"
    batches = random_batches(seed, 200, 5)
    per_segment = rng.choice([7, 30, 500])
    cursors: dict[LogId, Cursor] = {}
    rows: list[Row] = []
    covered: list[Coverage] = []
    at = 0
    while at < len(batches):
        at = min(len(batches), at + rng.choice([0, 1, 5, 40]))
        grown(folder, batches, at, per_segment)
        if not at:
            continue
        split_plan = planned(folder, cursors={id: Cursor.from_json(cursor.as_json()) for id, cursor in cursors.items()})
        rows += read(split_plan)
        covered += split_plan.coverage
        cursors.update(split_plan.cursors)
    once = planned(folder)
    assert rows == read(once) == reference(folder)
    assert merged(covered) == merged(once.coverage)
    assert not planned(folder, cursors=cursors).splits


def test_reading_continues_in_a_log_compacted_between_runs(folder: Path) -> None:
    batches = [batch_of(at, fact(at)) for at in range(30)]
    write_segment(folder, batches[:20])
    first = planned(folder)
    assert offsets(first) == list(range(20))
    write_segment(folder, batches[5:8] + batches[20:], 0)
    second = planned(folder, cursors=first.cursors)
    assert offsets(second) == list(range(20, 30))
    assert coverage_of(second) == [(20, 29, "complete")]


def test_a_different_log_of_the_same_name_is_refused(folder: Path) -> None:
    write_segment(folder, [batch_of(at, fact()) for at in range(20)])
    first = planned(folder)
    log = [batch_of(at, fact(), at_ms=EPOCH_MS + 1_000) for at in range(30)]
    for batches in (log[:5], log):
        write_segment(folder, batches)
        with pytest.raises(BadInput, match="deleted and created again"):
            planned(folder, cursors=first.cursors)


def test_an_older_copy_of_the_log_adds_no_records(folder: Path) -> None:
    batches = [batch_of(at, fact()) for at in range(20)]
    write_segment(folder, batches)
    first = planned(folder)
    write_segment(folder, batches[:10])
    repeated = planned(folder, cursors=first.cursors)
    assert (repeated.splits, repeated.cursors) == ([], first.cursors)


def test_large_segments_are_split_without_changing_the_result(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_segment(folder, random_batches(2, 300))
    unsplit = planned(folder)
    monkeypatch.setattr("pipeline.splits.SPLIT_BYTES", 10_000)
    parts = planned(folder)
    assert len(parts.splits) > 5
    assert read(parts) == read(unsplit)
    assert parts.segments == unsplit.segments
    assert isinstance(parts.segments[0], Segment)
