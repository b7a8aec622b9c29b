"""Blocks of producer ids. The topic registry stores each block, which is used only once it is durable: so no id is given out twice.

Unused ids of a block are lost when the broker ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.groups.journal import Journal
from broker.topics.registry import TopicRegistry

Reserved = Callable[[range | None], None]


class ProducerIds(Protocol):
    """The interface to the registry that allocates blocks: this broker's own or, on one of several nodes, the controller's."""

    def reserve(self, done: Reserved) -> None:
        """`done` gets a block of unused ids, at once or later; None: there is none now."""
        ...


class RegistryProducerIds:
    """Blocks from the registry that this broker writes."""

    def __init__(self, topics: TopicRegistry, registry_journal: Journal) -> None:
        self._topics = topics
        self._registry_journal = registry_journal

    def reserve(self, done: Reserved) -> None:
        if self._registry_journal.writable:
            self._registry_journal.hold_reply(_Block(self._topics.reserve_producer_ids(), done))
        else:
            done(None)


class _Block:
    """A block of ids that is not durable yet; the registry holds it like a reply (`coordinator.hold`)."""

    __slots__ = ("_done", "_ids")

    def __init__(self, ids: range, done: Reserved) -> None:
        self._ids = ids
        self._done = done

    def release(self) -> None:
        """The block is durable: pass its ids to `done`."""
        self._done(self._ids)

    def fail(self, error: int) -> None:
        self._done(None)  # the fact may or may not be in the log, so its ids are not used
