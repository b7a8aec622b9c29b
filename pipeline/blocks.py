"""Records on their way to the tables: blocks of many records, each of one kind and one chunk of groups.

A task that reads splits divides their records by the chunk of their group, and yields a row for each block (`BLOCKS`): a few large rows instead of millions
of small ones, which is what a shuffle is fast with. Chunk -1 has what concerns all groups: notes about coordinators, end offsets of topics,
records without a group, the first record of each coordinator epoch, and what was learned about the logs besides their records.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from history.newer import KIND_OF_KEY
from pipeline.columns import Ints, ints
from pipeline.decode import NOTE, OFFSET
from pipeline.end_offsets import from_notes
from pipeline.schema import schema_of

COMMON: Final = -1  # the chunk of what concerns all groups
CELLS: Final = 16  # the parts of a chunk that can be read one by one
RECORDS_MAX: Final = 100_000  # in a block
CHUNKS_DEFAULT: Final = 6

BLOCKS: Final = pa.schema(
    [
        pa.field("cluster", pa.string(), nullable=False),
        pa.field("chunk", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("block", pa.binary(), nullable=False),
    ]
)

# Kinds of blocks
COMMITS: Final = "commits"
EVENTS: Final = "events"  # all other records
WAITING: Final = "waiting"  # records of open transactions
ENDS: Final = "ends"
EPOCHS: Final = "epochs"
CLOCK: Final = "clock"  # the newest time
TOPICS: Final = "topics"  # with committed offsets
COUNTS: Final = "counts"  # of the records of each chunk
READ: Final = "read"  # facts about the logs, as JSON: see `Facts`

COMMIT_COLUMNS: Final = (
    "partition", "offset", "append_ms", "group", "topic", "topic_partition", "committed", "commit_ms", "metadata", "tombstone", "txn"
)  # fmt: skip
COMMIT_SCHEMA: Final = pa.schema([schema_of("records").field(name) for name in COMMIT_COLUMNS])
NAMES: Final = ("group", "topic")
CODED: Final = pa.dictionary(pa.int32(), pa.string())
EPOCH_SCHEMA: Final = pa.schema([("partition", pa.int64()), ("epoch", pa.int64()), ("offset", pa.int64()), ("append_ms", pa.int64())])
_IPC: Final = pa.ipc.IpcWriteOptions(compression="lz4", unify_dictionaries=True)


class Block(NamedTuple):
    cluster: str
    chunk: int
    kind: str
    records: int
    block: bytes | pa.Buffer

    @classmethod
    def of(cls, cluster: str, chunk: int, kind: str, table: pa.Table) -> Block:
        return cls.of_cells(cluster, chunk, kind, table, [0, *[len(table)] * CELLS])

    @classmethod
    def of_cells(cls, cluster: str, chunk: int, kind: str, table: pa.Table, bounds: Sequence[int]) -> Block:
        """`bounds`: cell i has the rows from bounds[i] to bounds[i + 1]."""
        sink = pa.BufferOutputStream()
        (batch,) = table.unify_dictionaries().combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
        with pa.ipc.new_file(sink, batch.schema, options=_IPC) as writer:
            for begin, end in pairwise(bounds):
                writer.write_batch(batch.slice(begin, end - begin))
        return cls(cluster, chunk, kind, len(table), sink.getvalue().to_pybytes())

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> Block:
        return cls("", COMMON, READ, 0, json.dumps(facts).encode())

    @property
    def table(self) -> pa.Table:
        with pa.ipc.open_file(self.block) as reader:
            return reader.read_all()

    def cells(self, cell: int, cells: int) -> pa.Table:
        """The rows of one of `cells` parts of the chunk."""
        with pa.ipc.open_file(self.block) as reader:
            return pa.Table.from_batches([reader.get_batch(number) for number in range(cell, CELLS, cells)], reader.schema)

    @property
    def facts(self) -> dict[str, Any]:
        return dict(json.loads(bytes(self.block)))


def batch_of(blocks: Sequence[Block]) -> pa.RecordBatch:
    columns = list(zip(*blocks, strict=True)) or [()] * len(BLOCKS)
    return pa.RecordBatch.from_arrays([pa.array(values, named.type) for values, named in zip(columns, BLOCKS, strict=True)], schema=BLOCKS)


def blocks_in(table: pa.Table | pa.RecordBatch) -> list[Block]:
    *names, last = BLOCKS.names
    buffers = [value.as_buffer() for value in table.column(last)]  # without a copy
    return [Block(*row) for row in zip(*(table.column(name).to_pylist() for name in names), buffers, strict=True)]


def chunk_of(cluster: str, group: str, chunks: int) -> int:
    return _hash(cluster, group) % chunks


def cells_for(records: int, records_max: int) -> int:
    """Into how many cells to divide a chunk with so many records: a divisor of CELLS."""
    cells = 1
    while cells < CELLS and records > cells * records_max:
        cells *= 2
    return cells


def cells_of(cluster: str, groups: pa.ChunkedArray | pa.Array, chunks: int, cells: int) -> Ints:
    """For each group of a chunk the part of the chunk that it belongs to, of `cells` parts."""
    return _by_name(groups, lambda name: _hash(cluster, name) // chunks % CELLS % cells)


def chunks_of(cluster: str, groups: pa.ChunkedArray | pa.Array, chunks: int) -> Ints:
    """The chunk of each group."""
    return _by_name(groups, lambda name: chunk_of(cluster, name, chunks))


def _by_name(groups: pa.ChunkedArray | pa.Array, number: Callable[[str], int]) -> Ints:
    """A number for each group, computed once for each name. A null has that of some name."""
    coded = groups.combine_chunks() if isinstance(groups, pa.ChunkedArray) else groups
    coded = coded if pa.types.is_dictionary(coded.type) else coded.dictionary_encode()
    of_names = np.array([number(name or "") for name in coded.dictionary.to_pylist()] or [0], np.int64)
    return np.asarray(of_names[np.asarray(coded.indices.fill_null(0).to_numpy())])


def _hash(cluster: str, group: str) -> int:
    return zlib.crc32(f"{cluster}\0{group}".encode("utf-8", "surrogatepass"))


class Divider:
    """Divides the records of one task into blocks. `add` and `finish` return the rows that are ready."""

    def __init__(self, chunks: int) -> None:
        self._chunks = chunks
        self._gathered: dict[tuple[str, str], list[pa.RecordBatch]] = {}  # by cluster and kind
        self._rows: dict[tuple[str, str], int] = {}
        self._epochs: dict[str, dict[tuple[int, int], tuple[int, int]]] = {}
        self._newest: dict[str, int] = {}
        self._topics: dict[str, set[str]] = {}
        self._counts: dict[str, Counter[int]] = {}

    def add(self, records: pa.RecordBatch, *, waits: bool = False) -> list[Block]:
        """`records`: rows of `rows.Record` of one log, in log order. `waits`: they belong to open transactions."""
        if not records.num_rows:
            return []
        cluster, log = records.column("cluster")[0].as_py(), records.column("log")[0].as_py()
        ready: list[Block] = []
        if waits:
            return self._gather(cluster, WAITING, records)
        self._newest[cluster] = max(self._newest.get(cluster, -1), pc.max(records.column("append_ms")).as_py())
        if log == "offsets":
            self._note_epochs(cluster, records)
            is_commit = pc.equal(records.column("kind"), OFFSET)
            all_commits = pc.all(is_commit).as_py()
            commits = records if all_commits else records.filter(is_commit)
            events = records.slice(0, 0) if all_commits else records.filter(pc.invert(is_commit))
            if commits.num_rows:
                ready += self._gather(cluster, COMMITS, _coded(commits))
        else:
            ends, rest = from_notes(pa.Table.from_batches([records]))
            if len(ends):
                ready.append(Block.of(cluster, COMMON, ENDS, ends)._replace(records=records.num_rows - len(rest)))
            events = rest.combine_chunks().to_batches()[0] if len(rest) else records.slice(0, 0)
        if events.num_rows:
            ready += self._gather(cluster, EVENTS, events)
        return ready

    def _gather(self, cluster: str, kind: str, rows: pa.RecordBatch) -> list[Block]:
        key = cluster, kind
        self._gathered.setdefault(key, []).append(rows)
        self._rows[key] = self._rows.get(key, 0) + rows.num_rows
        return self._flush(key) if self._rows[key] >= RECORDS_MAX else []

    def _flush(self, key: tuple[str, str]) -> list[Block]:
        rows = pa.Table.from_batches(self._gathered.pop(key)).unify_dictionaries().combine_chunks()
        del self._rows[key]
        cluster, kind = key
        groups = rows["group"].chunk(0)
        coded = groups if pa.types.is_dictionary(groups.type) else groups.dictionary_encode()
        if kind == COMMITS:
            topics = rows["topic"].chunk(0).dictionary.to_pylist()
            self._topics.setdefault(cluster, set()).update(topics)
        without_group = chunk_of(cluster, "", self._chunks) if kind == WAITING else COMMON  # a record waits in some chunk
        of_rows = np.where(coded.is_valid().to_numpy(zero_copy_only=False), chunks_of(cluster, coded, self._chunks), without_group)
        if kind == EVENTS:  # a group may have an empty name; only notes without a group concern all
            of_rows[pc.and_(pc.equal(rows["group"], ""), pc.equal(rows["kind"], NOTE)).fill_null(False).to_numpy()] = COMMON
        of_cells = np.where(of_rows == COMMON, 0, cells_of(cluster, coded, self._chunks, CELLS))
        places = of_rows * CELLS + of_cells
        order = np.argsort(places, kind="stable")
        cuts = np.searchsorted(places[order], np.arange(COMMON * CELLS, self._chunks * CELLS + 1))
        bounds = cuts[::CELLS]
        rows = rows.take(pa.array(order))
        counts = self._counts.setdefault(cluster, Counter())
        counts.update({chunk: int(end - begin) for chunk, begin, end in zip(range(COMMON, self._chunks), bounds, bounds[1:], strict=False) if end > begin})
        return [
            Block.of_cells(cluster, chunk, kind, rows.slice(begin, end - begin), (cuts[at * CELLS : (at + 1) * CELLS + 1] - begin).tolist())
            for at, (chunk, begin, end) in enumerate(zip(range(COMMON, self._chunks), bounds, bounds[1:], strict=False))
            if end > begin
        ]

    def _note_epochs(self, cluster: str, records: pa.RecordBatch) -> None:
        known = self._epochs.setdefault(cluster, {})
        partition = records.column("partition")[0].as_py()
        epochs = records.column("leader_epoch").to_numpy()
        for epoch in np.unique(epochs).tolist():
            at = int(np.argmax(epochs == epoch))
            first = records.column("offset")[at].as_py(), records.column("append_ms")[at].as_py()
            known[partition, epoch] = min(first, known.get((partition, epoch), first))

    def finish(self) -> Iterator[Block]:
        for key in list(self._gathered):
            yield from self._flush(key)
        for cluster, newest in self._newest.items():
            yield Block.of(cluster, COMMON, CLOCK, pa.table({"newest_ms": [newest]}))
        for cluster, counts in self._counts.items():
            yield Block.of(cluster, COMMON, COUNTS, pa.table({"chunk": list(counts.keys()), "records": list(counts.values())}))
        for cluster, names in self._topics.items():
            yield Block.of(cluster, COMMON, TOPICS, pa.table({"topic": pa.array(sorted(names), pa.string())}))
        for cluster, epochs in self._epochs.items():
            rows = [(partition, epoch, offset, at) for (partition, epoch), (offset, at) in epochs.items()]
            yield Block.of(cluster, COMMON, EPOCHS, pa.Table.from_arrays([pa.array(column, pa.int64()) for column in zip(*rows, strict=True)], schema=EPOCH_SCHEMA))


def _coded(commits: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of commits that the tables need, names as dictionaries."""
    columns = [commits.column(name).dictionary_encode() if name in NAMES else commits.column(name) for name in COMMIT_COLUMNS]
    return pa.RecordBatch.from_arrays(columns, names=list(COMMIT_COLUMNS))


def records_of(cluster: str, blocks: Iterable[Block], kind: str, schema: pa.Schema, cell: int = 0, cells: int = 1) -> pa.Table:
    """The records of these blocks, or of one of `cells` parts of their chunk, in log order."""
    tables = [block.cells(cell, cells) for block in blocks if block.kind == kind and block.cluster == cluster]
    if not tables:
        return schema.empty_table()
    return in_log_order(pa.concat_tables(tables).unify_dictionaries())


def in_log_order(records: pa.Table) -> pa.Table:
    """Records by partition and offset."""
    if len(records) < 2:
        return records
    partition, offset = ints(records["partition"]), ints(records["offset"])
    if ((partition[1:] > partition[:-1]) | ((partition[1:] == partition[:-1]) & (offset[1:] > offset[:-1]))).all():
        return records
    return records.take(pa.array(np.lexsort((offset, partition))))


EVENT_KINDS: Final = ("group", NOTE, *sorted(set(KIND_OF_KEY.values())))  # of records that tell about a group
