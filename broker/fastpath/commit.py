"""A commit that differs from one before in its offsets alone goes from its bytes to the log's in one step.

A consumer commits the same partitions for hours. What is the same is compared in one go; where the offsets stand is found
by writing the request twice, so nothing of its format is known here. The core has the records ready but for offsets and
time (`coordinator.repeats`), and the reply is the same each time.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from broker.groups.group_journal import GroupJournal
from broker.net.connection import KIND_BYTES, REST_AT, Connection
from broker.net.dispatch import Call, Seen
from broker.runtime.clock import Clock
from broker.runtime.contain import defect
from broker.security.authorizer import Authorizer
from broker.topics.registry import Topics
from coordinator import Commit
from coordinator.repeats import OTHERWISE, RepeatedCommit
from protocol.batch_writing import CUT_BYTES as OFFSET_BYTES
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequest

# What is kept of a commit has a bound: larger ones are read anew each time.
COMMIT_BYTES_MAX: Final = 4_096
# A client whose commits keep changing is not followed any further, until so much time has passed.
MADE_IN_VAIN_MAX: Final = 16
IN_VAIN_MS: Final = 60_000

_READ_CORRELATION_ID: Final = Struct(">i").unpack_from
_ANY_OFFSET: Final = b"\xff" * OFFSET_BYTES
# What Python takes for it, about: of the whole, and for each partition besides its key.
_COST: Final = 1_800
_COST_OF_PARTITION: Final = 200


class Written(NamedTuple):
    """A commit as its client wrote it: where its offsets are, and how to cut out everything else but the correlation id."""

    frame: bytes
    body_at: int
    places: list[int]
    others: Struct


def written(frame: bytes, request: OffsetCommitRequest, version: int) -> Written | None:
    """None where the client writes requests in another way than we do."""
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
    return Written(frame, body_at, places, _struct(f"{form}{len(frame) - behind}s"))


@lru_cache(256)
def _struct(form: str) -> Struct:
    return Struct(form)


class CommitSeen(Seen):
    """A first commit, and how many were remembered in vain until now."""

    __slots__ = ("made", "made_ms")

    def __init__(self) -> None:
        super().__init__()
        self.made = 0
        self.made_ms = 0


class CommitAgain:
    """Answers a commit that is like one before; on its way to the log it is the reply that is held.

    One is enough for that, since a connection has one request at a time.
    """

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
        "cost",
        "made",
        "made_ms",
    )

    def __init__(
        self,
        call: Call,
        found: Written,
        commit: Commit,
        reply: bytes,
        journal: GroupJournal,
        registry: Topics,
        authorizer: Authorizer,
        clock: Clock,
    ) -> None:
        """`call` was answered by `reply`: everything it asked for is stored."""
        size = len(found.frame)
        self._others = found.others.unpack
        self._fixed = self._others(found.frame)  # what it begins with is known of all that come here
        self._frame: bytes  # the last one that was like it
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
        self.made: int  # how many were remembered in vain until now
        self.made_ms = clock.now
        self.cost = _COST + 4 * size + self._commit.size + _COST_OF_PARTITION * self._commit.records

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        """No bytes: it is on its way to the log. None: it is another commit, or needs a closer look."""
        others = self._others
        try:
            if others(data) != self._fixed:
                return None
        except struct.error:
            return None  # it has another length
        journal = self._journal
        if journal.refusal or not self._authorizer.open:
            return None
        if self._registry.version is not self._mark and not self._topics_are_there():
            return None
        self._frame = data
        connection.busy = True
        try:
            clock = self._clock
            step = self._commit.again(journal.shard, data, self, clock.now, clock.wall)
        except Exception as error:
            defect("a commit failed inside the broker", error)
            journal.broken()
            if connection.busy:  # it was not answered by that
                self.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
            return b""
        if step:
            if step == OTHERWISE:
                return None  # and the usual way begins with a busy connection too
            journal.stepped()
        return b""

    def forgotten(self) -> None:
        self._commit.forgotten()

    def _topics_are_there(self) -> bool:
        """The ones that were committed first, not others of the same names."""
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
        """Rare: the request is read after all, so that its refusal is made as any other."""
        data = self._frame
        route = self._route
        request, _ = route.decode(data, self._body_at, self._version)
        (correlation_id,) = _READ_CORRELATION_ID(data, KIND_BYTES)
        Call(self.connection, route, self._version, correlation_id, request, data, 4).fail(error)
