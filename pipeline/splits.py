"""Which bytes of which segments are one task, and everything about them that is known before a record is read.

Batches that do not count (aborted, damaged, the same as in another replica, behind what is decided) are in no split. So
splits can be read in any order, by any process, and together they are each record once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.coverage import COMPACTED, DAMAGED, MISSING_SEGMENT, RETENTION, TORN, Hole, Last, coverage
from pipeline.inputs import FAIL, BadInput, Folder, Inputs, LogId, SegmentFile, folders_of, replicas, segments_of
from pipeline.resuming import Cursor, begin_of, cursor_behind, not_before
from pipeline.rows import Coverage, Segment
from pipeline.survey import COLUMNS, Damage, Survey, survey
from pipeline.transactions import verdicts
from protocol.batch import COMPRESSION_MASK, Compression, CorruptBatch, records

SPLIT_BYTES: Final = 32 << 20
SPLIT_RECORDS: Final = 500_000
CODECS: Final = tuple(one.name.lower() for one in Compression)


class Span(NamedTuple):
    """A run of adjacent sound batches."""

    begin: int
    end: int
    batches: int


class Split(NamedTuple):
    id: LogId
    path: str
    segment: str
    first: int  # the offsets of its batches
    last: int
    spans: tuple[Span, ...]
    first_crc: int  # checksums of the first and the last batch, to recognize the file
    last_at: int
    last_crc: int
    records: int

    @property
    def bytes(self) -> int:
        return sum(span.end - span.begin for span in self.spans)


class Plan(NamedTuple):
    splits: list[Split]  # in the order of their logs
    segments: list[Segment]
    coverage: list[Coverage]
    cursors: dict[LogId, Cursor]  # when all splits are read
    undecided: dict[LogId, int]  # records from the first one of an open transaction on

    @property
    def records(self) -> int:
        return sum(split.records for split in self.splits)

    def add(self, part: Plan) -> None:
        self.splits.extend(part.splits)
        self.segments.extend(part.segments)
        self.coverage.extend(part.coverage)
        self.cursors.update(part.cursors)
        self.undecided.update(part.undecided)


def plan(inputs: Inputs, cursors: Mapping[LogId, Cursor]) -> Plan:
    """The new splits of the directories among the inputs, after the cursors. Raises BadInput."""
    whole = Plan([], [], [], dict(cursors), {})
    for id, folders in sorted(replicas(folders_of(inputs)).items()):
        whole.add(plan_log(id, folders, cursors.get(id), inputs.on_corrupt))
    return whole


def plan_between(inputs: Inputs, begins: Mapping[LogId, Cursor], ends: Mapping[LogId, int]) -> list[Split]:
    """The splits of these logs between cursors and ends. A split may begin before the cursor and end after the end."""
    found: list[Split] = []
    for id, folders in sorted(replicas(folders_of(inputs)).items()):
        if id in ends:
            splits = plan_log(id, folders, begins.get(id), inputs.on_corrupt).splits
            found.extend(split for split in splits if split.first < ends[id])
    return found


def plan_log(id: LogId, folders: Sequence[Folder], cursor: Cursor | None, on_corrupt: str) -> Plan:
    with ExitStack() as opened:
        files: list[SegmentFile] = []
        parts: list[_Part] = []
        for folder in folders:
            segments = segments_of(folder, opened)
            for number, segment in enumerate(segments):
                after = segments[number + 1] if number + 1 < len(segments) else None
                if cursor is not None and after is not None and after.base <= cursor.next_offset:
                    continue
                found = _unread(survey(segment, 0 if cursor is None else begin_of(segment, cursor)), cursor)
                parts.append(_Part(folder, segment, number == 0, after is None, len(files), found, _later_copy(found, after)))
                files.append(segment)
        return _plan_log(id, files, parts, cursor, on_corrupt)


def new_bytes(folder: Folder, cursor: Cursor | None) -> int:
    """The approximate number of bytes after the cursor."""
    with ExitStack() as opened:
        segments = segments_of(folder, opened)
        if cursor is None:
            return sum(segment.size for segment in segments)
        return sum(segment.size - begin_of(segment, cursor) for segment in segments if segment.base >= cursor.base)


class _Part(NamedTuple):
    """One segment of one replica."""

    folder: Folder
    segment: SegmentFile
    is_first: bool
    is_last: bool
    number: int
    survey: Survey
    superseded: NDArray[np.bool_]  # the next segment has these again


def _unread(found: Survey, cursor: Cursor | None) -> Survey:
    """Without the damage before the cursor, which an earlier run has counted."""
    if cursor is None:
        return found
    read = found.batches[found.batches["last"] < cursor.next_offset]
    behind = int(read["position"][-1]) if len(read) else -1
    return found._replace(damages=[damage for damage in found.damages if damage.position > behind])


def _later_copy(found: Survey, after: SegmentFile | None) -> NDArray[np.bool_]:
    """Batches that the next segment repeats: a repair copies the end of a segment to a new one; after an interrupted repair the copy counts."""
    if after is None:
        return np.zeros(len(found.batches), bool)
    return np.asarray(found.batches["last"] >= after.base)


_TAGGED: Final = np.dtype([*[(name, COLUMNS[name]) for name in COLUMNS.names or ()], ("file", "i4")])


def _plan_log(id: LogId, files: list[SegmentFile], parts: list[_Part], cursor: Cursor | None, on_corrupt: str) -> Plan:
    start = cursor.next_offset if cursor is not None else 0
    before = cursor.last if cursor is not None else Last()
    batches = _tagged(parts)
    if cursor is not None:
        not_before(id, batches, cursor)
    batches = batches[batches["last"] >= start]
    batches, diverged = _one_of_each(batches)
    untils = [part.folder.until for part in parts if part.folder.until >= 0]
    if untils:
        batches = batches[batches["last"] < max(untils)]
    found = verdicts(batches, before.ms, lambda index: _marker(files[int(batches[index]["file"])], batches[index]))
    aborted = found.aborted
    undecided: dict[LogId, int] = {}
    if found.stable >= 0:
        decided = batches["base"] < found.stable
        undecided[id] = int(batches["count"][~decided].sum())
        batches, aborted = batches[decided], aborted[decided]
    _refuse_damage(parts, on_corrupt)
    if not len(batches):
        return Plan([], _segment_rows(id, parts, batches, aborted, diverged), [], {}, undecided)
    holes = _holes(id, start, batches, parts)
    covered, last = coverage(id, start, batches, holes, before)
    segments = _segment_rows(id, parts, batches, aborted, diverged)
    counted = batches[~aborted]
    turns = np.flatnonzero(counted["file"][1:] != counted["file"][:-1]) + 1
    splits = [split for run in np.split(counted, turns) if len(run) for split in _splits(id, files[int(run["file"][0])], run)]
    end = batches[-1]
    return Plan(splits, segments, covered, {id: cursor_behind(files[int(end["file"])], end, last)}, undecided)


def _tagged(parts: list[_Part]) -> NDArray[Any]:
    found = []
    for part in parts:
        batches = part.survey.batches[~part.superseded]
        tagged = np.empty(len(batches), _TAGGED)
        for name in COLUMNS.names or ():
            tagged[name] = batches[name]
        tagged["file"] = part.number
        found.append(tagged)
    return np.concatenate(found) if found else np.empty(0, _TAGGED)


def _one_of_each(batches: NDArray[Any]) -> tuple[NDArray[Any], dict[int, int]]:
    """Of several replicas each batch once, in order; and how many of each file say something else than those that were chosen.

    Of two that stand for the same offsets, the one of the later leader counts, then the one with more records: compaction
    has been over the other.
    """
    if (batches["base"][1:] > batches["last"][:-1]).all():
        return batches, {}
    order = np.lexsort((batches["file"], -batches["count"], -batches["epoch"], batches["base"]))
    batches = batches[order]
    same = np.zeros(len(batches), bool)
    same[1:] = (batches[["base", "last", "count", "crc"]][1:] == batches[["base", "last", "count", "crc"]][:-1])
    batches = batches[~same]
    diverged: dict[int, int] = {}
    kept = np.ones(len(batches), bool)
    chosen = -1
    for index in range(len(batches)):
        one = batches[index]
        if chosen >= 0 and one["base"] <= batches[chosen]["last"]:
            other = batches[chosen]
            better = (one["epoch"], one["count"]) > (other["epoch"], other["count"])
            loser = chosen if better else index
            kept[loser] = False
            if one["epoch"] != other["epoch"] or one["count"] == other["count"] or (one["base"], one["last"]) != (other["base"], other["last"]):
                number = int(batches[loser]["file"])
                diverged[number] = diverged.get(number, 0) + 1
            if not better:
                continue
        chosen = index
    return batches[kept], diverged


def _marker(segment: SegmentFile, batch: Any) -> int:
    """How the transaction ends: 0 an abort, 1 a commit."""
    data = segment.file.read(int(batch["position"]), int(batch["size"]))
    try:
        (record, *_) = records(data, 0)
    except (CorruptBatch, ValueError):
        return -1
    key = record.key or b""
    return int.from_bytes(key[2:4], "big") if len(key) >= 4 else -1


def _refuse_damage(parts: list[_Part], on_corrupt: str) -> None:
    if on_corrupt != FAIL:
        return
    for part in parts:
        for damage in part.survey.damages:
            if not _is_torn_end(part, damage):
                raise BadInput(
                    f"{part.segment.path}: byte {damage.position}: {damage.reason}; --on-corrupt=quarantine leaves it out and counts it"
                )


def _is_torn_end(part: _Part, damage: Damage) -> bool:
    return part.is_last and damage.torn


# Missing offsets


def _holes(id: LogId, start: int, batches: NDArray[Any], parts: list[_Part]) -> list[Hole]:
    by_number = {part.number: part for part in parts}
    expected = np.concatenate([[start], batches["last"][:-1] + 1])
    gaps = np.flatnonzero(batches["base"] > expected)
    thinned = np.flatnonzero(batches["count"] < batches["last"] - batches["base"] + 1)
    holes = [Hole(int(batches["base"][index]), int(batches["last"][index]), COMPACTED) for index in thinned.tolist()]
    for index in gaps.tolist():
        first, last = int(expected[index]), int(batches["base"][index]) - 1
        part = by_number[int(batches["file"][index])]
        before = by_number[int(batches["file"][index - 1])] if index else None
        why = _damage_between(before, batches[index - 1] if index else None, part, batches[index], parts)
        base = part.segment.base
        if why:
            holes.append(Hole(first, last, why))
        elif first >= base:
            holes.append(Hole(first, last, COMPACTED))
        else:
            holes.append(Hole(first, min(last, base - 1), _between_segments(id, part, first)))
            if base <= last:
                holes.append(Hole(base, last, COMPACTED))
    return sorted(holes)


def _between_segments(id: LogId, part: _Part, first: int) -> str:
    if part.is_first:
        return RETENTION
    if id.log == "offsets" and not 0 <= part.folder.cleaned <= first:
        return COMPACTED  # the cleaner merges several segments into one
    return MISSING_SEGMENT


def _damage_between(before: _Part | None, batch_before: Any, part: _Part, batch: Any, parts: list[_Part]) -> str:
    """Why there is a hole before the batch, if damage is between it and the batch before."""
    behind = (part.segment.base, int(batch["position"]))
    begin = (-1, 0)
    if before is not None:
        if before.folder != part.folder:  # the earlier part of this replica
            earlier = part.survey.batches[part.survey.batches["position"] < batch["position"]]
            begin = (part.segment.base, int(earlier["position"][-1]) if len(earlier) else 0)
        else:
            begin = (before.segment.base, int(batch_before["position"]))
    same_folder = [one for one in parts if one.folder == part.folder]
    found = [damage for each in same_folder for damage in each.survey.damages if begin <= (each.segment.base, damage.position) < behind]
    if not found:
        return ""
    return TORN if all(one.torn for one in found) else DAMAGED


# Results


def _splits(id: LogId, segment: SegmentFile, batches: NDArray[Any]) -> list[Split]:
    """The splits of the batches of one segment."""
    begins = batches["position"]
    ends = begins + batches["size"]
    before = np.concatenate([[0], np.cumsum(np.maximum(batches["size"] / SPLIT_BYTES, batches["count"] / SPLIT_RECORDS))[:-1]])
    part_of = before.astype(np.int64)
    found: list[Split] = []
    for number in np.unique(part_of).tolist():
        inside = np.flatnonzero(part_of == number)
        breaks = np.flatnonzero(begins[inside][1:] != ends[inside][:-1]) + 1
        spans = [Span(int(begins[run[0]]), int(ends[run[-1]]), len(run)) for run in np.split(inside, breaks)]
        first, last = batches[inside[0]], batches[inside[-1]]
        count = int(batches["count"][inside].sum())
        found.append(
            Split(id, segment.path, segment.name, int(first["base"]), int(last["last"]), tuple(spans), int(first["crc"]), int(last["position"]), int(last["crc"]), count)
        )
    return found


def _segment_rows(
    id: LogId, parts: list[_Part], batches: NDArray[Any], aborted: NDArray[np.bool_], diverged: Mapping[int, int]
) -> list[Segment]:
    rows = [_segment_row(id, part, batches, aborted, diverged) for part in parts]
    return [row for row in rows if row is not None]


def _segment_row(
    id: LogId, part: _Part, batches: NDArray[Any], aborted: NDArray[np.bool_], diverged: Mapping[int, int]
) -> Segment | None:
    mine = batches["file"] == part.number
    read = batches[mine & ~aborted]
    undone = batches[mine & aborted]
    damages = part.survey.damages
    torn = [damage for damage in damages if _is_torn_end(part, damage)]
    quarantined = [damage for damage in damages if not _is_torn_end(part, damage)]
    differing = diverged.get(part.number, 0)
    if not len(read) and not len(undone) and not damages and not differing:
        return None
    both = batches[mine]
    span = int((both["last"] - both["base"] + 1).sum())
    gaps = int((both["base"][1:] - both["last"][:-1] - 1).sum())
    codecs = sorted(set((both["attributes"] & COMPRESSION_MASK).tolist()))
    return Segment(
        *id,
        path=part.segment.path,
        size=part.segment.size,
        base_offset=part.segment.base,
        first_offset=int(both["base"][0]) if len(both) else None,
        last_offset=int(both["last"][-1]) if len(both) else None,
        first_ms=int(both["first_ms"][0]) if len(both) else None,
        last_ms=int(both["max_ms"].max()) if len(both) else None,
        batches=len(read),
        records=int(read["count"].sum()),
        missing_offsets=span + gaps - int(both["count"].sum()),
        codecs=",".join(CODECS[codec] for codec in codecs),
        torn_bytes=sum(one.size for one in torn),
        damaged_batches=len(quarantined),
        quarantined_bytes=sum(one.size for one in quarantined),
        aborted=int(undone["count"].sum()),
        diverged=differing,
    )
