"""The writer of coordinator notes, over scripted logs."""

from __future__ import annotations

from typing import Any

from broker.groups.group_journal import GroupJournal
from broker.groups.notes import GATHER_MS, NotesLogs
from broker.runtime.turn import Turn
from coordinator import GroupConfig, Note
from coordinator.classic.group import Group
from coordinator.notes import Cause
from coordinator.states import State
from protocol.messages.coordinator_notes import NoteHeader, NoteKey, RoundEnd, StateChange
from protocol.records import read_note, read_record
from storage import LogId
from tests.support.group_logs import RecordedNotes, Store
from tests.support.journals import LATE_MS, ScriptedLog
from tests.support.stepped_loop import SteppedLoop


def loaded_partition(partition: int = 0, epoch: int = 4, replayed: int = 10) -> GroupJournal:
    """A partition of the offsets topic with one group, in the state after loading."""
    loop = SteppedLoop()
    turn = Turn(loop, loop.clock())  # type: ignore[arg-type]
    journal = GroupJournal(partition, f"offsets-{partition}", GroupConfig(), lambda: "id", turn, LATE_MS, RecordedNotes(), lambda journal: None)
    journal.use_log(ScriptedLog(epoch=epoch))
    journal.replayed = replayed
    journal.load_ms = 12
    journal.shard.groups["g"] = Group("g", 0, 0)
    return journal


class NoteHarness:
    def __init__(self) -> None:
        self.loop = SteppedLoop()
        self.store = Store()
        self.notes = NotesLogs(self.store, self.loop, self.loop.clock())  # type: ignore[arg-type]

    def tell(self, *notes: Note, partition: int = 0, epoch: int = 4, offset: int = -1) -> None:
        self.notes.write(loaded_partition(partition, epoch), list(notes), offset)

    def log(self, partition: int = 0) -> ScriptedLog:
        return self.store.log(LogId("__coordinator_notes", partition))

    def pass_time(self, ms: int = GATHER_MS, partitions: int = 1) -> None:
        """Advance the time, and complete the appends of notes."""
        self.loop.pass_ms(ms)
        for partition in range(partitions):
            while self.log(partition).pending:
                self.log(partition).succeed()

    def written(self, partition: int = 0) -> list[tuple[str, NoteHeader, Any]]:
        return [(read_record(NoteKey, key).group, *read_note(value or b"")) for facts in self.log(partition).stored for key, value in facts]


def change(group: str = "g", generation: int = 3, dropped: int = 0) -> Note:
    body = StateChange(State.STABLE, State.PREPARING, Cause.SESSION_EXPIRED, "m-1", None, 5, 0)
    return Note(group, 77, generation, State.PREPARING, body, dropped)


def ended(group: str = "g") -> Note:
    return Note(group, 78, 3, State.STABLE, RoundEnd(0, 1, 2, []))
