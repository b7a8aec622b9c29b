"""Where a broker may keep its logs: one row for each backend, chosen by the scheme of the setting `store`.

A row names its code as "module:name", and only that of the chosen backend is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple


class Backend(NamedTuple):
    schemes: tuple[str, ...]  # of the setting `store`; none: `store` is empty
    keeper: str  # what a write waits for, as text for messages
    one_machine: bool  # all nodes run on one machine, with sockets and locks in the data directory
    single: str  # `Stores` of a broker that is alone; "": every broker is one of several nodes
    several: str  # `NodeStores` of one of several nodes
    check_settings: str  # adds the problems of its settings to the collected settings; "": they have none
    defaults: Mapping[str, int]  # of settings whose default is another one here

    @property
    def prefixes(self) -> tuple[str, ...]:
        return tuple(f"{scheme}://" for scheme in self.schemes)


DIRECTORY: Final = Backend(
    schemes=(),
    keeper="disk",
    one_machine=True,
    single="broker.backends.directory:DirectoryStores",
    several="broker.backends.shared:SharedStores",
    check_settings="",
    defaults={},
)
JETSTREAM: Final = Backend(
    schemes=("nats", "tls"),
    keeper="engine",
    one_machine=False,
    single="",
    several="broker.backends.jetstream:JetStreamStores",
    check_settings="broker.settings.servers:check_store",
    # Each partition is a stream: a Raft group of its own, usually with three replicas.
    defaults={"partitions.max": 500},
)
BACKENDS: Final = (DIRECTORY, JETSTREAM)
PREFIXES: Final = tuple(prefix for backend in BACKENDS for prefix in backend.prefixes)


def backend_of(store: str) -> Backend:
    """The backend of a value of the setting `store`; for an unknown scheme JETSTREAM, whose check refuses it."""
    scheme = store.partition("://")[0]
    return next((backend for backend in BACKENDS if scheme in backend.schemes), JETSTREAM) if store else DIRECTORY


def load(name: str) -> Any:
    """What a row names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
