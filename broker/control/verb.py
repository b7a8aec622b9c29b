"""A verb of the test control: its path, its fields, and what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from broker.control.cluster import Cluster
from broker.control.fields import Field


class Clusters(Protocol):
    """What verbs use of the process."""

    clusters: dict[str, Cluster]
    read_history: Callable[[str, str, int | None], dict[str, Any]]  # bootstrap, group, since when in milliseconds

    async def make(self, settings: Mapping[str, Any]) -> Cluster: ...

    async def make_topics(self, cluster: Cluster, topics: Mapping[str, Any]) -> None: ...

    async def remove(self, id: str) -> None: ...

    async def sleep(self, ms: int) -> None: ...

    def later(self, ms: int, callback: Callable[[], None]) -> None: ...


class Call(NamedTuple):
    """One call of a verb."""

    host: Clusters
    cluster: Cluster | None
    path: dict[str, str]  # the variable parts of the path
    fields: dict[str, Any]

    @property
    def of(self) -> Cluster:
        """The cluster of a path that names one."""
        assert self.cluster is not None
        return self.cluster


class Verb(NamedTuple):
    method: str
    path: str  # parts in braces are variable
    text: str
    run: Callable[[Call], Awaitable[Any]]
    fields: tuple[Field, ...] = ()
    example: dict[str, Any] | None = None
    raw: str = ""  # the name under which the whole body is handed on, for bodies with a form of their own
