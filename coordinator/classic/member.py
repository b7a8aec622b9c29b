"""A member of a group, and a member id that was handed out but has not joined yet."""

from __future__ import annotations

from coordinator.calls import Closable, JoinRequest, JoinWaiter, Protocols, SyncWaiter
from coordinator.deadlines import NEVER, Timed


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
        self.extended_since_ms = -1  # `seen_ms` of the last session that was extended (`Shard.extends_deadlines`)
        self.repeatable_join: JoinRequest | None = None  # a checked JoinGroup that the client may repeat (`Shard.remember_repeatable_join`)
        self.join_waiter: JoinWaiter | None = None  # its parked JoinGroup
        self.sync_waiter: SyncWaiter | None = None  # its parked SyncGroup

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
        self.connection: Closable | None = None  # if the id is released when its connection closes (`pending_release.py`)
        self.expires_ms = NEVER  # the end of its session, if its deadline is the next check of the connection
        self.extended = False  # its deadline was extended (`Shard.extends_deadlines`)
