"""A round without Spark: one process reads the logs, keeps the blocks of each chunk in a file, and makes the tables of one chunk after the other."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from pipeline.blocks import BLOCKS, CHUNKS_DEFAULT, COMMITS, COMMON, EVENTS, Block, batch_of, blocks_in
from pipeline.chunks import build_chunk
from pipeline.inputs import BadInput, Inputs
from pipeline.packing import again_if_replaced, blocks_of, facts_of
from pipeline.progress import Progress
from pipeline.rounds import Round, Steps, cursors_of
from pipeline.splits import Split, plan
from pipeline.tables import Tables
from pipeline.wire_reading import WireSplit, plan_wire

__all__ = ["BadInput", "Engine", "Inputs", "PlainEngine", "Steps"]

MEMORY_BYTES: Final = 32 << 20  # of blocks, before they go to files


class Engine(Protocol):
    def follow(self, tables: Tables, inputs: Inputs | None, steps: Steps, every_s: float, show: Callable[[dict[str, object]], None]) -> None:
        """Rounds until an exception ends them. `show` is called with the summary of each that found news."""

    def round(self, tables: Tables, inputs: Inputs | None, steps: Steps) -> dict[str, object]:
        """Read what is new, and build the tables from it; return a summary. Without `inputs`, only build. On BadInput nothing is published."""


class PlainEngine:
    """Without Spark."""

    def __init__(self, progress: Progress, chunks: int = CHUNKS_DEFAULT) -> None:
        with suppress(NotImplementedError):  # of another platform
            pa.set_memory_pool(pa.jemalloc_memory_pool())  # gives memory back between chunks: a tenth less at ten million records
        self._progress = progress
        self._chunks = chunks

    def round(self, tables: Tables, inputs: Inputs | None, steps: Steps) -> dict[str, object]:
        return again_if_replaced(lambda: self._round(tables, inputs, steps))

    def _round(self, tables: Tables, inputs: Inputs | None, steps: Steps) -> dict[str, object]:
        with Round(tables, inputs, self._progress, steps, self._chunks) as this, tempfile.TemporaryDirectory(prefix="tenure-analyze-") as folder:
            spill = Spill(Path(folder))
            common: list[Block] = []
            if inputs is not None and steps.reads:
                self._read(this, inputs, common, spill)
            commons, tasks = this.begin(common)
            results = []
            done = 0
            weights = {(task.cluster, task.chunk): this.records.get((task.cluster, task.chunk), 0) + task.stored_records for task in tasks}
            with self._progress.showing("building", sum(weights.values()), lambda: done):
                for task in tasks:
                    results.append(build_chunk(tables.store, commons[task.cluster], task, spill.take(task.cluster, task.chunk)))
                    done += weights[task.cluster, task.chunk]
            return this.finish(results)

    def follow(self, tables: Tables, inputs: Inputs | None, steps: Steps, every_s: float, show: Callable[[dict[str, object]], None]) -> None:
        follow(self, tables, inputs, steps, every_s, show)

    def _read(self, this: Round, inputs: Inputs, common: list[Block], spill: Spill) -> None:
        begins = cursors_of(this.published)
        planned = plan(inputs, begins)
        splits: list[Split | WireSplit] = [*planned.splits, *plan_wire(inputs, planned.cursors)]
        common.append(facts_of(planned.moved(begins)))
        done = 0
        with self._progress.showing("reading", sum(split.records for split in splits), lambda: done):
            for block in blocks_of(inputs, splits, this.chunks):
                done += block.records if block.kind in (COMMITS, EVENTS) else 0
                if block.chunk == COMMON:
                    common.append(block)
                else:
                    spill.add(block)


def follow(engine: Engine, tables: Tables, inputs: Inputs | None, steps: Steps, every_s: float, show: Callable[[dict[str, object]], None]) -> None:
    while True:
        before = tables.published().batch
        summary = engine.round(tables, inputs, steps)
        if tables.published().batch > before:
            show(summary)
        steps = steps._replace(full=False)
        time.sleep(every_s)


class Spill:
    """Blocks of each chunk of groups, in files if they are many."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._blocks: dict[tuple[str, int], list[Block]] = defaultdict(list)
        self._bytes = 0
        self._written: dict[tuple[str, int], list[Path]] = defaultdict(list)

    def add(self, block: Block) -> None:
        key = block.cluster, block.chunk
        self._blocks[key].append(block)
        self._bytes += len(block.block)
        if self._bytes > MEMORY_BYTES:
            self._write()

    def _write(self) -> None:
        for key, blocks in self._blocks.items():
            path = self._folder / f"{len(self._written)}-{key[1]}-{len(self._written[key])}"
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, BLOCKS) as writer:
                writer.write_batch(batch_of(blocks))
            self._written[key].append(path)
        self._blocks.clear()
        self._bytes = 0

    def take(self, cluster: str, chunk: int) -> list[Block]:
        """The blocks of a chunk, which are then forgotten."""
        key = cluster, chunk
        blocks: list[Block] = []
        for path in self._written.pop(key, []):
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
                blocks += blocks_in(reader.read_all())
            path.unlink()
        return blocks + self._blocks.pop(key, [])


