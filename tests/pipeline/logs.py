"""Made-up bronze records of one partition of __consumer_offsets."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.blocks import CODED, COMMIT_SCHEMA, NAMES
from pipeline.commits import CommitState, DigestedCommits, digest_commits
from pipeline.rows import EndOffset, Record
from pipeline.schema import table_of


class DecodedRecord(NamedTuple):
    """One record: a commit, the removal of an offset (`committed` None), or a record of the group itself (`topic` None)."""

    at: int
    group: str
    topic: str | None = None
    partition: int = 0
    committed: int | None = None


def records(log: Iterable[DecodedRecord], first_offset: int = 0) -> pa.Table:
    return table_of("records", [record(offset, line) for offset, line in enumerate(log, first_offset)])


def digest(log: Iterable[DecodedRecord], state: CommitState | None = None, first_offset: int = 0) -> DigestedCommits:
    """Digest these records, divided as a task that reads them divides them."""
    table = records(log, first_offset)
    is_commit = pc.equal(table["kind"], "offset")
    coded = pa.schema([column.with_type(CODED) if column.name in NAMES else column for column in COMMIT_SCHEMA])
    commits = table.filter(is_commit).select(COMMIT_SCHEMA.names).cast(coded)
    return digest_commits("c", commits, table.filter(pc.invert(is_commit)), state or CommitState.new())


def record(offset: int, line: DecodedRecord) -> Record:
    commit = line.topic is not None
    removed = commit and line.committed is None
    return Record(
        cluster="c",
        log="offsets",
        partition=0,
        offset=offset,
        append_ms=line.at,
        batch_base=offset,
        leader_epoch=0,
        producer_id=-1,
        txn=False,
        kind="offset" if commit else "group",
        key_version=1 if commit else 2,
        value_version=-1 if removed else 3,
        group=line.group,
        topic=line.topic,
        topic_partition=line.partition if commit else None,
        committed=line.committed,
        commit_leader_epoch=None,
        commit_ms=line.at if commit and not removed else None,
        expire_ms=None,
        metadata=None if removed or not commit else "",
        tombstone=removed,
        key_raw=None,
        value_raw=None,
        segment="00000000000000000000.log",
        file_pos=0,
    )


def random_log(seed: int, count: int, groups: int = 3, topics: int = 2, partitions: int = 3) -> list[DecodedRecord]:
    """Commits with rewinds, removals, silences of days and clocks that go back, between group metadata records."""
    draw = random.Random(seed)
    at = 1_700_000_000_000
    ends: dict[tuple[str, str, int], int] = {}
    log = []
    for _ in range(count):
        at += draw.choice([0, 1, 200, 5_000, 5_000, 60_000, 600_000, -3_000])
        if draw.random() < 0.02:
            at += draw.choice([25 * 3_600_000, -2 * 3_600_000])
        group = f"g{draw.randrange(groups)}"
        if draw.random() < 0.1:
            log.append(DecodedRecord(at, group))
            continue
        key = group, f"t-{draw.randrange(topics)}", draw.choice([*range(partitions), 11])
        if draw.random() < 0.04:
            ends.pop(key, None)
            log.append(DecodedRecord(at, *key, committed=None))
            continue
        ends[key] = max(0, ends.get(key, 0) + draw.choice([0, 1, 10, 100, -5]))
        log.append(DecodedRecord(at, *key, committed=ends[key]))
    return log


def random_slices(seed: int, count: int, most: int = 5) -> list[tuple[int, int]]:
    """Cut a log of `count` records into random slices (from, to)."""
    draw = random.Random(seed)
    inner = sorted(draw.randrange(count + 1) for _ in range(draw.randrange(most)))
    return list(zip([0, *inner], [*inner, count], strict=True))


def commits_of(log: list[DecodedRecord]) -> pa.Table:
    return digest(log).commits


def ends_table(ends: list[EndOffset]) -> pa.Table:
    return table_of("end_offsets", ends)


def open_ended_slices(seed: int, count: int, most: int) -> list[tuple[int, int | None]]:
    """Cut into slices as `random_slices` does; the last one is open-ended (None)."""
    parts: list[tuple[int, int | None]] = list(random_slices(seed, count, most))
    return [*parts[:-1], (parts[-1][0], None)]
