"""Tables keep what was published, whatever happens to the batches after it, and any reader of Delta tables can read them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import cli
from pipeline.demo import write_world
from pipeline.jobs import Inputs, Steps
from pipeline.rows import TABLES, Coverage, Deploy, Hygiene
from pipeline.schema import in_order, rows_of, schema_of, table_of
from pipeline.state import STATES
from pipeline.tables import CLAIM_S, TIDY_BATCHES, LAYERS, PROGRESS, SMALL_FILES_MAX, Batch, File, Part, Published, Store, Tables, TablesBusy, TablesError
from tests.pipeline.building import ENGINE, analyzed
from tests.running import ROOT, environment

ROWS = [Hygiene("c", "g", None, None, "idle_member", "m", 5), Hygiene("c", "a", "t", 1, "data_lost", "3 records", 6)]
RANGE = Coverage("c", "offsets", 0, 0, 9, 0, 9, True, "")
PART = Part("c", 0)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables.open(tmp_path / "out", create=True)


def written(tables: Tables, rows: list[Hygiene], chunk: int = 0) -> File:
    return tables.store.write("hygiene", Part("c", chunk), in_order("hygiene", table_of("hygiene", rows)))


def publish(tables: Tables, rows: list[Hygiene], *, replaces: bool = False) -> Published:
    batch = tables.begin()
    batch.commit([written(tables, rows)], {"hygiene": {PART}} if replaces else {})
    return batch.publish({"rows": len(rows)})


def hygiene(tables: Tables) -> list[Hygiene]:
    return rows_of(Hygiene, tables.read("hygiene"))


def one_line(error: pytest.ExceptionInfo[Any]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


# Schemas and keys


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_a_schema_and_a_key_of_its_columns(name: str) -> None:
    schema = schema_of(name)
    assert set(TABLES[name].key) <= set(schema.names)
    assert in_order(name, table_of(name, [])).schema == schema


def test_written_rows_are_read_back() -> None:
    row = Deploy("c", "g", 0, 1, 2, 3, 4, "static", 5, 0, None, "exact")
    assert rows_of(Deploy, table_of("deploys", [row])) == [row]


def test_published_rows_are_read_in_key_order(tables: Tables) -> None:
    publish(tables, ROWS[:1])
    publish(tables, ROWS[1:])
    assert hygiene(tables) == ROWS[::-1]
    assert tables.read("hygiene", columns=["detail"]).to_pylist() == [{"detail": row.detail} for row in ROWS[::-1]]
    assert rows_of(Hygiene, tables.read("hygiene", only={"group": "g"})) == ROWS[:1]


# Batches


def test_files_that_were_not_published_are_invisible_and_removed(tables: Tables) -> None:
    publish(tables, ROWS[:1])
    batch = tables.begin()
    committed, left = written(tables, ROWS[1:]), written(tables, ROWS[1:])
    batch.commit([committed])
    assert hygiene(tables) == ROWS[:1]
    batch.release()
    assert hygiene(tables) == ROWS[:1]
    for _ in range(2 * TIDY_BATCHES):
        publish(tables, ROWS[:1], replaces=True)
    assert hygiene(tables) == ROWS[:1]
    assert not [file.path for file in (committed, left) if (Path(tables.store.place("hygiene")) / file.path).exists()]


def test_a_table_replaced_while_reading_is_read_in_its_new_version(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tables, ROWS[:1])
    (old,) = tables.files_of(tables.published(), "hygiene")
    load = Store.load

    def late(store: Store, file: File, *arguments: Any, **options: Any) -> pa.Table:
        if file == old and hygiene_before:
            hygiene_before.pop()
            publish(Tables.open(tables.folder), ROWS, replaces=True)
            (Path(store.place("hygiene")) / old.path).unlink()  # as after many batches
        return load(store, file, *arguments, **options)

    hygiene_before = [True]
    monkeypatch.setattr(Store, "load", late)
    assert hygiene(tables) == ROWS[::-1]


def test_a_batch_of_another_process_is_refused_until_that_ends(tables: Tables) -> None:
    script = "import sys, time; from pipeline.tables import Tables\nTables.open(sys.argv[1]).begin(); print('begun', flush=True); time.sleep(60)"
    publish(tables, ROWS)
    other = subprocess.Popen([sys.executable, "-c", script, tables.folder], stdout=subprocess.PIPE, cwd=ROOT, env=environment())
    assert other.stdout is not None
    other.stdout.readline()
    with pytest.raises(TablesBusy, match=f"another run uses it .process {other.pid} on {socket.gethostname()}") as refused:
        tables.begin()
    assert one_line(refused)
    assert hygiene(tables) == ROWS[::-1]
    other.kill()
    other.wait()
    other.stdout.close()
    tables.begin().publish({})


def claimed(tables: Tables, **claim: object) -> None:
    """Leave the claim of another run."""
    batch = tables.begin()
    batch._write_progress(batch.before, {"pid": 1, "host": "elsewhere", "at": round(time.time()), "began": "5", **claim})


def test_a_batch_of_another_machine_is_refused_for_some_minutes(tables: Tables) -> None:
    publish(tables, ROWS)
    claimed(tables)
    with pytest.raises(TablesBusy, match="another run uses it .process 1 on elsewhere"):
        tables.begin()
    assert hygiene(tables) == ROWS[::-1]


@pytest.mark.parametrize(
    "claim",
    [{"at": time.time() - CLAIM_S - 1}, {"host": socket.gethostname(), "pid": os.getpid(), "began": "of an earlier process with this id"}],
    ids=["old", "same process id"],
)
def test_the_claim_of_a_dead_process_is_ignored(tables: Tables, claim: dict[str, object]) -> None:
    publish(tables, ROWS)
    claimed(tables, **{name: os.getpid() if name == "pid" else value for name, value in claim.items()})
    assert tables.begin().publish({}).batch == 2
    assert hygiene(tables) == ROWS[::-1]


@pytest.mark.parametrize("published", [0, 1])
def test_of_two_writers_at_once_one_wins(tables: Tables, published: int) -> None:
    for _ in range(published):
        publish(tables, ROWS[:1])
    first, second = (Batch(tables, *(tables._claimed()[at] for at in (0, 2))) for _ in range(2))
    first.claim()
    with pytest.raises(TablesBusy) as refused:
        second.claim()
    assert one_line(refused)
    first.commit([written(tables, ROWS[1:])])
    first.publish({})
    assert hygiene(tables) == [*ROWS[1:], *ROWS[:published]]


@pytest.mark.parametrize("published", [0, 1])
def test_a_writer_whose_batch_was_taken_over_stops(tables: Tables, published: int) -> None:
    for _ in range(published):
        publish(tables, ROWS[:1])
    slow = tables.begin()
    claimed_by = Batch(tables, tables.published(), tables._delta(PROGRESS))  # as if the machine of the slow one had been silent for long
    claimed_by.claim()
    claimed_by.commit([written(tables, ROWS[1:])])
    with pytest.raises(TablesBusy) as refused:
        slow.commit([written(tables, ROWS)])
    assert one_line(refused)
    with pytest.raises(TablesBusy):
        slow.publish({})
    claimed_by.publish({})
    assert hygiene(tables) == [*ROWS[1:], *ROWS[:published]]


# Folders


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda folder: None, "there is no such folder"),
        (lambda folder: folder.mkdir(), "empty; `tenure analyze run`"),
        (lambda folder: (folder.mkdir(), (folder / "a.txt").touch()), "not the folder of an analysis, and not empty"),
        (lambda folder: (folder.mkdir(), (folder / "FORMAT").write_text("0\n")), "of another version of Tenure; use another --out"),
        (lambda folder: folder.write_text("a file"), ": Not a directory"),
    ],
)
def test_a_folder_that_is_no_analysis_is_refused_in_one_line(tmp_path: Path, make: Callable[[Path], object], problem: str) -> None:
    make(tmp_path / "out")
    with pytest.raises(TablesError, match=problem) as refused:
        Tables.open(tmp_path / "out")
    assert one_line(refused)


def test_tables_of_another_version_are_refused(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tables, ROWS)
    monkeypatch.setattr("pipeline.tables.DESCRIPTION", "Tenure 2")
    for create in (False, True):
        with pytest.raises(TablesError, match=r"of another version of Tenure; use another --out") as refused:
            Tables.open(tables.folder, create=create)
        assert one_line(refused)


def test_a_first_run_killed_at_its_start_is_started_again(tmp_path: Path) -> None:
    for number, folders in enumerate([(), ("state",), ("state/progress/_delta_log", "bronze"), ("gold",)]):
        out = tmp_path / str(number)
        for folder in folders:
            (out / folder).mkdir(parents=True)
        tables = Tables.open(out, create=True)
        assert tables.published() == Published()
        publish(tables, ROWS)
        assert hygiene(Tables.open(out)) == ROWS[::-1]


def test_a_failed_first_run_removes_only_its_own_folder(tmp_path: Path) -> None:
    ours = Tables.open(tmp_path / "new" / "out", create=True)
    theirs = Tables.open(tmp_path / "new" / "out", create=True)
    batch = theirs.begin()
    batch._write_progress(batch.before, {"pid": os.getppid(), "host": "elsewhere", "at": round(time.time()), "began": "5"})
    ours.discard()
    assert (tmp_path / "new" / "out").exists()
    batch.release()
    ours.discard()
    assert not (tmp_path / "new").exists()


# Damage


def newest_commit(tables: Tables, name: str) -> Path:
    return max((Path(tables.store.place(name)) / "_delta_log").glob("*.json"))


@pytest.mark.parametrize("name", [PROGRESS, "hygiene"])
@pytest.mark.parametrize("damage", ["commit", "missing commit", "file", "missing file"])
def test_damaged_tables_are_reported_in_one_line(tables: Tables, name: str, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    publish(tables, ROWS)
    if damage == "commit":
        newest_commit(tables, name).write_text("{")
    elif damage == "missing commit":
        min((Path(tables.store.place(name)) / "_delta_log").glob("*.json")).unlink()
    else:
        for path in Path(tables.store.place(name)).rglob("*.parquet"):
            if damage == "file":
                path.write_bytes(path.read_bytes()[:50])
            else:
                path.unlink()
    with pytest.raises(TablesError, match=rf"{name}\b.*cannot be read.*use another --out") as refused:
        Tables.open(tables.folder).read("hygiene")
    assert one_line(refused)
    assert cli.main(["analyze", "report", "--out", tables.folder, "--json", "-"]) == 65
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tenure: ")


@pytest.mark.parametrize("row", [{"versions": "{"}, {"versions": "[1]"}, {"content": "5"}, {"batch": None}, {"versions": '{"hygiene": 99}'}])
def test_damaged_progress_is_reported(tables: Tables, row: dict[str, Any]) -> None:
    publish(tables, ROWS)
    before = {"batch": 1, "versions": "{}", "content": "{}", "claim": "{}"}
    file = tables.store.write(PROGRESS, Part(), pa.Table.from_pylist([before | row], module_schema()))
    delta = tables._delta(PROGRESS)
    batch = Batch(tables, Published(), delta)
    batch._change(PROGRESS, delta, [file], tables_files(tables))
    with pytest.raises(TablesError, match="cannot be read") as refused:
        Tables.open(tables.folder).read("hygiene")
    assert one_line(refused)


def module_schema() -> pa.Schema:
    from pipeline.tables import PROGRESS_SCHEMA

    return PROGRESS_SCHEMA


def tables_files(tables: Tables) -> list[File]:
    from pipeline.tables import _files

    return _files(PROGRESS, tables._delta(PROGRESS))
