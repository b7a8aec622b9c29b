"""The registry of topics on several nodes: the controller, which owns the registry's log, writes it; the other nodes follow.

A follower requests the controller's records after its last one. The controller announces new records; a follower also requests them
on a timer, in case an announcement was lost. After a change of controller, and after the controller had to replay its log, a follower
reads the whole registry again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from broker.groups.journal import UNREADABLE, Journal
from broker.logging.logs import log
from broker.topics.registry import DeletedTopic, Topic, TopicRegistry
from protocol.batch import facts_of, iterate_headers
from protocol.errors import ErrorCode
from protocol.messages.node_requests import NodeRequest, NodeResponse
from storage import OwnedLog, ServedLog

READ_BYTES_MAX: Final = 1 << 20
NO_SNAPSHOT: Final = -1  # the snapshot id of a follower that has read nothing yet


class Changes(NamedTuple):
    """The changes of topics by replayed records."""

    removed: list[Topic]
    changed: list[Topic]  # new topics, and topics with changed partitions or settings
    deleted: list[DeletedTopic]  # new deletions, which are not complete
    completed: list[bytes]  # ids of topics whose deletion is complete
    reread: bool  # the complete registry was read again, from another controller or the log


class Registry:
    """The registry on one node, leading or following."""

    def __init__(self, topics: TopicRegistry, journal: Journal, changed: Callable[[Changes], None]) -> None:
        self.topics = topics
        self.journal = journal
        self.is_controller = False
        self._changed = changed
        self._log: ServedLog | None = None  # while leading
        self._last_hold: object = None  # `topics.hold` when `_replays` last increased; a replay replaces it
        self._last_start_offset = 0  # the log's start offset at that time
        self._replays = 0
        self._snapshot_id = NO_SNAPSHOT  # while following: of the records read so far
        self._offset = 0  # offset of the next record to read
        self._awaited: NodeRequest | None = None  # the request whose reply is awaited
        self._snapshot: list[tuple[bytes, bytes | None]] | None = None  # the records read so far, while the complete registry is read

    # Leading.

    def lead(self, owned: OwnedLog, served: ServedLog) -> bool:
        """Write the registry from now on, as the controller; False if its log cannot be read."""
        before = self._state()
        try:
            self.journal.lead(owned)
        except UNREADABLE as error:
            log.error("registry of topics cannot be read", reason=str(error))
            return False
        self._log = served
        self.is_controller = True
        self._snapshot = self._awaited = None
        self._report(before, True)
        return True

    def follow(self) -> None:
        """Stop writing: another node is the controller, or will be."""
        if self.is_controller:
            self.is_controller = False
            self._log = None
            self.journal.follow()
        self._snapshot_id = NO_SNAPSHOT
        self._snapshot = self._awaited = None

    @property
    def snapshot_id(self) -> int:
        """The `epoch` of requests and replies: it changes when the controller changes or replays its log, and when the log is compacted.

        A follower whose records have another snapshot id reads the whole registry again: it may have missed a tombstone that was compacted away.
        """
        assert self._log is not None
        start_offset = self._log.records.start_offset
        if self._last_hold is not self.topics.hold or self._last_start_offset != start_offset:
            self._last_hold, self._last_start_offset = self.topics.hold, start_offset
            self._replays += 1
        return (self._log.epoch << 24) + (self._replays & 0xFFFFFF)

    @property
    def end(self) -> int:
        return self._log.high_watermark if self._log is not None else 0

    def answer(self, request: NodeRequest) -> NodeResponse:
        """The next records for a follower, up to `READ_BYTES_MAX`."""
        if self._log is None or not self.journal.readable:
            return NodeResponse(ErrorCode.NOT_CONTROLLER)
        snapshot_id, end = self.snapshot_id, self.end
        records = self._log.records
        offset = max(request.offset, records.start_offset) if request.epoch == snapshot_id else records.start_offset
        try:
            batches = records.read(offset, READ_BYTES_MAX, end) if offset < end else b""
        except UNREADABLE as error:
            log.error("registry of topics cannot be read", reason=str(error))
            return NodeResponse(ErrorCode.KAFKA_STORAGE_ERROR)
        next_offset = end
        for header in iterate_headers(batches, 0, len(batches)):
            next_offset = header.last_offset + 1
        return NodeResponse(ErrorCode.NONE, next_offset, end, snapshot_id, [], batches)

    # Following.

    def request(self, node_id: int, kind: int) -> NodeRequest:
        self._awaited = request = NodeRequest(kind, node_id, offset=self._offset, epoch=self._snapshot_id)
        return request

    def apply_records(self, request: NodeRequest, reply: NodeResponse) -> bool:
        """Apply the controller's reply; returns whether more records must be requested."""
        if self.is_controller or reply.error_code:
            return False
        if request is not self._awaited:  # this node was the controller since, and dropped the records that the reply continues
            return True
        if reply.epoch != self._snapshot_id:
            self._snapshot_id = reply.epoch
            self._snapshot = []
        self._offset = reply.offset
        facts = facts_of(reply.body or b"")
        more = reply.offset < reply.end
        if self._snapshot is not None:
            self._snapshot += facts
            if not more:
                snapshot, self._snapshot = self._snapshot, None
                self._apply(snapshot, True)
        else:
            self._apply(facts, False)
        return more

    @property
    def is_current(self) -> bool:
        """Whether the topics are known: read from the log, or from the controller."""
        return self.is_controller or (self._snapshot_id != NO_SNAPSHOT and self._snapshot is None)

    def _apply(self, facts: Iterable[tuple[bytes, bytes | None]], reread: bool) -> None:
        before = self._state()
        if reread:
            self.topics.replace(facts)
        else:
            self.topics.replay(facts)
        self._report(before, reread)

    def _state(self) -> tuple[dict[bytes, Topic], dict[bytes, DeletedTopic]]:
        return dict(self.topics.by_id), dict(self.topics.deleted)

    def _report(self, before: tuple[dict[bytes, Topic], dict[bytes, DeletedTopic]], reread: bool) -> None:
        topics, deletions = before
        by_id = self.topics.by_id
        removed = [topic for id, topic in topics.items() if id not in by_id]
        changed = [topic for id, topic in by_id.items() if topics.get(id) != topic]
        deleted = [topic for id, topic in self.topics.deleted.items() if id not in deletions]
        completed = [id for id in deletions if id not in self.topics.deleted]
        self._changed(Changes(removed, changed, deleted, completed, reread))
