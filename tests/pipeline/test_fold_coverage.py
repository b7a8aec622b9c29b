"""Logs with missing records: a history begins after the gap at the start, and gaps in between are rows of their own."""

from __future__ import annotations

import pytest

from history.storms import RebalanceSpan, storms
from pipeline.events import Raw, events_of
from pipeline.rows import Coverage, Episode
from protocol.messages.consumer_offsets import GroupMetadataKey
from protocol.messages.coordinator_notes import NoteKey
from protocol.records import with_version, write_note
from tests.pipeline.playing import CLUSTER, GROUP, fold
from tests.pipeline.scenarios import Played, play

pytestmark = pytest.mark.once  # no dependence on the Python version


def cover(first: int, last: int, reason: str = "") -> Coverage:
    return Coverage(CLUSTER, "offsets", 0, first, last, None, None, not reason, reason)


def causes(rows: list[Episode]) -> list[str]:
    return [row.cause for row in rows]


def rolling() -> Played:
    return play("rolling restart of dynamic members")


def test_the_first_record_left_by_compaction_is_no_rebalance() -> None:
    group_records = rolling().group_records
    complete = fold([], group_records)
    compacted = group_records[3:]  # compaction removed the first three and kept the next, the newest of the part that it processed
    first = compacted[0].offset
    tables = fold([], compacted, coverage=[cover(0, first + 1, "compacted"), cover(first + 2, 10_000)])
    generations = [row.to_generation for row in complete.episodes]
    assert [row.to_generation for row in tables.episodes] == [generation for generation in generations if (generation or 0) > compacted[0].generation]
    assert causes(tables.episodes) == causes(complete.episodes)[-len(tables.episodes) :]
    assert all(row.missing == 0 for row in tables.episodes)
    # Offsets are missing between the kept record and the next, so no cause is certain.
    assert tables.episodes[0].confidence == "weak"
    assert [row.rounds_aborted for row in tables.generations[:3]] == [None, None, 0]


def test_lost_records_are_a_row_with_an_unknown_number_of_rebalances() -> None:
    group_records = rolling().group_records
    before, after = group_records[2], group_records[5]
    tables = fold([], [*group_records[:3], *group_records[5:]], coverage=[cover(0, before.offset), cover(before.offset + 1, after.offset - 1, "damaged"), cover(after.offset, 10_000)])
    (gap,) = [row for row in tables.episodes if row.missing]
    assert (gap.missing, gap.cause, gap.confidence, gap.end) == (-1, "unknown", "none", "unknown")
    assert (gap.from_generation, gap.to_generation) == (before.generation, after.generation)
    assert (gap.start_lo_ms, gap.end_ms) == (before.at_ms, after.at_ms)
    complete = fold([], group_records).episodes
    assert tables.episodes[-1]._replace(episode=0, storm=None) == complete[-1]._replace(episode=0, storm=None)


def test_a_gap_without_events_of_the_group_is_no_row() -> None:
    played = play("rolling restart of static members")
    group_records = played.group_records
    a, b = group_records[-2], group_records[-1]
    tables = fold([], group_records, coverage=[cover(0, a.offset), cover(a.offset + 1, b.offset - 1, "damaged"), cover(b.offset, 10_000)])
    assert not [row for row in tables.episodes if row.missing]


def test_a_late_log_start_gives_no_rows_before_it() -> None:
    group_records = rolling().group_records[2:]
    tables = fold([], group_records, coverage=[cover(group_records[0].offset, 10_000)])
    assert tables.episodes[0].from_generation == group_records[0].generation
    assert all(spell.joined_lo_ms is None for spell in tables.spells if spell.from_generation == group_records[0].generation)


def test_bronze_becomes_events_group_by_group() -> None:
    played = play("the coordinator is restarted")
    rows = [Raw("offsets", 0, record.offset, record.at_ms, record.epoch, *record.fact) for record in played.memory.records[0]]
    for number, record in enumerate(played.note_records):
        rows.append(Raw("notes", 0, number, record.at_ms, 0, with_version(NoteKey(record.group), 0), write_note(record.header, record.body)))
    rows.append(Raw("notes", 0, len(rows), 0, 0, b"\0", b""))  # a record that is no note
    events = events_of(rows)
    assert sorted(events) == ["", GROUP]
    assert events[GROUP].group_records == played.group_records
    assert [noted.record for noted in events[GROUP].notes] == played.note_records
    assert [noted.record.group for noted in events[""].notes] == ["", ""]
    assert fold([noted.record for noted in events[GROUP].notes], events[GROUP].group_records) == fold(played.note_records, played.group_records)


def test_an_unreadable_record_is_a_gap() -> None:
    group_records = rolling().group_records
    events = events_of([Raw("offsets", 0, 7, 0, 0, with_version(GroupMetadataKey(GROUP), 2), b"\0\3\0")])
    assert list(events[GROUP].unreadable) == [7]
    assert not events[GROUP].group_records
    assert group_records


def test_notes_are_rows_with_their_bodies() -> None:
    played = rolling()
    rows = fold(played.note_records, played.group_records).notes
    assert len(rows) == len([record for record in played.note_records if record.group == GROUP])
    assert rows[0].name == "member_join"
    assert '"client_id":"p0"' in rows[0].body


def test_rebalances_close_to_each_other_are_a_storm() -> None:
    storm_rows = fold(play("a crash loop").note_records, play("a crash loop").group_records).episodes
    assert {row.storm for row in storm_rows[1:]} == {1}
    assert storm_rows[0].storm is None
    rolling_rows = fold(rolling().note_records, rolling().group_records, None).episodes
    assert {row.storm for row in fold(play("scale out and in").note_records, play("scale out and in").group_records).episodes} == {None}
    assert {row.storm for row in rolling_rows[1:]} == {1}


def test_a_cooperative_rebalance_stops_only_moving_partitions() -> None:
    played = play("cooperative members")
    for notes in (played.note_records, []):
        formed, revoked, reassigned = fold(notes, played.group_records).episodes
        assert formed.cooperative
        assert (revoked.moved_partitions, reassigned.moved_partitions) == (4, 4)
        if notes:
            assert revoked.join_ms is not None
            assert revoked.sync_ms is not None
            assert revoked.stalled_hi_ms == 4 * (revoked.join_ms + revoked.sync_ms)
            assert reassigned.stalled_hi_ms == 0  # the partitions had no owner before, so no consumer stopped


def test_a_storm_is_measured_by_the_timeouts_of_its_members() -> None:
    """The timeout of a later rebalance does not change whether the earlier ones are a storm."""
    close = [RebalanceSpan(0, 10, 5_000), RebalanceSpan(2_000, 2_010, 5_000), RebalanceSpan(4_000, 4_010, 5_000)]
    assert storms([*close, RebalanceSpan(20_000, 20_010, 60_000)]) == [0, 0, 0, 0]
    assert storms([*close, RebalanceSpan(20_000, 20_010, 5_000)]) == [0, 0, 0, None]
    assert storms([RebalanceSpan(0, None, 5_000), *close]) == [None, 1, 1, 1]
