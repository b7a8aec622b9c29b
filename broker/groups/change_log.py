"""Log state changes of groups, at most LINES_PER_SECOND: when many groups rebalance, log lines would cost more than the requests.

Further changes are counted in one line a second. The notes keep every change (`tenure group history`).
"""

from __future__ import annotations

import asyncio

from broker.logging.logs import log
from broker.runtime.clock import Clock
from broker.runtime.contain import Contained
from coordinator import Note
from coordinator.notes import Cause
from coordinator.states import State
from protocol.messages.coordinator_notes import StateChange

LINES_PER_SECOND = 50

STATES = {state.value: state.name.lower() for state in State}
CAUSES = {cause.value: cause.name.lower() for cause in Cause}


class ChangeLog:
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._second_ends = 0
        self._remaining_lines = 0
        self._timer: asyncio.TimerHandle | None = None
        self._unlogged_changes = 0  # since the last line that counts them
        self._unlogged_groups: set[str] = set()

    def add(self, note: Note) -> None:
        now = self._clock.now
        if now >= self._second_ends:
            self._second_ends = now + 1_000
            self._remaining_lines = LINES_PER_SECOND
        if self._remaining_lines:
            self._remaining_lines -= 1
            log_change(note)
            return
        if self._timer is None:
            self._timer = self._loop.call_later(1, Contained(self.flush))
        self._unlogged_changes += 1
        self._unlogged_groups.add(note.group_id)

    def flush(self) -> None:
        """Log the number of unlogged changes, and begin a new second."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._second_ends = 0
            log.info("more changes of groups", changes=self._unlogged_changes, groups=len(self._unlogged_groups), shown_by="tenure group history")
            self._unlogged_changes = 0
            self._unlogged_groups.clear()


def log_change(note: Note) -> None:
    change = note.body
    assert isinstance(change, StateChange)
    log.info(
        "group",
        group=note.group_id,
        **{"from": STATES[change.from_state]},
        to=STATES[change.to_state],
        generation=note.generation,
        cause=CAUSES[change.reason],
        member=": ".join(part for part in (change.member, change.text) if part) or None,
        members=change.members,
    )
