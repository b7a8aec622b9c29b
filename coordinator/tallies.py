"""Notes that count frequent events: late heartbeats and refused commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from coordinator.classic.group import Group
from coordinator.classic.member import Member
from coordinator.consumer.group import ConsumerGroup
from coordinator.consumer.note_count import UNKNOWN
from coordinator.consumer.noting import add_note as add_note_of_consumers
from coordinator.deadlines import NEVER, Timed
from coordinator.notes import spend_note_budget
from coordinator.step_output import StepOutput
from protocol.messages.coordinator_notes import CommitRefused, HeartbeatGap, Heartbeats

GAPS_EVERY_MS: Final = 60_000
REFUSALS_EVERY_MS: Final = 10_000
# The maximum number of entries that each tally of a shard collects between two notes; further entries are dropped.
ENTRIES_MAX: Final = 10_000

CommitRefusal = tuple[str, int, str, str | None]  # group, error, member id, instance id


class HeartbeatGaps(Timed):
    """Members with more than a third of their session timeout between two heartbeats."""

    __slots__ = ("_gaps", "_size")

    def __init__(self) -> None:
        super().__init__()
        self._gaps: dict[str, dict[str, HeartbeatGap]] = {}
        self._size = 0

    def add(self, out: StepOutput, member: Member, gap_ms: int, now: int) -> None:
        members = self._gaps.setdefault(member.group_id, {})
        key = member.instance_id or member.id
        gap = members.get(key)
        if gap is None:
            if self._size >= ENTRIES_MAX:
                return
            self._size += 1
            gap = members[key] = HeartbeatGap(key)
        if gap_ms > gap.max_gap_ms:
            gap.max_gap_ms, gap.session_ms = gap_ms, member.session_timeout_ms
        gap.count += 1
        if self.deadline == NEVER:
            out.deadlines.set(self, now + GAPS_EVERY_MS)

    def due(self, out: StepOutput, groups: dict[str, Group]) -> None:
        gaps_by_group, self._gaps = self._gaps, {}
        self._size = 0
        for id, members in gaps_by_group.items():
            group = groups.get(id)
            if group is not None and spend_note_budget(group, out.now):
                out.add_note(group, Heartbeats(list(members.values())))


class CommitRefusals(Timed):
    """Refused commits by group, error and member: zombies, and consumers whose polls take too long."""

    __slots__ = ("_consumers", "_counts")

    def __init__(self, consumers: Mapping[str, ConsumerGroup]) -> None:
        super().__init__()
        self._consumers = consumers
        self._counts: dict[CommitRefusal, tuple[int, int, int, int]] = {}  # how many, since when, the last one's epoch and the member's

    def add(self, out: StepOutput, refusal: CommitRefusal, sent_epoch: int = UNKNOWN, member_epoch: int = UNKNOWN) -> None:
        """The epochs are those of groups of the consumer protocol."""
        before = self._counts.get(refusal)
        if before is None and len(self._counts) >= ENTRIES_MAX:
            return
        count, since = (0, out.wall) if before is None else before[:2]
        self._counts[refusal] = (count + 1, since, sent_epoch, member_epoch)
        if self.deadline == NEVER:
            out.deadlines.set(self, out.now + REFUSALS_EVERY_MS)

    def due(self, out: StepOutput, groups: dict[str, Group]) -> None:
        counts, self._counts = self._counts, {}
        for (id, error, member_id, instance_id), (count, since, sent_epoch, member_epoch) in counts.items():
            group = groups.get(id)
            consumers = self._consumers.get(id)
            if consumers is not None:
                add_note_of_consumers(out, consumers, CommitRefused(error, member_id, instance_id, count, since, sent_epoch, member_epoch))
            elif group is not None and spend_note_budget(group, out.now):
                out.add_note(group, CommitRefused(error, member_id, instance_id, count, since))
