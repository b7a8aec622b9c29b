"""Spells: the time of each member in the group, from its join to its removal, computed from the group's events in the order of `order.py`.

Notes contain both times. If notes are missing, group records bound them: a member that is in a record and not in the previous
record joined in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.notes import Removal, Replacement, ShardChange
from coordinator.states import State
from history.causes import removal_end
from history.commits import NearbyCommits, last_commit
from history.compared import MemberIdentity
from history.conclusion import Inferred
from history.consumer import partitions_of
from history.inferred import LATE_MS, InferenceCache, is_replacement, join_phase_end_ms, last_stable_record, stored_while_stable
from history.note_records import GroupRecord, NoteRecord, known_member
from protocol.messages.consumer_offsets import MemberMetadata
from protocol.messages.coordinator_notes import (
    CoordinatorChange,
    Heartbeats,
    MemberGone,
    MemberJoin,
    NoteHeader,
    StateChange,
    StaticReplaced,
)

OPEN = "open"
UNKNOWN = "unknown"
REPLACED = "replaced"
EXPIRED = "expired"
LEFT = "left"
UPGRADED = "upgraded"  # its group changed to a newer protocol
COORDINATOR_AWAY = "coordinator_away"  # the coordinator was away, and heard of none of the members afterwards: it is unknown whether they were
LOADED_NOTE_DELAY_MS = 100  # sessions begin before the coordinator writes its LOADED note


@dataclass(slots=True)
class MemberSpell:
    """The time of one member in the group. -1 and None: unknown. Times are between `..._lo_ms` and `..._hi_ms`; both are equal if a note has the time."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_ms: int
    joined_lo_ms: int
    joined_hi_ms: int
    joined_generation: int  # the group's generation at its join
    ended_lo_ms: int = -1
    ended_hi_ms: int = -1
    end: str = OPEN
    ended_generation: int = -1
    from_generation: int = -1  # the first and last generation of the member
    to_generation: int = -1
    partitions: tuple[str, ...] | None = None  # its last assignment
    assigned_ms: int = -1
    last_commit_ms: int = -1
    last_heartbeat_ms: int = -1
    seen_ms: int = -1  # the latest time at which it was certainly in the group
    max_gap_ms: int = -1
    replaced_by: str | None = None
    outcome: Replacement | None = None  # of its replacement
    guessed: bool = False  # its end is inferred from records, without a note
    noted: bool = True  # its join has a note
    unheard: bool = False  # no heartbeat since the coordinator was loaded; the time of the last one is unknown

    @property
    def identity(self) -> MemberIdentity:
        return MemberIdentity(self.member_id, self.instance_id, self.client_id, self.host)

    @property
    def key(self) -> str:
        return self.instance_id if self.instance_id is not None else self.member_id

    @property
    def last_alive_ms(self) -> int:
        """The last time at which the process is known to have run."""
        return max(self.last_heartbeat_ms, self.last_commit_ms, self.joined_lo_ms)


class Spells:
    """`all` has the spells in the order of their begin."""

    def __init__(self, between: InferenceCache, epochs_ms: Mapping[int, int]) -> None:
        """`epochs_ms`: when the first record of each coordinator epoch was appended to the log, by any group."""
        self.all: list[MemberSpell] = []
        self._inferences = between
        self._epochs_ms = epochs_ms
        self._open: dict[str, MemberSpell] = {}
        self._ended: dict[str, MemberSpell] = {}
        self._last_record: GroupRecord | None = None
        self._generation_records: list[GroupRecord] = []  # the records so far of the last record's generation
        self._generation = 0
        self._members_known_ms = -1  # the latest time at which the members are known
        self._count: tuple[int, int] | None = None
        self._notes_missing = False  # since `_members_known_ms`, or no note was read
        self._recently_ended: list[MemberSpell] = []  # spells that ended since the last record
        self._loaded_ms = -1  # when the coordinator was last loaded; every session started again then
        self._seats_kept: list[tuple[MemberSpell, GroupRecord, GroupRecord]] = []  # spells replaced within a generation, each with the two records that show it

    def add(self, event: NoteRecord | GroupRecord, *, linked: bool = True) -> None:
        """`linked`: no record is missing between this one and the previous one."""
        if isinstance(event, GroupRecord):
            self._fold_record(event, linked)
        elif event.group:
            self._count_note(event.header)
            self._fold_note(event.header, event.body)
        elif isinstance(event.body, CoordinatorChange) and known_member(ShardChange, event.body.what) in (ShardChange.LOADED, ShardChange.RESUMED):
            self._loaded_ms = event.at_ms
            self._coordinator_loaded(event.at_ms)

    # Notes.

    def _count_note(self, header: NoteHeader) -> None:
        before, self._count = self._count, (header.counted_from, header.number)
        if header.number < 0:
            self._notes_missing = self._notes_missing or header.dropped > 0
        elif before is None or before[0] != header.counted_from:
            self._notes_missing = self._notes_missing or header.number > 0
        else:
            self._notes_missing = self._notes_missing or header.number != before[1] + 1

    def _fold_note(self, header: NoteHeader, body: object) -> None:
        at = header.ts
        match body:
            case MemberJoin():
                self._joined(header, body)
            case MemberGone() if body.session_ms:  # session 0: the client was only given a member id
                self._note_removal(header, body)
            case StaticReplaced():
                self._replaced(header, body)
            case StateChange() if body.to_state == State.COMPLETING:
                self._in_generation(header.generation)
            case Heartbeats():
                gaps = {gap.member_key: gap.max_gap_ms for gap in body.members}
                for spell in self._open.values():
                    spell.max_gap_ms = max(spell.max_gap_ms, gaps.get(spell.key, -1))
        if not self._notes_missing:
            self._members_known_ms = max(self._members_known_ms, at)

    def _joined(self, header: NoteHeader, body: MemberJoin) -> None:
        spell = self._open.get(body.member_id)
        if spell is None:
            spell = self._begin(MemberIdentity(body.member_id, body.instance_id, body.client_id, body.host), header.ts, header.generation)
        spell.session_ms = body.session_ms
        spell.seen_ms = spell.last_heartbeat_ms = header.ts

    def _begin(self, identity: MemberIdentity, at_ms: int, generation: int) -> MemberSpell:
        spell = MemberSpell(*identity, session_ms=-1, joined_lo_ms=self._members_known_ms if self._notes_missing else at_ms, joined_hi_ms=at_ms, joined_generation=generation)
        spell.seen_ms = at_ms
        self._open[identity.member_id] = spell
        self.all.append(spell)
        return spell

    def _note_removal(self, header: NoteHeader, body: MemberGone) -> None:
        spell = self._open.get(body.member_id)
        if spell is None:
            if body.member_id in self._ended and not self._ended[body.member_id].guessed:
                return  # its first removal was not stored, so a new coordinator has removed it again
            spell = self._ended.pop(body.member_id, None)
        if spell is None:
            spell = self._begin(MemberIdentity(body.member_id, body.instance_id, "", ""), header.ts, header.generation)
            spell.joined_lo_ms, spell.noted = -1, False
        spell.session_ms = body.session_ms
        removal = known_member(Removal, body.how)
        heartbeat_ms = header.ts - body.since_heartbeat_ms
        spell.unheard = removal is Removal.EXPIRED and spell.joined_hi_ms < self._loaded_ms and heartbeat_ms <= self._loaded_ms + LOADED_NOTE_DELAY_MS
        if not spell.unheard:
            spell.last_heartbeat_ms = max(spell.last_heartbeat_ms, heartbeat_ms)
        self._end(spell, removal_end(removal), header.ts, header.ts, header.generation)

    def _end(self, spell: MemberSpell, end: str, lo_ms: int, hi_ms: int, generation: int, *, guessed: bool = False) -> None:
        spell.end, spell.ended_lo_ms, spell.ended_hi_ms, spell.ended_generation, spell.guessed = end, lo_ms, hi_ms, generation, guessed
        self._open.pop(spell.member_id, None)
        self._ended[spell.member_id] = spell
        self._recently_ended.append(spell)

    def _replaced(self, header: NoteHeader, body: StaticReplaced) -> None:
        at = header.ts
        new = MemberIdentity(body.new_id, body.instance_id, body.client_id, body.host)
        if body.new_id in self._open:
            return
        old = self._open.get(body.old_id) or self._ended.get(body.old_id)
        if old is None:
            old = self._begin(MemberIdentity(body.old_id, body.instance_id, "", ""), at, header.generation)
            old.joined_lo_ms, old.noted = -1, False
        old.last_heartbeat_ms = max(old.last_heartbeat_ms, at - body.since_heartbeat_ms)
        self._end(old, REPLACED, at, at, header.generation)
        old.replaced_by, old.outcome = body.new_id, known_member(Replacement, body.outcome)
        self._pass_seat(old, self._begin(new, at, header.generation))

    def _pass_seat(self, old: MemberSpell, new: MemberSpell) -> None:
        new.session_ms, new.partitions, new.assigned_ms = old.session_ms, old.partitions, new.joined_hi_ms
        if old.outcome is Replacement.NO_REBALANCE:
            new.from_generation = new.to_generation = old.to_generation

    def _in_generation(self, generation: int) -> None:
        self._generation = generation
        for spell in self._open.values():
            spell.to_generation = generation
            if spell.from_generation < 0:
                spell.from_generation = generation

    def _coordinator_loaded(self, at_ms: int) -> None:
        """End the spells of members that are not in the stored group: the loaded coordinator does not know them."""
        stored = self._last_record.member_ids if self._last_record is not None else set()
        for spell in list(self._open.values()):
            if spell.member_id not in stored:
                self._end(spell, UNKNOWN, min(spell.seen_ms, at_ms), at_ms, self._generation, guessed=True)
        if self._last_record is not None:
            self._generation = self._last_record.generation
            for spell in self._open.values():
                spell.to_generation = min(spell.to_generation, self._generation)

    # Records.

    def _fold_record(self, record: GroupRecord, linked: bool) -> None:
        before, self._last_record = self._last_record, record
        same_generation, self._generation_records = self._generation_records, [record]
        around = self._inferences.nearby_commits(record)
        for spell in (*self._open.values(), *self._recently_ended):
            _update_last_commit(spell, around)
        self._recently_ended.clear()
        if record.stored is None or (record.newer_since_ms >= 0 and not record.newer_told) or (before is not None and record.generation < before.generation):
            before = None
            self._end_spells_of_previous_group(record)
        if not record.generation:  # a new group, stored when its first member has joined
            before = None
        if record.generation <= 0:
            pass
        elif before is not None and before.stored is not None and is_replacement(before, record):
            same_generation.append(record)
            self._generation_records = same_generation
            self._same_generation(before, record)
        else:
            if before is not None and same_generation:
                before = last_stable_record(same_generation, len(same_generation) - 1, record)
            self._next_generation(before, record, linked)
            self._members_known_ms = max(self._members_known_ms, join_phase_end_ms(record))
            self._notes_missing = True  # until the next note's number shows that none is missing
        if self._count is not None and record.generation > 0:
            self._notes_missing = False
            self._members_known_ms = max(self._members_known_ms, join_phase_end_ms(record))

    def _end_spells_of_previous_group(self, record: GroupRecord) -> None:
        """End the spells of the previous group of this name, which was deleted, or of the group before its time in a newer protocol."""
        upgraded = record.taken_over or record.newer_since_ms >= 0
        at_ms = record.newer_since_ms if record.newer_since_ms >= 0 else record.at_ms
        for spell in list(self._open.values()):
            self._end(spell, UPGRADED if upgraded else UNKNOWN, min(spell.seen_ms, at_ms), at_ms, self._generation, guessed=True)
        self._ended.clear()
        self._generation = 0

    def _same_generation(self, before: GroupRecord, record: GroupRecord) -> None:
        """Begin a new spell for each static member with a new member id: its process returned, within this generation or at the end of a join phase."""
        assert before.stored is not None
        assert record.stored is not None
        old_ids = {member.group_instance_id: member.member_id for member in before.stored.members if member.group_instance_id is not None}
        for member in record.stored.members:
            instance = member.group_instance_id
            old_id = old_ids.get(instance) if instance is not None else None
            if old_id is None or old_id == member.member_id or member.member_id in self._open or member.member_id in self._ended:
                continue
            old = self._open.get(old_id)
            new = self._begin(MemberIdentity(member.member_id, instance, member.client_id, member.client_host), record.at_ms, record.generation)
            new.joined_lo_ms, new.noted = before.at_ms, False
            if old is not None:
                old.replaced_by, old.outcome = member.member_id, Replacement.NO_REBALANCE
                self._end(old, REPLACED, max(old.last_alive_ms, before.at_ms), record.at_ms, record.generation, guessed=True)
                self._seats_kept.append((old, before, record))
                self._pass_seat(old, new)
            self._update_from_record(new, record, member)

    def _next_generation(self, before: GroupRecord | None, record: GroupRecord, linked: bool) -> None:
        stored = record.stored
        assert stored is not None
        at = join_phase_end_ms(record)
        members = {member.member_id: member for member in stored.members}
        ended_without_note = [spell for spell in self._open.values() if spell.member_id not in members]
        new_members = [member for id, member in members.items() if id not in self._open and (id not in self._ended or self._ended[id].guessed)]
        inferred = self._inferences.infer(before, record) if (ended_without_note or new_members or self._seats_kept) and before is not None else None
        aborted_rounds = record.generation - 1 - (before.generation if before is not None else 0)
        offsets = sorted({record_after.offset for _, _, record_after in self._seats_kept if record_after.at_ms < at}, reverse=True)
        for spell, record_before, record_after in self._seats_kept:
            later = offsets.index(record_after.offset) if record_after.offset in offsets else 0
            if not stored_while_stable(record_before, record_after, record, aborted_rounds - later):  # a rebalance was under way
                spell.outcome = _outcome(spell, inferred)
        self._seats_kept.clear()
        generation = before.generation if before is not None else -1
        began = inferred.start_lo_ms if inferred is not None and linked else -1
        for spell in ended_without_note:
            self._guess_end(spell, new_members, inferred, began, at, generation)
        for member in new_members:
            ended = self._ended.pop(member.member_id, None)
            if ended is not None:  # its guessed end was wrong
                ended.end, ended.ended_lo_ms, ended.ended_hi_ms, ended.guessed = OPEN, -1, -1, False
                self._open[member.member_id] = ended
                continue
            new = self._begin(MemberIdentity(member.member_id, member.group_instance_id, member.client_id, member.client_host), at, generation)
            new.joined_lo_ms, new.noted = max(began, self._members_known_ms if before is not None else -1), False
        if before is not None:
            self._mark_coordinator_away(before, record)
        self._generation = record.generation
        for id, member in members.items():
            if id in self._open:
                self._update_from_record(self._open[id], record, member)

    def _mark_coordinator_away(self, before: GroupRecord, record: GroupRecord) -> None:
        """Mark the ends of all members of `before` if none of them was heard of since the coordinator was loaded.

        A loaded coordinator begins a new session for each member. That all of them miss it is more likely an outage of the broker than of each client.
        """
        gone = [self._ended[id] for id in before.member_ids if id in self._ended]
        if not gone or len(gone) < len(before.member_ids):
            return
        changed = 0 <= before.epoch < record.epoch
        loaded_ms = self._epochs_ms.get(record.epoch, record.at_ms)
        in_time = join_phase_end_ms(record) <= loaded_ms + max(spell.session_ms for spell in gone) + LATE_MS
        if all(spell.unheard or (spell.guessed and changed and in_time and spell.last_commit_ms < loaded_ms) for spell in gone):
            for spell in gone:
                spell.end, spell.replaced_by, spell.outcome = COORDINATOR_AWAY, None, None

    def _guess_end(
        self, spell: MemberSpell, new_members: list[MemberMetadata], inferred: Inferred | None, began: int, at_ms: int, generation: int
    ) -> None:
        lo = min(max(spell.seen_ms, spell.last_commit_ms, began), at_ms)
        successor = next((member for member in new_members if spell.instance_id is not None and member.group_instance_id == spell.instance_id), None)
        end = LEFT if inferred is not None else UNKNOWN
        if inferred is not None and any(member.member_id == spell.member_id for member in inferred.expired):
            end = EXPIRED
        elif successor is not None:
            spell.replaced_by, spell.outcome = successor.member_id, _outcome(spell, inferred)
            end = REPLACED
        self._end(spell, end, lo, at_ms, generation, guessed=True)

    def _update_from_record(self, spell: MemberSpell, record: GroupRecord, member: MemberMetadata) -> None:
        assert record.stored is not None
        spell.partitions = partitions_of(record.stored, member)
        spell.assigned_ms = spell.seen_ms = max(spell.seen_ms, join_phase_end_ms(record))
        spell.session_ms = member.session_timeout
        spell.client_id = spell.client_id or member.client_id
        spell.host = spell.host or member.client_host
        spell.to_generation = record.generation
        if spell.from_generation < 0:
            spell.from_generation = record.generation


def _update_last_commit(spell: MemberSpell, around: NearbyCommits) -> None:
    last = last_commit(around, spell.partitions or (), max(spell.assigned_ms, 0))
    if last is not None and (spell.ended_hi_ms < 0 or last <= spell.ended_hi_ms):
        spell.last_commit_ms = max(spell.last_commit_ms, last)


def _outcome(spell: MemberSpell, inferred: Inferred | None) -> Replacement | None:
    """What the return of a static member met, if it returned in another generation; None: unknown."""
    if inferred is None:
        return None
    if inferred.difference.protocol_changed or spell.key in inferred.difference.subscribed:
        return Replacement.PROTOCOL_CHANGED
    return Replacement.COMPLETING if inferred.rounds > 1 else Replacement.PREPARING
