"""The topics of a run, and the deletions of topics and offsets that the administrator sends."""

from __future__ import annotations

from typing import Final

from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeleteTopicsRequest
from simulator.client import RETRIED
from simulator.node import Node
from simulator.promises import GroupPartition, Offsets, SentValue
from simulator.world import MS, SECOND, World

OFFSETS_REMOVED_NS: Final = 60 * SECOND  # after it, groups have removed the offsets of a deleted topic

Removals = list[tuple[GroupPartition, SentValue | int]]


class Topics:
    recreation_pauses: tuple[int, ...] = (100 * MS, SECOND, 10 * SECOND)  # between the deletion of a topic and its new creation

    def __init__(self, world: World, offsets: Offsets) -> None:
        self._world = world
        self._offsets = offsets
        self.partitions: dict[str, int] = {}  # topic -> the number of its partitions
        self.created: set[str] = set()  # topics that clients may know
        self.deleted: set[str] = set()  # topics that were ever deleted

    def deletion_of(self, name: str) -> tuple[DeleteTopicsRequest, int] | None:
        """The request that deletes the topic, and its version; None: the topic is not known yet."""
        return DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5

    def was_deleted(self, name: str, removals: Removals, code: int) -> None:
        """The topic is deleted. `code`: NONE, or UNKNOWN_TOPIC_OR_PARTITION if an earlier request, whose reply was lost, has deleted it."""
        if code == ErrorCode.NONE:
            self.removed(removals, code)
        else:  # groups may not have removed its offsets yet
            self._world.after(OFFSETS_REMOVED_NS, self.removed, removals, None)

    def committed_elsewhere(self, node: Node, partition: GroupPartition, value: int) -> None:
        """A commit was acknowledged by a node that may not know the newest topic of that name."""

    def removed(self, removals: Removals, code: int | None) -> None:
        """Offsets were removed. `code`: the error of the reply; None: the reply is lost, or a power failure voids it."""
        offsets = self._offsets
        for partition, removal in removals:
            if code == ErrorCode.NONE or code == ErrorCode.GROUP_ID_NOT_FOUND:
                offsets.acknowledged(partition, removal)
            elif code is None or code in RETRIED:
                offsets.unknown(partition, removal)
            else:
                offsets.refused(partition, removal)
        if code == ErrorCode.NONE:
            self._world.count("offsets deleted", 1)
