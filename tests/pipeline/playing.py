"""The fold over the logs of a played coordinator: its notes, its records, and the commits around each record."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from statistics import median

from history import GroupRecord, NoteRecord
from pipeline.episodes import fold_group
from pipeline.events import Events, NoteAt
from pipeline.rows import CommitsAround, Coverage, GroupTables
from protocol.messages.consumer_offsets import OffsetCommitKey
from protocol.records import read_offsets_key
from tests.history.conftest import NotedPlay

CLUSTER, GROUP = "c", "g"
TIME_AFTER_NEWEST_MS = 3_600_000
NONE = -1


def noted(note_records: Sequence[NoteRecord]) -> list[NoteAt]:
    return [NoteAt(0, number, note_record) for number, note_record in enumerate(note_records)]


def fold(
    notes: Sequence[NoteRecord],
    group_records: Sequence[GroupRecord],
    edges: dict[int, CommitsAround] | None = None,
    coverage: Sequence[Coverage] = (),
    now_ms: int | None = None,
) -> GroupTables:
    newest = max([note.at_ms for note in notes] + [group_record.at_ms for group_record in group_records], default=0) + TIME_AFTER_NEWEST_MS
    return fold_group(CLUSTER, GROUP, Events(noted(notes), list(group_records)), edges or {}, coverage, newest if now_ms is None else now_ms)


def with_notes(play: NotedPlay) -> GroupTables:
    return fold(play.note_records, play.group_records)


def without_notes(play: NotedPlay) -> GroupTables:
    return fold([], play.group_records)


def edges_of(group_records: Sequence[GroupRecord], commits: dict[str, list[int]]) -> dict[int, CommitsAround]:
    """For each group record, the nearest commits and the usual time between them. `commits`: sorted times of commits, by `topic-partition`."""
    edges = {}
    for group_record in group_records:
        last, first, usual = [], [], []
        for times in commits.values():
            at = bisect_right(times, group_record.at_ms)
            gaps = [later - earlier for earlier, later in zip(times[max(at - 11, 0) : at], times[max(at - 10, 1) : at], strict=False)]
            last.append(times[at - 1] if at else NONE)
            first.append(times[at] if at < len(times) else NONE)
            usual.append(int(median(gaps)) if gaps else NONE)
        edges[group_record.offset] = CommitsAround(CLUSTER, GROUP, group_record.offset, list(commits), last, first, usual)
    return edges


def commits_of(records: Iterable[tuple[bytes, bytes | None, int]]) -> dict[str, list[int]]:
    """The times of commits for each partition of the group, from the (key, value, time) of a log."""
    times: dict[str, list[int]] = {}
    for key, value, at_ms in records:
        offsets_key = read_offsets_key(key)
        if isinstance(offsets_key, OffsetCommitKey) and offsets_key.group == GROUP and value is not None:
            times.setdefault(f"{offsets_key.topic}-{offsets_key.partition}", []).append(at_ms)
    return times
