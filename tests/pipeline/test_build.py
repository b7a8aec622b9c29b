"""A build in slices of any size writes the tables of a single build."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.jobs import Inputs, PlainEngine, Steps
from tests.pipeline.building import ENGINE, QUIET, analyzed, difference, tables
from tests.pipeline.scenarios import random_script, write_script

pytestmark = pytest.mark.once  # no dependence on the Python version


@pytest.fixture(scope="module")
def log_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("world") / "data"
    write_script(random_script(3), directory)
    return directory


@pytest.fixture(scope="module")
def at_once(log_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    return tables(analyzed(tmp_path_factory.mktemp("once") / "out", log_folder, []))


@pytest.mark.parametrize("seed", range(3))
def test_building_in_slices_gives_the_same_tables(log_folder: Path, at_once: dict[str, pa.Table], tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    partitions = [int(path.name.rpartition("-")[2]) for path in log_folder.glob("__consumer_offsets-*")]
    ends = {number: 1 + max(at_once["commits"]["offset"].to_pylist(), default=0) for number in partitions}
    cuts = sorted(chance.random() for _ in range(chance.randint(1, 3)))
    until = [{number: int(end * cut) for number, end in ends.items()} for cut in cuts]
    sliced = tables(analyzed(tmp_path / "out", log_folder, until))
    for name, table in at_once.items():
        assert sliced[name].equals(table), difference(name, sliced[name], table)


@pytest.mark.parametrize("chunks", [1, 40])
def test_chunks_and_cells_of_any_number_give_the_same_tables(
    log_folder: Path, at_once: dict[str, pa.Table], tmp_path: Path, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.chunks.CELL_RECORDS", 50)
    monkeypatch.setattr("pipeline.chunks.SLICE_RECORDS", 40)
    made = analyzed(tmp_path / "out", log_folder, [{0: 150}, {0: 300}], engine=PlainEngine(QUIET, chunks))
    for name, table in tables(made).items():
        assert at_once[name].equals(table), difference(name, table, at_once[name])
    ENGINE.round(made, None, Steps(reads=False, full=True))
    for name, table in tables(made).items():
        assert at_once[name].equals(table), difference(name, table, at_once[name])


def test_a_second_run_finds_nothing_new(log_folder: Path, tmp_path: Path) -> None:
    made = analyzed(tmp_path / "out", log_folder, [])
    before = made.published()
    assert made.rows_in(before, "rebalances")
    assert ENGINE.round(made, Inputs.of([str(log_folder)]), Steps())["built"] == "no new records"
    assert made.published() == before


def test_a_rebuild_gives_the_same_tables(log_folder: Path, at_once: dict[str, pa.Table], tmp_path: Path) -> None:
    made = analyzed(tmp_path / "out", log_folder, [])
    ENGINE.round(made, None, Steps(reads=False, full=True))
    rebuilt = tables(made)
    for name, table in at_once.items():
        assert rebuilt[name].equals(table), name


def test_records_that_were_stored_without_a_build_are_in_the_tables_after_the_next(log_folder: Path, at_once: dict[str, pa.Table], tmp_path: Path) -> None:
    made = analyzed(tmp_path / "out", log_folder, [{0: 100}], finish=False)
    for bound in ({0: 200}, {0: 320}, {}):
        ENGINE.round(made, Inputs.of([str(log_folder)], until=bound), Steps(builds=False))
    assert made.rows_in(made.published(), "commits") > 0
    ENGINE.round(made, None, Steps(reads=False))
    for name, table in tables(made).items():
        assert at_once[name].equals(table), difference(name, table, at_once[name])
    assert ENGINE.round(made, None, Steps(reads=False)) == {"built": "no new records"}
