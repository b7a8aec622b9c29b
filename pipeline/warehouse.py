"""The folder with the tables: Parquet files, and a small file that lists the valid ones.

`CURRENT.json` is replaced atomically after all files that it lists are written. Files that it does not list are ignored: an interrupted run
only leaves files that the next run removes. So each run is published completely or not at all.

    WH/FORMAT  WH/LOCK  WH/CURRENT.json  WH/bronze/records/run=3/...parquet  WH/silver/...  WH/gold/...  WH/state/...
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pipeline.rows import TABLES
from pipeline.schema import in_order, schema_of, schema_with_dictionaries

LAYERS: Final = ("bronze", "silver", "gold", "state")
ROWS_TOGETHER: Final = 1 << 17  # the rows of a file that are decoded together, before those that are not wanted are dropped


Only: TypeAlias = Mapping[str, str | bool | Iterable[str]]  # by column: the value, or the possible values, of the wanted rows


def layout() -> str:
    """A number for the content of tables and states, and a hash of the tables' columns, so that files of different versions are not mixed."""
    columns = "".join(f"{name} {schema_of(name)}" for name in sorted(TABLES))
    return f"2 {hashlib.sha256(columns.encode()).hexdigest()[:16]}"


class WarehouseError(Exception):
    """The warehouse is unusable; the text has the remedy, in one line."""


class WarehouseBusy(WarehouseError):
    """Another run is using it."""


class File(NamedTuple):
    """One Parquet file. `bucket`: the cluster and log partition of its rows."""

    table: str
    path: str  # relative
    bucket: str
    run: int
    rows: int
    until_ms: int | None = None  # of a time series: all rows end before that time and are settled; None: the newest rows


@dataclass(frozen=True)
class PublishedState:
    """The published files, and the progress of ingests and builds."""

    run: int = 0
    files: tuple[File, ...] = ()
    cursors: dict[str, Any] = field(default_factory=dict)  # the position in each log, for `ingest.py`
    built: int = 0  # the last run whose records are in silver and gold
    now_ms: dict[str, int] = field(default_factory=dict)  # the time of the newest record of each cluster
    build: dict[str, Any] = field(default_factory=dict)  # what ingests leave for builds: see `samples.py` and `live_ends.py`

    def files_of(self, table: str, bucket: str | None = None) -> list[File]:
        return [file for file in self.files if file.table == table and bucket in (None, file.bucket)]

    def since(self, table: str, run: int) -> list[File]:
        return [file for file in self.files_of(table) if file.run > run]

    def replacing(self, old: Iterable[File], new: Iterable[File]) -> tuple[File, ...]:
        removed = set(old)
        return tuple(sorted([file for file in self.files if file not in removed] + list(new), key=lambda file: file[:5]))


class Warehouse:
    def __init__(self, folder: Path, created: tuple[Path, ...] = ()) -> None:
        self.folder = folder
        self._created = created  # by this process: the folders that were missing, outermost first, and the format file

    # Opening

    @classmethod
    def open(cls, folder: Path, *, create: bool = False) -> Warehouse:
        """Open a warehouse. Raises WarehouseError for another folder, or one of another version."""
        format_file = folder / "FORMAT"
        created: tuple[Path, ...] = ()
        try:
            if not folder.exists():
                if not create:
                    raise WarehouseError(f"{folder}: there is no such folder; `tenure analyze run` or `ingest` creates it")
                created = tuple(path for path in (*reversed(folder.parents), folder) if not path.exists())
                folder.mkdir(parents=True)
            if not format_file.exists():
                if any(path.name != "LOCK" and not path.name.startswith(".FORMAT.") for path in folder.iterdir()):
                    raise WarehouseError(f"{folder}: not the folder of an analysis, and not empty; use another --out")
                if not create:
                    raise WarehouseError(f"{folder}: empty; `tenure analyze run` or `ingest` fills it")
                _write(format_file, f"{layout()}\n")
                created += (format_file,)
            stored_layout = format_file.read_text().strip()
        except OSError as error:
            raise WarehouseError(f"{error.filename}: {error.strerror}") from None
        except UnicodeDecodeError:
            stored_layout = "?"
        if stored_layout != layout():
            raise WarehouseError(f"{folder}: written by another version of Tenure with other tables; remove it and run again, or use another --out")
        return cls(folder, created)

    def discard(self) -> None:
        """Remove what `open` created, if no run has published anything and none is working."""
        if not self._created or (self.folder / "CURRENT.json").exists():
            return
        with suppress(OSError, WarehouseBusy), self.locked():
            for layer in LAYERS:
                shutil.rmtree(self.folder / layer, ignore_errors=True)
            (self.folder / "LOCK").unlink()
            self._created[-1].unlink()
            for folder in reversed(self._created[:-1]):
                folder.rmdir()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for one run. The lock ends with the process."""
        with (self.folder / "LOCK").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.seek(0)
                raise WarehouseBusy(f"{self.folder}: another run uses it (process {lock.read().strip() or 'unknown'})") from None
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            self._remove_unpublished()
            yield

    # Published tables

    def current(self) -> PublishedState:
        try:
            fields = json.loads((self.folder / "CURRENT.json").read_bytes())
            return replace(PublishedState(**fields), files=tuple(File(*file) for file in fields["files"]))
        except FileNotFoundError:
            return PublishedState()
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise WarehouseError(f"{self.folder}/CURRENT.json: cannot be read ({error}); remove the folder and run again") from None

    def publish(self, current: PublishedState) -> None:
        """Publish a state durably."""
        for folder in {(self.folder / file.path).parent for file in current.files if file.run == current.run}:
            _sync(folder)
        text = json.dumps(
            {
                "run": current.run,
                "files": current.files,
                "cursors": current.cursors,
                "built": current.built,
                "now_ms": current.now_ms,
                "build": current.build,
            },
            indent=None,
            separators=(",", ":"),
        )
        _write(self.folder / "CURRENT.json", text)

    def read(
        self,
        name: str,
        *,
        bucket: str | None = None,
        columns: Sequence[str] | None = None,
        only: Only | None = None,
        condense: Callable[[pa.Table], pa.Table] = lambda table: table,
    ) -> pa.Table:
        """A table, or one bucket of it, in key order.

        `columns`: only these; `only`: rows with these values; other rows and columns take no memory. `condense` is applied to each file, so that only
        its results are in memory together, and then to all of them.
        """
        current = self.current()
        read_columns = None if columns is None else list({*columns, *TABLES[name].key})
        while True:
            try:
                tables = [condense(self.load(file, columns=read_columns, only=only)) for file in current.files_of(name, bucket)]
                break
            except WarehouseError:
                current, before = self.current(), current
                if current == before:
                    raise  # not replaced by another run meanwhile
        empty = schema_of(name).empty_table()
        table = condense(in_order(name, pa.concat_tables([empty if read_columns is None else empty.select(read_columns), *tables])))
        return table.select(list(columns)) if columns is not None else table

    def load(self, file: File, dictionary_columns: Sequence[str] = (), columns: Sequence[str] | None = None, only: Only | None = None) -> pa.Table:
        """The rows of a file. `dictionary_columns`: texts to read as dictionaries; `columns`: only these; `only`: rows with these values."""
        try:
            options = ds.ParquetReadOptions(dictionary_columns=list(dictionary_columns))
            content = ds.dataset(str(self.folder / file.path), format=ds.ParquetFileFormat(read_options=options))
            wanted = reduce(and_, (_is_one_of(name, values) for name, values in only.items())) if only else None
            names = None if columns is None else list(columns)
            return content.to_table(names, wanted, batch_size=ROWS_TOGETHER, batch_readahead=1)
        except (OSError, pa.ArrowException) as error:
            raise WarehouseError(f"{self.folder}/{file.path}: cannot be read ({str(error).splitlines()[0]}); `--full` rebuilds it") from None

    # Writing

    def folder_of(self, table: str, run: int) -> Path:
        layer = TABLES[table].layer if table in TABLES else "state"
        return self.folder / layer / table / f"run={run}"

    def write(self, table: str, run: int, bucket: str, content: pa.Table, until_ms: int | None = None) -> File:
        """Write a file, which is invisible until it is published. A repeated task writes a new file."""
        folder = self.folder_of(table, run)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{uuid.uuid4().hex}.parquet"
        if table in TABLES:
            content = content.cast(schema_with_dictionaries(table, content))
        try:
            pq.write_table(content, path, compression="zstd", compression_level=1, row_group_size=ROWS_TOGETHER, **_encoding(content.schema))
            _sync(path)
        except OSError as error:  # of a full disk or a removed folder: it has no file name
            path.unlink(missing_ok=True)
            raise OSError(error.errno, os.strerror(error.errno or errno.EIO), str(path)) from None
        return File(table, str(path.relative_to(self.folder)), bucket, run, content.num_rows, until_ms)

    def _remove_unpublished(self) -> None:
        published = {file.path for file in self.current().files}
        for partial in self.folder.glob(".CURRENT.json.*"):
            partial.unlink(missing_ok=True)
        for layer in LAYERS:
            for folder in sorted((self.folder / layer).glob("*/run=*")):
                inside = [path for path in folder.rglob("*") if path.is_file()]
                published_files = [path for path in inside if str(path.relative_to(self.folder)) in published]
                if not published_files:
                    shutil.rmtree(folder, ignore_errors=True)
                    continue
                for path in set(inside) - set(published_files):
                    path.unlink(missing_ok=True)


def _is_one_of(column: str, values: str | bool | Iterable[str]) -> pc.Expression:
    field = pc.field(column)
    return field == values if isinstance(values, str | bool) else field.isin(pa.array(values, pa.string()))


def _encoding(schema: pa.Schema) -> dict[str, Any]:
    """Store texts as dictionaries and integers as deltas. Without the stored schema, dictionary columns are read back as plain texts."""
    is_coded = any(pa.types.is_dictionary(column.type) for column in schema)
    numbers = {column.name: "DELTA_BINARY_PACKED" for column in schema if column.type == pa.int64()}
    return {
        "store_schema": not is_coded,
        "use_dictionary": [column.name for column in schema if column.name not in numbers],
        "column_encoding": numbers or None,
    }


def _write(path: Path, text: str) -> None:
    """Replace a file atomically and durably."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
