"""`play` of tests/coordinator, and what its notes tell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from history import Entry, Told, story_of
from protocol.messages.coordinator_notes import NoteHeader
from tests.coordinator.conftest import play
from tests.coordinator.playbook import Play

__all__ = ["play"]


def told(play: Play) -> list[Told]:
    """The notes since the set-up, as they would be read back; all of one operation have one place in the log: here, none."""
    return [
        Told(note.group_id, NoteHeader(note.kind, note.at_ms, at, 0, note.generation, note.state, -1, note.dropped), note.body)
        for at, note in enumerate(play.notes)
    ]


@pytest.fixture
def story(play: Play) -> Callable[[], list[Entry]]:
    return lambda: story_of("g", told(play))
