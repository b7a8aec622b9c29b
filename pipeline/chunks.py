"""The tables of one chunk of groups: a function of what the chunk had before, its new records, and what concerns all groups.

Spark calls `build_chunk` behind its shuffle, the runner without Spark in a loop. Files are written here and committed by the caller. A chunk with many
records is computed in cells, each with some of its groups, to bound memory; the rows depend on neither.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.blocks import (
    COMMIT_SCHEMA,
    COMMITS,
    EVENT_KINDS,
    EVENTS,
    NAMES,
    WAITING,
    Block,
    cells_for,
    cells_of,
    chunk_of,
    in_log_order,
    records_of,
)
from pipeline.columns import ints
from pipeline.commits import CommitState, digest_commits
from pipeline.coverage import by_partition
from pipeline.decode import NOTE, OFFSET
from pipeline.edges import AROUND, HOMES
from pipeline.edges import WAITING as WAITING_SCHEMA
from pipeline.events import Epochs, epochs_of, events_of, note_rows
from pipeline.folding import BY_GROUP, COORDINATOR, fold, raw_events
from pipeline.groups import complete_share
from pipeline.inputs import LogId
from pipeline.measurements import (
    BEGINNING,
    FOLDED_TABLES,
    NO_ROWS,
    TIME_COLUMNS,
    Homes,
    PreviousBuild,
    earliest_change_ms,
    measure,
    settled_before,
    settling_ms,
)
from pipeline.rows import Coverage
from pipeline.schema import in_order, joined, rows_of, schema_of, table_of
from pipeline.series import LOOKBACK_MS, series_and_samples
from pipeline.series_totals import SERIES_TOTALS
from pipeline.state import STATES
from pipeline.status import recompute_since
from pipeline.tables import File, Part, Store, table_schema

CELL_RECORDS: Final = 120_000
SLICE_RECORDS: Final = 300_000
# After a group's last event its rows may change for this long without new events: a member has not returned in time, or a storm has ended.
OPEN_MS: Final = 25 * 3_600_000
CODED_COLUMNS: Final = ("cluster", "group", "topic", "origin")  # with few distinct values, read as dictionaries
COMMON_TABLES: Final = ("records", "coverage", "end_offsets", "epochs")  # of the part Part(), and of chunk -1
OF_CHUNK: Final = ("tails", "waiting", "around", "homes", "pending", "standing", "chunks", "commits", "records", "edges", *BY_GROUP, *TIME_COLUMNS, "hygiene", "groups")


class Common(NamedTuple):
    """What concerns all groups of a cluster in one batch."""

    cluster: str
    chunks: int
    now_ms: int
    builds: bool  # the tables of groups, too; else only what follows from each record
    anew: bool  # everything from the stored records
    unbuilt: bool  # records and end offsets were stored that no tables of groups have yet
    retention_ms: int | None  # see `retention.py`
    ended: Mapping[str, Mapping[int, bool]]  # by log: see `TransactionVerdicts.ended`
    changed: Mapping[int, int]  # partitions with new notes about their coordinator, and the oldest time of these
    files: Mapping[str, Sequence[File]]  # of COMMON_TABLES
    fresh_ends: frozenset[str]  # the paths of end offsets that are new in this batch


class ChunkTask(NamedTuple):
    """A chunk, and its files before the batch."""

    cluster: str
    chunk: int
    files: Mapping[str, Sequence[File]]

    @property
    def stored_records(self) -> int:
        return sum(file.rows for name in ("commits", "records") for file in self.files.get(name, ()))


class ChunkResult(NamedTuple):
    files: list[File]
    replaced: list[tuple[str, Part]]  # tables, and the parts whose older files the new ones replace
    decided: dict[str, tuple[int, int]]  # by log: the records of ended transactions that were committed, and aborted
    pending: int  # records of transactions that are still open


def build_chunk(store: Store, common: Common, task: ChunkTask, blocks: Sequence[Block]) -> ChunkResult:
    return _Chunk(store, common, task, blocks).build()


class _Standing(NamedTuple):
    """Of `chunks`: see `state.py`."""

    kept_from_ms: int
    settled_ms: int
    built_ms: int


class _Cell(NamedTuple):
    """The time series of one cell."""

    number: int
    reopened: bool  # late input has changed settled rows
    stay: Mapping[str, pa.Table]  # if reopened: the rows that stay settled
    settled: Mapping[str, pa.Table]  # newly
    recent: Mapping[str, pa.Table]
    totals: pa.Table


class _Chunk:
    def __init__(self, store: Store, common: Common, task: ChunkTask, blocks: Sequence[Block]) -> None:
        self._store, self._common, self._task, self._blocks = store, common, task, blocks
        self._cluster = task.cluster
        self._part = Part(task.cluster, task.chunk)
        self._loaded: dict[str, pa.Table] = {}
        self._results: dict[str, list[pa.Table]] = {}
        standing = [_Standing(*(row[name] for name in _Standing._fields)) for row in self._table("chunks").to_pylist()]
        self._standing = standing[0] if standing else _Standing(BEGINNING, BEGINNING, -1)
        if common.unbuilt:
            self._standing = self._standing._replace(built_ms=-1)
        self._pending, self._late, self._decided = self._decide(self._table("pending"))
        self._anew = common.anew or len(self._late) > 0
        fresh = sum(block.records for block in blocks if block.kind == COMMITS)
        stored = task.stored_records if self._anew else 0
        self._cells = cells_for(fresh + stored, CELL_RECORDS)

    # Reading

    def _table(self, name: str, settled: bool | None = None) -> pa.Table:
        """The rows of the chunk before the batch; of a time series those that are settled, or not."""
        key = f"{name} {settled}"
        if key not in self._loaded:
            files = [file for file in self._task.files.get(name, ()) if settled is None or file.part.settled == settled]
            self._loaded[key] = pa.concat_tables([table_schema(name).empty_table(), *map(self._store.load, files)])
        return self._loaded[key]

    def _of_cell(self, table: pa.Table, cell: int) -> pa.Table:
        if self._cells == 1 or not len(table):
            return table
        return table.filter(pa.array(cells_of(self._cluster, table["group"], self._common.chunks, self._cells) == cell))

    def _decide(self, pending: pa.Table) -> tuple[pa.Table, pa.Table, dict[str, tuple[int, int]]]:
        """Of the records that waited for the end of their transactions: those that still wait, those that count now, and numbers for each log."""
        ended = {LogId.from_text(name): verdicts for name, verdicts in self._common.ended.items()}
        if not len(pending) or not ended:
            return pending, pending.slice(0, 0), {}
        logs = zip(*(pending[name].to_pylist() for name in ("log", "partition", "producer_id")), strict=True)
        verdicts = [ended.get(LogId(self._cluster, log, partition), {}).get(producer) for log, partition, producer in logs]
        counts: dict[str, tuple[int, int]] = {}
        for log, partition, verdict in zip(pending["log"].to_pylist(), pending["partition"].to_pylist(), verdicts, strict=True):
            if verdict is not None:
                name = str(LogId(self._cluster, log, partition))
                committed, aborted = counts.get(name, (0, 0))
                counts[name] = committed + verdict, aborted + (not verdict)
        waits, counts_now = ([verdict is which for verdict in verdicts] for which in (None, True))
        return pending.filter(pa.array(waits)), pending.filter(pa.array(counts_now)), counts

    def _new_commits(self, cell: int) -> pa.Table:
        late = self._of_cell(self._late.filter(pc.equal(self._late["kind"], OFFSET)), cell)
        others = [late.select(COMMIT_SCHEMA.names)] if len(late) else []
        others += [self._stored_commits(cell)] if self._anew else []
        coded = pa.schema([column.with_type(pa.dictionary(pa.int32(), pa.string())) if column.name in NAMES else column for column in COMMIT_SCHEMA])
        new = [block.cells(cell, self._cells) for block in self._blocks if block.kind == COMMITS]
        tables = [pa.concat_tables(new).cast(coded)] if new else []
        return in_log_order(pa.concat_tables([coded.empty_table(), *tables, *(table.cast(coded) for table in others)]).unify_dictionaries())

    def _stored_commits(self, cell: int) -> pa.Table:
        """The commits of earlier batches, as they were read."""
        stored = self._of_cell(self._table("commits"), cell)
        place = pc.index_in(stored["group"], self._table("homes")["group"])
        partition = self._table("homes")["partition"].take(place) if len(stored) else pa.chunked_array([pa.array([], pa.int64())])
        return pa.table([partition if name == "partition" else stored[name] for name in COMMIT_SCHEMA.names], schema=COMMIT_SCHEMA)

    # Writing

    def _keep(self, name: str, table: pa.Table) -> None:
        self._results.setdefault(name, []).append(table)

    # Building

    def build(self) -> ChunkResult:
        files: list[File] = []
        replaced: list[tuple[str, Part]] = []
        cells: list[_Cell] = []
        builds = self._common.builds
        kept_from_ms = BEGINNING
        waiting = [self._pending, records_of(self._cluster, self._blocks, WAITING, schema_of("records"))]
        with ExitStack() as stack:
            writer, tails = (stack.enter_context(self._store.writer(name, self._part)) for name in ("commits", "tails"))
            for cell in range(self._cells):
                state, fresh, events, new_events, refold = self._digest(cell, writer)
                if len(state.tails):
                    tails.add(state.tails)
                kept_from_ms = max(kept_from_ms, state.kept_from_ms)
                if builds:
                    folded = self._fold(cell, events, new_events, refold)
                    cells.append(self._measure(cell, fresh, new_events, folded, state.homes))
        if writer.rows:
            files.append(writer.file)
        if writer.rows or tails.rows != len(self._table("tails")):
            files += [tails.file] if tails.rows else []
            replaced.append(("tails", self._part))
        else:
            tails.discard()
        if self._anew:
            replaced.append(("commits", self._part))
        new_records = joined("records", [*self._results.pop("new_records", ()), self._late.filter(pc.not_equal(self._late["kind"], OFFSET))])
        if len(new_records):
            files.append(self._store.write("records", self._part, in_order("records", new_records)))
        self._keep("pending", pa.concat_tables(waiting))
        standing = self._standing
        if builds:
            standing = standing._replace(settled_ms=settling_ms(standing.settled_ms if standing.built_ms >= 0 else BEGINNING, self._common.now_ms), built_ms=self._common.now_ms)
            self._write_series(cells, files, replaced)
        else:
            standing = standing._replace(built_ms=-1)
        standing = standing._replace(kept_from_ms=kept_from_ms)
        self._keep("chunks", pa.Table.from_pylist([{"cluster": self._cluster, **standing._asdict()}], STATES["chunks"].schema))
        for name, tables in self._results.items():
            self._replace(name, self._part, pa.concat_tables(tables), self._table(name), files, replaced)
        return ChunkResult(files, replaced, self._decided, sum(map(len, waiting)))

    def _replace(self, name: str, part: Part, new: pa.Table, old: pa.Table, files: list[File], replaced: list[tuple[str, Part]]) -> None:
        """Write a table of the chunk in place of the older one, unless they are equal."""
        new = in_order(name, new) if name in TABLES_IN_ORDER else new
        if new.equals(in_order(name, old) if name in TABLES_IN_ORDER else old):
            return
        replaced.append((name, part))
        if len(new):
            files.append(self._store.write(name, part, new))

    def _digest(self, cell: int, writer: object) -> tuple[CommitState, pa.Table, pa.Table, pa.Table, set[str]]:
        """Write the new commits. Return the state after them, these commits, all events, the new ones, and groups whose rows change."""
        cluster = self._cluster
        new_events = records_of(cluster, self._blocks, EVENTS, schema_of("records"), cell, self._cells)
        self._keep("new_records", new_events)
        late = self._of_cell(self._late.filter(pc.not_equal(self._late["kind"], OFFSET)), cell)
        stored_events = self._of_cell(self._table("records"), cell)
        new_events = pa.concat_tables([new_events, late])
        commits = self._new_commits(cell)
        if self._anew:
            state, digested_events = CommitState.new(), in_log_order(pa.concat_tables([stored_events, new_events]))
            edges: list[pa.Table] = []
        else:
            around, homes = (self._of_cell(self._table(name), cell) for name in ("around", "homes"))
            waiting = self._of_cell(self._table("waiting"), cell)
            tails = self._of_cell(self._table("tails"), cell)
            state = CommitState(tails, waiting.select(WAITING_SCHEMA.names), around.select(AROUND.names), homes.select(HOMES.names), self._standing.kept_from_ms)
            digested_events = new_events
            edges = [_without(self._of_cell(self._table("edges"), cell), waiting)]
        fresh: list[pa.Table] = []
        refold: set[str] = set()
        open_edges = schema_of("edges").empty_table()
        for some_commits, some_events in _slices(commits, digested_events.filter(pc.equal(digested_events["log"], "offsets"))):
            stepped = digest_commits(cluster, some_commits, some_events, state)
            state, open_edges = stepped.state.trimmed(stepped.state.newest_ms), stepped.open_edges
            edges.append(stepped.edges)
            refold.update(stepped.refold)
            if len(stepped.commits):
                writer.add(stepped.commits)  # type: ignore[attr-defined]
                fresh.append(stepped.commits)
        self._keep("edges", joined("edges", [*edges, open_edges]))
        for name in ("waiting", "around", "homes"):
            table = getattr(state, name)
            self._keep(name, table.add_column(0, STATES[name].schema.field("cluster"), pa.repeat(cluster, len(table))))
        empty = dictionary_coded(schema_of("commits").empty_table())
        return state, pa.concat_tables([empty, *fresh]), pa.concat_tables([stored_events, new_events]), new_events, refold

    def _fold(self, cell: int, events: pa.Table, new_events: pa.Table, refold: set[str]) -> dict[str, pa.Table]:
        common, cluster = self._common, self._cluster
        of_all = _of_all(self._store, common)
        holds_coordinator = self._task.chunk == chunk_of(cluster, COORDINATOR, common.chunks) and self._holds(COORDINATOR, cell)
        due: set[str] | None = None
        if self._standing.built_ms >= 0 and not self._anew:
            homes = self._results["homes"][-1]
            recent = events.filter(pc.greater_equal(events["append_ms"], self._standing.built_ms - OPEN_MS))
            due = {*refold, *new_events["group"].unique().drop_null().to_pylist(), *recent["group"].unique().drop_null().to_pylist()}
            due |= {group for group, home in zip(homes["group"].to_pylist(), homes["partition"].to_pylist(), strict=True) if home in common.changed}
            due |= {COORDINATOR} if holds_coordinator and common.changed else set()
        wanted = due
        if due is not None:
            events = events.filter(pc.is_in(events["group"], pa.array(sorted(due), pa.string())))
        if not holds_coordinator:
            present = set(events["group"].unique().drop_null().to_pylist())
            wanted = (present if due is None else due) - ({COORDINATOR} if COORDINATOR not in present else set())
        events = events.filter(pc.is_in(events["kind"], pa.array(EVENT_KINDS)))
        folded = fold(cluster, pa.concat_tables([events, of_all.notes]), self._results["edges"][-1], of_all.coverage, common.now_ms, wanted, of_all.epochs)
        tables = {}
        for name in BY_GROUP:
            old = self._of_cell(self._table(name), cell)
            old = old.slice(0, 0) if due is None else old.filter(pc.invert(pc.is_in(old["group"], pa.array(sorted(due), pa.string()))))
            tables[name] = in_order(name, joined(name, [old, folded[name]]))
            self._keep(name, tables[name])
        return tables

    def _holds(self, group: str, cell: int) -> bool:
        return self._cells == 1 or cells_of(self._cluster, pa.array([group]), self._common.chunks, self._cells)[0] == cell

    def _measure(self, cell: int, fresh: pa.Table, new_events: pa.Table, folded: Mapping[str, pa.Table], homes: pa.Table) -> _Cell:
        common = self._common
        of_all = _of_all(self._store, common)
        tails = dictionary_coded(self._of_cell(self._table("tails"), cell))
        topics = {*fresh["topic"].unique().to_pylist(), *tails["topic"].unique().to_pylist()}
        fresh_ends, known_ends = _ends(self._store, common, topics)
        before, since, reopened = NO_ROWS, BEGINNING, False
        stay: Mapping[str, pa.Table] = {}
        if self._standing.built_ms >= 0 and not self._anew:
            rebalances = self._of_cell(self._table("rebalances"), cell)
            since = earliest_change_ms(min([self._standing.built_ms, *common.changed.values()]), fresh, fresh_ends, known_ends, new_events, joined("rebalances", [rebalances, folded["rebalances"]]))
            rows = {name: self._of_cell(self._table(name, settled=False), cell) for name in TIME_COLUMNS}
            totals = self._of_cell(self._table("standing"), cell).select(SERIES_TOTALS.names)
            before = PreviousBuild(rows, totals, self._standing.settled_ms)
            since = recompute_since(rows["status"], since)
            if since < self._standing.settled_ms:
                reopened = True
                before, stay = settled_before(rows, {name: self._of_cell(self._table(name, settled=True), cell) for name in TIME_COLUMNS}, since)
                since = recompute_since(before.rows["status"], since)
        suffice = not self._anew and since - LOOKBACK_MS >= self._standing.kept_from_ms
        if suffice:
            commits = pa.concat_tables([tails, fresh])
        elif self._anew:
            commits = fresh
        else:
            commits = pa.concat_tables([dictionary_coded(self._of_cell(self._table("commits"), cell)), fresh])
        settle_ms = settling_ms(before.settled_ms if before is not NO_ROWS and not reopened else BEGINNING, common.now_ms)
        settle_ms = max(settle_ms, self._standing.settled_ms if before is not NO_ROWS else BEGINNING)
        measured = measure(
            self._cluster,
            *series_and_samples(commits.unify_dictionaries(), pa.concat_tables([known_ends, fresh_ends])),
            {name: folded[name] for name in FOLDED_TABLES},
            Homes(dict(zip(homes["group"].to_pylist(), homes["partition"].to_pylist(), strict=True)), of_all.shares, of_all.noted),
            before,
            since,
            settle_ms,
            common.now_ms,
            common.retention_ms,
        )
        for name, table in measured.groups.items():
            self._keep(name, table)
        return _Cell(cell, reopened, stay, measured.settled, measured.recent, measured.series_totals)

    def _write_series(self, cells: Sequence[_Cell], files: list[File], replaced: list[tuple[str, Part]]) -> None:
        settled_part, open_part = self._part._replace(settled=True), self._part._replace(settled=False)
        rewrites = self._anew or self._standing.built_ms < 0 or any(cell.reopened for cell in cells)
        for name in TIME_COLUMNS:
            settled = [cell.settled[name] for cell in cells]
            if rewrites:
                replaced.append((name, settled_part))
                if not self._anew and self._standing.built_ms >= 0:
                    settled += [cell.stay[name] if cell.reopened else self._of_cell(self._table(name, settled=True), cell.number) for cell in cells]
            files += self._store.write_all(name, settled_part, settled)
            recent = joined(name, [cell.recent[name].cast(schema_of(name)) for cell in cells])
            self._replace(name, open_part, recent, self._table(name, settled=False), files, replaced)
        totals = pa.concat_tables([cell.totals for cell in cells])
        self._keep("standing", totals.add_column(0, STATES["standing"].schema.field("cluster"), pa.repeat(self._cluster, len(totals))))


TABLES_IN_ORDER: Final = frozenset((*BY_GROUP, *TIME_COLUMNS, "edges", "hygiene", "groups"))


def _without(edges: pa.Table, waiting: pa.Table) -> pa.Table:
    """The edges that do not wait."""
    if not len(edges) or not len(waiting):
        return edges
    waits = set(zip(waiting["group"].to_pylist(), waiting["offset"].to_pylist(), strict=True))
    keys = zip(edges["group"].to_pylist(), edges["offset"].to_pylist(), strict=True)
    return edges.filter(pa.array([key not in waits for key in keys]))


def _slices(commits: pa.Table, events: pa.Table) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Commits and events in log order, some hundred thousand at a time."""
    if len(commits) <= SLICE_RECORDS:
        yield commits, events
        return
    places = np.rec.fromarrays([ints(commits["partition"]), ints(commits["offset"])])
    of_events = np.rec.fromarrays([ints(events["partition"]), ints(events["offset"])])
    bounds = list(range(0, len(commits), SLICE_RECORDS))
    cuts = [0, *(int(np.searchsorted(of_events, places[bound], "left")) for bound in bounds[1:]), len(events)]
    for number, bound in enumerate(bounds):
        yield commits.slice(bound, SLICE_RECORDS), events.slice(cuts[number], cuts[number + 1] - cuts[number])


class _OfAll(NamedTuple):
    """What is read from COMMON_TABLES but for end offsets."""

    notes: pa.Table  # about coordinators, as records
    noted: pa.Table  # and as rows of `notes`
    coverage: Mapping[int, Sequence[Coverage]]  # by partition, of both logs
    shares: Mapping[int, float]  # by partition: the complete share of its offsets
    epochs: Epochs


def _of_all(store: Store, common: Common) -> _OfAll:
    return _read_of_all(store, common.cluster, *(tuple(common.files.get(name, ())) for name in ("records", "coverage", "epochs")))


@lru_cache(maxsize=2)  # a process makes many chunks of one batch
def _read_of_all(store: Store, cluster: str, notes: Sequence[File], coverage: Sequence[File], epochs: Sequence[File]) -> _OfAll:
    records = joined("records", map(store.load, notes))
    ranges = by_partition(row for file in coverage for row in rows_of(Coverage, store.load(file, only={"cluster": cluster})))
    first_of_epochs = pa.concat_tables([STATES["epochs"].schema.empty_table(), *(store.load(file, only={"cluster": cluster}) for file in epochs)])
    shares = {partition: complete_share(rows) for partition, rows in ranges.items()}
    notes_in_order = in_log_order(records.filter(pc.equal(records["kind"], NOTE)))
    events = events_of(raw_events(notes_in_order)).get(COORDINATOR)
    noted = table_of("notes", note_rows(cluster, COORDINATOR, events.notes if events is not None else []))
    return _OfAll(notes_in_order, noted, ranges, shares, epochs_of(first_of_epochs))


def _ends(store: Store, common: Common, topics: Collection[str]) -> tuple[pa.Table, pa.Table]:
    """The end offsets of these topics, as two tables: new in this batch, and older."""
    empty = dictionary_coded(schema_of("end_offsets").empty_table())
    only = {"cluster": common.cluster, "topic": sorted(topics)}
    parts: tuple[list[pa.Table], list[pa.Table]] = ([empty], [empty])
    for file in common.files.get("end_offsets", ()) if topics else ():
        parts[file.path not in common.fresh_ends].append(store.load(file, CODED_COLUMNS, only=only))
    fresh, known = (pa.concat_tables(tables) for tables in parts)
    return fresh, known


def dictionary_coded(table: pa.Table) -> pa.Table:
    fields = [column.with_type(pa.dictionary(pa.int32(), pa.string())) if column.name in CODED_COLUMNS else column for column in table.schema]
    return table.cast(pa.schema(fields))
