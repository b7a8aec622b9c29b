"""Tables keep what was published, whatever happens to the batches after it, and any reader of Delta tables can read them."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import cli
from pipeline.demo import write_world
from pipeline.jobs import Inputs, Steps
from pipeline.out_folder import PROGRESS, TablesError
from pipeline.rows import TABLES, Coverage, Deploy, Hygiene
from pipeline.schema import in_order, rows_of, schema_of, table_of
from pipeline.tables import (
    CLAIM_S,
    PROGRESS_SCHEMA,
    TIDY_BATCHES,
    Batch,
    File,
    Part,
    Published,
    Store,
    Tables,
    TablesBusy,
    _files,
)
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
    tables.begin().publish({})
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
    with pytest.raises(TablesBusy, match=r"another run uses it \(process 1 on elsewhere\)"):
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
    first, second = (Batch(tables, *tables._unclaimed()) for _ in range(2))
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


def test_a_commit_upon_an_older_version_is_refused(tables: Tables) -> None:
    """Both only add files, so that Delta could commit one after the other."""
    publish(tables, ROWS[:1])
    batch, stale = tables.begin(), tables._delta("hygiene")
    batch.commit([written(tables, ROWS[1:])])
    with pytest.raises(TablesBusy, match="another run changes it at the same time") as refused:
        batch._change("hygiene", stale, [written(tables, ROWS)], ())
    assert one_line(refused)
    batch.publish({})
    assert hygiene(tables) == ROWS[::-1]


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
    content = pa.Table.from_pylist([{"batch": 1, "versions": "{}", "content": "{}", "claim": "{}"} | row], PROGRESS_SCHEMA)
    delta = tables._delta(PROGRESS)
    Batch(tables, Published(), delta)._change(PROGRESS, delta, [tables.store.write(PROGRESS, Part(), content)], _files(PROGRESS, delta))
    with pytest.raises(TablesError, match="cannot be read") as refused:
        Tables.open(tables.folder).read("hygiene")
    assert one_line(refused)


# Full disks and interruptions


FULL = "Generic LocalFileSystem error\n   \x1b[31m\u21b3\x1b[0m Unable to copy data to file\n    \x1b[31m\u21b3\x1b[0m No space left on device (os error 28)\n"


class _FullDelta:
    """A Delta table on a full disk: it raises what deltalake does."""

    def __getattr__(self, name: str) -> Any:
        raise OSError(FULL)


def test_a_full_disk_is_told_in_one_line_and_leaves_what_was_published(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tables, ROWS[:1])
    batch = tables.begin()
    with pytest.raises(OSError, match=f"No space left on device: '{tables.store.place('hygiene')}'"):
        batch._change("hygiene", _FullDelta(), (), ())
    with monkeypatch.context() as patched:
        patched.setattr("pipeline.tables.pq.ParquetWriter", FullWriter)
        with pytest.raises(OSError, match=f"No space left on device: '{tables.store.place('hygiene')}/cluster=c/chunk=0/[0-9a-f]*.parquet'"):
            written(tables, ROWS)
        batch.release()  # has no room either, and says nothing, for the first error is told
    assert hygiene(tables) == ROWS[:1]


class FullWriter:
    """Writes Parquet files to a full disk: it fails at their end."""

    def __init__(self, path: str, schema: pa.Schema, **options: Any) -> None:
        self.schema = schema

    def write_table(self, table: pa.Table, **options: Any) -> None:
        pass

    def close(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_run_on_a_full_disk_says_so(tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["analyze", "run", "--offsets", str(world), "--out", str(tmp_path / "out"), "--master", "none", "--quiet"]
    monkeypatch.setattr("pipeline.tables.pq.ParquetWriter", FullWriter)
    assert cli.main(words) == 74
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(".parquet: No space left on device")
    assert not (tmp_path / "out").exists()


# Growth


@pytest.mark.parametrize("batches", [42])
def test_files_and_logs_stay_few_over_many_batches(tables: Tables, batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One table grows, one is replaced by each batch, and one does not change."""
    for name, value in (("TIDY_BATCHES", 4), ("KEPT_VERSIONS", 4), ("SMALL_FILES_MAX", 6), ("SMALL_FILES_OF_PART", 6)):  # the real ones would need hundreds of batches
        monkeypatch.setattr(f"pipeline.tables.{name}", value)
    counts, logs = [], []
    batch = tables.begin()
    batch.commit([tables.store.write("coverage", Part(), table_of("coverage", [RANGE]))])
    batch.publish({})
    for number in range(1, batches):
        batch = tables.begin()
        growing = table_of("deploys", [Deploy("c", "g", number, 1, 2, 3, 4, "static", 5, 0, None, "exact")])
        batch.commit([written(tables, ROWS), tables.store.write("deploys", PART, growing)], {"hygiene": {PART}})
        batch.publish({})
        counts.append(len(list(Path(tables.folder).rglob("*.parquet"))))
        logs.append({path.parent.name: len(list(path.iterdir())) for path in Path(tables.folder).glob("*/*/_delta_log")})
        assert len(tables.files_of(tables.published(), "deploys")) <= 6
    third = batches // 3
    assert max(counts[2 * third :]) <= max(counts[third : 2 * third]) + 2
    for name in ("hygiene", "deploys", "coverage", PROGRESS):
        assert max(log[name] for log in logs[2 * third :]) <= max(log[name] for log in logs[third : 2 * third]) + 2, name
        protocol = tables._delta(name).protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    assert hygiene(tables) == ROWS[::-1]
    assert tables.read("deploys")["deploy"].to_pylist() == list(range(1, batches))
    assert rows_of(Coverage, tables.read("coverage")) == [RANGE]


def test_many_parts_are_compacted_seldom(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.tables.SMALL_FILES_MAX", 4)
    compacted: list[int] = []
    monkeypatch.setattr(Batch, "compact", lambda batch, name: compacted.append(batch.number))
    for number in range(1, 11):
        batch = tables.begin()
        batch.commit([written(tables, ROWS[:1], chunk) for chunk in range(5)])
        batch.publish({})
        assert compacted == ([] if number < 9 else list(range(9, number + 1)))
    monkeypatch.setattr("pipeline.tables.SMALL_BYTES", 1)  # all are large
    tables.begin().publish({})
    assert len(compacted) == 2


def test_earlier_versions_stay_readable_for_some_batches(tables: Tables) -> None:
    states = [publish(tables, ROWS[: 1 + number % 2], replaces=True) for number in range(TIDY_BATCHES)]
    for number in range(TIDY_BATCHES - 8, TIDY_BATCHES):
        rows = rows_of(Hygiene, Tables.open(tables.folder).read("hygiene", published=states[number]))
        assert len(rows) == 1 + number % 2
    for _ in range(TIDY_BATCHES):
        publish(tables, ROWS, replaces=True)
    with pytest.raises(TablesError, match="cannot be read") as refused:
        Tables.open(tables.folder).read("hygiene", published=states[0])
    assert one_line(refused)


# New columns


class NewerHygiene(NamedTuple):
    cluster: str
    group: str
    topic: str | None
    topic_partition: int | None
    kind: str
    detail: str
    at_ms: int
    remedy: str | None


@pytest.fixture
def schemas() -> Iterator[None]:
    """Schemas may change in the test."""
    yield
    schema_of.cache_clear()


def test_a_newer_column_is_added_and_old_rows_have_null(schemas: None, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tables, ROWS[:1])
    schema_of.cache_clear()
    monkeypatch.setitem(TABLES, "hygiene", TABLES["hygiene"]._replace(row=NewerHygiene))
    old = NewerHygiene(*ROWS[0], None)
    assert rows_of(NewerHygiene, tables.read("hygiene")) == [old]
    new = NewerHygiene("c", "a", "t", 1, "data_lost", "3 records", 6, "none")
    batch = tables.begin()
    batch.commit([tables.store.write("hygiene", PART, table_of("hygiene", [new]))])
    batch.publish({})
    assert rows_of(NewerHygiene, tables.read("hygiene")) == [new, old]
    delta = tables._delta("hygiene")
    assert [field.name for field in delta.schema().fields][-2:] == ["chunk", "remedy"]
    assert (delta.protocol().min_reader_version, delta.protocol().min_writer_version) == (1, 2)
    for engine, values in read_by_all([(tables.store.place("hygiene"), None)], column="remedy")[0].items():
        assert values == {None: 1, "none": 1}, engine


# Readers


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "data"
    write_world(folder, seed=7, days=0.06)
    return folder


READ_BY_ALL = """
import json, os, sys
from collections import Counter
from deltalake import DeltaTable

def read(path, version, column):
    delta = DeltaTable(path, version=version)
    yield "pyarrow", delta.to_pyarrow_dataset().to_table(columns=[column])[column].to_pylist()
    try:
        import duckdb
        rows = delta.to_pyarrow_dataset()
        yield "DuckDB", [row[0] for row in duckdb.sql(f'SELECT "{column}" FROM rows').fetchall()]
    except ImportError:
        pass
    try:
        import polars
        yield "Polars", polars.read_delta(path, version=version)[column].to_list()
        yield "Polars, lazily", polars.scan_delta(path, version=version).select(column).collect()[column].to_list()
    except ImportError:
        pass
    try:
        import pandas
        yield "pandas", [None if pandas.isna(value) else value for value in delta.to_pandas(columns=[column])[column].tolist()]
    except ImportError:
        pass

places, column = json.load(sys.stdin)
counts = [{engine: list(Counter(rows).items()) for engine, rows in read(path, version, column)} for path, version in places]
print(json.dumps(counts), flush=True)
os._exit(0)  # without the end of threads of Arrow and Delta, which at times aborts
"""


def read_by_all(places: list[tuple[str, int | None]], column: str = "cluster") -> list[dict[str, Counter[str | None]]]:
    """The values of a column of each table at a version, and how often they occur, as each of the engines that are installed reads them."""
    command = [sys.executable, "-W", "ignore", "-c", READ_BY_ALL]
    done = subprocess.run(command, input=json.dumps([places, column]), capture_output=True, text=True, timeout=100, check=True)
    return [{engine: Counter(dict(counts)) for engine, counts in engines.items()} for engines in json.loads(done.stdout)]


def clusters(tables: Tables, rows: int) -> Counter[str | None]:
    (cluster,) = tables.published().now_ms
    return Counter({cluster: rows})


def existing(tables: Tables) -> list[str]:
    return [name for name in TABLES if tables._delta(name) is not None]


def in_the_middle(made: Tables, world: Path, monkeypatch: pytest.MonkeyPatch, changes: int) -> None:
    """A round over all logs that stops after some of its commits, as one that runs or was killed."""
    change, numbers = Batch._change, iter(range(1000))

    class Stopped(BaseException):
        pass

    def changed(batch: Batch, name: str, *arguments: Any) -> None:
        if name != PROGRESS and next(numbers) == changes:
            raise Stopped
        change(batch, name, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Batch, "_change", changed)
        patched.setattr(Batch, "release", lambda batch: None)
        with pytest.raises(Stopped):
            ENGINE.round(made, Inputs.of([str(world)]), Steps())


def test_other_engines_read_the_published_versions_also_during_a_run(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    until = dict.fromkeys(range(4), 60)
    made = analyzed(tmp_path / "out", world, [until], finish=False)
    in_the_middle(made, world, monkeypatch, changes=12)
    published = made.published()
    names = [name for name in existing(made) if name in published.versions]
    assert {"commits", "status", "lag_1m", "rebalances", "records"} <= set(names)
    before = {name: made.read(name).num_rows for name in names}
    changed = [name for name in names if made._delta(name).version() > published.versions[name]]
    assert changed
    assert len(changed) < len(names)

    newest = {name: made.rows_in(Published(2, {name: made._delta(name).version()}), name) for name in names}
    read = read_by_all([(made.store.place(name), version) for name in names for version in (published.versions[name], None)])
    at_versions, at_last = read[::2], read[1::2]

    monkeypatch.setattr("pipeline.tables._is_alive", lambda claim: False)  # the round above
    ENGINE.round(made, Inputs.of([str(world)]), Steps())
    for name, published_rows, last_rows in zip(names, at_versions, at_last, strict=True):
        assert published_rows == dict.fromkeys(published_rows, clusters(made, before[name])), name
        assert last_rows == dict.fromkeys(last_rows, clusters(made, newest[name])), name
        if name not in changed:
            assert newest[name] == before[name]
        elif name != "records":  # a batch commits it in two steps
            assert newest[name] == made.read(name).num_rows, name  # one batch further, and no more

    whole = {name: made.read(name) for name in existing(made)}
    for name, engines in zip(whole, read_by_all([(made.store.place(name), None) for name in whole]), strict=True):
        assert engines == dict.fromkeys(engines, clusters(made, whole[name].num_rows)), name
    undisturbed = analyzed(tmp_path / "undisturbed", world, [until])
    for name, table in whole.items():
        assert table.equals(undisturbed.read(name)), name


def test_a_cluster_of_any_name_is_read_by_all(tables: Tables) -> None:
    cluster = "a b/c=d%41\u00e9\"'?#+:\\.."
    for chunk, row in enumerate(ROWS):
        batch = tables.begin()
        rows = in_order("hygiene", table_of("hygiene", [row._replace(cluster=cluster)]))
        batch.commit([tables.store.write("hygiene", Part(cluster, chunk), rows), tables.store.write("hygiene", Part(cluster, 0), rows)])
        batch.publish({})
    batch = tables.begin()
    batch.compact("hygiene")
    batch.publish({})
    assert {file.part: file.rows for file in tables.files_of(tables.published(), "hygiene")} == {Part(cluster, 0): 3, Part(cluster, 1): 1}
    assert tables.read("hygiene")["cluster"].to_pylist() == [cluster] * 4
    for engine, values in read_by_all([(tables.store.place("hygiene"), None)])[0].items():
        assert values == {cluster: 4}, engine
    batch = tables.begin()
    batch.commit([], {"hygiene": {Part(cluster, 0)}})
    batch.publish({})
    assert tables.read("hygiene", columns=["group"]).to_pylist() == [{"group": "a"}]
