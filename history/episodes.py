"""What a story is made of: rebalances, told as episodes, and what happened besides."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from coordinator.notes import Cause, Coordinator, How, Replacement
from coordinator.states import State


class Came(NamedTuple):
    """A member that joined; `again` when it was of the group already."""

    at_ms: int
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_ms: int
    again: bool
    reason: str | None


class Went(NamedTuple):
    at_ms: int
    member_id: str
    instance_id: str | None
    how: How | None
    since_heartbeat_ms: int
    session_ms: int
    reason: str | None


class Returned(NamedTuple):
    """A static member that came back under a new member id: its process was restarted."""

    at_ms: int
    instance_id: str
    old_id: str
    new_id: str
    client_id: str
    host: str
    since_heartbeat_ms: int
    outcome: Replacement | None


class Refused(NamedTuple):
    """Commits that were refused, over some seconds."""

    at_ms: int
    error_code: int
    member_id: str
    instance_id: str | None
    times: int
    since_ms: int


class Late(NamedTuple):
    """Members whose heartbeats came close to their session timeout: key, longest gap, how many."""

    at_ms: int
    gaps: tuple[tuple[str, int, int], ...]


class Moved(NamedTuple):
    """The coordinator itself was loaded, unloaded, suspended or resumed."""

    at_ms: int
    what: Coordinator | None
    load_ms: int
    groups: int


class Lost(NamedTuple):
    """Notes that were not kept, before the one that says so."""

    at_ms: int
    notes: int


class End(Enum):
    """How a rebalance ended."""

    STABLE = "stable"  # with an assignment
    EMPTY = "empty"  # with nobody left
    INTERRUPTED = "interrupted"  # the coordinator went away meanwhile
    OPEN = "open"  # it has not ended yet


@dataclass(slots=True)
class Rebalance:
    """From the moment a group is called together until it has an assignment again, or nobody is left.

    `cause` is None where the note that says it was lost. `offset` is the place, in the group's partition of
    __consumer_offsets, of the image with the assignment; -1 where nothing was stored.
    """

    began_ms: int
    from_state: State | None
    from_generation: int
    cause: Cause | None
    about: str | None = None  # the member it was about, and what its client said of it
    ended_ms: int = -1
    to_generation: int = -1
    end: End = End.OPEN
    rounds: int = 1  # more than one: it was begun anew before it came to its end
    also: list[Cause] = field(default_factory=list)  # why it was begun anew
    came: list[Came] = field(default_factory=list)
    went: list[Went] = field(default_factory=list)
    returned: list[Returned] = field(default_factory=list)
    laggards: list[str] = field(default_factory=list)
    join_ms: int = -1  # of the last round: until everybody was there, until everybody had its assignment
    sync_ms: int = -1
    members_before: int = -1
    members_after: int = -1
    offset: int = -1
    lost: int = 0  # notes of it that were not kept
    whole: bool = True  # False: it had begun before the first note

    @property
    def took_ms(self) -> int:
        return self.ended_ms - self.began_ms if self.ended_ms >= 0 else -1

    @property
    def joined(self) -> list[Came]:
        return [one for one in self.came if not one.again]

    @property
    def last_to_come(self) -> Came | None:
        """For whom the others waited: the last one to join, where that took a second or more."""
        if not self.came or self.from_state is State.EMPTY:
            return None
        last = max(self.came, key=lambda one: one.at_ms)
        return last if last.at_ms - self.began_ms >= 1000 else None


Entry = Rebalance | Came | Went | Returned | Refused | Late | Moved | Lost


def at_ms(entry: Entry) -> int:
    return entry.began_ms if isinstance(entry, Rebalance) else entry.at_ms
