"""The history of a group of the consumer protocol (KIP-848), from its records. Its epochs are the generations.

Its records say more than those of a classic group: each new epoch is one, beside what asked for it, and so is each step of each member. So begin and end of a
rebalance are exact. A rebalance begins with a new epoch of a stable group, and ends when each member has reached the target of the newest epoch; members that
are away are not waited for. Each target also becomes a `GroupRecord`, as if a leader had assigned it: so all that reads those knows these groups too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coordinator.consumer.changes import (
    GONE,
    EpochChange,
    ExpressionChange,
    HoldingChange,
    ProfileChange,
    Resolved,
    Target,
    TargetChange,
    TargetEpochChange,
)
from coordinator.consumer.group import FIRST_EPOCH
from coordinator.consumer.member import NEW, STABLE, UNREVOKED, Held, Holding, Profile
from coordinator.notes import Replacement
from coordinator.states import State
from history.bump_causes import Asked, Gone, cause_of_bump, topics_evidence
from history.causes import InferredCause, name_of
from history.compared import MemberIdentity, compare
from history.conclusion import Inferred
from history.episodes import (
    UNKNOWN,
    AbsenceChanged,
    End,
    Entry,
    GroupDeleted,
    Handover,
    MemberJoined,
    MemberRemoved,
    Rebalance,
    RebalancesMissing,
    StaticReturned,
)
from history.newer import NewerRecord, understood
from history.note_records import GroupRecord
from history.synthetic import Member, group_value
from history.topic_names import TopicNames

AWAY = -2  # the epoch of a static member that will be back
Place = tuple[bytes, int]  # a partition by the id of its topic


class Seat:
    """A member, and since when it holds what it holds."""

    __slots__ = ("holding", "holding_since_ms", "id", "profile", "target")

    def __init__(self, id: str, profile: Profile) -> None:
        self.id = id
        self.profile = profile
        self.holding = NEW
        self.holding_since_ms = UNKNOWN
        self.target: Target = {}

    @property
    def identity(self) -> MemberIdentity:
        return MemberIdentity(self.id, self.profile.instance_id, self.profile.client_id, self.profile.client_host)


class Told(NamedTuple):
    """The whole history: `group_records` are the targets as records."""

    entries: list[Entry]
    group_records: list[GroupRecord]


class EpochStory:
    """`add` returns the entries that a record completes, `finish` the remaining ones. `group_records` has the target of each epoch so far."""

    def __init__(self, group: str, names: TopicNames) -> None:
        self.group = group
        self.names = names
        self.group_records: list[GroupRecord] = []
        self._forget()

    def _forget(self) -> None:
        self._epoch = UNKNOWN
        self._hash = 0
        self._target_epoch = UNKNOWN
        self._seats: dict[str, Seat] = {}
        self._resolved: dict[str, Resolved] = {}
        self._last: GroupRecord | None = None  # of the newest target
        self._open: Rebalance | None = None
        self._asked: Asked | None = None  # what asked for the open rebalance
        self._bumped_ms = self._computed_ms = UNKNOWN  # the newest epoch, and its target
        self._missing: RebalancesMissing | None = None  # rebalances before the next target
        self._upgraded = False  # the newest epoch is that of the group's last classic generation
        self._removed: NewerRecord | None = None  # the record that removed the group
        self._paused: dict[Place, int] = {}  # partitions that no member reads, and since when
        self._handovers: dict[str, int] = {}  # by member, the place in the open rebalance
        self._begin_step()

    def _begin_step(self) -> None:
        self._came: list[str] = []
        self._gone: list[Gone] = []
        self._subscribed: list[str] = []
        self._voted: list[str] = []
        self._matched = False
        self._returned: tuple[Gone, str] | None = None

    @property
    def open_rebalance(self) -> Rebalance | None:
        return self._open

    def add(self, record: NewerRecord) -> list[Entry]:
        change = record.change
        done: list[Entry] = []
        if self._removed is not None and not (isinstance(change, (EpochChange, TargetEpochChange)) and change.epoch == GONE):
            done = self._deletion()
        match change:
            case ProfileChange(id, None):
                self._remove(id, record.at_ms)
            case ProfileChange(id, profile):
                assert profile is not None
                self._set_profile(id, profile)
            case TargetChange(id, target):
                if id in self._seats:
                    self._seats[id].target = target or {}
            case HoldingChange(id, holding):
                if holding is not None and id in self._seats:
                    done += self._hold(self._seats[id], holding, record)
            case ExpressionChange(expression, resolved):
                self._resolve(expression, resolved)
            case EpochChange(epoch, hash):
                done += self._deleted(record) if epoch == GONE else self._bump(record, epoch, hash)
            case TargetEpochChange(epoch, _):
                if epoch != GONE:
                    done += self._computed(record, epoch)
        return done

    def add_all(self, group_records: Sequence[GroupRecord], newer: Sequence[NewerRecord]) -> list[Entry]:
        """`group_records`: those of the group's times in the classic protocol."""
        merged: list[GroupRecord | NewerRecord] = [*group_records, *newer]
        entries: list[Entry] = []
        for record in sorted(merged, key=lambda record: record.offset):
            entries += self.add(record) if isinstance(record, NewerRecord) else self.hand_back() if record.stored is not None else []
        return entries

    def hand_back(self) -> list[Entry]:
        """The group goes on in the classic protocol: its records were removed for that."""
        self._removed = None
        done = self.finish()
        self._forget()
        return done

    def finish(self) -> list[Entry]:
        done = self._deletion()
        missing, self._missing = self._missing, None
        if missing is not None:
            done.append(missing)
        if self._open is not None:
            done.append(self._open)
            self._open = None
        return done

    # Members.

    def _set_profile(self, id: str, profile: Profile) -> None:
        seat = self._seats.get(id)
        if seat is None:
            self._seats[id] = Seat(id, profile)
            before = next((gone for gone in self._gone if gone.identity.instance_id is not None and gone.identity.instance_id == profile.instance_id), None)
            if before is None:
                self._came.append(id)
            else:
                self._gone.remove(before)
                self._returned = before, id
            return
        if (seat.profile.topics, seat.profile.expression) != (profile.topics, profile.expression):
            self._subscribed.append(id)
        if seat.profile.assignor != profile.assignor:
            self._voted.append(id)
        seat.profile = profile

    def _remove(self, id: str, at_ms: int) -> None:
        seat = self._seats.pop(id, None)
        if seat is None:
            return
        self._gone.append(Gone(seat.identity, seat.profile, seat.holding, at_ms - seat.holding_since_ms))
        self._pause(seat.holding.assigned, at_ms)
        self._end_handover(id, at_ms)

    def _resolve(self, expression: str, resolved: Resolved | None) -> None:
        if resolved is None:
            self._resolved.pop(expression, None)
            return
        before = self._resolved.get(expression)
        self._matched = self._matched or before is None or before.topics != resolved.topics
        self._resolved[expression] = resolved

    def topics_of(self, profile: Profile) -> tuple[str, ...]:
        matched = self._resolved.get(profile.expression)
        return profile.topics if matched is None else tuple(sorted({*profile.topics, *matched.topics}))

    def _hold(self, seat: Seat, holding: Holding, record: NewerRecord) -> list[Entry]:
        before, seat.holding = seat.holding, holding
        since_ms, seat.holding_since_ms = seat.holding_since_ms, record.at_ms
        done: list[Entry] = []
        returned, self._returned = self._returned, None
        if returned is not None and returned[1] == seat.id:
            done.append(self._seat_kept(returned[0], seat, record))
        elif holding.epoch == AWAY and seat.profile.instance_id is not None:
            done.append(AbsenceChanged(record.at_ms, seat.id, seat.profile.instance_id, False, 0))
        self._pause({id: {number: 0 for number in numbers if number not in holding.assigned.get(id, {})} for id, numbers in before.assigned.items()}, record.at_ms)
        self._resume(holding.assigned, record.at_ms)
        self._hand_over(seat, before, since_ms, record.at_ms)
        if not (self._came or self._gone or self._subscribed) or holding.epoch > 0:
            self._begin_step()
        return done + self._close_if_reached(record)

    def _seat_kept(self, old: Gone, new: Seat, record: NewerRecord) -> StaticReturned:
        identity = old.identity
        assert identity.instance_id is not None
        away_ms = old.held_ms if old.holding.epoch == AWAY else UNKNOWN
        if self._last is not None and self._open is None:
            self._snapshot(record, self._last.generation)
        return StaticReturned(
            record.at_ms, identity.instance_id, old.identity.member_id, new.id, new.profile.client_id, new.profile.client_host, away_ms, Replacement.NO_REBALANCE
        )

    # Partitions on their way.

    def _pause(self, held: Held, at_ms: int) -> None:
        for id, numbers in held.items():
            for number in numbers:
                self._paused.setdefault((id, number), at_ms)

    def _resume(self, held: Held, at_ms: int) -> None:
        for id, numbers in held.items():
            for number in numbers:
                since_ms = self._paused.pop((id, number), UNKNOWN)
                if since_ms >= 0 and self._open is not None:
                    self._open.stopped_ms = max(self._open.stopped_ms, 0) + max(at_ms - since_ms, 0)

    def _hand_over(self, seat: Seat, before: Holding, since_ms: int, at_ms: int) -> None:
        """The member was told to give partitions up, or has done so."""
        holding = seat.holding
        if before.state is UNREVOKED and (holding.state is not UNREVOKED or holding.epoch == AWAY):
            self._end_handover(seat.id, at_ms)
        if holding.state is not UNREVOKED or not holding.pending or self._open is None:
            return
        places = {(id, number) for id, numbers in holding.pending.items() for number in numbers}
        waiting = [other for other in self._seats.values() if other is not seat and any((id, number) in places for id, numbers in other.target.items() for number in numbers)]
        partitions = tuple(sorted((self.names.name(id), number) for id, number in places))
        known = self._handovers.get(seat.id)
        began_ms = self._open.handovers[known].told_ms if known is not None else at_ms
        handover = Handover(seat.id, seat.profile.instance_id, began_ms, UNKNOWN, partitions, tuple(other.identity.key for other in waiting))
        if known is None:
            self._handovers[seat.id] = len(self._open.handovers)
            self._open.handovers.append(handover)
        else:
            self._open.handovers[known] = handover

    def _end_handover(self, id: str, at_ms: int) -> None:
        place = self._handovers.pop(id, None)
        if place is not None and self._open is not None:
            self._open.handovers[place] = self._open.handovers[place]._replace(given_ms=at_ms)

    # Epochs.

    def _bump(self, record: NewerRecord, epoch: int, hash: int) -> list[Entry]:
        before, self._epoch = self._epoch, epoch
        asked = Asked(
            [self._seats[id].identity for id in self._came if id in self._seats],
            self._gone,
            [self._seats[id].identity for id in self._subscribed if id in self._seats],
            [self._seats[id].identity for id in self._voted if id in self._seats],
            self._matched,
            hash != self._hash,
            self._upgraded,
        )
        self._upgraded = before == UNKNOWN and bool(self._seats) and all(seat.profile.classic is not None for seat in self._seats.values())
        self._hash = hash
        done: list[Entry] = []
        if self._upgraded:
            self._target_epoch = epoch
        elif epoch != (FIRST_EPOCH if before == UNKNOWN else before) + 1:
            done += self._lose(record, before)
        elif self._missing is None:
            self._begin(record, asked, max(before, 0))
        self._bumped_ms = record.at_ms
        self._begin_step()
        if not self._seats:
            done += self._emptied(record, epoch)
        return done

    def _lose(self, record: NewerRecord, before: int) -> list[Entry]:
        """Records of earlier epochs are missing: compaction has removed them."""
        opened, self._open = self._open, None
        self._handovers.clear()
        after_ms = self._bumped_ms
        self._missing = RebalancesMissing(after_ms, record.at_ms, before, UNKNOWN, 0 if before < 0 else 1, UNKNOWN, before=self._last, older=before < 0)
        if opened is None:
            return []
        opened.end = End.UNKNOWN
        return [opened]

    def _begin(self, record: NewerRecord, asked: Asked, from_epoch: int) -> None:
        opened = self._open
        if opened is not None:
            opened.rounds += 1
            cause = cause_of_bump(asked, opened.from_state is State.EMPTY)[0]
            opened.restart_causes.append(cause)
        else:
            was_empty = self._last is None or not self._last.member_ids
            generation = self._last.generation if self._last is not None else 0
            opened = self._open = Rebalance(record.at_ms, State.EMPTY if was_empty else State.STABLE, generation, None)
            opened.before = self._last
            opened.members_before = len(self._last.member_ids) if self._last is not None else 0
            self._asked = asked
            self._handovers.clear()
        opened.epochs.append(self._epoch)
        for member in asked.came:
            opened.joins.append(MemberJoined(record.at_ms, *member, UNKNOWN, False, None))
        for gone in asked.gone:
            opened.removals.append(MemberRemoved(record.at_ms, gone.identity.member_id, gone.identity.instance_id, gone.removal, UNKNOWN, UNKNOWN, None))

    def _computed(self, record: NewerRecord, epoch: int) -> list[Entry]:
        self._target_epoch, self._computed_ms = epoch, record.at_ms
        self.names.learn([(self.topics_of(seat.profile), seat.target) for seat in self._seats.values()], self._hash)
        if not self._seats and self._last is not None and self._last.generation == epoch and not self._last.member_ids:
            return []
        after = self._snapshot(record, epoch)
        missing, self._missing = self._missing, None
        if missing is not None:
            return [missing._replace(before_ms=record.at_ms, to_generation=epoch, after=after)]
        return self._close_if_reached(record)

    def _emptied(self, record: NewerRecord, epoch: int) -> list[Entry]:
        """No member is left. An older Kafka writes no target for that."""
        self._target_epoch = epoch
        after = self._snapshot(record, epoch)
        missing, self._missing = self._missing, None
        if missing is not None:
            return [missing._replace(to_generation=epoch, after=after)]
        return self._close(record, End.EMPTY)

    def _snapshot(self, record: NewerRecord, epoch: int) -> GroupRecord:
        members = [
            Member(seat.identity, seat.profile.rebalance_timeout_ms, self.topics_of(seat.profile), {self.names.name(id): numbers for id, numbers in seat.target.items()})
            for seat in sorted(self._seats.values(), key=lambda seat: seat.id)
        ]
        votes = [seat.profile.assignor for seat in self._seats.values() if seat.profile.assignor is not None]
        self._last = GroupRecord(record.offset, record.at_ms, group_value(epoch, record.at_ms, members, votes), record.epoch, is_target=True)
        self.group_records.append(self._last)
        return self._last

    def _close_if_reached(self, record: NewerRecord) -> list[Entry]:
        if self._open is None or self._epoch != self._target_epoch or not self._seats:
            return []
        for seat in self._seats.values():
            holding = seat.holding
            if holding.epoch != AWAY and (holding.state is not STABLE or holding.epoch != self._target_epoch):
                return []
        return self._close(record, End.STABLE)

    def _close(self, record: NewerRecord, end: End) -> list[Entry]:
        opened, self._open = self._open, None
        if opened is None:
            return []
        opened.end, opened.ended_ms, opened.to_generation = end, record.at_ms, self._epoch
        opened.after = self._last
        opened.members_after = len(self._seats)
        computed_ms = max(self._computed_ms, self._bumped_ms) if end is End.STABLE else record.at_ms
        opened.join_ms, opened.sync_ms = max(computed_ms - self._bumped_ms, 0), max(record.at_ms - computed_ms, 0)
        self._handovers.clear()
        if self._asked is not None and self._last is not None and self._last.stored is not None:
            opened.told = self._conclusion(opened, self._asked)
        return [opened]

    def _conclusion(self, opened: Rebalance, asked: Asked) -> Inferred:
        assert self._last is not None
        assert self._last.stored is not None
        before = opened.before.stored if opened.before is not None else None
        difference = compare(before, self._last.stored)
        cause, strong, member, evidence = cause_of_bump(asked, opened.from_state is State.EMPTY)
        name = name_of(cause if opened.from_generation else InferredCause.FORMATION)
        changed = topics_evidence(before, self._last.stored) if asked.only_topics else ""
        expired = [gone.identity for gone in asked.gone if gone.seems_expired]
        return Inferred(
            difference, opened.began_ms, opened.began_ms, False, opened.rounds, name, strong, member, f"{evidence}: {changed}" if changed else evidence, expired
        )

    # The end of the group.

    def _deleted(self, record: NewerRecord) -> list[Entry]:
        opened = self._open
        self._forget()
        self._removed = record
        if opened is None:
            return []
        opened.end, opened.ended_ms = End.INTERRUPTED, record.at_ms
        return [opened]

    def _deletion(self) -> list[Entry]:
        removed, self._removed = self._removed, None
        if removed is None:
            return []
        self.group_records.append(GroupRecord(removed.offset, removed.at_ms, None, removed.epoch, is_target=True))
        return [GroupDeleted(removed.at_ms, True)]


def tell(group: str, group_records: Sequence[GroupRecord], newer: Sequence[NewerRecord], names: TopicNames | None = None) -> Told:
    """What the records of the consumer protocol tell; nothing if some are not understood. `group_records`: those of the group's times in the classic protocol."""
    if not understood(newer):
        return Told([], [])
    names = TopicNames() if names is None else names
    told = _tell(EpochStory(group, names), group_records, newer)
    return _tell(EpochStory(group, names), group_records, newer) if names.learned_late else told


def _tell(story: EpochStory, group_records: Sequence[GroupRecord], newer: Sequence[NewerRecord]) -> Told:
    return Told(story.add_all(group_records, newer) + story.finish(), story.group_records)
