"""Divides the new batches of segments into splits, the input of tasks.

Batches that are aborted, damaged, or duplicates of another replica's are in no split. So splits can be read in any order and process, and
contain each record once. Batches of open transactions have splits of their own: whether their records count is known at the end of the transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.coverage import COMPACTED, DAMAGED, MISSING_SEGMENT, RETENTION, TORN, CoverageState, Hole, coverage
from pipeline.inputs import FAIL, BadInput, Folder, Inputs, LogId, SegmentFile, folders_of, replicas, segments_of
from pipeline.resuming import Cursor, check_same_log, cursor_after, position_after
from pipeline.rows import Coverage, Segment
from pipeline.survey import COLUMNS, Damage, Survey, survey
from pipeline.transactions import TransactionVerdicts, marker_type, verdicts
from protocol.batch import COMPRESSION_MASK, Compression

SPLIT_BYTES: Final = 32 << 20
SPLIT_RECORDS: Final = 500_000
CODECS: Final = tuple(codec.name.lower() for codec in Compression)


class Span(NamedTuple):
    """A range of adjacent sound batches."""

    begin: int
    end: int
    batches: int


class Split(NamedTuple):
    id: LogId
    path: str
    segment: str
    first: int  # first and last offset
    last: int
    spans: tuple[Span, ...]
    first_crc: int  # checksums and position of the first and last batch, to recognize the file
    last_at: int
    last_crc: int
    records: int
    waits: bool = False  # for the ends of its transactions

    @property
    def bytes(self) -> int:
        return sum(span.end - span.begin for span in self.spans)


class Plan(NamedTuple):
    splits: list[Split]  # in the order of their logs
    segments: list[Segment]
    coverage: list[Coverage]
    cursors: dict[LogId, Cursor]  # after all splits are read
    ended: dict[LogId, dict[int, bool]]  # of the transactions that were open at the cursors: see `TransactionVerdicts.ended`
    lost: list[Coverage]  # logs without any segment, although a checkpoint file names records of them

    @property
    def records(self) -> int:
        return sum(split.records for split in self.splits)

    def moved(self, begins: Mapping[LogId, Cursor]) -> Plan:
        """The plan with only the cursors that differ from these."""
        return self._replace(cursors={id: cursor for id, cursor in self.cursors.items() if begins.get(id) != cursor})

    def add(self, part: Plan) -> None:
        self.splits.extend(part.splits)
        self.segments.extend(part.segments)
        self.coverage.extend(part.coverage)
        self.cursors.update(part.cursors)
        self.ended.update(part.ended)
        self.lost.extend(part.lost)


def plan(inputs: Inputs, cursors: Mapping[LogId, Cursor], ends: Mapping[LogId, int] | None = None) -> Plan:
    """The splits of the directories after the cursors, and before `ends` as far as it has them. Raises BadInput.

    A plan up to known ends is always the same, whatever was appended since.
    """
    full_plan = Plan([], [], [], dict(cursors), {}, [])
    for id, folders in sorted(replicas(folders_of(inputs)).items()):
        full_plan.add(plan_log(id, folders, cursors.get(id), inputs.on_corrupt, None if ends is None else ends.get(id)))
    return full_plan


def plan_between(inputs: Inputs, begins: Mapping[LogId, Cursor], ends: Mapping[LogId, int]) -> list[Split]:
    """The splits of these logs between cursors and ends. The first may begin before the cursor, the last may end after the end."""
    selected: list[Split] = []
    for id, folders in sorted(replicas(folders_of(inputs)).items()):
        if id in ends:
            splits = plan_log(id, folders, begins.get(id), inputs.on_corrupt).splits
            selected.extend(split for split in splits if split.first < ends[id] and not split.waits)
    return selected


def plan_log(id: LogId, folders: Sequence[Folder], cursor: Cursor | None, on_corrupt: str, end: int | None = None) -> Plan:
    with ExitStack() as opened:
        files: list[SegmentFile] = []
        parts: list[_SurveyedSegment] = []
        for folder in folders:
            segments = segments_of(folder, opened)
            for number, segment in enumerate(segments):
                after = segments[number + 1] if number + 1 < len(segments) else None
                if cursor is not None and after is not None and after.base <= cursor.next_offset:
                    continue
                surveyed = _unread(survey(segment, 0 if cursor is None else position_after(segment, cursor)), cursor)
                later_copy = _later_copy(surveyed, after)
                parts.append(_SurveyedSegment(folder, segment, number == 0, after is None, len(files), surveyed, later_copy))
                files.append(segment)
        return _plan_log(id, files, parts, cursor, on_corrupt, end) if files else _plan_lost_log(id, folders, cursor)


def _plan_lost_log(id: LogId, folders: Sequence[Folder], cursor: Cursor | None) -> Plan:
    """The plan for a log without any segment: a running broker keeps at least one, so its records are lost, as far as a checkpoint names them."""
    start, end = cursor.next_offset if cursor is not None else 0, max(folder.end for folder in folders)
    lost = [Coverage(*id, start, end - 1, None, None, False, MISSING_SEGMENT)] if end > start else []
    return Plan([], [], [], {}, {}, lost)


def new_bytes(folder: Folder, cursor: Cursor | None) -> int:
    """The approximate number of bytes after the cursor."""
    with ExitStack() as opened:
        segments = segments_of(folder, opened)
        if cursor is None:
            return sum(segment.size for segment in segments)
        return sum(segment.size - position_after(segment, cursor) for segment in segments if segment.base >= cursor.base)


class _SurveyedSegment(NamedTuple):
    """One segment of one replica."""

    folder: Folder
    segment: SegmentFile
    is_first: bool
    is_last: bool
    number: int
    survey: Survey
    superseded: NDArray[np.bool_]  # batches that the next segment repeats


def _unread(surveyed: Survey, cursor: Cursor | None) -> Survey:
    """The survey without damage before the cursor, which an earlier run has counted."""
    if cursor is None:
        return surveyed
    read = surveyed.batches[surveyed.batches["last"] < cursor.next_offset]
    last_position = int(read["position"][-1]) if len(read) else -1
    return surveyed._replace(damages=[damage for damage in surveyed.damages if damage.position > last_position])


def _later_copy(surveyed: Survey, after: SegmentFile | None) -> NDArray[np.bool_]:
    """Mark batches that the next segment repeats, as after an interrupted repair: the copy in the next segment takes precedence."""
    if after is None:
        return np.zeros(len(surveyed.batches), bool)
    return np.asarray(surveyed.batches["last"] >= after.base)


_COLUMNS_WITH_FILE: Final = np.dtype([*[(name, COLUMNS[name]) for name in COLUMNS.names or ()], ("file", "i4")])


def _plan_log(id: LogId, files: list[SegmentFile], parts: list[_SurveyedSegment], cursor: Cursor | None, on_corrupt: str, end: int | None) -> Plan:
    start = cursor.next_offset if cursor is not None else 0
    last_gap = cursor.last if cursor is not None else CoverageState()
    batches = _with_file_numbers(parts)
    if cursor is not None:
        check_same_log(id, batches, cursor)
    batches = batches[batches["last"] >= start]
    batches, diverged = _without_duplicates(batches)
    if end is not None:
        batches = batches[batches["last"] < end]
    untils = [part.folder.until for part in parts if part.folder.until >= 0]
    if untils:
        batches = batches[batches["last"] < max(untils)]
    earlier = cursor.open if cursor is not None else ()
    transactions = verdicts(batches, last_gap.ms, lambda index: _marker(files[int(batches[index]["file"])], batches[index]), earlier)
    _refuse_damage(parts, on_corrupt)
    segments = _segment_rows(id, parts, batches, transactions, diverged)
    if not len(batches):
        return Plan([], segments, [], {}, {}, [])
    holes = _holes(id, start, batches, parts)
    coverage_rows, last = coverage(id, start, batches, holes, last_gap)
    splits = _splits(id, files, batches[~(transactions.aborted | transactions.waiting)])
    splits += [split._replace(waits=True) for split in _splits(id, files, batches[transactions.waiting])]
    newest = batches[-1]
    return Plan(splits, segments, coverage_rows, {id: cursor_after(files[int(newest["file"])], newest, last, transactions.open)}, {id: transactions.ended}, [])


def _with_file_numbers(parts: list[_SurveyedSegment]) -> NDArray[Any]:
    parts_tagged = []
    for part in parts:
        batches = part.survey.batches[~part.superseded]
        tagged = np.empty(len(batches), _COLUMNS_WITH_FILE)
        for name in COLUMNS.names or ():
            tagged[name] = batches[name]
        tagged["file"] = part.number
        parts_tagged.append(tagged)
    return np.concatenate(parts_tagged) if parts_tagged else np.empty(0, _COLUMNS_WITH_FILE)


def _without_duplicates(batches: NDArray[Any]) -> tuple[NDArray[Any], dict[int, int]]:
    """Each batch of several replicas once, in order; and for each file the number of batches that differ from the chosen ones.

    Of two batches with the same offsets, the one of the later leader is chosen, then the one with more records: the other was compacted.
    """
    if (batches["base"][1:] > batches["last"][:-1]).all():
        return batches, {}
    order = np.lexsort((batches["file"], -batches["count"], -batches["epoch"], batches["base"]))
    batches = batches[order]
    same = np.zeros(len(batches), bool)
    same[1:] = (batches[["base", "last", "count", "crc"]][1:] == batches[["base", "last", "count", "crc"]][:-1])
    batches = batches[~same]
    diverged: dict[int, int] = {}
    retained = np.ones(len(batches), bool)
    chosen = -1
    for index in range(len(batches)):
        batch = batches[index]
        if chosen >= 0 and batch["base"] <= batches[chosen]["last"]:
            previous = batches[chosen]
            better = (batch["epoch"], batch["count"]) > (previous["epoch"], previous["count"])
            dropped = chosen if better else index
            retained[dropped] = False
            if batch["epoch"] != previous["epoch"] or batch["count"] == previous["count"] or (batch["base"], batch["last"]) != (previous["base"], previous["last"]):
                number = int(batches[dropped]["file"])
                diverged[number] = diverged.get(number, 0) + 1
            if not better:
                continue
        chosen = index
    return batches[retained], diverged


def _marker(segment: SegmentFile, batch: Any) -> int:
    return marker_type(segment.file.read(int(batch["position"]), int(batch["size"])), 0)


def _refuse_damage(parts: list[_SurveyedSegment], on_corrupt: str) -> None:
    if on_corrupt != FAIL:
        return
    for part in parts:
        for damage in part.survey.damages:
            if not _is_torn_end(part, damage):
                raise BadInput(
                    f"{part.segment.path}: byte {damage.position}: {damage.reason}; --on-corrupt=quarantine skips and counts it"
                )


def _is_torn_end(part: _SurveyedSegment, damage: Damage) -> bool:
    return part.is_last and damage.torn


# Missing offsets


def _holes(id: LogId, start: int, batches: NDArray[Any], parts: list[_SurveyedSegment]) -> list[Hole]:
    by_number = {part.number: part for part in parts}
    expected = np.concatenate([[start], batches["last"][:-1] + 1])
    gaps = np.flatnonzero(batches["base"] > expected)
    compacted = np.flatnonzero(batches["count"] < batches["last"] - batches["base"] + 1)
    holes = [Hole(int(batches["base"][index]), int(batches["last"][index]), COMPACTED) for index in compacted.tolist()]
    for index in gaps.tolist():
        first, last = int(expected[index]), int(batches["base"][index]) - 1
        part = by_number[int(batches["file"][index])]
        before = by_number[int(batches["file"][index - 1])] if index else None
        reason = _damage_between(before, batches[index - 1] if index else None, part, batches[index], parts)
        base = part.segment.base
        if reason:
            holes.append(Hole(first, last, reason))
        elif first >= base:
            holes.append(Hole(first, last, COMPACTED))
        else:
            holes.append(Hole(first, min(last, base - 1), _between_segments(id, part, first)))
            if base <= last:
                holes.append(Hole(base, last, COMPACTED))
    return sorted(holes)


def _between_segments(id: LogId, part: _SurveyedSegment, first: int) -> str:
    if part.is_first:
        return RETENTION
    if id.log == "offsets" and not 0 <= part.folder.cleaned <= first:
        return COMPACTED  # the cleaner may merge segments
    return MISSING_SEGMENT


def _damage_between(
    before: _SurveyedSegment | None, batch_before: Any, part: _SurveyedSegment, batch: Any, parts: list[_SurveyedSegment]
) -> str:
    """The reason for a hole before the batch, if there is damage between it and the previous batch; else ""."""
    end = (part.segment.base, int(batch["position"]))
    begin = (-1, 0)
    if before is not None:
        if before.folder != part.folder:  # the previous batch of this replica
            earlier = part.survey.batches[part.survey.batches["position"] < batch["position"]]
            begin = (part.segment.base, int(earlier["position"][-1]) if len(earlier) else 0)
        else:
            begin = (before.segment.base, int(batch_before["position"]))
    same_folder = [other for other in parts if other.folder == part.folder]
    damages = [damage for other in same_folder for damage in other.survey.damages if begin <= (other.segment.base, damage.position) < end]
    if not damages:
        return ""
    return TORN if all(damage.torn for damage in damages) else DAMAGED


# Results


def _splits(id: LogId, files: list[SegmentFile], batches: NDArray[Any]) -> list[Split]:
    file_changes = np.flatnonzero(batches["file"][1:] != batches["file"][:-1]) + 1
    runs = np.split(batches, file_changes)
    return [split for run in runs if len(run) for split in _splits_of_segment(id, files[int(run["file"][0])], run)]


def _splits_of_segment(id: LogId, segment: SegmentFile, batches: NDArray[Any]) -> list[Split]:
    """The splits of the batches of one segment."""
    begins = batches["position"]
    ends = begins + batches["size"]
    size_before = np.concatenate([[0], np.cumsum(np.maximum(batches["size"] / SPLIT_BYTES, batches["count"] / SPLIT_RECORDS))[:-1]])
    part_of = size_before.astype(np.int64)
    splits: list[Split] = []
    for number in np.unique(part_of).tolist():
        inside = np.flatnonzero(part_of == number)
        breaks = np.flatnonzero(begins[inside][1:] != ends[inside][:-1]) + 1
        spans = [Span(int(begins[run[0]]), int(ends[run[-1]]), len(run)) for run in np.split(inside, breaks)]
        first, last = batches[inside[0]], batches[inside[-1]]
        count = int(batches["count"][inside].sum())
        splits.append(
            Split(id, segment.path, segment.name, int(first["base"]), int(last["last"]), tuple(spans), int(first["crc"]), int(last["position"]), int(last["crc"]), count)
        )
    return splits


def _segment_rows(
    id: LogId, parts: list[_SurveyedSegment], batches: NDArray[Any], transactions: TransactionVerdicts, diverged: Mapping[int, int]
) -> list[Segment]:
    rows = [_segment_row(id, part, batches, transactions, diverged) for part in parts]
    return [row for row in rows if row is not None]


def _segment_row(
    id: LogId, part: _SurveyedSegment, batches: NDArray[Any], transactions: TransactionVerdicts, diverged: Mapping[int, int]
) -> Segment | None:
    in_segment = batches["file"] == part.number
    read = batches[in_segment & ~transactions.aborted & ~transactions.waiting]
    aborted_batches = batches[in_segment & transactions.aborted]
    damages = part.survey.damages
    torn = [damage for damage in damages if _is_torn_end(part, damage)]
    quarantined = [damage for damage in damages if not _is_torn_end(part, damage)]
    differing = diverged.get(part.number, 0)
    segment_batches = batches[in_segment]
    if not len(segment_batches) and not damages and not differing:
        return None
    span = int((segment_batches["last"] - segment_batches["base"] + 1).sum())
    gaps = int((segment_batches["base"][1:] - segment_batches["last"][:-1] - 1).sum())
    codecs = sorted(set((segment_batches["attributes"] & COMPRESSION_MASK).tolist()))
    return Segment(
        *id,
        path=part.segment.path,
        size=part.segment.size,
        base_offset=part.segment.base,
        first_offset=int(segment_batches["base"][0]) if len(segment_batches) else None,
        last_offset=int(segment_batches["last"][-1]) if len(segment_batches) else None,
        first_ms=int(segment_batches["first_ms"][0]) if len(segment_batches) else None,
        last_ms=int(segment_batches["max_ms"].max()) if len(segment_batches) else None,
        batches=len(read),
        records=int(read["count"].sum()),
        missing_offsets=span + gaps - int(segment_batches["count"].sum()),
        codecs=",".join(CODECS[codec] for codec in codecs),
        torn_bytes=sum(damage.size for damage in torn),
        damaged_batches=len(quarantined),
        quarantined_bytes=sum(damage.size for damage in quarantined),
        aborted=int(aborted_batches["count"].sum()),
        diverged=differing,
    )
