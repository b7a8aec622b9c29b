"""Replays of a group's history with other settings: the same processes start and stop in the real coordinator, in virtual time.

`as_static`: all members are static with one session timeout. Only restarts have another effect: a member that stopped for good is removed at
the same time as in the logs. How much later the timeout would detect it is a separate cost (timeouts.py).
`as_dynamic`: all members are dynamic, and every restart begins with LeaveGroup: shows what static members have saved.
`as_it_was`: each member keeps its kind: shows how close the replay is to the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from coordinator import GroupConfig
from history.causes import Replay, cause_row
from pipeline.avoidable import YES, follows
from pipeline.restarts import FAR_FUTURE, STATIC_REPLACEMENT, Restarts, Return
from pipeline.rows import Episode, MemberSpell, Replaced
from pipeline.virtual import Client, DiscardingRecorder, TrueRebalance, World

BEFORE_MS: Final = 60_000  # a member that exists at the start of the log counts as joined this long before
SESSION_MS: Final = 45_000  # if unknown: Java's default
AFTER_MS: Final = 600_000
FOREVER_MS: Final = (1 << 31) - 1  # the longest possible session timeout
SAVED: Final = "saved"  # as in rows.Replaced
LEAVE_AND_JOIN: Final = 2
REPEATED_REQUEST_MS: Final = 10_000


class ProcessRun(NamedTuple):
    """One run of a process, from its join on."""

    joined_ms: int | None  # None: before the log begins
    silent_ms: int | None
    gone_ms: int | None
    left: bool  # by LeaveGroup
    removed: bool  # by an administrator
    back: Return | None  # the return of the process after this run, if any


@dataclass(slots=True)
class Process:
    name: str
    client_id: str
    host: str
    static: bool
    session_ms: int
    runs: list[ProcessRun] = field(default_factory=list)


class ReplayOptions(NamedTuple):
    static: bool | None  # None: as in the logs
    session_ms: int | None  # None: as in the logs
    longest: bool  # use the longest possible time of each absence


class OtherRebalance(NamedTuple):
    """A rebalance with a cause other than members that joined or left."""

    at_ms: int
    by_leader: bool
    member: str | None


class Stop(NamedTuple):
    """A process stopped its heartbeats, or left the group."""

    at_ms: int
    process: str
    back: Return | None


class Replayed(NamedTuple):
    episodes: list[TrueRebalance]
    returns: list[Return]  # by number of the restart
    stops: list[Stop]

    @property
    def rebalances(self) -> int:
        return len(self.episodes)

    @property
    def generations(self) -> int:
        return self.episodes[-1].to_generation if self.episodes else 0

    def caused_by(self, matches: Callable[[Return], bool]) -> list[TrueRebalance]:
        """The rebalances caused only by matching restarts."""
        numbers = {number for number, returned in enumerate(self.returns) if matches(returned)}
        return [episode for episode in self.episodes if episode.restarts_alone and episode.restarts <= numbers]

    def of_restarts(self, bridged_by_ms: int) -> list[TrueRebalance]:
        """The rebalances caused only by restarts shorter than a session timeout."""
        return self.caused_by(lambda returned: returned.away[1] < bridged_by_ms)

    def expired(self) -> list[Return]:
        """The restarts that were longer than the session timeout."""
        restarts = []
        for episode in self.episodes:
            for change in episode.changes:
                last = [stop for stop in self.stops if stop.process == change.client and stop.at_ms <= change.at_ms][-1:]
                if change.what == "expired" and last and last[0].back is not None:
                    restarts.append(last[0].back)
        return restarts


class _ReplayClient(Client):
    """A client whose last heartbeat is at the moment it stops, which is the time in the logs."""

    def last_beat(self) -> int:
        return self.world.now


class Script:
    """The runs of processes, from the tables. `longest`: use the longest possible time of absences of unknown length."""

    def __init__(self, group: str, restarts: Restarts, episodes: Sequence[Episode], heartbeat_ms: int) -> None:
        self.group = group
        self._heartbeat_ms = heartbeat_ms
        self._spells = {spell.member_id: spell for spell in restarts.spells if spell.member_id not in restarts.never_stored}
        self._returns = restarts.returns
        self._by_old = {returned.old_id: returned for returned in restarts.returns}
        self._other_rebalances = list(_other_rebalances(episodes))
        begin = min((ms for ms in self._moments(restarts.spells)), default=0)
        self._begin = begin - BEFORE_MS
        self._end = max((ms for ms in self._moments(restarts.spells)), default=0) + AFTER_MS

    def as_static(self, timeout_ms: int) -> Replayed:
        return self._play(ReplayOptions(True, timeout_ms, True))

    def as_dynamic(self, *, longest: bool) -> Replayed:
        return self._play(ReplayOptions(False, None, longest))

    def as_it_was(self) -> Replayed:
        return self._play(ReplayOptions(None, None, False))

    def _moments(self, spells: Sequence[MemberSpell]) -> Iterable[int]:
        for spell in spells:
            yield from (ms for ms in (spell.joined_hi_ms, spell.ended_lo_ms, spell.ended_hi_ms) if ms is not None)
        yield from (rebalance.at_ms for rebalance in self._other_rebalances)
        for back in self._returns:
            yield from (back.went_ms, back.back_ms)

    def _processes(self, *, longest: bool) -> list[Process]:
        returned_ids = {returned.new_id for returned in self._returns}
        processes: list[Process] = []
        for spell in self._spells.values():
            if spell.member_id in returned_ids:
                continue
            process = Process(f"process-{len(processes)}", spell.client_id, spell.host, spell.instance_id is not None, spell.session_timeout_ms or SESSION_MS)
            joined = spell.joined_hi_ms if spell.joined_lo_ms is not None else None
            current: MemberSpell | None = spell
            while current is not None:
                back = self._by_old.get(current.member_id)
                gone = current.ended_hi_ms if current.end_kind != "open" else None
                if back is not None:
                    silent: int | None = back.back_ms - back.away[longest]
                else:
                    silent = current.last_heartbeat_ms if current.last_heartbeat_ms is not None else gone
                process.runs.append(ProcessRun(joined, silent, gone, current.end_kind == "left", current.end_kind == "removed", back))
                joined = back.back_ms if back is not None else None
                current = self._spells.get(back.new_id) if back is not None else None
            processes.append(process)
        return processes

    def _play(self, options: ReplayOptions) -> Replayed:
        config = GroupConfig(group_min_session_timeout_ms=0, group_max_session_timeout_ms=FAR_FUTURE)
        world = World(self._begin, config=config, recorder=DiscardingRecorder())
        stops: list[Stop] = []
        for process in self._processes(longest=options.longest):
            static = process.static if options.static is None else options.static
            client = _ReplayClient(
                world,
                self.group,
                process.name,
                topics={},
                instance=process.name if static else None,
                client_id=process.client_id,
                host=process.host,
                session_ms=options.session_ms if options.session_ms is not None else process.session_ms,
                heartbeat_ms=self._heartbeat_ms,
            )
            world.clients.setdefault(self.group, []).append(client)
            for run in process.runs:
                self._plan(world, client, run, options, stops)
        for rebalance in self._other_rebalances:
            world.at(rebalance.at_ms, _trigger_rebalance, world, self.group, rebalance)
        world.run_until(self._end)
        return Replayed(list(world.episodes(self.group)), [stop.back for stop in stops if stop.back is not None], stops)

    def _plan(self, world: World, client: Client, run: ProcessRun, options: ReplayOptions, stops: list[Stop]) -> None:
        world.at(run.joined_ms if run.joined_ms is not None else self._begin, _start, client)
        back = run.back
        if back is not None:
            assert run.silent_ms is not None
            leaves = run.left if not options.static else False
            at = run.gone_ms if leaves and run.gone_ms is not None else run.silent_ms
            world.at(at, _stop, client, leaves or (options.static is False and back.static), back, stops)
        elif run.gone_ms is not None:
            if run.left:
                world.at(run.gone_ms, _stop, client, True, None, stops)
            elif run.silent_ms is not None:
                world.at(min(run.silent_ms, run.gone_ms), _stop, client, False, None, stops)
                if options.static or run.removed:
                    world.at(run.gone_ms, world.remove_instance, self.group, client.name)


def _start(client: Client) -> None:
    if client.alive:
        client.crash()
    client.start()


def _stop(client: Client, leaves: bool, back: Return | None, stops: list[Stop]) -> None:
    client.restart_number = None
    if back is not None:
        client.restart_number = client.world.begin_restart(client, back.away[1])
    stops.append(Stop(client.world.now, client.name, back))
    if leaves:
        client.stop(leave=True)
    else:
        client.crash()


def _trigger_rebalance(world: World, group: str, rebalance: OtherRebalance) -> None:
    """Let the leader in the replay trigger a rebalance; the leader in the logs may have been another member."""
    group_state = world.group(group)
    clients = [client for client in world.clients.get(group, []) if client.settled]
    leader = next((client for client in clients if group_state is not None and client.member_id == group_state.leader), None)
    if leader is not None:
        if rebalance.by_leader:
            leader.rejoin()
        else:
            leader.change_topics({f"at-{rebalance.at_ms}": 0})


def _other_rebalances(episodes: Sequence[Episode]) -> Iterable[OtherRebalance]:
    before: Episode | None = None
    for episode in sorted(episodes, key=lambda rebalance: rebalance.episode):
        second = before is not None and follows(before, episode)
        before = episode
        replay = cause_row(episode.cause).replay
        if replay is not Replay.NOT and not second and not episode.missing and episode.start_hi_ms is not None:
            yield OtherRebalance(episode.start_hi_ms, replay is Replay.LEADER_REJOINS, episode.trigger_member)


def confirmed_avoidable(script: Script, episodes: Sequence[Episode], timeout_ms: int) -> int:
    """The number of rebalances that a timeout would have avoided, confirmed by replay, minus those that a timeout shorter than the current one
    would have added.
    """
    chosen = sum(episode.avoidable == YES and episode.avoidable_by_ms is not None and episode.avoidable_by_ms <= timeout_ms for episode in episodes)
    replayed = script.as_static(timeout_ms)
    added = replayed.caused_by(lambda returned: returned.away[1] >= timeout_ms and returned.source == STATIC_REPLACEMENT)
    return max(chosen - len(replayed.of_restarts(timeout_ms)) - len(added), 0)


def with_saved_rebalances(script: Script, restarts: Restarts, replacements: Sequence[Replaced]) -> list[Replaced]:
    """The replacements, with the number of rebalances that each would have caused without an instance id.

    The history is replayed with dynamic members to count them. If the length of the absence is unknown, `saved_rebalances` is the maximum (2:
    leaving and joining), and `saved_at_least`, at most 1, comes from replays with the shortest and the longest absence.
    """
    saved = {replacement.new_member_id: replacement for replacement in restarts.replacements if replacement.verdict == SAVED}
    if not saved:
        return [replacement._replace(saved_rebalances=0, saved_at_least=0) for replacement in replacements]
    exact = all(replacement.gap_lo_ms == replacement.gap_hi_ms for replacement in saved.values())
    shortest = _rebalances_by_return(script.as_dynamic(longest=exact))
    longest_counts = shortest if exact else _rebalances_by_return(script.as_dynamic(longest=True))
    next_return_ms = {replacement.old_member_id: replacement.at_ms for replacement in replacements}
    result = []
    for replacement in replacements:
        replacement = saved.get(replacement.new_member_id, replacement)
        count = shortest.get(replacement.new_member_id, 0) if replacement.verdict == SAVED else 0
        if replacement.verdict != SAVED or replacement.gap_lo_ms == replacement.gap_hi_ms:
            result.append(replacement._replace(saved_rebalances=count, saved_at_least=count))
        else:
            # A member that only repeats a request after a lost reply was not away.
            away = next_return_ms.get(replacement.new_member_id, FAR_FUTURE) > replacement.at_ms + REPEATED_REQUEST_MS
            result.append(replacement._replace(saved_rebalances=LEAVE_AND_JOIN, saved_at_least=min(count, longest_counts.get(replacement.new_member_id, 0), int(away))))
    return result


def _rebalances_by_return(replayed: Replayed) -> dict[str, int]:
    """The number of rebalances that each return of a static member began, by its new member id."""
    counts: dict[str, int] = {}
    for episode in replayed.episodes:
        first = episode.changes[0].restart if episode.changes and cause_row(episode.cause).of_members else None
        if first is not None and replayed.returns[first].source == STATIC_REPLACEMENT:
            new_id = replayed.returns[first].new_id
            counts[new_id] = counts.get(new_id, 0) + 1
    return counts
