"""The fixture `play` of tests/coordinator, which also keeps its notes and group records."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from coordinator.notes import Note, ShardChange
from history import Entry, GroupRecord, NoteRecord, read_group_record, story_of
from protocol.messages.coordinator_notes import CoordinatorChange, NoteHeader
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import Play


class NotedPlay(Play):
    """`note_records` and `group_records` are the records of __coordinator_notes and __consumer_offsets since the beginning of the play."""

    def __init__(self) -> None:
        self.note_records: list[NoteRecord] = []
        self.epoch = 0
        self._appended: list[tuple[int, int]] = []  # time and epoch of each fact
        super().__init__()

    def _confirm(self) -> None:
        self._appended += [(self.now, self.epoch)] * len(self.in_flight)
        super()._confirm()

    def _take_notes(self, notes: list[Note], stamp: int) -> None:
        super()._take_notes(notes, stamp)
        hold = self._serving.hold
        place = len(self.log) + len(self.in_flight) + hold.emitted - hold.taken - (hold.emitted - stamp) - 1 if stamp else -1
        for note in notes:
            header = NoteHeader(
                note.kind,
                note.at_ms,
                len(self.note_records),
                self.epoch,
                note.generation,
                note.state,
                place,
                note.dropped,
                note.counted_from,
                note.number,
            )
            self.note_records.append(NoteRecord(note.group_id, header, note.body))

    def coordinator(self, change: ShardChange, groups: int = 1, to_node: int = -1, drained: bool = False) -> None:
        """Note a change of the coordinator as broker/groups/notes.py does, which notes no load of an empty log."""
        if change is ShardChange.LOADED and not self.log:
            return
        header = NoteHeader(NoteKind.COORDINATOR, self.now, len(self.note_records), self.epoch, 0, 0, -1, 0)
        self.note_records.append(NoteRecord("", header, CoordinatorChange(change, self.epoch, 5, groups, len(self.log), to_node, drained)))

    def crash(self) -> None:
        """Kill the coordinator, and start another."""
        self.epoch += 1
        self._start_next_coordinator(ShardChange.LOADED, self.failover)

    def restart(self, to_node: int = -1, drained: bool = False) -> None:
        """Stop the coordinator in order, or hand the partition to a node."""
        groups = len(self._serving.groups)
        self.unload()
        self.coordinator(ShardChange.UNLOADED, groups, to_node, drained)
        self.epoch += 1
        self._start_next_coordinator(ShardChange.LOADED, self.load)

    def suspend(self) -> None:
        """The log refuses an append: facts that are not durable are void, and the shard is replayed under the same epoch."""
        self.coordinator(ShardChange.SUSPENDED)
        self.fail_log()
        self.now += 10
        self.coordinator(ShardChange.RESUMED)

    def _start_next_coordinator(self, change: ShardChange, begin: Callable[[], None]) -> None:
        self.now += 10
        self.coordinator(change)
        begin()

    @property
    def group_records(self) -> list[GroupRecord]:
        appended = enumerate(zip(self.log, self._appended, strict=True))
        group_records = [read_group_record("g", offset, at, epoch, key, value) for offset, ((key, value), (at, epoch)) in appended]
        return [group_record for group_record in group_records if group_record is not None]


@pytest.fixture
def play() -> Iterator[NotedPlay]:
    playing = NotedPlay()
    yield playing
    playing.close()


def note_records(play: Play) -> list[NoteRecord]:
    """The notes since the set-up as records, without offsets of group records."""
    return [
        NoteRecord(note.group_id, NoteHeader(note.kind, note.at_ms, at, 0, note.generation, note.state, -1, note.dropped), note.body)
        for at, note in enumerate(play.notes)
    ]


@pytest.fixture
def story(play: NotedPlay) -> Callable[[], list[Entry]]:
    return lambda: story_of("g", note_records(play))
