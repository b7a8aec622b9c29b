"""Forward requests that only one node can answer, so that a tool may connect to any node.

Only the controller changes topics, and only the coordinator of a group reads and changes its policies. The node that receives such a
request forwards it unchanged, and sends the reply to the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from broker.cluster.messages import NodeRequestKind
from broker.cluster.outgoing import Outgoing
from broker.cluster.peers import Peers
from broker.net.connection import WHOLE_REPLIES, Connection, ConnectionContext
from broker.net.dispatch import HEAD_BYTES, Call, Handler, Response, Route
from broker.runtime.contain import Contained, run_contained
from broker.runtime.node import Address, names_drained
from broker.topics.leaders import NO_NODE
from coordinator import Held
from protocol.errors import ErrorCode
from protocol.framing import frame_size
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.node_requests import NodeRequest, NodeResponse

RETRY_SECONDS: Final = 0.1  # while there is no controller, or the controller changes
NOT_FORWARDED: Final = "its request could not be forwarded"
FORWARD_SECONDS_MAX: Final = 10.0

DESCRIBE_CONFIGS: Final = DescribeConfigsRequest.API_KEY
INCREMENTAL_ALTER_CONFIGS: Final = IncrementalAlterConfigsRequest.API_KEY
CONTROLLER_APIS: Final = (CreateTopicsRequest.API_KEY, DeleteTopicsRequest.API_KEY, CreatePartitionsRequest.API_KEY)
CONFIG_APIS: Final = (AlterConfigsRequest.API_KEY, INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CONFIGS)
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
GROUP_RESOURCE: Final = 32


class ReplyTransport:
    """Receives the reply to one forwarded request in place of a client's socket."""

    def __init__(self, replied: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._replied = replied
        self._ended = ended

    def write(self, data: bytes, /) -> None:
        self._replied(bytes(data))

    def writelines(self, parts: list[bytes], /) -> None:
        self._replied(b"".join(parts))

    def close(self) -> None:
        self._ended()

    def abort(self) -> None:
        self._ended()

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, /) -> Any:
        return name == WHOLE_REPLIES or None

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class _Creation:
    """A request that creates topics, while it waits."""

    def __init__(self, call: Call, request: Any, handle: Handler) -> None:
        self._call = call
        self._request = request
        self._handle = handle

    @property
    def connection(self) -> Connection:
        return self._call.connection

    def release(self) -> None:
        if not self._call.connection.closed:
            reply = self._handle(self._call, self._request)
            if reply is not None:
                self._call.answer(reply)

    def fail(self, error: int) -> None:
        self._call.fail(error)


class Forwarding:
    """Forwards requests of clients to the node that can answer them, and answers requests that other nodes forward."""

    def __init__(
        self,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        peers: Peers,
        context: ConnectionContext,
        listener: Callable[[str], Address],
        controller: Callable[[], int],
        coordinator: Callable[[str], int],
        live_nodes: Callable[[], Collection[int]],
        follow: Callable[[Callable[[], None]], None],
        may_create_topics: Callable[[Any, int], bool],
        await_deletions: Callable[[Held], bool],
    ) -> None:
        """`coordinator` returns the coordinator of a group. `follow` calls back when this node has the controller's topics.

        `may_create_topics` returns whether a Metadata request (and its version) names missing topics that would be created. `await_deletions`
        releases its argument when topics may be created; it returns False if that is now.
        """
        self._node_id = node_id
        self._loop = loop
        self._context = context
        self._listener = listener
        self._controller = controller
        self._coordinator = coordinator
        self._live_nodes = live_nodes
        self._follow = follow
        self._may_create_topics = may_create_topics
        self._await_deletions = await_deletions
        self._local: set[Connection] = set()  # connections of forwarded requests, which are not forwarded again
        self._forwarded_apis: set[int] = set()
        self._outgoing = Outgoing(loop, peers.forward)

    # Requests of clients.

    def wrap(self, routes: list[Route]) -> None:
        """Wrap the handlers of those APIs whose requests only one node can answer."""
        for route in routes:
            if route.key == CreateTopicsRequest.API_KEY:
                self._delay_creations(route, lambda request, version: True)
            elif route.key == MetadataRequest.API_KEY:
                self._delay_creations(route, self._may_create_topics)
            if route.key in CONTROLLER_APIS:
                self._wrap(route, lambda request, version: self._controller)
            elif route.key in CONFIG_APIS:
                self._wrap(route, self._node_for_configs(route.key))
            elif route.key == MetadataRequest.API_KEY:
                self._wrap(route, lambda request, version: self._controller if self._may_create_topics(request, version) else None)

    def _delay_creations(self, route: Route, creates: Callable[[Any, int], bool]) -> None:
        """On the controller: create topics only when each live node knows which topics were deleted."""
        handle: Handler = route.handle

        def wait_or_handle(call: Call, request: Any) -> Response | None:
            waits = creates(request, call.version) and self._await_deletions(_Creation(call, request, wait_or_handle))
            return None if waits else handle(call, request)

        route.handle = wait_or_handle

    def _node_for_configs(self, key: int) -> Callable[[Any, int], Callable[[], int] | None]:
        def node(request: Any, version: int) -> Callable[[], int] | None:
            for resource in request.resources:
                if resource.resource_type == TOPIC_RESOURCE and key != DESCRIBE_CONFIGS:
                    return self._controller
                if resource.resource_type == BROKER_RESOURCE and key == INCREMENTAL_ALTER_CONFIGS and names_drained(resource.configs):
                    return partial(self._drained_node, resource.resource_name)
                if resource.resource_type == GROUP_RESOURCE:
                    group_id = resource.resource_name
                    return lambda: self._coordinator(group_id)
            return None

        return node

    def _drained_node(self, name: str) -> int:
        """The live node of this name; this node, which refuses the request, if there is none."""
        return next((id for id in self._live_nodes() if str(id) == name), self._node_id)

    def _wrap(self, route: Route, node_for: Callable[[Any, int], Callable[[], int] | None]) -> None:
        handle: Handler = route.handle
        self._forwarded_apis.add(route.key)

        def forward_or_handle(call: Call, request: Any) -> Response | None:
            node = node_for(request, call.version)
            if node is None or node() == self._node_id:
                return handle(call, request)
            if call.connection in self._local:
                call.connection.close("")  # the node that forwarded the request tries again
            else:
                self._forward(call, request, node, handle, self._loop.time() + FORWARD_SECONDS_MAX)
            return None

        route.handle = forward_or_handle

    def _forward(self, call: Call, request: Any, node: Callable[[], int], handle: Handler, deadline: float) -> None:
        """Send the request to the node; until the deadline, try again while there is no such node, it refuses, or its reply is lost."""
        if call.connection.closed:
            return
        id = node()
        if id == self._node_id:
            reply = handle(call, request)
            if reply is not None:
                call.answer(reply)
            return

        def answered(reply: NodeResponse | None) -> None:
            if reply is not None and not reply.error_code and reply.body:
                body = reply.body
                self._follow(lambda: call.connection.send(body))
            else:
                self._retry(call, request, node, handle, deadline)

        if id == NO_NODE:
            self._retry(call, request, node, handle, deadline)
        else:
            connection = call.connection
            message = NodeRequest(
                NodeRequestKind.FORWARD, self._node_id, target=id, listener=connection.listener.name, client_host=connection.peer, body=call.request_frame
            )
            self._outgoing.send(id, message, answered)

    def _retry(self, call: Call, request: Any, node: Callable[[], int], handle: Handler, deadline: float) -> None:
        if self._loop.time() < deadline:
            arguments = call, request, node, handle, deadline
            self._loop.call_later(RETRY_SECONDS, Contained(self._forward, partial(call.connection.close, NOT_FORWARDED)), *arguments)
        elif not call.connection.closed:
            call.fail(ErrorCode.REQUEST_TIMED_OUT)

    # Requests that other nodes forward.

    def answer(self, call: Call, request: NodeRequest) -> None:
        """Answer a client's request that another node forwarded."""
        frame = request.body or b""
        if len(frame) < HEAD_BYTES or frame_size(frame, 0)[0] != len(frame) - 4 or int.from_bytes(frame[4:6], "big") not in self._forwarded_apis:
            call.answer(NodeResponse(ErrorCode.INVALID_REQUEST))
            return
        connection = Connection(self._context, self._listener(request.listener), request.client_host)
        Incoming(self._loop, call, connection, self._local).begin(frame)


class Incoming:
    """A request that another node forwarded, on a connection of its own, which ends with the reply or with the link that carries the request."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Call, connection: Connection, all: set[Connection]) -> None:
        self._loop = loop
        self._call = call
        self._connection = connection
        self._all = all
        self._ended = False

    def begin(self, frame: bytes) -> None:
        connection = self._connection
        connection.connection_made(ReplyTransport(self._replied, self._failed))
        self._all.add(connection)
        self._call.connection.on_lost = self._end
        run_contained(connection.data_received, frame)
        if not (connection.busy or connection.has_unsent_reply):  # answered, or it never will be
            self._failed()

    def _replied(self, reply: bytes) -> None:
        self._answer(NodeResponse(ErrorCode.NONE, body=reply))

    def _failed(self) -> None:
        self._answer(NodeResponse(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _answer(self, response: NodeResponse) -> None:
        if not self._ended:
            self._end()
            self._call.answer(response)

    def _end(self) -> None:
        """End the connection once its present work is done, as the loop does when a client is gone."""
        if not self._ended:
            self._ended = True
            self._call.connection.on_lost = None
            self._all.discard(self._connection)
            self._loop.call_soon(Contained(self._connection.connection_lost), None)
