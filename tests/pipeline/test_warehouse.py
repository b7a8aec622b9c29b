"""A warehouse keeps exactly the published files."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.rows import TABLES, Deploy, Hygiene
from pipeline.schema import in_order, rows_of, schema_of, table_of
from pipeline.warehouse import File, PublishedState, Warehouse, WarehouseError
from tests.running import ROOT

ROWS = [Hygiene("c", "g", None, None, "idle_member", "m", 5), Hygiene("c", "a", "t", 1, "data_lost", "3 records", 6)]


def publish(warehouse: Warehouse, run: int, rows: list[Hygiene]) -> PublishedState:
    current = warehouse.current()
    file = warehouse.write("hygiene", run, "c/0", table_of("hygiene", rows))
    after = replace(current, run=run, files=current.replacing((), [file]))
    warehouse.publish(after)
    return after


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse.open(tmp_path / "out", create=True)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_a_schema_and_a_key_of_its_columns(name: str) -> None:
    schema = schema_of(name)
    assert set(TABLES[name].key) <= set(schema.names)
    assert in_order(name, table_of(name, [])).schema == schema


def test_written_rows_are_read_back() -> None:
    row = Deploy("c", "g", 0, 1, 2, 3, 4, "static", 5, 0, None, "exact")
    assert rows_of(Deploy, table_of("deploys", [row])) == [row]


def test_published_rows_are_read_in_key_order(warehouse: Warehouse) -> None:
    publish(warehouse, 1, ROWS[:1])
    publish(warehouse, 2, ROWS[1:])
    assert rows_of(Hygiene, warehouse.read("hygiene")) == ROWS[::-1]


def test_files_of_an_unpublished_run_are_removed(warehouse: Warehouse) -> None:
    publish(warehouse, 1, ROWS[:1])
    file = warehouse.write("hygiene", 2, "c/0", table_of("hygiene", ROWS))
    unpublished = warehouse.write("hygiene", 1, "c/0", table_of("hygiene", ROWS))
    assert rows_of(Hygiene, warehouse.read("hygiene")) == ROWS[:1]
    with warehouse.locked():
        assert not (warehouse.folder / file.path).exists()
        assert not (warehouse.folder / unpublished.path).exists()
    assert rows_of(Hygiene, warehouse.read("hygiene")) == ROWS[:1]


def test_a_table_replaced_while_reading_is_read_in_its_new_version(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(warehouse, 1, ROWS[:1])
    load = warehouse.load

    def late(file: File, **options: Any) -> pa.Table:
        if file.run == 1:
            current = warehouse.current()
            warehouse.publish(replace(current, run=2, files=(warehouse.write("hygiene", 2, "c/0", table_of("hygiene", ROWS)),)))
            with warehouse.locked():
                pass  # the lock begins the next run, which removes the files that the second run replaced
        return load(file, **options)

    monkeypatch.setattr(warehouse, "load", late)
    assert rows_of(Hygiene, warehouse.read("hygiene")) == ROWS[::-1]


def test_two_runs_at_once_are_refused_and_a_killed_one_leaves_no_lock(warehouse: Warehouse) -> None:
    script = "import sys, time; from pathlib import Path; from pipeline.warehouse import Warehouse\n"
    script += "with Warehouse.open(Path(sys.argv[1])).locked(): print('locked', flush=True); time.sleep(60)"
    second_process = subprocess.Popen([sys.executable, "-c", script, warehouse.folder], stdout=subprocess.PIPE, cwd=ROOT)
    assert second_process.stdout is not None
    second_process.stdout.readline()
    with pytest.raises(WarehouseError, match=f"another run uses it .process {second_process.pid}"), warehouse.locked():
        pass
    second_process.kill()
    second_process.wait()
    second_process.stdout.close()
    with warehouse.locked():
        assert (warehouse.folder / "LOCK").read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda folder: None, "there is no such folder"),
        (lambda folder: folder.mkdir(), "empty; `tenure analyze run`"),
        (lambda folder: (folder.mkdir(), (folder / "a.txt").touch()), "not the folder of an analysis, and not empty"),
        (lambda folder: (folder.mkdir(), (folder / "FORMAT").write_text("0\n")), "written by another version of Tenure"),
        (lambda folder: (folder.mkdir(), (folder / "FORMAT").write_bytes(b"\xff")), "written by another version of Tenure"),
        (lambda folder: folder.write_text("a file"), ": Not a directory"),
    ],
)
def test_a_folder_that_is_no_warehouse_is_refused_in_one_line(tmp_path: Path, make: object, problem: str) -> None:
    make(tmp_path / "out")  # type: ignore[operator]
    with pytest.raises(WarehouseError, match=problem) as refused:
        Warehouse.open(tmp_path / "out")
    assert "\n" not in str(refused.value)


def test_a_first_run_killed_at_its_start_is_started_again(tmp_path: Path) -> None:
    (tmp_path / ".FORMAT.123").touch()
    (tmp_path / "LOCK").touch()
    assert Warehouse.open(tmp_path, create=True).current() == PublishedState()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run": 1}', '{"run":1,"files":[["x"]]}'])
def test_a_damaged_manifest_is_reported(warehouse: Warehouse, text: str) -> None:
    (warehouse.folder / "CURRENT.json").write_text(text)
    with pytest.raises(WarehouseError, match=r"CURRENT.json: cannot be read"):
        warehouse.current()
