"""The tables of an analysis: Delta tables in one folder or object store, which any reader of Delta tables can read.

    OUT/bronze/records  OUT/silver/commits  OUT/gold/rebalances  OUT/state/progress ...

Groups are divided into chunks (`chunks.py`); most files have the rows of one chunk, so that a batch replaces only the files of chunks that changed.
Tasks write files, which nobody sees before the driver commits them: one commit for each table, and `progress` last. `progress` has the versions of all
tables after the newest complete batch. Readers here open each table at that version; a batch begins by restoring it, if an interrupted batch was half
committed. Each commit refuses a table that another process has changed meanwhile.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import and_
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from pipeline.out_folder import LAYERS, PROGRESS, TablesError, check_folder
from pipeline.rows import TABLES
from pipeline.schema import in_order, schema_of
from pipeline.state import STATES

ROWS_TOGETHER: Final = 1 << 17  # the rows of a file that are decoded together, before those that are not wanted are dropped
SCHEMA: Final = 3  # the version of the tables' meaning: an older Tenure refuses a newer one
DESCRIPTION: Final = f"Tenure {SCHEMA}"  # of each table
TIDY_BATCHES: Final = 20  # after so many, what no newer version needs is removed
KEPT_VERSIONS: Final = 20  # of each table at least, for readers of earlier batches: a batch makes one or two
SMALL_FILES_MAX: Final = 64  # of one table, before they are compacted, but more in many parts: a part has one file at least
SMALL_FILES_OF_PART: Final = 8  # on average
SMALL_BYTES: Final = 32 << 20
CLAIM_S: Final = 600  # a batch of another machine counts as dead after this time
APP: Final = "tenure"  # in the transactions of Delta: their version is the number of the batch
PARTS: Final = pa.schema([pa.field("chunk", pa.int32()), pa.field("settled", pa.bool_())])
PROGRESS_SCHEMA: Final = pa.schema([("batch", pa.int64()), ("versions", pa.string()), ("content", pa.string()), ("claim", pa.string())])

Only: TypeAlias = Mapping[str, str | bool | Iterable[str]]  # by column: the value, or the possible values, of the wanted rows


class TablesBusy(TablesError):
    """Another run is using them."""


class Part(NamedTuple):
    """What the rows of a file have in common. A table that is not divided has files of the part Part()."""

    cluster: str = ""
    chunk: int = -1
    settled: bool | None = None


class File(NamedTuple):
    """One Parquet file of a table."""

    table: str
    part: Part
    path: str  # relative to the table
    size: int
    rows: int
    stats: str = ""  # of a file that is not committed yet


@dataclass(frozen=True)
class Published:
    """The newest complete batch."""

    batch: int = 0
    versions: Mapping[str, int] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)  # what batches leave to the next: see `jobs.py`

    @property
    def now_ms(self) -> dict[str, int]:
        """The time of the newest record of each cluster."""
        return dict(self.content.get("now_ms", {}))

    @property
    def chunks(self) -> int:
        return int(self.content["chunks"])


# Files: also in tasks on other machines, which need pyarrow alone for local paths


class Store:
    """Reads and writes files of tables below a path or an URL."""

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        self.root = root.rstrip("/") if "://" in root else os.path.abspath(root)
        self.options = dict(options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Store) and (self.root, self.options) == (other.root, other.options)

    def __hash__(self) -> int:
        return hash(self.root)

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    def place(self, table: str) -> str:
        return f"{self.root}/{layer_of(table)}/{table}"

    def filesystem(self, table: str) -> pa_fs.FileSystem:
        """The files of one table."""
        if self.is_local:
            return pa_fs.SubTreeFileSystem(self.place(table), pa_fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        return pa_fs.PyFileSystem(DeltaStorageHandler(self.place(table), self.options))

    def write(self, table: str, part: Part, content: pa.Table) -> File:
        """Write a file, which is invisible until it is committed. A repeated task writes a new file."""
        with self.writer(table, part) as writer:
            writer.add(content)
        return writer.file

    def write_all(self, table: str, part: Part, contents: Iterable[pa.Table]) -> list[File]:
        """Write a file with these tables, one after the other, as far as they have rows."""
        with self.writer(table, part) as writer:
            for content in contents:
                if len(content):
                    writer.add(content)
        return [writer.file] if writer.rows else []

    def writer(self, table: str, part: Part) -> Writer:
        return Writer(self, table, part)

    def load(self, file: File, dictionary_columns: Sequence[str] = (), columns: Sequence[str] | None = None, only: Only | None = None) -> pa.Table:
        """The rows of a file. `dictionary_columns`: texts to read as dictionaries; `columns`: only these; `only`: rows with these values."""
        schema = table_schema(file.table)
        divided = parts_of(file.table)
        names = [name for name in schema.names if columns is None or name in columns]
        stored = [name for name in names if name not in divided]
        try:
            coded = [name for name in dictionary_columns if name not in divided]
            conditions = [_is_one_of(name, values) for name, values in (only or {}).items() if name not in divided]
            if conditions:
                # Compacted files have string views, for which there are no filters: names to filter by are read as dictionaries.
                filtered = [name for name in only or {} if name in stored and schema.field(name).type == pa.string()]
                options = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(dictionary_columns=[*coded, *filtered]))
                files = self.filesystem(file.table)
                physical = ds.dataset(file.path, format=options, filesystem=files).schema
                has = set(physical.names)
                plain = pa.schema([column if column.name in coded or column.name not in schema.names else column.with_type(schema.field(column.name).type) for column in physical])
                content = ds.dataset(file.path, schema=plain, format=options, filesystem=files)
                table = content.to_table([name for name in stored if name in has], reduce(and_, conditions), batch_size=ROWS_TOGETHER, batch_readahead=1)
            else:
                with self.filesystem(file.table).open_input_file(file.path) as source:
                    reader = pq.ParquetFile(source, read_dictionary=coded)
                    has = set(reader.schema_arrow.names)
                    table = reader.read([name for name in stored if name in has], use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise TablesError(f"{self.place(file.table)}/{file.path}: cannot be read ({str(error).splitlines()[0]}); use another --out") from None
        columns_by_name = {name: table[name] for name in table.column_names}
        newer = set(stored) - columns_by_name.keys()  # than the file
        for name in names:
            if name in divided:
                columns_by_name[name] = _repeated(getattr(file.part, name), schema.field(name), len(table), name in dictionary_columns)
            elif name in newer:
                columns_by_name[name] = pa.nulls(len(table), schema.field(name).type)
            elif not pa.types.is_dictionary(columns_by_name[name].type):
                columns_by_name[name] = columns_by_name[name].cast(schema.field(name).type)
        fields = [schema.field(name).with_type(columns_by_name[name].type).with_nullable(schema.field(name).nullable or name in newer) for name in names]
        return pa.table([columns_by_name[name] for name in names], schema=pa.schema(fields))


class Writer:
    """Writes one file, in several steps if its rows come so."""

    def __init__(self, store: Store, table: str, part: Part) -> None:
        self._store, self._table, self._part = store, table, part
        folders = (f"{name}={quote(value or '', safe='')}/" for name, value in _values(table, part).items())  # which some readers take the values from
        self._path = f"{''.join(folders)}{uuid.uuid4().hex}.parquet"
        self._writer: pq.ParquetWriter | None = None
        self._filesystem = store.filesystem(table)
        self._rows = 0
        self._bounds: dict[str, tuple[Any, Any]] = {}

    def __enter__(self) -> Writer:
        return self

    def add(self, content: pa.Table) -> None:
        divided = parts_of(self._table)
        schema = table_schema(self._table)
        content = content.select([name for name in schema.names if name not in divided])
        content = content.cast(pa.schema([item.with_type(content[item.name].type) if pa.types.is_dictionary(content[item.name].type) else item for item in schema if item.name not in divided]))
        try:
            if self._writer is None:
                if self._store.is_local:
                    os.makedirs(os.path.dirname(f"{self._store.place(self._table)}/{self._path}"), exist_ok=True)
                self._writer = pq.ParquetWriter(
                    self._path, content.schema, filesystem=self._filesystem, compression="zstd", compression_level=1, **_encoding(content.schema)
                )
            self._writer.write_table(content.cast(self._writer.schema), row_group_size=ROWS_TOGETHER)
        except OSError as error:
            raise self._failed(error) from None
        self._rows += content.num_rows
        self._note_bounds(content)

    def _note_bounds(self, content: pa.Table) -> None:
        for name in key_of(self._table):
            if name in content.column_names and len(content):
                column = content[name]
                if pa.types.is_dictionary(column.type):
                    column = column.unify_dictionaries().chunk(0).dictionary if column.num_chunks else column.cast(pa.string())
                low, high = pc.min_max(column).as_py().values()
                if low is not None:
                    before = self._bounds.get(name, (low, high))
                    self._bounds[name] = min(before[0], low), max(before[1], high)

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            self._abandon()
        elif self._writer is not None:
            try:
                self._writer.close()
            except OSError as failure:
                raise self._failed(failure) from None

    def _failed(self, error: OSError) -> OSError:
        """The error of a full disk or a removed folder, with the name of the file; the file is removed."""
        self._abandon()
        return OSError(error.errno, os.strerror(error.errno or errno.EIO), f"{self._store.place(self._table)}/{self._path}")

    def discard(self) -> None:
        """Remove the file."""
        self._abandon()

    def _abandon(self) -> None:
        with suppress(Exception):
            if self._writer is not None:
                self._writer.close()
        with suppress(Exception):
            self._filesystem.delete_file(self._path)

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def file(self) -> File:
        """The written file; `add` was called at least once."""
        size = self._filesystem.get_file_info(self._path).size
        low, high = ({name: bounds[at] for name, bounds in self._bounds.items()} for at in (0, 1))
        stats = json.dumps({"numRecords": self._rows, "minValues": low, "maxValues": high, "nullCount": {}})
        return File(self._table, self._part, self._path, size, self._rows, stats)


def layer_of(table: str) -> str:
    return TABLES[table].layer if table in TABLES else "state"


def parts_of(table: str) -> tuple[str, ...]:
    if table in TABLES:
        return TABLES[table].parts
    return STATES[table].parts if table in STATES else ()


def key_of(table: str) -> tuple[str, ...]:
    return TABLES[table].key if table in TABLES else ()


def table_schema(table: str) -> pa.Schema:
    """The columns of a table without `chunk` and `settled`, which only its files and their readers have."""
    if table == PROGRESS:
        return PROGRESS_SCHEMA
    return schema_of(table) if table in TABLES else STATES[table].schema


def _delta_schema(table: str) -> pa.Schema:
    return pa.schema([*table_schema(table), *(PARTS.field(name) for name in parts_of(table) if name in PARTS.names)])


def _is_one_of(column: str, values: str | bool | Iterable[str]) -> pc.Expression:
    named = pc.field(column)
    return named == values if isinstance(values, str | bool) else named.isin(pa.array(values, pa.string()))


def _repeated(value: object, named: pa.Field, count: int, as_dictionary: bool) -> pa.Array:
    if as_dictionary:
        return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), pa.array([value], named.type))
    return pa.repeat(pa.scalar(value, named.type), count)


def _encoding(schema: pa.Schema) -> dict[str, Any]:
    """Store texts as dictionaries and integers as deltas. Without the stored schema, dictionary columns are read back as plain texts."""
    numbers = {column.name: "DELTA_BINARY_PACKED" for column in schema if column.type == pa.int64()}
    return {
        "store_schema": not any(pa.types.is_dictionary(column.type) for column in schema),
        "use_dictionary": [column.name for column in schema if column.name not in numbers],
        "column_encoding": numbers or None,
    }


# Tables


class Tables:
    def __init__(self, store: Store, created: tuple[Path, ...] = ()) -> None:
        self.store = store
        self._created = created  # by this process: the folders that were missing, outermost first
        self._listed: dict[tuple[str, int], list[File]] = {}

    @property
    def folder(self) -> str:
        return self.store.root

    @classmethod
    def open(cls, root: str | Path, *, create: bool = False, options: Mapping[str, str] | None = None) -> Tables:
        """Open the tables. Raises TablesError for another folder, or tables of another version."""
        store = Store(str(root), options or {})
        if store.is_local:
            check_folder(Path(store.root), create)
        created = _made_folder(Path(store.root)) if store.is_local else ()
        tables = cls(store, created)
        if not store.is_local and not create and tables._delta(PROGRESS) is None:
            raise TablesError(f"{store.root}: empty; `tenure analyze run` or `ingest` fills it")
        tables.published()  # refuses another version
        return tables

    def discard(self) -> None:
        """Remove what `open` created, if no batch has been published and none is working."""
        if not self._created:
            return
        published, claim, _ = self._claimed()
        if published.batch or (claim and claim.get("pid") != os.getpid() and _is_alive(claim)):
            return
        with suppress(OSError):
            for layer in LAYERS:
                shutil.rmtree(f"{self.folder}/{layer}", ignore_errors=True)
            for folder in reversed(self._created):
                folder.rmdir()

    # Reading

    def _delta(self, name: str, version: int | None = None, *, without_files: bool = False) -> Any:
        """The table at a version, or the newest one; None: there is no such table."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        place = self.store.place(name)
        if self.store.is_local and not os.path.isdir(f"{place}/_delta_log"):
            return None
        try:
            return DeltaTable(place, version=version, storage_options=self.store.options or None, without_files=without_files)
        except TableNotFoundError:
            if version is None:
                return None
            raise TablesError(f"{place}: cannot be read (it has no version {version}); use another --out") from None
        except (DeltaError, OSError) as error:
            raise TablesError(f"{place}: cannot be read ({_in_one_line(error)}); use another --out") from None

    def published(self) -> Published:
        return self._claimed()[0]

    def _claimed(self) -> tuple[Published, dict[str, Any], Any]:
        """The newest complete batch, the claim of a batch that is not complete, and the table `progress`."""
        while (delta := self._delta(PROGRESS)) is not None:
            if delta.metadata().description != DESCRIPTION:
                raise TablesError(f"{self.folder}: its tables are of another version of Tenure; use another --out")
            try:
                rows = [row for file in _files(PROGRESS, delta) for row in self.store.load(file).to_pylist()]
                if not rows:
                    return Published(), {}, delta
                (row,) = rows
                versions, content, claim = (dict(json.loads(row[name])) for name in ("versions", "content", "claim"))
                return Published(int(row["batch"]), versions, content), claim, delta
            except TablesError:
                if delta.version() == self._delta(PROGRESS).version():
                    raise  # not replaced meanwhile
            except (OSError, ValueError, TypeError, KeyError) as error:
                raise TablesError(f"{self.store.place(PROGRESS)}: cannot be read ({str(error).splitlines()[0]}); use another --out") from None
        return Published(), {}, None

    def files_of(self, published: Published, name: str) -> list[File]:
        version = published.versions.get(name)
        if version is None:
            return []
        if (name, version) not in self._listed:
            self._listed = {key: files for key, files in self._listed.items() if key[0] != name}
            self._listed[name, version] = _files(name, self._delta(name, version))
        return self._listed[name, version]

    def read(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        only: Only | None = None,
        condense: Callable[[pa.Table], pa.Table] = lambda table: table,
        published: Published | None = None,
    ) -> pa.Table:
        """A table in key order, as the newest complete batch left it.

        `columns`: only these; `only`: rows with these values; other rows and columns take no memory. `condense` is applied to each file, so that only
        its results are in memory together, and then to all of them.
        """
        read_columns = None if columns is None else list({*columns, *key_of(name)})
        fixed = published
        while True:
            current = fixed or self.published()
            try:
                files = [file for file in self.files_of(current, name) if _may_have(file.part, only)]
                tables = [condense(self.store.load(file, columns=read_columns, only=only)) for file in files]
                break
            except TablesError:
                if fixed is not None or self.published() == current:
                    raise  # not replaced by another run meanwhile
        empty = table_schema(name).empty_table()
        joined = pa.concat_tables([empty if read_columns is None else empty.select([each for each in empty.column_names if each in read_columns]), *tables])
        table = condense(in_order(name, joined) if name in TABLES else joined)
        return table.select(list(columns)) if columns is not None else table

    def rows_in(self, published: Published, name: str) -> int:
        return sum(file.rows for file in self.files_of(published, name))

    # Writing

    def unused(self) -> Published:
        """The newest complete batch. Raises TablesBusy if another process works on the next one."""
        return self._unclaimed()[0]

    def _unclaimed(self) -> tuple[Published, Any]:
        published, claim, progress = self._claimed()
        if claim and _is_alive(claim):
            raise TablesBusy(f"{self.folder}: another run uses it (process {claim.get('pid', 'unknown')} on {claim.get('host', 'unknown')})")
        return published, progress

    def begin(self) -> Batch:
        """Claim the next batch. Raises TablesBusy if another process works on it."""
        published, progress = self._unclaimed()
        batch = Batch(self, published, progress)
        batch.claim()
        return batch

    def create(self, name: str) -> Any:
        from deltalake import DeltaTable, Schema

        place = self.store.place(name)
        configuration = {"delta.logRetentionDuration": "interval 0 seconds", "delta.checkpointInterval": "1000"}
        schema, options = Schema.from_arrow(_delta_schema(name)), self.store.options or None
        try:
            return _changed(
                place,
                lambda: DeltaTable.create(
                    place, schema, partition_by=list(parts_of(name)) or None, configuration=configuration, description=DESCRIPTION, storage_options=options, mode="error"
                ),
            )
        except TablesError:
            if self._delta(name) is None:
                raise
            raise TablesBusy(_CHANGED_BY_ANOTHER.format(place)) from None


class Batch:
    """The files of one batch, until they are published together."""

    def __init__(self, tables: Tables, published: Published, progress: Any) -> None:
        self.tables, self.before = tables, published
        self.number = published.batch + 1
        self._progress = progress
        self._versions = dict(published.versions)
        self._claim: Mapping[str, object] = {}

    def claim(self) -> None:
        """Name this process as the writer of the batch, and restore tables that an interrupted batch has changed."""
        self._claim = {"pid": os.getpid(), "host": socket.gethostname(), "at": round(time.time()), "began": _began(os.getpid())}
        self._write_progress(self.before, self._claim)
        for name in (*TABLES, *STATES):
            delta = self.tables._delta(name)
            known = self._versions.get(name)
            if delta is None and name in TABLES:
                self._versions[name] = self.tables.create(name).version()  # a table without rows is a table too
            if delta is None or known == delta.version():
                continue
            if known is None:
                stale = _files(name, delta)
                if stale:
                    self._change(name, delta, (), stale)
                self._versions[name] = delta.version()
            else:
                self._apply(name, delta, partial(delta.restore, known))
        self.before = replace(self.before, versions=dict(self._versions))

    @property
    def current(self) -> Published:
        """With what this batch has committed so far."""
        return replace(self.before, versions=dict(self._versions))

    def commit(self, files: Iterable[File], replaced: Mapping[str, set[Part]] | None = None) -> None:
        """Commit files, each table at once. `replaced`: by table the parts whose older files they replace."""
        by_table: dict[str, list[File]] = {}
        for file in files:
            by_table.setdefault(file.table, []).append(file)
        for name in dict.fromkeys([*by_table, *(replaced or {})]):
            parts = (replaced or {}).get(name, set())
            outdated = [file for file in self.tables.files_of(self.current, name) if file.part in parts]
            new = by_table.get(name, [])
            if new or outdated:
                delta = self.tables._delta(name)
                if delta is None:
                    delta = self.tables.create(name)
                elif delta.version() != self._versions.get(name, -1):
                    raise TablesBusy(f"{self.tables.store.place(name)}: another run has changed it meanwhile; run again")
                self._change(name, delta, new, outdated)

    def _change(self, name: str, delta: Any, new: Iterable[File], outdated: Iterable[File]) -> None:
        from deltalake import Schema
        from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

        _changed(self.tables.store.place(name), lambda: _with_new_columns(name, delta))
        at = int(time.time() * 1000)
        actions: list[Any] = [AddAction(file.path, file.size, _values(name, file.part), at, True, file.stats) for file in new]
        actions += [RemoveAction(path=file.path, data_change=True, deletion_timestamp=at, size=file.size, partition_values=_values(name, file.part)) for file in outdated]
        properties = CommitProperties(max_commit_retries=0, app_transactions=[Transaction(APP, self.number)])
        schema, parts = Schema.from_arrow(_delta_schema(name)), list(parts_of(name))
        self._apply(name, delta, lambda: delta.create_write_transaction(actions, "append", schema, partition_by=parts, commit_properties=properties))

    def _apply(self, name: str, delta: Any, change: Callable[[], object]) -> None:
        """Change a table, and note its new version."""
        _changed(self.tables.store.place(name), change)
        delta.update_incremental()
        self._versions[name] = delta.version()

    def publish(self, content: Mapping[str, Any], *, tidies: bool = False) -> Published:
        """Publish what was committed, and compact tables of many small files. `tidies`: also remove what only earlier batches used, as often happens anyway."""
        for name in TABLES:
            if _are_many_small(self.tables.files_of(self.current, name)):
                self.compact(name)
        tidies = tidies or self.number % TIDY_BATCHES == 0
        published = Published(self.number, dict(self._versions), dict(content))
        self._write_progress(published, self._claim if tidies else {})
        self.before = published
        if tidies:
            self._tidy()
            self.before = replace(published, versions=dict(self._versions))
            self._write_progress(self.before, {})
        return self.before

    def compact(self, name: str) -> None:
        """Write the files of each part as one."""
        delta = self.tables._delta(name)
        self._apply(name, delta, delta.optimize.compact)

    def delete(self, name: str, condition: str) -> None:
        """Delete rows, by a condition in SQL."""
        delta = self.tables._delta(name)
        if delta is not None:
            self._apply(name, delta, partial(delta.delete, condition))

    def _tidy(self) -> None:
        """Remove the files and versions that only earlier batches used, and files that no batch has committed."""
        for name in (*self._versions, PROGRESS):
            _changed(self.tables.store.place(name), partial(self._tidy_table, name))

    def _tidy_table(self, name: str) -> None:
        delta = self.tables._delta(name)
        kept = sorted(entry["version"] for entry in delta.history(KEPT_VERSIONS))
        delta.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True, keep_versions=kept)
        delta.update_incremental()
        if name == PROGRESS:
            self._progress = delta
        else:
            self._versions[name] = delta.version()
        oldest = self.tables._delta(name, kept[0])
        oldest.create_checkpoint()
        oldest.cleanup_metadata()

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            self.release()

    def release(self) -> None:
        """Give the batch up: its committed files are removed when the next one begins."""
        with suppress(TablesError, OSError):
            self._write_progress(self.before, {})

    def _write_progress(self, published: Published, claim: Mapping[str, object]) -> None:
        row = {"batch": published.batch, "versions": json.dumps(published.versions), "content": json.dumps(published.content), "claim": json.dumps(claim)}
        file = self.tables.store.write(PROGRESS, Part(), pa.Table.from_pylist([row], PROGRESS_SCHEMA))
        delta = self._progress if self._progress is not None else self.tables.create(PROGRESS)
        self._progress = delta
        self._change(PROGRESS, delta, [file], _files(PROGRESS, delta))
        del self._versions[PROGRESS]


_CHANGED_BY_ANOTHER: Final = "{}: another run changes it at the same time; run again when it has ended"
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")


def _changed(place: str, change: Callable[[], Any]) -> Any:
    """Change the table there. An error is of one line and has the place."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        return change()
    except (DeltaError, OSError) as error:
        if found := _OS_ERROR.search(str(error)):
            raise OSError(int(found[1]), os.strerror(int(found[1])), place) from None
        if isinstance(error, CommitFailedError):
            raise TablesBusy(_CHANGED_BY_ANOTHER.format(place)) from None
        raise TablesError(f"{place}: cannot be written ({_in_one_line(error)})") from None


def _in_one_line(error: Exception) -> str:
    """The text of an error of deltalake, whose causes are on lines of their own, with colours."""
    return ": ".join(filter(None, (re.sub(r"\x1b\[\d*m|↳", "", line).strip() for line in str(error).splitlines())))


def _with_new_columns(name: str, delta: Any) -> None:
    """Add the columns that this version has and the table lacks; files without them have nulls there."""
    from deltalake import Field, Schema

    stored = {column.name for column in delta.schema().fields}
    missing = [column for column in Schema.from_arrow(_delta_schema(name)).fields if column.name not in stored]
    if missing:
        delta.alter.add_columns([Field(column.name, column.type, nullable=True) for column in missing])
        delta.update_incremental()


def _files(name: str, delta: Any) -> list[File]:
    actions = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    return [
        File(name, Part(*(row.get(f"partition.{part}", default) for part, default in Part._field_defaults.items())), unquote(row["path"]), row["size_bytes"], row["num_records"] or 0)
        for row in actions
    ]


def _are_many_small(files: Iterable[File]) -> bool:
    small = [file for file in files if file.size < SMALL_BYTES]
    return len(small) > max(SMALL_FILES_MAX, SMALL_FILES_OF_PART * len({file.part for file in small}))


def _values(table: str, part: Part) -> dict[str, str | None]:
    def text(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    return {name: text(getattr(part, name)) for name in parts_of(table)}


def _may_have(part: Part, only: Only | None) -> bool:
    """Whether a file of this part may have wanted rows, by its cluster."""
    wanted = (only or {}).get("cluster")
    if wanted is None or part.chunk < 0:
        return True
    return part.cluster in ([wanted] if isinstance(wanted, str | bool) else list(wanted))


def _made_folder(folder: Path) -> tuple[Path, ...]:
    """Make the folder; return all that were made for it."""
    created = tuple(path for path in (*reversed(folder.parents), folder) if not path.exists())
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TablesError(f"{error.filename}: {error.strerror}") from None
    return created


def _is_alive(claim: Mapping[str, Any]) -> bool:
    """Whether the process that claimed a batch may still work on it."""
    if claim.get("host") != socket.gethostname():
        return time.time() - float(claim.get("at", 0)) < CLAIM_S
    return bool(claim.get("began")) and _began(int(claim.get("pid", 0))) == claim.get("began")


def _began(pid: int) -> str:
    """When the process began, to tell it from a later one with its id; "": it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        pass
    try:
        os.kill(pid, 0)
    except OSError:
        return ""
    return "unknown"
