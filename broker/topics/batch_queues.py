"""Queues of produced batches: those whose checks take too long for the event loop, and those that wait behind them in the same partition.

Each partition has a queue, in order. The first batch is checked, in a child process if necessary, and appended; then the next follows. If a
log does not assign offsets at once (NATS JetStream), every batch is queued, and several appends may be in flight. The sequence number of an
idempotent producer is checked against its acknowledged batches, so a producer's next batch waits until its previous append has ended.

An append to such a log may last for any time, so each of these batches is answered by its deadline. A batch that is not appended by then never
will be; one that the log has stays the log's, and whether it is stored remains open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from broker.runtime.clock import Clock
from broker.runtime.contain import report_defect
from broker.runtime.turn import NEVER, Turn
from broker.topics.appender import Appender, failed_reply, refused_reply
from broker.topics.batch_checker import Job
from broker.topics.batch_checker_process import CheckResult
from broker.topics.batch_checks import BatchRefused, Checked, TooMuchWork, producer_id_of
from broker.topics.partitions import Partition
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceResponse

APPENDS_PER_TURN: Final = 64
# The bytes of all waiting batches. Beyond it, producers get a retriable error, so that memory is bounded.
WAITING_BYTES_MAX: Final = 64 << 20
WAITING_BATCH_BYTES: Final = 256  # the overhead of one batch


class QueuedBatch:
    """A batch for a partition, from the current request of `connection`."""

    __slots__ = ("answered", "connection", "data", "deadline", "done", "is_needed", "producer", "size")

    def __init__(
        self,
        data: bytes,
        size: int,
        connection: object,
        is_needed: Callable[[], bool],
        done: Callable[[Partition, PartitionProduceResponse], None],
        deadline: int = NEVER,
    ) -> None:
        self.data = data if size == len(data) else data[:size]
        self.size = size
        self.connection = connection
        self.is_needed = is_needed  # False: the connection is closed
        self.done = done
        self.producer = producer_id_of(data)
        self.answered = False
        self.deadline = deadline  # when it is answered at the latest; only of logs that assign offsets later


class JobQueue(Protocol):
    """Checks batches in child processes (`broker.topics.batch_checker`)."""

    def submit(self, job: Job) -> None: ...


class BatchQueues:
    """The queues of all partitions, in `Partition.batch_queue` (None: no queue), and the deadlines of batches."""

    def __init__(self, checker: JobQueue, appender: Appender, turn: Turn, clock: Clock) -> None:
        self._checker = checker
        self._appender = appender
        self._turn = turn
        self._clock = clock
        self._waiting: dict[Partition, None] = {}  # partitions with queued batches
        self._ready: dict[Partition, None] = {}  # partitions whose first batch can be appended
        self._appended: dict[QueuedBatch, Partition] = {}  # batches passed to the log, which has not completed the append
        self._producers: set[tuple[Partition, int]] = set()  # partition and producer id of each batch in `_appended`
        self._timed: dict[QueuedBatch, Partition] = {}  # batches that are not answered, and have a deadline
        self.wake_at = NEVER
        self._bytes = 0
        self._stopped = False
        turn.add_deadline_handler(self)

    def add(self, partition: Partition, batch: QueuedBatch, too_much_work: bool) -> bool:
        """Queue the batch; False: too many bytes wait already. `done` of the batch is never called within `add`.

        `too_much_work`: a check in the event loop has exceeded its work limits.
        """
        cost = batch.size + WAITING_BATCH_BYTES
        if self._stopped or (self._bytes and self._bytes + cost > WAITING_BYTES_MAX):
            return False
        self._bytes += cost
        if batch.deadline != NEVER and not partition.assigns_offsets_at_once:
            self._timed[batch] = partition
            self._wake_by(batch.deadline)
        if partition.batch_queue:
            partition.batch_queue.append(batch)
        else:
            partition.batch_queue = deque([batch])
            self._waiting[partition] = None
            if too_much_work and not self._producer_is_busy(partition, batch):
                self._check_in_child(partition, batch)
            else:
                self._make_ready(partition)
        return True

    def _wake_by(self, at: int) -> None:
        if at < self.wake_at:
            self.wake_at = at
            self._turn.wake_by(at)

    def advance(self, now: int) -> None:
        """Answer the batches whose deadline has come."""
        self.wake_at = NEVER
        try:
            for batch, partition in list(self._timed.items()):
                if batch.deadline <= now:
                    self._expire(partition, batch)
        finally:
            self._wake_by(min([batch.deadline for batch in self._timed], default=NEVER))

    def _expire(self, partition: Partition, batch: QueuedBatch) -> None:
        late = failed_reply(partition.index, ErrorCode.REQUEST_TIMED_OUT)
        queue = partition.batch_queue
        if batch in self._appended:
            self._answer(partition, batch, late)  # until its append ends, its producer is busy, and its bytes count
        elif queue and queue[0] is batch:
            self._settle(partition, batch, late)
        else:
            if queue:
                queue.remove(batch)
            self._bytes -= batch.size + WAITING_BATCH_BYTES
            self._answer(partition, batch, late)

    def _make_ready(self, partition: Partition) -> None:
        self._ready[partition] = None
        self._turn.call_at_turn_end(self)

    def end_turn(self) -> None:
        """Append up to APPENDS_PER_TURN ready batches, one of each partition; the others follow in the next turns."""
        ready = self._ready
        for _ in range(min(APPENDS_PER_TURN, len(ready))):
            partition = next(iter(ready))
            del ready[partition]
            self._append_ready(partition)
        if ready:
            self._turn.call_at_turn_end(self)

    def _append_ready(self, partition: Partition) -> None:
        if not partition.batch_queue:
            return  # the deadline of its batches has come meanwhile
        batch = partition.batch_queue[0]
        if partition.error:
            self._settle(partition, batch, failed_reply(partition.index, partition.error))
            return
        if self._producer_is_busy(partition, batch):
            return
        try:
            self._append_first(partition, batch, None)
        except TooMuchWork:
            self._check_in_child(partition, batch)

    def _producer_is_busy(self, partition: Partition, batch: QueuedBatch) -> bool:
        """Whether an append of the same producer is in flight."""
        return (partition, batch.producer) in self._producers

    def _append_first(self, partition: Partition, batch: QueuedBatch, checked: Checked | None) -> None:
        """Append the first batch of the queue. Raises TooMuchWork, only if `checked` is None."""
        try:
            self._appender.append_async(partition, batch.data, batch.size, checked, partial(self._settle, partition, batch))
        except TooMuchWork:
            raise
        except Exception as error:
            self._settle(partition, batch, _defect(partition, error))
        if not batch.answered:
            self._appended[batch] = partition
            if batch.producer >= 0:
                self._producers.add((partition, batch.producer))
            self._advance(partition)

    def _advance(self, partition: Partition) -> None:
        """Remove the first batch from the queue and continue with the next."""
        assert partition.batch_queue
        partition.batch_queue.popleft()
        if partition.batch_queue:
            self._make_ready(partition)
        else:
            del self._waiting[partition]
            if partition.assigns_offsets_at_once:
                partition.batch_queue = None

    def _check_in_child(self, partition: Partition, batch: QueuedBatch) -> None:
        done = partial(self._checked, partition, batch)
        job = Job(batch.connection, batch.data, partition.settings, self._clock.wall, str(partition), done, batch.is_needed)
        self._checker.submit(job)

    def _checked(self, partition: Partition, batch: QueuedBatch, outcome: CheckResult) -> None:
        if batch.answered:
            return  # the broker stops, and has replied
        if partition.error:  # its topic was deleted, or its log failed
            self._settle(partition, batch, failed_reply(partition.index, partition.error))
        elif isinstance(outcome, Checked):
            self._append_first(partition, batch, outcome)
        elif isinstance(outcome, BatchRefused):
            self._settle(partition, batch, refused_reply(partition, outcome))
        else:
            self._settle(partition, batch, failed_reply(partition.index, ErrorCode.REQUEST_TIMED_OUT, str(outcome)))

    def _settle(self, partition: Partition, batch: QueuedBatch, reply: PartitionProduceResponse) -> None:
        """Reply for a batch whose append has ended, or for the first batch of the queue, unless a deadline, a stop or a defect has replied already."""
        if batch.answered and batch not in self._appended:
            return
        self._bytes -= batch.size + WAITING_BATCH_BYTES
        if batch not in self._appended:
            self._advance(partition)
        else:
            del self._appended[batch]
            self._producers.discard((partition, batch.producer))
            if partition.batch_queue and partition.batch_queue[0].producer == batch.producer >= 0:
                self._make_ready(partition)
        if not batch.answered:
            self._answer(partition, batch, reply)

    def _answer(self, partition: Partition, batch: QueuedBatch, reply: PartitionProduceResponse) -> None:
        batch.answered = True
        self._timed.pop(batch, None)
        try:
            batch.done(partition, reply)
        except Exception as error:
            report_defect("a large batch failed inside the broker", error, log=str(partition))

    def stop(self) -> None:
        """The broker stops: reply to all waiting batches with a retriable error."""
        self._stopped = True
        for batch, partition in list(self._appended.items()):
            self._settle(partition, batch, failed_reply(partition.index, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for partition in list(self._waiting):
            while partition.batch_queue:
                self._settle(partition, partition.batch_queue[0], failed_reply(partition.index, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self._ready.clear()


def _defect(partition: Partition, error: Exception) -> PartitionProduceResponse:
    report_defect("a large batch failed inside the broker", error, log=str(partition))
    return failed_reply(partition.index, ErrorCode.UNKNOWN_SERVER_ERROR)
