"""One node's part in the cluster: what it does with each request of another node, each decision of ownership and each change of topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.cluster import cluster as module
from broker.cluster.cluster import CHECK_SECONDS, FOLLOW_SECONDS, GATHER_SECONDS, SUSPENDED_SECONDS, Cluster, error_response
from broker.cluster.messages import NodeRequestKind, node_logs
from broker.cluster.ownership import NEVER, OwnershipState
from broker.cluster.propagation import LATE_SECONDS
from broker.cluster.registry import Changes
from broker.groups.group_journal import NOT_OURS
from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG, REGISTRY_LOG_ID
from broker.runtime.start import ExitCode, StartError, StoppedEarly
from broker.runtime.turn import Turn
from broker.topics.leaders import NO_NODE
from broker.topics.registry import TopicRegistry
from protocol.errors import ErrorCode
from protocol.messages.node_requests import NodeRequest, NodeResponse
from storage import HeldBy, LogId, NodeInfo, Unreadable
from storage.owners import NO_TOPIC
from tests.support.stepped_loop import SteppedLoop

pytestmark = pytest.mark.plain  # replaces the links to other nodes, and the log

ME, OTHER = 1, 2
OFFSETS, ORDERS = LogId(CONSUMER_OFFSETS, 0), LogId("orders", 0)


class Peers:
    def __init__(self, *arguments: Any) -> None:
        self.sent: list[tuple[int, NodeRequest]] = []
        self.replies: list[Callable[[NodeResponse | None], None]] = []
        self.closed = False

    def send(self, node: int, request: NodeRequest, done: Callable[[NodeResponse | None], None]) -> None:
        self.sent.append((node, request))
        self.replies.append(done)

    def node_ended(self, node: int) -> None: ...

    def close(self) -> None:
        self.closed = True


class Store:
    """Records what it is asked for."""

    shows_deletions = True

    def __init__(self) -> None:
        self.nodes_live = [ME, OTHER]
        self.owners: dict[LogId, int] = {}
        self.version = 0
        self.calls: list[tuple[Any, ...]] = []
        self.acquiring: list[Callable[[Any], None]] = []
        self.releasing: list[Callable[[], None]] = []
        self.locked: Any = 7
        self.last_deletion = 0
        self.current: list[Callable[[], None]] = []

    def view(self) -> Any:
        return self

    def nodes(self) -> list[NodeInfo]:
        return [NodeInfo(id, ()) for id in self.nodes_live]

    def owner(self, log: LogId) -> NodeInfo | None:
        return NodeInfo(self.owners[log], ()) if log in self.owners else None

    def watch_nodes(self, changed: Callable[[int, bool], None]) -> None:
        self.calls.append(("watch_nodes",))

    def acquire(self, id: LogId, done: Callable[[Any], None]) -> None:
        self.calls.append(("acquire", id))
        self.acquiring.append(done)

    def lock_log(self, id: LogId, topic_id: bytes, last_deletion: int) -> Any:
        self.calls.append(("lock_log", id, topic_id, last_deletion))
        return self.locked

    def release(self, id: LogId, done: Callable[[], None]) -> None:
        self.calls.append(("release", id))
        self.releasing.append(done)

    def release_unopened(self, id: LogId, topic_id: bytes) -> None:
        self.calls.append(("release_unopened", id, topic_id))

    def set_last_deletion(self, number: int) -> None:
        self.calls.append(("set_last_deletion", number))
        self.last_deletion = number

    def find_new_nodes(self) -> None: ...

    def when_current(self, done: Callable[[], None]) -> None:
        self.current.append(done)


class Calls:
    """Stands in for a part of the broker: records the calls of its methods."""

    def __init__(self, **values: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.values = values

    def __getattr__(self, name: str) -> Any:
        def record(*arguments: Any) -> Any:
            self.calls.append((name, *arguments))
            return self.values.get(name)

        return record


class Journal:
    """The registry's journal."""

    def __init__(self) -> None:
        self.writable = self.readable = True
        self.fenced = False
        self.failure: OSError | None = None
        self.settled: list[Callable[[], None]] = []

    def lead(self, owned: object) -> None:
        if self.failure is not None:
            raise self.failure

    def follow(self) -> None: ...

    def when_settled(self, done: Callable[[], None]) -> None:
        self.settled.append(done)


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, nodes: int = 3) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []
        log = {level: lambda event, **fields: self.lines.append((event, fields)) for level in ("info", "warning", "error")}
        monkeypatch.setattr(module, "log", SimpleNamespace(**log))
        monkeypatch.setattr(module, "Peers", Peers)
        self.loop = SteppedLoop()
        self.turn = Turn(cast(Any, self.loop), self.loop.clock())
        self.store = Store()
        ids = iter(range(1, 100))
        self.topics = TopicRegistry(lambda: next(ids).to_bytes(16, "big"))
        self.topics.create(CONSUMER_OFFSETS, 4, {}, 0)
        self.orders = self.topics.create("orders", 2, {}, 0)
        self.journal = Journal()
        connect = cast(Any, None)
        loop, store, journal = cast(Any, self.loop), cast(Any, self.store), cast(Any, self.journal)
        self.cluster = cluster = Cluster(ME, 99, store, loop, self.turn, self.topics, journal, connect, 1 << 20, nodes)
        self.peers = cast(Peers, cluster.peers)
        self.partitions = Calls(awaits_deletion=False)
        self.shards = Calls()
        self.unloading: list[tuple[int, Any, Any]] = []
        self.journals = [
            SimpleNamespace(partition=number, name=f"offsets-{number}", refusal=0, owns_log=True, unload=partial(self._unload, number))
            for number in range(4)
        ]
        cast(Any, self.shards).journals = self.journals
        self.deletions, self.notes, self.forwarding = Calls(), Calls(), Calls()
        cluster.partitions, cluster.shards, cluster.deletions = cast(Any, self.partitions), cast(Any, self.shards), cast(Any, self.deletions)
        cluster.notes, cluster.forwarding = cast(Any, self.notes), cast(Any, self.forwarding)
        cluster.deletion_reports = cast(Any, Calls())
        self.growth: list[Callable[[], None]] = []
        served = SimpleNamespace(watch_growth=self.growth.append, epoch=3, high_watermark=0, records=SimpleNamespace(start_offset=0))
        self.served: Any = served
        cluster._served = lambda id: served if id == REGISTRY_LOG_ID else None

    def _unload(self, number: int, done: Callable[[], None], reason: Any) -> None:
        self.unloading.append((number, done, reason))

    def start(self) -> None:
        self.cluster.start()
        self.peers.sent.clear()
        self.store.calls.clear()

    def lead(self) -> None:
        self.cluster.registry.is_controller = True
        self.cluster.registry._log = self.served
        self.store.owners[REGISTRY_LOG_ID] = ME

    def ask(self, kind: int, logs: list[LogId] | None = None, offset: int = 0, call: Any = None) -> Any:
        return self.cluster.handle(call, NodeRequest(kind, OTHER, 55, offset, 0, node_logs(logs or []), 0))

    def own(self, id: LogId) -> None:
        """Let this node own the log, of those that are placed."""
        placed = self.cluster.ownership._placed[id]
        placed.state, placed.try_at = OwnershipState.TRYING, NEVER
        self.cluster.opened(id, "")
        assert self.cluster.ownership.owns(id)

    def kinds(self) -> list[tuple[int, int]]:
        return [(node, request.kind) for node, request in self.peers.sent]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


class Asked:
    """A call whose replies are recorded."""

    def __init__(self) -> None:
        self.replies: list[Any] = []

    def answer(self, reply: Any) -> None:
        self.replies.append(reply)


# Starting and stopping.


def test_a_started_node_places_the_registry_first_and_all_logs_after_a_second(world: World) -> None:
    assert world.cluster.started_ms == 0
    world.cluster.start()
    ownership = world.cluster.ownership
    assert list(ownership.logs()) == [REGISTRY_LOG_ID]
    assert world.cluster.started_ms == world.turn.clock.now > 0
    assert (ownership.live, world.cluster.settled) == (frozenset([ME, OTHER]), False)
    assert world.kinds() == [(OTHER, NodeRequestKind.GREETING)]
    assert world.peers.sent[0][1].incarnation == 99
    assert [call[0] for call in world.deletions.calls] == ["resume"]
    world.loop.pass_ms(GATHER_SECONDS * 1_000 - 1)
    assert list(ownership.logs()) == [REGISTRY_LOG_ID]
    world.loop.pass_ms(1)
    assert set(ownership.logs()) == {REGISTRY_LOG_ID, *[LogId(CONSUMER_OFFSETS, number) for number in range(4)], ORDERS, LogId("orders", 1)}


def test_nothing_is_placed_before_the_registry_has_stored_its_first_topic(world: World) -> None:
    """Its log may fail at the first write, before there are any offsets to place."""
    offsets = world.topics.by_name.pop(CONSUMER_OFFSETS)
    world.cluster.start()
    world.loop.pass_ms(GATHER_SECONDS * 1_000 + 1_000)
    assert (list(world.cluster.ownership.logs()), world.cluster.settled) == ([REGISTRY_LOG_ID], False)
    world.topics.by_name[CONSUMER_OFFSETS] = offsets
    world.loop.pass_ms(int(SUSPENDED_SECONDS * 1_000))
    assert OFFSETS in world.cluster.ownership.logs()


def test_all_logs_are_placed_at_once_when_the_usual_nodes_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for nodes, placed in ((2, True), (3, False)):
        world = World(monkeypatch, nodes)
        world.cluster.start()
        assert (ORDERS in world.cluster.ownership.logs()) is placed
        assert (OFFSETS in world.cluster.ownership.logs()) is placed
        world.store.nodes_live.append(3)
        world.cluster.members.node_changed(3, True)
        assert ORDERS in world.cluster.ownership.logs()


def test_a_controller_owns_the_registry_from_the_start_and_completes_deletions(world: World) -> None:
    world.lead()
    world.topics.last_deletion = 4
    world.cluster.start()
    assert world.cluster.ownership.owned() == {REGISTRY_LOG_ID: world.turn.clock.now}
    assert ("set_last_deletion", 4) in world.store.calls
    assert ("finish_deletions",) in world.partitions.calls
    assert [call[0] for call in world.deletions.calls] == ["resume"]
    world.cluster.ownership.deleted([REGISTRY_LOG_ID])


def test_the_deadlines_of_ownership_are_those_of_the_turn(world: World) -> None:
    world.cluster.start()
    world.loop.pass_ms(2_000)
    assert ("lock_log", REGISTRY_LOG_ID, NO_TOPIC, 0) in world.store.calls


def test_a_running_node_follows_and_greets_every_two_seconds_until_it_stops(world: World) -> None:
    world.store.owners[REGISTRY_LOG_ID] = OTHER
    world.start()
    world.loop.pass_ms(FOLLOW_SECONDS * 1_000 - 1)
    assert (OTHER, NodeRequestKind.GREETING) not in world.kinds()
    world.loop.pass_ms(1)
    assert world.kinds().count((OTHER, NodeRequestKind.GREETING)) == 1
    world.loop.pass_ms(FOLLOW_SECONDS * 1_000)
    assert world.kinds().count((OTHER, NodeRequestKind.GREETING)) == 2
    world.cluster.stop()
    assert world.peers.closed
    sent = len(world.peers.sent)
    world.loop.pass_ms(60_000)
    assert len(world.peers.sent) == sent
    assert world.loop.delays() == []
    assert len(world.cluster._timers) <= 4


def test_a_node_that_stops_while_it_gathers_acquires_nothing(world: World) -> None:
    world.cluster.start()
    world.cluster.stop()
    world.loop.pass_ms(5_000)
    assert list(world.cluster.ownership.logs()) == [REGISTRY_LOG_ID]
    assert not [call for call in world.store.calls if call[0] == "lock_log"]


def test_a_step_that_raises_is_repeated(world: World, planted_defect: None) -> None:
    world.cluster.start()
    failures = [RuntimeError("a defect")]

    def greet(nodes: object) -> None:
        if failures:
            raise failures.pop()
        world.store.calls.append(("greeted",))

    cast(Any, world.cluster.members).greet = greet
    world.loop.pass_ms(FOLLOW_SECONDS * 2_000)
    assert ("greeted",) in world.store.calls


# Checks of lost logs.


def test_groups_whose_log_another_node_has_claimed_are_lost(world: World) -> None:
    world.start()
    world.loop.pass_ms(GATHER_SECONDS * 1_000)
    for number in range(4):
        world.own(LogId(CONSUMER_OFFSETS, number))
    world.journals[0].refusal, world.journals[0].owns_log = NOT_OURS, False
    world.journals[1].refusal = NOT_OURS  # being loaded
    world.journals[2].owns_log = False  # suspended for another reason
    world.store.calls.clear()
    world.loop.pass_ms(CHECK_SECONDS * 1_000)
    assert [call for call in world.store.calls if call[0] == "release"] == [("release", OFFSETS)]
    assert not world.cluster.ownership.owns(OFFSETS)
    assert [call for call in world.partitions.calls if call[0] == "refuse_internal"] == [("refuse_internal", OFFSETS), ("refuse_internal", LogId(NOTES_LOG, 0))]
    assert world.cluster.ownership.owns(LogId(CONSUMER_OFFSETS, 1))
    assert [fields for event, fields in world.lines if event == "partition of groups was lost"] == [{"log": "offsets-0"}]
    world.loop.pass_ms(CHECK_SECONDS * 1_000)
    assert len([call for call in world.store.calls if call[0] == "release"]) == 1


def test_a_registry_that_another_node_has_claimed_is_followed(world: World) -> None:
    world.lead()
    world.start()
    world.loop.pass_ms(CHECK_SECONDS * 1_000)
    assert world.cluster.is_controller
    world.journal.fenced = True
    world.loop.pass_ms(CHECK_SECONDS * 1_000)
    assert not world.cluster.is_controller
    assert ("release", REGISTRY_LOG_ID) in world.store.calls
    assert "refuse_internal" not in [call[0] for call in world.partitions.calls]
    assert not world.cluster.ownership.owns(REGISTRY_LOG_ID)
    assert [event for event, _ in world.lines] == ["the registry of topics was lost"]


# Requests of other nodes.


def test_each_kind_of_request_reaches_its_part(world: World) -> None:
    cluster = world.cluster
    cluster.members, cluster.registry = cast(Any, Calls(answer_greeting="hello")), cast(Any, Calls(answer="records"))
    cluster.ownership, cluster.producer_ids = cast(Any, Calls()), cast(Any, Calls())
    call = Asked()
    now = world.turn.clock.tick()
    assert world.ask(NodeRequestKind.GREETING) == "hello"
    assert cast(Any, cluster.members).calls == [("answer_greeting", OTHER, 55)]
    assert world.ask(NodeRequestKind.REQUEST_RELEASE, [ORDERS]) == NodeResponse()
    assert cast(Any, cluster.ownership).calls == [("release_requested", OTHER, [ORDERS], now)]
    assert world.ask(NodeRequestKind.OFFER, [OFFSETS]) == NodeResponse()
    assert len(cast(Any, cluster.ownership).calls) == 1  # the store may not show the release yet
    world.store.current.pop()()
    assert cast(Any, cluster.ownership).calls[1:] == [("offered", [OFFSETS], now)]
    assert world.ask(NodeRequestKind.FOLLOW) == "records"
    for kind, part in ((NodeRequestKind.FORWARD, world.forwarding), (NodeRequestKind.PRODUCER_IDS, cluster.producer_ids)):
        assert world.ask(kind, call=call) is None
        assert cast(Any, part).calls[0][:2] == ("answer", call)
    assert world.ask(NodeRequestKind.PROBE) == NodeResponse()
    for offset, drained in ((1, True), (0, False)):
        assert world.ask(NodeRequestKind.DRAIN, offset=offset) == NodeResponse()
        assert cast(Any, cluster.members).calls[-1] == ("drain", OTHER, drained)
    request = NodeRequest(NodeRequestKind.OFFSETS_REMOVED, OTHER, logs=node_logs([OFFSETS, LogId(CONSUMER_OFFSETS, 3)]), body=b"a" * 16 + b"b" * 16)
    assert cluster.handle(cast(Any, call), request) == NodeResponse()
    assert cast(Any, cluster.deletion_reports).calls == [("process", [b"a" * 16, b"b" * 16], [0, 3])]
    assert world.ask(77).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert error_response(NodeRequest(), 0, 13).error_code == 13
    assert call.replies == []


def confirming(world: World) -> tuple[Asked, list[Callable[[], None]]]:
    """A request that announces new records, of which this node has read all; and the waiters for the logs of new topics."""
    waiting: list[Callable[[], None]] = []
    cast(Any, world.cluster._topic_placement).when_opened = waiting.append
    world.cluster.follow = lambda done: done()
    call = Asked()
    assert world.ask(NodeRequestKind.REGISTRY_GREW, call=call) is None
    return call, waiting


def test_a_change_is_confirmed_when_the_new_logs_are_open(world: World) -> None:
    call, waiting = confirming(world)
    assert call.replies == []
    waiting[0]()
    assert call.replies == [NodeResponse()]
    world.loop.pass_ms(LATE_SECONDS * 2_000)
    assert len(call.replies) == 1


def test_a_change_is_confirmed_after_a_second_at_the_latest(world: World) -> None:
    call, waiting = confirming(world)
    assert LATE_SECONDS == 1.0
    world.loop.pass_ms(999)
    assert call.replies == []
    world.loop.pass_ms(1)
    assert call.replies == [NodeResponse()]
    waiting[0]()
    assert len(call.replies) == 1


def test_a_change_without_new_logs_is_confirmed_at_once(world: World) -> None:
    world.cluster.follow = lambda done: done()
    cast(Any, world.cluster._topic_placement).when_opened = lambda done: done()
    call = Asked()
    world.ask(NodeRequestKind.REGISTRY_GREW, call=call)
    assert (call.replies, world.loop.delays()) == ([NodeResponse()], [])


# Acquiring.


def test_a_topics_log_is_locked_before_it_is_opened(world: World) -> None:
    world.topics.last_deletion = 5
    world.cluster.acquire(ORDERS)
    assert world.store.calls == [("lock_log", ORDERS, world.orders.id, 5)]
    assert world.partitions.calls == [("awaits_deletion", ORDERS), ("acquire", ORDERS)]


@pytest.mark.parametrize("why", ["unknown topic", "a folder of a deleted topic"])
def test_a_log_that_cannot_be_opened_yet_is_not_locked(world: World, why: str) -> None:
    world.partitions.values["awaits_deletion"] = why != "unknown topic"
    id = LogId("unknown", 0) if why == "unknown topic" else ORDERS
    world.cluster.acquire(id)
    assert (world.store.calls, world.partitions.calls[-1]) == ([], ("acquire", id))


def test_the_log_of_groups_is_loaded_and_the_registrys_acquired(world: World) -> None:
    world.cluster.acquire(LogId(CONSUMER_OFFSETS, 2))
    assert world.store.calls == [("lock_log", LogId(CONSUMER_OFFSETS, 2), NO_TOPIC, 0)]
    assert world.shards.calls == [("load", 2)]
    world.cluster.acquire(REGISTRY_LOG_ID)
    assert world.store.calls[1:] == [("lock_log", REGISTRY_LOG_ID, NO_TOPIC, 0), ("acquire", REGISTRY_LOG_ID)]
    assert world.partitions.calls == []


@pytest.mark.parametrize("locked", [HeldBy("node 2"), Unreadable("no room", False)])
@pytest.mark.parametrize("id", [ORDERS, OFFSETS, REGISTRY_LOG_ID])
def test_a_log_that_cannot_be_locked_is_not_opened(world: World, locked: Any, id: LogId) -> None:
    world.store.locked = locked
    opened: list[Any] = []
    cast(Any, world.cluster).opened = lambda *arguments: opened.append(arguments)
    world.cluster.acquire(id)
    assert opened == [(id, locked if isinstance(locked, HeldBy) else "no room")]
    assert (world.shards.calls, len(world.store.calls)) == ([], 1)
    assert world.lines == ([] if isinstance(locked, HeldBy) else [("log cannot be locked", {"log": str(id), "reason": "no room"})])
    assert ("acquire", id) not in world.partitions.calls


def test_only_a_topics_log_may_be_given_up_while_it_is_opened(world: World) -> None:
    assert [world.cluster.may_abort_acquire(id) for id in (ORDERS, OFFSETS, REGISTRY_LOG_ID)] == [True, False, False]


@pytest.mark.parametrize(("result", "heard"), [("", "acquired"), ("a hole", "failed"), (HeldBy("node 2"), "held_elsewhere")])
def test_the_result_of_an_opening_is_told_to_ownership_and_placement(world: World, result: Any, heard: str) -> None:
    ownership, placement = Calls(), Calls()
    world.cluster.ownership, world.cluster._topic_placement = cast(Any, ownership), cast(Any, placement)
    world.cluster.load_ended(cast(Any, world.journals[2]), result)
    assert ownership.calls == [(heard, LogId(CONSUMER_OFFSETS, 2), world.turn.clock.now)]
    assert placement.calls == [("opened", LogId(CONSUMER_OFFSETS, 2))]


@pytest.mark.parametrize("result", ["held", "unreadable", "not led", "led"])
def test_the_registrys_log_makes_the_controller(world: World, result: str) -> None:
    world.start()
    opened: list[Any] = []
    followed: list[Any] = []
    announced: list[bool] = []
    cast(Any, world.cluster).opened = lambda *arguments: opened.append(arguments)
    cast(Any, world.cluster).follow = followed.append
    cast(Any, world.cluster.propagation).announce = lambda: announced.append(True)
    if result == "not led":
        world.journal.failure = OSError(5, "Input/output error")
    results = {"held": HeldBy("node 2"), "unreadable": Unreadable("a hole", True)}
    world.cluster._registry_acquired(results.get(result, cast(Any, SimpleNamespace(epoch=9))))
    assert world.cluster.is_controller is (result == "led")
    if result == "not led":
        assert opened == []
        world.store.releasing[0]()
        assert opened == [(REGISTRY_LOG_ID, "the registry cannot be read")]
    else:
        assert opened == [(REGISTRY_LOG_ID, {"held": HeldBy("node 2"), "unreadable": "a hole", "led": ""}[result])]
        assert world.store.releasing == []
    assert len(followed) == (result == "held")
    assert bool(announced) is (result == "led")
    if result == "led":
        assert ("this node is the controller", {"epoch": 9}) in world.lines
        assert ("finish_deletions",) in world.partitions.calls
        announced.clear()
        world.growth[0]()
        assert announced == [True]
    if result == "unreadable":
        assert world.lines == [("registry of topics cannot be read", {"reason": "a hole"})]


# Handing over.


def test_a_topics_log_leaves_and_is_offered_to_its_receiver(world: World) -> None:
    released: list[Any] = []
    cast(Any, world.cluster.ownership).released = lambda *arguments: released.append(arguments)
    world.cluster.hand_over(ORDERS, OTHER)
    (call,) = world.partitions.calls
    assert call[:2] == ("leave", ORDERS)
    assert (released, world.peers.sent) == ([], [])
    call[2]()
    assert released == [(ORDERS, world.turn.clock.now)]
    ((node, request),) = world.peers.sent
    assert (node, request.kind, request.node, request.logs) == (OTHER, NodeRequestKind.OFFER, ME, node_logs([ORDERS]))


@pytest.mark.parametrize("drained", [False, True])
def test_groups_leave_with_their_notes(world: World, drained: bool) -> None:
    if drained:
        world.cluster.set_drained(True)
        assert world.cluster.drained
        assert (OTHER, NodeRequestKind.DRAIN) in world.kinds()
        assert world.peers.sent[-1][1].offset == 1
        world.peers.sent.clear()
    world.cluster.hand_over(LogId(CONSUMER_OFFSETS, 2), OTHER)
    ((number, unloaded, reason),) = world.unloading
    assert (number, reason.receiver, reason.drained) == (2, OTHER, drained)
    assert world.partitions.calls == []
    unloaded()
    assert world.partitions.calls == [("refuse_internal", LogId(CONSUMER_OFFSETS, 2)), ("refuse_internal", LogId(NOTES_LOG, 2))]
    (call,) = world.notes.calls
    assert call[:2] == ("release", 2)
    assert world.store.calls == []
    call[2]()
    assert world.store.calls == [("release", LogId(CONSUMER_OFFSETS, 2))]
    world.store.releasing[0]()
    assert world.kinds() == [(OTHER, NodeRequestKind.OFFER)]


def test_a_registry_leaves_once_its_journal_is_settled_and_is_followed_then(world: World) -> None:
    world.lead()
    followed: list[Any] = []
    cast(Any, world.cluster).follow = followed.append
    world.cluster.hand_over(REGISTRY_LOG_ID, OTHER)
    assert world.cluster.is_controller
    world.journal.settled[0]()
    assert (world.cluster.is_controller, world.store.calls, followed) == (False, [("release", REGISTRY_LOG_ID)], [])
    world.store.releasing[0]()
    assert world.kinds() == [(OTHER, NodeRequestKind.OFFER)]
    assert len(followed) == 1


def test_a_release_is_requested_from_the_owner(world: World) -> None:
    world.cluster.request_release(OTHER, [ORDERS, OFFSETS])
    ((node, request),) = world.peers.sent
    assert (node, request.kind, request.logs) == (OTHER, NodeRequestKind.REQUEST_RELEASE, node_logs([ORDERS, OFFSETS]))


def test_a_deleted_topics_logs_are_forgotten_and_waited_for_no_more(world: World) -> None:
    ownership, placement = Calls(), Calls()
    world.cluster.ownership, world.cluster._topic_placement = cast(Any, ownership), cast(Any, placement)
    world.cluster.deleted([ORDERS, LogId("orders", 1)])
    assert ownership.calls == [("deleted", [ORDERS, LogId("orders", 1)])]
    assert placement.calls == [("opened", ORDERS), ("opened", LogId("orders", 1)), ("place_later",)]
    world.cluster.release_unopened(ORDERS, world.orders.id)
    assert world.store.calls == [("release_unopened", ORDERS, world.orders.id)]


# The registry.


def test_the_number_of_the_last_deletion_only_grows(world: World) -> None:
    for number, stored in ((3, 3), (3, 3), (2, 3), (4, 4)):
        world.cluster.publish_deletion(number)
        assert world.store.last_deletion == stored
    assert world.store.calls == [("set_last_deletion", 3), ("set_last_deletion", 4)]


def test_the_controller_is_the_live_owner_of_the_registry(world: World) -> None:
    cluster = world.cluster
    assert (cluster.controller, cluster.acting_controller, cluster._nodes_to_notify()) == (NO_NODE, NO_NODE, [])
    world.store.owners[REGISTRY_LOG_ID] = OTHER
    assert (cluster.controller, cluster.acting_controller) == (OTHER, OTHER)
    world.store.owners[REGISTRY_LOG_ID] = ME
    assert (cluster.controller, cluster.acting_controller) == (ME, NO_NODE)  # its log is being opened or released
    world.lead()
    assert (cluster.controller, cluster.acting_controller, cluster._nodes_to_notify()) == (ME, ME, [ME, OTHER])


def test_a_registry_that_is_read_before_the_start_announces_nothing(world: World) -> None:
    announced: list[bool] = []
    cast(Any, world.cluster.propagation).announce = lambda: announced.append(True)
    world.cluster._registry_grew()
    world.cluster._topics_changed(Changes([], [world.orders], [], [], True))
    assert (announced, world.partitions.calls) == ([], [])


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("reread", [False, True])
def test_replayed_changes_reach_every_part(world: World, leads: bool, reread: bool) -> None:
    if leads:
        world.lead()
    world.start()
    placement, reports = Calls(), Calls()
    world.cluster._topic_placement, world.cluster.deletion_reports = cast(Any, placement), cast(Any, reports)
    for part in (world.partitions, world.shards, world.deletions):
        part.calls.clear()
    removed = SimpleNamespace(name="removed")
    deleted = SimpleNamespace(name="deleted")
    world.cluster._topics_changed(Changes([cast(Any, removed)], [world.orders], [cast(Any, deleted)], [b"id"], reread))
    assert world.partitions.calls == [("deleted", removed), ("altered", world.orders)]
    assert placement.calls == [("added", world.orders), ("place_later",)]
    assert world.shards.calls == [("topic_changed", "removed"), ("topic_changed", "orders")]
    assert world.deletions.calls == [*([] if leads else [("resume", [deleted])]), ("forget_completed", [b"id"])]
    assert reports.calls == ([("repeat_all",)] if reread else [])


def test_removed_offsets_are_reported_to_the_controller(world: World) -> None:
    world.cluster._report_removed([b"a" * 16], [1])
    assert world.peers.sent == []
    world.store.owners[REGISTRY_LOG_ID] = OTHER
    world.cluster._report_removed([b"a" * 16, b"b" * 16], [1, 3])
    ((node, request),) = world.peers.sent
    assert (node, request.kind, request.body) == (OTHER, NodeRequestKind.OFFSETS_REMOVED, b"a" * 16 + b"b" * 16)
    assert request.logs == node_logs([LogId(CONSUMER_OFFSETS, 1), LogId(CONSUMER_OFFSETS, 3)])


def test_a_suspended_controller_is_not_up_to_date(world: World) -> None:
    """Another node may have replaced it."""
    world.lead()
    world.journal.writable = False
    done: list[bool] = []
    world.cluster.when_up_to_date(lambda: done.append(True))
    assert (done, world.loop.delays()) == ([], [SUSPENDED_SECONDS])
    world.loop.pass_ms(SUSPENDED_SECONDS * 1_000)
    assert (done, world.loop.delays()) == ([], [SUSPENDED_SECONDS])
    world.journal.writable = True
    world.loop.pass_ms(SUSPENDED_SECONDS * 1_000)
    assert (done, world.loop.delays()) == ([True], [])


# Opening the registry.


def opening(world: World) -> tuple[asyncio.Task[None], asyncio.Future[dict[str, object]]]:
    stop: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()
    cast(Any, world.cluster)._loop = asyncio.get_running_loop()
    return asyncio.create_task(world.cluster.open_registry(world.cluster._served, stop)), stop


async def passes() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_a_node_becomes_the_controller_or_follows_it(world: World) -> None:
    task, _ = opening(world)
    await passes()
    assert world.store.calls == [("watch_nodes",), ("acquire", REGISTRY_LOG_ID)]
    world.store.acquiring.pop()(SimpleNamespace(epoch=1))
    await task
    assert world.cluster.is_controller
    assert len(world.growth) == 1


@pytest.mark.asyncio
async def test_a_node_that_has_the_controllers_topics_is_open(world: World) -> None:
    following: list[Callable[[], None]] = []
    cast(Any, world.cluster).follow = following.append
    task, _ = opening(world)
    await passes()
    world.store.acquiring.pop()(HeldBy("node 2"))
    await passes()
    assert not task.done()
    world.cluster.registry._snapshot_id = 5
    following.pop()()
    await task
    assert not world.cluster.is_controller
    assert len(world.store.calls) == 2


@pytest.mark.asyncio
@pytest.mark.parametrize(("damaged", "code"), [(True, ExitCode.DATA), (False, ExitCode.DISK)])
async def test_an_unreadable_registry_ends_the_start(world: World, damaged: bool, code: ExitCode) -> None:
    task, _ = opening(world)
    await passes()
    world.store.acquiring.pop()(Unreadable("a hole", damaged))
    with pytest.raises(StartError, match="a hole") as refused:
        await task
    assert refused.value.code == code


@pytest.mark.asyncio
async def test_a_registry_that_cannot_be_replayed_ends_the_start(world: World) -> None:
    world.journal.failure = OSError(5, "Input/output error")
    task, _ = opening(world)
    await passes()
    world.store.acquiring.pop()(SimpleNamespace(epoch=1))
    with pytest.raises(StartError, match="the registry of topics cannot be read") as refused:
        await task
    assert refused.value.code == ExitCode.DATA


@pytest.mark.asyncio
async def test_a_stop_ends_the_wait_for_the_controller(world: World) -> None:
    world.cluster.follow = lambda done: None
    task, stop = opening(world)
    await passes()
    world.store.acquiring.pop()(HeldBy("node 2"))
    await passes()
    stop.set_result({})
    with pytest.raises(StoppedEarly):
        await task
    assert world.peers.closed


@pytest.mark.asyncio
async def test_a_node_that_gets_no_topics_from_the_controller_warns_every_five_seconds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cluster.follow = lambda done: None
    world.store.owners[REGISTRY_LOG_ID] = OTHER
    task, stop = opening(world)
    now = [100.0]
    create_future = asyncio.get_running_loop().create_future
    cast(Any, world.cluster)._loop = SimpleNamespace(time=lambda: now[0], create_future=create_future)
    waits: list[float] = []

    async def wait(futures: list[asyncio.Future[Any]], timeout: float, return_when: str) -> None:
        assert (futures[1:], return_when) == ([stop], asyncio.FIRST_COMPLETED)
        waits.append(timeout)
        now[0] += timeout
        if len(waits) == 12:
            stop.set_result({})

    monkeypatch.setattr("broker.cluster.cluster.asyncio.wait", wait)
    while not stop.done():
        await passes()
        if world.store.acquiring:
            world.store.acquiring.pop()(HeldBy("node 2"))
    with pytest.raises(StoppedEarly):
        await task
    assert waits == [1.0] * 12
    expected = [("the controller has not sent its topics yet", {"controller": OTHER, "seconds": seconds}) for seconds in (5, 10)]
    assert world.lines == expected
