"""A verb of the test control: its path, its fields, and what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.control.fields import Field

if TYPE_CHECKING:
    from broker.control.cluster import Cluster
    from broker.control.host import Host


class Call(NamedTuple):
    """One call of a verb."""

    host: Host
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
