"""The code behind a connection that serves groups, in one thread and step by step: real connections, dispatch, handlers and
shards over logs in memory whose appends the test can delay or fail.
"""

from __future__ import annotations

from collections import deque
from hashlib import sha256
from struct import pack, unpack
from types import SimpleNamespace
from typing import Any

from broker.api.table import CLUSTER, CONSUMERS, GROUPS, MEMBERS, OFFSETS
from broker.groups.journal import Journal
from broker.internal_topics import CONSUMER_OFFSETS
from broker.net.connection import Connection, ConnectionContext
from broker.net.dispatch import Dispatch
from broker.net.long_requests import LongRequests
from broker.runtime.node import Address, Node
from broker.security.authorizer import Authorizer
from broker.topics.deletions import Deletions
from broker.topics.registry import Topic, TopicRegistry
from broker.topics.transactions import TransactionRefusals
from coordinator import GroupConfig
from protocol.apis import APIS
from protocol.batch import facts_of
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_fetch import OffsetFetchRequest
from tests.support.group_logs import CONFIG, GroupWorld
from tests.support.headers import encode_request, response_header_version
from tests.support.journals import LATE_MS, ScriptedLog
from tests.support.transports import BareTransport

PARTITIONS = 5
TOPICS = {"t": 3, "u": 2, "v": 200}
DIALLED = Address("PLAIN", "here.example", 9092)


def refusing(*refused: tuple[int, int, str | None], checks: list[tuple[int, int, str]] | None = None) -> Authorizer:
    """An authorizer that refuses these (operation, resource, name); name None means any name. `checks` collects every check that a handler makes."""

    def allows(call: Any, operation: int, resource: int, name: str) -> bool:
        if checks is not None:
            checks.append((operation, resource, name))
        return not {(operation, resource, name), (operation, resource, None)} & set(refused)

    return Authorizer(allows)


class Defective:
    """A shard, or a part of it, with one call that raises, before or after its effect."""

    def __init__(self, shard: Any, call: str, after: bool = False) -> None:
        self._shard = shard
        self._call = call
        self._after = after

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._shard, name)
        if name != self._call:
            return attribute

        def broken(*arguments: Any) -> None:
            if self._after:
                attribute(*arguments)
            raise RuntimeError("a defect")

        return broken


class DeletedFolders:
    """A stand-in for the partitions of topics: records the deleted topics, whose folders they would set aside."""

    def __init__(self) -> None:
        self.set_aside: list[str] = []

    def deleted(self, topic: Topic) -> None:
        self.set_aside.append(topic.name)


class GroupHarness(GroupWorld):
    """A node that serves groups. Its appends end at once, and only the test advances its time."""

    def __init__(
        self,
        authorizer: Authorizer | None = None,
        config: GroupConfig = CONFIG,
        load: bool = True,
        topics: dict[str, int] = TOPICS,
    ) -> None:
        super().__init__(PARTITIONS, load, config, immediate=True)
        self.cluster = self.store.cluster
        self.authorizer: Any = authorizer or Authorizer()
        self.topics = TopicRegistry(iter(bytes([number]) * 16 for number in range(1, 255)).__next__)
        self.topics.create(CONSUMER_OFFSETS, PARTITIONS, {}, 0)
        for name, partitions in topics.items():
            self.topics.create(name, partitions, {}, 0)
        self.shards._topic_of = self.topics.seen_by_groups
        self.shards.see_topics(self.topics.by_name)
        stored = list(facts_of(bytes(self.topics.hold.take_batch(0))))
        self.topics.hold.confirm(self.topics.hold.emitted)
        self.registry_log = ScriptedLog(immediate=True, stored=[stored])
        self.registry = Journal("__topics", self.topics, self.registry_log, self.turn, LATE_MS)
        self.dispatch = Dispatch(1 << 20)
        self.deleted_folders = DeletedFolders()
        self.deletions = Deletions(self.topics, self.registry, self.shards, self.deleted_folders, self.loop, lambda: 0.0)  # type: ignore[arg-type]
        parts: Any = SimpleNamespace(
            long_requests=LongRequests(self.turn),
            node=Node(1, "cluster"),
            clock=self.clock,
            authorizer=self.authorizer,
            cluster_view=self.cluster,
            leaders=None,
            routes=self.dispatch.routes,
            health=lambda: "NONE",
            groups=config,
            shards=self.shards,
            topics=self.topics,
            registry_journal=self.registry,
            transaction_refusals=TransactionRefusals(),
            deletions=self.deletions,
        )
        self.dispatch.add_routes(*[module.route(parts) for module in (*CLUSTER, *MEMBERS, *CONSUMERS, *OFFSETS, *GROUPS)])
        self.context = ConnectionContext(self.clock, self.turn, self.dispatch, lambda connection, reason: None, 1 << 20, 1 << 20, 1 << 20)

    def log_of(self, group_id: str) -> ScriptedLog:
        return self.log(self.shards.journal_of(group_id).partition)

    def hold_appends(self) -> ScriptedLog:
        """Let appends to the log of group "g" wait from now on; returns that log."""
        log = self.log_of("g")
        log.immediate = False
        return log

    def complete_append(self) -> None:
        """Complete the oldest waiting append to the log of group "g"."""
        self.log_of("g").succeed()
        self.loop.run()

    def pass_ms(self, ms: int) -> None:
        """Advance the time; each timer fires when it is due."""
        self.loop.pass_ms(ms)
        self.clock.tick()


def names_topics_by_id(message: Any, version: int) -> bool:
    return message.API_KEY in (OffsetCommitRequest.API_KEY, OffsetFetchRequest.API_KEY) and version >= 10


def topics_in(message: Any) -> list[Any]:
    """The topics in an OffsetCommit or OffsetFetch, or in its reply."""
    if not hasattr(message, "groups"):
        return list(message.topics)
    return [topic for group in message.groups for topic in group.topics or ()]


def unknown_id(name: str) -> bytes:
    """The id that no topic has, of a topic that does not exist."""
    return sha256(name.encode()).digest()[:16]


class GroupClient(BareTransport):
    """A client on its own connection."""

    def __init__(self, harness: GroupHarness, address: str = "127.0.0.1", client_id: str | None = "client", listener: Address = DIALLED) -> None:
        self._harness = harness
        self._client_id = client_id
        self._correlation_id = 0
        self._unanswered: deque[tuple[int, Any, int]] = deque()
        self._names: dict[bytes, str] = {}  # by topic id
        self._received = b""
        self.open = True
        self.connection = Connection(harness.context, listener, address)
        self.connection.connection_made(self)

    # Called by the connection, as its transport.

    def write(self, data: bytes, /) -> None:
        self._received += data

    def close(self) -> None:
        self.open = False

    def abort(self) -> None:
        self.open = False

    # Called by tests, as a client.

    def send(self, request: Any, version: int, body: bytes | None = None) -> None:
        """Send the request. `body`: its bytes, if our codec would not write them. Topics without an id get theirs, in versions that send it."""
        if names_topics_by_id(request, version):
            self._fill_in_ids(request)
        self._correlation_id += 1
        self._unanswered.append((self._correlation_id, request, version))
        body = request.encode(version) if body is None else body
        self.connection.data_received(encode_request(request.API_KEY, version, self._correlation_id, self._client_id, body))
        self._harness.loop.run()

    def ask(self, request: Any, version: int) -> Any:
        """The reply, which must be there at once."""
        self.send(request, version)
        reply = self.reply()
        assert reply is not None, "no reply yet"
        return reply

    def reply(self) -> Any:
        """The next reply, or None; checks that its bytes equal the encoding of the generated codec. Topics named by id get their names."""
        if len(self._received) < 4:
            return None
        (size,) = unpack(">i", self._received[:4])
        frame, self._received = self._received[4 : 4 + size], self._received[4 + size :]
        assert len(frame) == size
        correlation_id, request, version = self._unanswered.popleft()
        assert frame[:4] == pack(">i", correlation_id)
        at = 4 + response_header_version(request.API_KEY, version)
        reply, end = APIS[request.API_KEY].response.decode(frame, at, version)
        assert (end, reply.encode(version)) == (len(frame), frame[at:])
        if names_topics_by_id(request, version):
            for topic in topics_in(reply):
                topic.name = self._names.get(topic.topic_id) or self._harness.topics.name_of(topic.topic_id) or ""
        return reply

    def _fill_in_ids(self, request: Any) -> None:
        for topic in topics_in(request):
            if topic.name:
                topic.topic_id = self._harness.topics.id_of(topic.name) or unknown_id(topic.name)
                self._names[topic.topic_id] = topic.name
