"""Place the logs of topics on nodes, at most once per pass of the event loop. Until then `expected_owner` computes the node of a new log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.cluster.ownership import Ownership
from broker.runtime.contain import Contained, run_contained
from broker.topics.leaders import NO_NODE
from broker.topics.registry import Topic, TopicRegistry
from storage import LogId


class TopicPlacement:
    def __init__(self, node_id: int, loop: asyncio.AbstractEventLoop, topics: TopicRegistry, ownership: Ownership, now: Callable[[], int]) -> None:
        self._node_id = node_id
        self._loop = loop
        self._topics = topics
        self._ownership = ownership
        self._now = now
        self._begun = False
        self._placing = False
        self._planned: dict[LogId, int] = {}  # the future nodes of logs that are not placed yet
        self._unopened: set[LogId] = set()  # logs of new topics
        self._waiting: list[Callable[[], None]] = []  # called when this node has opened its own logs of new topics

    def begin_placing(self) -> None:
        """Place logs from now on."""
        self._begun = True
        self._place()

    def place_later(self) -> None:
        if not self._placing:
            self._placing = True
            self._loop.call_soon(Contained(self._place_if_due))

    def _place_if_due(self) -> None:
        if self._placing:
            self._place()

    def _place(self) -> None:
        self._placing = False
        self._planned.clear()
        if self._begun:
            self._ownership.set_logs("topics", self._logs(), self._now())

    def _logs(self) -> list[LogId]:
        topics = [topic for topic in self._topics.by_name.values() if not topic.internal]
        return [LogId(topic.name, index) for topic in topics for index in range(topic.partition_count)]

    def nodes_changed(self) -> None:
        self._planned.clear()
        self._drop_opened()

    def expected_owner(self, id: LogId) -> int:
        """The node that will own the log. Metadata already names it as the leader, since some clients do not refresh their metadata."""
        node = self._ownership.expected_owner(id)
        topic = self._topics.by_name.get(id.name)
        if node == NO_NODE and topic is not None and not topic.internal and self._begun:
            if id not in self._planned:
                self._planned = self._ownership.planned(self._logs())
            node = self._planned.get(id, NO_NODE)
        return node

    # Opening the logs of new topics.

    def added(self, topic: Topic) -> None:
        """A topic was created, or has more partitions."""
        if not topic.internal:
            self._unopened.update(LogId(topic.name, index) for index in range(topic.partition_count))

    def opened(self, id: LogId) -> None:
        """The log was opened or deleted, or could not be opened."""
        self._unopened.discard(id)
        if not self._unopened:
            self._all_opened()

    def when_opened(self, done: Callable[[], None]) -> None:
        """Call `done` when this node serves its logs of new topics."""
        self._waiting.append(done)
        self._place_if_due()
        self._drop_opened()

    def _drop_opened(self) -> None:
        self._unopened = {id for id in self._unopened if self.expected_owner(id) == self._node_id and not self._ownership.owns(id)}
        if not self._unopened:
            self._all_opened()

    def _all_opened(self) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            run_contained(done)
