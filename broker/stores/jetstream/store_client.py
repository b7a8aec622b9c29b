"""Access to a cluster's streams for tools that are not its nodes: read logs, and write the logs of a cluster while none of its nodes runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from broker.internal_topics import owning_log
from broker.settings.config import Config
from broker.settings.servers import servers_of
from broker.stores.jetstream.connection import Connection
from broker.stores.jetstream.engine import STREAM_NOT_FOUND, Engine, EngineError, StoredMessage, StreamState
from broker.stores.jetstream.entry import DATA, HEADER, STATE, Entry, parse_entry
from broker.stores.jetstream.meta import IMPORTING, LAYOUT, MetaStreamClient, Owner, View
from broker.stores.jetstream.reading import EntryReader, ReadEntry, batches_in, damaged
from broker.stores.jetstream.store import META
from broker.stores.jetstream.stream_check import GONE, loss_of
from broker.stores.jetstream.streams import ClusterNames, Stream
from broker.stores.jetstream.topic_state import TopicState, decode_state
from protocol.batch import BatchHeader, CorruptBatch, validate
from storage import DamagedLog, LogId, Producers
from storage.epochs import with_epoch
from storage.log_copy import LogEnd, LogState

NO_NODE: Final = -1
ANSWER_SECONDS_MAX: Final = 30.0  # longer than an election of the engine
PAUSE_SECONDS: Final = 0.1
TOO_FEW_SERVERS: Final = 10074  # fewer than replicas

Result = TypeVar("Result")


class StoreProblem(Exception):
    """The engine does not answer, or refuses a request."""


class TooFewServers(StoreProblem):
    """The engine has fewer servers than a stream is to have replicas."""


class NotEmpty(StoreProblem):
    """The target of an import has data that this import has not written."""


class StartMoved(Exception):
    """The owner has deleted the beginning of a log while it was read."""


async def await_result(step: Callable[[Callable[[Result], None]], object]) -> Result:
    """Run `step` and return the result that it passes to its callback."""
    answered: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def done(result: Result) -> None:
        if not answered.done():
            answered.set_result(result)

    step(done)
    return await answered


class StoreClient:
    """Access to the JetStream streams of one Tenure cluster. Create it inside the running event loop."""

    def __init__(self, config: Config, seconds: Callable[[], float] = time.monotonic) -> None:
        self._loop = asyncio.get_running_loop()
        self._servers = servers_of(config)
        self.names = ClusterNames(config.cluster_name)
        incarnation = os.urandom(6).hex()
        self.connection = Connection(self._loop, self._servers, f"_INBOX.tenure.{incarnation}", lambda connected: None)
        self.engine = Engine(self.connection)
        self.view = View(owning_log)
        self.meta = MetaStreamClient(self.engine, self.names, self.view, NO_NODE, incarnation, config.store_lease_ms / 1000, lambda: 0, seconds)
        self.replicas = config.store_replicas
        self._lease_seconds = config.store_lease_ms / 1000
        self._seconds = seconds
        self._began_at = seconds()

    def __str__(self) -> str:
        return f"{self._servers}/{self.names.cluster}"

    @property
    def cluster_id(self) -> str:
        return str(self.meta.format.get("cluster_id", ""))

    async def open(self) -> bool:
        """Connect to the engine and read the meta stream; False: no cluster has this name."""
        await self.connection.open()
        state: StreamState | EngineError = await self._retry_until_answered(partial(self.engine.info, self.names.meta_stream))
        if isinstance(state, EngineError):
            return False
        await self.refresh()
        return True

    async def refresh(self) -> None:
        await self._retry_until_done(lambda done: self.meta.refresh(lambda read: done(None if read else EngineError(0, "the engine does not answer"))))

    async def _retry_until_answered(self, step: Callable[[Callable[[Any], None]], object]) -> Any:
        """Repeat a request until the engine answers. Returns an EngineError only for a stream that does not exist."""
        deadline = self._seconds() + ANSWER_SECONDS_MAX
        while True:
            result = await await_result(step)
            if not isinstance(result, EngineError) or result.code == STREAM_NOT_FOUND:
                return result
            if result.code == TOO_FEW_SERVERS:
                raise TooFewServers(f"store {self}: {result.text}: name the servers of a cluster, or add --set store.replicas=1 for a trial")
            if self._seconds() > deadline:
                raise StoreProblem(f"store {self}: {result.text}")
            await asyncio.sleep(PAUSE_SECONDS)

    async def _retry_until_done(self, step: Callable[[Callable[[EngineError | None], None]], object]) -> None:
        """Repeat a request until the engine has carried it out."""
        error: EngineError | None = await self._retry_until_answered(step)
        if error is not None:
            raise StoreProblem(f"store {self}: {error.text}")

    def stream_of(self, id: LogId, topic_id: bytes | None) -> Stream:
        return self.names.internal(id) if topic_id is None else self.names.topic(id, topic_id)

    # Reading.

    async def end_of(self, id: LogId, stream: Stream) -> LogEnd | None:
        """The log's end, after every record that was acknowledged before this client was created; None: the stream does not exist.

        Raises DamagedLog where entries are missing, and StoreProblem.
        """
        known = self.view.owners.get(id)
        if known is not None and known.stream != stream.name:
            known = None
        deadline = self._seconds() + ANSWER_SECONDS_MAX
        while True:
            sent_at = self._seconds()
            state: StreamState | EngineError = await self._retry_until_answered(partial(self.engine.info, stream.name))
            if isinstance(state, EngineError):
                if known is None:
                    return None
                raise damaged(stream, known.seq, GONE)
            if state.leader_silent_seconds <= sent_at - self._began_at:
                if known is not None:
                    _check_recorded_owner(stream, known, state)
                if not state.last_seq:
                    return LogEnd(0)
                message = await await_result(partial(self.engine.get, stream.name, state.last_seq))
                if isinstance(message, StoredMessage):
                    return _end_in(stream, message)
            if self._seconds() > deadline:
                raise StoreProblem(f"stream {stream.name}: the engine does not report its end")
            await asyncio.sleep(PAUSE_SECONDS)

    async def first_seq(self, stream: Stream) -> int:
        state: StreamState | EngineError = await self._retry_until_answered(partial(self.engine.info, stream.name))
        if isinstance(state, EngineError):
            raise StartMoved(stream.log)
        return state.first_seq

    async def size_of(self, stream: Stream) -> int:
        state: StreamState | EngineError = await self._retry_until_answered(partial(self.engine.info, stream.name))
        return 0 if isinstance(state, EngineError) else state.bytes

    def read(self, stream: Stream, end: LogEnd) -> StreamReading:
        return StreamReading(self, stream, end)

    async def entries(self, stream: Stream, first_seq: int, last_seq: int) -> AsyncIterator[ReadEntry]:
        """Every entry of the range. Raises DamagedLog, StartMoved and OSError."""
        changed = asyncio.Event()
        reader = EntryReader(self.engine, stream, first_seq, last_seq, changed.set)
        try:
            while True:
                changed.clear()
                while reader.ready:
                    yield reader.next_entry()
                if reader.problem is not None:
                    if await self.first_seq(stream) > first_seq:
                        raise StartMoved(stream.log)
                    raise reader.problem
                if reader.ended:
                    return
                await changed.wait()
        finally:
            reader.stop()

    # Writing.

    async def begin_import(self, cluster_id: str, import_id: str) -> None:
        """Reserve the cluster's name before its first node starts. Raises NotEmpty for data that is not of the same import."""
        if not self.meta.format:
            await self._check_no_other_streams()
            await self._retry_until_done(partial(self.engine.create, self.names.meta_stream, f"{self.names.meta_subject}.>", self.replicas, dict(META)))
            await self.refresh()
        if not self.meta.format:
            await self._put_format({"layout": IMPORTING, "cluster_id": cluster_id, "import": import_id})
        self._check_import(import_id)

    async def check_empty(self, import_id: str) -> None:
        """Raises NotEmpty where `begin_import` would."""
        if self.meta.format:
            self._check_import(import_id)
        else:
            await self._check_no_other_streams()

    def check_finished(self) -> None:
        """Raises StoreProblem if an import into this cluster has not finished."""
        if self.meta.format.get("layout") == IMPORTING:
            raise StoreProblem(f"cluster {self}: an import into it has not finished; repeat it")

    def _check_import(self, import_id: str) -> None:
        """Raises NotEmpty if another import or a node has reserved the cluster's name."""
        format = self.meta.format
        if format.get("layout") != IMPORTING:
            raise NotEmpty(f"cluster {self} is not empty: it is cluster {self.cluster_id}; import under another name (--cluster NAME)")
        if format.get("import") != import_id:
            raise NotEmpty(
                f"cluster {self} has the unfinished import of another export; repeat that one, or import under another name (--cluster NAME)"
            )

    async def _check_no_other_streams(self) -> None:
        names: list[str] | EngineError = await self._retry_until_answered(partial(self.engine.names, f"tenure.{self.names.cluster}.>"))
        other_streams = [] if isinstance(names, EngineError) else [name for name in names if name != self.names.meta_stream]
        if other_streams:
            raise NotEmpty(f"cluster {self} is not empty: there is stream {other_streams[0]}; import under another name (--cluster NAME)")

    async def begin_restore(self, import_id: str, ends: Mapping[str, tuple[int, int]]) -> None:
        """Prevent nodes from starting until damaged logs are replaced. `ends`: the offset and the epoch at which each log ended."""
        await self._put_format({"layout": IMPORTING, "cluster_id": self.cluster_id, "import": import_id, "ends": ends})
        self._check_import(import_id)

    def unfinished_restore(self, import_id: str) -> dict[str, tuple[int, int]] | None:
        """The ends that an earlier attempt of this restore recorded; None: there was no attempt. Raises NotEmpty for another import or restore."""
        if self.meta.format.get("layout") == LAYOUT:
            return None
        self._check_import(import_id)
        return {name: (offset, epoch) for name, (offset, epoch) in self.meta.format.get("ends", {}).items()}

    async def live_nodes(self) -> list[int]:
        """Nodes that send a heartbeat within the time of a lease."""
        await self.refresh()
        before = {node: (node_state.incarnation, node_state.wall_ms) for node, node_state in self.view.live.items()}
        if before:
            await asyncio.sleep(self._lease_seconds)
            await self.refresh()
        return sorted(node for node, node_state in self.view.live.items() if before.get(node) != (node_state.incarnation, node_state.wall_ms))

    async def damage_of(self, id: LogId, stream: Stream) -> str:
        """The damage of the log; "": none."""
        try:
            end = await self.end_of(id, stream)
            if end is not None:
                async for _ in self.read(stream, end).batches():
                    pass
        except DamagedLog as error:
            return error.reason
        return ""

    async def last_entry_of(self, id: LogId, stream: Stream) -> tuple[int, int, bool]:
        """Offset and epoch at which a damaged log ended, and whether that is certain."""
        known = self.view.owners.get(id)
        epoch = known.epoch if known is not None else 0
        state: StreamState | EngineError = await self._retry_until_answered(partial(self.engine.info, stream.name))
        if isinstance(state, EngineError) or not state.last_seq:
            return 0, epoch, False
        last = await self.entry_of(stream, state.last_seq)
        if last is None:
            return 0, epoch, False
        certain = known is None or (known.created == state.created and known.seq <= state.last_seq)
        return last.next_offset, max(epoch, last.epoch), certain

    async def delete_unless_imported(self, stream: Stream, import_id: str) -> None:
        """Delete the stream unless this import has written it."""
        state: StreamState | EngineError = await self._retry_until_answered(partial(self.engine.info, stream.name))
        if isinstance(state, EngineError):
            return
        last = await self.entry_of(stream, state.last_seq) if state.last_seq else None
        if last is None or last.incarnation != import_id:
            await self._retry_until_done(partial(self.engine.delete, stream.name))

    async def finish_import(self) -> None:
        """Allow nodes to start."""
        await self._put_format({"layout": LAYOUT, "cluster_id": self.cluster_id})

    async def _put_format(self, body: dict[str, Any]) -> None:
        """Write the cluster's format message; repeat that until this format, or another writer's, is stored."""
        before = self.meta.format
        deadline = self._seconds() + ANSWER_SECONDS_MAX
        while self.meta.format == before:
            error = await await_result(partial(self.meta.put, self.names.format_key, body))
            if error is not None and self._seconds() > deadline:
                raise StoreProblem(f"store {self}: {error.text}")
            await self.refresh()

    async def make_stream(self, stream: Stream, settings: Mapping[str, Any]) -> None:
        """Create the stream if it does not exist."""
        await self._retry_until_done(partial(self.engine.create, stream.name, stream.subject, self.replicas, dict(settings)))

    async def stream_state(self, stream: Stream) -> StreamState:
        state: StreamState | EngineError = await self._retry_until_answered(partial(self.engine.info, stream.name))
        if isinstance(state, EngineError):
            raise StoreProblem(f"stream {stream.name} does not exist any more")
        return state

    async def entry_of(self, stream: Stream, seq: int) -> Entry | None:
        """The entry at a sequence; None: the replica does not have it yet, or the message is no entry."""
        message = await await_result(partial(self.engine.get, stream.name, seq))
        with contextlib.suppress(ValueError):
            return None if isinstance(message, EngineError) else parse_entry(message.headers.get(HEADER, ""))
        return None

    async def publish_end(self, id: LogId, stream: Stream, seq: int, epoch: int, wall_ms: int) -> None:
        """Publish to the nodes that the log has entries up to `seq`, and no owner."""
        state = await self.stream_state(stream)
        owner = Owner(0, "", epoch, wall_ms, seq, state.created, stream.name)

        def publish(done: Callable[[None], None]) -> None:
            self.meta.publish_owner(id, stream, owner, partial(done, None))

        await await_result(publish)

    def close(self) -> None:
        self.meta.close()
        self.connection.close()


def _check_recorded_owner(stream: Stream, known: Owner, state: StreamState) -> None:
    """Raise DamagedLog if this is not the stream that the log's last owner published, or lacks entries. A node checks this before a claim."""
    loss = loss_of(known, state)
    if loss is not None:
        raise damaged(stream, known.seq, loss.reason)


def _end_in(stream: Stream, message: StoredMessage) -> LogEnd:
    try:
        last = parse_entry(message.headers.get(HEADER, ""))
    except ValueError:
        raise damaged(stream, message.seq, "the last entry cannot be parsed") from None
    return LogEnd(last.next_offset, message.seq, last.epoch, message.seq if last.kind == STATE else last.state_seq)


class StreamReading:
    """A read of one log up to an end. `state` is complete when all batches were read."""

    def __init__(self, store_client: StoreClient, stream: Stream, end: LogEnd) -> None:
        self.first_offset = 0
        self.state = LogState(0, end.next_offset, end.epoch)
        self._store_client = store_client
        self._stream = stream
        self._end = end

    async def batches(self) -> AsyncIterator[tuple[int, BatchHeader, bytes]]:
        """Each batch, verified, with the base offset of its segment. Raises DamagedLog, StartMoved, StoreProblem and OSError."""
        if not self._end.seq:
            return
        known = await self._cleaned()
        state, end = self.state, self._end
        first_seq = await self._store_client.first_seq(self._stream)
        if known is not None:
            async for base, header, batch in self._cleaned_batches(known):
                yield base, header, batch
            if first_seq > known.first_segment.seq:
                raise StartMoved(self._stream.log)
            first_seq = known.first_segment.seq
        elif first_seq > end.seq:
            raise StartMoved(self._stream.log)
        else:
            known = await self._newest_state(first_seq)
        state.epochs = known.epochs
        starts = [(part.seq, part.base) for part in known.segment_states if not part.cleaned]
        begun = False
        base = 0
        async for seq, entry, payload in self._store_client.entries(self._stream, first_seq, end.seq):
            if not begun:
                begun = True
                base = entry.base_offset
                if not (known.segment_states and known.segment_states[0].cleaned):
                    self.first_offset = base
                state.start_offset = max(known.start_offset, self.first_offset)
            while starts and starts[0][0] <= seq:
                base = max(starts.pop(0)[1], base)
            if seq > known.seq and (not state.epochs or state.epochs[-1][0] != entry.epoch):
                state.epochs = with_epoch(state.epochs, entry.epoch, entry.base_offset)
            if entry.kind == DATA:
                for header, batch in self._verified_batches(seq, payload):
                    if seq > known.seq and header.producer_id >= 0:
                        state.producers.note(header, header.base_offset)
                    yield base, header, batch

    def _verified_batches(self, seq: int, payload: bytes) -> list[tuple[BatchHeader, bytes]]:
        """The batches of an entry, verified."""
        try:
            return [(validate(batch, 0, len(batch)), batch) for _, batch in batches_in(payload)]
        except CorruptBatch as error:
            raise damaged(self._stream, seq, str(error)) from error

    # Logs that were compacted.

    async def _cleaned(self) -> TopicState | None:
        """The newest state of a log that was compacted; None: it was not.

        Moves the end of this read to the log's current end, since compaction removes older records because of newer ones.
        """
        store_client = self._store_client
        if not self._end.state_seq:
            return None
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            last = await store_client.stream_state(self._stream)
            message: Any = await await_result(partial(store_client.engine.get, self._stream.name, last.last_seq))
            if isinstance(message, StoredMessage):
                newest = _end_in(self._stream, message)
                message = await await_result(partial(store_client.engine.get, self._stream.name, newest.state_seq))
                if isinstance(message, StoredMessage):
                    break
            if time.monotonic() > deadline:
                raise StoreProblem(f"stream {self._stream.name}: the engine does not report its end")
            await asyncio.sleep(PAUSE_SECONDS)
        producers = Producers()
        try:
            known = decode_state(message.payload, producers)
        except ValueError as error:
            raise damaged(self._stream, message.seq, str(error)) from error
        if not known.segment_states[0].cleaned:
            return None
        self._end = newest
        self.state = LogState(0, newest.next_offset, newest.epoch)
        self.state.producers = producers
        self.first_offset = known.segment_states[0].base
        return known

    async def _cleaned_batches(self, known: TopicState) -> AsyncIterator[tuple[int, BatchHeader, bytes]]:
        for part in known.segment_states:
            if not part.cleaned:
                return
            message = await self._message_at(part.seq)
            for header, batch in self._verified_batches(part.seq, message.payload):
                yield self.first_offset, header, batch

    async def _newest_state(self, first_seq: int) -> TopicState:
        """The state in the newest state entry before the end."""
        if self._end.state_seq < first_seq:
            return TopicState(0, 0, 0)
        message = await self._message_at(self._end.state_seq)
        try:
            return decode_state(message.payload, self.state.producers)
        except ValueError as error:
            raise damaged(self._stream, message.seq, str(error)) from error

    async def _message_at(self, seq: int) -> StoredMessage:
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            message: StoredMessage | EngineError = await await_result(partial(self._store_client.engine.get, self._stream.name, seq))
            if isinstance(message, StoredMessage):
                return message
            if await self._store_client.first_seq(self._stream) > seq:
                raise StartMoved(self._stream.log)
            if time.monotonic() > deadline:
                raise StoreProblem(f"stream {self._stream.name}: the engine does not return entry {seq}")
            await asyncio.sleep(PAUSE_SECONDS)

    def close(self) -> None: ...
