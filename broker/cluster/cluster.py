"""One node's part in the cluster: it owns logs, hands them over, follows the controller and answers the other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from broker.cluster.deletions import Forgotten, SharedDeletions
from broker.cluster.forwarding import Forwarding
from broker.cluster.messages import NODE_REQUESTS, Kind, log_ids, node_logs
from broker.cluster.ownership import Ownership
from broker.cluster.partitions import SharedPartitions
from broker.cluster.peers import Peers
from broker.cluster.registry import Changes, Registry
from broker.cluster.routing import TOPIC_REGISTRY, Routing
from broker.cluster.store import ClusterStore
from broker.groups.group_journal import NOT_OURS, GroupJournal
from broker.groups.journal import Journal
from broker.groups.notes import Notes
from broker.groups.shards import Shards
from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG, REGISTRY_LOG
from broker.logging.logs import log
from broker.net.dispatch import Call, Response, Route
from broker.runtime.contain import Contained, run
from broker.runtime.start import ExitCode, StartError
from broker.runtime.turn import Turn
from broker.topics.leaders import NO_NODE
from broker.topics.registry import Topics
from protocol.errors import ErrorCode
from protocol.messages.node_requests import DrainingNode, NodeRequest, NodeResponse
from storage import HeldBy, LogId, OwnedLog, ServedLog, TopicStore, Unreadable

FOLLOW_SECONDS: Final = 2.0  # between two looks at the controller's registry and at the other nodes, in case a message was lost
CHECK_SECONDS: Final = 1.0
GATHER_SECONDS: Final = 1.0  # for the other nodes to start too, before this one takes what they should have
RETRY_SECONDS: Final = 0.05


class Cluster:
    """Ties ownership to the parts of the broker that own logs (`Actions`, `Owners`)."""

    shards: Shards
    notes: Notes
    partitions: SharedPartitions
    deletions: SharedDeletions
    topic_store: TopicStore
    forwarding: Forwarding

    def __init__(
        self,
        me: int,
        incarnation: int,
        store: ClusterStore,
        loop: asyncio.AbstractEventLoop,
        turn: Turn,
        topics: Topics,
        registry: Journal,
        frame_bytes_max: int,
        nodes: int,
    ) -> None:
        """`nodes`: how many there are as a rule (cluster.nodes)."""
        self.me = me
        self._nodes = nodes
        self._gathering = True  # waits for the other nodes before it owns anything
        self._incarnation = incarnation
        self._store = store
        self._loop = loop
        self._turn = turn
        self._topics = topics
        self._view = store.view()
        self.routing = Routing(self._view)
        self.peers = Peers(loop, self._view.nodes, frame_bytes_max)
        self.ownership = Ownership(me, self._owner_of, self, turn.wake_by, lambda: self._view.version)
        self.routing.expected = self._expected
        self.registry = Registry(topics, registry, self._topics_changed)
        self._incarnations: dict[int, int] = {}  # of the nodes that said hello
        self._draining: set[int] = set()
        self._forgotten = Forgotten()
        self._to_report: dict[bytes, set[int]] = {}  # deleted topics, and partitions that have forgotten their offsets
        self._waiting: list[Callable[[], None]] = []  # called when the registry is read up to what the controller has
        self._following = False
        self._follow_again = False
        self._placing = False
        self._planned: dict[LogId, int] = {}  # the nodes of logs that are not placed yet
        self._grown = False
        self._started = False
        self._started_ms = 0
        self._stopped = False
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def _now(self) -> int:
        return self._turn.clock.tick()

    def _owner_of(self, id: LogId) -> int | None:
        owner = self._view.owner(id)
        return None if owner is None else owner.id

    # Start and stop.

    async def open_registry(self, served: Callable[[LogId], ServedLog | None]) -> None:
        """Lead, or read the registry of the controller; raises StartError when its log cannot be read."""
        self._served = served
        self._store.watch_nodes(self._node_changed)
        while not self.registry.leading and not (self.registry.current and CONSUMER_OFFSETS in self._topics.by_name):
            opened: asyncio.Future[OwnedLog | HeldBy | Unreadable] = self._loop.create_future()
            self._store.acquire(TOPIC_REGISTRY, opened.set_result)
            result = await opened
            if isinstance(result, Unreadable):
                raise StartError(result.reason, ExitCode.DATA if result.damaged else ExitCode.DISK)
            if isinstance(result, HeldBy):
                followed: asyncio.Future[None] = self._loop.create_future()
                self.follow(partial(_set_done, followed))
                await asyncio.wait([followed], timeout=1.0)
            elif not self._lead(result):
                raise StartError("the registry of topics cannot be read", ExitCode.DATA)

    def start(self) -> None:
        """Own logs from now on, all other parts are there."""
        self._started = True
        self._started_ms = self._now
        self._turn.attend(self.ownership)
        self.ownership.set_logs("registry", [TOPIC_REGISTRY], self._now)
        if self.registry.leading:
            self.ownership.adopt(TOPIC_REGISTRY, self._now)
            self._take_over_deletions()
        else:
            self.deletions.resume(self._topics.deleted.values())
        self._set_nodes()
        self._loop.call_later(GATHER_SECONDS, Contained(self._begin))
        self._follow_on_timer()
        self._check_on_timer()

    def _begin(self) -> None:
        """Own logs of groups and topics from now on: all nodes are there, or enough time has passed."""
        if self._gathering and not self._stopped:
            self._gathering = False
            partitions = self._topics.by_name[CONSUMER_OFFSETS].partitions
            self.ownership.set_logs("offsets", [LogId(CONSUMER_OFFSETS, number) for number in range(partitions)], self._now)
            self._place_topics()

    @property
    def settled(self) -> bool:
        """Whether every log is where it should be, as far as this node is concerned."""
        return not self._gathering and self.ownership.settled

    def stop(self) -> None:
        self._stopped = True
        self.ownership.stop()
        for timer in self._timers:
            timer.cancel()
        self.peers.close()

    def _again(self, seconds: float, step: Callable[[], None]) -> None:
        if not self._stopped:
            self._timers = [timer for timer in self._timers if not timer.cancelled() and timer.when() > self._loop.time()]
            self._timers.append(self._loop.call_later(seconds, Contained(step, partial(self._again, seconds, step))))

    def _follow_on_timer(self) -> None:
        self.follow(_nothing)
        self._say_hello([node.id for node in self._view.nodes()])
        self._again(FOLLOW_SECONDS, self._follow_on_timer)

    def _check_on_timer(self) -> None:
        """Notice partitions of groups that refuse although they are ours: another writer fenced them."""
        for journal in self.shards.journals:
            id = LogId(CONSUMER_OFFSETS, journal.partition)
            if journal.refusal == NOT_OURS and not journal.owned and self.ownership.owns(id):
                log.warning("partition of groups was lost", log=journal.name)
                self.lost(id)
        if self.registry.leading and self.registry.journal.fenced:
            log.warning("the registry of topics was lost")
            self.registry.follow()
            self.lost(TOPIC_REGISTRY)
        self._again(CHECK_SECONDS, self._check_on_timer)

    # Nodes.

    def _node_changed(self, node: int, alive: bool) -> None:
        log.info("node is there" if alive else "node is gone", node=node)
        if not alive:
            self.peers.gone(node)
            self._incarnations.pop(node, None)
            self._draining.discard(node)
        elif self._started:
            self._say_hello([node])
        if self._started:
            self._set_nodes()

    def _set_nodes(self) -> None:
        self._planned.clear()
        live = [node.id for node in self._view.nodes()]
        self.ownership.set_nodes(live, self._draining, self._now)
        if len(live) >= self._nodes:
            self._begin()

    def _say_hello(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            if node != self.me:
                self.peers.send(node, self._request(Kind.HELLO), partial(self._greeted, node))

    def _greeted(self, node: int, reply: NodeResponse | None) -> None:
        """A node says itself whether it is draining: what others heard of it may be lost or late."""
        if reply is None or self._stopped:
            return
        draining = any(one.id == node for one in reply.draining)
        if draining != (node in self._draining):
            self._draining ^= {node}
            self._set_nodes()

    def _hello(self, node: int, incarnation: int) -> None:
        if self._incarnations.get(node) != incarnation:
            self._incarnations[node] = incarnation
            self._draining.discard(node)  # it was started again
            self._store.look_for_nodes()
            self._set_nodes()

    def drain(self, node: int, drained: bool) -> None:
        """Let the other nodes have the node's logs, or give it its share again."""
        if drained:
            self._draining.add(node)
        else:
            self._draining.discard(node)
        log.info("node is drained" if drained else "node is no longer drained", node=node)
        self._set_nodes()

    def _request(self, kind: Kind, logs: list[LogId] | None = None, offset: int = 0, epoch: int = 0, target: int = 0) -> NodeRequest:
        return NodeRequest(kind, self.me, self._incarnation, offset, epoch, node_logs(logs or []), target)

    def _tell_all(self, request: NodeRequest) -> None:
        for node in self._view.nodes():
            if node.id != self.me:
                self.peers.send(node.id, request, _ignore_reply)

    # Requests of other nodes.

    def route(self) -> Route:
        return Route(NodeRequest, self.handle, refuse, NODE_REQUESTS)  # type: ignore[arg-type]

    def handle(self, call: Call, request: NodeRequest) -> Response | None:
        now = self._now
        match request.kind:
            case Kind.HELLO:
                self._hello(request.node, request.incarnation)
                return NodeResponse(draining=[DrainingNode(id) for id in sorted(self._draining)])
            case Kind.ASK:
                self.ownership.asked(request.node, log_ids(request.logs), now)
            case Kind.OFFER:
                self._store.when_current(partial(self._offered, log_ids(request.logs)))
            case Kind.REGISTRY_GREW:
                self.follow(_nothing)
            case Kind.FOLLOW:
                return self.registry.answer(request)
            case Kind.FORWARD:
                self.forwarding.answer(call, request)
                return None
            case Kind.FORGOTTEN:
                ids = request.body or b""
                for at in range(0, len(ids), 16):
                    for one in log_ids(request.logs):
                        self._note_forgotten(ids[at : at + 16], one.partition)
            case Kind.DRAIN:
                self.drain(request.target, bool(request.offset))
                if request.node != self.me and not request.epoch:  # from the command: the other nodes have to hear of it
                    self._tell_all(self._request(Kind.DRAIN, offset=request.offset, epoch=1, target=request.target))
            case _:
                return NodeResponse(ErrorCode.UNSUPPORTED_VERSION)
        return NodeResponse()

    def _offered(self, logs: list[LogId]) -> None:
        self.ownership.offered(logs, self._now)

    # Ownership (`Actions`).

    def acquire(self, id: LogId) -> None:
        # Locked before its turn to be opened comes: otherwise other nodes would take what this one is about to open.
        taken = self._store.take(id)
        if isinstance(taken, HeldBy):
            self.opened(id, taken)
        elif isinstance(taken, Unreadable):
            log.error("log cannot be locked", log=str(id), reason=taken.reason)
            self.opened(id, taken.reason)
        elif id == TOPIC_REGISTRY:
            self._store.acquire(id, self._registry_acquired)
        elif id.name == CONSUMER_OFFSETS:
            self.shards.load(id.partition)
        else:
            self.partitions.acquire(id)

    def may_interrupt(self, id: LogId) -> bool:
        return id.name not in (CONSUMER_OFFSETS, REGISTRY_LOG)

    def ask(self, owner: int, logs: list[LogId]) -> None:
        self.peers.send(owner, self._request(Kind.ASK, logs), _ignore_reply)

    def release(self, id: LogId, receiver: Any) -> None:
        """Hand the log over to the node `receiver`; also `Owners.release`, where `receiver` is called when the log is closed."""
        if callable(receiver):
            self._store.release(id, receiver)
            return
        done = Contained(partial(self._handed_over, id, receiver))
        if id == TOPIC_REGISTRY:
            self.registry.journal.when_settled(partial(self._leave_registry, done))
        elif id.name == CONSUMER_OFFSETS:
            self.shards.journals[id.partition].unload(partial(self._leave_groups, id.partition, done))
        else:
            self.partitions.leave(id, done)

    def _leave_registry(self, done: Callable[[], None]) -> None:
        self.registry.follow()
        self._store.release(TOPIC_REGISTRY, done)

    def _leave_groups(self, partition: int, done: Callable[[], None]) -> None:
        self.partitions.left_internal(LogId(CONSUMER_OFFSETS, partition))
        self.partitions.left_internal(LogId(NOTES_LOG, partition))
        self.notes.leave(partition, Contained(partial(self._store.release, LogId(CONSUMER_OFFSETS, partition), done)))

    def _handed_over(self, id: LogId, receiver: int) -> None:
        self.ownership.released(id, self._now)
        self.peers.send(receiver, self._request(Kind.OFFER, [id]), _ignore_reply)
        if id == TOPIC_REGISTRY:
            self.follow(_nothing)

    # What became of logs (`Owners`).

    def lost(self, id: LogId) -> None:
        """Another writer has fenced this node."""
        self._store.release(id, _nothing)
        self.ownership.lost(id, self._now)

    def may_open(self, id: LogId) -> bool:
        return self.ownership.may_open(id)

    def deleted(self, logs: list[LogId]) -> None:
        self.ownership.deleted(logs)
        self._place_later()

    @property
    def leading(self) -> bool:
        return self.registry.leading

    def opened(self, id: LogId, result: HeldBy | str) -> None:
        now = self._now
        if isinstance(result, HeldBy):
            self.ownership.held_elsewhere(id, now)
        elif result:
            self.ownership.failed(id, now)
        else:
            self.ownership.acquired(id, now)

    def load_ended(self, journal: GroupJournal, result: HeldBy | str) -> None:
        """The load of a partition of groups ended (`Shards`)."""
        self.opened(LogId(CONSUMER_OFFSETS, journal.partition), result)

    def _registry_acquired(self, result: OwnedLog | HeldBy | Unreadable) -> None:
        if isinstance(result, HeldBy):
            self.opened(TOPIC_REGISTRY, result)
            self.follow(_nothing)
        elif isinstance(result, Unreadable):
            log.error("registry of topics cannot be read", reason=result.reason)
            self.opened(TOPIC_REGISTRY, result.reason)
        elif self._lead(result):
            self.opened(TOPIC_REGISTRY, "")
            log.info("this node is the controller", epoch=result.epoch)
            self._take_over_deletions()
            self._grew()
        else:
            self._store.release(TOPIC_REGISTRY, partial(self.opened, TOPIC_REGISTRY, "it cannot be read"))

    # The registry.

    def _lead(self, owned: OwnedLog) -> bool:
        served = self._served(TOPIC_REGISTRY)
        assert served is not None
        if not self.registry.lead(owned, served):
            return False
        served.watch_growth(self._grew)
        return True

    def _take_over_deletions(self) -> None:
        self.deletions.resume(self._topics.deleted.values())
        self.partitions.finish_deletions()

    def _grew(self) -> None:
        """Tell the others, at most once in a turn."""
        if not self._grown and self.registry.leading and self._started:
            self._grown = True
            self._loop.call_soon(Contained(self._tell_growth))
        if self._started:
            self._place_later()

    def _tell_growth(self) -> None:
        self._grown = False
        if self.registry.leading:
            self._tell_all(self._request(Kind.REGISTRY_GREW, offset=self.registry.end, epoch=self.registry.version))

    def follow(self, done: Callable[[], None]) -> None:
        """Read what the controller has stored; `done` is called when this node has all of it."""
        if self.registry.leading:
            run(done)
            return
        self._waiting.append(done)
        if self._following:
            self._follow_again = True
        else:
            self._following = True
            self._follow_next()

    @property
    def controller(self) -> int:
        """The live owner of the registry, or NO_NODE."""
        owner = self._owner_of(TOPIC_REGISTRY)
        return NO_NODE if owner is None else owner

    def _follow_next(self) -> None:
        if self._stopped:
            return
        controller = self.controller
        if self.registry.leading:
            self._followed()
        elif controller in (NO_NODE, self.me):
            self._loop.call_later(RETRY_SECONDS, Contained(self._follow_next))
        else:
            request = self.registry.request(self.me, Kind.FOLLOW)
            self.peers.send(controller, request, partial(self._records, request))

    def _records(self, request: NodeRequest, reply: NodeResponse | None) -> None:
        if self.registry.leading:
            self._followed()
        elif reply is None or reply.error_code:
            self._loop.call_later(RETRY_SECONDS, Contained(self._follow_next))
        elif self.registry.records(request, reply) or self._follow_again:
            self._follow_again = False
            self._follow_next()
        else:
            self._followed()

    def _followed(self) -> None:
        self._following = self._follow_again = False
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            run(done)

    def _topics_changed(self, changes: Changes) -> None:
        """Topics were replayed, from the log or from the controller's records."""
        if not self._started:
            return
        for topic in changes.removed:
            self.partitions.deleted(topic)
        for topic in changes.changed:
            self.partitions.altered(topic)
        for topic in (*changes.removed, *changes.changed):
            self.shards.topic_changed(topic.name)
        if not self.registry.leading:
            self.deletions.resume(changes.deleted)
        self.deletions.completed(changes.completed)
        if changes.anew:
            self._forgotten.clear()
            self.deletions.repeat()
        self._place_later()

    # Offsets of deleted topics.

    def forgotten(self, ids: list[bytes], partition: int) -> None:
        """A partition of this node has no offsets of these topics any more."""
        if not self._to_report:
            self._loop.call_soon(Contained(self._report_forgotten))
        for id in ids:
            self._to_report.setdefault(id, set()).add(partition)

    def _report_forgotten(self) -> None:
        reported, self._to_report = self._to_report, {}
        by_partitions: dict[tuple[int, ...], list[bytes]] = {}
        for id, partitions in reported.items():
            by_partitions.setdefault(tuple(sorted(partitions)), []).append(id)
        for numbers, ids in by_partitions.items():
            if self.registry.leading:
                for id in ids:
                    for number in numbers:
                        self._note_forgotten(id, number)
            elif self.controller != NO_NODE:
                request = self._request(Kind.FORGOTTEN, [LogId(CONSUMER_OFFSETS, number) for number in numbers])
                request.body = b"".join(ids)
                self.peers.send(self.controller, request, _ignore_reply)

    def _note_forgotten(self, id: bytes, partition: int) -> None:
        registry = self.registry.journal
        if not (self.registry.leading and registry.writable and id in self._topics.deleted):
            return
        if self._forgotten.note(id, partition, len(self.shards.journals)):
            self.deletions.completed([id])
            self._topics.offsets_gone(id)
            self._turn.schedule_append(registry)

    def _place_later(self) -> None:
        if not self._placing:
            self._placing = True
            self._loop.call_soon(Contained(self._place_topics))

    def _place_topics(self) -> None:
        self._placing = False
        self._planned.clear()
        if not self._gathering:
            self.ownership.set_logs("topics", self._topic_logs(), self._now)

    def _topic_logs(self) -> list[LogId]:
        topics = [topic for topic in self._topics.by_name.values() if not topic.internal]
        return [LogId(topic.name, index) for topic in topics for index in range(topic.partitions)]

    def _expected(self, id: LogId) -> int:
        """The node that will own the log. The reply that creates a topic names the leaders already: some clients look for them only once."""
        node = self.ownership.expected(id)
        topic = self._topics.by_name.get(id.name)
        if node == NO_NODE and topic is not None and not topic.internal and not self._gathering:
            if id not in self._planned:
                self._planned = self.ownership.planned(self._topic_logs())
            node = self._planned.get(id, NO_NODE)
        return node

    # For people.

    def status(self) -> dict[str, str]:
        """What this node is and owns, as `status.*` entries of DescribeConfigs; times are in milliseconds since 1970."""
        clock = self._turn.clock
        back = clock.wall - clock.tick()  # from monotonic to wall time
        owned = self.ownership.owned()
        groups = {id: since for id, since in owned.items() if id.name == CONSUMER_OFFSETS}
        topics = {id: since for id, since in owned.items() if id.name not in (CONSUMER_OFFSETS, REGISTRY_LOG)}
        return {
            "status.node": "draining" if self.me in self._draining else "serving",
            "status.started.ms": str(self._started_ms + back),
            "status.controller": str(self.registry.leading).lower(),
            "status.controller.since.ms": str(owned[TOPIC_REGISTRY] + back) if TOPIC_REGISTRY in owned else "",
            "status.live.nodes": ",".join(str(node.id) for node in sorted(self._view.nodes())),
            "status.draining.nodes": ",".join(map(str, sorted(self._draining))),
            "status.groups.partitions": str(len(groups)),
            "status.groups.newest.ms": str(max(groups.values()) + back) if groups else "",
            "status.topics.partitions": str(len(topics)),
            "status.topics.newest.ms": str(max(topics.values()) + back) if topics else "",
            "status.settled": str(self.settled).lower(),
        }


def refuse(request: NodeRequest, version: int, error: int) -> NodeResponse:
    return NodeResponse(error)


def _nothing() -> None: ...


def _ignore_reply(reply: NodeResponse | None) -> None: ...


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
