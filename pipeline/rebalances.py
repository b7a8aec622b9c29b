"""Rebalances as rows: exact from notes, inferred from records, or as a summary row if too little is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from coordinator.notes import Removal
from coordinator.states import State
from history import End, Entry, GroupRecord, Rebalance, RebalancesMissing, moves_of, owners_of
from history.causes import name_of, removal_end
from history.compared import Difference, MemberIdentity, compare, keys, pair_returned
from history.conclusion import Inferred
from history.confidence import EXACT, NONE, STRONG
from history.consumer import is_cooperative
from history.inferred import (
    InferenceCache,
    join_phase_end_ms,
    stable_ms,
    timeout_ms,
)
from history.moves import Owners
from history.recorded import RecordedCauses
from history.stalls import Stall, exact_stall, stall_bounds, stalled_partitions
from history.storms import window_ms
from history.words import describe_end, reasons, title
from pipeline.avoidable import FORMATION
from pipeline.events import Events, Holes, MemberIdentities
from pipeline.rows import Episode
from pipeline.spells import none_if_unknown

UNKNOWN: Final = "unknown"
ANY: Final = -1  # an unknown number of rebalances
UNNUMBERED: Final = -1
ENDS_STABLE: Final = (End.STABLE.value, End.EMPTY.value)


class Changes(NamedTuple):
    """Member keys. A member that returned under a new id is among `joined` and, with its old id, among `left`, unless it kept its seat."""

    joined: list[str]
    left: list[str]
    expired: list[str]
    rejoined: list[str]


class Rebalances:
    """`add` makes the rows in the order of their starts; numbers and storms are added later.

    The entries must come from a complete story: the record of a rebalance follows its notes.
    """

    def __init__(self, cluster: str, group: str, events: Events, between: InferenceCache, holes: Holes) -> None:
        self.rows: list[Episode] = []
        self.windows_ms: list[int] = []  # for each row the longest time to the next rebalance of the same storm
        self._cluster = cluster
        self._group = group
        self._members = MemberIdentities(events)
        self._recorded = RecordedCauses(between, lambda first, last: not holes.between(first, last))
        for record in events.group_records:
            self._recorded.generations.add(record)
        self._offsets = [record.offset for record in events.group_records]
        self._index_of = {offset: at for at, offset in enumerate(self._offsets)}
        self._inferences = between
        self._holes = holes
        self._last_stable_ms: int | None = None  # when the group was last stable or empty

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            row: Episode | None = None
            if isinstance(entry, Rebalance):
                row = self._from_notes(entry)
            elif isinstance(entry, RebalancesMissing):
                row = self._without_notes(entry)
            if row is not None:
                self.rows.append(row)
                self.windows_ms.append(_window_ms(entry))
                stable_at_ms = row.end_ms if row.end in ENDS_STABLE else row.start_lo_ms if not row.missing else None
                self._last_stable_ms = max((ms for ms in (self._last_stable_ms, stable_at_ms) if ms is not None), default=None)

    def _blank(self) -> Episode:
        return Episode(
            self._cluster,
            self._group,
            UNNUMBERED,
            start_lo_ms=None,
            start_hi_ms=None,
            join_done_ms=None,
            end_ms=None,
            end=UNKNOWN,
            from_generation=None,
            to_generation=None,
            rounds=None,
            rounds_aborted=None,
            cause=UNKNOWN,
            cause_detail=None,
            contributing=[],
            trigger_member=None,
            trigger_client=None,
            evidence="",
            confidence=NONE,
            members_before=None,
            members_after=None,
            joined=[],
            left=[],
            expired=[],
            rejoined=[],
            laggards=[],
            laggard_ms=None,
            protocol_change=False,
            subscription_change=False,
            moved_partitions=None,
            join_ms=None,
            sync_ms=None,
            stalled_lo_ms=None,
            stalled_hi_ms=None,
            partition_seconds_lost=None,
            cooperative=False,
            storm=None,
            avoidable=UNKNOWN,
            avoidable_by_ms=None,
            deploy=None,
            missing=0,
            final=False,
        )

    # With notes

    def _from_notes(self, rebalance: Rebalance) -> Episode:
        before, after = _stored(rebalance.before), _stored(rebalance.after)
        inferred = self._recorded.of(rebalance)
        confidence, cause = self._cause(rebalance, inferred)
        difference = compare(before.stored if before else None, after.stored) if after and after.stored and (before or rebalance.from_generation == 0) else None
        start_lo = start_hi = rebalance.began_ms
        if not rebalance.begin_known:
            before_ms = self._stable_ms(before, after) if before else None
            start_lo_candidates = [ms for ms in (self._last_stable_ms, before_ms, inferred.start_lo_ms if inferred else None) if ms is not None]
            start_lo = min(max(start_lo_candidates), start_hi) if start_lo_candidates else -1
        rounds = max(rebalance.rounds, rebalance.to_generation - rebalance.from_generation if min(rebalance.to_generation, rebalance.from_generation) >= 0 else 1)
        end_ms = rebalance.ended_ms if rebalance.end is not End.UNKNOWN else -1
        first_record = after if after and self._is_fresh(after) else None
        if end_ms < 0 and rebalance.end in (End.STABLE, End.EMPTY) and first_record:
            end_ms = first_record.at_ms
        protocol = next((record.stored.protocol for record in (after, before) if record and record.stored and record.stored.protocol), None)
        moves = moves_of(rebalance)
        owners = _owners(rebalance)
        stalled = stalled_partitions(owners, moves, protocol) if owners is not None else None
        stall = self._stall(rebalance, stalled, inferred)
        trigger = self._trigger_member(rebalance) or (inferred.trigger_member if inferred and rebalance.cause is None else None)
        changes = self._changes(rebalance, inferred)
        laggards, laggard_ms = self._laggards(rebalance)
        row = self._blank()._replace(
            start_lo_ms=none_if_unknown(start_lo),
            start_hi_ms=start_hi,
            join_done_ms=none_if_unknown(_join_done(rebalance, first_record)),
            end_ms=none_if_unknown(end_ms),
            end=rebalance.end.value,
            from_generation=none_if_unknown(rebalance.from_generation),
            to_generation=none_if_unknown(rebalance.to_generation),
            rounds=rounds,
            rounds_aborted=rounds - 1,
            cause=cause,
            cause_detail=name_of(rebalance.cause) if cause == FORMATION and rebalance.cause is not None else _detail(rebalance),
            contributing=list(dict.fromkeys(name_of(cause) for cause in rebalance.restart_causes)),
            trigger_member=trigger.key if trigger else None,
            trigger_client=_client(trigger),
            evidence=_evidence(rebalance, inferred),
            confidence=confidence,
            members_before=none_if_unknown(rebalance.members_before) if rebalance.members_before >= 0 or not before else _size(before),
            members_after=none_if_unknown(rebalance.members_after) if rebalance.members_after >= 0 or not after else _size(after),
            laggards=laggards,
            laggard_ms=laggard_ms,
            protocol_change=difference is not None and difference.protocol_changed,
            subscription_change=difference is not None and bool(difference.subscribed),
            moved_partitions=len(moves) if moves is not None else None,
            join_ms=none_if_unknown(rebalance.join_ms),
            sync_ms=none_if_unknown(rebalance.sync_ms),
            cooperative=is_cooperative(protocol),
        )
        return _completed(row, changes, stall)

    def _cause(self, rebalance: Rebalance, inferred: Inferred | None) -> tuple[str, str]:
        if rebalance.cause is not None and rebalance.begin_known:
            name = name_of(rebalance.cause)
            if rebalance.from_state is State.EMPTY and rebalance.from_generation == 0:
                name = FORMATION
            return (EXACT if not rebalance.missing_notes or rebalance.end is End.INTERRUPTED else STRONG), name
        if inferred is not None:
            return inferred.confidence, inferred.cause
        return NONE, UNKNOWN

    def _trigger_member(self, rebalance: Rebalance) -> MemberIdentity | None:
        id = rebalance.trigger_member
        if id is None or not rebalance.begin_known:
            return None
        removed = next((removal for removal in rebalance.removals if removal.instance_id == id), None)  # an administrator removes by instance id
        return self._members.identity_of(removed.member_id, id) if removed is not None else self._members.identity_of(id)

    def _changes(self, rebalance: Rebalance, inferred: Inferred | None) -> Changes:
        if inferred is not None:
            return _changes_between(inferred.difference, inferred.expired)
        before = rebalance.before.member_ids if rebalance.before is not None else set()
        joins = [join for join in rebalance.joins if join.was_member is False or (join.was_member is None and rebalance.before is not None and join.member_id not in before)]
        removals = [removal for removal in rebalance.removals if removal.session_ms]  # session 0: the client was only given a member id
        transient = {join.member_id for join in joins} & {removal.member_id for removal in removals}
        joined = {join.member_id: self._members.identity_of(join.member_id, join.instance_id) for join in joins}
        left = {removal.member_id: self._members.identity_of(removal.member_id, removal.instance_id) for removal in removals}
        returned = pair_returned([member for id, member in left.items() if id not in transient], [member for id, member in joined.items() if id not in transient])
        joined_ms = {join.member_id: join.at_ms for join in joins}
        free_ms = {removal.member_id: removal.at_ms - (removal.since_heartbeat_ms if removal_end(removal.cause) != "left" else 0) for removal in removals}
        returned = [(old, new) for old, new in returned if free_ms[old.member_id] <= joined_ms[new.member_id]]
        expired = {removal.member_id for removal in removals if removal_end(removal.cause) == "expired"}
        return Changes(
            sorted(member.key for member in joined.values()),
            sorted(member.key for id, member in left.items() if id not in expired),
            sorted(member.key for id, member in left.items() if id in expired),
            sorted({*keys([new for _, new in returned]), *(rebalance.instance_id for rebalance in rebalance.returns)}),
        )

    def _laggards(self, rebalance: Rebalance) -> tuple[list[str], int | None]:
        if rebalance.laggards:
            return sorted(self._members.identity_of(id).key for id in rebalance.laggards), none_if_unknown(rebalance.join_ms) if rebalance.rounds == 1 else None
        last = rebalance.last_joiner
        silent_ms = _last_expiry_ms(rebalance)
        if silent_ms is not None and (last is None or last.at_ms < silent_ms):
            silent = [removal for removal in rebalance.removals if removal.cause is Removal.EXPIRED and removal.at_ms == silent_ms]
            return sorted(self._members.identity_of(removal.member_id, removal.instance_id).key for removal in silent), silent_ms - rebalance.began_ms
        if last is not None:
            return [self._members.identity_of(last.member_id, last.instance_id).key], last.at_ms - rebalance.began_ms
        return [], None

    def _stall(self, rebalance: Rebalance, stalled: Sequence[str] | None, inferred: Inferred | None) -> Stall | None:
        if stalled is None:
            return None
        if rebalance.stopped_ms >= 0:
            return Stall(rebalance.stopped_ms, rebalance.stopped_ms)
        if rebalance.duration_ms >= 0:
            return exact_stall(stalled, rebalance.duration_ms)
        if inferred is not None and rebalance.after is not None:
            return self._bounds(inferred, rebalance.after, stalled)
        return None

    # Without notes

    def _without_notes(self, rebalance: RebalancesMissing) -> Episode | None:
        inferred = self._recorded.of(rebalance)
        if inferred is not None and rebalance.after is not None:
            return self._from_records(rebalance, rebalance.after, inferred)
        if rebalance.after_ms < 0:  # nothing is known before: the logs may begin in the middle of the history
            return None
        if not rebalance.count_min and rebalance.after is not None and self._recorded.generations.repeats(rebalance.after):  # the members are unchanged
            return None
        return self._summary_row(rebalance)

    def _stable_ms(self, before: GroupRecord, after: GroupRecord | None) -> int | None:
        first = self._recorded.generations.last_stable(before, after)
        if after is not None:
            return stable_ms(first, after)
        return none_if_unknown(first.stored.current_state_timestamp) if first.stored is not None else None

    def _is_fresh(self, record: GroupRecord) -> bool:
        """Whether this is certainly the first record of its generation, so that its times are those of the rebalance."""
        at = self._index_of[record.offset]
        return not self._recorded.generations.repeats(record) and not self._holes.between(self._offsets[at - 1] if at else -1, record.offset)

    def _from_records(self, rebalance: RebalancesMissing, after: GroupRecord, inferred: Inferred) -> Episode:
        stored = after.stored
        assert stored is not None
        moves = moves_of(rebalance)
        owners = _owners(rebalance)
        stalled = stalled_partitions(owners, moves, stored.protocol) if owners is not None else None
        sync_ms = after.at_ms - join_phase_end_ms(after)
        reason = "it has no notes" if rebalance.older else "its notes were lost"
        row = self._blank()._replace(
            start_lo_ms=none_if_unknown(inferred.start_lo_ms),
            start_hi_ms=inferred.start_hi_ms,
            join_done_ms=join_phase_end_ms(after),
            end_ms=after.at_ms,
            end=(End.STABLE if stored.members else End.EMPTY).value,
            from_generation=rebalance.from_generation,
            to_generation=after.generation,
            rounds=inferred.rounds,
            rounds_aborted=inferred.rounds - 1,
            cause=inferred.cause,
            trigger_member=inferred.trigger_member.key if inferred.trigger_member else None,
            trigger_client=_client(inferred.trigger_member),
            evidence=f"{inferred.evidence} ({reason}: inferred from records)",
            confidence=inferred.confidence,
            members_before=_size(rebalance.before) if rebalance.before is not None else 0,
            members_after=_size(after),
            protocol_change=inferred.difference.protocol_changed,
            subscription_change=bool(inferred.difference.subscribed),
            moved_partitions=len(moves) if moves is not None else None,
            sync_ms=sync_ms,
            cooperative=is_cooperative(stored.protocol or (rebalance.before.stored.protocol if rebalance.before is not None and rebalance.before.stored is not None else None)),
        )
        stall = self._bounds(inferred, after, stalled) if stalled is not None else None
        return _completed(row, _changes_between(inferred.difference, inferred.expired), stall)

    def _bounds(self, inferred: Inferred, after: GroupRecord, stalled: Sequence[str]) -> Stall:
        longest = after.at_ms - inferred.start_lo_ms if inferred.start_lo_ms >= 0 else None
        sync_ms = after.at_ms - join_phase_end_ms(after)
        return stall_bounds(stalled, sync_ms, longest if inferred.bounded else None, longest, self._inferences.nearby_commits(after))

    def _summary_row(self, rebalance: RebalancesMissing) -> Episode:
        count = rebalance.count_max if rebalance.count_max > 0 else ANY
        notes = f"{rebalance.notes} notes are missing" if rebalance.notes > 0 else "notes and records are missing"
        if rebalance.after is not None and rebalance.after.newer_since_ms >= 0:
            notes = "the group used a newer protocol, whose records are not understood, and then the classic one"
        count_text = "at least one rebalance" if rebalance.count_min else "perhaps rebalances"
        return self._blank()._replace(
            start_lo_ms=none_if_unknown(rebalance.after_ms),
            start_hi_ms=none_if_unknown(rebalance.before_ms),
            end_ms=none_if_unknown(rebalance.before_ms),
            from_generation=none_if_unknown(rebalance.from_generation),
            to_generation=none_if_unknown(rebalance.to_generation),
            evidence=f"{notes}: {count_text} with too little information",
            members_before=_size(rebalance.before) if rebalance.before is not None else None,
            members_after=_size(rebalance.after) if rebalance.after is not None else None,
            missing=count,
        )


def _window_ms(entry: Entry) -> int:
    group_records = [entry.before, entry.after] if isinstance(entry, Rebalance | RebalancesMissing) else []
    return window_ms(timeout_ms(member) for record in group_records if record and record.stored for member in record.stored.members)


def _stored(record: GroupRecord | None) -> GroupRecord | None:
    return record if record is not None and record.stored is not None else None


def _size(record: GroupRecord) -> int:
    return len(record.stored.members) if record.stored is not None else 0


def _owners(entry: Rebalance | RebalancesMissing) -> Owners | None:
    """The owners of partitions before the rebalance; None if unknown."""
    if entry.from_generation == 0 or (entry.before is not None and not _size(entry.before)):
        return {}
    return owners_of(entry.before.stored) if entry.before is not None and entry.before.stored is not None else None


def _changes_between(difference: Difference, expired: Sequence[MemberIdentity]) -> Changes:
    """The changes between two records. A static member whose successor took its seat neither left nor joined."""
    silent = {member.member_id for member in expired}
    seats = {member.member_id for pair in difference.returned for member in pair if member.instance_id is not None}
    left = [member for member in difference.left if member.member_id not in seats]
    return Changes(
        sorted(member.key for member in difference.joined if member.member_id not in seats),
        sorted(member.key for member in left if member.member_id not in silent),
        sorted(member.key for member in left if member.member_id in silent),
        sorted(keys([new for _, new in difference.returned])),
    )


def _join_done(rebalance: Rebalance, after: GroupRecord | None) -> int:
    if rebalance.end is End.EMPTY:
        return rebalance.ended_ms
    if rebalance.end is not End.STABLE:
        return -1
    if rebalance.sync_ms >= 0 and rebalance.ended_ms >= 0:
        return rebalance.ended_ms - rebalance.sync_ms
    return join_phase_end_ms(after) if after is not None else -1


def _last_expiry_ms(rebalance: Rebalance) -> int | None:
    """When the last session ended in the rebalance, if that was a second or more after its begin and no member joined later; else None."""
    if not rebalance.begin_known or rebalance.from_state is State.EMPTY or rebalance.end is not End.STABLE:
        return None
    expired_ms = max((removal.at_ms for removal in rebalance.removals if removal.cause is Removal.EXPIRED), default=None)
    if expired_ms is None or expired_ms < 1000 + rebalance.began_ms or any(join.at_ms > expired_ms for join in rebalance.joins):
        return None
    return expired_ms


def _client(member: MemberIdentity | None) -> str | None:
    return f"{member.client_id} @ {member.host.removeprefix('/')}" if member is not None and (member.client_id or member.host) else None


def _detail(rebalance: Rebalance) -> str | None:
    """The reasons that clients gave."""
    return "; ".join(reasons(rebalance)) or None


def _evidence(rebalance: Rebalance, inferred: Inferred | None) -> str:
    why = "it has no notes" if rebalance.told is not None else "the notes of its start are missing"
    parts = [title(rebalance) if rebalance.cause is not None or inferred is None else f"{inferred.evidence} ({why}: inferred from records)"]
    if describe_end(rebalance):
        parts.append(describe_end(rebalance))
    if rebalance.missing_notes > 0:
        parts.append("1 note of it is missing" if rebalance.missing_notes == 1 else f"{rebalance.missing_notes} notes of it are missing")
    elif rebalance.missing_notes and rebalance.end is not End.INTERRUPTED:
        parts.append("notes of it are missing")
    return "; ".join(parts)


def _completed(row: Episode, changes: Changes, stall: Stall | None) -> Episode:
    row = row._replace(joined=changes.joined, left=changes.left, expired=changes.expired, rejoined=changes.rejoined)
    if stall is None:
        return row
    seconds = stall.hi_ms / 1000 if stall.hi_ms is not None else None
    return row._replace(stalled_lo_ms=stall.lo_ms, stalled_hi_ms=stall.hi_ms, partition_seconds_lost=seconds)
