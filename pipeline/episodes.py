"""The fold of one group: from its events to its tables. Rebalances come from notes, or from records if notes are missing.

    events = events_of(raw_records)["checkout"]
    tables = fold_group("prod", "checkout", events, edges, coverage, now_ms)

Equal events make equal tables, whatever the order and the slices in which they were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from history import Entry, GroupRecord, NoteRecord, Order, Story, at_ms
from history.commits import NEVER, NearbyCommits
from history.epoch_notes import EpochNotes, is_of_epochs
from history.epochs import tell
from history.inferred import InferenceCache
from history.spells import Spells
from history.stalls import IDLE_MS
from history.storms import RebalanceSpan, storms
from pipeline.events import COMPACTED, Events, Holes, horizon_ms, newer_rows, note_rows
from pipeline.generations import generation_rows, member_rows
from pipeline.outages import with_outages
from pipeline.rebalances import Rebalances
from pipeline.rows import CommitsAround, Coverage, Episode, GroupTables
from pipeline.spells import replacement_rows, spell_rows


def fold_group(
    cluster: str,
    group: str,
    events: Events,
    edges: Mapping[int, CommitsAround],
    coverage: Sequence[Coverage],
    now_ms: int,
) -> GroupTables:
    """The tables of one group.

    `edges`: the commits around each group metadata record, by the record's offset; `coverage`: of the group's partition, in both logs
    (offsets and notes).
    """
    holes = Holes(coverage, events.unreadable)
    if not group:  # notes about coordinators and end offsets have no group; a group may have an empty name too, so its records are kept
        group_records = generation_rows(cluster, group, events.group_records, holes), member_rows(cluster, group, events.group_records)
        return GroupTables(*group_records, newer_rows(cluster, group, events), note_rows(cluster, group, events.notes), [], [], [])
    between = InferenceCache({offset: nearby_commits(edge) for offset, edge in edges.items()})
    told = tell(group, events.group_records, events.newer)
    epoch_notes = EpochNotes(noted.record for noted in events.notes)
    for entry in told.entries:
        epoch_notes.explain(entry)
    events = events._replace(group_records=sorted([*events.group_records, *told.group_records], key=lambda record: record.offset))
    horizon = horizon_ms(coverage, now_ms)
    records_complete = not events.group_records or not holes.between(-1, events.group_records[0].offset)
    story = Story(group, from_start=True, records_complete=records_complete)
    spells = Spells(between, events.epochs_ms)
    entries: list[Entry] = []
    before = -1
    for event in _in_order(events):
        linked = True
        if isinstance(event, GroupRecord):
            # A compacted gap is no break: compaction keeps the newest record of a group.
            linked = before < 0 or not holes.between(before, event.offset) - {COMPACTED}
            before = event.offset
            if not linked:
                story.mark_records_lost()
        entries += [] if isinstance(event, GroupRecord) and event.is_target else story.add(event)
        spells.add(event, linked=linked)
    rebalances = Rebalances(cluster, group, events, between, holes)
    entries += story.finish()
    rebalances.add(sorted([*entries, *told.entries], key=at_ms) if told.entries else entries)
    settled_ms = horizon - IDLE_MS
    return GroupTables(
        generation_rows(cluster, group, _own(events), holes),
        member_rows(cluster, group, events.group_records),
        newer_rows(cluster, group, events),
        note_rows(cluster, group, events.notes),
        sorted(spell_rows(cluster, group, spells.all, settled_ms), key=lambda row: (row.member_id, row.joined_hi_ms or 0)),
        sorted(replacement_rows(cluster, group, spells.all), key=lambda row: (row.at_ms, row.new_member_id)),
        _numbered(with_outages(rebalances.rows, spells.all), rebalances.windows_ms, settled_ms),
    )


def _own(events: Events) -> list[GroupRecord]:
    """Without the tombstones of groups that go on in the consumer protocol: they are no deletions."""
    return [record for record in events.group_records if not (record.taken_over and record.newer_told)]


def _in_order(events: Events) -> Iterator[NoteRecord | GroupRecord]:
    order = Order()
    yield from order.feed([noted.record for noted in events.notes if not is_of_epochs(noted.record)], events.group_records)
    yield from order.remaining_records()


def nearby_commits(edge: CommitsAround) -> NearbyCommits:
    return NearbyCommits(
        dict(zip(edge.partitions, edge.last_before_ms, strict=True)),
        dict(zip(edge.partitions, edge.first_after_ms, strict=True)),
        dict(zip(edge.partitions, edge.usual_gap_ms, strict=True)),
    )


def _numbered(rows: Sequence[Episode], windows_ms: Sequence[int], settled_ms: int) -> list[Episode]:
    """Add number, storm and `final`. Rebalances of a storm that may continue are not final."""
    storm_numbers = storms([RebalanceSpan(row.start_hi_ms, row.end_ms, window) for row, window in zip(rows, windows_ms, strict=True)])
    return [
        row._replace(episode=number, storm=storm, final=row.end != "open" and max(row.end_ms or NEVER, row.start_hi_ms or NEVER) <= settled_ms)
        for number, (row, storm) in enumerate(zip(rows, storm_numbers, strict=True))
    ]
