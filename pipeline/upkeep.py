"""Upkeep of the tables: compaction, retention, and another number of chunks. Each is a batch of its own, or part of a round's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pipeline.blocks import COMMON, chunks_of
from pipeline.chunks import OF_CHUNK
from pipeline.measurements import TIME_COLUMNS
from pipeline.rows import TABLES
from pipeline.tables import Batch, File, Part, Published, Tables

DAY_MS: Final = 86_400_000
FROM_RECORDS: Final = ("commits", "records", "edges", "tails", "waiting", "around", "homes", "pending")  # what a build needs of a chunk


def optimize(tables: Tables) -> dict[str, int]:
    """Write the files of each part of a table as one, and remove what is not needed; return the number of files of each table."""
    with tables.begin() as batch:
        for name in batch.current.versions:
            batch.compact(name)
        batch.publish(batch.before.content, tidies=True)
    published = tables.published()
    return {name: count for name in TABLES if (count := len(tables.files_of(published, name)))}


def rechunk(tables: Tables, chunks: int) -> Published:
    """Divide the groups into another number of chunks. The tables of groups are then empty until the next build, which makes them from what is stored."""
    with tables.begin() as batch:
        files: list[File] = []
        replaced: dict[str, set[Part]] = defaultdict(set)
        for name in OF_CHUNK:
            for file in tables.files_of(batch.before, name):
                if file.part.chunk != COMMON:
                    replaced[name].add(file.part)
                    files += _divided(tables, file, chunks) if name in FROM_RECORDS else ()
        batch.commit(files, replaced)
        return batch.publish({**batch.before.content, "chunks": chunks, "unbuilt": True})


def _divided(tables: Tables, file: File, chunks: int) -> list[File]:
    content = tables.store.load(file)
    if not len(content):
        return []
    of_rows = chunks_of(file.part.cluster, content["group"], chunks)
    return [tables.store.write(file.table, Part(file.part.cluster, chunk), content.filter(pa.array(of_rows == chunk))) for chunk in np.unique(of_rows).tolist()]


def forget(batch: Batch, content: Mapping[str, Any], keep_ms: int) -> dict[str, Any]:
    """Delete commits and settled rows of time series of days that are older than `keep_ms`. Return what changes in the content."""
    now_ms = max(content.get("now_ms", {}).values(), default=0)
    until_ms = (now_ms - keep_ms) // DAY_MS * DAY_MS
    if until_ms <= int(content.get("kept_since_ms", 0)):
        return {}
    before = sum(file.rows for file in batch.tables.files_of(batch.current, "commits"))
    batch.delete("commits", f"append_ms < {until_ms}")
    for name, column in TIME_COLUMNS.items():
        batch.delete(name, f"settled = true AND {column} < {until_ms}")
    forgotten = before - sum(file.rows for file in batch.tables.files_of(batch.current, "commits"))
    return {"kept_since_ms": until_ms, "forgotten_commits": int(content.get("forgotten_commits", 0)) + forgotten}
