"""The kinds of requests between nodes, and their frames."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from protocol.apis import Api
from protocol.errors import ProtocolError
from protocol.headers import encode_request
from protocol.messages.node_requests import NodeLog, NodeRequest, NodeResponse
from protocol.wire import UNREADABLE, skip_tags
from storage import LogId

NODE_API: Final = 32_000
VERSION: Final = 0

# Only the channel between nodes serves it (channel.py).
NODE_REQUESTS: Final = Api(NODE_API, "NodeRequest", NodeRequest, NodeResponse, (0, -1), NodeRequest.VERSIONS, NodeRequest.FLEXIBLE_FROM)


class NodeRequestKind(IntEnum):
    GREETING = 0  # this node is alive; the reply has the draining nodes
    REQUEST_RELEASE = 1  # hand `logs` over to this node
    OFFER = 2  # `logs` were released for the receiver
    REGISTRY_GREW = 4  # the controller's registry reaches up to `offset` in `epoch`
    FOLLOW = 5  # read the registry from `offset` on; the reply has the records, and their end offset
    FORWARD = 6  # answer `body`, a client's request, here; the reply has the client's reply
    DRAIN = 7  # this node hands over its logs (`offset` 1), or acquires its share again (0)
    OFFSETS_REMOVED = 8  # partitions of groups (`logs`) have removed the offsets of the deleted topics in `body` (ids of 16 bytes)
    PROBE = 10  # the supervisor asks whether the node answers
    PRODUCER_IDS = 9  # allocate a block of producer ids; the reply has its first id (`offset`) and its end


def node_logs(logs: list[LogId]) -> list[NodeLog]:
    return [NodeLog(log.name, log.partition) for log in logs]


def log_ids(logs: list[NodeLog]) -> list[LogId]:
    return [LogId(log.name, log.partition) for log in logs]


def encode(request: NodeRequest, correlation_id: int) -> bytes:
    return encode_request(NODE_API, VERSION, True, correlation_id, f"node-{request.node}", request.encode(VERSION))


def decode_reply(frame: bytes) -> tuple[int, NodeResponse]:
    """The correlation id and the reply, of a frame with its size. Raises ProtocolError."""
    try:
        at = skip_tags(frame, 8)
    except UNREADABLE:
        raise ProtocolError("a reply header is cut short") from None
    return int.from_bytes(frame[4:8], "big"), NodeResponse.decode(frame, at, VERSION)[0]
