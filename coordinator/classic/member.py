"""A member of a group, and a member id that was handed out but has not joined yet."""

from __future__ import annotations

from typing import Any, ClassVar, Final, NamedTuple

from coordinator.calls import Closable, JoinRequest, JoinWaiter, Protocols, SyncWaiter
from coordinator.deadlines import NEVER, Timed


class Absence(NamedTuple):
    """The time since which a member is away: its session has ended, and it keeps its place in the group."""

    since_ms: int  # monotonic
    since_wall_ms: int  # as stored


class Member(Timed):
    """A member. Its deadline is the end of its session; a member with a parked request may have none."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "extended_since_ms",
        "group_id",
        "id",
        "instance_id",
        "is_new",
        "join_waiter",
        "must_rejoin",
        "protocols",
        "rebalance_timeout_ms",
        "repeatable_join",
        "seen_ms",
        "session_timeout_ms",
        "successor_host",
        "sync_waiter",
    )

    def __init__(
        self,
        group_id: str,
        id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
        is_new: bool = True,
        seen_ms: int = 0,
    ) -> None:
        super().__init__()
        # Every heartbeat uses the first two, which compiled code stores beside the deadline.
        self.session_timeout_ms = session_timeout_ms
        self.seen_ms = seen_ms  # the last heartbeat, or other request that restarts the session
        self.group_id = group_id
        self.id = id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.successor_host = ""  # of a process that took the seat over: `client_host` stays that of the first one, as in Kafka
        self.is_new = is_new  # never part of a generation yet
        self.extended_since_ms = -1  # `seen_ms` of the last session that was extended (`Deadlines.extends`)
        self.repeatable_join: JoinRequest | None = None  # a checked JoinGroup that the client may repeat (`Shard.remember_repeatable_join`)
        self.join_waiter: JoinWaiter | None = None  # its parked JoinGroup
        self.sync_waiter: SyncWaiter | None = None  # its parked SyncGroup
        self.must_rejoin = False  # it gets the seat of a removed member: its heartbeats are told to rejoin, without a rebalance

    def renew_session(self, now: int) -> bool:
        """Restart the session and return True; or return False and change nothing: the caller must use `Shard.refresh_session`.

        It returns False after a gap in the heartbeats, which must be counted, and if the deadline would become earlier.
        """
        timeout = self.session_timeout_ms
        deadline = now + timeout
        if (now - self.seen_ms) * 3 > timeout or deadline < self.scheduled_at:
            return False
        self.seen_ms = now
        self.deadline = deadline
        return True

    def due(self, out: Any, groups: Any) -> None:
        from coordinator.classic.due import session_due

        session_due(out, groups[self.group_id], self)

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for the given protocol."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


class PendingMember(Timed):
    """A member id that was handed out with MEMBER_ID_REQUIRED; dropped if no JoinGroup uses it in time."""

    __slots__ = ("connection", "expires_ms", "extended", "group_id", "id", "session_timeout_ms")

    def __init__(self, group_id: str, id: str, session_timeout_ms: int) -> None:
        super().__init__()
        self.group_id = group_id
        self.id = id
        self.session_timeout_ms = session_timeout_ms
        self.connection: Closable | None = None  # if the id is released when its connection closes
        self.expires_ms = NEVER  # the end of its session, if its deadline is the next check of the connection
        self.extended = False  # its deadline was extended (`Deadlines.extends`)

    def due(self, out: Any, groups: Any) -> None:
        from coordinator.classic.due import pending_due

        pending_due(out, groups[self.group_id], self)


CHECK_MS: Final = 1_000  # how often the connection of a waiting client is checked

# (True, instance id), or (False, member id of a dynamic newcomer).
NewcomerKey = tuple[bool, str]


class Newcomer:
    """A client that waits with its JoinGroup parked until a rebalance admits it (`waiting.py`)."""

    __slots__ = ("arrived_ms", "check_ms", "closed_ms", "due_ms", "id", "request", "waiter")

    def __init__(self, id: str, request: JoinRequest, waiter: JoinWaiter, arrived_ms: int, due_ms: int, check_ms: int) -> None:
        self.id = id
        self.request = request
        self.waiter = waiter
        self.arrived_ms = arrived_ms
        self.due_ms = due_ms  # when a rebalance admits it at the latest
        self.check_ms = check_ms  # when to check whether its connection is closed
        self.closed_ms = -1  # when a check first found the connection closed; -1: not yet


class GroupTimer(Timed):
    """A timer of a group besides that of its phases; it comes after sessions that end in the same millisecond."""

    __slots__ = ("group_id",)
    rank: ClassVar[int] = 1

    def __init__(self, group_id: str) -> None:
        super().__init__()
        self.group_id = group_id


class NewcomerTimer(GroupTimer):
    """Its deadline is the rebalance that admits the newcomers, or the next check of their connections if that is earlier."""

    __slots__ = ()

    def due(self, out: Any, groups: Any) -> None:
        from coordinator.classic.due import newcomers_due

        newcomers_due(out, groups[self.group_id])
