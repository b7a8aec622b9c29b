"""The folder that holds the tables: Parquet files, and one small file that says which of them exist.

`CURRENT.json` is renamed into place when everything that it names is written. A file that it does not name does not exist: a run
that dies leaves rubbish, which the next one removes, and nothing else. So a run is published whole or not at all, and a run that
is repeated begins where the last published one ended.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.rows import TABLES
from pipeline.schema import coded_schema, in_order, joined, schema_of

LAYERS: Final = ("bronze", "silver", "gold", "state")


def layout() -> str:
    """The columns of the tables: files of another version are not mixed with ours."""
    columns = "".join(f"{name} {schema_of(name)}" for name in sorted(TABLES))
    return f"1 {hashlib.sha256(columns.encode()).hexdigest()[:16]}"


class WarehouseError(Exception):
    """The warehouse is unusable, and the remedy, in one line."""


class WarehouseBusy(WarehouseError):
    """Another run is using it."""


class File(NamedTuple):
    """One Parquet file. `bucket` is the log partition that its rows are from, with its cluster."""

    table: str
    path: str  # relative
    bucket: str
    run: int
    rows: int
    until_ms: int | None = None  # of a table over time: its rows end before that, and have settled; None: the newest rows


@dataclass(frozen=True)
class Current:
    """The published state."""

    run: int = 0
    files: tuple[File, ...] = ()
    cursors: dict[str, Any] = field(default_factory=dict)  # the position in each log, maintained by `ingest.py`
    built: int = 0  # the last run whose records are in silver and gold
    now_ms: dict[str, int] = field(default_factory=dict)  # per cluster: its newest record
    build: dict[str, Any] = field(default_factory=dict)  # maintained by `build.py`

    def of(self, table: str, bucket: str | None = None) -> list[File]:
        return [file for file in self.files if file.table == table and bucket in (None, file.bucket)]

    def since(self, table: str, run: int) -> list[File]:
        return [file for file in self.of(table) if file.run > run]

    def replacing(self, gone: Iterable[File], new: Iterable[File]) -> tuple[File, ...]:
        lost = set(gone)
        return tuple(sorted([file for file in self.files if file not in lost] + list(new), key=lambda file: file[:5]))


class Warehouse:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # Opening.

    @classmethod
    def open(cls, folder: Path, *, create: bool = False) -> Warehouse:
        """Raises WarehouseError for a folder that is none, or of another version."""
        mark = folder / "FORMAT"
        try:
            if not folder.exists():
                if not create:
                    raise WarehouseError(f"{folder}: there is no such folder; `tenure analyze run` or `ingest` makes one")
                folder.mkdir(parents=True)
            if not mark.exists():
                if any(path.name != "LOCK" and not path.name.startswith(".FORMAT.") for path in folder.iterdir()):
                    raise WarehouseError(f"{folder}: not a folder of analyses, and not empty; give another --out")
                if not create:
                    raise WarehouseError(f"{folder}: empty; `tenure analyze run` or `ingest` fills it")
                _write(mark, f"{layout()}\n")
            found = mark.read_text().strip()
        except OSError as error:
            raise WarehouseError(f"{error.filename}: {error.strerror}") from None
        except UnicodeDecodeError:
            found = "?"
        if found != layout():
            raise WarehouseError(f"{folder}: written by another version of Tenure (its tables are others); remove it and run again, or give another --out")
        return cls(folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One run at a time. The lock ends with the process, however it ends."""
        with (self.folder / "LOCK").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.seek(0)
                raise WarehouseBusy(f"{self.folder}: another run is at work in it (process {lock.read().strip() or 'unknown'})") from None
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            self._remove_rubbish()
            yield

    # Published tables.

    def current(self) -> Current:
        try:
            read = json.loads((self.folder / "CURRENT.json").read_bytes())
            return replace(Current(**read), files=tuple(File(*one) for one in read["files"]))
        except FileNotFoundError:
            return Current()
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise WarehouseError(f"{self.folder}/CURRENT.json: cannot be read ({error}); remove the folder and run again") from None

    def publish(self, current: Current) -> None:
        """Publish this state, durably."""
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
        self, name: str, *, bucket: str | None = None, columns: Sequence[str] | None = None, only: Mapping[str, str] | None = None
    ) -> pa.Table:
        """The whole table, or one bucket of it, in key order. `only`: rows with these values; most others are not read."""
        current = self.current()
        while True:
            try:
                tables = [self.load(file, only=only) for file in current.of(name, bucket)]
                break
            except WarehouseError:
                current, before = self.current(), current
                if current == before:
                    raise  # no other run has replaced it in the meantime
        table = in_order(name, joined(name, tables))
        return table.select(list(columns)) if columns is not None else table

    def load(self, file: File, coded: Sequence[str] = (), columns: Sequence[str] | None = None, only: Mapping[str, str] | None = None) -> pa.Table:
        """`coded`: columns of texts that are to come as codes, as Parquet has them. `columns`: these alone. `only`: rows with these values."""
        try:
            return pq.read_table(
                self.folder / file.path,
                columns=None if columns is None else list(columns),
                partitioning=None,
                read_dictionary=list(coded) or None,
                filters=[(name, "==", value) for name, value in only.items()] if only else None,
            )
        except (OSError, pa.ArrowException) as error:
            raise WarehouseError(f"{self.folder}/{file.path}: cannot be read ({str(error).splitlines()[0]}); `--full` builds it again") from None

    # Writing.

    def folder_of(self, table: str, run: int) -> Path:
        layer = TABLES[table].layer if table in TABLES else "state"
        return self.folder / layer / table / f"run={run}"

    def write(self, table: str, run: int, bucket: str, content: pa.Table, until_ms: int | None = None) -> File:
        """Write a file that is not visible before it is published. A repeated task writes another file."""
        folder = self.folder_of(table, run)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{uuid.uuid4().hex}.parquet"
        if table in TABLES:
            content = content.cast(coded_schema(table, content))
        try:
            pq.write_table(content, path, compression="zstd", compression_level=1, **_encoding(content.schema))
            _sync(path)
        except OSError as error:  # which does not name the file: a full disk, a folder that was removed
            path.unlink(missing_ok=True)
            raise OSError(error.errno, os.strerror(error.errno or errno.EIO), str(path)) from None
        return File(table, str(path.relative_to(self.folder)), bucket, run, content.num_rows, until_ms)

    def _remove_rubbish(self) -> None:
        named = {file.path for file in self.current().files}
        for draft in self.folder.glob(".CURRENT.json.*"):
            draft.unlink(missing_ok=True)
        for layer in LAYERS:
            for folder in sorted((self.folder / layer).glob("*/run=*")):
                inside = [path for path in folder.rglob("*") if path.is_file()]
                kept = [path for path in inside if str(path.relative_to(self.folder)) in named]
                if not kept:
                    shutil.rmtree(folder, ignore_errors=True)
                    continue
                for path in set(inside) - set(kept):
                    path.unlink(missing_ok=True)


def _encoding(schema: pa.Schema) -> dict[str, Any]:
    """Codes of texts are stored as such, and read as texts: that they were codes is not said. Numbers as their differences."""
    is_coded = any(pa.types.is_dictionary(column.type) for column in schema)
    numbers = {column.name: "DELTA_BINARY_PACKED" for column in schema if column.type == pa.int64()}
    return {
        "store_schema": not is_coded,
        "use_dictionary": [column.name for column in schema if column.name not in numbers],
        "column_encoding": numbers or None,
    }


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
