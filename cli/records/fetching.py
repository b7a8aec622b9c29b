"""Fetches records from the leaders of all partitions concurrently: one long-polling Fetch for each leader, on its own connection."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.client import Exit, Failure, TopicPartition, check, failure
from cli.client.connection import Connection, NoReply
from cli.records.batches import Chunk, chunk_of
from cli.records.outages import Outages
from cli.records.positions import offsets_at
from cli.topics.log_offsets import EARLIEST, LATEST, RETRIABLE
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

if TYPE_CHECKING:
    from cli.client import Cluster, TopicInfo

WAIT_MS: Final = 500  # how long a leader holds a fetch without new records
BYTES_MAX: Final = 16 << 20
PARTITION_BYTES_MAX: Final = 1 << 20
BY_ID_VERSION: Final = 13
PAUSE_SECONDS: Final = 0.1
RECONNECT_SECONDS: Final = 0.5  # how long a connection to a broker that did not answer may take, while others are read
RECONNECT_PAUSES: Final = 15  # between two of these
SLOW_SECONDS: Final = 1.0  # a leader that answers so much later than it should may be frozen
DELETED_AFTER_SECONDS: Final = 2.0  # a topic that is unknown for this long is deleted; before, it may be new and not known to every broker
NO_TOPIC: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR}
)


class MissingTopics:
    """Decides when a topic that brokers do not know is deleted."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def clear(self) -> None:
        self._since.clear()

    def mark(self, name: str, *, missing: bool) -> None:
        """Remember whether brokers know the topic now. Raises Failure if they have not known it for DELETED_AFTER_SECONDS."""
        now = time.monotonic()
        if not missing:
            self._since.pop(name, None)
        elif now - self._since.setdefault(name, now) >= DELETED_AFTER_SECONDS:
            raise Failure(Exit.MISSING, f"topic {name} was deleted")

    def all_exist(self, topics: Mapping[str, TopicInfo]) -> bool:
        """Whether brokers know all of the topics now. Raises Failure for a deleted one."""
        missing = [name for name, topic in topics.items() if topic.error in NO_TOPIC]
        for name in topics:
            self.mark(name, missing=name in missing)
        return not missing


class PendingFetch(NamedTuple):
    request: FetchRequest
    version: int
    correlation_id: int
    sent: float
    deadline: float
    positions: dict[TopicPartition, int]
    names: dict[bytes, str]  # of topics by id


class Fetcher:
    """Fetches records: `poll` returns them and advances `positions`, the next offsets."""

    def __init__(self, cluster: Cluster, warn: Callable[[str], None], *, committed: bool = False, endless: bool = False, gives_up: bool = False) -> None:
        """`endless`, `gives_up`: read on while at least one partition can be read, and report others, or leave them to the caller (`outages`). Else a
        partition that cannot be read for the time limit of calls ends it.
        """
        self.positions: dict[TopicPartition, int] = {}
        self._cluster = cluster
        self._warn = warn
        self._committed = committed
        self._connections: dict[int, Connection] = {}
        self._pending: dict[int, PendingFetch] = {}
        self._ids: dict[str, bytes | None] = {}
        self._stale = False
        self._refresh_at = 0.0
        self._outages = Outages(warn, endless=endless, gives_up=gives_up)
        self._reconnect_at: dict[int, float] = {}  # to brokers that did not answer
        self._missing = MissingTopics()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch from these positions; replies for other positions are ignored."""
        self.positions = dict(positions)
        self._missing.clear()
        self._outages.keep(self.positions)
        topics = self._topics()
        self._ids = {name: topic.id for name, topic in topics.items()}

    def outages(self, seconds: float) -> dict[TopicPartition, Failure]:
        """The partitions that could not be read for so long, and why."""
        return self._outages.lasting(seconds)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._pending.clear()

    def poll(self, seconds: float) -> list[Chunk]:
        """Return the first records that arrive; may return nothing, after `seconds` at the latest."""
        deadline = time.monotonic() + seconds
        if self._stale and time.monotonic() >= self._refresh_at:
            self._refresh_metadata()
        self._request_from_leaders()
        self._outages.check(self.positions, self._cluster.limits.call)
        if not self._pending:
            time.sleep(min(PAUSE_SECONDS, seconds))
            return []
        poll = select.poll()
        brokers = {}
        for broker_id in self._pending:
            brokers[self._connections[broker_id].fileno()] = broker_id
            poll.register(self._connections[broker_id].fileno(), select.POLLIN)
        chunks: list[Chunk] = []
        for descriptor, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            if self._connections[brokers[descriptor]].readable(0):  # over TLS a readable socket need not have data
                chunks += self._receive(brokers.pop(descriptor))
        for broker_id in brokers.values():
            pending = self._pending[broker_id]
            no_reply = NoReply(f"{self._connections[broker_id].endpoint} does not answer Fetch", sent=True, late=True)
            if time.monotonic() >= pending.sent + WAIT_MS / 1000 + SLOW_SECONDS:
                self._outages.begin(pending.positions, Failure(Exit.UNREACHABLE, no_reply.full_text), pending.sent)
                self._mark_stale(SLOW_SECONDS)  # another broker may lead soon
            if time.monotonic() >= pending.deadline:
                self._drop_connection(broker_id, no_reply, pending.positions, pending.sent)
        return chunks

    # Requests

    def _topics(self) -> dict[str, TopicInfo]:
        return self._cluster.topics(sorted({topic for topic, _ in self.positions}))

    def _by_leader(self) -> dict[int, dict[TopicPartition, int]]:
        topics = self._topics()
        leaders: dict[int, dict[TopicPartition, int]] = {}
        for tp, position in self.positions.items():
            partition = topics[tp[0]].partitions.get(tp[1])
            if partition is None or partition.leader not in self._cluster.brokers:
                self._outages.begin([tp], failure(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp[0]}-{tp[1]}"))
                self._mark_stale()
            else:
                leaders.setdefault(partition.leader, {})[tp] = position
        return leaders

    def _request_from_leaders(self) -> None:
        for broker_id, positions in self._by_leader().items():
            if broker_id in self._pending or time.monotonic() < self._reconnect_at.get(broker_id, 0.0):
                continue
            began = time.monotonic()
            try:
                connection = self._connections.get(broker_id)
                if connection is not None and connection.expired:  # its login ends soon
                    connection.close()
                    connection = None
                if connection is None:
                    # While a broker does not answer, those that do are not held up for long.
                    timeout = RECONNECT_SECONDS if broker_id in self._reconnect_at else None
                    connection = self._connections[broker_id] = self._cluster.own_connection(broker_id, timeout=timeout)
                self._pending[broker_id] = self._send(connection, positions)
            except NoReply as no_reply:
                self._drop_connection(broker_id, no_reply, positions, began)

    def _send(self, connection: Connection, positions: dict[TopicPartition, int]) -> PendingFetch:
        topics: dict[str, FetchTopic] = {}
        for (name, partition), position in positions.items():
            topic = topics.setdefault(name, FetchTopic(self._ids.get(name) or bytes(16), name))
            topic.partitions.append(FetchPartition(partition, fetch_offset=position, partition_max_bytes=PARTITION_BYTES_MAX))
        request = FetchRequest(
            max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=BYTES_MAX, isolation_level=int(self._committed), topics=list(topics.values())
        )
        newest = FetchRequest.VERSIONS[1] if all(self._ids.get(name) for name in topics) else BY_ID_VERSION - 1
        version = connection.version(FetchRequest.API_KEY, (FetchRequest.VERSIONS[0], newest))
        if version < 0:
            connection.version_for(request, 0)  # raises Failure
        sent = time.monotonic()
        deadline = sent + self._cluster.timeout
        answer_by = deadline + WAIT_MS / 1000
        names = {topic.topic_id: topic.topic for topic in topics.values()}
        return PendingFetch(request, version, connection.send(request, version, deadline), sent, answer_by, positions, names)

    # Replies

    def _receive(self, broker_id: int) -> list[Chunk]:
        pending = self._pending.pop(broker_id)
        deadline = time.monotonic() + self._cluster.timeout
        try:
            reply: FetchResponse = self._connections[broker_id].receive(pending.request, pending.version, pending.correlation_id, deadline)
        except NoReply as no_reply:
            self._drop_connection(broker_id, no_reply, pending.positions, pending.sent)
            return []
        check(reply.error_code, "Fetch")
        self._reconnect_at.pop(broker_id, None)
        chunks = []
        for topic in reply.responses:
            name = topic.topic or pending.names.get(topic.topic_id, "")
            for data in topic.partitions:
                tp = (name, data.partition_index)
                if tp in self.positions and self.positions[tp] == pending.positions.get(tp):
                    chunks += self._records_of(tp, data)
        return chunks

    def _records_of(self, tp: TopicPartition, data: PartitionData) -> list[Chunk]:
        code = data.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(tp)
        elif code in RETRIABLE or code in NO_TOPIC:
            self._outages.begin([tp], failure(code, f"{tp[0]}-{tp[1]}"))
            self._mark_stale()
        else:
            check(code, f"{tp[0]}-{tp[1]}")
            self._outages.end(tp)
            if data.records:
                aborted = data.aborted_transactions if self._committed else None
                chunk = chunk_of(*tp, self.positions[tp], data.records, aborted)
                if chunk.next_offset > self.positions[tp]:
                    del self.positions[tp]  # move the partition to the end of the dict, so that each partition is requested first in turn
                    self.positions[tp] = chunk.next_offset
                    return [chunk]
        return []

    # Errors

    def _drop_connection(self, broker_id: int, no_reply: NoReply, positions: Collection[TopicPartition], since: float) -> None:
        self._pending.pop(broker_id, None)
        connection = self._connections.pop(broker_id, None)
        if connection is not None:
            connection.close()
        problem = Failure(no_reply.exit_code, no_reply.full_text, hint=no_reply.hint)
        if no_reply.everywhere:
            raise problem from no_reply
        self._reconnect_at[broker_id] = time.monotonic() + PAUSE_SECONDS * (1 if broker_id not in self._reconnect_at else RECONNECT_PAUSES)
        self._outages.begin(positions, problem, since)
        self._mark_stale()

    def _mark_stale(self, seconds: float = PAUSE_SECONDS) -> None:
        """Let `poll` refresh the metadata after a pause."""
        if not self._stale:
            self._stale = True
            self._refresh_at = time.monotonic() + seconds

    def _refresh_metadata(self) -> None:
        self._stale = False
        names = sorted({topic for topic, _ in self.positions})
        for name, topic in self._cluster.topics(names, refresh=True).items():
            partitions = [tp for tp in self.positions if tp[0] == name]
            missing = topic.error in NO_TOPIC or not all(tp[1] in topic.partitions for tp in partitions)
            self._missing.mark(name, missing=missing)
            if missing:
                self._mark_stale()
            else:
                check(0 if topic.error == ErrorCode.LEADER_NOT_AVAILABLE else topic.error, f"topic {name}")
                if self._ids.get(name) not in (None, topic.id):
                    self._warn(f"topic {name} was deleted and created again: reading it from its start")
                    self.positions |= offsets_at(self._cluster, partitions, EARLIEST)
                self._ids[name] = topic.id

    def _out_of_range(self, tp: TopicPartition) -> None:
        position = self.positions[tp]
        begin = offsets_at(self._cluster, [tp], EARLIEST)[tp]
        end = offsets_at(self._cluster, [tp], LATEST)[tp]
        if begin <= position <= end:
            return  # the position is valid again: log start or end have moved meanwhile
        about = f"{tp[0]}-{tp[1]}"
        if position < begin:
            self._warn(f"{about}: offsets {position} to {begin - 1} were deleted, perhaps by the topic's retention; continuing at {begin}")
            self.positions[tp] = begin
        else:
            self._warn(f"{about}: offset {position} is after the end of the log, which has lost records; continuing at its end, {end}")
            self.positions[tp] = end
