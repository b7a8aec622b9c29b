"""How `tenure group history` shows the entries: their order, their texts, and records that it leaves out until their notes are written."""

from __future__ import annotations

import time
from typing import cast

import pytest

from cli.groups import history
from cli.groups.history import HistoryReader, in_order_of_begin
from cli.groups.history_details import Details
from cli.groups.history_document import document
from cli.groups.history_reading import GroupLogReader
from cli.groups.history_shown import detail_lines, missing_text, move_lines, sentence
from cli.shown import Role
from coordinator.notes import Cause, ShardChange, StandbyStep
from coordinator.states import State
from history import CoordinatorChanged, End, Entry, GroupRecord, NoteRecord, Rebalance, RebalancesMissing, StandbyChanged
from history.commits import NearbyCommits
from history.newer import NewerRecord
from protocol.messages.consumer_offsets import GroupMetadataValue

pytestmark = pytest.mark.once


def rebalance(began_ms: int, ended_ms: int) -> Rebalance:
    return Rebalance(began_ms, State.STABLE, 1, Cause.NEW_MEMBER, ended_ms=ended_ms, to_generation=2, end=End.STABLE)


def standby(at_ms: int) -> StandbyChanged:
    return StandbyChanged(at_ms, "m", "i", StandbyStep.WAITS, None, None, 0)


def test_a_rebalance_is_shown_before_standby_changes_during_it() -> None:
    earlier, first, before, second, during = rebalance(10, 20), standby(15), standby(30), rebalance(30, 50), standby(40)
    entries: list[Entry] = [first, earlier, before, during, second]
    assert in_order_of_begin(entries) == [earlier, first, before, second, during]


@pytest.mark.parametrize(
    ("to_node", "drained", "text"),
    [
        (-1, False, "the coordinator was stopped"),
        (2, False, "the coordinator handed this partition to node 2"),
        (0, True, "the coordinator handed this partition to node 0, because its own node was drained"),
    ],
)
def test_a_hand_over_to_another_node_is_not_called_a_stop(to_node: int, drained: bool, text: str) -> None:
    unloaded = CoordinatorChanged(5, ShardChange.UNLOADED, 0, 1, to_node=to_node, drained=drained)
    assert sentence(unloaded) == (text, Role.DIM)
    shown = document(unloaded)
    assert (shown["what"], shown["to_node"], shown["drained"]) == ("unloaded", to_node if to_node >= 0 else None, drained)


def test_restarts_of_a_rebalance_are_shown_once_for_each_cause() -> None:
    restarted = rebalance(10, 20)
    restarted.restart_causes += [Cause.STATIC_DURING_COMPLETING, Cause.MEMBER_LEFT, Cause.MEMBER_LEFT]
    assert [text for label, text in detail_lines(restarted, Details(None, 0, "")) if label == "again"] == [
        "restarted: a static member was restarted while the group waited for assignments",
        "restarted: a member left",
    ]


@pytest.mark.parametrize(
    ("total", "text"), [(0, "nothing: no member has a partition"), (1, "nothing: 1 partition stayed"), (2, "nothing: 2 partitions stayed")]
)
def test_unmoved_partitions_are_counted(total: int, text: str) -> None:
    assert move_lines(Details([], total, "range")) == [("moved", text)]


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [
        (1, 1, "one rebalance is"),
        (2, 2, "2 rebalances are"),
        (0, 1, "one rebalance may be"),
        (0, 3, "up to 3 rebalances may be"),
        (0, -1, "rebalances may be"),
        (1, 3, "between 1 and 3 rebalances are"),
        (1, -1, "at least one rebalance is"),
        (2, -1, "at least 2 rebalances are"),
    ],
)
def test_the_number_of_missing_rebalances_is_a_sentence(least: int, most: int, words: str) -> None:
    assert missing_text(RebalancesMissing(1, 2, -1, -1, least, most)) == f"{words} missing here: the notes were lost"


class FakeLogReader:
    """A GroupLogReader that returns these group records, and no notes."""

    group = "g"
    records_complete = True

    def __init__(self, *group_records: GroupRecord, has_notes: bool = True) -> None:
        self.has_notes = has_notes
        self.commits: dict[int, NearbyCommits] = {}
        self.epochs_ms: dict[int, int] = {}
        self._group_records = list(group_records)

    def group_records(self) -> list[GroupRecord]:
        group_records, self._group_records = self._group_records, []
        return group_records

    def newer_records(self) -> list[NewerRecord]:
        return []

    def whole(self, first: int, last: int) -> bool:
        return True

    def read(self) -> list[NoteRecord]:
        return []

    def wait(self) -> list[NoteRecord]:
        return []


def stored(generation: int, age_ms: int) -> GroupRecord:
    value = GroupMetadataValue("consumer", generation, None, None, -1, [])
    return GroupRecord(generation, time.time_ns() // 1_000_000 - age_ms, value)


def shown_entries(reader: FakeLogReader, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Entry], bool]:
    monkeypatch.setattr(history, "NOTES_WAIT_SECONDS", 0)
    history_reader = HistoryReader(cast(GroupLogReader, reader), None)
    entries = history_reader.entries_so_far() + history_reader.pending_entries()
    return entries, history_reader.has_young_records


@pytest.mark.parametrize("age_ms", [0, 2_000, -2_000])
def test_a_record_whose_notes_may_not_be_written_yet_is_left_out(age_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    entries, left_out = shown_entries(FakeLogReader(stored(1, 60_000), stored(2, age_ms)), monkeypatch)
    assert left_out
    assert [entry.to_generation for entry in entries if isinstance(entry, RebalancesMissing)] == [1]


@pytest.mark.parametrize(
    "reader",
    [FakeLogReader(stored(1, 60_000)), FakeLogReader(stored(1, -3_600_000)), FakeLogReader(stored(1, 0), has_notes=False)],
    ids=["old", "other-clock", "no-notes"],
)
def test_notes_of_older_records_are_reported_as_missing(reader: FakeLogReader, monkeypatch: pytest.MonkeyPatch) -> None:
    entries, left_out = shown_entries(reader, monkeypatch)
    assert not left_out
    assert [entry.to_generation for entry in entries if isinstance(entry, RebalancesMissing)] == [1]


def test_a_deletion_has_no_notes_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    deleted = GroupRecord(2, time.time_ns() // 1_000_000, None)
    entries, left_out = shown_entries(FakeLogReader(stored(1, 60_000), deleted), monkeypatch)
    assert (len(entries), left_out) == (2, False)
