"""What a backend gets of its broker, and what the broker uses of its backend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from broker.machine import Machine
from broker.runtime.clock import Clock
from broker.settings.config import Config
from broker.stores.port import BrokerStore
from broker.topics.partition import Partition
from storage import TopicStore


class Host(NamedTuple):
    config: Config
    loop: asyncio.AbstractEventLoop
    machine: Machine
    clock: Clock
    partitions: Callable[[], Iterable[Partition]]  # of topics; called while the broker serves
    log_files_max: int


class Stores(Protocol):
    """The stores of a broker, and the work on them. Built from a Host; that raises StartError if they cannot be used."""

    @property
    def store(self) -> BrokerStore: ...

    def topic_store(self) -> TopicStore: ...

    def last_use(self) -> int | None:
        """The wall time at which the store was last in use, for `Clock.start_after`; None: it is new, or does not say."""
        ...

    def start_cleaning(self) -> None:
        """Called before the first log is acquired."""
        ...

    async def stop_cleaning(self) -> None: ...

    def start_upkeep(self) -> None:
        """Called when the broker serves."""
        ...

    def stop_upkeep(self) -> None: ...

    def status(self) -> Mapping[str, str]:
        """Entries for DescribeConfigs."""
        ...

    def health(self, problem: str) -> str:
        """`problem`, the broker's status for `tenure health` ("NONE": ready), with that of the store."""
        ...


NewStores = Callable[[Host], Stores]
