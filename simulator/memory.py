"""The groups in the memory of the nodes, as checks see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from simulator.node import Node


class Memory:
    """The memory of one node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.serving: dict[int, int] = {}  # partition -> the moment since which every check found it serving

    def serves(self, group: str) -> bool:
        return self.node.serving and not self.node.broker.shards.journal_of(group).refusal

    def find(self, group: str) -> Any:
        """The group, if this node serves it and has it."""
        return self.node.broker.shards.journal_of(group).shard.groups.get(group) if self.serves(group) else None

    def find_consumers(self, group: str) -> Any:
        """As `find`, of the consumer protocol."""
        return self.node.broker.shards.journal_of(group).shard.consumers.groups.get(group) if self.serves(group) else None

    def served_since(self, group: str, moment: int) -> bool:
        """Whether the group's partition is known to have served since `moment`."""
        node = self.node
        if not node.serving:
            return False
        since = self.serving.get(node.broker.shards.journal_of(group).partition)
        return since is not None and since < moment


class Coordinators:
    """The memory of all nodes."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.memories = {node: Memory(node) for node in nodes}

    def find(self, group: str) -> Any:
        """The group in its coordinator's memory; None if no node serves it."""
        for memory in self.memories.values():
            found = memory.find(group)
            if found is not None:
                return found
        return None

    def find_consumers(self, group: str) -> Any:
        """As `find`, of the consumer protocol."""
        for memory in self.memories.values():
            found = memory.find_consumers(group)
            if found is not None:
                return found
        return None

    def served_since(self, group: str, moment: int) -> bool:
        """Whether the group's coordinator is known to have served it since `moment`."""
        return any(memory.served_since(group, moment) for memory in self.memories.values())
