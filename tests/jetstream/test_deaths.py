"""An owner that dies at any of its messages to NATS: no acknowledged entry is lost, stored twice or stored in another order.

Each message is a step: to claim, append to, shorten or release a log, or to inform other nodes. At each step the process dies: before the
message is sent, before its reply, or after the reply has arrived and before it is processed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.stores.jetstream import topic_cleaning
from broker.stores.jetstream.connection import Connection
from broker.stores.jetstream.group_cleaning import GroupLogCleaner
from broker.stores.jetstream.logs import GroupLog
from broker.stores.jetstream.topic_logs import StreamTopicLog
from protocol.batch import build_facts
from storage import NOT_YET, LogId, Producers, TopicInfo
from tests.stores.jetstream_nodes import JetStreamNode, NodesOverJetStream, over_jetstream
from tests.stores.nodes import TOPIC_ID, append
from tests.stores.stream_topics import Written, begin_cleaning, clean
from tests.support.nats_engine import NatsEngine

pytestmark = pytest.mark.jetstream

KEYS = 20
STEPS_MIN = 20  # an owner must send at least so many messages
BEFORE, UNANSWERED, UNPROCESSED = "before it is sent", "before its reply", "before its reply is processed"


@pytest.fixture
def nodes(one_server: NatsEngine) -> Iterator[NodesOverJetStream]:
    yield from over_jetstream(one_server, 60_000)  # a lease of a minute, which no test outlasts


class DyingConnection:
    """Patches a node's connection to the engine: the node dies at its message number `step`."""

    def __init__(self, connection: Connection, step: int, when: str) -> None:
        self.dead = False
        self.steps = 0
        self._connection = connection
        self._step = step
        self._when = when
        self._publish = connection.publish
        self._dispatch = connection.dispatch
        self._last_reply = ""
        patched: Any = connection
        patched.publish = self.publish
        patched.dispatch = self.dispatch

    def publish(self, subject: str, payload: bytes | bytearray, reply: str = "", headers: bytes = b"") -> None:
        if self.dead or ".meta.node." in subject:
            return  # the announcement of the node at its start is no step
        self.steps += 1
        if self.steps == self._step:
            self._last_reply = reply
            self.dead = self._when != UNPROCESSED
            if self._when == BEFORE:
                return
        self._publish(subject, payload, reply, headers)

    def dispatch(self, message: Any) -> None:
        if self._last_reply and message.subject == self._last_reply:
            self.dead = True
        if not self.dead:
            self._dispatch(message)


class DyingNode:
    def __init__(self, node: JetStreamNode, step: int, when: str) -> None:
        self.node = node
        self.connection = DyingConnection(node.store.connection, step, when)

    def until(self, condition: Callable[[], bool]) -> bool:
        """Wait for the condition. Return False if the node died first."""
        self.node.wait(lambda: condition() or self.connection.dead)
        return not self.connection.dead


class GroupLogOwner(DyingNode):
    """Acquires a log, appends, shortens the log, appends, releases it, acquires it again and reads it."""

    def __init__(self, node: JetStreamNode, id: LogId, step: int, when: str) -> None:
        super().__init__(node, step, when)
        self.id = id
        self.appended: dict[bytes, int] = dict.fromkeys((b"key-%d" % key for key in range(KEYS)), -1)
        self.acknowledged = dict(self.appended)
        self.turn = 0

    def run(self) -> None:
        log = self.acquire()
        if log is None:
            return
        for _ in range(6):
            self.append(log)
        if not self.until(lambda: not log.chain.pending):
            return
        store = self.node.store
        cleaning = GroupLogCleaner(store.engine, lambda: store.logs, lambda: 1, time.monotonic)
        cleaning.clean(log)
        for _ in range(6):
            self.append(log)
            self.node.loop.run_until_complete(asyncio.sleep(0.002))
        self.until(lambda: log.live_bytes > 0)
        cleaning.stop()
        self.append(log)
        released: list[bool] = []
        if self.until(lambda: not log.chain.pending):
            store.release(self.id, lambda: released.append(True))
            if self.until(lambda: bool(released)):
                self.read(self.acquire())

    def acquire(self) -> GroupLog | None:
        found: list[Any] = []
        self.node.store.acquire(self.id, found.append)
        if not self.until(lambda: bool(found)):
            return None
        assert isinstance(found[0], GroupLog)
        return found[0]

    def read(self, log: GroupLog | None) -> None:
        for facts in log.replay() if log is not None else ():
            if self.connection.dead:
                return
            if facts is NOT_YET:
                self.node.loop.run_until_complete(asyncio.sleep(0.001))

    def append(self, log: GroupLog) -> None:
        """Set half of the keys to the number of this append, in one batch; the next append sets the other half."""
        self.turn += 1
        turn = self.turn
        keys = [b"key-%d" % (key + turn % 2) for key in range(0, KEYS, 2)]

        def done(result: object) -> None:
            if isinstance(result, int):
                self.acknowledged.update(dict.fromkeys(keys, turn))

        self.appended.update(dict.fromkeys(keys, turn))
        log.append(build_facts([(key, b"%d" % turn) for key in keys], 1), len(keys), done)


def last_values(node: JetStreamNode, log: GroupLog) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for facts in log.replay():
        if facts is NOT_YET:
            node.loop.run_until_complete(asyncio.sleep(0.001))
        for key, value in facts:
            assert value is not None
            found[key] = int(value)
    return found


class TopicLogOwner(DyingNode):
    """Opens the log of a compacted topic, fills some segments, cleans them, appends and releases the log."""

    def __init__(self, node: JetStreamNode, id: LogId, step: int, when: str) -> None:
        super().__init__(node, step, when)
        self.written = Written(id, segment_bytes=600)

    def run(self) -> None:
        node, written = self.node, self.written
        opened: list[Any] = []
        node.topics.open_topic_log(written.id, TopicInfo(TOPIC_ID, 600, Producers(), 0, lambda folder: None), opened.append)
        if not self.until(lambda: bool(opened)):
            return
        (log,) = opened
        assert isinstance(log, StreamTopicLog)
        for turn in range(5):
            for key in range(4):
                written.append(log, (b"key-%d" % key, b"%d" % turn * 30))
            if not self.until(lambda: not log.chain.pending):
                return
        done: list[bool] = []
        begin_cleaning(node, log, 10_000, done.append)
        written.append(log, (b"key-1", b"meanwhile"))
        if not self.until(lambda: bool(done) and not log.chain.pending):
            return
        assert done == [True]
        written.append(log, (b"key-2", b"last"))
        released: list[bool] = []
        if self.until(lambda: not log.chain.pending):
            node.store.release(written.id, lambda: released.append(True))
            self.until(lambda: bool(released))


@pytest.mark.parametrize("when", [BEFORE, UNANSWERED, UNPROCESSED])
def test_an_owner_of_a_compacted_topic_that_dies_at_any_step_loses_nothing(
    nodes: NodesOverJetStream, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_cleaning, "COPY_BYTES", 150)  # several cleaned entries
    next_owner = nodes.start(2)
    ended = False
    step = 0
    while not ended:
        step += 1
        node = nodes.start(1)
        owner = TopicLogOwner(node, LogId("states", step), step, when)
        owner.run()
        ended = not owner.connection.dead
        nodes.end(node, next_owner)
        written = owner.written
        acquired = written.own(next_owner)
        before = written.check(next_owner, acquired, acquired.clean_to)
        del written.sent[acquired.records.high_watermark :]  # batches that were neither acknowledged nor stored
        written.acknowledged = len(written.sent)
        for _ in range(12):
            written.append(acquired, (b"key-3", bytes(60)))
        written.settle(next_owner)
        until = clean(next_owner, acquired)
        assert set(written.check(next_owner, acquired, until)) >= {offset for offset in before if offset >= until}, (step, when)
        next_owner.release(written.id)
    assert step > STEPS_MIN


@pytest.mark.parametrize("when", [BEFORE, UNANSWERED, UNPROCESSED])
def test_an_owner_that_dies_at_any_step_loses_nothing(nodes: NodesOverJetStream, when: str) -> None:
    next_owner = nodes.start(2)
    ended = False
    step = 0
    while not ended:
        step += 1
        id = LogId("__consumer_offsets", step)
        node = nodes.start(1)
        owner = GroupLogOwner(node, id, step, when)
        owner.run()
        ended = not owner.connection.dead
        nodes.end(node, next_owner)
        acquired = next_owner.own(id)
        found = last_values(next_owner, acquired)
        where = (step, when)
        for key, turn in owner.acknowledged.items():
            assert turn <= found.get(key, -1) <= owner.appended[key], where
        assert append(next_owner, acquired, b"key-0", b"1000") == acquired.chain.committed_offset - 1, where
        assert last_values(next_owner, acquired)[b"key-0"] == 1000, where
        next_owner.release(id)
    assert step > STEPS_MIN
