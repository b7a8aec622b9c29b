"""A round on Spark: one streaming query over the blocks of the logs, whose batches are rounds.

    scan of koffsets  ->  blocks of COMMON to the driver
                      ->  shuffle by chunk  ->  applyInArrow: the tables of a chunk  ->  the driver commits their files

Only DataFrames are used, so that it also runs over Spark Connect. There a round is a query of its own, since a server has a stream's functions only if
Tenure is installed on it; the client commits.
"""

from __future__ import annotations

import pickle
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import pyarrow as pa

from pipeline.block_stream import options_of
from pipeline.blocks import CHUNKS_DEFAULT, COMMON, blocks_in
from pipeline.chunks import ChunkResult, ChunkTask, Common, build_chunk
from pipeline.inputs import BadInput, Inputs, NoAnswer
from pipeline.jobs import follow
from pipeline.out_folder import TablesError
from pipeline.packing import again_if_replaced
from pipeline.progress import Progress
from pipeline.reading import SegmentReplaced
from pipeline.rounds import Round, Steps, cursors_of
from pipeline.session import SparkFailed
from pipeline.source import NAME
from pipeline.tables import Store, Tables, TablesBusy

_BLOCKS: Final = "cluster string, chunk int, kind string, records long, block binary"
DONE: Final = "cluster string, chunk int, result binary"
_DONE_SCHEMA: Final = pa.schema([("cluster", pa.string()), ("chunk", pa.int32()), ("result", pa.binary())])
_REASON: Final = re.compile(r"most recent failure: (?:Lost task \S+ in stage \S+ \(.*?\): )?([^\n]+)")
_KNOWN: Final = {error.__name__: error for error in (BadInput, NoAnswer, SegmentReplaced, SparkFailed, TablesBusy, TablesError)}


class Work(NamedTuple):
    """What the function of each batch needs, wherever it runs."""

    root: str
    options: Mapping[str, str]
    inputs: Inputs
    steps: Steps
    chunks: int


class ChunkWork(NamedTuple):
    """What the tasks of the shuffle need."""

    store: Store
    commons: Mapping[str, Common]
    tasks: Mapping[tuple[str, int], ChunkTask]


class SparkEngine:
    """`session`: a SparkSession, also of Spark Connect."""

    def __init__(self, session: Any, progress: Progress, chunks: int = CHUNKS_DEFAULT) -> None:
        from pyspark.errors import AnalysisException

        from pyspark_koffsets import DefaultSource

        with suppress(AnalysisException):  # Spark has found it by itself
            session.dataSource.register(DefaultSource)
        self.session = session
        self._streams = "connect" not in type(session).__module__
        self._progress = progress
        self._chunks = chunks

    def round(self, tables: Tables, inputs: Inputs | None, steps: Steps) -> dict[str, object]:
        return again_if_replaced(lambda: self._round(tables, inputs, steps))

    def _round(self, tables: Tables, inputs: Inputs | None, steps: Steps) -> dict[str, object]:
        before = tables.published().batch
        if inputs is not None and not self._streams:
            this = Round(tables, inputs, self._progress, steps, self._chunks)
            options = options_of(inputs, this.chunks, cursors_of(this.published), ends=True)
            return run_round(this, self.session.read.format(NAME).options(**options).load())
        if inputs is not None:
            self._run(self._query(tables, inputs, steps, {"availableNow": True}))
            published = tables.published()
            if published.batch > before:
                return self._told(published.content)
        with Round(tables, inputs, self._progress, steps, self._chunks) as this:
            commons, tasks = this.begin([])
            return this.finish(build(self.session, None, tables.store, commons, tasks))

    def follow(self, tables: Tables, inputs: Inputs | None, steps: Steps, every_s: float, show: Callable[[dict[str, object]], None]) -> None:
        """Rounds until interrupted, by one query with a trigger."""
        assert inputs is not None
        if not self._streams:
            follow(self, tables, inputs, steps, every_s, show)
        show(self.round(tables, inputs, steps))
        shown = tables.published().batch
        while True:
            query = self._query(tables, inputs, steps._replace(full=False), {"processingTime": f"{round(every_s * 1000)} milliseconds"})
            with suppress(SegmentReplaced), stopping(query):  # a new query plans again
                while query.isActive:
                    time.sleep(min(every_s, 1.0))
                    published = tables.published()
                    if published.batch > shown:
                        shown = published.batch
                        show(self._told(published.content))
                self._run(query)  # raises what ended it
                return

    def _query(self, tables: Tables, inputs: Inputs, steps: Steps, trigger: Mapping[str, Any]) -> Any:
        from pyspark_koffsets import batch_function

        published = tables.published()
        chunks = int(published.content.get("chunks", self._chunks))
        work = Work(tables.folder, tables.store.options, inputs, steps, self._chunks)
        checkpoint = f"{tables.folder}/state/checkpoint"
        if tables.store.is_local:
            shutil.rmtree(checkpoint, ignore_errors=True)  # the place of the stream is in the tables
        blocks = self.session.readStream.format(NAME).options(**options_of(inputs, chunks, cursors_of(published), ends="availableNow" in trigger)).load()
        writer = blocks.writeStream.queryName("tenure analyze").option("checkpointLocation", f"{checkpoint}/{time.time_ns()}")
        return writer.trigger(**trigger).foreachBatch(batch_function(pickle.dumps(work))).start()

    def _told(self, content: Mapping[str, Any]) -> dict[str, object]:
        for text in content.get("said", ()):
            self._progress.say(text)
        return dict(content["summary"])

    def _run(self, query: Any) -> None:
        """Wait for the end of a query, in a thread: Ctrl-C interrupts only the main thread, and must not interrupt a call to the JVM."""
        with stopping(query), ThreadPoolExecutor(1) as waiting:
            try:
                waiting.submit(query.awaitTermination).result()
            except Exception as error:
                raise failure_of(error) from error


@contextmanager
def stopping(query: Any) -> Iterator[None]:
    """Stop the query if the block ends by an exception."""
    try:
        yield
    except BaseException:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(query.stop)
        raise


class Messages(Progress):
    """Keeps what is said."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def run_batch(pickled: bytes, blocks: Any) -> None:
    """One batch of the query: one round."""
    work: Work = pickle.loads(pickled)
    tables = Tables.open(work.root, create=True, options=work.options)
    messages = Messages()
    this = Round(tables, work.inputs, messages, work.steps, work.chunks)
    this.said = messages.said
    run_round(this, blocks)


def run_round(this: Round, blocks: Any) -> dict[str, object]:
    """A round with these blocks, a DataFrame."""
    blocks = blocks.persist()
    try:
        with this:
            try:
                common = blocks_in(blocks.where(f"chunk = {COMMON}").toArrow())
            except Exception as error:
                raise failure_of(error) from error
            commons, tasks = this.begin(common)
            return this.finish(build(blocks.sparkSession, blocks, this.tables.store, commons, tasks))
    finally:
        blocks.unpersist()


def build(session: Any, blocks: Any, store: Store, commons: Mapping[str, Common], tasks: Sequence[ChunkTask]) -> list[ChunkResult]:
    """The tables of these chunks, each from its blocks and its files."""
    from pyspark_koffsets import chunk_function

    if not tasks:
        return []
    due = session.createDataFrame([(task.cluster, task.chunk, "", 0, b"") for task in tasks], _BLOCKS)  # from rows, which needs no pandas
    rows = due if blocks is None else blocks.where(f"chunk <> {COMMON}").unionByName(due)
    work = ChunkWork(store, commons, {(task.cluster, task.chunk): task for task in tasks})
    done = rows.groupBy("cluster", "chunk").applyInArrow(chunk_function(pickle.dumps(work)), DONE)
    try:
        return [pickle.loads(result) for result in done.toArrow()["result"].to_pylist()]
    except Exception as error:
        raise failure_of(error) from error


def run_chunk(pickled: bytes, rows: pa.Table) -> pa.Table:
    """In a task of Spark: the tables of one chunk."""
    work: ChunkWork = pickle.loads(pickled)
    blocks = [block for block in blocks_in(rows) if block.kind]
    cluster, chunk = rows["cluster"][0].as_py(), rows["chunk"][0].as_py()
    result = build_chunk(work.store, work.commons[cluster], work.tasks[cluster, chunk], blocks)
    return pa.Table.from_pylist([{"cluster": cluster, "chunk": chunk, "result": pickle.dumps(result)}], _DONE_SCHEMA)


def failure_of(error: Exception) -> Exception:
    """An error of the pipeline's own in a mixed traceback of Python and Java, or SparkFailed with the reason in one line."""
    if type(error) in _KNOWN.values():
        return error
    text = str(error)
    reason = ""
    for line in text.splitlines():
        named = re.match(r"(?:[\w.]*\.)?(\w+): (.+)", line.strip())
        if named is not None and named[1] in _KNOWN:
            return _KNOWN[named[1]](named[2])
        if named is not None and line and not line[0].isspace() and re.fullmatch(r"\w*(Error|Exception|Interrupt|Failed)", named[1]):
            reason = line
    if match := _REASON.search(text):
        reason = reason or match[1]
    return SparkFailed(f"Spark gave the run up: {' '.join((reason or text).split())[:300]}")
