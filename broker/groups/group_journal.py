"""The way of one partition of __consumer_offsets to its log, and whether its groups may be asked.

`refusal` is the code that every request for its groups gets, 0 while it serves. Whatever goes wrong, a full disk as an
exception of ours, has one end: what is held and parked is answered, memory is given up, and the log is replayed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar, TypeVarTuple

from broker.groups.journal import Journal, spoiled
from broker.runtime.contain import defect
from broker.runtime.turn import NEVER, Turn
from coordinator import Fact, GroupConfig, Hold, Note, Shard
from coordinator.notes import Coordinator
from protocol.errors import ErrorCode
from storage import AppendFailed, Fenced, OwnedLog

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
Request = TypeVar("Request")
Parked = TypeVar("Parked", bound="Voidable")


class Voidable(Protocol):
    def void(self) -> None:
        """Nothing answers it any more."""
        ...

SERVING = 0
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
SUSPENDED = ErrorCode.COORDINATOR_NOT_AVAILABLE
NOT_OURS = ErrorCode.NOT_COORDINATOR

# An append older than this says that the log is slow: who waits for it is not held to a deadline.
STALLED_MS = 100

_FOLDERS = re.compile(r"\S*/(?!output error)")  # "Input/output error" is what a disk says


def without_folders(reason: str) -> str:
    """Clients may read it, and where our files lie is none of their business."""
    return _FOLDERS.sub("", reason)


class Telling(Protocol):
    """Where notes go."""

    def tell(self, journal: GroupJournal, notes: list[Note], offset: int) -> None: ...

    def tell_change(self, journal: GroupJournal, what: Coordinator) -> None: ...


class NoLog:
    """The log of a partition that has none, or none any more."""

    epoch = -1

    def usable(self) -> bool:
        return False

    def replay(self) -> Iterator[list[Fact]]:
        return iter(())

    def append(self, batch: bytes | bytearray, records: int, done: Callable[[int | AppendFailed], None]) -> None:
        done(Fenced("this partition is not ours"))

    def watch(self, failed: Callable[[AppendFailed], None]) -> None: ...

    def recover(self, done: Callable[[AppendFailed | None], None]) -> None:
        done(Fenced("this partition is not ours"))

    def release(self) -> None: ...


NO_LOG = NoLog()


class GroupJournal(Journal):
    """One partition: its shard, its log, and its state."""

    def __init__(
        self,
        partition: int,
        name: str,
        config: GroupConfig,
        fresh_id: Callable[[], str],
        turn: Turn,
        late_ms: int,
        telling: Telling,
        reload: Callable[[GroupJournal], None],
    ) -> None:
        shard = Shard(config, fresh_id, self._told)
        super().__init__(name, shard, NO_LOG, turn, late_ms, NOT_OURS, SUSPENDED)
        self.shard = shard
        self.partition = partition
        self.refusal: int = NOT_OURS
        self.trouble = ""  # in words for people, "" where there is none
        self.defective = False  # it begins anew after a defect of ours
        self.replayed = 0  # facts of the last replay
        self.offsets = 0  # and what they left
        self.load_ms = 0
        # Called when it is loaded, before anybody is answered.
        self.served: Callable[[GroupJournal], None] = lambda journal: None
        self._telling = telling
        self._reload = reload
        self._to_reload = False  # once that has come to its end
        self._unloaded: Callable[[], None] | None = None  # who waits for the end of unloading

    @property
    def epoch(self) -> int:
        return self._owned.epoch

    # What handlers call, besides `reply`.

    @property
    def direct(self) -> bool:
        """Nothing is on its way to the log: a reply may be returned instead of held."""
        hold = self.shard.hold
        return hold.durable == hold.emitted and not hold.waiting

    def call(self, step: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Let the shard take one step. After an exception the shard begins anew; the reply to it is the caller's to give."""
        try:
            result = step(*arguments)
        except Exception:
            self.broken()
            raise
        self.stepped()
        return result

    def park(self, step: Callable[[Request, Parked, int, int], None], request: Request, parked: Parked, now: int, wall: int) -> None:
        """`call` for a request whose reply may have to wait: after an exception the shard must not answer it too."""
        try:
            step(request, parked, now, wall)
        except Exception:
            parked.void()
            self.broken()
            raise
        self.stepped()

    def stepped(self) -> None:
        """After every call of the shard that may have emitted facts or set an earlier deadline."""
        shard = self.shard
        hold = shard.hold
        turn = self.turn
        if hold.emitted != hold.taken and not self._in_flight:
            turn.schedule_append(self)
        wake_at = shard.wake_at
        if wake_at < turn.armed_at:
            turn.wake_by(wake_at)

    def broken(self) -> None:
        """A call of the shard ended in an exception: what it left behind is not to be trusted."""
        if self.refusal:
            return
        self.refusal = SUSPENDED
        self.defective = True
        self.trouble = "begins anew after a defect"
        self._give_up(NOT_OURS)
        if self._in_flight:
            self._to_reload = True  # what is on its way may yet be true
        else:
            self._reload(self)

    # The way to the log.

    def end_turn(self) -> None:
        try:
            Journal.end_turn(self)
        except Exception as error:
            defect("an append failed inside the broker", error, log=self.name)
            self._none_under_way()
            self.broken()

    def _appended(self, hold: Hold, stamp: int, facts: int, result: int | AppendFailed) -> None:
        if stamp != self._in_flight or hold is not self.shard.hold:
            return  # given up since; the append under way may be one of the next life, with the same stamp
        try:
            self._came_to_its_end(hold, stamp, facts, result)
        except Exception as error:
            defect("an append failed inside the broker", error, log=self.name)
            self._none_under_way()
            if self.refusal == SUSPENDED:  # it was to begin anew already
                self._reload(self)
            else:
                self.broken()

    def _came_to_its_end(self, hold: Hold, stamp: int, facts: int, result: int | AppendFailed) -> None:
        if not self.refusal and self._alarm != NEVER and (now := self._clock.tick()) - self._began > STALLED_MS:  # it did not end at once
            # Whoever fell due meanwhile heard nothing from us for too long to be held to it.
            self._advance_shard(now, True)
        if self._to_reload:
            self._to_reload = False
            self._none_under_way()
            if isinstance(result, AppendFailed):
                self._suspend(result)
            elif self._unloaded is None:
                self._reload(self)
            self.finish_unload()
        else:
            Journal._appended(self, hold, stamp, facts, result)

    def _none_under_way(self) -> None:
        self._in_flight = 0
        self._alarm = NEVER

    def failed(self, failure: AppendFailed) -> None:
        if not self.refusal:  # otherwise the next append hears of it
            super().failed(failure)

    def _suspend(self, failure: AppendFailed) -> None:
        self._telling.tell_change(self, Coordinator.SUSPENDED)
        super()._suspend(failure)
        self.trouble = without_folders(str(failure))
        if isinstance(failure, Fenced):
            self._lose()
        else:
            self.refusal = SUSPENDED

    def _give_up(self, error: int) -> None:
        self.shard.hold.fail(error, spoiled)
        self.shard.abandon()

    def _renew(self) -> None:
        self._reload(self)

    def _told(self, notes: list[Note], stamp: int) -> None:
        self._telling.tell(self, notes, self.offset_of(stamp) if stamp else -1)

    # Time.

    @property
    def wake_at(self) -> int:
        if self.refusal:
            return self._alarm
        return min(self._alarm, self.shard.wake_at)

    def advance(self, now: int) -> None:
        super().advance(now)
        if not self.refusal and self.shard.wake_at <= now:
            self._advance_shard(now, bool(self._in_flight) and now - self._began > STALLED_MS)

    def _advance_shard(self, now: int, stalled: bool) -> None:
        shard = self.shard
        shard.stalled = stalled
        try:
            shard.advance(now, self._clock.wall, self._clock.steady_ms)
        finally:
            shard.stalled = False
        self.stepped()

    # Loading and unloading.

    def await_load(self) -> None:
        """It is ours, or will be, and is not replayed yet."""
        self.refusal = LOADING
        self.trouble = ""

    def own(self, owned: OwnedLog) -> None:
        self._owned = owned
        owned.watch(self.failed)

    @property
    def owned(self) -> bool:
        return self._owned is not NO_LOG

    def replay(self) -> Iterator[None]:
        """Fold the log into the shard, some at a time, and open its groups; raises one of UNREADABLE."""
        shard = self.shard
        shard.clear()
        self.replayed = 0
        for facts in self._owned.replay():
            shard.replay(facts)
            self.replayed += len(facts)
            yield
        yield from shard.open_groups(self._time)
        self.offsets = sum(len(stored.values) for group in shard.groups.values() for stored in group.offsets.values())

    def _time(self) -> tuple[int, int]:
        return self._clock.tick(), self._clock.wall

    def serve(self, load_ms: int) -> None:
        """Replayed to its end: from now on its groups answer."""
        again = self.refusal == SUSPENDED
        self.load_ms = load_ms
        self.refusal = SERVING
        self.defective = False
        self.trouble = ""
        if not self.writable:
            self._serve_again()
        self._telling.tell_change(self, Coordinator.RESUMED if again else Coordinator.LOADED)
        self.served(self)
        self.stepped()

    def refuse(self, reason: str) -> None:
        """It cannot be read; all other partitions serve."""
        self.shard.clear()
        self.refusal = NOT_OURS
        self.trouble = f"cannot be read: {without_folders(reason)}"

    def unload(self, done: Callable[[], None]) -> None:
        """Somebody else's from now on, or the broker stops: no fact, no answer but 16."""
        self.refusal = NOT_OURS
        self._unloaded = done
        self.when_settled(self.finish_unload)

    def finish_unload(self) -> None:
        """Unload now, if that is asked for, whatever is still on its way."""
        done = self._unloaded
        if done is None:
            return
        self._unloaded = None
        self._telling.tell_change(self, Coordinator.UNLOADED)
        self._lose()
        done()

    def _lose(self) -> None:
        self.refusal = NOT_OURS
        self._give_up(NOT_OURS)
        self._none_under_way()
        self._to_reload = False
        self._owned.release()
        self._owned = NO_LOG
        self.trouble = ""
