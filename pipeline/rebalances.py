"""Rebalances as rows: exact from notes, as far as possible from records, and as a summary row if too little is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from coordinator.notes import Removal
from coordinator.states import State
from history import End, Entry, GroupRecord, Missing, Rebalance, moves_of, owners_of
from history.compared import Difference, Who, compare, keys, pair_returned
from history.consumer import is_cooperative
from history.inferred import FORMATION, Between, Inferred, at_rest, is_replacement, joined_by, rested_ms, timeout_ms
from history.moves import Owners
from history.stalls import Stall, bounds, exact, stalled
from history.storms import window_ms
from history.words import ended, reasons, title
from pipeline.confidence import EXACT, NONE, STRONG, WEAK
from pipeline.events import Events, Holes, People
from pipeline.rows import Episode
from pipeline.spells import known

UNKNOWN: Final = "unknown"
ANY: Final = -1  # an unknown number of rebalances
UNNUMBERED: Final = -1
SILENT: Final = (Removal.EXPIRED, Removal.STAYED_AWAY, Removal.SEAT_TAKEN)  # their sessions ended
RESTED: Final = (End.STABLE.value, End.EMPTY.value)


class Changes(NamedTuple):
    """Member keys. A returned member is among those that joined, and under its old id among those that left, unless it kept a seat."""

    joined: list[str]
    left: list[str]
    expired: list[str]
    rejoined: list[str]


class Rebalances:
    """`add` makes the rows, in the order in which they began; numbers and storms are known when all are there.

    Wants whole stories: the record of a rebalance comes after its notes.
    """

    def __init__(self, cluster: str, group: str, events: Events, between: Between, holes: Holes) -> None:
        self.rows: list[Episode] = []
        self.windows_ms: list[int] = []  # of each: the maximum distance of the next rebalance of the same storm
        self._cluster = cluster
        self._group = group
        self._people = People(events)
        self._same = _generations(events.images)
        self._offsets = [image.offset for image in events.images]
        self._places = {offset: at for at, offset in enumerate(self._offsets)}
        self._between = between
        self._holes = holes
        self._rest_ms: int | None = None  # the group was at rest then

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            row: Episode | None = None
            if isinstance(entry, Rebalance):
                row = self._noted(entry)
            elif isinstance(entry, Missing):
                row = self._unnoted(entry)
            if row is not None:
                self.rows.append(row)
                self.windows_ms.append(_window_ms(entry))
                rested = row.end_ms if row.end in RESTED else row.start_lo_ms if not row.missing else None
                self._rest_ms = max((ms for ms in (self._rest_ms, rested) if ms is not None), default=None)

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
            rounds=0,
            rounds_aborted=0,
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

    # With notes.

    def _noted(self, one: Rebalance) -> Episode:
        before, after = _stored(one.before), _stored(one.after)
        inferred = self._infer(one.before, one.after, one.from_generation) if not one.all_noted else None
        confidence, cause = self._cause(one, inferred)
        difference = compare(before.stored if before else None, after.stored) if after and after.stored and (before or one.from_generation == 0) else None
        lo = hi = one.began_ms
        if not one.whole:
            rest_ms = self._rested_ms(before, after) if before else None
            lo_known = [ms for ms in (self._rest_ms, rest_ms, inferred.start_lo_ms if inferred else None) if ms is not None]
            lo = min(max(lo_known), hi) if lo_known else -1
        rounds = max(one.rounds, one.to_generation - one.from_generation if min(one.to_generation, one.from_generation) >= 0 else 1)
        end_ms = one.ended_ms if one.end is not End.UNKNOWN else -1
        fresh = after if after and self._is_fresh(after) else None
        if end_ms < 0 and one.end in (End.STABLE, End.EMPTY) and fresh:
            end_ms = fresh.at_ms
        protocol = next((image.stored.protocol for image in (after, before) if image and image.stored and image.stored.protocol), None)
        moves = moves_of(one)
        owners = _owners(one)
        held = stalled(owners, moves, protocol) if owners is not None else None
        stall = self._stall(one, held, inferred)
        mover = self._mover(one) or (inferred.mover if inferred and one.cause is None else None)
        changes = self._changes(one, inferred)
        laggards, laggard_ms = self._laggards(one)
        row = self._blank()._replace(
            start_lo_ms=known(lo),
            start_hi_ms=hi,
            join_done_ms=known(_join_done(one, fresh)),
            end_ms=known(end_ms),
            end=one.end.value,
            from_generation=known(one.from_generation),
            to_generation=known(one.to_generation),
            rounds=rounds,
            rounds_aborted=rounds - 1,
            cause=cause,
            cause_detail=one.cause.name.lower() if cause == FORMATION and one.cause is not None else _detail(one),
            contributing=list(dict.fromkeys(why.name.lower() for why in one.also)),
            trigger_member=mover.key if mover else None,
            trigger_client=_client(mover),
            evidence=_evidence(one, inferred),
            confidence=confidence,
            members_before=known(one.members_before) if one.members_before >= 0 or not before else _size(before),
            members_after=known(one.members_after) if one.members_after >= 0 or not after else _size(after),
            laggards=laggards,
            laggard_ms=laggard_ms,
            protocol_change=difference is not None and difference.protocol,
            subscription_change=difference is not None and bool(difference.subscribed),
            moved_partitions=len(moves) if moves is not None else None,
            join_ms=known(one.join_ms),
            sync_ms=known(one.sync_ms),
            cooperative=is_cooperative(protocol),
        )
        return _completed(row, changes, stall)

    def _cause(self, one: Rebalance, inferred: Inferred | None) -> tuple[str, str]:
        if one.cause is not None and one.whole:
            name = one.cause.name.lower()
            if one.from_state is State.EMPTY and one.from_generation == 0:
                name = FORMATION
            return (EXACT if not one.lost or one.end is End.INTERRUPTED else STRONG), name
        if inferred is not None:
            return (STRONG if inferred.strong else WEAK), inferred.cause
        return NONE, UNKNOWN

    def _mover(self, one: Rebalance) -> Who | None:
        id = one.mover
        if id is None or not one.whole:
            return None
        gone = next((went for went in one.went if went.instance_id == id), None)  # an administrator names the instance
        return self._people.of(gone.member_id, id) if gone is not None else self._people.of(id)

    def _changes(self, one: Rebalance, inferred: Inferred | None) -> Changes:
        if inferred is not None:
            return _of_difference(inferred.difference, inferred.expired)
        before = one.before.member_ids if one.before is not None else set()
        came = [come for come in one.came if come.again is False or (come.again is None and one.before is not None and come.member_id not in before)]
        went = [gone for gone in one.went if gone.session_ms]  # without a session it was an id that was handed out
        passing = {come.member_id for come in came} & {gone.member_id for gone in went}
        joined = {come.member_id: self._people.of(come.member_id, come.instance_id) for come in came}
        left = {gone.member_id: self._people.of(gone.member_id, gone.instance_id) for gone in went}
        back = pair_returned([who for id, who in left.items() if id not in passing], [who for id, who in joined.items() if id not in passing])
        came_ms = {come.member_id: come.at_ms for come in came}
        free_ms = {gone.member_id: gone.at_ms - (gone.since_heartbeat_ms if gone.how is not Removal.LEFT else 0) for gone in went}
        back = [(old, new) for old, new in back if free_ms[old.member_id] <= came_ms[new.member_id]]
        silent = {gone.member_id for gone in went if gone.how in SILENT}
        return Changes(
            sorted(who.key for who in joined.values()),
            sorted(who.key for id, who in left.items() if id not in silent),
            sorted(who.key for id, who in left.items() if id in silent),
            sorted({*keys([new for _, new in back]), *(one.instance_id for one in one.returned)}),
        )

    def _laggards(self, one: Rebalance) -> tuple[list[str], int | None]:
        if one.laggards:
            return sorted(self._people.of(id).key for id in one.laggards), known(one.join_ms) if one.rounds == 1 else None
        last = one.last_to_come
        if last is not None:
            return [self._people.of(last.member_id, last.instance_id).key], last.at_ms - one.began_ms
        return [], None

    def _stall(self, one: Rebalance, held: Sequence[str] | None, inferred: Inferred | None) -> Stall | None:
        if held is None:
            return None
        if one.took_ms >= 0:
            return exact(held, one.took_ms)
        if inferred is not None and one.after is not None:
            return self._bounds(inferred, one.after, held)
        return None

    # Without.

    def _unnoted(self, one: Missing) -> Episode | None:
        if one.least == one.most == 1 and one.after is not None:
            inferred = self._infer(one.before, one.after, one.from_generation)
            if inferred is not None:
                return self._inferred(one, one.after, inferred)
        if one.after_ms < 0:  # a story may begin in the middle
            return None
        if not one.least and one.after is not None and self._same[one.after.offset][1]:  # the missing member has left the group as it was
            return None
        return self._unknown(one)

    def _infer(self, before: GroupRecord | None, after: GroupRecord | None, from_generation: int) -> Inferred | None:
        if after is None or after.stored is None or ((before is None or before.stored is None) and from_generation != 0):
            return None
        whole = not self._holes.between(before.offset, after.offset) if before is not None else True
        if before is not None:
            before = self._at_rest(before, after)
        found = self._between.infer(before, after)
        return found if whole else found._replace(strong=False, evidence=f"{found.evidence}; records in between are missing")

    def _at_rest(self, before: GroupRecord, after: GroupRecord | None) -> GroupRecord:
        same, number = self._same[before.offset]
        return at_rest(same, number, after) if after is not None else same[0]

    def _rested_ms(self, before: GroupRecord, after: GroupRecord | None) -> int | None:
        first = self._at_rest(before, after)
        if after is not None:
            return rested_ms(first, after)
        return known(first.stored.current_state_timestamp) if first.stored is not None else None

    def _is_fresh(self, image: GroupRecord) -> bool:
        """It is the first of its generation: its times are those of the rebalance."""
        at = self._places[image.offset]
        return not self._same[image.offset][1] and not self._holes.between(self._offsets[at - 1] if at else -1, image.offset)

    def _inferred(self, one: Missing, after: GroupRecord, inferred: Inferred) -> Episode:
        stored = after.stored
        assert stored is not None
        moves = moves_of(one)
        owners = _owners(one)
        held = stalled(owners, moves, stored.protocol) if owners is not None else None
        sync_ms = after.at_ms - joined_by(after)
        why = "no notes are kept of it" if one.older else "its notes were lost"
        row = self._blank()._replace(
            start_lo_ms=known(inferred.start_lo_ms),
            start_hi_ms=inferred.start_hi_ms,
            join_done_ms=joined_by(after),
            end_ms=after.at_ms,
            end=(End.STABLE if stored.members else End.EMPTY).value,
            from_generation=one.from_generation,
            to_generation=after.generation,
            rounds=inferred.rounds,
            rounds_aborted=inferred.rounds - 1,
            cause=inferred.cause,
            trigger_member=inferred.mover.key if inferred.mover else None,
            trigger_client=_client(inferred.mover),
            evidence=f"{inferred.evidence} ({why}: inferred from records)",
            confidence=STRONG if inferred.strong else WEAK,
            members_before=_size(one.before) if one.before is not None else 0,
            members_after=_size(after),
            protocol_change=inferred.difference.protocol,
            subscription_change=bool(inferred.difference.subscribed),
            moved_partitions=len(moves) if moves is not None else None,
            sync_ms=sync_ms,
            cooperative=is_cooperative(stored.protocol or (one.before.stored.protocol if one.before is not None and one.before.stored is not None else None)),
        )
        stall = self._bounds(inferred, after, held) if held is not None else None
        return _completed(row, _of_difference(inferred.difference, inferred.expired), stall)

    def _bounds(self, inferred: Inferred, after: GroupRecord, held: Sequence[str]) -> Stall:
        longest = after.at_ms - inferred.start_lo_ms if inferred.bounded else None
        return bounds(held, after.at_ms - joined_by(after), longest, self._between.around(after))

    def _unknown(self, one: Missing) -> Episode:
        count = one.most if one.most > 0 else ANY
        notes = f"{one.notes} notes are missing" if one.notes > 0 else "notes and records are missing"
        many = "at least one rebalance" if one.least else "perhaps rebalances"
        return self._blank()._replace(
            start_lo_ms=known(one.after_ms),
            start_hi_ms=known(one.before_ms),
            end_ms=known(one.before_ms),
            from_generation=known(one.from_generation),
            to_generation=known(one.to_generation),
            evidence=f"{notes}: {many} of which too little is known",
            members_before=_size(one.before) if one.before is not None else None,
            members_after=_size(one.after) if one.after is not None else None,
            missing=count,
        )


def _generations(images: Sequence[GroupRecord]) -> dict[int, tuple[list[GroupRecord], int]]:
    """For each record those of its generation, and its number among them."""
    found: dict[int, tuple[list[GroupRecord], int]] = {}
    same: list[GroupRecord] = []
    for image in images:
        same = same if same and is_replacement(same[-1], image) else []
        same.append(image)
        found[image.offset] = same, len(same) - 1
    return found


def _window_ms(entry: Entry) -> int:
    images = [entry.before, entry.after] if isinstance(entry, Rebalance | Missing) else []
    return window_ms(timeout_ms(member) for image in images if image and image.stored for member in image.stored.members)


def _stored(image: GroupRecord | None) -> GroupRecord | None:
    return image if image is not None and image.stored is not None else None


def _size(image: GroupRecord) -> int:
    return len(image.stored.members) if image.stored is not None else 0


def _owners(entry: Rebalance | Missing) -> Owners | None:
    """The owners of partitions before it."""
    if entry.from_generation == 0 or (entry.before is not None and not _size(entry.before)):
        return {}
    return owners_of(entry.before.stored) if entry.before is not None and entry.before.stored is not None else None


def _of_difference(difference: Difference, expired: Sequence[Who]) -> Changes:
    """A static member whose seat was taken by its successor neither left nor joined, as far as records say."""
    silent = {one.member_id for one in expired}
    seats = {one.member_id for pair in difference.back for one in pair if one.instance_id is not None}
    left = [one for one in difference.left if one.member_id not in seats]
    return Changes(
        sorted(one.key for one in difference.joined if one.member_id not in seats),
        sorted(one.key for one in left if one.member_id not in silent),
        sorted(one.key for one in left if one.member_id in silent),
        sorted(keys([new for _, new in difference.back])),
    )


def _join_done(one: Rebalance, after: GroupRecord | None) -> int:
    if one.end is End.EMPTY:
        return one.ended_ms
    if one.end is not End.STABLE:
        return -1
    if one.sync_ms >= 0 and one.ended_ms >= 0:
        return one.ended_ms - one.sync_ms
    return joined_by(after) if after is not None else -1


def _client(one: Who | None) -> str | None:
    return f"{one.client_id} @ {one.host.removeprefix('/')}" if one is not None and (one.client_id or one.host) else None


def _detail(one: Rebalance) -> str | None:
    """The reasons given by clients."""
    return "; ".join(reasons(one)) or None


def _evidence(one: Rebalance, inferred: Inferred | None) -> str:
    parts = [title(one) if one.cause is not None or inferred is None else f"{inferred.evidence} (the notes of its beginning are missing: inferred from records)"]
    if ended(one):
        parts.append(ended(one))
    if one.lost > 0:
        parts.append("1 note of it is missing" if one.lost == 1 else f"{one.lost} notes of it are missing")
    elif one.lost and one.end is not End.INTERRUPTED:
        parts.append("notes of it are missing")
    return "; ".join(parts)


def _completed(row: Episode, changes: Changes, stall: Stall | None) -> Episode:
    row = row._replace(joined=changes.joined, left=changes.left, expired=changes.expired, rejoined=changes.rejoined)
    if stall is None:
        return row
    seconds = stall.hi_ms / 1000 if stall.hi_ms is not None else None
    return row._replace(stalled_lo_ms=stall.lo_ms, stalled_hi_ms=stall.hi_ms, partition_seconds_lost=seconds)
