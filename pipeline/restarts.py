"""Restarts of a group's members, and the rebalances that each caused."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from history.pairs import AWAY_MAX_MS, Pair, Span, Stay, away, pairs_of
from pipeline.rows import Episode, Generation, GroupTables, Replaced, Spell

EXACT: Final = "exact"
ALWAYS: Final = 1 << 62
COMES_BACK: Final = frozenset({"left", "expired", "evicted", "unknown"})  # spell ends of members that may be restarted

STATIC_REPLACEMENT, DYNAMIC_PAIR, EXPIRED_RETURNED = "static_replacement", "dynamic_pair", "expired_returned"


class Return(NamedTuple):
    """A member that left and returned under another id."""

    source: str  # as in rows.Gap
    process: str  # the first member id that it had: the same for all its returns
    old_id: str
    new_id: str
    member_key: str
    went_ms: int  # at the earliest
    back_ms: int  # at the latest
    away: Span  # from its last sign of life
    partitions: int | None
    confidence: str
    episodes: list[int]  # rebalances that it had a part in

    @property
    def static(self) -> bool:
        return self.source != DYNAMIC_PAIR


@dataclass(slots=True)
class Made:
    """The members that joined and left in one rebalance."""

    pairs: set[int] = field(default_factory=set)  # places in Restarts.pairs
    replaced: list[Replaced] = field(default_factory=list)  # static members that took their seats again while it was under way
    others: bool = False  # a member joined or left for good
    unsure: bool = False  # a member joined or left whose history is incomplete

    @property
    def changed(self) -> bool:
        return bool(self.pairs or self.replaced or self.others or self.unsure)


class Restarts:
    """`returns` in their order; `made` by number of the rebalance."""

    def __init__(self, tables: GroupTables, now_ms: int) -> None:
        self.now_ms = now_ms
        self.spells = tables.spells
        # Other static members had lost their seats by then: they are pair_returned like dynamic members.
        seats = {spell.member_id for spell in tables.spells if spell.end_kind == "replaced"}
        self.replacements = [_bounded(replacement) for replacement in tables.replacements if replacement.old_member_id in seats]
        successors = {replacement.new_member_id for replacement in self.replacements}
        joined = _Joined(tables.generations)
        self.stays = [stay_of(spell, joined.until(spell)) for spell in tables.spells]
        # A member that takes over its own seat has not left.
        self.stays = [stay._replace(joined=None) if stay.member_id in successors else stay for stay in self.stays]
        self._episodes = sorted(tables.episodes, key=lambda one: one.episode)
        self._begins = [_begin(episode) for episode in self._episodes]
        self.stays = [self._parked(stay, spell) for stay, spell in zip(self.stays, tables.spells, strict=True)]
        self._came = [(at, stay.joined) for at, stay in enumerate(self.stays) if stay.joined is not None]
        self._joining = [at for at, _ in self._came]
        self.undone: set[str] = set()  # members whose join was never stored
        self._undo_what_was_not_stored()
        self.pairs = pairs_of(self.stays, [generation.append_ms for generation in tables.generations if generation.tombstone])
        self._by_old = {pair.old: at for at, pair in enumerate(self.pairs)}
        self._by_new = {pair.new: at for at, pair in enumerate(self.pairs)}
        self._holes = [(-ALWAYS, _end(episode)) for episode in self._episodes[:1] if episode.from_generation != 0]
        self._holes += [(_begin(episode), _end(episode)) for episode in self._episodes if episode.missing or episode.end == "unknown"]
        self._went_in: dict[int, int] = {}  # the rebalance in which a member went
        self._interrupted = {episode.episode: episode.end == "interrupted" for episode in self._episodes}
        self.made = {episode.episode: Made() for episode in self._episodes}
        self._tell_who_made_what()
        self.returns = self._returns()

    def gap(self, pair: Pair) -> Span:
        return away(self.stays[pair.old], self.stays[pair.new])

    def lost(self) -> Iterator[tuple[Spell, Span, int | None]]:
        """Members that went and did not come back in all the time in which they could have; since when, and in which rebalance."""
        for at, stay in enumerate(self.stays):
            if stay.silent is not None and at not in self._by_old and stay.silent[1] + AWAY_MAX_MS <= self.now_ms:
                yield self.spells[at], stay.silent, self._went_in.get(at)

    def members_at(self, ms: int) -> int:
        """The number of members right before this time."""
        spells = zip(self.spells, self.stays, strict=True)
        return sum((spell.joined_hi_ms or 0) < ms and (stay.gone is None or stay.gone[1] >= ms) for spell, stay in spells)

    def _parked(self, stay: Stay, spell: Spell) -> Stay:
        """Where a member waits in a rebalance its coordinator takes it for alive until it is answered: it may have gone since it began."""
        if stay.silent is None or stay.silent[0] != stay.silent[1] or spell.end_kind not in ("expired", "evicted"):
            return stay
        heard = stay.silent[1]
        at = bisect_right(self._begins, heard) - 1
        if at < 0 or _end(self._episodes[at]) < heard:
            return stay
        since = max(self._begins[at], (spell.joined_hi_ms or 0) + 1)  # not before it had come
        return stay._replace(silent=(min(since, heard), heard))

    def _undo_what_was_not_stored(self) -> None:
        """The coordinator was restarted before it had stored that a member had joined: the member joined again, and came when it first did."""
        joined = sorted((span[1], at) for at, span in self._came)
        joining: dict[object, list[tuple[Span, int]]] = {}
        same: dict[int, int] = {}
        for _, at in joined:
            stay, spell = self.stays[at], self.spells[at]
            assert stay.joined is not None
            waiting = joining.pop(stay.who, [])
            waiting = [one for one in waiting if stay.joined[1] - one[0][1] <= AWAY_MAX_MS]
            if spell.end_kind == "unknown" and spell.from_generation is None:
                joining[stay.who] = [*waiting, (stay.joined, at)]
                self.undone.add(spell.member_id)
                self.stays[at] = stay._replace(joined=None, silent=None, gone=None)
            elif waiting:
                same |= {before: at for _, before in waiting}
                self.stays[at] = stay._replace(joined=waiting[0][0])
        self._came = [(same.get(at, at), span) for at, span in self._came]

    # Members and rebalances.

    def _tell_who_made_what(self) -> None:
        explained: dict[int, set[str]] = {number: set() for number in self.made}
        for at, (new, joined) in zip(self._joining, self._came, strict=True):
            names = {self.spells[at].member_key, self.spells[at].member_id}
            episode = self._episode(names, joined, came=True)
            if episode is not None:
                explained[episode.episode] |= names
                self._count(self.made[episode.episode], self._by_new.get(new), self._came_from_nowhere(joined))
        for at, (spell, stay) in enumerate(zip(self.spells, self.stays, strict=True)):
            names = {spell.member_key, spell.member_id}
            if stay.gone is not None and spell.end_kind != "replaced":
                episode = self._episode(names, stay.gone, came=False)
                if episode is not None:
                    explained[episode.episode] |= names
                    self._went_in[at] = episode.episode
                    self._count(self.made[episode.episode], self._by_old.get(at), self._may_return(stay))
        for replacement in self.replacements:
            names = {replacement.instance_id, replacement.old_member_id, replacement.new_member_id}
            episode = self._episode(names, (replacement.at_ms, replacement.at_ms), came=True) if replacement.verdict != "saved" else None
            if episode is not None:
                explained[episode.episode] |= names
                self.made[episode.episode].replaced.append(replacement)
        for episode in self._episodes:
            for name in {*episode.joined, *episode.left, *episode.expired, *episode.rejoined} - explained[episode.episode]:
                self._count_again(self.made[episode.episode], name)

    def _count_again(self, made: Made, name: str) -> None:
        """A member that went, and was there again when the coordinator had been restarted before it had stored that."""
        for at, number in self._went_in.items():
            if name in (self.spells[at].member_key, self.spells[at].member_id) and self._interrupted[number]:
                self._count(made, self._by_old.get(at), self._may_return(self.stays[at]))
                return
        made.unsure = True

    def _count(self, made: Made, pair: int | None, unsure: bool) -> None:
        if pair is not None:
            made.pairs.add(pair)
        elif unsure:
            made.unsure = True
        else:
            made.others = True

    def _episode(self, names: set[str], span: Span, *, came: bool) -> Episode | None:
        """The rebalance in which a member joined or left: the one that names it, else the last that had begun."""
        found: list[Episode] = []
        at = bisect_right(self._begins, span[1])
        while at and _end(self._episodes[at - 1]) >= span[0]:
            at -= 1
            found.append(self._episodes[at])
        for one in found:
            if not names.isdisjoint((*one.joined, *one.rejoined) if came else (*one.left, *one.expired, *one.rejoined)):
                return one
        return found[0] if found else None

    def _came_from_nowhere(self, joined: Span) -> bool:
        """Whether the member may have left during a gap in the logs."""
        return any(begin <= joined[1] and joined[0] - AWAY_MAX_MS <= end for begin, end in self._holes)

    def _may_return(self, stay: Stay) -> bool:
        """Whether the member may have returned during a gap in the logs, or may still return."""
        if stay.silent is None:
            return False
        until = stay.silent[1] + AWAY_MAX_MS
        return until > self.now_ms or any(begin <= until and stay.silent[0] <= end for begin, end in self._holes)

    def _returns(self) -> list[Return]:
        of_pair: dict[int, list[int]] = {}
        of_seat: dict[str, list[int]] = {}
        for number, made in self.made.items():
            for at in made.pairs:
                of_pair.setdefault(at, []).append(number)
            for one in made.replaced:
                of_seat.setdefault(one.new_member_id, []).append(number)
        found = [self._of_pair(pair, of_pair.get(at, [])) for at, pair in enumerate(self.pairs)]
        found += [_of_seat(replacement, of_seat.get(replacement.new_member_id, [])) for replacement in self.replacements if replacement.gap_hi_ms is not None]
        found.sort(key=lambda one: (one.back_ms, one.new_id))
        process: dict[str, str] = {}
        for at, back in enumerate(found):
            process[back.new_id] = process.get(back.old_id, back.old_id)
            found[at] = back._replace(process=process[back.new_id])
        return found

    def _of_pair(self, pair: Pair, episodes: list[int]) -> Return:
        old, new = self.spells[pair.old], self.spells[pair.new]
        stay, joined = self.stays[pair.old], self.stays[pair.new].joined
        assert stay.silent is not None
        assert joined is not None
        gap = self.gap(pair)
        confidence = "weak" if not pair.strong or not pair.sure else EXACT if gap[0] == gap[1] else "strong"
        return Return(
            DYNAMIC_PAIR if old.instance_id is None else EXPIRED_RETURNED,
            "",
            old.member_id,
            new.member_id,
            old.member_key,
            stay.silent[0],
            joined[1],
            gap,
            old.partitions,
            confidence,
            episodes,
        )


def _of_seat(one: Replaced, episodes: list[int]) -> Return:
    assert one.gap_hi_ms is not None
    gap = one.gap_lo_ms or 0, one.gap_hi_ms
    went = one.at_ms - one.gap_hi_ms
    ids = one.old_member_id, one.new_member_id
    return Return(STATIC_REPLACEMENT, "", *ids, one.instance_id, went, one.at_ms, gap, one.partitions_held, one.confidence, episodes)


def _bounded(one: Replaced) -> Replaced:
    """A seat is kept for one session."""
    if one.confidence == EXACT or one.gap_hi_ms is None or one.session_timeout_ms is None:
        return one
    return one._replace(gap_hi_ms=max(min(one.gap_hi_ms, one.session_timeout_ms), one.gap_lo_ms or 0))


class _Joined:
    """The times at which members joined for their last generation, from its record: all members, but for static ones."""

    def __init__(self, generations: Sequence[Generation]) -> None:
        rows = [generation for generation in generations if generation.state_ms is not None and not generation.is_replacement]
        self._moments = [row.append_ms for row in rows]
        self._rows = rows

    def until(self, spell: Spell) -> int:
        if spell.confidence == EXACT or spell.instance_id is not None or spell.ended_lo_ms is None:
            return 0
        at = bisect_right(self._moments, spell.ended_lo_ms)
        row = self._rows[at - 1] if at else None
        return row.state_ms or 0 if row is not None and row.generation == spell.to_generation else 0


def stay_of(spell: Spell, alive_ms: int = 0) -> Stay:
    """Without notes a member was there until the rebalance that it was not in; its last sign of life is its last commit.

    `alive_ms`: it was alive then.
    """
    joined = (spell.joined_lo_ms, spell.joined_hi_ms) if spell.joined_lo_ms is not None and spell.joined_hi_ms is not None else None
    if spell.end_kind == "open" or spell.ended_hi_ms is None:
        return Stay(spell.member_id, spell.instance_id, spell.client_id, spell.host, joined, None, None, False)
    gone = (spell.ended_lo_ms if spell.ended_lo_ms is not None else spell.ended_hi_ms, spell.ended_hi_ms)
    known = spell.confidence == EXACT and gone[0] == gone[1]
    farewell = spell.end_kind == "left" or not known
    silent: Span | None = None
    if spell.end_kind in COMES_BACK:
        if known and spell.last_heartbeat_ms is not None:
            silent = spell.last_heartbeat_ms, spell.last_heartbeat_ms
        elif spell.end_kind == "expired" and gone[0] == gone[1] and spell.last_heartbeat_ms is not None:
            # Its session may have begun anew with the coordinator, when it was silent already.
            alive = max(spell.last_heartbeat_ms, spell.last_commit_ms or 0, (spell.joined_hi_ms or 0) + 1)
            silent = alive, max(alive, gone[1] - (spell.session_timeout_ms or 0))
            farewell = False
        else:
            session = spell.session_timeout_ms or AWAY_MAX_MS
            since = max(gone[0] - session, spell.last_commit_ms or 0, spell.last_heartbeat_ms or 0, alive_ms)
            silent = min(since, gone[1]), gone[1]
    return Stay(spell.member_id, spell.instance_id, spell.client_id, spell.host, joined, silent, gone, farewell)


def _begin(episode: Episode) -> int:
    return next((ms for ms in (episode.start_lo_ms, episode.start_hi_ms, episode.end_ms) if ms is not None), -ALWAYS)


def _end(episode: Episode) -> int:
    return episode.end_ms if episode.end_ms is not None else ALWAYS
