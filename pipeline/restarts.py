"""Restarts of a group's members, and the rebalances that each caused."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from history.pairs import AWAY_MAX_MS, RestartPair, Span, Stay, away, pairs_of
from history.spells import COORDINATOR_AWAY
from pipeline.rows import Episode, Generation, GroupTables, MemberSpell, Replaced

EXACT: Final = "exact"
FAR_FUTURE: Final = 1 << 62
MAY_RETURN: Final = frozenset({"left", "expired", "evicted", "unknown"})  # ends of spells whose member may return

STATIC_REPLACEMENT, DYNAMIC_PAIR, EXPIRED_RETURNED = "static_replacement", "dynamic_pair", "expired_returned"


class Return(NamedTuple):
    """A member that left and returned under another member id."""

    source: str  # the kind of gap, as in rows.Gap
    process: str  # its first member id, common to all of its returns
    old_id: str
    new_id: str
    member_key: str
    went_ms: int  # at the earliest
    back_ms: int  # at the latest
    away: Span  # since its last sign of life
    partitions: int | None
    confidence: str
    episodes: list[int]  # rebalances in which it left or joined

    @property
    def static(self) -> bool:
        return self.source != DYNAMIC_PAIR


@dataclass(slots=True)
class MemberChanges:
    """The members that joined and left in one rebalance."""

    pairs: set[int] = field(default_factory=set)  # indexes into Restarts.pairs
    replaced: list[Replaced] = field(default_factory=list)  # static members that returned to their seats during it
    has_permanent_change: bool = False  # a member joined or left for good
    unsure: bool = False  # a member joined or left whose history is incomplete

    @property
    def changed(self) -> bool:
        return bool(self.pairs or self.replaced or self.has_permanent_change or self.unsure)


class Restarts:
    """`returns` in order; `changes` by number of the rebalance."""

    def __init__(self, tables: GroupTables, now_ms: int) -> None:
        self.now_ms = now_ms
        self.spells = tables.spells
        # Member ids whose static member returned to its seat. Other static members had lost their seats: they are paired like dynamic members.
        seats = {spell.member_id for spell in tables.spells if spell.end_kind == "replaced"}
        self.replacements = [_bounded(replacement) for replacement in tables.replacements if replacement.old_member_id in seats]
        successors = {replacement.new_member_id for replacement in self.replacements}
        last_signs = _LastSigns(tables.generations)
        self.stays = [stay_of(spell, last_signs.last_alive_ms(spell)) for spell in tables.spells]
        # A static member that returned to its own seat did not join anew.
        self.stays = [stay._replace(joined=None) if stay.member_id in successors else stay for stay in self.stays]
        self._episodes = sorted(tables.episodes, key=lambda episode: episode.episode)
        self._begins = [_begin(episode) for episode in self._episodes]
        self.stays = [self._waiting_in_rebalance(stay, spell) for stay, spell in zip(self.stays, tables.spells, strict=True)]
        self._joins = [(at, stay.joined) for at, stay in enumerate(self.stays) if stay.joined is not None]
        self._join_indexes = [at for at, _ in self._joins]
        self.never_stored: set[str] = set()  # members whose join was never stored
        self._merge_unstored_joins()
        self._clock_steps = list(_clock_steps(self._episodes))
        found = pairs_of(self.stays, [generation.append_ms for generation in tables.generations if generation.tombstone])
        self.pairs = [pair for pair in found if not self._is_at_clock_step(pair)]
        self._by_old = {pair.old: at for at, pair in enumerate(self.pairs)}
        self._by_new = {pair.new: at for at, pair in enumerate(self.pairs)}
        self._holes = [(-FAR_FUTURE, _end(episode)) for episode in self._episodes[:1] if episode.from_generation != 0]
        self._holes += [(_begin(episode), _end(episode)) for episode in self._episodes if episode.missing or episode.end == "unknown"]
        self._holes += self._clock_steps
        self._outages = [_return_span(spell) for spell in tables.spells if spell.end_kind == COORDINATOR_AWAY]
        self._left_in_rebalance: dict[int, int] = {}  # the rebalance in which a member left
        self._interrupted = {episode.episode: episode.end == "interrupted" for episode in self._episodes}
        self.changes = {episode.episode: MemberChanges() for episode in self._episodes}
        self._assign_changes()
        self.returns = self._returns()

    def _is_at_clock_step(self, pair: RestartPair) -> bool:
        """Whether the length of the absence is unknown, because a clock was set back at about that time."""
        left, joined = self.stays[pair.old].last_heartbeat, self.stays[pair.new].joined
        return any(begin <= span[1] and span[0] <= end for span in (left, joined) if span is not None for begin, end in self._clock_steps)

    def gap(self, pair: RestartPair) -> Span:
        return away(self.stays[pair.old], self.stays[pair.new])

    def lost(self) -> Iterator[tuple[MemberSpell, Span, int | None]]:
        """Members that left and did not return within AWAY_MAX_MS: each with the time of its last heartbeat, and the rebalance in which it left."""
        for at, stay in enumerate(self.stays):
            if stay.last_heartbeat is not None and at not in self._by_old and not self._may_return(stay):
                yield self.spells[at], stay.last_heartbeat, self._left_in_rebalance.get(at)

    def absent(self) -> int:
        """The number of members that left, have not returned yet, and still may."""
        return sum(
            stay.last_heartbeat is not None and at not in self._by_old and stay.last_heartbeat[1] + AWAY_MAX_MS > self.now_ms for at, stay in enumerate(self.stays)
        )

    def members_at(self, ms: int) -> int:
        """The number of members right before this time."""
        spells = zip(self.spells, self.stays, strict=True)
        return sum((spell.joined_hi_ms or 0) < ms and (stay.ended is None or stay.ended[1] >= ms) for spell, stay in spells)

    def _waiting_in_rebalance(self, stay: Stay, spell: MemberSpell) -> Stay:
        """Extend the time of the last heartbeat back to the begin of a rebalance: a coordinator considers a member that waits for its reply alive."""
        if stay.last_heartbeat is None or stay.last_heartbeat[0] != stay.last_heartbeat[1] or spell.end_kind not in ("expired", "evicted"):
            return stay
        last_heartbeat = stay.last_heartbeat[1]
        at = bisect_right(self._begins, last_heartbeat) - 1
        if at < 0 or _end(self._episodes[at]) < last_heartbeat:
            return stay
        since = max(self._begins[at], (spell.joined_hi_ms or 0) + 1)  # not before it had joined
        return stay._replace(last_heartbeat=(min(since, last_heartbeat), last_heartbeat))

    def _merge_unstored_joins(self) -> None:
        """If the coordinator restarted before it had stored a join, the member joined again: its join counts from the first time."""
        joined = sorted((span[1], at) for at, span in self._joins)
        joining: dict[object, list[tuple[Span, int]]] = {}
        stored_as: dict[int, int] = {}
        for _, at in joined:
            stay, spell = self.stays[at], self.spells[at]
            assert stay.joined is not None
            unstored = joining.pop(stay.process_key, [])
            unstored = [earlier for earlier in unstored if stay.joined[1] - earlier[0][1] <= AWAY_MAX_MS]
            if spell.end_kind == "unknown" and spell.from_generation is None:
                joining[stay.process_key] = [*unstored, (stay.joined, at)]
                self.never_stored.add(spell.member_id)
                self.stays[at] = stay._replace(joined=None, last_heartbeat=None, ended=None)
            elif unstored:
                stored_as |= {before: at for _, before in unstored}
                self.stays[at] = stay._replace(joined=unstored[0][0])
        self._joins = [(stored_as.get(at, at), span) for at, span in self._joins]

    # Members and rebalances

    def _assign_changes(self) -> None:
        explained: dict[int, set[str]] = {number: set() for number in self.changes}
        for at, (new, joined) in zip(self._join_indexes, self._joins, strict=True):
            names = {self.spells[at].member_key, self.spells[at].member_id}
            episode = self._episode(names, joined, joined=True)
            if episode is not None:
                explained[episode.episode] |= names
                self._add(self.changes[episode.episode], self._by_new.get(new), self._may_be_return(joined))
        for at, (spell, stay) in enumerate(zip(self.spells, self.stays, strict=True)):
            names = {spell.member_key, spell.member_id}
            if stay.ended is not None and spell.end_kind != "replaced":
                episode = self._episode(names, stay.ended, joined=False)
                if episode is not None:
                    explained[episode.episode] |= names
                    self._left_in_rebalance[at] = episode.episode
                    self._add(self.changes[episode.episode], self._by_old.get(at), spell.end_kind == COORDINATOR_AWAY or self._may_return(stay))
        for replacement in self.replacements:
            names = {replacement.instance_id, replacement.old_member_id, replacement.new_member_id}
            episode = self._episode(names, (replacement.at_ms, replacement.at_ms), joined=True) if replacement.verdict != "saved" else None
            if episode is not None:
                explained[episode.episode] |= names
                self.changes[episode.episode].replaced.append(replacement)
        for episode in self._episodes:
            for name in {*episode.joined, *episode.left, *episode.expired, *episode.rejoined} - explained[episode.episode]:
                self._add_unexplained(self.changes[episode.episode], name)

    def _add_unexplained(self, changes: MemberChanges, name: str) -> None:
        """Add a member without a known spell. It may have left in a rebalance that a restart of the coordinator undid."""
        for at, number in self._left_in_rebalance.items():
            if name in (self.spells[at].member_key, self.spells[at].member_id) and self._interrupted[number]:
                self._add(changes, self._by_old.get(at), self._may_return(self.stays[at]))
                return
        changes.unsure = True

    def _add(self, changes: MemberChanges, pair: int | None, unsure: bool) -> None:
        if pair is not None:
            changes.pairs.add(pair)
        elif unsure:
            changes.unsure = True
        else:
            changes.has_permanent_change = True

    def _episode(self, names: set[str], span: Span, *, joined: bool) -> Episode | None:
        """The rebalance in which a member joined or left: one that lists the member, else the latest that had begun."""
        candidates: list[Episode] = []
        at = bisect_right(self._begins, span[1])
        while at and _end(self._episodes[at - 1]) >= span[0]:
            at -= 1
            candidates.append(self._episodes[at])
        for episode in candidates:
            if not names.isdisjoint((*episode.joined, *episode.rejoined) if joined else (*episode.left, *episode.expired, *episode.rejoined)):
                return episode
        return candidates[0] if candidates else None

    def _may_be_return(self, joined: Span) -> bool:
        """Whether the join may be the return of a member that left during a gap in the logs, or that the coordinator lost while it was away."""
        if any(begin <= joined[1] <= end for begin, end in self._outages):
            return True
        return any(begin <= joined[1] and joined[0] - AWAY_MAX_MS <= end for begin, end in self._holes)

    def _may_return(self, stay: Stay) -> bool:
        """Whether the member may have returned during a gap in the logs, or may still return."""
        if stay.last_heartbeat is None:
            return False
        until = stay.last_heartbeat[1] + AWAY_MAX_MS
        return until > self.now_ms or any(begin <= until and stay.last_heartbeat[0] <= end for begin, end in self._holes)

    def _returns(self) -> list[Return]:
        of_pair: dict[int, list[int]] = {}
        of_seat: dict[str, list[int]] = {}
        for number, changes in self.changes.items():
            for at in changes.pairs:
                of_pair.setdefault(at, []).append(number)
            for replaced in changes.replaced:
                of_seat.setdefault(replaced.new_member_id, []).append(number)
        # Without notes it is unknown when a group that was empty for long began to form again: perhaps its members were away for too long.
        sure = [(at, pair) for at, pair in enumerate(self.pairs) if self.gap(pair)[1] <= AWAY_MAX_MS]
        returns = [self._return_of_pair(pair, of_pair.get(at, [])) for at, pair in sure]
        returns += [_return_to_seat(replacement, of_seat.get(replacement.new_member_id, [])) for replacement in self.replacements if replacement.gap_hi_ms is not None]
        returns.sort(key=lambda returned: (returned.back_ms, returned.new_id))
        process: dict[str, str] = {}
        for at, returned in enumerate(returns):
            process[returned.new_id] = process.get(returned.old_id, returned.old_id)
            returns[at] = returned._replace(process=process[returned.new_id])
        return returns

    def _return_of_pair(self, pair: RestartPair, episodes: list[int]) -> Return:
        old, new = self.spells[pair.old], self.spells[pair.new]
        stay, joined = self.stays[pair.old], self.stays[pair.new].joined
        assert stay.last_heartbeat is not None
        assert joined is not None
        gap = self.gap(pair)
        confidence = "weak" if not pair.strong or not pair.unambiguous else EXACT if gap[0] == gap[1] else "strong"
        return Return(
            DYNAMIC_PAIR if old.instance_id is None else EXPIRED_RETURNED,
            "",
            old.member_id,
            new.member_id,
            old.member_key,
            stay.last_heartbeat[0],
            joined[1],
            gap,
            old.partitions,
            confidence,
            episodes,
        )


def _return_span(spell: MemberSpell) -> Span:
    """When a member may have returned that a loaded coordinator waited for, for one session."""
    ended = spell.ended_hi_ms or 0
    return ended - (spell.session_timeout_ms or 0), ended + AWAY_MAX_MS


def _return_to_seat(replaced: Replaced, episodes: list[int]) -> Return:
    assert replaced.gap_hi_ms is not None
    gap = replaced.gap_lo_ms or 0, replaced.gap_hi_ms
    went = replaced.at_ms - replaced.gap_hi_ms
    ids = replaced.old_member_id, replaced.new_member_id
    return Return(STATIC_REPLACEMENT, "", *ids, replaced.instance_id, went, replaced.at_ms, gap, replaced.partitions_held, replaced.confidence, episodes)


def _bounded(replaced: Replaced) -> Replaced:
    """Limit the absence to the session timeout: a seat is kept only for one session."""
    if replaced.confidence == EXACT or replaced.gap_hi_ms is None or replaced.session_timeout_ms is None:
        return replaced
    return replaced._replace(gap_hi_ms=max(min(replaced.gap_hi_ms, replaced.session_timeout_ms), replaced.gap_lo_ms or 0))


class _LastSigns:
    """The last time at which group records show that a dynamic member was alive: the end of the join phase of its last generation."""

    def __init__(self, generations: Sequence[Generation]) -> None:
        rows = [generation for generation in generations if generation.state_ms is not None and not generation.is_replacement]
        self._moments = [row.append_ms for row in rows]
        self._rows = rows

    def last_alive_ms(self, spell: MemberSpell) -> int:
        if spell.confidence == EXACT or spell.instance_id is not None or spell.ended_lo_ms is None:
            return 0
        at = bisect_right(self._moments, spell.ended_lo_ms)
        row = self._rows[at - 1] if at else None
        return row.state_ms or 0 if row is not None and row.generation == spell.to_generation else 0


def stay_of(spell: MemberSpell, alive_ms: int = 0) -> Stay:
    """The stay that a member spell describes.

    Without notes a stay ends with the rebalance that the member missed; the member fell silent between its last sign of life and that end. Signs
    of life are its commits, its heartbeats, and `alive_ms`, a time at which it was known to be alive.
    """
    joined = (spell.joined_lo_ms, spell.joined_hi_ms) if spell.joined_lo_ms is not None and spell.joined_hi_ms is not None else None
    if spell.end_kind == "open" or spell.ended_hi_ms is None:
        return Stay(spell.member_id, spell.instance_id, spell.client_id, spell.host, joined, None, None, False, spell.from_generation, spell.to_generation)
    ended = (spell.ended_lo_ms if spell.ended_lo_ms is not None else spell.ended_hi_ms, spell.ended_hi_ms)
    known = spell.confidence == EXACT and ended[0] == ended[1]
    end_known = spell.end_kind == "left" or not known
    silent: Span | None = None
    if spell.end_kind in MAY_RETURN:
        if known and spell.last_heartbeat_ms is not None:
            silent = spell.last_heartbeat_ms, spell.last_heartbeat_ms
        elif spell.end_kind == "expired" and ended[0] == ended[1] and spell.last_heartbeat_ms is not None:
            # A restart of the coordinator may have begun a new session for the member when the member was silent already.
            alive_at = max(spell.last_heartbeat_ms, spell.last_commit_ms or 0, (spell.joined_hi_ms or 0) + 1)
            silent = alive_at, max(alive_at, ended[1] - (spell.session_timeout_ms or 0))
            end_known = False
        else:
            session = spell.session_timeout_ms or AWAY_MAX_MS
            since = max(ended[0] - session, spell.last_commit_ms or 0, spell.last_heartbeat_ms or 0, alive_ms)
            silent = min(since, ended[1]), ended[1]
    # A coordinator that is killed may have lost the generation, which then comes again.
    generations = spell.from_generation, spell.to_generation if spell.end_kind != "unknown" else None
    return Stay(spell.member_id, spell.instance_id, spell.client_id, spell.host, joined, silent, ended, end_known, *generations)


def _clock_steps(episodes: Sequence[Episode]) -> Iterator[Span]:
    """The times that the coordinator's clock showed twice, as it was set back between two rebalances: the order of the log shows it."""
    newest = -FAR_FUTURE
    for episode in episodes:
        if episode.start_hi_ms is not None and episode.start_hi_ms < newest:
            yield episode.start_hi_ms, newest
        newest = max(newest, episode.start_hi_ms or newest, episode.end_ms or newest)


def _begin(episode: Episode) -> int:
    return next((ms for ms in (episode.start_lo_ms, episode.start_hi_ms, episode.end_ms) if ms is not None), -FAR_FUTURE)


def _end(episode: Episode) -> int:
    return episode.end_ms if episode.end_ms is not None else FAR_FUTURE
