"""What the tasks of a batch learned about the logs besides their records, put together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pipeline.blocks import Block
from pipeline.coverage import Hole, unreadable_coverage
from pipeline.inputs import LogId
from pipeline.rows import Coverage, Segment


class Learned(NamedTuple):
    segments: list[Segment]
    coverage: list[Coverage]
    lost: list[Coverage]  # see `splits.Plan`
    cursors: dict[str, Any]  # as JSON
    ended: dict[str, dict[int, bool]]  # by log: see `TransactionVerdicts.ended`


def learned(blocks: Iterable[Block]) -> Learned:
    """`blocks`: of the kind READ."""
    result = Learned([], [], [], {}, {})
    holes: list[Any] = []
    for block in blocks:
        facts = block.facts
        result.segments.extend(Segment(*row) for row in facts.get("segments", ()))
        result.coverage.extend(Coverage(*row) for row in facts.get("coverage", ()))
        result.lost.extend(Coverage(*row) for row in facts.get("lost", ()))
        result.cursors.update(facts.get("cursors", {}))
        for name, ended in facts.get("ended", {}).items():
            result.ended.setdefault(name, {}).update({int(producer): committed for producer, committed in ended.items()})
        holes += facts.get("holes", ())
    return _with_losses(result, holes)


def _with_losses(result: Learned, holes: list[Any]) -> Learned:
    """Segments and coverage with the losses found while reading: batches with a valid checksum and unreadable records."""
    places: dict[tuple[object, ...], int] = {(*row[:3], row.path): at for at, row in enumerate(result.segments)}
    for cluster, log, partition, path, waits, lost_records, lost_bytes, lost in holes:
        id = LogId(cluster, log, partition)
        at = places.get((*id, path))
        if at is not None:
            row = result.segments[at]
            result.segments[at] = row._replace(
                batches=row.batches - (0 if waits else len(lost)),
                records=row.records - lost_records,
                damaged_batches=row.damaged_batches + len(lost),
                quarantined_bytes=row.quarantined_bytes + lost_bytes,
            )
        result.coverage.extend(unreadable_coverage(id, [Hole(*hole) for hole in lost], result.coverage))
    return result
