"""Requests and replies of the consumer protocol, independent of API versions and wire formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

# Partitions by topic id.
Partitions = Mapping[bytes, Sequence[int]]

# Epochs of a request that are not those of a member.
JOIN: Final = 0
LEAVE: Final = -1
AWAY: Final = -2  # a static member goes, and will be back


class HeartbeatRequest(NamedTuple):
    """A ConsumerGroupHeartbeat. None, and a rebalance timeout of -1, mean: unchanged since the last time.

    `names_its_own_id` (from v1): a new member brings its id. `asker`: on whose behalf expressions are resolved; the core only keeps it.
    """

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: Sequence[str] | None = None
    expression: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    names_its_own_id: bool = True
    asker: Any = None  # not `object`, which compiled code cannot have as a field of a tuple

    @property
    def is_full(self) -> bool:
        """Whether everything is said again: then the reply has the assignment, even if it has not changed."""
        return self.rebalance_timeout_ms != -1 and (self.topics is not None or self.expression is not None) and self.owned is not None


class HeartbeatReply(NamedTuple):
    """An error reply has a message and nothing else. `assignment` None: unchanged. `failure`: of an assignor, for the log."""

    error: int = 0
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    failure: Exception | None = None


class ConsumerMemberView(NamedTuple):
    """One member in ConsumerGroupDescribe. `assigned` has what it holds, what it is told to give up included."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    expression: str
    assigned: Partitions
    target: Partitions
    is_classic: bool


class ConsumerGroupView(NamedTuple):
    """One group in ConsumerGroupDescribe."""

    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[ConsumerMemberView, ...]


class Resolution(NamedTuple):
    """A group whose expressions are to be resolved, and who asked for it."""

    group_id: str
    asker: Any
