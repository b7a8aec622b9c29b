"""A LogStore over NATS JetStream, for nodes that share no disk; experimental.

Each log is a stream with `store.replicas` replicas. The stream alone decides which node may write to the log (claim.py, chain.py).
`broker/cluster` decides which node tries to own a log, and learns from meta.py which nodes are live.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG, owning_log
from broker.logging.logs import log
from broker.runtime.contain import Contained, run_contained
from broker.runtime.repeating import Repeating
from broker.runtime.start import ExitCode, StartError
from broker.settings.config import Config
from broker.settings.servers import servers_of
from broker.stores.jetstream.chain import Chain
from broker.stores.jetstream.claim import Claim, Claimed
from broker.stores.jetstream.connection import Connection, TooOld
from broker.stores.jetstream.engine import REPLICAS_UNSUPPORTED, STREAM_NOT_FOUND, WRONG_SEQUENCE, Engine, EngineError, StreamState
from broker.stores.jetstream.entry import RELEASE
from broker.stores.jetstream.logs import RELEASED, GroupLog, Recovered, StreamLog
from broker.stores.jetstream.meta import IMPORTING, LAYOUT, MetaStreamClient, Owner, View
from broker.stores.jetstream.reading import damaged
from broker.stores.jetstream.stream_check import StreamCheck
from broker.stores.jetstream.streams import ClusterNames, Stream
from broker.stores.jetstream.wire import NatsError
from broker.stores.tokens import RandomBytes, fresh_cluster_id
from storage import Acquired, AppendFailed, DamagedLog, Fenced, HeldBy, LogId, NodeInfo, ServedLog, Undecided, Unreadable

START_ATTEMPTS: Final = 40
START_PAUSE_SECONDS: Final = 0.25
PUBLISH_ENDS_SECONDS: Final = 2.0
CHECK_SECONDS: Final = 1.0
CHECKED_MAX: Final = 8  # streams per CHECK_SECONDS that are asked for their state
NO_STREAM: Final = StreamState(0, 0, 0, 0, "", 0.0)
LEASE_OVER: Final = "the lease of this node has ended: the engine did not answer"
META: Final = {"max_msgs_per_subject": 1, "discard": "old"}


NOTES_BYTES_MIN: Final = 1 << 20


def notes_stream(config: Config) -> dict[str, object]:
    """Settings of a stream of notes: JetStream itself drops the oldest notes. Each log gets an equal part of
    `notes.retention.bytes`, at least NOTES_BYTES_MIN.
    """
    if config.notes_retention_bytes < 0:
        return {}
    return {"max_bytes": max(config.notes_retention_bytes // config.offsets_topic_num_partitions, NOTES_BYTES_MIN), "discard": "old"}


class JetStreamStore:
    """One node's view of the store."""

    def __init__(
        self,
        config: Config,
        loop: asyncio.AbstractEventLoop,
        random_bytes: RandomBytes = os.urandom,
        wall_ns: Callable[[], int] = time.time_ns,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self.loop = loop
        self.cluster_id = ""
        self.topic_ids: dict[str, str] = {}
        self.finishing = False
        self.on_superseded: Callable[[], None] = lambda: None  # another process has taken this node's id
        self.on_meta_lost: Callable[[], None] = lambda: None  # the meta stream is gone
        self.ending_service: Callable[[], None] = lambda: None  # called when the lease has ended, before the logs are fenced
        self.service_resumed: Callable[[], None] = lambda: None  # called when there is a lease again, before logs are claimed
        self.node_ended: Callable[[int], None] = lambda node: None
        self.engine_changed: Callable[[bool], None] = lambda connected: None  # the connection to the engine was lost, or there is a new one
        self._config = config
        self._node = config.node_id
        self._random_bytes = random_bytes
        self._replicas = config.store_replicas
        self._wall_ns = wall_ns
        self.incarnation = random_bytes(6).hex()
        self._servers = servers_of(config)
        self.names = ClusterNames(config.cluster_name)
        self.connection = Connection(loop, self._servers, f"_INBOX.tenure.{self.incarnation}", self._connected)
        self.engine = Engine(self.connection)
        self._view = View(owning_log)
        self.meta = MetaStreamClient(
            self.engine, self.names, self._view, self._node, self.incarnation, config.store_lease_ms / 1000, lambda: wall_ns() // 1_000_000, seconds
        )
        self.meta.owner_published = self._owner_published
        self.meta.on_lease_lost = self._lease_lost
        self.meta.on_lease_regained = self._lease_regained
        self.meta.on_superseded = self._on_superseded
        self._meta_created = ""
        self._meta_check = StreamCheck(self.engine, self.names.meta_stream, self._known_of_meta, self._meta_lost)
        self.meta.on_refused_heartbeat = self._meta_check.begin
        self.meta.on_set_back = self._meta_lost
        self.quarantined: dict[LogId, str] = {}  # logs that this node found damaged, and why
        self._logs: dict[LogId, StreamLog] = {}
        self._number = 0
        self._notes_stream = notes_stream(config)
        self._to_check: list[StreamLog] = []  # logs whose streams the running round has not checked yet
        self._checks: Repeating | None = None
        self._when_leased: list[Callable[[], None]] = []  # called when this node has a lease again

    @property
    def data_path(self) -> str:
        return f"{self._servers}/{self.names.cluster}"

    # Start.

    async def open(self) -> None:
        """Connect to the engine and read the meta stream; raises StartError."""
        try:
            await self._connect_with_retries()
        except TooOld as error:
            raise StartError(f"store {self._servers}: {error}", ExitCode.CONFIG) from None
        except (OSError, NatsError, ValueError, TimeoutError) as error:
            raise StartError(f"store {self._servers}: {str(error) or 'no answer'}", ExitCode.DISK) from None
        await self._refuse_without_meta()
        await self._retry_until_done(lambda done: self.engine.create(self.names.meta_stream, f"{self.names.meta_subject}.>", self._replicas, dict(META), done))
        self.meta.listen()
        await self._read_meta()
        while not self.meta.format:
            body = {"layout": LAYOUT, "cluster_id": self._config.cluster_id or fresh_cluster_id(self._random_bytes)}
            await self._retry_until_done(lambda done, body=body: self.meta.put(self.names.format_key, body, done), WRONG_SEQUENCE)  # type: ignore[misc]
            await self._read_meta()
        self._check_format()
        self._meta_created = (await self._state_of_meta(False)).created

    async def _refuse_without_meta(self) -> None:
        """Raise StartError if the meta stream is gone although the cluster has logs: another one would have another cluster id, and no owners.

        With the cluster id in the settings, it is made again.
        """
        for _ in range(2):  # again, since the first node of a new cluster may have made the streams between the two requests
            if self._config.cluster_id or (await self._state_of_meta(True)).messages:
                return
            names: list[str] | EngineError = await self._answer(partial(self.engine.names, f"tenure.{self.names.cluster}.>"))
            others = [name for name in names if name != self.names.meta_stream] if isinstance(names, list) else []
            if not others:
                return
        raise StartError(
            f"store {self.data_path}: stream {self.names.meta_stream} is gone or empty, though there is stream {others[0]}: restore it, or set "
            f"cluster.id to the cluster's id to make it again",
            ExitCode.DATA,
        )

    async def _state_of_meta(self, may_be_gone: bool) -> StreamState:
        state: StreamState | EngineError = await self._answer(partial(self.engine.info, self.names.meta_stream), (STREAM_NOT_FOUND,) if may_be_gone else ())
        return NO_STREAM if isinstance(state, EngineError) else state

    async def _answer(self, step: Callable[[Callable[[Any], None]], None], accepted_codes: Collection[int] = ()) -> Any:
        """Repeat a question until the engine answers; returns an EngineError only with an accepted code."""
        last: list[Any] = []

        def ask(done: Callable[[EngineError | None], None]) -> None:
            def answered(result: Any) -> None:
                last[:] = [result]
                done(result if isinstance(result, EngineError) else None)

            step(answered)

        await self._retry_until_done(ask, accepted_codes)
        return last[0]

    def _known_of_meta(self) -> Owner | None:
        return None if self.meta.closed else Owner(0, "", 0, 0, self.meta.seq, self._meta_created, self.names.meta_stream)

    def _meta_lost(self, reason: str) -> None:
        """The messages of nodes and owners are gone, or older than what this node has read: what it knows of other nodes is not true any more."""
        if self.meta.closed:
            return
        self.meta.close()
        log.error("the stream of nodes and owners is gone: this node stops", stream=self.names.meta_stream, reason=reason)
        run_contained(self.on_meta_lost)

    async def _connect_with_retries(self) -> None:
        for attempt in range(START_ATTEMPTS):
            try:
                await self.connection.open()
                return
            except TooOld:
                raise
            except (OSError, NatsError, TimeoutError) as error:
                if attempt == START_ATTEMPTS - 1 or "uthorization" in str(error):
                    raise
                if attempt == 0:
                    log.warning("the engine cannot be used yet", store=str(self._servers), reason=str(error) or "no answer")
            await asyncio.sleep(START_PAUSE_SECONDS)

    async def _retry_until_done(self, step: Callable[[Callable[[EngineError | None], None]], None], accepted_codes: Collection[int] = ()) -> None:
        """Repeat a request until the engine has carried it out."""
        result: EngineError | None = None
        for _ in range(START_ATTEMPTS):
            answered: asyncio.Future[EngineError | None] = self.loop.create_future()
            step(answered.set_result)
            result = await answered
            if result is None or result.code in accepted_codes:
                return
            await asyncio.sleep(START_PAUSE_SECONDS)
        assert result is not None
        advice = "; for a single server, set store.replicas=1" if result.code == REPLICAS_UNSUPPORTED else ""
        raise StartError(f"store {self._servers}: {result.text}{advice}", ExitCode.DISK)

    async def _read_meta(self) -> None:
        for _ in range(START_ATTEMPTS):
            read: asyncio.Future[bool] = self.loop.create_future()
            self.meta.refresh(read.set_result)
            if await read:
                return
            await asyncio.sleep(START_PAUSE_SECONDS)
        raise StartError(f"store {self._servers}: stream {self.names.meta_stream} cannot be read", ExitCode.DISK)

    def _check_format(self) -> None:
        layout = self.meta.format.get("layout")
        if layout == IMPORTING:
            raise StartError(f"store {self.data_path}: an import into it has not finished; repeat it (tenure store import)", ExitCode.DATA)
        if layout != LAYOUT:
            raise StartError(f"store {self.data_path}: it has layout {layout}, and this version supports {LAYOUT}", ExitCode.DATA)
        self.cluster_id = str(self.meta.format.get("cluster_id"))
        configured_id = self._config.cluster_id
        if configured_id and configured_id != self.cluster_id:
            raise StartError(f"store {self.data_path} belongs to cluster {self.cluster_id}, not {configured_id}", ExitCode.DATA)

    async def join(self, me: NodeInfo) -> None:
        """Take this node's id; an earlier process with this id stops."""
        self.meta.start(me)
        for _ in range(START_ATTEMPTS):
            acknowledged: asyncio.Future[EngineError | None] = self.loop.create_future()
            self.meta.first_heartbeat(acknowledged.set_result)
            if await acknowledged is None:
                self._publish_ends()
                self._checks = Repeating(self.loop, CHECK_SECONDS, self._check_streams)
                return
            await asyncio.sleep(START_PAUSE_SECONDS)
            await self._read_meta()
        raise StartError(f"store {self._servers}: node {self._node} cannot join", ExitCode.DISK)

    def start(self, me: NodeInfo) -> None:
        """Does nothing: `join` has started the heartbeats."""

    def last_use(self) -> int:
        """The newest wall time that a live node has published, in milliseconds since 1970; -1: none."""
        return max((node_state.wall_ms for node_state in self._view.live.values()), default=-1)

    def _connected(self, connected: bool) -> None:
        run_contained(self.engine_changed, connected)
        if connected:
            for owned in self._logs.values():
                owned.chain.resend()

    # `ClusterStore`.

    def view(self) -> View:
        return self._view

    def watch_nodes(self, changed: Callable[[int, bool], None]) -> None:
        def node_changed(node: int, alive: bool) -> None:
            if not alive:
                run_contained(self.node_ended, node)
            changed(node, alive)

        self.meta.node_changed = node_changed
        for node in list(self._view.live):
            if node != self._node:
                changed(node, True)

    def when_current(self, done: Callable[[], None]) -> None:
        self.meta.refresh(lambda read: done())

    def incarnation_of(self, node: int) -> str | None:
        """The live process of a node; None: none is known."""
        state = self._view.live.get(node)
        return None if state is None else state.incarnation

    def find_new_nodes(self) -> None:
        self.meta.refresh(lambda read: None)

    shows_deletions = False  # each live node confirms a deletion (`cluster/propagation.py`)
    last_deletion = 0

    def set_last_deletion(self, number: int) -> None:
        """Does nothing."""

    def lock_log(self, id: LogId, topic_id: bytes, last_deletion: int) -> HeldBy | Unreadable | int:
        """The epoch to expect. Locks nothing: `acquire` reads the owner from the log's stream."""
        return self._view.epoch(id) + 1

    def release_unopened(self, id: LogId, topic_id: bytes) -> None:
        """Does nothing: `lock_log` has locked nothing."""

    def owned_log(self, id: LogId) -> ServedLog | None:
        return self._logs.get(id)

    @property
    def logs(self) -> Collection[StreamLog]:
        return self._logs.values()

    def topic_log(self, id: LogId) -> StreamLog | None:
        return self._logs.get(id)

    def acquire(self, id: LogId, done: Acquired) -> None:
        if id.name == NOTES_LOG and owning_log(id) not in self._logs:
            done(HeldBy("another node"))
            return
        owned = GroupLog(self, id, self.names.internal(id))
        self.open_log(owned, lambda problem: done(owned if problem is None else problem))

    def open_log(self, owned: StreamLog, done: Callable[[HeldBy | Unreadable | None], None]) -> None:
        """Claim the log and open it."""

        def claimed(result: Claimed | HeldBy | Unreadable) -> None:
            if isinstance(result, Claimed):
                owned.open(result, partial(self._opened, owned, result, done))
                return
            if isinstance(result, Unreadable) and result.damaged:
                self.quarantine(owned.id, result.reason)
            done(result)

        self._claim(owned.id, owned.stream, claimed)

    def quarantine(self, id: LogId, reason: str) -> None:
        """Mark the log as damaged: no node serves it, but each attempt to take it over reads it again."""
        if self.quarantined.get(id) != reason:
            log.error("log is damaged, and no node serves it", log=str(id), reason=reason)
        self.quarantined[id] = reason

    def end_quarantine(self, id: LogId) -> None:
        """Remove the mark: the log was read without damage."""
        if self.quarantined.pop(id, None) is not None:
            log.info("log is no longer damaged", log=str(id))

    def stream_lost(self, log: StreamLog, reason: str) -> None:
        """The stream of a log of this node is gone, or has lost entries: stop using it, and publish what the log had, so that no node claims the rest."""
        had = self.owner_of(log)
        self.quarantine(log.id, str(damaged(log.stream, had.seq, reason)))
        self.meta.publish_owner(log.id, log.stream, had, lambda: None)
        log.fence(Fenced(reason))

    def owner_of(self, log: StreamLog) -> Owner:
        """This node as the owner of one of its logs."""
        known, chain = self._view.owners.get(log.id), log.chain
        since_ms = known.since_ms if known is not None and known.epoch == chain.epoch else self._wall_ns() // 1_000_000
        return Owner(self._node, self.incarnation, chain.epoch, since_ms, chain.committed_seq, log.created, log.stream.name, log.first_needed)

    def _check_streams(self) -> None:
        """Check the next logs: an owner that appends nothing would not notice that its stream is gone, and no append shows a purge."""
        if self.finishing or self.meta.lease_lost:
            return
        if not self._to_check:
            self._to_check = list(self._logs.values())
        for _ in range(min(CHECKED_MAX, len(self._to_check))):
            self._to_check.pop().check_stream()

    def _claim(self, id: LogId, stream: Stream, done: Callable[[Claimed | HeldBy | Unreadable], None]) -> None:
        if self.meta.lease_lost or self.finishing:
            done(Unreadable(LEASE_OVER, False))
            return

        def refreshed(read: bool) -> None:
            if not read:
                done(Unreadable("the engine does not answer", False))
                return
            known = self._view.owners.get(id)
            if known is not None and known.stream != stream.name:
                known = None  # the owner of a deleted topic of the same name
            settings = self._notes_stream if id.name == NOTES_LOG else {}
            Claim(self.engine, self.meta, stream, known, self._node, self.incarnation, self.new_number, self._replicas, settings, done).begin()

        self.meta.refresh(refreshed)

    def open_again(self, log: StreamLog, done: Recovered) -> None:
        """Claim the log again and open it, unless another node has claimed it; without a lease, as soon as this node has one."""
        if self.meta.lease_lost and not self.finishing:
            self._when_leased.append(partial(self.open_again, log, done))
            return

        def ended(problem: HeldBy | Unreadable | None) -> None:
            if isinstance(problem, HeldBy):
                done(Fenced(f"{problem.holder} owns it now"))
            else:
                done(AppendFailed(problem.reason) if problem is not None else None)

        def opened(claimed: Claimed, problem: Exception | None) -> None:
            if problem is not None:
                log.fence(AppendFailed(str(problem)))
                done(AppendFailed(str(problem)))
            else:
                self._publish_opened(log, claimed, ended)

        def claimed(result: Claimed | HeldBy | Unreadable) -> None:
            if isinstance(result, Claimed):
                log.open(result, partial(opened, result))
            else:
                ended(result)

        self._claim(log.id, log.stream, claimed)

    def _opened(self, owned: StreamLog, claimed: Claimed, done: Callable[[HeldBy | Unreadable | None], None], problem: Exception | None) -> None:
        if problem is not None:
            damaged = isinstance(problem, DamagedLog)
            if damaged:
                self.quarantine(owned.id, str(problem))
            else:
                log.error("log cannot be read", log=str(owned.id), reason=str(problem))
            self._release_log(owned, lambda: done(Unreadable(str(problem), damaged)))
            return
        if self._refutation(owned, claimed) is None:
            if not isinstance(owned, GroupLog):  # a GroupLog reports this after its replay
                self.end_quarantine(owned.id)
            self._logs[owned.id] = owned
        self._publish_opened(owned, claimed, partial(self._published, owned, done))

    def _published(self, owned: StreamLog, done: Callable[[HeldBy | Unreadable | None], None], refutation: HeldBy | Unreadable | None) -> None:
        if refutation is not None and self._logs.get(owned.id) is owned:
            del self._logs[owned.id]
        done(refutation)

    def _publish_opened(self, log: StreamLog, claimed: Claimed, done: Callable[[HeldBy | Unreadable | None], None]) -> None:
        """Publish this node as the owner of a log that it has claimed and read. `done` is called with None if the log may be served."""

        def published() -> None:
            refutation = self._refutation(log, claimed)
            if refutation is None:
                log.opening = False
            else:
                log.fence(Fenced("another node may have claimed the log while it was opened"))
            done(refutation)

        if self._refutation(log, claimed) is None:
            self._publish_owner(log, claimed, published)
        else:
            published()

    def _refutation(self, log: StreamLog, claimed: Claimed) -> HeldBy | Unreadable | None:
        """Why a claim counts no more; None if it does.

        Other nodes claim a log when the lease of its owner has ended. So a claim counts only under the lease under which it was made: this node
        may have been frozen since, or without the engine, and it need not have read yet what the others have published.
        """
        later_owner = self._later_owner(log, claimed.entry.epoch)
        if later_owner is not None:
            return later_owner
        if self.finishing or not self.meta.has_lease(claimed.lease):
            return HeldBy("perhaps another node")
        return Unreadable(str(log.chain.failure), False) if log.chain.failure is not None else None

    def _later_owner(self, log: StreamLog, epoch: int) -> HeldBy | None:
        """The node that has claimed the log after this node did, perhaps while this node was frozen: `_owner_published` tells only opened logs."""
        known = self._view.owners.get(log.id)
        return HeldBy(f"node {known.node}") if known is not None and known.stream == log.stream.name and known.epoch > epoch else None

    def _publish_owner(self, owned: StreamLog, claimed: Claimed, done: Callable[[], None]) -> None:
        owner = Owner(self._node, self.incarnation, claimed.entry.epoch, self._wall_ns() // 1_000_000, claimed.seq, claimed.created, owned.stream.name)
        self.meta.publish_owner(owned.id, owned.stream, owner, done)

    def _publish_ends(self) -> None:
        """Publish up to where each log is acknowledged, so that its next owner detects lost entries at the end."""
        if self.meta.closed:
            return
        self.loop.call_later(PUBLISH_ENDS_SECONDS, Contained(self._publish_ends))
        if self.finishing or self.meta.lease_lost:
            return
        for owned in self._logs.values():
            chain, known = owned.chain, self._view.owners.get(owned.id)
            is_own = known is not None and (known.node, known.incarnation, known.epoch) == (self._node, self.incarnation, chain.epoch)
            if known is not None and is_own and chain.failure is None and known.seq < chain.committed_seq:
                self.meta.publish_owner(owned.id, owned.stream, known._replace(seq=chain.committed_seq), lambda: None)

    def new_chain(self, log: StreamLog, claimed: Claimed) -> Chain:
        chain: list[Chain] = []

        def failed(failure: AppendFailed) -> None:
            self.meta.note_end(log.id, self.owner_of(log))
            log.chain_failed(chain[0], failure)

        chain.append(Chain(self.engine, log.stream, claimed.entry, claimed.seq, self.new_number, failed, log.check_stream))
        return chain[0]

    def new_number(self) -> int:
        self._number += 1
        return self._number

    # Releasing logs.

    def release(self, id: LogId, done: Callable[[], None]) -> None:
        """Release the log to other nodes. With an offsets log, its partition's notes log is released too."""
        ids = [LogId(NOTES_LOG, id.partition), id] if id.name == CONSUMER_OFFSETS else [id]
        logs = [self._logs.pop(log_id) for log_id in ids if log_id in self._logs]
        self._release_logs(logs, done)

    def _release_logs(self, logs: list[StreamLog], done: Callable[[], None]) -> None:
        if not logs:
            done()
            return
        self._release_log(logs[0], partial(self._release_logs, logs[1:], done))

    def _release_log(self, owned: StreamLog, done: Callable[[], None]) -> None:
        """Append a `release` entry. The log is this node's until that entry, or another node's claim, is in the stream."""
        owned.release()
        chain = owned.chain

        def released(result: int | AppendFailed) -> None:
            if isinstance(result, AppendFailed):
                done()
                return
            chain.fail(Fenced(RELEASED))
            owner = Owner(0, self.incarnation, chain.epoch, self._wall_ns() // 1_000_000, result, owned.created, owned.stream.name)
            self.meta.publish_owner(owned.id, owned.stream, owner, done)

        chain.append(b"", 0, released, RELEASE)

    def drop(self, id: LogId) -> None:
        """Forget the log of a deleted topic."""
        self._logs.pop(id, None)
        self.quarantined.pop(id, None)

    def add(self, owned: StreamLog) -> None:
        self._logs[owned.id] = owned

    def _lease_lost(self) -> None:
        run_contained(self.ending_service)
        for owned in list(self._logs.values()):
            run_contained(owned.fence, Undecided(LEASE_OVER))

    def _owner_published(self, id: LogId, owner: Owner) -> None:
        """Stop serving a log that another node has claimed; without this, only the next append would reveal the claim."""
        owned = self._logs.get(id)
        if owned is not None and owner.stream == owned.stream.name and owner.epoch > owned.chain.epoch:
            owned.fence(Fenced(f"another node has claimed the log at epoch {owner.epoch}"))

    def _lease_regained(self) -> None:
        run_contained(self.service_resumed)
        waiting, self._when_leased = self._when_leased, []
        for claim in waiting:
            run_contained(claim)

    def _on_superseded(self) -> None:
        log.error("another process has taken this node's id: this process stops", node=self._node)
        run_contained(self.on_superseded)

    # Stop.

    def unchecked_logs(self) -> list[LogId]:
        return []

    def flush_topics(self) -> None: ...

    def finish(self, all_written: bool, done: Callable[[str], None]) -> None:
        """Release all logs at the same time, then leave the cluster."""
        self.finishing = True
        logs = list(self._logs.values())
        self._logs.clear()
        waiting = len(logs)

        def released() -> None:
            nonlocal waiting
            waiting -= 1
            if waiting <= 0:
                self.meta.leave(lambda: done(""))

        if not logs:
            released()
        for owned in logs:
            self._release_log(owned, Contained(released))

    def close(self) -> None:
        if self._checks is not None:
            self._checks.stop()
        self.meta.close()
        self.connection.close()
