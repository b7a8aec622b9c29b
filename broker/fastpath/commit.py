"""Fast path of OffsetCommit: a commit that differs from one before only in its offsets is stored without being decoded.

A consumer commits the same partitions for hours. One comparison covers everything else in the request. The positions of the
offsets are found by encoding the request twice, so this module knows nothing of its format. `coordinator.repeats` has the
records encoded but for offsets and time, and the reply is always the same.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from broker.fastpath.learning import Learned
from broker.groups.group_journal import GroupJournal
from broker.net.connection import KIND_BYTES, REST_AT, Connection
from broker.net.dispatch import Call
from broker.runtime.clock import Clock
from broker.runtime.contain import defect
from broker.security.authorizer import Authorizer
from broker.topics.registry import Topics
from coordinator import Commit
from coordinator.repeats import FALLBACK, RepeatedCommit
from protocol.batch_writing import CUT_BYTES as OFFSET_BYTES
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequest

# Larger commits get no fast path.
COMMIT_BYTES_MAX: Final = 4_096

_READ_CORRELATION_ID: Final = Struct(">i").unpack_from
_ANY_OFFSET: Final = b"\xff" * OFFSET_BYTES
# About what the objects take in memory: in all, and for each partition besides its key.
_COST: Final = 1_800
_COST_OF_PARTITION: Final = 200


class CommitLayout(NamedTuple):
    """The encoded commit: where its offsets are, and how to cut out everything but offsets and correlation id."""

    frame: bytes
    body_at: int
    places: list[int]
    others: Struct


def commit_layout(frame: bytes, request: OffsetCommitRequest, version: int) -> CommitLayout | None:
    """None if the client encodes the request differently from us."""
    partitions = [one for topic in request.topics for one in topic.partitions]
    body = request.encode(version)
    if not frame.endswith(body):
        return None
    size = len(body)
    offsets = [one.committed_offset for one in partitions]
    bodies = []
    for any_offset in (0, -1):
        for one in partitions:
            one.committed_offset = any_offset
        bodies.append(request.encode(version))
    for one, offset in zip(partitions, offsets, strict=True):
        one.committed_offset = offset
    body_at = len(frame) - size
    differing = (int.from_bytes(bodies[0], "big") ^ int.from_bytes(bodies[1], "big")).to_bytes(size, "big")
    form, behind = f"{REST_AT}x", REST_AT
    places = []
    at = differing.find(_ANY_OFFSET)
    while at >= 0:
        place = body_at + at
        places.append(place)
        form += f"{place - behind}s{OFFSET_BYTES}x"
        behind = place + OFFSET_BYTES
        at = differing.find(_ANY_OFFSET, at + OFFSET_BYTES)
    return CommitLayout(frame, body_at, places, _struct(f"{form}{len(frame) - behind}s"))


@lru_cache(256)
def _struct(form: str) -> Struct:
    return Struct(form)


class CommitFastPath(Learned):
    """Stores a commit like one before. It is also the held reply, since a connection works one request at a time."""

    __slots__ = (
        "_authorizer",
        "_body_at",
        "_clock",
        "_commit",
        "_fixed",
        "_frame",
        "_front",
        "_journal",
        "_mark",
        "_others",
        "_registry",
        "_reply",
        "_route",
        "_topics",
        "_version",
        "connection",
    )

    def __init__(
        self,
        call: Call,
        found: CommitLayout,
        commit: Commit,
        reply: bytes,
        journal: GroupJournal,
        registry: Topics,
        authorizer: Authorizer,
        clock: Clock,
    ) -> None:
        """`call` was answered by `reply`: all its offsets are stored."""
        size = len(found.frame)
        self._others = found.others.unpack
        self._fixed = self._others(found.frame)  # the first KIND_BYTES are the key it was found by
        self._frame: bytes  # the newest request
        self._body_at = found.body_at
        self._commit = RepeatedCommit(commit, found.places, size)
        self._front = reply[:4]  # its size
        self._reply = reply[8:]  # from behind the correlation id
        self._journal = journal
        self._registry = registry
        self._mark = registry.version
        self._topics = [(name, registry.by_name[name]) for name, _ in commit.topics]
        self._authorizer = authorizer
        self._clock = clock
        self._route = call.route
        self._version = call.version
        self.connection: Connection = call.connection
        super().__init__(_COST + 4 * size + self._commit.size + _COST_OF_PARTITION * self._commit.records)

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        others = self._others
        try:
            if others(data) != self._fixed:
                return None
        except struct.error:
            return None  # a different length
        journal = self._journal
        if journal.refusal or not self._authorizer.open:
            return None
        if self._registry.version is not self._mark and not self._topics_are_there():
            return None
        self._frame = data
        connection.busy = True
        try:  # not `journal.call`: most commits join a batch and need no `stepped`
            clock = self._clock
            step = self._commit.try_accept(journal.shard, data, self, clock.now, clock.wall)
        except Exception as error:
            defect("a commit failed inside the broker", error)
            journal.broken()
            if connection.busy:  # `broken` did not answer it
                self.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
            return b""
        if step:
            if step == FALLBACK:
                return None  # the usual way begins with a busy connection too
            journal.stepped()
        return b""

    def close(self) -> None:
        self._commit.close()

    def _topics_are_there(self) -> bool:
        """Whether the topics are the same, not deleted and created again with the same names."""
        by_name = self._registry.by_name
        for name, topic in self._topics:
            if by_name.get(name) is not topic:
                return False
        self._mark = self._registry.version
        return True

    # As a held reply.

    def release(self) -> None:
        self.connection.send(self._front + self._frame[KIND_BYTES:REST_AT] + self._reply)

    def fail(self, error: int) -> None:
        """Decode the request and refuse it as the usual way does."""
        data = self._frame
        route = self._route
        request, _ = route.decode(data, self._body_at, self._version)
        (correlation_id,) = _READ_CORRELATION_ID(data, KIND_BYTES)
        Call(self.connection, route, self._version, correlation_id, request, data, 4).fail(error)
