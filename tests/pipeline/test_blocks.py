"""Blocks have each record once, in the chunk of its group; the tables depend on neither blocks nor tasks, chunks and cells."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.blocks import (
    BLOCKS,
    CLOCK,
    COMMIT_COLUMNS,
    COMMITS,
    COMMON,
    COUNTS,
    ENDS,
    EPOCHS,
    EVENTS,
    READ,
    TOPICS,
    WAITING,
    Block,
    batch_of,
    blocks_in,
    cells_of,
    chunk_of,
    in_log_order,
    records_of,
)
from pipeline.decode import NOTE, OFFSET
from pipeline.demo import write_world
from pipeline.end_offsets import from_notes
from pipeline.inputs import Inputs
from pipeline.jobs import MEMORY_BYTES, PlainEngine, Spill
from pipeline.packing import Packing, SplitPart, blocks_of, packed
from pipeline.rows import Record as Row
from pipeline.schema import in_order, rows_of, schema_of, table_of
from pipeline.splits import plan
from tests.pipeline.building import QUIET, analyzed, difference, tables
from tests.pipeline.decoded import check_stored, decoded
from tests.pipeline.segments import batch_of as records_batch
from tests.pipeline.segments import commit, group_record, marker, note, random_batches, write_segment

pytestmark = pytest.mark.once  # random logs

PARTITIONS = 3


@pytest.fixture(params=range(3))
def logs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inputs:
    """Random records of all kinds, in splits of a few batches."""
    monkeypatch.setattr("pipeline.splits.SPLIT_BYTES", 3_000)
    rng = random.Random(request.param)
    for partition in range(PARTITIONS):
        write_segment(tmp_path / "data" / f"__consumer_offsets-{partition}", random_batches(request.param * 10 + partition, 60))
    notes = [records_batch(number, note(rng.choice(["", "", "group-1", "group-7"]), number)) for number in range(30)]
    write_segment(tmp_path / "data" / "__coordinator_notes-0", notes)
    return Inputs.of([str(tmp_path / "data")])


def read(inputs: Inputs, chunks: int) -> list[Block]:
    return list(blocks_of(inputs, plan(inputs, {}).splits, chunks))


@pytest.mark.parametrize("chunks", [1, 6, 7])
@pytest.mark.parametrize("records_max", [1, 25, 300_000])
def test_each_record_is_in_one_block_of_its_chunk(logs: Inputs, chunks: int, records_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.blocks.RECORDS_MAX", records_max)
    rows, blocks = decoded(logs), read(logs, chunks)
    assert sum(block.records for block in blocks if block.kind in (COMMITS, EVENTS)) == len(rows)
    assert all(block.records == len(block.table) for block in blocks if block.kind in (COMMITS, EVENTS))

    events = records_of("unknown", blocks, EVENTS, schema_of("records"))
    assert sorted(rows_of(Row, events), key=key) == [row for row in rows if row.kind != OFFSET]
    commits = records_of("unknown", blocks, COMMITS, pa.schema([]))
    assert tuple(commits.schema.names) == COMMIT_COLUMNS
    assert list(map(tuple, map(dict.values, commits.to_pylist()))) == [tuple(getattr(row, name) for name in COMMIT_COLUMNS) for row in rows if row.kind == OFFSET]

    for block in blocks:
        if block.kind in (COMMITS, EVENTS):
            chunks_of_rows = {chunk_of_row(row, chunks) for row in block.table.select(["group", *(["kind"] if block.kind == EVENTS else [])]).to_pylist()}
            assert chunks_of_rows == {block.chunk}
        else:
            assert block.chunk == COMMON
    stored = Counter[int]()
    for block in blocks:
        if block.kind in (COMMITS, EVENTS):
            stored[block.chunk] += block.records
    assert sum((Counter(dict(zip(*block.table.to_pydict().values(), strict=True))) for block in blocks if block.kind == COUNTS), Counter()) == stored
    assert {block.kind for block in blocks} <= {COMMITS, EVENTS, EPOCHS, CLOCK, TOPICS, READ, COUNTS}


def key(row: Row) -> tuple[object, ...]:
    return row[:4]


def chunk_of_row(row: dict[str, Any], chunks: int) -> int:
    if row["group"] is None or (row["group"] == "" and row.get("kind") == NOTE):
        return COMMON
    return chunk_of("unknown", row["group"], chunks)


def test_blocks_have_what_concerns_all_groups(logs: Inputs) -> None:
    rows, blocks = decoded(logs), read(logs, 6)
    assert max(max(block.table["newest_ms"].to_pylist()) for block in blocks if block.kind == CLOCK) == max(row.append_ms for row in rows)
    assert {topic for block in blocks if block.kind == TOPICS for topic in block.table["topic"].to_pylist()} == {row.topic for row in rows if row.kind == OFFSET}
    first: dict[tuple[int, int], tuple[int, int]] = {}
    for row in reversed([row for row in rows if row.log == "offsets"]):
        first[row.partition, row.leader_epoch] = row.offset, row.append_ms
    epochs = [tuple(row.values()) for block in blocks if block.kind == EPOCHS for row in block.table.to_pylist()]
    assert {(partition, epoch): (offset, at_ms) for partition, epoch, offset, at_ms in epochs} == first


def test_records_of_open_transactions_wait_in_blocks(tmp_path: Path) -> None:
    open_batch = records_batch(1, commit("g", "t", 0, 5, 6), commit("h", "t", 0, 5, 6), transactional=True, producer=7)
    ended = records_batch(4, commit("g", "t", 0, 6, 6), transactional=True, producer=8), marker(5, 8, True)
    write_segment(tmp_path / "data" / "__consumer_offsets-0", [records_batch(0, commit("g", "t", 0, 1, 2)), open_batch, records_batch(3, group_record("g", 1)), *ended])
    blocks = read(Inputs.of([str(tmp_path / "data")]), 7)
    waiting = records_of("unknown", blocks, WAITING, schema_of("records"))
    assert waiting["offset"].to_pylist() == [1, 2]
    assert {block.chunk for block in blocks if block.kind == WAITING} == {chunk_of("unknown", group, 7) for group in ("g", "h")}
    assert records_of("unknown", blocks, COMMITS, pa.schema([]))["offset"].to_pylist() == [0, 4]
    assert records_of("unknown", blocks, EVENTS, schema_of("records"))["offset"].to_pylist() == [3, 5]


def test_blocks_survive_as_rows(logs: Inputs) -> None:
    blocks = read(logs, 6)
    batch = batch_of(blocks)
    assert batch.schema == BLOCKS
    assert blocks_in(batch) == blocks
    assert batch_of([]).schema == BLOCKS
    assert blocks_in(batch_of([])) == []


def test_blocks_that_go_to_files_come_back_once(logs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.blocks.RECORDS_MAX", 40)
    blocks = [block for block in read(logs, 6) if block.chunk != COMMON]
    for limit in (0, 20_000, MEMORY_BYTES):
        monkeypatch.setattr("pipeline.jobs.MEMORY_BYTES", limit)
        folder = tmp_path / str(limit)
        folder.mkdir()
        spill = Spill(folder)
        for block in blocks:
            spill.add(block)
        assert bool(list(folder.iterdir())) == (limit < MEMORY_BYTES)
        taken = {place: [block._replace(block=bytes(block.block)) for block in spill.take(*place)] for place in {(block.cluster, block.chunk) for block in blocks}}
        assert {place: Counter(each) for place, each in taken.items()} == {
            place: Counter(block for block in blocks if (block.cluster, block.chunk) == place) for place in taken
        }
        assert sum(map(len, taken.values())) == len(blocks)
        assert not list(folder.iterdir())
        assert spill.take(*next(iter(taken))) == []


@pytest.mark.parametrize("tasks", [1, 3, 1000])
def test_tasks_have_each_split_once(logs: Inputs, tasks: int) -> None:
    splits = plan(logs, {}).splits
    assert len(splits) > 10
    parts = [SplitPart(split) for split in splits]
    for limit in (1 << 30, 100):
        of_tasks = packed(parts, Packing(tasks, limit))
        assert all(of_tasks)
        assert sorted((part for task in of_tasks for part in task), key=parts.index) == parts
        assert len(of_tasks) >= min(tasks, len(parts))


def test_each_group_is_in_one_cell_of_its_chunk() -> None:
    groups = pa.array([f"group-{number % 500}" for number in range(2_000)])
    for cells in (1, 2, 7):
        found = cells_of("c", groups, 6, cells).tolist()
        assert set(found) == set(range(cells))
        assert len({*zip(groups.to_pylist(), found, strict=True)}) == 500
        assert cells_of("c", groups.dictionary_encode(), 6, cells).tolist() == found
    of_chunk = [group for group in groups.to_pylist() if chunk_of("c", group, 6) == 2]
    assert len(set(cells_of("c", pa.array(of_chunk), 6, 6).tolist())) == 6  # independent of the chunk


@pytest.mark.parametrize("seed", range(20))
def test_log_order_is_by_partition_and_offset(seed: int) -> None:
    rng = random.Random(seed)
    places = [(rng.randrange(3), rng.randrange(1 << 40)) for _ in range(rng.randrange(50))]
    for some in (places, sorted(places)):
        table = pa.table({"partition": pa.array([place[0] for place in some], pa.int64()), "offset": pa.array([place[1] for place in some], pa.int64())})
        ordered = in_log_order(table)
        assert list(zip(ordered["partition"].to_pylist(), ordered["offset"].to_pylist(), strict=True)) == sorted(places)


# Tables


def patched(monkeypatch: pytest.MonkeyPatch, rng: random.Random, tasks: int, block_records: int, cell_records: int, slice_records: int) -> None:
    """Rounds read in several tasks, and get blocks in any order, as Spark gives them."""

    def shuffled(inputs: Inputs, splits: Sequence[Any], chunks: int) -> Iterator[Block]:
        blocks: list[Block] = []
        for task in packed([SplitPart(split) for split in splits], Packing(tasks, 1 << 30)):
            blocks += blocks_of(inputs, [part.split for part in task], chunks)
        rng.shuffle(blocks)
        yield from blocks

    monkeypatch.setattr("pipeline.jobs.blocks_of", shuffled)
    monkeypatch.setattr("pipeline.blocks.RECORDS_MAX", block_records)
    monkeypatch.setattr("pipeline.chunks.CELL_RECORDS", cell_records)
    monkeypatch.setattr("pipeline.chunks.SLICE_RECORDS", slice_records)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "data"
    write_world(folder, seed=3, days=0.03)
    return folder


def test_end_offsets_of_topics_are_blocks_of_their_own(world: Path) -> None:
    inputs = Inputs.of([str(world)])
    rows, blocks = decoded(inputs), read(inputs, 6)
    ends, rest = from_notes(table_of("records", [row for row in rows if row.log == "notes"]))
    assert len(ends) > 100
    assert len(rest) > 10
    ours = pa.concat_tables([block.table for block in blocks if block.kind == ENDS])
    assert in_order("end_offsets", ours).equals(in_order("end_offsets", ends))
    assert {block.chunk for block in blocks if block.kind == ENDS} == {COMMON}
    assert sum(block.records for block in blocks if block.kind == ENDS) == sum(row.log == "notes" for row in rows) - len(rest)


BOUNDS = [{0: 300, 1: 40, 2: 0, 3: 1_000}]


@pytest.fixture(scope="module")
def expected(world: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    made = analyzed(tmp_path_factory.mktemp("expected") / "out", world, [])
    check_stored(made, decoded(Inputs.of([str(world)])))
    return tables(made)


@pytest.mark.parametrize(
    ("chunks", "tasks", "block_records", "cell_records", "slice_records", "bounds"),
    [(1, 3, 200, 1_000, 130, []), (6, 100, 7, 300, 60, BOUNDS), (7, 2, 300_000, 100, 300_000, BOUNDS), (40, 1, 100, 1 << 30, 50, [])],
)
def test_tables_depend_neither_on_chunks_nor_tasks_nor_the_order_of_blocks(
    chunks: int, tasks: int, block_records: int, cell_records: int, slice_records: int, bounds: list[dict[int, int]],
    world: Path, expected: dict[str, pa.Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("pipeline.splits.SPLIT_BYTES", 40_000)
    patched(monkeypatch, random.Random(chunks), tasks, block_records, cell_records, slice_records)
    made = analyzed(tmp_path / "out", world, bounds, engine=PlainEngine(QUIET, chunks))
    assert made.published().chunks == chunks
    for name, table in tables(made).items():
        assert table.equals(expected[name]), difference(name, table, expected[name])


@pytest.mark.parametrize("seed", range(2))
def test_random_records_are_stored_once_in_any_chunks(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.splits.SPLIT_BYTES", 3_000)
    directory = tmp_path / "data"
    write_segment(directory / "__consumer_offsets-0", random_batches(seed, 60))
    rows = decoded(Inputs.of([str(directory)]))
    at_once = analyzed(tmp_path / "at once", directory, [])
    check_stored(at_once, rows)
    rng = random.Random(seed)
    patched(monkeypatch, rng, 4, 20, 60, 25)
    made = analyzed(tmp_path / "out", directory, [{0: rng.randrange(rows[-1].offset)}], engine=PlainEngine(QUIET, 5))
    check_stored(made, rows)
    for name, table in tables(made).items():
        whole = at_once.read(name)
        assert table.equals(whole), difference(name, table, whole)
