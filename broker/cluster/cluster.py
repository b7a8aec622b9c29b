"""One node's part in the cluster: it owns logs, hands them over, follows the controller and answers the other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from broker.cluster.deletions import DeletionReports, SharedDeletions
from broker.cluster.following import RegistryFollower
from broker.cluster.forwarding import Forwarding
from broker.cluster.members import NodeMembership, ignore_reply
from broker.cluster.messages import NODE_REQUESTS, NodeRequestKind, log_ids, node_logs
from broker.cluster.ownership import Ownership
from broker.cluster.partitions import SharedPartitions
from broker.cluster.peers import Connect, Peers
from broker.cluster.producer_ids import ControllerProducerIds
from broker.cluster.propagation import LATE_SECONDS, Propagation
from broker.cluster.registry import Changes, Registry
from broker.cluster.routing import Routing
from broker.cluster.store import ClusterStore
from broker.cluster.topic_placement import TopicPlacement
from broker.groups.group_journal import NOT_OURS, GroupJournal, HandOver
from broker.groups.journal import Journal
from broker.groups.notes import NotesLogs
from broker.groups.shards import Shards
from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG, REGISTRY_LOG, REGISTRY_LOG_ID
from broker.logging.logs import log
from broker.net.dispatch import Call, Response, Route
from broker.runtime.contain import Contained
from broker.runtime.start import ExitCode, StartError, StoppedEarly
from broker.runtime.turn import Turn
from broker.topics.leaders import NO_NODE
from broker.topics.producer_ids import RegistryProducerIds
from broker.topics.registry import Topic, TopicRegistry
from protocol.errors import ErrorCode
from protocol.messages.node_requests import NodeRequest, NodeResponse
from storage import HeldBy, LogId, OwnedLog, ServedLog, TopicStore, Unreadable
from storage.owners import NO_TOPIC

CONTROLLER_WARN_SECONDS: Final = 5.0  # between two warnings of a node that starts and gets no topics from the controller
FOLLOW_SECONDS: Final = 2.0  # the interval of reading the controller's registry and greeting the other nodes, in case a message was lost
CHECK_SECONDS: Final = 1.0
SUSPENDED_SECONDS: Final = 0.05  # between two looks at a suspended registry
GATHER_SECONDS: Final = 1.0  # for the other nodes to start, before this node acquires logs that they should own


class Cluster:
    """Connects `Ownership`, which decides which logs this node owns, with the parts of the broker that open and close logs.

    Implements `Actions` for `Ownership`, and `PartitionOwnership` for the partitions of topics.
    """

    shards: Shards
    notes: NotesLogs
    partitions: SharedPartitions
    deletions: SharedDeletions
    topic_store: TopicStore
    forwarding: Forwarding

    def __init__(
        self,
        node_id: int,
        incarnation: int,
        store: ClusterStore,
        loop: asyncio.AbstractEventLoop,
        turn: Turn,
        topics: TopicRegistry,
        registry_journal: Journal,
        connect: Connect,
        frame_bytes_max: int,
        nodes: int,
    ) -> None:
        """`connect`: opens a link to another node. `nodes`: the usual number of nodes (cluster.nodes)."""
        self.node_id = node_id
        self._usual_node_count = nodes
        self._gathering = True  # waits for the other nodes before it acquires logs
        self._incarnation = incarnation
        self._store = store
        self._loop = loop
        self._turn = turn
        self._topics = topics
        self._view = store.view()
        self.routing = Routing(self._view)
        self.peers = Peers(loop, self._view.nodes, connect, frame_bytes_max)
        self.members = NodeMembership(node_id, store, self._view, self.peers, self._request(NodeRequestKind.GREETING), self._nodes_changed)
        self.ownership = Ownership(node_id, self._owner_of, self, turn.wake_by, lambda: self._view.version)
        self._topic_placement = TopicPlacement(node_id, loop, topics, self.ownership, turn.clock.tick)
        self.routing.expected_owner = self._topic_placement.expected_owner
        self.registry = Registry(topics, registry_journal, self._topics_changed)
        self._following = RegistryFollower(node_id, loop, self.peers, self.registry, lambda: self.controller)
        self.follow = self._following.follow
        self.propagation = Propagation(
            node_id,
            loop,
            self.peers,
            self._nodes_to_notify,
            partial(self._request, NodeRequestKind.REGISTRY_GREW),
            self._topic_placement.when_opened,
            (lambda: 0) if store.shows_deletions else lambda: topics.last_deletion,
            store.when_current,
        )
        self.producer_ids = ControllerProducerIds(node_id, loop, self.peers, lambda: self.controller, self._request, RegistryProducerIds(topics, registry_journal))
        self.deletion_reports = DeletionReports(loop, turn, topics, self.registry, self._report_removed)
        self._started = False
        self.started_ms = 0
        self._stopped = False
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def _now(self) -> int:
        return self._turn.clock.tick()

    def _owner_of(self, id: LogId) -> int | None:
        owner = self._view.owner(id)
        return None if owner is None else owner.id

    # Start and stop.

    async def open_registry(self, served: Callable[[LogId], ServedLog | None], stop_requested: asyncio.Future[dict[str, object]]) -> None:
        """Become the controller, or read the controller's registry.

        Raises StartError if the registry's log cannot be read, and StoppedEarly if a stop is requested while the controller does not answer.
        """
        self._served = served
        began = self._loop.time()
        warn_at = began + CONTROLLER_WARN_SECONDS
        self._store.watch_nodes(self.members.node_changed)
        while not self.registry.is_controller and not (self.registry.is_current and CONSUMER_OFFSETS in self._topics.by_name):
            opened: asyncio.Future[OwnedLog | HeldBy | Unreadable] = self._loop.create_future()
            self._store.acquire(REGISTRY_LOG_ID, opened.set_result)
            result = await opened
            if isinstance(result, Unreadable):
                raise StartError(result.reason, ExitCode.DATA if result.damaged else ExitCode.DISK)
            if isinstance(result, HeldBy):
                followed: asyncio.Future[None] = self._loop.create_future()
                self.follow(partial(_set_done, followed))
                either: list[asyncio.Future[Any]] = [followed, stop_requested]
                await asyncio.wait(either, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                if stop_requested.done():
                    self.stop()
                    raise StoppedEarly
                if not followed.done() and self._loop.time() >= warn_at:
                    warn_at += CONTROLLER_WARN_SECONDS
                    log.warning("the controller has not sent its topics yet", controller=self.controller, seconds=round(self._loop.time() - began))
            elif not self._lead(result):
                raise StartError("the registry of topics cannot be read", ExitCode.DATA)

    def start(self) -> None:
        """Take part in the cluster, at first only for the registry (see `_begin_acquiring`); all other parts of the broker exist now."""
        self._started = True
        self.started_ms = self._now
        self._turn.add_deadline_handler(self.ownership)
        self.ownership.set_logs("registry", [REGISTRY_LOG_ID], self._now)
        if self.registry.is_controller:
            self.ownership.already_acquired(REGISTRY_LOG_ID, self._now)
            self._resume_deletions()
        else:
            self.deletions.resume(self._topics.deleted.values())
        self.members.start()
        self._loop.call_later(GATHER_SECONDS, Contained(self._begin_acquiring))
        self._follow_on_timer()
        self._check_on_timer()

    def _begin_acquiring(self) -> None:
        """Acquire logs of groups and topics from now on: all nodes have started, or `GATHER_SECONDS` have passed."""
        if self._gathering and not self._stopped:
            offsets = self._topics.by_name.get(CONSUMER_OFFSETS)
            if offsets is None:  # the registry is suspended before it could store its first topic
                self._loop.call_later(SUSPENDED_SECONDS, Contained(self._begin_acquiring))
                return
            self._gathering = False
            partitions = offsets.partition_count
            self.ownership.set_logs("offsets", [LogId(CONSUMER_OFFSETS, number) for number in range(partitions)], self._now)
            self._topic_placement.begin_placing()

    @property
    def settled(self) -> bool:
        """Whether this node owns exactly the logs that it should, and every other log has an owner."""
        return not self._gathering and self.ownership.settled

    def stop(self) -> None:
        self._stopped = True
        self.ownership.stop()
        self._following.stop()
        self.members.stop()
        for timer in self._timers:
            timer.cancel()
        self.peers.close()

    def _repeat(self, seconds: float, step: Callable[[], None]) -> None:
        if not self._stopped:
            self._timers = [timer for timer in self._timers if not timer.cancelled() and timer.when() > self._loop.time()]
            self._timers.append(self._loop.call_later(seconds, Contained(step, partial(self._repeat, seconds, step))))

    def _follow_on_timer(self) -> None:
        self.follow(_ignore)
        self.members.greet(self.members.live)
        self._repeat(FOLLOW_SECONDS, self._follow_on_timer)

    def _check_on_timer(self) -> None:
        """Detect owned logs that another writer has fenced."""
        for journal in self.shards.journals:
            id = LogId(CONSUMER_OFFSETS, journal.partition)
            if journal.refusal == NOT_OURS and not journal.owns_log and self.ownership.owns(id):
                log.warning("partition of groups was lost", log=journal.name)
                self.lost(id)
        if self.registry.is_controller and self.registry.journal.fenced:
            log.warning("the registry of topics was lost")
            self.registry.follow()
            self.lost(REGISTRY_LOG_ID)
        self._repeat(CHECK_SECONDS, self._check_on_timer)

    def _nodes_changed(self) -> None:
        live = self.members.live
        self.ownership.set_nodes(live, self.members.draining, self._now)
        self._topic_placement.nodes_changed()
        if len(live) >= self._usual_node_count:
            self._begin_acquiring()

    def when_up_to_date(self, done: Callable[[], None]) -> None:
        """As `follow`; but this node may be a controller whose registry is suspended, and which another node may have replaced meanwhile."""

        def followed() -> None:
            if self.registry.is_controller and not self.registry.journal.writable:
                self._loop.call_later(SUSPENDED_SECONDS, Contained(self.when_up_to_date), done)
            else:
                done()

        self.follow(followed)

    # Requests of other nodes.

    def _request(self, kind: NodeRequestKind, logs: list[LogId] | None = None, offset: int = 0, epoch: int = 0, target: int = 0) -> NodeRequest:
        return NodeRequest(kind, self.node_id, self._incarnation, offset, epoch, node_logs(logs or []), target)

    def route(self) -> Route:
        return Route(NodeRequest, self.handle, error_response, NODE_REQUESTS)  # type: ignore[arg-type]

    def handle(self, call: Call, request: NodeRequest) -> Response | None:
        now = self._now
        match request.kind:
            case NodeRequestKind.GREETING:
                return self.members.answer_greeting(request.node, request.incarnation)
            case NodeRequestKind.REQUEST_RELEASE:
                self.ownership.release_requested(request.node, log_ids(request.logs), now)
            case NodeRequestKind.OFFER:
                self._store.when_current(partial(self._handle_offer, log_ids(request.logs)))
            case NodeRequestKind.REGISTRY_GREW:
                self.follow(partial(self._confirm, call))
                return None
            case NodeRequestKind.FOLLOW:
                return self.registry.answer(request)
            case NodeRequestKind.FORWARD:
                self.forwarding.answer(call, request)
                return None
            case NodeRequestKind.PRODUCER_IDS:
                self.producer_ids.answer(call)
                return None
            case NodeRequestKind.OFFSETS_REMOVED:
                ids = request.body or b""
                self.deletion_reports.process([ids[at : at + 16] for at in range(0, len(ids), 16)], [log.partition for log in request.logs])
            case NodeRequestKind.PROBE:
                pass
            case NodeRequestKind.DRAIN:
                self.members.drain(request.node, bool(request.offset))
            case _:
                return NodeResponse(ErrorCode.UNSUPPORTED_VERSION)
        return NodeResponse()

    def _confirm(self, call: Call) -> None:
        """Confirm that this node has read a change of topics: once it has opened its new logs, but after a second at the latest."""
        unanswered = [call]

        def answer() -> None:
            if unanswered:
                unanswered.pop().answer(NodeResponse())

        self._topic_placement.when_opened(answer)
        if unanswered:
            self._loop.call_later(LATE_SECONDS, Contained(answer))

    # Draining (`NodeDrain`).

    @property
    def drained(self) -> bool:
        return self.node_id in self.members.draining

    @property
    def live_nodes(self) -> list[int]:
        return self.members.live

    def set_drained(self, drained: bool) -> None:
        self.members.drain(self.node_id, drained)
        self.members.notify_all(self._request(NodeRequestKind.DRAIN, offset=int(drained)))

    def _handle_offer(self, logs: list[LogId]) -> None:
        self.ownership.offered(logs, self._now)

    # Ownership (`Actions`).

    def acquire(self, id: LogId) -> None:
        is_internal = id.name in (REGISTRY_LOG, CONSUMER_OFFSETS)
        topic = None if is_internal else self._topics.by_name.get(id.name)
        if not is_internal and (topic is None or self.partitions.awaits_deletion(id)):
            self.partitions.acquire(id)
            return
        # Lock the log before opening it: opening takes a while, in which another node could lock it.
        locked = self._store.lock_log(id, NO_TOPIC if topic is None else topic.id, self._topics.last_deletion)
        if isinstance(locked, HeldBy):
            self.opened(id, locked)
        elif isinstance(locked, Unreadable):
            log.error("log cannot be locked", log=str(id), reason=locked.reason)
            self.opened(id, locked.reason)
        elif id == REGISTRY_LOG_ID:
            self._store.acquire(id, self._registry_acquired)
        elif id.name == CONSUMER_OFFSETS:
            self.shards.load(id.partition)
        else:
            self.partitions.acquire(id)

    def may_abort_acquire(self, id: LogId) -> bool:
        return id.name not in (CONSUMER_OFFSETS, REGISTRY_LOG)

    def request_release(self, owner: int, logs: list[LogId]) -> None:
        self.peers.send(owner, self._request(NodeRequestKind.REQUEST_RELEASE, logs), ignore_reply)

    def hand_over(self, id: LogId, receiver: int) -> None:
        done = Contained(partial(self._handed_over, id, receiver))
        if id == REGISTRY_LOG_ID:
            self.registry.journal.when_settled(partial(self._leave_registry, done))
        elif id.name == CONSUMER_OFFSETS:
            reason = HandOver(receiver, self.drained)
            self.shards.journals[id.partition].unload(partial(self._leave_groups, id.partition, done), reason)
        else:
            self.partitions.leave(id, done)

    def _leave_registry(self, done: Callable[[], None]) -> None:
        self.registry.follow()
        self._store.release(REGISTRY_LOG_ID, done)

    def _leave_groups(self, partition: int, done: Callable[[], None]) -> None:
        self._refuse_internal(partition)
        self.notes.release(partition, Contained(partial(self._store.release, LogId(CONSUMER_OFFSETS, partition), done)))

    def _refuse_internal(self, partition: int) -> None:
        """Refuse consumers that read this partition of the internal topics."""
        self.partitions.refuse_internal(LogId(CONSUMER_OFFSETS, partition))
        self.partitions.refuse_internal(LogId(NOTES_LOG, partition))

    def _handed_over(self, id: LogId, receiver: int) -> None:
        self.ownership.released(id, self._now)
        self.peers.send(receiver, self._request(NodeRequestKind.OFFER, [id]), ignore_reply)
        if id == REGISTRY_LOG_ID:
            self.follow(_ignore)

    # Opening and closing logs (`PartitionOwnership`).

    def release(self, id: LogId, done: Callable[[], None]) -> None:
        self._store.release(id, done)

    def release_unopened(self, id: LogId, topic_id: bytes) -> None:
        self._store.release_unopened(id, topic_id)

    def lost(self, id: LogId) -> None:
        """Another node has claimed the log; writes of this node are fenced."""
        if id.name == CONSUMER_OFFSETS:
            self._refuse_internal(id.partition)
        self._store.release(id, _ignore)
        self.ownership.lost(id, self._now)

    def may_open(self, id: LogId) -> bool:
        return self.ownership.may_open(id)

    def deleted(self, logs: list[LogId]) -> None:
        self.ownership.deleted(logs)
        for id in logs:
            self._topic_placement.opened(id)
        self._topic_placement.place_later()

    @property
    def is_controller(self) -> bool:
        return self.registry.is_controller

    def added(self, topic: Topic) -> None:
        self._topic_placement.added(topic)

    def opened(self, id: LogId, result: HeldBy | str) -> None:
        now = self._now
        if isinstance(result, HeldBy):
            self.ownership.held_elsewhere(id, now)
        elif result:
            self.ownership.failed(id, now)
        else:
            self.ownership.acquired(id, now)
        self._topic_placement.opened(id)

    def load_ended(self, journal: GroupJournal, result: HeldBy | str) -> None:
        """Called when the load of an offsets partition ended (`Shards`)."""
        self.opened(LogId(CONSUMER_OFFSETS, journal.partition), result)

    def _registry_acquired(self, result: OwnedLog | HeldBy | Unreadable) -> None:
        if isinstance(result, HeldBy):
            self.opened(REGISTRY_LOG_ID, result)
            self.follow(_ignore)
        elif isinstance(result, Unreadable):
            log.error("registry of topics cannot be read", reason=result.reason)
            self.opened(REGISTRY_LOG_ID, result.reason)
        elif self._lead(result):
            self.opened(REGISTRY_LOG_ID, "")
            log.info("this node is the controller", epoch=result.epoch)
            self._resume_deletions()
            self._registry_grew()
        else:
            self._store.release(REGISTRY_LOG_ID, partial(self.opened, REGISTRY_LOG_ID, "the registry cannot be read"))

    # The registry.

    def _lead(self, owned: OwnedLog) -> bool:
        served = self._served(REGISTRY_LOG_ID)
        assert served is not None
        if not self.registry.lead(owned, served):
            return False
        served.watch_growth(self._registry_grew)
        return True

    def publish_deletion(self, number: int) -> None:
        """Tell all nodes the number of the last deletion, before a client learns of it."""
        if number > self._store.last_deletion:
            self._store.set_last_deletion(number)

    def _resume_deletions(self) -> None:
        self._store.set_last_deletion(self._topics.last_deletion)  # also if a power failure has undone newer ones
        self.deletions.resume(self._topics.deleted.values())
        self.partitions.finish_deletions()

    def _registry_grew(self) -> None:
        if self._started:
            self.propagation.announce()
            self._topic_placement.place_later()

    def _nodes_to_notify(self) -> list[int]:
        """The nodes that the controller notifies of changed topics."""
        return self.members.live if self.registry.is_controller else []

    @property
    def controller(self) -> int:
        """The live owner of the registry, or NO_NODE."""
        owner = self._owner_of(REGISTRY_LOG_ID)
        return NO_NODE if owner is None else owner

    @property
    def acting_controller(self) -> int:
        """The controller; NO_NODE also while this node owns the registry but cannot write it, because its log is being opened or released."""
        controller = self.controller
        return NO_NODE if controller == self.node_id and not self.registry.is_controller else controller

    def _topics_changed(self, changes: Changes) -> None:
        """Called when topics were replayed, from the registry's log or from records that the controller sent."""
        if not self._started:
            return
        for topic in changes.removed:
            self.partitions.deleted(topic)
        for topic in changes.changed:
            self.partitions.altered(topic)
            self._topic_placement.added(topic)
        for topic in (*changes.removed, *changes.changed):
            self.shards.topic_changed(topic.name)
        if not self.registry.is_controller:
            self.deletions.resume(changes.deleted)
        self.deletions.forget_completed(changes.completed)
        if changes.reread:
            self.deletion_reports.repeat_all()
        self._topic_placement.place_later()

    def _report_removed(self, ids: list[bytes], partitions: list[int]) -> None:
        if self.controller != NO_NODE:
            request = self._request(NodeRequestKind.OFFSETS_REMOVED, [LogId(CONSUMER_OFFSETS, number) for number in partitions])
            request.body = b"".join(ids)
            self.peers.send(self.controller, request, ignore_reply)


def error_response(request: NodeRequest, version: int, error: int) -> NodeResponse:
    return NodeResponse(error)


def _ignore() -> None: ...


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
