"""Topics that are deleted and created again under the same name, while not every node knows it.

Nodes learn of a deletion one after the other, a frozen one late. So an acknowledgement concerns the newest topic of a name only if the
node knew that topic when the request was sent; offsets that were committed at other nodes may belong to an earlier topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from coordinator.facts import read_offset
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from simulator.node import Node
from simulator.promises import GroupPartition, Offsets, SentValue, partition_text
from simulator.topics import Removals, Topics
from simulator.truths import offsets_of
from simulator.world import MS, SECOND, Broken, World

SETTLED_NS: Final = SECOND  # a coordinator that has known a topic for so long has removed the offsets of the earlier ones


class RecreatedTopics:
    """The topics of one run that were deleted, and the offsets that groups committed for them."""

    def __init__(self, world: World, offsets: Offsets, nodes: Callable[[], Iterable[Node]]) -> None:
        self._world = world
        self._offsets = offsets
        self._nodes = nodes
        self._names: dict[str, None] = {}  # of topics that were ever deleted
        self._ids: set[bytes] = set()  # of deleted topics
        self._removals: dict[str, list[tuple[GroupPartition, SentValue]]] = {}  # by topic: of offsets, not yet seen at the coordinator
        self._former: dict[GroupPartition, list[int]] = {}  # offsets that were certainly committed for a deleted topic
        self._known_since: dict[tuple[str, str], tuple[Node, int, int]] = {}  # group, topic -> its coordinator, that node's life, the moment

    def delete(self, name: str) -> bytes | None:
        """The topic will be deleted; returns its id, or None if no node knows it now."""
        ids: set[bytes] = {topic.id for topic in (find_topic(node, name) for node in self._nodes()) if topic is not None} - self._ids
        self._ids |= ids
        if not ids:
            return None
        self._names[name] = None
        return min(ids)

    def removed(self, name: str, removals: Iterable[tuple[GroupPartition, Any]]) -> None:
        """The deletion was acknowledged: each coordinator removes these offsets before it knows a new topic of the name."""
        self._removals.setdefault(name, []).extend(removals)

    def known(self, node: Node, name: str) -> bool:
        """Whether the node has the newest topic of that name."""
        topic = find_topic(node, name)
        return topic is not None and topic.id not in self._ids

    def unknown_at(self, node: Node) -> Collection[str]:
        """The names under which the node has an earlier topic, or none."""
        return [name for name in self._names if not self.known(node, name)] if self._names else ()

    def committed(self, node: Node, partition: GroupPartition, value: int) -> None:
        """The node acknowledged a commit, and may not have known the newest topic when it did."""
        if not self.known(node, partition[1]):
            self._former.setdefault(partition, []).append(value)

    # Checks of the coordinators' memory.

    def check(self, groups: Iterable[tuple[str, str, Node, Any]]) -> None:
        """Raise Broken if a coordinator has an offset of a deleted topic, or lacks one that was committed for the new topic.

        `groups`: each group with its topics: the group, the topic, the coordinator that serves it, and the group in its memory, or None.
        """
        for id, topic, node, group in groups:
            if topic not in self._names:
                continue
            key = id, topic
            since = self._known_since.get(key)
            if not self.known(node, topic):
                self._known_since.pop(key, None)
            elif since is None or since[:2] != (node, node.life):
                self._known_since[key] = node, node.life, self._world.now
            elif min(self._world.now - since[2], self._world.now - node.frozen_until) > SETTLED_NS:
                self._settle(id, topic)
                self._compare(id, topic, group)

    def _settle(self, group: str, topic: str) -> None:
        removals = self._removals.get(topic, [])
        for partition, removal in removals:
            if partition[0] == group:
                self._offsets.acknowledged(partition, removal)
                self._offsets.supersede(partition, self._former.pop(partition, ()))
        if removals:
            self._removals[topic] = [each for each in removals if each[0][0] != group]

    def _compare(self, group: str, topic: str, found: Any) -> None:
        stored = offsets_of(found) if found is not None else {}
        for partition in self._offsets.partitions_of(group, topic):
            value = stored.get((topic, partition[2]))
            if value is None and not self._offsets.may_be_missing(partition):
                raise Broken(Offsets.promise, f"the offset of {partition_text(partition)}, which was acknowledged, is not in the coordinator's memory", group)
            if value is not None and self._offsets.was_replaced(partition, read_offset(value).offset, self._world.now - SETTLED_NS):
                raise Broken(Offsets.promise, f"offset {read_offset(value).offset} of {partition_text(partition)}, of a deleted topic or replaced long ago, is in the coordinator's memory", group)


def find_topic(node: Node, name: str) -> Any:
    """The topic that the node has under this name; None if there is none, or the node has not started."""
    if not node.running or node.server is None or node.loop.dead:
        return None
    topics = getattr(node.broker, "topics", None)
    return topics.by_name.get(name) if topics is not None else None


class ClusterTopics(Topics):
    recreation_pauses = (0, 20 * MS, SECOND)

    def __init__(self, world: World, offsets: Offsets, recreated: RecreatedTopics) -> None:
        super().__init__(world, offsets)
        self._recreated = recreated

    def deletion_of(self, name: str) -> tuple[DeleteTopicsRequest, int] | None:
        """By id: a request whose reply was lost may arrive when the topic is recreated already."""
        id = self._recreated.delete(name)
        return None if id is None else (DeleteTopicsRequest([DeleteTopicState(None, id)], timeout_ms=10_000), 6)

    def was_deleted(self, name: str, removals: Removals, code: int) -> None:
        self._recreated.removed(name, removals)

    def committed_elsewhere(self, node: Node, partition: GroupPartition, value: int) -> None:
        self._recreated.committed(node, partition, value)
