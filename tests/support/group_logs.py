"""Partitions of groups over scripted logs, in virtual time."""

from __future__ import annotations

from typing import Any, cast

from broker.groups.group_journal import GroupJournal, HandOver
from broker.groups.shards import Shards
from broker.internal_topics import CONSUMER_OFFSETS
from broker.runtime.turn import Turn
from coordinator import Commit, GroupConfig, JoinReply, JoinRequest, Note, SyncReply, SyncRequest
from coordinator.notes import ShardChange
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequestPartition
from storage import Acquired, ClusterView, HeldBy, LogId, NodeInfo, Unreadable
from tests.support.journals import LATE_MS, ScriptedLog
from tests.support.stepped_loop import SteppedLoop

START_MS = 1_000_000
CONFIG = GroupConfig(group_initial_rebalance_delay_ms=0)
SESSION_MS = 10_000


class Cluster:
    """A placement in which this node owns all logs except those that the test assigns to another node or to none."""

    def __init__(self) -> None:
        self.owners: dict[int, NodeInfo | None] = {}

    def nodes(self) -> list[NodeInfo]:
        return [NodeInfo(1, ())]

    def owner(self, log: LogId) -> NodeInfo | None:
        assert log.name == CONSUMER_OFFSETS
        return self.owners.get(log.partition, NodeInfo(1, ()))


class Store:
    """A LogStore of scripted logs. While `waiting`, a requested log opens only when the test calls `open`."""

    def __init__(self, immediate: bool = False) -> None:
        """`immediate`: appends to its logs end at once."""
        self.cluster = Cluster()
        self._immediate = immediate
        self.logs: dict[LogId, ScriptedLog] = {}
        self.results: dict[LogId, HeldBy | Unreadable] = {}
        self.acquired: list[LogId] = []
        self.waiting = False
        self._acquires: list[tuple[LogId, Acquired]] = []

    def log(self, id: LogId) -> ScriptedLog:
        if id not in self.logs:
            self.logs[id] = ScriptedLog(self._immediate)
        return self.logs[id]

    def acquire(self, log: LogId, done: Acquired) -> None:
        self.acquired.append(log)
        self._acquires.append((log, done))
        if not self.waiting:
            self.open()

    def open(self) -> None:
        """Open the requested logs."""
        requests, self._acquires = self._acquires, []
        for id, done in requests:
            done(self.results.get(id) or self.log(id))

    def view(self) -> ClusterView:
        return self.cluster

    def close(self) -> None: ...


class RecordedNotes:
    """A NoteWriter that records its notes."""

    def __init__(self) -> None:
        self.notes: list[tuple[int, Note, int]] = []
        self.changes: list[tuple[int, str]] = []
        self.hand_overs: list[HandOver | None] = []  # of each change

    def write(self, journal: GroupJournal, notes: list[Note], offset: int) -> None:
        self.notes += [(journal.partition, note, offset) for note in notes]

    def write_change(self, journal: GroupJournal, change: ShardChange, hand_over: HandOver | None = None) -> None:
        self.changes.append((journal.partition, change.name))
        self.hand_overs.append(hand_over)


class Waiter:
    """Receives a JoinGroup or SyncGroup reply in `outcomes`."""

    def __init__(self) -> None:
        self.member_id = ""
        self.assignment = b""
        self.reply: Any = None
        self.outcomes: list[object] = []

    def release(self) -> None:
        self.outcomes.append(self.reply)

    def fail(self, error: int) -> None:
        self.outcomes.append(error)

    @property
    def error(self) -> int | None:
        """The error code of the reply, None while waiting."""
        if not self.outcomes:
            return None
        (reply,) = self.outcomes
        return reply.error if isinstance(reply, JoinReply | SyncReply) else cast(int, reply)


class GroupWorld:
    """Partitions, their logs and a clock."""

    FRESH_ID = "id-{}"  # with a number

    def __init__(self, partitions: int = 1, load: bool = True, config: GroupConfig = CONFIG, immediate: bool = False) -> None:
        """`immediate`: appends end at once."""
        self.loop = SteppedLoop()
        self.clock = self.loop.clock()
        self.turn = Turn(self.loop, self.clock)  # type: ignore[arg-type]
        self.store = Store(immediate)
        self.recorded_notes = RecordedNotes()
        self.begun = 0  # how often loading began; `loaded`: how often it ended
        self.loaded = 0
        self.slice_seconds = 0.0  # how far each reading of the time advances it
        ids = (self.FRESH_ID.format(number) for number in range(1, 1 << 30))
        self.shards = Shards(
            partitions,
            config,
            self.store,
            self.turn,
            self.loop,  # type: ignore[arg-type]
            LATE_MS,
            self.recorded_notes,
            self._loaded,
            ids.__next__,
            self._monotonic,
            self._loading,
        )
        if load:
            self.load_all()

    def load_all(self) -> None:
        self.shards.load_all()
        self.loop.run()

    def load_first(self) -> None:
        self.shards.load(0)
        self.loop.run()

    def unload_first(self) -> list[bool]:
        """Begin to unload the first partition. The returned list gets an item when the unloading ends."""
        unloaded: list[bool] = []
        self.journal.unload(lambda: unloaded.append(True))
        return unloaded

    def complete_append(self) -> None:
        """Complete the oldest append in flight to the first partition."""
        self.log().succeed()
        self.loop.run()

    def complete_recovery(self) -> None:
        """Complete the repair of the log of the first partition."""
        self.log().failure = None
        self.log().recoveries.pop()(None)
        self.loop.run()

    def fail_step(self) -> None:
        """Report that a step of the first partition raised an exception."""
        self.journal.handle_defect()
        self.loop.run()

    def _monotonic(self) -> float:
        self.loop.advance(self.slice_seconds)
        return self.loop.time()

    def _loading(self) -> None:
        self.begun += 1

    def _loaded(self) -> None:
        self.loaded += 1

    @property
    def journal(self) -> GroupJournal:
        return self.shards.journals[0]

    def log(self, partition: int = 0) -> ScriptedLog:
        return self.store.log(LogId(CONSUMER_OFFSETS, partition))

    def join(self, group: str = "g", member_id: str = "", instance: str | None = "i", rebalance_ms: int = 60_000, metadata: bytes = b"all") -> Waiter:
        waiter = Waiter()
        journal = self.shards.journal_of(group)
        request = JoinRequest(group, member_id, instance, "consumer", (("range", metadata),), SESSION_MS, rebalance_ms, "client", "/here")
        journal.shard.join(request, waiter, self.clock.tick(), self.clock.wall)
        journal.schedule_after_step()
        self.loop.run()
        return waiter

    def sync(self, group: str, generation: int, member_id: str, **assignments: bytes) -> Waiter:
        waiter = Waiter()
        journal = self.shards.journal_of(group)
        journal.shard.sync(SyncRequest(group, generation, member_id, None, assignments), waiter, self.clock.tick(), self.clock.wall)
        journal.schedule_after_step()
        self.loop.run()
        return waiter

    def commit(self, group: str = "g", offset: int = 7) -> Waiter:
        """An OffsetCommit without a member id."""
        waiter = Waiter()
        journal = self.shards.journal_of(group)
        partition = OffsetCommitRequestPartition(0, offset, -1, "")
        waiter.reply = SyncReply(journal.shard.commit(Commit(group, -1, "", None, [("topic", [partition])]), self.clock.tick(), self.clock.wall))
        journal.hold_reply(waiter)
        journal.schedule_after_step()
        self.loop.run()
        return waiter

    def heartbeat(self, member_id: str) -> int:
        """Heartbeat as the static member that `make_stable_group` created; returns the error code."""
        return self.journal.shard.heartbeat("g", 1, member_id, "i", self.clock.tick())

    def offset(self, group: str = "g") -> int | None:
        group_state = self.shards.journal_of(group).shard.groups.get(group)
        value = group_state.offsets["topic"].values.get(0) if group_state is not None and "topic" in group_state.offsets else None
        return None if value is None else int.from_bytes(value[2:10], "big")


def make_stable_group(world: GroupWorld, group: str = "g", metadata: bytes = b"all") -> str:
    """Make a stable group of one static member; returns its member id."""
    log = world.log()
    waiter = world.join(group, metadata=metadata)
    while waiter.error is None:
        log.succeed()
        world.loop.run()
        world.loop.pass_ms(1)
    assert waiter.error == ErrorCode.NONE
    member_id = waiter.member_id
    synced = world.sync(group, waiter.reply.generation, member_id, **{member_id: b"mine"})
    while log.pending:
        log.succeed()
        world.loop.run()
    assert synced.error == ErrorCode.NONE
    return member_id
