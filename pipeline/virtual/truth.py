"""The true history of a group, from its state after each step instead of the coordinator's notes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from coordinator.group import Group
from coordinator.states import State

MADE_BY_ABSENCES = {"new_member", "member_left", "session_expired", "join_timeout", "sync_timeout", "static_during_completing"}
SESSION_MS_MAX = 1_800_000  # group.max.session.timeout.ms: no seat can be kept for longer
RESTED = (State.STABLE, State.EMPTY)


class Change(NamedTuple):
    """A member joined or left. `restart`: the number of the restart that it is half of."""

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
    last_sign_ms: int = -1  # the last heartbeat that it sent before
    back_ms: int = -1  # it joined again; -1: it never did

    @property
    def gap_ms(self) -> int:
        return self.back_ms - self.last_sign_ms if self.back_ms >= 0 <= self.last_sign_ms else -1


@dataclass(slots=True)
class TrueEpisode:
    group: str
    start_ms: int
    from_generation: int
    cause: str  # as in rows.Episode
    trigger: str | None  # the client whose doing it was
    formation: bool
    end_ms: int = -1  # -1: it has not ended
    to_generation: int = -1
    end: str = "open"
    members_before: int = 0
    members_after: int = 0
    also: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    why: str = ""  # the script's action at that time
    follows: bool = False  # the second step of a cooperative rebalance: revoked partitions are assigned to others

    @property
    def rounds(self) -> int:
        return max(self.to_generation - self.from_generation, 1)

    @property
    def restarts(self) -> set[int]:
        return {change.restart for change in self.changes if change.restart is not None}

    @property
    def restarts_alone(self) -> bool:
        """Only restarts of the script changed the membership, and nothing else changed."""
        return self.absences_alone and all(change.restart is not None for change in self.changes)

    @property
    def absences_alone(self) -> bool:
        return bool(self.changes) and not self.formation and {self.cause, *self.also} <= MADE_BY_ABSENCES


class Watched:
    """One group after the last step."""

    def __init__(self) -> None:
        self.state = State.EMPTY
        self.generation = 0
        self.members: dict[str, str | None] = {}  # member id -> instance id
        self.standing: object = None
        self.episodes: list[TrueEpisode] = []
        self.changes: list[Change] = []  # all of them
        self.deleted_ms: list[int] = []

    def differs(self, group: Group) -> bool:
        return group.version is not self.standing

    def diff(self, group: Group) -> Iterator[tuple[str, str | None, bool]]:
        """Member id, instance id, whether it came."""
        now = group.members
        for id, instance in self.members.items():
            if id not in now:
                yield id, instance, False
        for id, member in now.items():
            if id not in self.members:
                yield id, member.instance_id, True

    def take(self, group: Group, at_ms: int, cause: str, trigger: str | None, why: str, changes: list[Change], follows: bool) -> None:
        """The group after a step."""
        before, after = self.state, group.state
        rests = before in RESTED
        called = False
        if rests and (after is not before or group.generation != self.generation):
            called = True
            known = not self.episodes and not self.generation
            episode = TrueEpisode(group.id, at_ms, self.generation, cause, trigger, known, members_before=len(self.members), why=why, follows=follows)
            self.episodes.append(episode)
        elif before is State.COMPLETING and (after is State.PREPARING or group.generation != self.generation):
            called = True
            self.episodes[-1].also.append(cause)
        self.changes += changes
        if called or not rests:
            episode = self.episodes[-1]
            episode.changes += changes
            if after in RESTED:
                episode.end_ms = at_ms
                episode.end = after.name.lower()
                episode.to_generation = group.generation
                episode.members_after = len(group.members)
        self.state = after
        self.generation = group.generation
        self.members = {id: member.instance_id for id, member in group.members.items()}
        self.standing = group.version

    def avoidable(self) -> list[TrueEpisode]:
        """Rebalances caused only by restarts within the longest possible session timeout."""
        pair_returned = set(self._paired())
        found: list[TrueEpisode] = []
        for number, episode in enumerate(self.episodes):
            if episode.follows:
                made = bool(found) and found[-1] is self.episodes[number - 1]
            else:
                made = episode.absences_alone
            if made and pair_returned.issuperset(episode.changes):
                found.append(episode)
        return found

    def _paired(self) -> Iterator[Change]:
        """Halves of an absence: a member went, and the same process joined again, before or after the old member was gone."""
        lives: dict[str, list[list[Change]]] = {}  # of each process, or instance: how it came and went, each time
        for change in self.changes:
            of_client = lives.setdefault(change.instance_id or change.client, [])
            if change.what in ("joined", "replaced"):
                of_client.append([change])
            else:
                next(life for life in of_client if life[0].member_id == change.member_id).append(change)
        for of_client in lives.values():
            again = False  # it came as itself, and not for the first time
            for before, after in pairwise(of_client):
                went, back = before[-1], after[0]
                if len(before) == 1:  # its seat was kept; or the coordinator forgot that it had come, and it comes once more
                    again = again or back.what == "replaced"
                    if again:
                        yield back
                    continue
                deleted = any(went.at_ms <= at <= back.at_ms for at in self.deleted_ms)
                again = back.at_ms - went.at_ms <= SESSION_MS_MAX and went.what != "removed" and not deleted
                if again:
                    yield from before[1:]
                    yield back

    def interrupt(self, at_ms: int) -> None:
        """The coordinator stops: an open rebalance has no end."""
        if self.state not in RESTED:
            episode = self.episodes[-1]
            episode.end_ms = at_ms
            episode.end = "interrupted"
            episode.to_generation = self.generation
            episode.members_after = len(self.members)

    def resume(self, group: Group) -> None:
        """The group is loaded as it was stored."""
        self.state = group.state
        self.generation = group.generation
        self.members = {id: member.instance_id for id, member in group.members.items()}
        self.standing = group.version

    def forget(self, at_ms: int) -> None:
        """The group was deleted."""
        self.deleted_ms.append(at_ms)
        self.state = State.EMPTY
        self.generation = 0
        self.members = {}
        self.standing = None
