"""The true history of a group, from its state after each step instead of the coordinator's notes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from coordinator.classic.group import Group
from coordinator.notes import Cause
from coordinator.states import State
from history.causes import cause_row, name_of

SESSION_MS_MAX = 1_800_000  # group.max.session.timeout.ms: the longest time for which a seat is kept
SETTLED_STATES = (State.STABLE, State.EMPTY)


class Change(NamedTuple):
    """A member joined or left. `restart`: the number of the restart that it is part of."""

    at_ms: int
    what: str  # joined, replaced, left, expired, evicted, removed
    client: str
    member_id: str
    instance_id: str | None
    restart: int | None


@dataclass(slots=True)
class Restart:
    """One restart of a process. Its gap is the session timeout that would have avoided a rebalance."""

    number: int
    group: str
    client: str
    instance_id: str | None
    at_ms: int
    away_ms: int
    last_sign_ms: int = -1  # its last heartbeat before
    back_ms: int = -1  # when it joined again; -1: never

    @property
    def gap_ms(self) -> int:
        return self.back_ms - self.last_sign_ms if self.back_ms >= 0 <= self.last_sign_ms else -1


@dataclass(slots=True)
class TrueRebalance:
    group: str
    start_ms: int
    from_generation: int
    cause: str  # as in rows.Episode
    trigger: str | None  # the name of the client
    formation: bool
    end_ms: int = -1  # -1: not ended
    to_generation: int = -1
    end: str = "open"
    members_before: int = 0
    members_after: int = 0
    also: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    why: str = ""  # the scripted action at that time
    follows: bool = False  # the second step of a cooperative rebalance: revoked partitions are assigned to others

    @property
    def rounds(self) -> int:
        return max(self.to_generation - self.from_generation, 1)

    @property
    def restarts(self) -> set[int]:
        return {change.restart for change in self.changes if change.restart is not None}

    @property
    def restarts_alone(self) -> bool:
        """Whether it was caused only by scripted restarts."""
        return self.absences_alone and all(change.restart is not None for change in self.changes)

    @property
    def absences_alone(self) -> bool:
        return bool(self.changes) and not self.formation and all(cause_row(cause).of_members for cause in (self.cause, *self.also))


class GroupHistory:
    """The true history of one group, updated after each step."""

    def __init__(self) -> None:
        self.state = State.EMPTY
        self.generation = 0
        self.members: dict[str, str | None] = {}  # member id -> instance id
        self.last_version: object = None
        self.episodes: list[TrueRebalance] = []
        self.changes: list[Change] = []  # all changes, in rebalances and outside of them
        self.deleted_ms: list[int] = []

    def differs(self, group: Group) -> bool:
        return group.version is not self.last_version

    def diff(self, group: Group) -> Iterator[tuple[str, str | None, bool]]:
        """The members that left and joined since the last step: member id, instance id, whether it joined."""
        now = group.members
        for id, instance in self.members.items():
            if id not in now:
                yield id, instance, False
        for id, member in now.items():
            if id not in self.members:
                yield id, member.instance_id, True

    def update(self, group: Group, at_ms: int, cause: Cause | None, trigger: str | None, why: str, changes: list[Change], follows: bool) -> None:
        """Record the group after a step."""
        before, after = self.state, group.state
        was_stable = before in SETTLED_STATES
        is_cause = False
        name = name_of(cause) if cause is not None else "unknown"
        if was_stable and (after is not before or group.generation != self.generation):
            is_cause = True
            is_formation = not self.episodes and not self.generation
            episode = TrueRebalance(group.id, at_ms, self.generation, name, trigger, is_formation, members_before=len(self.members), why=why, follows=follows)
            self.episodes.append(episode)
        elif before is State.COMPLETING and (after is State.PREPARING or group.generation != self.generation):
            is_cause = True
            self.episodes[-1].also.append(name)
        self.changes += changes
        if is_cause or not was_stable:
            episode = self.episodes[-1]
            episode.changes += changes
            if after in SETTLED_STATES:
                episode.end_ms = at_ms
                episode.end = after.name.lower()
                episode.to_generation = group.generation
                episode.members_after = len(group.members)
        self.state = after
        self.generation = group.generation
        self.members = {id: member.instance_id for id, member in group.members.items()}
        self.last_version = group.version

    def avoidable(self) -> list[TrueRebalance]:
        """Rebalances caused only by restarts within the longest possible session timeout."""
        absences = set(self._paired())
        episodes: list[TrueRebalance] = []
        for number, episode in enumerate(self.episodes):
            if episode.follows:
                by_absences = bool(episodes) and episodes[-1] is self.episodes[number - 1]
            else:
                by_absences = episode.absences_alone
            if by_absences and absences.issuperset(episode.changes):
                episodes.append(episode)
        return episodes

    def _paired(self) -> Iterator[Change]:
        """The changes that are part of an absence: a process left and joined again, before or after the group had removed its old member."""
        ids_of_process: dict[str, list[list[Change]]] = {}  # for each process or instance the changes of each of its member ids
        for change in self.changes:
            of_client = ids_of_process.setdefault(change.instance_id or change.client, [])
            if change.what in ("joined", "replaced"):
                of_client.append([change])
            else:
                next(life for life in of_client if life[0].member_id == change.member_id).append(change)
        for of_client in ids_of_process.values():
            returned = False  # whether it is the return of a known process
            for before, after in pairwise(of_client):
                went, back = before[-1], after[0]
                if len(before) == 1:  # it kept its seat, or the coordinator had lost its join
                    returned = returned or back.what == "replaced"
                    if returned:
                        yield back
                    continue
                deleted = any(went.at_ms <= at <= back.at_ms for at in self.deleted_ms)
                returned = back.at_ms - went.at_ms <= SESSION_MS_MAX and went.what != "removed" and not deleted
                if returned:
                    yield from before[1:]
                    yield back

    def interrupt(self, at_ms: int) -> None:
        """The coordinator stopped: an open rebalance is interrupted."""
        if self.state not in SETTLED_STATES:
            episode = self.episodes[-1]
            episode.end_ms = at_ms
            episode.end = "interrupted"
            episode.to_generation = self.generation
            episode.members_after = len(self.members)

    def resume(self, group: Group) -> None:
        """The coordinator has loaded the group."""
        self.state = group.state
        self.generation = group.generation
        self.members = {id: member.instance_id for id, member in group.members.items()}
        self.last_version = group.version

    def forget(self, at_ms: int) -> None:
        """The group was deleted."""
        self.deleted_ms.append(at_ms)
        self.state = State.EMPTY
        self.generation = 0
        self.members = {}
        self.last_version = None
