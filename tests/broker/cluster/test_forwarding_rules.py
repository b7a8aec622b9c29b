"""Which requests are forwarded, to which node, and until when; and how a node answers a request that another one forwarded."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from broker.cluster import forwarding as module
from broker.cluster.forwarding import FORWARD_SECONDS_MAX, RETRY_SECONDS, Forwarding
from broker.cluster.messages import NodeRequestKind
from broker.topics.leaders import NO_NODE
from protocol.errors import ErrorCode
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.node_requests import NodeRequest, NodeResponse
from protocol.messages.produce import ProduceRequest
from tests.support.stepped_loop import SteppedLoop

pytestmark = pytest.mark.plain  # replaces connections

ME, CONTROLLER, COORDINATOR = 1, 2, 3
TOPIC, BROKER, GROUP = 2, 4, 32
CREATE, DESCRIBE, ALTER, INCREMENTAL = (
    CreateTopicsRequest.API_KEY,
    DescribeConfigsRequest.API_KEY,
    AlterConfigsRequest.API_KEY,
    IncrementalAlterConfigsRequest.API_KEY,
)


class ClientConnection:
    def __init__(self, sent: list[bytes], closes: list[str]) -> None:
        self.closed = False
        self.listener = SimpleNamespace(name="PLAINTEXT")
        self.peer = "10.0.0.9"
        self.send = sent.append
        self.close = closes.append
        self.on_lost: Any = None


class Call:
    """A client's request."""

    def __init__(self) -> None:
        self.version = 7
        self.request_frame = b"the request"
        self.answers: list[Any] = []
        self.sent: list[bytes] = []
        self.closes: list[str] = []
        self.failures: list[int] = []
        self.connection = ClientConnection(self.sent, self.closes)

    def answer(self, reply: Any) -> None:
        self.answers.append(reply)

    def fail(self, error: int) -> None:
        self.failures.append(error)


class World:
    def __init__(self) -> None:
        self.loop = SteppedLoop()
        self.controller = CONTROLLER
        self.forwarded: list[tuple[int, NodeRequest, Callable[[NodeResponse | None], None]]] = []
        self.followers: list[Callable[[], None]] = []
        self.handled: list[Any] = []
        self.local_reply: Any = "answered here"
        self.creates_topics = True
        self.deletions_known = True
        self.creations: list[Any] = []  # that wait for nodes to read deletions
        peers = SimpleNamespace(forward=lambda node, request, done: self.forwarded.append((node, request, done)))
        self.forwarding = Forwarding(
            ME,
            cast(Any, self.loop),
            cast(Any, peers),
            cast(Any, "context"),
            cast(Any, lambda name: ("listener", name)),
            lambda: self.controller,
            lambda group: COORDINATOR if group == "g" else ME,
            lambda: [ME, CONTROLLER],
            self.followers.append,
            lambda request, version: self.creates_topics and version == 7,
            self.await_deletions,
        )
        keys = [CREATE, DeleteTopicsRequest.API_KEY, CreatePartitionsRequest.API_KEY, DESCRIBE, ALTER, INCREMENTAL, MetadataRequest.API_KEY, ProduceRequest.API_KEY]
        self.routes = {key: SimpleNamespace(key=key, handle=self._handle) for key in keys}
        self.forwarding.wrap(cast(Any, list(self.routes.values())))

    def await_deletions(self, creation: Any) -> bool:
        if not self.deletions_known:
            self.creations.append(creation)
        return not self.deletions_known

    def _handle(self, call: Any, request: Any) -> Any:
        self.handled.append(request)
        return self.local_reply

    def ask(self, key: int, request: Any = "request", call: Call | None = None) -> tuple[Call, Any]:
        call = call or Call()
        return call, self.routes[key].handle(call, request)


def configs(*resources: tuple[int, str], names: str = "node.drained") -> Any:
    return SimpleNamespace(
        resources=[SimpleNamespace(resource_type=kind, resource_name=name, configs=[SimpleNamespace(name=names)]) for kind, name in resources]
    )


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("key", [CREATE, DeleteTopicsRequest.API_KEY, CreatePartitionsRequest.API_KEY, MetadataRequest.API_KEY])
def test_a_change_of_topics_is_forwarded_to_the_controller(world: World, key: int) -> None:
    call, reply = world.ask(key)
    ((node, message, _),) = world.forwarded
    assert (reply, world.handled, node) == (None, [], CONTROLLER)
    assert (message.kind, message.node, message.target, message.body) == (NodeRequestKind.FORWARD, ME, CONTROLLER, b"the request")
    assert (message.listener, message.client_host) == ("PLAINTEXT", "10.0.0.9")
    assert (call.answers, call.closes) == ([], [])
    world.controller = ME
    assert world.ask(key)[1] == "answered here"
    assert world.handled == ["request"]


@pytest.mark.parametrize("key", [CREATE, MetadataRequest.API_KEY])
def test_topics_are_created_when_all_nodes_know_the_deletions(world: World, key: int) -> None:
    world.controller = ME
    world.deletions_known = False
    call, reply = world.ask(key)
    assert (reply, world.handled, call.answers) == (None, [], [])
    world.creations.pop().release()  # and another topic was deleted meanwhile
    assert (world.handled, call.answers) == ([], [])
    world.deletions_known = True
    world.creations.pop().release()
    assert (world.handled, call.answers) == (["request"], ["answered here"])


def test_a_creation_that_waits_ends_with_its_connection_or_the_registry(world: World) -> None:
    world.controller = ME
    world.deletions_known = False
    gone, _ = world.ask(CREATE)
    failed, _ = world.ask(CREATE)
    world.deletions_known = True
    gone.connection.closed = True
    for creation, end in zip(world.creations, ["release", "fail"], strict=True):
        assert creation.connection in (gone.connection, failed.connection)
        creation.release() if end == "release" else creation.fail(56)
    assert (world.handled, gone.answers, gone.failures, failed.failures) == ([], [], [], [56])


def test_a_creation_whose_reply_comes_later_is_not_answered_now(world: World) -> None:
    world.controller = ME
    world.deletions_known = False
    call, _ = world.ask(CREATE)
    world.deletions_known, world.local_reply = True, None
    world.creations.pop().release()
    assert (world.handled, call.answers) == (["request"], [])


def test_requests_that_create_nothing_do_not_wait_for_deletions(world: World) -> None:
    world.controller = ME
    world.deletions_known = world.creates_topics = False
    for key in (MetadataRequest.API_KEY, DeleteTopicsRequest.API_KEY, CreatePartitionsRequest.API_KEY):
        assert world.ask(key)[1] == "answered here"


def test_other_requests_are_answered_by_this_node(world: World) -> None:
    world.creates_topics = False
    for key in (MetadataRequest.API_KEY, ProduceRequest.API_KEY):
        assert world.ask(key)[1] == "answered here"
    assert world.forwarded == []


@pytest.mark.parametrize(
    ("key", "resources", "names", "node"),
    [
        (ALTER, [(TOPIC, "orders")], "", CONTROLLER),
        (INCREMENTAL, [(TOPIC, "orders")], "", CONTROLLER),
        (DESCRIBE, [(TOPIC, "orders")], "", None),
        (ALTER, [(GROUP, "g")], "", COORDINATOR),
        (DESCRIBE, [(GROUP, "g")], "", COORDINATOR),
        (DESCRIBE, [(GROUP, "own")], "", None),
        (DESCRIBE, [(TOPIC, "orders"), (GROUP, "g")], "", COORDINATOR),
        (INCREMENTAL, [(BROKER, "2")], "node.drained", CONTROLLER),
        (INCREMENTAL, [(BROKER, "1")], "node.drained", None),
        (INCREMENTAL, [(BROKER, "9")], "node.drained", None),
        (INCREMENTAL, [(BROKER, "2")], "num.partitions", None),
        (ALTER, [(BROKER, "2")], "node.drained", None),
        (DESCRIBE, [(BROKER, "2")], "node.drained", None),
        (DESCRIBE, [], "", None),
    ],
)
def test_settings_are_read_and_changed_by_the_node_that_has_them(
    world: World, key: int, resources: list[tuple[int, str]], names: str, node: int | None
) -> None:
    _, reply = world.ask(key, configs(*resources, names=names))
    assert [forwarded[0] for forwarded in world.forwarded] == ([] if node is None else [node])
    assert reply == ("answered here" if node is None else None)


def test_the_reply_is_sent_once_this_node_has_read_the_change(world: World) -> None:
    """The client may ask this node for its new topic next."""
    call, _ = world.ask(CREATE)
    world.forwarded[0][2](NodeResponse(body=b"created"))
    assert call.sent == []
    world.followers[0]()
    assert (call.sent, call.answers, world.loop.delays()) == ([b"created"], [], [])


@pytest.mark.parametrize("reply", [None, NodeResponse(41), NodeResponse(), NodeResponse(41, body=b"no")])
def test_a_lost_or_refused_request_is_sent_again_soon(world: World, reply: NodeResponse | None) -> None:
    call, _ = world.ask(CREATE)
    world.forwarded[0][2](reply)
    assert (len(world.forwarded), world.loop.delays(), world.followers) == (1, [RETRY_SECONDS], [])
    world.loop.pass_ms(RETRY_SECONDS * 1_000)
    assert (len(world.forwarded), call.sent) == (2, [])


def test_a_request_waits_for_a_controller_for_ten_seconds(world: World) -> None:
    world.controller = NO_NODE
    call, _ = world.ask(CREATE)
    world.loop.pass_ms((FORWARD_SECONDS_MAX - RETRY_SECONDS / 2) * 1_000)
    assert (call.failures, world.forwarded) == ([], [])
    world.loop.pass_ms(RETRY_SECONDS * 1_000)
    assert (call.failures, world.loop.delays()) == ([ErrorCode.REQUEST_TIMED_OUT], [])
    late, _ = world.ask(CREATE)
    world.controller = CONTROLLER
    world.loop.pass_ms(RETRY_SECONDS * 1_000)
    assert (len(world.forwarded), late.failures) == (1, [])


@pytest.mark.parametrize("reply", ["answered here", None])
def test_a_node_that_becomes_the_controller_answers_by_itself(world: World, reply: Any) -> None:
    world.controller = NO_NODE
    call, _ = world.ask(CREATE)
    world.controller, world.local_reply = ME, reply
    world.loop.pass_ms(RETRY_SECONDS * 1_000)
    assert (world.handled, call.answers) == (["request"], [] if reply is None else [reply])
    assert world.loop.delays() == []


def test_the_request_of_a_client_that_is_gone_is_dropped(world: World) -> None:
    world.controller = NO_NODE
    call, _ = world.ask(CREATE)
    call.connection.closed = True
    world.controller = CONTROLLER
    world.loop.pass_ms(RETRY_SECONDS * 1_000)
    assert (world.forwarded, world.loop.delays()) == ([], [])
    world.forwarding._retry(cast(Any, call), "request", lambda: CONTROLLER, cast(Any, None), 0.0)
    assert call.failures == []


def test_a_client_is_disconnected_if_its_request_cannot_be_sent(world: World, planted_defect: None) -> None:
    world.controller = NO_NODE
    call, _ = world.ask(CREATE)

    def fail(*arguments: object) -> None:
        raise ValueError("a defect")

    cast(Any, world.forwarding)._outgoing = SimpleNamespace(send=fail)
    world.controller = CONTROLLER
    world.loop.pass_ms(RETRY_SECONDS * 1_000)
    assert call.closes == [module.NOT_FORWARDED]


def test_a_forwarded_request_is_not_forwarded_again(world: World) -> None:
    call = Call()
    world.forwarding._local.add(cast(Any, call.connection))
    assert world.ask(CREATE, call=call)[1] is None
    assert (call.closes, world.forwarded) == ([""], [])


# Requests that other nodes forward.


class Connection:
    """The connection of a forwarded request."""

    made: ClassVar[list[Connection]] = []

    def __init__(self, context: Any, listener: Any, host: str) -> None:
        self.arguments = context, listener, host
        self.transport: Any = None
        self.received: list[bytes] = []
        self.busy, self.has_unsent_reply = True, False
        self.lost: list[object] = []
        Connection.made.append(self)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received.append(data)
        if data.endswith(b"ignored"):
            self.busy = False
        elif data.endswith(b"unsent"):
            self.busy, self.has_unsent_reply = False, True

    def connection_lost(self, error: object) -> None:
        self.lost.append(error)


def frame(key: int, text: bytes) -> bytes:
    body = key.to_bytes(2, "big") + b"\0\x07\0\0\0\x01\xff\xff" + text
    return len(body).to_bytes(4, "big") + body


def incoming(world: World, monkeypatch: pytest.MonkeyPatch, text: bytes = b"text", data: bytes | None = None) -> tuple[Call, Connection | None]:
    monkeypatch.setattr(module, "Connection", Connection)
    Connection.made = []
    call = Call()
    request = NodeRequest(NodeRequestKind.FORWARD, 2, listener="SSL", client_host="10.0.0.9", body=frame(CREATE, text) if data is None else data)
    world.forwarding.answer(cast(Any, call), request)
    return call, Connection.made[0] if Connection.made else None


def test_a_forwarded_request_is_answered_on_a_connection_of_its_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    call, connection = incoming(world, monkeypatch)
    assert connection is not None
    assert (connection.arguments, connection.received) == (("context", ("listener", "SSL"), "10.0.0.9"), [frame(CREATE, b"text")])
    assert world.forwarding._local == {cast(Any, connection)}
    assert (call.answers, call.connection.on_lost is not None) == ([], True)
    connection.transport.write(b"the reply")
    assert call.answers == [NodeResponse(ErrorCode.NONE, body=b"the reply")]
    assert (world.forwarding._local, call.connection.on_lost, connection.lost) == (set(), None, [])
    world.loop.run()
    assert connection.lost == [None]
    connection.transport.write(b"another")
    connection.transport.close()
    world.loop.run()
    assert (len(call.answers), connection.lost) == (1, [None])


@pytest.mark.parametrize("way", ["close", "abort", "ignored"])
def test_a_forwarded_request_without_a_reply_fails(world: World, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    call, connection = incoming(world, monkeypatch, way.encode())
    assert connection is not None
    if way != "ignored":
        assert call.answers == []
        getattr(connection.transport, way)()
    assert call.answers == [NodeResponse(ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert world.forwarding._local == set()


def test_a_reply_that_is_not_sent_yet_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    call, _ = incoming(world, monkeypatch, b"unsent")
    assert call.answers == []


def test_a_forwarded_request_ends_with_its_link(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    call, connection = incoming(world, monkeypatch)
    assert connection is not None
    call.connection.on_lost()
    world.loop.run()
    assert (call.answers, connection.lost, world.forwarding._local) == ([], [None], set())


@pytest.mark.parametrize("data", [b"", frame(CREATE, b"x")[:-1], frame(CREATE, b"x") + b"y", frame(ProduceRequest.API_KEY, b"text"), b"\0\0\0\x04\0\x13\0\0"])
def test_only_whole_requests_of_forwarded_apis_are_answered(world: World, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    call, connection = incoming(world, monkeypatch, data=data)
    assert (call.answers, connection) == ([NodeResponse(ErrorCode.INVALID_REQUEST)], None)
