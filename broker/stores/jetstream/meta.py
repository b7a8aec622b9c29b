"""Which nodes are live and which node owns which log, as the nodes publish it through JetStream (the engine).

A small stream, the meta stream, keeps the newest message of each node and of each log. A node repeats its message (a heartbeat); the other
nodes consider the node dead when no heartbeat has arrived for the time of a lease. Each node counts only time in which its own
heartbeats were acknowledged, so no node is considered dead while JetStream elects a leader. A node also counts only up to its newest
heartbeat that was read back from the stream: a replica that lacks this heartbeat may also lack those of other nodes. When another
process takes a node id, the earlier process counts as live until its lease ends or the process has certainly ended. Safety of writes does
not depend on any of this: the recorded owners are only a hint, and the log's own stream rejects every writer but one.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from broker.logging.logs import log
from broker.runtime.contain import Contained, run_contained
from broker.stores.jetstream.connection import REQUEST_SECONDS
from broker.stores.jetstream.engine import WRONG_SEQUENCE, Engine, EngineError, StoredMessage, last_sequence_of, reply_of
from broker.stores.jetstream.life import has_ended, own_process_mark
from broker.stores.jetstream.streams import ClusterNames, Stream
from broker.stores.jetstream.wire import Message
from storage import LogId, NodeInfo

LAYOUT: Final = 1
IMPORTING: Final = "import"  # instead of a layout, until the import has finished
REFRESH_SECONDS: Final = 1.0  # between two reads of the meta stream, in case the announcement of a change was lost
READ_BACK_SECONDS: Final = 0.02
REFRESH_SOON_SECONDS: Final = (0.003, 0.03)  # when to read the meta stream after a change was announced; a lagging replica may answer the first read
TICK_SECONDS: Final = 0.1
HEARTBEATS_PER_LEASE: Final = 10  # heartbeats of a node in the time of a lease
HEARTBEAT_SECONDS_MAX: Final = 1.0  # a heartbeat without a reply is sent again after this time
FENCE_FRACTION: Final = 0.9  # a node stops serving after this part of the lease without an acknowledged heartbeat
LATE_INTERVALS: Final = 1.5  # after this many heartbeat intervals without an acknowledgement, time does not count
FORGET_SECONDS: Final = 30.0
EXPECTED_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence"


class Owner(NamedTuple):
    """A log's owner, from its own message. `seq`: sequence of an entry that the log certainly has; `created`: when the stream was created."""

    node: int  # 0: the owner has released the log
    incarnation: str
    epoch: int
    since_ms: int
    seq: int
    created: str
    stream: str  # name of the log's stream; a new topic of the same name has another stream
    first: int = 0  # sequence of the oldest entry that the log needs; 0: not known. Published when entries were found to be removed


class Heartbeat(NamedTuple):
    """A heartbeat of this node. `clock`: when it was sent, on `MetaStreamClient._clock`, which stands still while acknowledgements are late."""

    seq: int
    clock: float
    number: int  # counts this node's heartbeats


class NodeState:
    """The newest message of a node."""

    __slots__ = ("changed", "incarnation", "info", "wall_ms")

    def __init__(self, info: NodeInfo, incarnation: str, wall_ms: int, changed: float) -> None:
        self.info = info
        self.incarnation = incarnation
        self.wall_ms = wall_ms
        self.changed = changed  # when it arrived, on the clock that counts only time with acknowledged heartbeats


class View:
    """The live nodes and the owners of logs, as last read from the meta stream (`SharedView`)."""

    def __init__(self, owning_log: Callable[[LogId], LogId]) -> None:
        self.live: dict[int, NodeState] = {}
        self.former_processes: dict[tuple[int, str], float] = {}  # whose node id another process has taken, with the time of their last message
        self.owners: dict[LogId, Owner] = {}
        self.version = 0
        self._owning_log = owning_log

    def nodes(self) -> list[NodeInfo]:
        return sorted(node_state.info for node_state in self.live.values())

    def owned_by(self, log: LogId) -> Owner | None:
        """The owner, dead or alive."""
        return self.owners.get(self._owning_log(log))

    def owner(self, log: LogId) -> NodeInfo | None:
        owner = self.owned_by(log)
        node_state = self.live.get(owner.node) if owner is not None else None
        return node_state.info if node_state is not None and owner is not None and node_state.incarnation == owner.incarnation else None

    def epoch(self, log: LogId) -> int:
        owner = self.owned_by(log)
        return owner.epoch if owner is not None else -1

    def is_live(self, node: int, incarnation: str) -> bool:
        """Whether this process of the node may still have a lease: the present one, or a former one whose node id another process has taken."""
        node_state = self.live.get(node)
        return (node, incarnation) in self.former_processes or (node_state is not None and node_state.incarnation == incarnation)


class MetaStreamClient:
    """This node's lease, and its view of the other nodes' leases and of the owners of logs."""

    def __init__(
        self,
        engine: Engine,
        names: ClusterNames,
        view: View,
        node: int,
        incarnation: str,
        lease_seconds: float,
        wall_ms: Callable[[], int],
        seconds: Callable[[], float],
    ) -> None:
        """`seconds`: a monotonic clock that includes suspended time and is read on each call (a loop's clock may be cached)."""
        self.view = view
        self.seq = 0  # sequence of the newest message read
        self.me: NodeInfo | None = None
        self.lease_lost = False
        self.lease_number = 0  # counts the leases of this node; without a lease, the number of the last one
        self.superseded = False  # another process has taken this node's id
        self.undecided_seconds = 0.0  # time in which this node could not decide which nodes are live
        self.format: dict[str, Any] = {}
        self._engine = engine
        self._connection = engine.connection
        self._loop = engine.connection.loop
        self._names = names
        self._node = node
        self._incarnation = incarnation
        self._lease = lease_seconds
        self._wall_ms = wall_ms
        self._seconds = seconds
        self._fenced = False  # the logs are fenced, because the lease is lost
        self._acked_at = 0.0  # when the newest acknowledged heartbeat was sent
        self._ticked = 0.0
        self._heartbeat_at = 0.0
        self._revision = 0  # sequence of this node's newest heartbeat
        self._revisions: dict[str, int] = {}  # newest sequence of each subject
        self._heartbeats_sent = 0
        self._heartbeat_pending = False
        self._acked_heartbeats: deque[Heartbeat] = deque()  # acknowledged, but not read back yet
        self._newest_read_back = Heartbeat(0, 0.0, 0)  # the newest heartbeat that was read back
        self._waiting_for_read_back: list[tuple[int, Callable[[], None]]] = []  # callbacks that wait until the heartbeat of this number, or a later one, is read back
        self._predecessor: tuple[str, str] | None = None  # incarnation and mark of the process that had this node's id before
        self._ended_predecessor = ""  # incarnation of a predecessor that has certainly ended
        self._mark = own_process_mark()
        self._when_ended: dict[tuple[int, str], list[Callable[[], None]]] = {}
        self._reading = False
        self._waiting: list[Callable[[bool], None]] = []
        self._announced_refreshes = 0
        self.closed = False
        self.node_changed: Callable[[int, bool], None] = lambda node, alive: None
        self.owner_published: Callable[[LogId, Owner], None] = lambda id, owner: None  # a node has published that it owns a log
        self.on_lease_lost: Callable[[], None] = lambda: None  # the lease has ended
        self.on_lease_regained: Callable[[], None] = lambda: None  # this node has a lease again
        self.on_refused_heartbeat: Callable[[], None] = lambda: None  # a heartbeat was refused, or got no reply
        self.on_set_back: Callable[[str], None] = lambda reason: None  # the stream certainly lacks messages that it had
        self.on_superseded: Callable[[], None] = lambda: None  # called once, when `superseded` becomes true

    @property
    def _now(self) -> float:
        return self._seconds()

    @property
    def _clock(self) -> float:
        """The clock that counts only time in which this node's heartbeats were acknowledged."""
        return self._now - self.undecided_seconds

    @property
    def lease_left(self) -> float:
        return self._acked_at + FENCE_FRACTION * self._lease - self._now

    def has_lease(self, number: int) -> bool:
        """Whether the lease of this number has not ended: only then has no other node claimed what this node has claimed under it."""
        return number == self.lease_number and not self.lease_lost and self.lease_left > 0

    # Reading.

    def listen(self) -> None:
        self._connection.subscribe(f"{self._names.meta_subject}.>", self._change_announced)
        self._refresh_on_timer()

    def _change_announced(self, message: Message) -> None:
        if not self._announced_refreshes:
            self._announced_refreshes = len(REFRESH_SOON_SECONDS)
            for seconds in REFRESH_SOON_SECONDS:
                self._loop.call_later(seconds, Contained(self._refresh_soon))

    def _refresh_soon(self) -> None:
        self._announced_refreshes -= 1
        self.refresh(_ignore)

    def _refresh_on_timer(self) -> None:
        if not self.closed:
            self._loop.call_later(REFRESH_SECONDS, Contained(self._refresh_on_timer))
            self.refresh(_ignore)

    def refresh(self, done: Callable[[bool], None]) -> None:
        """Read new messages of the meta stream; `done` is called with whether the engine answered."""
        if self.closed:
            return
        self._waiting.append(done)
        if not self._reading:
            self._read()

    def _read(self) -> None:
        """Read for the callers that wait now; later callers get another read, since they may expect newer messages."""
        waiting, self._waiting = self._waiting, []
        self._reading = True
        self._read_more(waiting)

    def _read_more(self, waiting: list[Callable[[bool], None]]) -> None:
        self._engine.read(self._names.meta_stream, self.seq + 1, self._apply, Contained(partial(self._read_ended, waiting, self.seq)))

    def _read_ended(self, waiting: list[Callable[[bool], None]], before: int, result: EngineError | None) -> None:
        if self.closed:
            return
        if result is None and self.seq > before:
            self._read_more(waiting)
            return
        self._reading = False
        for done in waiting:
            run_contained(done, result is None)
        if self._waiting and not self._reading:
            self._read()

    def _apply(self, message: StoredMessage) -> None:
        self.seq = max(self.seq, message.seq)
        self._note_read_back()
        self._revisions[message.subject] = max(self._revisions.get(message.subject, 0), message.seq)
        kind, _, name = message.subject.removeprefix(f"{self._names.meta_subject}.").partition(".")
        try:
            body = json.loads(message.payload)
            if kind == "node":
                self._apply_node(int(name), body, message.seq)
            elif kind == "owner":
                self._apply_owner(body)
            elif kind == "format":
                self.format = body
        except (ValueError, KeyError, TypeError) as error:
            log.error("a message of another node cannot be parsed", subject=message.subject, reason=str(error))

    def _note_read_back(self) -> None:
        """Run the callbacks whose heartbeat was read back: a replica returns messages in order, so all older ones were read too."""
        while self._acked_heartbeats and self._acked_heartbeats[0].seq <= self.seq:
            self._newest_read_back = self._acked_heartbeats.popleft()
        ready = [done for number, done in self._waiting_for_read_back if number <= self._newest_read_back.number]
        if ready:
            self._waiting_for_read_back = [waiting for waiting in self._waiting_for_read_back if waiting[0] > self._newest_read_back.number]
            for done in ready:
                self._loop.call_soon(Contained(done))

    def when_current(self, done: Callable[[], None]) -> None:
        """Call `done` when this node has certainly read every message sent before this call, whichever replica answers."""
        self._waiting_for_read_back.append((self._heartbeats_sent + 1, done))
        if not self._heartbeat_pending:
            self._send_heartbeat()

    def _poll_for_heartbeat(self) -> None:
        """Read the stream again and again, until no callback waits for a heartbeat of this node to be read back."""
        if self._waiting_for_read_back and self._acked_heartbeats and not self.closed:
            self.refresh(self._schedule_poll)

    def _schedule_poll(self, read: bool) -> None:
        if self._waiting_for_read_back:
            self._loop.call_later(READ_BACK_SECONDS, Contained(self._poll_for_heartbeat))

    def _apply_node(self, node: int, body: dict[str, Any], seq: int) -> None:
        incarnation = str(body["incarnation"])
        if node == self._node:
            if incarnation != self._incarnation:
                self._apply_same_node(incarnation, body, seq)
            return
        known = self.view.live.get(node)
        if body.get("gone"):
            if known is not None and known.incarnation == incarnation:
                self._remove_node(node)
            return
        info = NodeInfo(node, tuple((str(name), str(host), int(port)) for name, host, port in body["addresses"]), body.get("rack"))
        if known is not None and known.incarnation == incarnation:
            known.changed, known.wall_ms = self._clock, int(body["wall_ms"])
            return
        if known is not None:
            if body.get("ended") != known.incarnation:
                self.view.former_processes[node, known.incarnation] = known.changed
            self._remove_node(node)
        self.view.live[node] = NodeState(info, incarnation, int(body["wall_ms"]), self._clock)
        self.view.version += 1
        run_contained(self.node_changed, node, True)

    def _apply_same_node(self, incarnation: str, body: dict[str, Any], seq: int) -> None:
        """Handle a message of another process with this node's id: an earlier process, or a process that takes the id now."""
        if not 0 < self._revision < seq:
            self._predecessor = None if body.get("gone") else (incarnation, str(body.get("mark", "")))
        elif not body.get("gone") and not self.superseded:  # a "gone" message here is from an earlier process, which leaves late
            self.superseded = True
            run_contained(self.on_superseded)

    def _remove_node(self, node: int) -> None:
        del self.view.live[node]
        self.view.version += 1
        run_contained(self.node_changed, node, False)

    def _apply_owner(self, body: dict[str, Any]) -> None:
        id = LogId(str(body["log"]), int(body["partition"]))
        numbers = [int(body[name]) for name in ("node", "epoch", "since_ms", "seq")]
        texts = [str(body[name]) for name in ("incarnation", "created", "stream")]
        owner = Owner(numbers[0], texts[0], numbers[1], numbers[2], numbers[3], texts[1], texts[2], int(body.get("first", 0)))
        self._set_owner(id, owner)
        run_contained(self.owner_published, id, owner)

    def _set_owner(self, id: LogId, owner: Owner) -> None:
        known = self.view.owners.get(id)
        if known is not None and known._replace(seq=0, first=0) == owner._replace(seq=0, first=0):
            # An older message of the same owner, which is read late, does not reduce what the log is known to have.
            owner = owner._replace(seq=max(owner.seq, known.seq), first=max(owner.first, known.first))
        if known is None or owner == known:
            newer = known is None
        elif owner.stream != known.stream:
            newer = owner.node != 0  # the deletion of a topic does not affect a new topic of its name
        else:
            newer = (owner.epoch, owner.node == 0) >= (known.epoch, known.node == 0)
        if newer:
            self.view.owners[id] = owner
            if known is None or known._replace(seq=owner.seq) != owner:
                self.view.version += 1

    # Writing.

    def put(self, subject: str, body: dict[str, Any], done: Callable[[EngineError | None], None], seconds: float = REQUEST_SECONDS) -> None:
        """Write a message, unless the subject has a newer one than this node has read."""
        newest = self.seq

        def answered(message: Message | None) -> None:
            reply = reply_of(message)
            if isinstance(reply, EngineError):
                done(reply)
                return
            seq = int(reply.get("seq", 0))
            if seq <= newest:
                run_contained(self.on_set_back, f"a message was stored as {seq}, after {newest} was read")
            self._revisions[subject] = max(self._revisions.get(subject, 0), seq)
            done(None)

        expected = f"{EXPECTED_SUBJECT}: {self._revisions.get(subject, 0)}\r\n".encode()
        self._connection.request(subject, json.dumps(body).encode(), answered, expected, seconds)

    def publish_owner(self, id: LogId, stream: Stream, owner: Owner, done: Callable[[], None], attempts: int = 5) -> None:
        """Publish that this node owns the log or has released it, unless there is a later owner.

        `done` is also called after failures, since owners are only a hint.
        """
        self._set_owner(id, owner)
        known = self.view.owners.get(id)
        has_later_owner = known is not None and known.stream == owner.stream and known.epoch > owner.epoch
        if self.closed or has_later_owner:
            done()
            return
        body = {"log": id.name, "partition": id.partition, **owner._asdict()}

        def put(result: EngineError | None) -> None:
            if result is None or self.view.owners.get(id) != owner or attempts <= 1 or self.closed:
                done()
            else:
                self.refresh(lambda read: self.publish_owner(id, stream, owner, done, attempts - 1) if self.view.owners.get(id) == owner else done())

        self.put(self._names.owner_key(stream), body, put)

    def note_end(self, id: LogId, owner: Owner) -> None:
        """This node no longer writes a log: note what was acknowledged after the last time that its end was published."""
        known = self.view.owners.get(id)
        if known is not None and known._replace(seq=owner.seq, first=owner.first) == owner:
            self._set_owner(id, known._replace(seq=max(known.seq, owner.seq)))

    def unpublish_owner(self, id: LogId, stream: Stream) -> None:
        """The log is deleted: publish that it has no owner, and remove that message after a time in which all nodes read it."""
        known = self.view.owners.get(id)
        if known is not None and known.stream == stream.name:
            self.publish_owner(id, stream, known._replace(node=0), lambda: None)
        self._loop.call_later(FORGET_SECONDS, Contained(self._purge_owner), stream)

    def _purge_owner(self, stream: Stream) -> None:
        if not self.closed:
            self._engine.call(f"STREAM.PURGE.{self._names.meta_stream}", {"filter": self._names.owner_key(stream)}, lambda body: None)

    # Heartbeats.

    def start(self, me: NodeInfo) -> None:
        self.me = me
        now = self._now
        self.view.live[me.id] = NodeState(me, self._incarnation, self._wall_ms(), now)
        self.view.version += 1
        self._ticked = now

    def _tick(self) -> None:
        """Count time without acknowledgements, send the heartbeat when it is due, remove dead nodes, and detect the end of the lease."""
        if self.closed:
            return
        self._loop.call_later(TICK_SECONDS, Contained(self._tick))
        now = self._now
        passed, self._ticked = now - self._ticked, now
        if now - self._acked_at > LATE_INTERVALS * self._lease / HEARTBEATS_PER_LEASE or passed > 10 * TICK_SECONDS:
            self.undecided_seconds += passed
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + self._lease / HEARTBEATS_PER_LEASE
            self._send_heartbeat()
        if not self.lease_lost and self.lease_left <= 0:
            self._lose_lease()
        overdue = self._clock - self._lease
        if not self._waiting_for_read_back and any(node_state.changed < overdue for node, node_state in self.view.live.items() if node != self._node):
            self.when_current(lambda: None)  # sends a heartbeat now and reads it back, after which overdue nodes are removed
        for node, node_state in list(self.view.live.items()):
            if node != self._node and self._newest_read_back.clock - node_state.changed > self._lease:
                self._remove_node(node)
        for process, changed in list(self.view.former_processes.items()):
            if self._newest_read_back.clock - changed > self._lease:
                del self.view.former_processes[process]
                self.view.version += 1
                for done in self._when_ended.pop(process, []):
                    run_contained(done)

    def when_former_process_ended(self, node: int, incarnation: str, done: Callable[[], None]) -> bool:
        """Call `done` when the lease of that earlier process has ended; False if it has ended already, or no other process has taken its node id."""
        if (node, incarnation) not in self.view.former_processes:
            return False
        self._when_ended.setdefault((node, incarnation), []).append(done)
        return True

    def may_answer(self) -> bool:
        """Whether a reply may be sent: checked before each write to a client.

        False between the end of the lease and the fencing of the logs: the data of such a reply was read under the lost lease.
        """
        if not self.lease_lost and self.lease_left <= 0:
            self._lose_lease()
        return self.lease_lost == self._fenced

    def _lose_lease(self) -> None:
        self.lease_lost = True
        log.error("the engine has not answered for too long: this node stops serving its logs", lease_seconds=self._lease)
        self._loop.call_soon(Contained(self._fence))  # not now: a log's callback may be writing a reply

    def _fence(self) -> None:
        if self.lease_lost and not self._fenced:
            self._fenced = True
            run_contained(self.on_lease_lost)

    def _body(self) -> dict[str, Any]:
        assert self.me is not None
        return {
            "incarnation": self._incarnation,
            "addresses": self.me.addresses,
            "rack": self.me.rack,
            "wall_ms": self._wall_ms(),
            "mark": self._mark,
            "ended": self._ended_predecessor,
        }

    def _next_heartbeat(self) -> Heartbeat:
        self._heartbeats_sent += 1
        self._heartbeat_pending = True
        return Heartbeat(0, self._clock, self._heartbeats_sent)

    def _send_heartbeat(self) -> None:
        if self.superseded:
            return  # the newer process would attribute the message to a third process
        sent, heartbeat = self._now, self._next_heartbeat()

        def put(result: EngineError | None) -> None:
            if self.closed:
                return
            self._heartbeat_pending = False
            if result is None:
                if not self.lease_lost and self.lease_left <= 0:
                    self._lose_lease()  # also if this callback is the first after the end of the lease: this acknowledgement begins another one
                self._acknowledged(sent, heartbeat)
                if self.lease_lost and self.lease_left > 0:
                    self._fence()
                    self.lease_lost = self._fenced = False
                    self.lease_number += 1
                    log.info("the engine answers again")
                    run_contained(self.on_lease_regained)
                return
            if result.code in WRONG_SEQUENCE:  # an earlier heartbeat, whose reply was lost, or another process
                self.refresh(lambda read: None)
                if 0 <= last_sequence_of(result) < self._revision:
                    run_contained(self.on_set_back, f"heartbeat {self._revision} of this node is missing")
            self._heartbeat_at = min(self._heartbeat_at, self._now + TICK_SECONDS)
            run_contained(self.on_refused_heartbeat)

        self.put(self._names.node_key(self._node), self._body(), put, min(HEARTBEAT_SECONDS_MAX, self._lease / HEARTBEATS_PER_LEASE))

    def _acknowledged(self, sent: float, heartbeat: Heartbeat) -> None:
        self._revision = self._revisions[self._names.node_key(self._node)]
        self._acked_at = max(self._acked_at, sent)
        self._acked_heartbeats.append(heartbeat._replace(seq=self._revision))
        self._note_read_back()
        if not self._heartbeat_pending and any(number > heartbeat.number for number, _ in self._waiting_for_read_back):
            self._loop.call_soon(Contained(self._send_heartbeat))
        self._poll_for_heartbeat()

    def first_heartbeat(self, done: Callable[[EngineError | None], None]) -> None:
        """Take the node id; an earlier process with this id reads this message and stops."""
        if self._predecessor is not None:
            incarnation, process_mark = self._predecessor
            if has_ended(process_mark):
                self._ended_predecessor = incarnation
            else:
                self.view.former_processes[self._node, incarnation] = self._clock
        sent, heartbeat = self._now, self._next_heartbeat()

        def put(result: EngineError | None) -> None:
            self._heartbeat_pending = False
            if result is None:
                self._acknowledged(sent, heartbeat)
                self._heartbeat_at = sent + self._lease / HEARTBEATS_PER_LEASE
                self._tick()
            done(result)

        self.put(self._names.node_key(self._node), self._body(), put)

    def leave(self, done: Callable[[], None]) -> None:
        """Publish an orderly end, so that no node waits for this node's lease. If a newer process has the node id, publish nothing."""
        if self.superseded or self.closed:
            done()
            return
        self._heartbeat_at = self._now + 3600
        self.put(self._names.node_key(self._node), {"incarnation": self._incarnation, "gone": True}, lambda result: done())

    def close(self) -> None:
        self.closed = True


def _ignore(read: bool) -> None: ...
