"""Follow the controller: a node that does not own the registry's log reads its records from the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.cluster.messages import NodeRequestKind
from broker.cluster.peers import Peers
from broker.cluster.registry import Registry
from broker.logging.logs import log
from broker.runtime.contain import Contained, run_contained
from broker.topics.leaders import NO_NODE
from protocol.errors import ProtocolError
from protocol.messages.node_requests import NodeRequest, NodeResponse

RETRY_SECONDS: Final = 0.05
FAILED_SECONDS: Final = 1.0  # after records that could not be applied, or a defect
NEWER_VERSION: Final = "a record that this version cannot read; if a newer version wrote it, run the same version on all nodes"


class RegistryFollower:
    def __init__(self, node_id: int, loop: asyncio.AbstractEventLoop, peers: Peers, registry: Registry, controller: Callable[[], int]) -> None:
        self._node_id = node_id
        self._loop = loop
        self._peers = peers
        self._registry = registry
        self._controller = controller  # the live owner of the registry, or NO_NODE
        self._waiting: list[Callable[[], None]] = []  # called when this node has all records of the controller's registry
        self._reading = False
        self._read_once_more = False
        self._stopped = False

    def follow(self, done: Callable[[], None]) -> None:
        """Read the controller's records; `done` is called when this node has all of them."""
        if self._registry.is_controller:
            run_contained(done)
            return
        self._waiting.append(done)
        if self._reading:
            self._read_once_more = True
        else:
            self._reading = True
            self._run(self._read_next)

    def stop(self) -> None:
        self._stopped = True

    def _run(self, step: Callable[[], None]) -> None:
        """Run a step of reading. After a defect the reading goes on later: `_reading` is set, so no call of `follow` would begin another."""
        if not run_contained(step):
            self._read_later(FAILED_SECONDS)

    def _read_later(self, seconds: float) -> None:
        self._loop.call_later(seconds, Contained(self._read_next, partial(self._read_later, FAILED_SECONDS)))

    def _read_next(self) -> None:
        if self._stopped:
            return
        controller = self._controller()
        if self._registry.is_controller:
            self._all_read()
        elif controller in (NO_NODE, self._node_id):
            self._read_later(RETRY_SECONDS)
        else:
            request = self._registry.request(self._node_id, NodeRequestKind.FOLLOW)
            self._peers.send(controller, request, partial(self._reply_received, request))

    def _reply_received(self, request: NodeRequest, reply: NodeResponse | None) -> None:
        self._run(partial(self._use_reply, request, reply))

    def _use_reply(self, request: NodeRequest, reply: NodeResponse | None) -> None:
        if self._registry.is_controller:
            self._all_read()
        elif reply is None or reply.error_code:
            self._read_later(RETRY_SECONDS)
        elif self._applied(request, reply):
            self._read_once_more = False
            self._read_next()

    def _applied(self, request: NodeRequest, reply: NodeResponse) -> bool:
        """Apply the records; returns whether to read more now.

        Records that cannot be applied, for example of a newer version during an upgrade, end neither this node nor its following: it reads the
        whole registry again later, and until then serves with the topics that it knows.
        """
        try:
            if self._registry.apply_records(request, reply) or self._read_once_more:
                return True
        except Exception as error:
            reason = f"{NEWER_VERSION} ({error})" if isinstance(error, ProtocolError) else f"{type(error).__name__}: {error}"
            log.error("this node cannot follow the controller", controller=self._controller(), reason=reason, again_seconds=FAILED_SECONDS)
            self._registry.follow()
            self._read_later(FAILED_SECONDS)
            return False
        self._all_read()
        return False

    def _all_read(self) -> None:
        self._reading = self._read_once_more = False
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            run_contained(done)
