"""Notes about the epochs of consumer groups: why there is a new one, what its target moves, and when the last member has reached it.

They follow from the changes of a step alone, so each way to change a group has its notes. Nothing here is stored or decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coordinator.config import NOTE_BUDGET_MAX, NOTES_PER_NEW_MEMBER
from coordinator.consumer.changes import (
    GONE,
    Change,
    EpochChange,
    ExpressionChange,
    HoldingChange,
    ProfileChange,
    TargetChange,
    TargetEpochChange,
)
from coordinator.consumer.group import is_reconciled
from coordinator.consumer.member import Profile
from coordinator.consumer.note_count import UNKNOWN
from coordinator.notes import Cause, EpochStep, Note
from coordinator.states import State
from protocol.messages.coordinator_notes import EpochNote

if TYPE_CHECKING:
    from coordinator.consumer.group import ConsumerGroup
    from coordinator.consumer.member import ConsumerMember
    from coordinator.step_output import StepOutput
    from protocol.message import Message

NAMED_MAX: Final = 20  # members in a note
INT_MAX: Final = (1 << 31) - 1


class StepNotes:
    """What one step changes. Made before the changes are applied; `add` is called after that. `cause`: of the new epoch; None: it follows from the changes."""

    __slots__ = ("_before", "_cause", "_group", "_members", "_moved", "_new", "_pending", "computed")

    def __init__(self, group: ConsumerGroup, changes: list[Change], cause: Cause | None) -> None:
        self._group = group
        self._before = group.epoch
        self._cause = cause
        self._members: list[str] = []
        self._moved = 0
        self._new = 0
        self.computed = False
        self._pending: dict[str, bool] = {}  # by member: whether it has something to give up after the step
        came: list[str] = []
        gone: list[str] = []
        subscribed: list[str] = []
        voted: list[str] = []
        profiles: dict[str, Profile] = {}  # of this step
        matched = other_topics = upgraded = False
        for change in changes:
            if isinstance(change, ProfileChange):
                member = group.members.get(change.member_id)
                before = profiles.get(change.member_id, member.profile if member is not None else None)
                if change.profile is None:
                    gone.append(change.member_id)
                    continue
                profiles[change.member_id] = change.profile
                if before is None:
                    came.append(change.member_id)
                else:
                    if (before.topics, before.expression) != (change.profile.topics, change.profile.expression):
                        subscribed.append(change.member_id)
                    if before.assignor != change.profile.assignor:
                        voted.append(change.member_id)
            elif isinstance(change, ExpressionChange):
                matched = matched or change.resolved is not None
            elif isinstance(change, EpochChange):
                upgraded = upgraded or change.epoch == group.epoch  # the epoch that a classic group's generation became is written first
                other_topics = other_topics or change.hash != group.hash
            elif isinstance(change, TargetChange):
                if change.target is not None:
                    old = group.targets.get(change.member_id, {})
                    self._moved += sum(number not in old.get(id, ()) for id, numbers in change.target.items() for number in numbers)
            elif isinstance(change, HoldingChange):
                self._pending[change.member_id] = change.holding is not None and bool(change.holding.pending)
            elif isinstance(change, TargetEpochChange):
                self.computed = change.epoch != GONE and change.at_ms > 0
        self._new = len(came)
        by_cause = (
            (Cause.UPGRADED, came if upgraded else []),
            (Cause.NEW_MEMBER, came if not gone else []),
            (Cause.MEMBER_LEFT, gone if not came else []),  # with both, a static member is back under another id
            (Cause.MEMBER_METADATA_CHANGED, subscribed),
            (Cause.REGEX_RESOLVED, [""] if matched else []),
            (Cause.ASSIGNOR_CHANGED, voted if not other_topics else []),
            (Cause.TOPICS_CHANGED, [""] if other_topics else []),
        )
        found, self._members = next(((found, names) for found, names in by_cause if names), (Cause.REQUESTED, []))
        if cause is None:
            self._cause = found

    def add(self, out: StepOutput, changes: list[Change], text: str, assignor: str) -> None:
        """`text`: about the new epoch; `assignor`: the one that a target is computed with."""
        group = self._group
        count = group.note_count
        count.budget = min(count.budget + NOTES_PER_NEW_MEMBER * self._new, max(NOTE_BUDGET_MAX, NOTES_PER_NEW_MEMBER * len(group.members)))
        for id, pending in self._pending.items():
            if pending:
                count.tell(id, out.now)
            else:
                count.give_up(id, out.now)
        if group.epoch > self._before:
            if count.unsettled_since_ms < 0:
                count.unsettled_since_ms = out.now
            named = [id for id in self._members[:NAMED_MAX] if id]
            add_note(out, group, EpochNote(EpochStep.BEGUN, self._cause if self._cause is not None else UNKNOWN, named, text=text))
        if self.computed:
            add_note(out, group, EpochNote(EpochStep.COMPUTED, moved=self._moved, assignor=assignor))
        if count.unsettled_since_ms >= 0 and any(isinstance(change, (HoldingChange, TargetEpochChange)) for change in changes) and is_settled(group):
            took_ms, count.unsettled_since_ms = out.now - count.unsettled_since_ms, UNKNOWN
            held_up = count.take_held_up()[:NAMED_MAX]
            add_note(out, group, EpochNote(EpochStep.REACHED, took_ms=took_ms, held_up_by=[id for id, _ in held_up], held_up_ms=[min(ms, INT_MAX) for _, ms in held_up]))


def add_note(out: StepOutput, group: ConsumerGroup, body: Message) -> None:
    """Unless the group's budget of notes is used up."""
    count = group.note_count
    if not count.spend(out.now):
        return
    if count.since_ms < 0:
        count.since_ms = out.wall
    number = count.next_number + count.dropped
    dropped, count.dropped = count.dropped, 0
    count.next_number = number + 1
    out.notes.append(Note(group.id, out.wall, group.epoch, State.DEAD, body, dropped, count.since_ms, number))


def is_settled(group: ConsumerGroup) -> bool:
    """Whether each member has reached the newest target. Those that are away are not waited for."""
    if group.epoch != group.target_epoch:
        return False
    count = group.note_count
    last = group.members.get(count.behind)
    if last is not None and is_behind(group, last):
        return False
    for id in reversed(group.members):  # members are usually heard in their order, so the last one is behind for the longest time
        if is_behind(group, group.members[id]):
            count.behind = id
            return False
    return True


def is_behind(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return member.holding.epoch >= 0 and not is_reconciled(member.holding, group.target_epoch)
