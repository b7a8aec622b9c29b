"""What would have happened: the same processes, going and coming when they did, in the real coordinator and virtual time.

`as_static`: each member has an instance id and sends no LeaveGroup, with one session timeout for all. What did not come from restarts stays as it
was: a member that went for good is taken out when it was, for that it would be missed later is a price of its own (timeouts.py).
`as_dynamic`: no member has an instance id, and every restart begins with a LeaveGroup: what static members have saved.
`as_it_was`: each member keeps its kind, to see how close a replay comes to the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from coordinator import GroupConfig
from pipeline.avoidable import OF_MEMBERS_ALONE, UNKNOWN, YES, follows
from pipeline.restarts import ALWAYS, STATIC_REPLACEMENT, Restarts, Return
from pipeline.rows import Episode, Replaced, Spell
from pipeline.virtual import Client, Nowhere, TrueEpisode, World

BEFORE_MS: Final = 60_000  # members present at the log start joined before it
SESSION_MS: Final = 45_000  # a client's own, where none is known
AFTER_MS: Final = 600_000
FOREVER_MS: Final = (1 << 31) - 1  # the longest session that there can be
SAVED: Final = "saved"  # as in rows.Replaced
GOING_AND_COMING: Final = 2
AGAIN_MS: Final = 10_000
NOT_REPLAYED: Final = frozenset({"coordinator_moved", "over_max_size", "sync_failed"})  # causes within the coordinator


class Stint(NamedTuple):
    """One run of a process, from its joining on."""

    joined_ms: int | None  # None: when the log begins it is there
    silent_ms: int | None
    gone_ms: int | None
    left: bool  # it said so
    removed: bool  # an administrator removed it
    back: Return | None  # how it comes back


@dataclass(slots=True)
class Process:
    name: str
    client_id: str
    host: str
    static: bool
    session_ms: int
    stints: list[Stint] = field(default_factory=list)


class Rules(NamedTuple):
    static: bool | None  # None: those that were
    session_ms: int | None  # None: each its own
    longest: bool  # each absence takes its longest possible time


class Nudge(NamedTuple):
    """A rebalance with another cause than a member that joined or left."""

    at_ms: int
    by_leader: bool
    member: str | None


class Going(NamedTuple):
    """A process stopped its heartbeats, or left."""

    at_ms: int
    process: str
    back: Return | None


class Replayed(NamedTuple):
    episodes: list[TrueEpisode]
    returns: list[Return]  # by number of the restart
    goings: list[Going]

    @property
    def rebalances(self) -> int:
        return len(self.episodes)

    @property
    def generations(self) -> int:
        return self.episodes[-1].to_generation if self.episodes else 0

    def of(self, some: Callable[[Return], bool]) -> list[TrueEpisode]:
        """Rebalances caused only by restarts of this kind."""
        numbers = {number for number, one in enumerate(self.returns) if some(one)}
        return [episode for episode in self.episodes if episode.restarts_alone and episode.restarts <= numbers]

    def of_restarts(self, bridged_by_ms: int) -> list[TrueEpisode]:
        """Restarts shorter than this session timeout."""
        return self.of(lambda one: one.away[1] < bridged_by_ms)

    def expired(self) -> list[Return]:
        """Restarts longer than the session timeout."""
        found = []
        for episode in self.episodes:
            for change in episode.changes:
                last = [going for going in self.goings if going.process == change.client and going.at_ms <= change.at_ms][-1:]
                if change.what == "expired" and last and last[0].back is not None:
                    found.append(last[0].back)
        return found


class _Replay(Client):
    """A client whose last heartbeat is sent at the moment it stops, since the logs give the time of the last heartbeat."""

    def last_beat(self) -> int:
        return self.world.now


class Script:
    """Members that joined and left, from the tables. `longest`: take the longest time of an absence that is not known exactly."""

    def __init__(self, group: str, restarts: Restarts, episodes: Sequence[Episode], heartbeat_ms: int) -> None:
        self.group = group
        self._heartbeat_ms = heartbeat_ms
        self._spells = {spell.member_id: spell for spell in restarts.spells if spell.member_id not in restarts.undone}
        self._returns = restarts.returns
        self._by_old = {one.old_id: one for one in restarts.returns}
        self._nudges = list(_nudges(episodes))
        begin = min((ms for ms in self._moments(restarts.spells)), default=0)
        self._begin = begin - BEFORE_MS
        self._end = max((ms for ms in self._moments(restarts.spells)), default=0) + AFTER_MS

    def as_static(self, timeout_ms: int) -> Replayed:
        return self._play(Rules(True, timeout_ms, True))

    def as_dynamic(self, *, longest: bool) -> Replayed:
        return self._play(Rules(False, None, longest))

    def as_it_was(self) -> Replayed:
        return self._play(Rules(None, None, False))

    def _moments(self, spells: Sequence[Spell]) -> Iterable[int]:
        for spell in spells:
            yield from (ms for ms in (spell.joined_hi_ms, spell.ended_lo_ms, spell.ended_hi_ms) if ms is not None)
        yield from (nudge.at_ms for nudge in self._nudges)
        for back in self._returns:
            yield from (back.went_ms, back.back_ms)

    def _processes(self, *, longest: bool) -> list[Process]:
        came = {one.new_id for one in self._returns}
        found: list[Process] = []
        for spell in self._spells.values():
            if spell.member_id in came:
                continue
            process = Process(f"process-{len(found)}", spell.client_id, spell.host, spell.instance_id is not None, spell.session_timeout_ms or SESSION_MS)
            joined = spell.joined_hi_ms if spell.joined_lo_ms is not None else None
            one: Spell | None = spell
            while one is not None:
                back = self._by_old.get(one.member_id)
                gone = one.ended_hi_ms if one.end_kind != "open" else None
                if back is not None:
                    silent: int | None = back.back_ms - back.away[longest]
                else:
                    silent = one.last_heartbeat_ms if one.last_heartbeat_ms is not None else gone
                process.stints.append(Stint(joined, silent, gone, one.end_kind == "left", one.end_kind == "removed", back))
                joined = back.back_ms if back is not None else None
                one = self._spells.get(back.new_id) if back is not None else None
            found.append(process)
        return found

    def _play(self, rules: Rules) -> Replayed:
        config = GroupConfig(group_min_session_timeout_ms=0, group_max_session_timeout_ms=ALWAYS)
        world = World(self._begin, config=config, recorder=Nowhere())
        goings: list[Going] = []
        for process in self._processes(longest=rules.longest):
            static = process.static if rules.static is None else rules.static
            client = _Replay(
                world,
                self.group,
                process.name,
                topics={},
                instance=process.name if static else None,
                client_id=process.client_id,
                host=process.host,
                session_ms=rules.session_ms if rules.session_ms is not None else process.session_ms,
                heartbeat_ms=self._heartbeat_ms,
            )
            world.clients.setdefault(self.group, []).append(client)
            for stint in process.stints:
                self._plan(world, client, stint, rules, goings)
        for nudge in self._nudges:
            world.at(nudge.at_ms, _nudge, world, self.group, nudge)
        world.run_until(self._end)
        return Replayed(list(world.episodes(self.group)), [going.back for going in goings if going.back is not None], goings)

    def _plan(self, world: World, client: Client, stint: Stint, rules: Rules, goings: list[Going]) -> None:
        world.at(stint.joined_ms if stint.joined_ms is not None else self._begin, _start, client)
        back = stint.back
        if back is not None:
            assert stint.silent_ms is not None
            leaves = stint.left if not rules.static else False
            at = stint.gone_ms if leaves and stint.gone_ms is not None else stint.silent_ms
            world.at(at, _go, client, leaves or (rules.static is False and back.static), back, goings)
        elif stint.gone_ms is not None:
            if stint.left:
                world.at(stint.gone_ms, _go, client, True, None, goings)
            elif stint.silent_ms is not None:
                world.at(min(stint.silent_ms, stint.gone_ms), _go, client, False, None, goings)
                if rules.static or stint.removed:
                    world.at(stint.gone_ms, world.remove_instance, self.group, client.name)


def _start(client: Client) -> None:
    if client.alive:
        client.crash()
    client.start()


def _go(client: Client, leaves: bool, back: Return | None, goings: list[Going]) -> None:
    client.restart_number = None
    if back is not None:
        client.restart_number = client.world.begin_restart(client, back.away[1])
    goings.append(Going(client.world.now, client.name, back))
    if leaves:
        client.stop(leave=True)
    else:
        client.crash()


def _nudge(world: World, group: str, nudge: Nudge) -> None:
    """The leader of the replay may differ from the one in the logs."""
    found = world.group(group)
    clients = [one for one in world.clients.get(group, []) if one.settled]
    leader = next((client for client in clients if found is not None and client.member_id == found.leader), None)
    if leader is not None:
        if nudge.by_leader:
            leader.rejoin()
        else:
            leader.change_topics({f"at-{nudge.at_ms}": 0})


def _nudges(episodes: Sequence[Episode]) -> Iterable[Nudge]:
    before: Episode | None = None
    for episode in sorted(episodes, key=lambda one: one.episode):
        second = before is not None and follows(before, episode)
        before = episode
        alone = episode.cause in OF_MEMBERS_ALONE or episode.cause in NOT_REPLAYED or episode.cause in (UNKNOWN, "admin_removed", "roster_changed")
        if not alone and not second and not episode.missing and episode.start_hi_ms is not None:
            yield Nudge(episode.start_hi_ms, episode.cause == "leader_rejoined", episode.trigger_member)


def confirmed(script: Script, episodes: Sequence[Episode], timeout_ms: int) -> int:
    """The rebalances that a timeout would have avoided, as confirmed by the coordinator; less those it would have added,
    if it is shorter than the timeout that kept seats until now.
    """
    chosen = sum(episode.avoidable == YES and episode.avoidable_by_ms is not None and episode.avoidable_by_ms <= timeout_ms for episode in episodes)
    replayed = script.as_static(timeout_ms)
    added = replayed.of(lambda one: one.away[1] >= timeout_ms and one.source == STATIC_REPLACEMENT)
    return max(chosen - len(replayed.of_restarts(timeout_ms)) - len(added), 0)


def saved(script: Script, restarts: Restarts, replacements: Sequence[Replaced]) -> list[Replaced]:
    """Each kept seat with the rebalances that it would have caused without an instance id, by leaving and by joining.

    If the length of its absence is unknown these may be two, or one, or those of another member.
    """
    kept = {replacement.new_member_id: replacement for replacement in restarts.replacements if replacement.verdict == SAVED}
    if not kept:
        return [replacement._replace(saved_rebalances=0, saved_at_least=0) for replacement in replacements]
    known = all(one.gap_lo_ms == one.gap_hi_ms for one in kept.values())
    least = _begun(script.as_dynamic(longest=known))
    other = least if known else _begun(script.as_dynamic(longest=True))
    again = {replacement.old_member_id: replacement.at_ms for replacement in replacements}
    done = []
    for replacement in replacements:
        replacement = kept.get(replacement.new_member_id, replacement)
        count = least.get(replacement.new_member_id, 0) if replacement.verdict == SAVED else 0
        if replacement.verdict != SAVED or replacement.gap_lo_ms == replacement.gap_hi_ms:
            done.append(replacement._replace(saved_rebalances=count, saved_at_least=count))
        else:
            # A member that repeats a request after a lost reply was not away.
            away = again.get(replacement.new_member_id, ALWAYS) > replacement.at_ms + AGAIN_MS
            done.append(replacement._replace(saved_rebalances=GOING_AND_COMING, saved_at_least=min(count, other.get(replacement.new_member_id, 0), int(away))))
    return done


def _begun(replayed: Replayed) -> dict[str, int]:
    """By the id under which a static member came back."""
    counts: dict[str, int] = {}
    for episode in replayed.episodes:
        first = episode.changes[0].restart if episode.changes and episode.cause in OF_MEMBERS_ALONE else None
        if first is not None and replayed.returns[first].source == STATIC_REPLACEMENT:
            new_id = replayed.returns[first].new_id
            counts[new_id] = counts.get(new_id, 0) + 1
    return counts
