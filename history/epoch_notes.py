"""Causes of the epochs of a consumer group from its notes, for rebalances that `epochs.py` tells from records. The notes know why members were removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from coordinator.notes import Cause, EpochStep, Removal
from coordinator.states import State
from history.episodes import CommitsRefused, Entry, Rebalance
from history.note_records import NoteRecord, known_member
from protocol.messages.coordinator_notes import CommitRefused, EpochNote

REMOVALS_OF: Final = {
    Cause.MEMBER_LEFT: Removal.LEFT,
    Cause.SESSION_EXPIRED: Removal.EXPIRED,
    Cause.REBALANCE_TIMEOUT: Removal.NOT_GIVEN_UP,
    Cause.ADMIN_REMOVED: Removal.ADMIN_REMOVED,
    Cause.SYNC_TIMEOUT: Removal.SYNC_TIMEOUT,
    Cause.ABSENCES_ENDED: Removal.STAYED_AWAY,
    Cause.REGISTRATION_UNSET: Removal.REGISTRATION_UNSET,
}


def is_of_epochs(note: NoteRecord) -> bool:
    """Whether the note is about a group of the consumer protocol: of the classic protocol's states it is in none."""
    return bool(note.group) and note.header.state == State.DEAD


def entries_of(note: NoteRecord) -> list[Entry]:
    """What a note tells besides the epochs."""
    return [CommitsRefused.noted(note.header.ts, note.body)] if isinstance(note.body, CommitRefused) else []


class EpochNotes:
    """The causes of epochs so far."""

    def __init__(self, notes: Iterable[NoteRecord] = ()) -> None:
        # By epoch:
        self._begun: dict[int, tuple[Cause, list[str], str]] = {}  # cause, members and text
        self._assignors: dict[int, str] = {}
        self._held_up: dict[int, list[tuple[str, int]]] = {}
        for note in notes:
            self.add(note)

    def add(self, note: NoteRecord) -> None:
        body = note.body
        if not isinstance(body, EpochNote):
            return
        epoch = note.header.generation
        if body.step == EpochStep.BEGUN:
            cause = known_member(Cause, body.cause)
            if cause is not None:
                self._begun[epoch] = cause, list(body.members), body.text
        elif body.step == EpochStep.COMPUTED:
            self._assignors[epoch] = body.assignor
        elif body.step == EpochStep.REACHED:
            self._held_up[epoch] = list(zip(body.held_up_by, body.held_up_ms, strict=False))

    def has(self, epoch: int) -> bool:
        """Whether the cause of this epoch is known."""
        return epoch in self._begun

    def explain(self, entry: Entry) -> None:
        """Give a rebalance the cause that its first epoch has in the notes, its assignor and whom it waited for, and the removals of its members theirs."""
        if not isinstance(entry, Rebalance) or not entry.epochs:
            return
        noted = [self._begun.get(epoch) for epoch in entry.epochs]
        first = noted[0]
        if first is not None:
            entry.cause = first[0]
            entry.trigger_member = first[1][0] if first[1] else None
            entry.cause_text = first[2] or None
        entry.restart_causes = [known[0] if known is not None else cause for known, cause in zip(noted[1:], entry.restart_causes, strict=True)]
        entry.assignor = next((self._assignors[epoch] for epoch in reversed(entry.epochs) if epoch in self._assignors), "")
        entry.held_up = self._held_up.get(entry.to_generation, [])
        causes = {id: known[0] for known in noted if known is not None for id in known[1]}
        entry.removals = [removal._replace(cause=REMOVALS_OF.get(causes[removal.member_id], removal.cause)) if removal.member_id in causes else removal for removal in entry.removals]
