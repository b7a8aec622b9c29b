"""The route of a request: how to find the broker that answers it, and when to retry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from cli.client.connection import Connection
from cli.failure import Failure


def no_problem(reply: Any) -> Failure | None:
    return None


def nothing_to_forget() -> None:
    return None


class Route(NamedTuple):
    """`find`: connects to the broker before a deadline; `retriable_problem`: returns the retriable error of a reply, if any; `forget`: drops
    what is known about the broker, before a retry; `retry`: whether to retry at all.
    """

    find: Callable[[float], Connection]
    retriable_problem: Callable[[Any], Failure | None] = no_problem
    forget: Callable[[], object] = nothing_to_forget
    retry: bool = True
