"""Append the facts of one partition of __consumer_offsets to its log, and decide whether its groups are served.

`refusal` is the error code for every request to the partition's groups, 0 while the partition serves. Every failure, from a full disk to a defect, is
handled alike: held and parked replies get an error, memory is dropped, and the log is replayed. A log that another node has claimed is released.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeVar, TypeVarTuple

from broker.groups.fenced import FencedLines
from broker.groups.journal import NO_LOG, Journal, close_failed_reply
from broker.groups.limit_lines import LimitLines
from broker.runtime.contain import report_defect
from broker.runtime.turn import NEVER, Turn
from coordinator import GroupConfig, Hold, Note, Shard
from coordinator.classic.kept import KeptBytes
from coordinator.consumer.topics import TopicsView
from coordinator.notes import ShardChange
from protocol.errors import ErrorCode
from storage import NOT_YET, AppendFailed, Fenced, OwnedLog

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
Request = TypeVar("Request")
Parked = TypeVar("Parked", bound="ParkedReply")


class ParkedReply(Protocol):
    def discard(self) -> None:
        """Prevent any later answer."""
        ...


SERVING = 0
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
SUSPENDED = ErrorCode.COORDINATOR_NOT_AVAILABLE
NOT_OURS = ErrorCode.NOT_COORDINATOR

# While an append is older than this, sessions that end are extended once (`Deadlines.extends`): replies to members wait for the append.
STALLED_MS = 100
# A deadline noticed this late was missed because the process was stopped (SIGSTOP, a sleeping machine). Clients may have closed their
# connections meanwhile, so their heartbeats are not in the input that is read before deadlines: their sessions are extended too.
STOPPED_MS = 1_000

_FOLDER_PATHS = re.compile(r"\S*/(?!output error)")  # not the "Input/" of "Input/output error"


def without_folders(reason: str) -> str:
    """Remove paths from a reason that clients may read."""
    return _FOLDER_PATHS.sub("", reason)


class HandOver(NamedTuple):
    """Another node gets the partition. `drained`: because an operator drains this node."""

    receiver: int
    drained: bool


class NoteWriter(Protocol):
    """Writes notes (notes.py)."""

    def write(self, journal: GroupJournal, notes: list[Note], offset: int) -> None: ...

    def write_change(self, journal: GroupJournal, change: ShardChange, hand_over: HandOver | None = None) -> None: ...


class GroupJournal(Journal):
    """One partition of __consumer_offsets: its shard, its log, and its state."""

    def __init__(
        self,
        partition: int,
        name: str,
        config: GroupConfig,
        fresh_id: Callable[[], str],
        turn: Turn,
        append_timeout_ms: int,
        note_writer: NoteWriter,
        reload: Callable[[GroupJournal], None],
        kept: KeptBytes | None = None,
        limit_lines: LimitLines | None = None,
        topics: TopicsView | None = None,
    ) -> None:
        """`kept`, `limit_lines` and `topics`: shared by all partitions of the node."""
        self._limit_lines = limit_lines or LimitLines()
        shard = Shard(config, fresh_id, self._write_notes, kept, self._log_limit, topics)
        super().__init__(name, shard, NO_LOG, turn, append_timeout_ms, NOT_OURS, SUSPENDED)
        self.shard = shard
        self.partition = partition
        self.refusal: int = NOT_OURS
        self.refusal_reason = ""  # why the partition does not serve, for people; "" while it serves
        self.defective = False  # whether the partition reloads after a defect
        self.replayed = 0  # facts in the last replay
        self.offsets = 0  # committed offsets after the last replay
        self.load_ms = 0
        # Called when the partition begins to serve, before any request is answered.
        self.on_serving: Callable[[GroupJournal], None] = lambda journal: None
        self.fenced_lines = FencedLines()
        self.queued_deletions = 0  # deletions of topics whose offsets will be removed soon (`Deletions.settle`)
        self._changed_topics: set[str] = set()  # topics that changed while the partition is loading
        self._note_writer = note_writer
        self._reload = reload
        self._reload_after_append = False
        self._unloaded: Callable[[], None] | None = None  # called when unloading is complete
        self._unreported_failure: AppendFailed | None = None  # of the log, since the partition last served
        self._hand_over: HandOver | None = None  # the reason of the unload; None: the process stops

    @property
    def epoch(self) -> int:
        return self._owned.epoch

    # Methods for handlers, besides `hold_reply`.

    @property
    def answers_at_once(self) -> bool:
        """Whether a reply may be returned instead of held: the partition serves, all facts are durable, and no reply is held."""
        hold = self.shard.hold
        return not self.refusal and hold.durable == hold.emitted and not hold.held

    def call(self, step: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Run one step of the shard. If it raises, the shard is reloaded, and the caller must answer the request."""
        try:
            result = step(*arguments)
        except Exception:
            self.step_failed()
            raise
        self.schedule_after_step()
        return result

    def park(self, step: Callable[[Request, Parked, int, int], None], request: Request, parked: Parked, now: int, wall: int) -> None:
        """Like `call`, but the step may park the reply. If the step raises, the caller answers, and the shard must not."""
        try:
            step(request, parked, now, wall)
        except Exception:
            self.step_failed(parked)
            raise
        self.schedule_after_step()

    def step_failed(self, parked: ParkedReply | None = None) -> None:
        """A step has raised: reload the shard, and fail all its replies but this one, which the caller sends."""
        if parked is not None:
            parked.discard()
        self.handle_defect()

    def schedule_after_step(self) -> None:
        """Schedule the append and the timer after a step that may have emitted facts or set an earlier deadline."""
        shard = self.shard
        hold = shard.hold
        turn = self.turn
        if hold.emitted != hold.taken and not self._in_flight:
            turn.call_first_at_turn_end(self)
        wake_at = shard.wake_at
        if wake_at < turn.armed_at:
            turn.wake_by(wake_at)

    def handle_defect(self) -> None:
        """Drop and reload the shard after an exception: its memory is no longer trusted."""
        if self.refusal:
            return
        self.refusal = SUSPENDED
        self.defective = True
        self.refusal_reason = "reloads after a defect"
        self._fail_waiting(NOT_OURS)
        if self._in_flight:
            self._reload_after_append = True  # the append may still succeed
        else:
            self._reload(self)

    # Appending.

    def end_turn(self) -> None:
        try:
            Journal.end_turn(self)
        except Exception as error:
            report_defect("an append failed inside the broker", error, log=self.name)
            self._clear_in_flight()
            self.handle_defect()

    def _appended(self, hold: Hold, fact_number: int, facts: int, result: int | AppendFailed) -> None:
        if fact_number != self._in_flight or hold is not self.shard.hold:
            return  # the shard was reloaded since; an append of its new hold may have the same fact number
        try:
            self._finish_append(hold, fact_number, facts, result)
        except Exception as error:
            report_defect("an append failed inside the broker", error, log=self.name)
            self._clear_in_flight()
            if self.refusal == SUSPENDED:  # a reload was due already
                self._reload(self)
            else:
                self.handle_defect()

    def _finish_append(self, hold: Hold, fact_number: int, facts: int, result: int | AppendFailed) -> None:
        if not self.refusal and self._deadline != NEVER and (now := self._clock.tick()) - self._append_began > STALLED_MS:
            # The append was slow: members whose session ended meanwhile get one more session.
            self._advance_shard(now, True)
        if self._reload_after_append:
            self._reload_after_append = False
            self._clear_in_flight()
            if isinstance(result, AppendFailed):
                self._suspend(result)
            elif self._unloaded is None:
                self._reload(self)
            self.finish_unload()
        else:
            Journal._appended(self, hold, fact_number, facts, result)

    def _clear_in_flight(self) -> None:
        self._in_flight = 0
        self._deadline = NEVER

    def failed(self, failure: AppendFailed) -> None:
        if self.refusal:
            self._unreported_failure = failure  # for `serve`
        else:
            super().failed(failure)

    def _suspend(self, failure: AppendFailed) -> None:
        self._note_writer.write_change(self, ShardChange.SUSPENDED)
        super()._suspend(failure)
        self.refusal_reason = without_folders(str(failure))
        if isinstance(failure, Fenced):
            self._release_log()
        else:
            self.refusal = SUSPENDED

    def _fail_waiting(self, error: int) -> None:
        self.shard.hold.fail(error, close_failed_reply)
        self.shard.abandon()

    def _recovered(self, owned: OwnedLog, failure: AppendFailed | None) -> None:
        if owned is self._owned and isinstance(failure, Fenced):
            self._release_log()
        else:
            super()._recovered(owned, failure)

    def _resume(self) -> None:
        self._reload(self)

    def _write_notes(self, notes: list[Note], fact_number: int) -> None:
        self._note_writer.write(self, notes, self.offset_of(fact_number) if fact_number else -1)

    def _log_limit(self, setting: str, group_id: str, member_id: str, client_host: str, size: int) -> None:
        self._limit_lines.add(self.now, setting, group_id, member_id, client_host, size)

    # Deadlines.

    @property
    def wake_at(self) -> int:
        if self.refusal:
            return self._deadline
        return min(self._deadline, self.shard.wake_at)

    def advance(self, now: int) -> None:
        super().advance(now)
        if not self.refusal and self.shard.wake_at <= now:
            slow = bool(self._in_flight) and now - self._append_began > STALLED_MS
            self._advance_shard(now, slow or now - self.shard.wake_at > STOPPED_MS)

    def _advance_shard(self, now: int, stalled: bool) -> None:
        shard = self.shard
        shard.deadlines.extends = stalled
        try:
            shard.advance(now, self._clock.wall, self._clock.steady_since_ms)
        finally:
            shard.deadlines.extends = False
        self.schedule_after_step()

    # Loading and unloading.

    def await_load(self) -> None:
        """Refuse requests until the partition is replayed."""
        self.refusal = LOADING
        self.refusal_reason = ""

    def use_log(self, owned: OwnedLog) -> None:
        self._owned = owned
        owned.watch(self.failed)

    def replay(self) -> Iterator[bool]:
        """Replay the log into the shard, in steps, and open its groups; yields False if the next step must wait. Raises one of UNREADABLE."""
        shard = self.shard
        shard.clear()
        self.replayed = 0
        for facts in self._owned.replay():
            if facts is NOT_YET:
                yield False
                continue
            shard.replay(facts)
            self.replayed += len(facts)
            yield True
        for _ in shard.open_groups(self._time):
            yield True
        self.offsets = sum(len(stored.values) for group in shard.all_groups() for stored in group.offsets.values())

    def _time(self) -> tuple[int, int]:
        return self._clock.tick(), self._clock.wall

    def serve(self, load_ms: int) -> None:
        """Serve the groups, after a complete replay, unless the log has failed meanwhile: another node may own it."""
        if not self._owned.usable():
            self._suspend(self._unreported_failure or AppendFailed("the log failed while it was read"))
            return
        self._unreported_failure = None
        resumed = self.refusal == SUSPENDED
        self.load_ms = load_ms
        self.refusal = SERVING
        self.defective = False
        self.refusal_reason = ""
        if not self.writable:
            self._serve_again()
        self._note_writer.write_change(self, ShardChange.RESUMED if resumed else ShardChange.LOADED)
        self.on_serving(self)
        changed, self._changed_topics = self._changed_topics, set()
        if changed:
            self.topics_changed(changed)
        self.schedule_after_step()

    def topics_changed(self, names: set[str]) -> None:
        """Notify the groups that these topics changed. A partition that is loading or suspended does so when it serves."""
        if not self.refusal:
            self.call(self.shard.policies.topics_changed, names, self.now, self.wall)
            self.call(self.shard.consumers.topics_changed, names)
        elif self.refusal != NOT_OURS:
            self._changed_topics |= names

    def refuse(self, reason: str) -> None:
        """Refuse all requests, because the log cannot be read for this reason, or because another node owns it (reason "")."""
        self.shard.clear()
        self._changed_topics.clear()
        self.refusal = NOT_OURS
        self.refusal_reason = f"cannot be read: {without_folders(reason)}" if reason else ""

    def unload(self, done: Callable[[], None], hand_over: HandOver | None = None) -> None:
        """Release the partition: from now on every request gets NOT_COORDINATOR, and no fact is emitted."""
        self.refusal = NOT_OURS
        self._unloaded = done
        self._hand_over = hand_over
        self.when_settled(self.finish_unload)

    def finish_unload(self) -> None:
        """Complete a requested unload now, even if an append is still in flight."""
        done = self._unloaded
        if done is None:
            return
        self._unloaded = None
        self._note_writer.write_change(self, ShardChange.UNLOADED, self._hand_over)
        self._release_log()
        self.replayed = 0
        done()

    def _release_log(self) -> None:
        self.refusal = NOT_OURS
        self._fail_waiting(NOT_OURS)
        self._clear_in_flight()
        self._reload_after_append = False
        self._owned.release()
        self._owned = NO_LOG
        self.refusal_reason = ""
