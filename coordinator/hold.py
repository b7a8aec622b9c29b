"""The hold rule: a reply is sent when every fact that its shard emitted before it is durable.

A shard changes memory at once and continues; the hold collects its facts and replies. The driver of the shard (the broker's journal,
or a simulation) takes the facts, appends them and confirms how far the log is durable; then replies are sent in their order. So no
client sees a state that is not in the log, and the core needs no "pending" variants of its states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from coordinator.config import BATCH_BYTES_MAX
from protocol.batch import seal
from protocol.batch_writing import RecordForm, encode_time_end, write_facts

# A fact in its stored form: record key and value; a null value is a tombstone.
Fact = tuple[bytes, bytes | None]

# The maximum size of a record without key and value: length, attributes, timestamp and offset deltas, lengths of key and
# value, header count.
RECORD_OVERHEAD_BYTES: Final = 28
BATCH_OVERHEAD_BYTES: Final = 61


class Held(Protocol):
    """A reply that is complete but waits for facts to become durable."""

    def release(self) -> None: ...

    def fail(self, error: int) -> None: ...


class UntilDurable:
    """Base of a `Held` for which no client waits: when an append is late, `fail_until` does not fail it, and it waits on for its facts."""

    __slots__ = ()


# Handles an exception of one reply in release() or fail(); the other replies are still sent.
ReplyErrorHandler = Callable[[Held, Exception], None]


def reraise(held: Held, error: Exception) -> None:
    raise error


class Hold:
    """The facts and replies of one shard between memory and log.

    `emitted`, `taken` and `durable` count facts since the shard was opened: emitted by the core, taken for the log, and as
    durable as the setting `offsets.flush` requires. Facts are encoded as records at once.
    """

    __slots__ = ("_batch_bytes_max", "_full", "_time_end", "_wall", "durable", "emitted", "held", "parts", "records", "room", "taken")

    def __init__(self, batch_bytes_max: int = BATCH_BYTES_MAX) -> None:
        self._batch_bytes_max = batch_bytes_max
        self.emitted = 0
        self.taken = 0
        self.durable = 0
        self.held: deque[tuple[int, Held]] = deque()  # for each reply, the number of facts that must be durable first
        self._full: deque[tuple[list[bytes], int]] = deque()  # full batches, taken before the open one
        self._wall = -1  # the commit time of the newest repeated commit
        self._time_end = b""  # `_wall` encoded as the end of its records
        self._begin()

    def _begin(self) -> None:
        self.parts = [b""]  # the encoded records of the open batch, after a place for its header
        self.records = 0
        self.room = self._batch_bytes_max - BATCH_OVERHEAD_BYTES

    def begin_batch(self) -> None:
        """Close the open batch, which has no room for the next facts, and begin another one."""
        self._full.append((self.parts, self.records))
        self._begin()

    def emit(self, facts: list[Fact], size: int = 0) -> None:
        """Add the facts of one operation, which the log gets in one batch. `size` is their facts_bytes, if known."""
        if facts:
            size = size or facts_bytes(facts)
            if size > self.room and self.records:
                self.begin_batch()
            self.room -= size
            write_facts(self.parts, facts, self.records)
            self.records += len(facts)
            self.emitted += len(facts)

    def emit_repeat(self, form: RecordForm, frame: bytes, size: int, wall: int, reply: Held) -> bool:
        """Emit the facts of a repeated commit and hold its reply. Return whether the batch was empty before.

        `form`: the commit's records without offsets and time; `frame`: the request, which has the offsets; `size`: that of the records in a batch.
        """
        if wall is not self._wall:  # all requests of a turn get the same int object
            self._wall = wall
            self._time_end = encode_time_end(wall)
        room = self.room - size
        if room < 0 and self.records:
            self.begin_batch()
            room = self.room - size
        self.room = room
        before = self.records
        self.records = after = form.write(self.parts, frame, self._time_end, before)
        self.emitted = emitted = self.emitted + after - before
        self.held.append((emitted, reply))
        return not before

    def hold_reply(self, held: Held) -> None:
        """Release the reply at once if all facts are durable; otherwise hold it."""
        if self.durable == self.emitted and not self.held:
            held.release()
        else:
            self.held.append((self.emitted, held))

    @property
    def waiting(self) -> int:
        """The number of held replies."""
        return len(self.held)

    @property
    def has_untaken(self) -> bool:
        return self.taken != self.emitted

    def take_batch(self, timestamp: int) -> bytearray:
        """Take the next batch for the log: one or more complete operations. `taken` grows by its facts."""
        if self._full:
            parts, records = self._full.popleft()
        else:
            parts, records = self.parts, self.records
            self._begin()
        self.taken += records
        return seal(parts, records, timestamp)

    def confirm(self, durable: int, on_error: ReplyErrorHandler = reraise) -> None:
        """Facts up to number `durable` are as durable as `offsets.flush` requires: release, in order, the replies that waited for them."""
        self.durable = durable
        held = self.held
        while held and held[0][0] <= durable:
            try:
                if held[-1][0] <= durable:  # nearly always all held replies
                    for _ in range(len(held)):
                        reply = held.popleft()[1]
                        reply.release()
                # Release also the replies that were added during the loop above.
                while held and held[0][0] <= durable:
                    reply = held.popleft()[1]
                    reply.release()
            except Exception as error:
                on_error(reply, error)

    def fail_until(self, fact_number: int, error: int, on_error: ReplyErrorHandler = reraise) -> None:
        """Called when an append takes too long: replies that wait for facts up to this number fail, while the append continues."""
        held = self.held
        kept: list[tuple[int, Held]] = []
        while held and held[0][0] <= fact_number:
            entry = held.popleft()
            if isinstance(entry[1], UntilDurable):
                kept.append(entry)
            else:
                _fail(entry[1], error, on_error)
        held.extendleft(reversed(kept))

    def fail(self, error: int, on_error: ReplyErrorHandler = reraise) -> None:
        """Called when the log failed: held replies fail with `error`, and facts that are not durable are dropped.

        The caller then replays the shard from the log, since its memory is ahead of the log.
        """
        held = list(self.held)
        self.held.clear()
        self._full.clear()
        self._begin()
        self.emitted = self.taken = self.durable
        for _, reply in held:
            _fail(reply, error, on_error)


def _fail(reply: Held, code: int, on_error: ReplyErrorHandler) -> None:
    try:
        reply.fail(code)
    except Exception as error:
        on_error(reply, error)


def facts_bytes(facts: list[Fact]) -> int:
    """The maximum size of the facts of one operation in a batch."""
    return sum(RECORD_OVERHEAD_BYTES + len(key) + (len(value) if value is not None else 0) for key, value in facts)


class GatheredReply(Protocol):
    """A reply composed of parts from several shards."""

    def refuse_part(self, part: int, error: int) -> None: ...

    def complete(self) -> None: ...


class ReplyParts:
    """Sends a reply when its parts from all shards are released or have failed. Only failed parts are replaced by errors."""

    __slots__ = ("_open_parts", "reply")

    def __init__(self, reply: GatheredReply, parts: int) -> None:
        self.reply = reply
        self._open_parts = parts
        if not parts:
            reply.complete()

    def part(self, number: int) -> Held:
        return _Part(self, number)

    def settle(self, number: int, error: int) -> None:
        if error:
            self.reply.refuse_part(number, error)
        self._open_parts -= 1
        if not self._open_parts:
            self.reply.complete()


class _Part:
    __slots__ = ("_number", "parts")

    def __init__(self, parts: ReplyParts, number: int) -> None:
        self.parts = parts
        self._number = number

    def release(self) -> None:
        self.parts.settle(self._number, 0)

    def fail(self, error: int) -> None:
        self.parts.settle(self._number, error)
