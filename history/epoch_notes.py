"""Causes of the epochs of a consumer group from its notes, for rebalances that `epochs.py` tells from records. The notes know why members were removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from coordinator.notes import Cause, EpochStep, Removal
from coordinator.states import State
from history.episodes import Entry, Rebalance
from history.note_records import NoteRecord, known_member
from protocol.messages.coordinator_notes import EpochNote

REMOVALS_OF: Final = {
    Cause.MEMBER_LEFT: Removal.LEFT,
    Cause.SESSION_EXPIRED: Removal.EXPIRED,
    Cause.REBALANCE_TIMEOUT: Removal.NOT_GIVEN_UP,
    Cause.ADMIN_REMOVED: Removal.ADMIN_REMOVED,
    Cause.SYNC_TIMEOUT: Removal.SYNC_TIMEOUT,
}


def is_of_epochs(note: NoteRecord) -> bool:
    """Whether the note is about a group of the consumer protocol: of the classic protocol's states it is in none."""
    return bool(note.group) and note.header.state == State.DEAD


class EpochNotes:
    """The causes of epochs so far."""

    def __init__(self, notes: Iterable[NoteRecord] = ()) -> None:
        self._begun: dict[int, tuple[Cause, list[str], int]] = {}  # by epoch: cause, members and time
        for note in notes:
            self.add(note)

    def add(self, note: NoteRecord) -> None:
        body = note.body
        if isinstance(body, EpochNote) and body.step == EpochStep.BEGUN:
            cause = known_member(Cause, body.cause)
            if cause is not None:
                self._begun[note.header.generation] = cause, list(body.members), note.header.ts

    def explain(self, entry: Entry) -> None:
        """Give a rebalance the cause that its first epoch has in the notes, and the removals of its members theirs."""
        if not isinstance(entry, Rebalance) or not entry.epochs:
            return
        noted = [self._begun.get(epoch) for epoch in entry.epochs]
        first = noted[0]
        if first is not None:
            entry.cause = first[0]
            entry.trigger_member = first[1][0] if first[1] else None
        entry.restart_causes = [known[0] if known is not None else cause for known, cause in zip(noted[1:], entry.restart_causes, strict=True)]
        causes = {id: known[0] for known in noted if known is not None for id in known[1]}
        entry.removals = [removal._replace(cause=REMOVALS_OF.get(causes[removal.member_id], removal.cause)) if removal.member_id in causes else removal for removal in entry.removals]
