"""Notices clients that look a group's coordinator up and then ask nothing: so librdkafka waits, without an error, with group.protocol=consumer,
since the brokers do not serve ConsumerGroupHeartbeat. Other clients of that protocol report it themselves.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker.logging.logs import log
from broker.net.connection import Connection
from broker.net.dispatch import Call, Dispatch, client_id_of
from broker.runtime.contain import Contained
from protocol.apis import API_VERSIONS

LIBRDKAFKA_VERSION: Final = 2  # of FindCoordinator: that of every librdkafka
SILENT_SECONDS: Final = 10.0
LINE_SECONDS: Final = 3600.0  # between two lines about a client id
METADATA: Final = 3
FIND_COORDINATOR: Final = 10
WITHOUT_PURPOSE: Final = frozenset((METADATA, FIND_COORDINATOR, API_VERSIONS))  # what a waiting client sends too
CLIENTS_MAX: Final = 1_000

Client = tuple[str, str]  # its address and client id


class SilentClients:
    """Only the first lookup of a connection counts: a client that works may look its coordinator up again, and its other requests may be
    answered by fast paths.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, dispatch: Dispatch) -> None:
        self._loop = loop
        self._dispatch = dispatch
        self._connections: dict[int, Connection] = {}  # by their id(): those that have looked a coordinator up
        self._waiting: dict[Client, tuple[str, Connection]] = {}  # the group, and the connection that looked it up last
        self._silent_until: dict[str, float] = {}  # when the next line about a client id may be written

    def looked_up(self, call: Call, group_id: str) -> None:
        connection = call.connection
        if call.version != LIBRDKAFKA_VERSION or id(connection) in self._connections:
            return
        if len(self._connections) >= CLIENTS_MAX:
            self._connections = {key: known for key, known in self._connections.items() if not known.closed}
        client = (connection.peer, call.client_id)
        if len(self._connections) >= CLIENTS_MAX or len(self._waiting) >= CLIENTS_MAX or self._loop.time() < self._silent_until.get(client[1], 0.0):
            return
        self._connections[id(connection)] = connection
        if client not in self._waiting:
            self._loop.call_later(SILENT_SECONDS, Contained(self._due), client)
        self._waiting[client] = (group_id, connection)
        self._dispatch.overhear = self._heard

    def _heard(self, key: int, connection: Connection, frame: bytes) -> None:
        """Called for every request that no fast path answers, while clients are waiting."""
        if key not in WITHOUT_PURPOSE:
            self._forget((connection.peer, client_id_of(frame)))

    def _forget(self, client: Client) -> tuple[str, Connection] | None:
        waiting = self._waiting.pop(client, None)
        if not self._waiting:
            self._dispatch.overhear = None
        return waiting

    def _due(self, client: Client) -> None:
        waiting = self._forget(client)
        if waiting is None or waiting[1].closed:
            return
        host, client_id = client
        if len(self._silent_until) >= CLIENTS_MAX:
            self._silent_until.clear()
        self._silent_until[client_id] = self._loop.time() + LINE_SECONDS
        log.warning("client does not join its group: group.protocol=consumer is not served", client_id=client_id, host=host, group=waiting[0], remedy="group.protocol=classic")
