"""One round of an analysis: new records become one batch of the tables. What Spark and the runner without it have in common.

    round = Round(tables, inputs, progress)
    commons, tasks = round.begin(blocks of chunk COMMON)      commits what concerns all groups
    results = [build_chunk(...) for each task]                by Spark, or here
    summary = round.finish(results)                           commits and publishes

`Published.content`: `chunks` (their number), `cursors` of the logs, `now_ms` and `retention_ms` of clusters, `topics` with committed offsets, `directories`
that were read, `end_notes` (how many notes became end offsets), `unbuilt`: records were
stored, and the tables of groups do not have them yet; and `summary` and `said`, what the round returned and said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.blocks import CLOCK, COMMON, COUNTS, ENDS, EPOCH_SCHEMA, EPOCHS, EVENTS, READ, TOPICS, Block, chunk_of, records_of
from pipeline.chunks import COMMON_TABLES, OF_CHUNK, ChunkResult, ChunkTask, Common
from pipeline.decode import NOTE
from pipeline.folding import COORDINATOR
from pipeline.groups import not_understood
from pipeline.inputs import Inputs, LogId
from pipeline.learned import Learned, learned
from pipeline.live_ends import live_ends
from pipeline.progress import Progress
from pipeline.resuming import Cursor
from pipeline.retention import retention_by_cluster
from pipeline.rows import Coverage, EndOffset, NewerGroup, Segment
from pipeline.samples import directories_with, samples_of
from pipeline.schema import in_order, rows_of, schema_of, table_of
from pipeline.tables import Batch, File, Part, Published, Tables, TablesBusy
from pipeline.upkeep import forget

EXPLANATIONS: Final = {  # of counters
    "quarantined_bytes": "bytes are damaged and skipped: the table `segments` has their positions",
    "diverged": "batches differ between the replicas: those of the later leader are used",
    "undecided": "records are part of an open transaction: a later run reads them",
}
COUNTERS: Final = ("records", "segments", "aborted", "undecided", "torn_bytes", "damaged_batches", "quarantined_bytes", "diverged")
NOTHING_NEW: Final = "no new records"


class Steps(NamedTuple):
    """What a round does."""

    reads: bool = True
    builds: bool = True
    full: bool = False  # all tables of groups anew, from the stored records
    keep_ms: int | None = None  # older commits and rows of time series are deleted


def cursors_of(published: Published) -> dict[LogId, Cursor]:
    return {LogId.from_text(name): Cursor.from_json(values) for name, values in published.content.get("cursors", {}).items()}


class Round:
    def __init__(self, tables: Tables, inputs: Inputs | None, progress: Progress, steps: Steps, chunks: int) -> None:
        self.tables, self.inputs, self.progress, self.steps = tables, inputs, progress, steps
        self.published = tables.unused()  # else it would read its input before it is refused
        self.chunks = int(self.published.content.get("chunks", chunks))
        self._batch: Batch | None = None
        self._content: dict[str, Any] = {}
        self._learned = Learned([], [], [], {}, {})
        self.said: Sequence[str] = ()  # by a progress that only keeps what it was told
        self.records: dict[tuple[str, int], int] = {}  # new in each chunk of each cluster

    # The first half

    def begin(self, blocks: Sequence[Block]) -> tuple[dict[str, Common], list[ChunkTask]]:
        """Commit what concerns all groups. `blocks`: of COMMON. Without news there are no tasks and no batch."""
        by_kind: dict[str, list[Block]] = defaultdict(list)
        for block in blocks:
            by_kind[block.kind].append(block)
        before = self.published
        for block in by_kind[COUNTS]:
            for chunk, records in zip(*(block.table[name].to_pylist() for name in ("chunk", "records")), strict=True):
                if chunk != COMMON:
                    self.records[block.cluster, chunk] = self.records.get((block.cluster, chunk), 0) + records
        chunks = self.records
        self._learned = learned(by_kind[READ])
        self._lost()
        self._content = {**before.content, "chunks": self.chunks, "cursors": {**before.content.get("cursors", {}), **self._learned.cursors}}
        now_ms = dict(before.now_ms)
        for block in by_kind[CLOCK]:
            now_ms[block.cluster] = max(now_ms.get(block.cluster, -1), pc.max(block.table["newest_ms"]).as_py())
        topics = {cluster: set(names) for cluster, names in before.content.get("topics", {}).items()}
        for block in by_kind[TOPICS]:
            topics.setdefault(block.cluster, set()).update(block.table["topic"].to_pylist())
        self._content |= {"now_ms": now_ms, "topics": {cluster: sorted(names) for cluster, names in sorted(topics.items())}}
        if self.inputs is not None and self.steps.reads:
            self._content["directories"] = directories_with(self.inputs, before.content.get("directories", []))
            self._content["retention_ms"] = retention_by_cluster(self.inputs, before.content.get("retention_ms", {}), self.progress)
        ends = [block.table for block in by_kind[ENDS]]
        known_live = _newest_live(self.tables, before) if self.inputs is not None and self.inputs.brokers and self.steps.reads else {}
        if self.inputs is not None and self.steps.reads:
            ends.append(table_of("end_offsets", live_ends(self.inputs, topics, known_live, self.progress)))
        if self.steps.builds:
            ends.append(self._samples(topics))
        self._content["end_notes"] = before.content.get("end_notes", 0) + sum(block.records for block in by_kind[ENDS])
        events = {cluster: records_of(cluster, by_kind[EVENTS], EVENTS, schema_of("records")) for cluster in sorted({block.cluster for block in by_kind[EVENTS]})}
        unbuilt = bool(before.content.get("unbuilt"))
        news = bool(chunks or events or any(map(len, ends)) or self._learned.segments or self._learned.coverage or self._learned.cursors)
        news = news or any(self._content.get(name) != before.content.get(name) for name in ("cursors", "retention_ms"))
        if not news and not self.steps.full and not (self.steps.builds and unbuilt):
            return {}, []
        self._content["unbuilt"] = not self.steps.builds and (unbuilt or news)
        batch = self._batch = self.tables.begin()
        if batch.before.batch != before.batch:
            raise TablesBusy(f"{self.tables.folder}: another run has ended meanwhile; run again")
        files = [self.tables.store.write("records", Part(cluster, COMMON), in_order("records", table)) for cluster, table in events.items() if len(table)]
        if self._learned.coverage:
            files.append(self.tables.store.write("coverage", Part(), in_order("coverage", table_of("coverage", self._learned.coverage))))
        files += self.tables.store.write_all("end_offsets", Part(), ends)
        epochs = self._new_epochs(by_kind[EPOCHS])
        if len(epochs):
            files.append(self.tables.store.write("epochs", Part(), epochs))
        batch.commit(files)
        with_notes = {(cluster, chunk_of(cluster, COORDINATOR, self.chunks)) for cluster, table in events.items() if len(table)}
        tasks = self._tasks({*chunks, *with_notes})
        clusters = sorted({*now_ms, *(task.cluster for task in tasks)})  # one with nothing but open transactions has no time yet
        return self._commons(clusters, events, files, now_ms), tasks

    def _lost(self) -> None:
        """Logs without any segment: what is lost counts once."""
        known = set(rows_of(Coverage, self.tables.read("coverage", published=self.published))) if self._learned.lost else set()
        for lost in self._learned.lost:
            self.progress.say(f"{lost.log}-{lost.partition} has no segment, but a checkpoint file names its records up to offset {lost.to_offset}: they are missing")
            if lost not in known:
                self._learned.coverage.append(lost)

    def _samples(self, topics: Mapping[str, Collection[str]]) -> pa.Table:
        directories = self._content.get("directories", [])
        known = self.tables.read("end_offsets", published=self.published) if directories else schema_of("end_offsets").empty_table()
        return table_of("end_offsets", samples_of(directories, topics, rows_of(EndOffset, known.filter(pc.is_in(known["origin"], pa.array(["segments", "checkpoint"]))))))

    def _new_epochs(self, blocks: Sequence[Block]) -> pa.Table:
        known = self.tables.read("epochs", published=self.published)
        seen = set(zip(*(known[name].to_pylist() for name in ("cluster", "partition", "epoch")), strict=True))
        rows: dict[tuple[str, int, int], tuple[int, int]] = {}
        for block in blocks:
            for partition, epoch, offset, at_ms in zip(*(block.table[name].to_pylist() for name in EPOCH_SCHEMA.names), strict=True):
                key = block.cluster, partition, epoch
                if key not in seen:
                    rows[key] = min((offset, at_ms), rows.get(key, (offset, at_ms)))
        return pa.Table.from_pylist([dict(zip(known.schema.names, (*key, *first), strict=True)) for key, first in sorted(rows.items())], known.schema)

    def _commons(self, clusters: Sequence[str], events: Mapping[str, pa.Table], new_files: Sequence[File], now_ms: Mapping[str, int]) -> dict[str, Common]:
        assert self._batch is not None
        batch = self._batch
        now = batch.current
        fresh = frozenset(file.path for file in new_files if file.table == "end_offsets")
        commons = {}
        for cluster in clusters:
            notes = events.get(cluster, schema_of("records").empty_table())
            notes = notes.filter(pc.equal(notes["kind"], NOTE))
            changed: dict[int, int] = {}
            for partition, at_ms in zip(notes["partition"].to_pylist(), notes["append_ms"].to_pylist(), strict=True):
                changed[partition] = min(at_ms, changed.get(partition, at_ms))
            files = {name: [file for file in self.tables.files_of(now, name) if file.part in (Part(), Part(cluster, COMMON))] for name in COMMON_TABLES}
            ended = {name: verdicts for name, verdicts in self._learned.ended.items() if LogId.from_text(name).cluster == cluster}
            retention_ms = self._content.get("retention_ms", {}).get(cluster)
            commons[cluster] = Common(
                cluster, self.chunks, now_ms.get(cluster, -1), self.steps.builds, self.steps.full, bool(self.published.content.get("unbuilt")), retention_ms, ended, changed, files, fresh
            )
        return commons

    def _tasks(self, chunks: set[tuple[str, int]]) -> list[ChunkTask]:
        """Chunks with new records, and those that time, end offsets or the ends of transactions may change."""
        files: dict[tuple[str, int], dict[str, list[File]]] = {key: {} for key in chunks}
        for name in OF_CHUNK:
            for file in self.tables.files_of(self.published, name):
                if file.part.chunk != COMMON:
                    files.setdefault((file.part.cluster, file.part.chunk), {}).setdefault(name, []).append(file)
        return [ChunkTask(*key, of_chunk) for key, of_chunk in sorted(files.items()) if self.steps.builds or key in chunks or self._learned.ended]

    # The second half

    def finish(self, results: Iterable[ChunkResult]) -> dict[str, object]:
        """Commit and publish; return a summary. The caller has run all tasks of `begin`."""
        files: list[File] = []
        replaced: dict[str, set[Part]] = defaultdict(set)
        decided: dict[str, tuple[int, int]] = {}
        pending = 0
        for result in results:
            files += result.files
            for name, part in result.replaced:
                replaced[name].add(part)
            for name, (committed, aborted) in result.decided.items():
                before = decided.get(name, (0, 0))
                decided[name] = before[0] + committed, before[1] + aborted
            pending += result.pending
        segments = _with_decided(self._learned.segments, decided)
        batch = self._batch
        if batch is None:
            pending = self.tables.rows_in(self.published, "pending")
        else:
            if segments:
                files.append(self.tables.store.write("segments", Part(), in_order("segments", table_of("segments", segments))))
            batch.commit(files, replaced)
        summary: dict[str, object] = {}
        if self.steps.reads:
            summary = _counters(segments, pending)
            for name, meaning in EXPLANATIONS.items():
                if summary[name]:
                    self.progress.say(f"{summary[name]} {meaning}")
        if self.steps.builds:
            summary |= {"built": NOTHING_NEW} if batch is None else self._built(batch.current)
        if batch is not None:
            if self.steps.keep_ms is not None:
                self._content |= forget(batch, self._content, self.steps.keep_ms)
            batch.publish({**self._content, "summary": summary, "said": list(self.said)})
        return summary

    def _built(self, published: Published) -> dict[str, object]:
        summary: dict[str, object] = {table: self.tables.rows_in(published, table) for table in ("groups", "rebalances")}
        newer = rows_of(NewerGroup, self.tables.read("newer_groups", published=published))
        return summary | {f"{kind}_{noun}_not_understood": count for kind, counts in not_understood(newer).items() for noun, count in counts.items()}

    def __enter__(self) -> Round:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None and self._batch is not None:
            self._batch.release()


def _with_decided(segments: Sequence[Segment], decided: Mapping[str, tuple[int, int]]) -> list[Segment]:
    """Segments with the records of transactions of earlier batches that have ended: they count in the newest segment of their log."""
    segments = list(segments)
    for name, (committed, aborted) in decided.items():
        at = max(number for number, row in enumerate(segments) if row[:3] == LogId.from_text(name))
        segments[at] = segments[at]._replace(records=segments[at].records + committed, aborted=segments[at].aborted + aborted)
    return segments


def _counters(segments: Sequence[Segment], pending: int) -> dict[str, object]:
    counts: dict[str, object] = {name: sum(getattr(row, name) for row in segments) for name in COUNTERS if name not in ("segments", "undecided")}
    return {name: {"segments": len(segments), "undecided": pending}.get(name, counts.get(name)) for name in COUNTERS}


def _newest_live(tables: Tables, published: Published) -> dict[str, dict[tuple[str, int], tuple[int | None, int]]]:
    """The newest end offsets that brokers of each cluster reported."""
    rows = rows_of(EndOffset, tables.read("end_offsets", only={"origin": "live"}, published=published))
    newest: dict[str, dict[tuple[str, int], tuple[int | None, int]]] = {}
    for row in sorted(rows, key=lambda row: row.at_ms):
        newest.setdefault(row.cluster, {})[row.topic, row.topic_partition] = row.log_start, row.end_offset
    return newest
