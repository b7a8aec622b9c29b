"""A member that behaves as a Java consumer: joins, syncs, heartbeats, commits, and notices a rebalance with its next heartbeat.

It sends only heartbeats with a visible effect. While it is healthy, its session does not expire; when it falls silent, the session expires
as after its last regular heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from coordinator import Commit, JoinReply, JoinRequest, Leaver, SyncReply, SyncRequest
from coordinator.deadlines import NEVER
from pipeline.virtual.assigning import (
    ASSIGNORS,
    TopicPartition,
    assigned_partitions,
    assignment_bytes,
    subscriber,
    subscription_bytes,
)
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequestPartition

if TYPE_CHECKING:
    from pipeline.virtual.world import World

COOPERATIVE: Final = "cooperative-sticky"
LEAVE_REASON: Final = "the consumer is being closed"
POLL_REASON: Final = "consumer poll timeout has expired."
COMMIT_VERSION_9: Final = ErrorCode.GROUP_ID_NOT_FOUND
MOVED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class PendingRequest:
    """A JoinGroup or SyncGroup in flight; the client receives the reply after a round trip."""

    __slots__ = ("_client", "_life", "_on_reply", "assignment", "member_id", "reply")

    def __init__(self, client: Client, on_reply: Callable[[PendingRequest], None]) -> None:
        self.member_id = ""
        self.assignment = b""
        self.reply: Any = None  # JoinReply, or SyncReply
        self._client = client
        self._life = client.life
        self._on_reply = on_reply

    def release(self) -> None:
        client = self._client
        if client.waits_for is self and client.life == self._life:
            client.later(client.rtt_ms, self._on_reply, self)

    def fail(self, error: int) -> None:
        self.reply = JoinReply(error)
        self.release()


class Client:
    """One process. `instance` makes it a static member; its session, rebalance and heartbeat times have Java's defaults."""

    def __init__(
        self,
        world: World,
        group: str,
        name: str,
        *,
        topics: Mapping[str, int],
        instance: str | None = None,
        client_id: str | None = None,
        host: str = "/10.0.0.1",
        assignors: Sequence[str] = ("range",),
        session_ms: int = 45_000,
        rebalance_ms: int = 300_000,
        heartbeat_ms: int = 3_000,
        poll_ms: int = 400,
        rtt_ms: int = 4,
        assign_ms: int = 0,
        leave_on_stop: bool = True,
        knows_skip_assignment: bool = True,
    ) -> None:
        """`topics`: the subscription, with the number of partitions of each; `poll_ms`: the longest time between polls; `assign_ms`: the time to
        compute assignments as the leader; `knows_skip_assignment`: send JoinGroup version 9 (KIP-814).
        """
        self.world = world
        self.group = group
        self.name = name
        self.topics = dict(topics)
        self.instance = instance
        self.client_id = client_id if client_id is not None else name
        self.host = host
        self.assignors = tuple(assignors)
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.heartbeat_ms = heartbeat_ms
        self.poll_ms = poll_ms
        self.rtt_ms = rtt_ms
        self.assign_ms = assign_ms
        self.knows_skip_assignment = knows_skip_assignment
        self.leave_on_stop = leave_on_stop and instance is None
        self.alive = False
        self.life = 0
        self.member_id = ""
        self.generation = -1
        self.protocol: str | None = None
        self.owned: list[TopicPartition] = []  # its current assignment
        self.settled = False  # whether it has the assignment of its generation
        self.waits_for: PendingRequest | None = None
        self.restart_number: int | None = None  # the number of its current restart, until the client has an assignment again
        self.revoking = False  # whether it rejoins so that its revoked partitions can be assigned (cooperative)
        self.on_assigned: Callable[[Client], None] | None = None  # called after an assignment
        self.on_revoked: Callable[[Client], None] | None = None  # called before it rejoins, if it has partitions
        self.on_gave_up: Callable[[Client], None] | None = None  # called when it ends with an error
        self._reason: str | None = None  # of the next JoinGroup
        self._frozen_until = 0
        self._busy_until = 0
        self._beats_from = 0
        self._beat_at = -1
        self._rejoin_at = -1

    # Scripted actions

    def start(self) -> None:
        assert not self.alive, f"{self.name} runs already"
        self.alive = True
        self.life += 1
        self.member_id = ""
        self.generation = -1
        self._frozen_until = self._busy_until = 0
        self._reason = None
        self._join()

    def stop(self, leave: bool | None = None, reason: str | None = LEAVE_REASON) -> None:
        """Stop in order: by default a dynamic member leaves the group and a static one does not."""
        if self.alive and (self.leave_on_stop if leave is None else leave) and self.member_id:
            self._apply_skipped_heartbeats()
            self._end(silent=False)
            self.world.leave(self, [Leaver(self.member_id, self.instance, reason)])
        else:
            self.crash()

    def crash(self) -> None:
        if self.alive:
            self._end(silent=True)

    def restart(self, away_ms: int, *, graceful: bool = True, host: str | None = None) -> int:
        """Stop now and start again after `away_ms`; return the number of the restart."""
        number = self.world.begin_restart(self, away_ms)
        self.restart_number = number
        if graceful:
            self.stop()
        else:
            self.crash()
        life = self.life

        def back() -> None:
            if self.life == life and not self.alive:
                self.host = host or self.host
                self.start()

        self.world.at(self.world.now + away_ms, back)
        return number

    def freeze(self, ms: int) -> None:
        """Pause the process, as a long garbage collection does."""
        self._fall_silent()
        self._frozen_until = self.world.now + ms
        self._beat_at = -1
        self._after(ms, self._beat)

    def busy(self, ms: int) -> None:
        """Process records for `ms`: the client sends heartbeats, but joins no rebalance. If `ms` exceeds `rebalance_ms`, see `_poll_too_late`."""
        self._busy_until = self.world.now + ms
        if ms > self.rebalance_ms:
            self._after(self.rebalance_ms, self._poll_too_late)

    def change_topics(self, topics: Mapping[str, int]) -> None:
        """Change the subscription, and rejoin."""
        self.topics = dict(topics)
        self._rejoin_in(self._until_poll())

    def rejoin(self, reason: str | None = None) -> None:
        """Rejoin, as a leader does when a topic gets more partitions."""
        self._reason = reason
        self._rejoin_in(0)

    def commit(self, offsets: Mapping[str, Sequence[tuple[int, int]]], metadata: str = "") -> int:
        """Commit offsets by topic; return the error code, -1 without a reply."""
        topics = [(topic, [OffsetCommitRequestPartition(number, offset, -1, metadata) for number, offset in partitions]) for topic, partitions in offsets.items()]
        commit = Commit(self.group, self.generation, self.member_id, self.instance, topics, unknown_group_error=COMMIT_VERSION_9)
        self._apply_skipped_heartbeats()
        code = self.world.commit(commit)
        self.keep_session()
        return code

    @property
    def healthy(self) -> bool:
        """Whether the process runs and sends heartbeats."""
        return self.alive and self.world.now >= self._frozen_until

    @property
    def working(self) -> bool:
        """Whether the member has partitions and polls."""
        return self.settled and self.healthy and bool(self.owned)

    # Rebalances

    def _join(self) -> None:
        self._rejoin_at = -1
        self.settled = False
        if self.owned and self.on_revoked is not None and not self._cooperates:
            self.on_revoked(self)
        metadata = subscription_bytes(sorted(self.topics), [] if self.assignors == ("range",) else self.owned)
        if not self._cooperates:
            self.owned = []
        protocols = tuple((name, metadata) for name in self.assignors)
        request_sent = self.waits_for = PendingRequest(self, self._joined)
        reason, self._reason = self._reason, None
        request = JoinRequest(
            self.group,
            self.member_id,
            self.instance,
            "consumer",
            protocols,
            self.session_ms,
            self.rebalance_ms,
            self.client_id,
            self.host,
            knows_skip_assignment=self.knows_skip_assignment,
            reason=reason,
        )
        self._apply_skipped_heartbeats()
        joined = self.world.join(self, request, request_sent)
        self.revoking = False
        if not joined:
            self.waits_for = None
            self._rejoin_in(self.world.retry_ms)

    @property
    def _cooperates(self) -> bool:
        return self.assignors[0] == COOPERATIVE

    def _joined(self, request_sent: PendingRequest) -> None:
        self.waits_for = None
        reply: JoinReply = request_sent.reply
        if reply.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = request_sent.member_id
            self._reason = f"need to re-join with the given member-id: {request_sent.member_id}"
            self._join()
            return
        if reply.error:
            self._refused(reply.error)
            return
        self.member_id = request_sent.member_id
        self.generation = reply.generation
        self.protocol = reply.protocol_name
        self._beats_from = self.world.now
        self.keep_session()
        assignments: dict[str, bytes] = {}
        pause = 0
        if reply.leader == self.member_id and not reply.skip_assignment:
            assignor = ASSIGNORS[reply.protocol_name or self.assignors[0]]
            seats = assignor([subscriber(*member) for member in reply.members], self.world.partitions_of(self))
            assignments = {id: assignment_bytes(places) for id, places in seats.items()}
            pause = self.assign_ms
        synced = self.waits_for = PendingRequest(self, self._synced)
        request = SyncRequest(self.group, self.generation, self.member_id, self.instance, assignments, "consumer", self.protocol)
        if pause:
            self.later(pause, lambda _: self._sync(request, synced), synced)
        else:
            self._sync(request, synced)

    def _sync(self, request: SyncRequest, synced: PendingRequest) -> None:
        if not self.world.sync(self, request, synced):
            self.waits_for = None
            self._rejoin_in(self.world.retry_ms)
        self.keep_session()

    def _synced(self, request_sent: PendingRequest) -> None:
        self.waits_for = None
        reply: SyncReply = request_sent.reply
        if reply.error:
            self._refused(reply.error)
            return
        before, self.owned = self.owned, assigned_partitions(request_sent.assignment)
        self.settled = True
        self.restart_number = None
        self.keep_session()
        if self.on_assigned is not None:
            self.on_assigned(self)
        if self._cooperates and not set(before) <= set(self.owned):
            self._reason = f"need to revoke partitions {sorted(set(before) - set(self.owned))[:3]} and re-join"
            self.revoking = True
            self._rejoin_in(self.rtt_ms)
        else:
            self.schedule_heartbeat()

    def _refused(self, error: int) -> None:
        """Handle an error code as a client does."""
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin_in(self._until_poll())
        elif error == ErrorCode.ILLEGAL_GENERATION:
            self.generation = -1
            self._rejoin_in(self._until_poll())
        elif error == ErrorCode.UNKNOWN_MEMBER_ID:
            self.generation, self.member_id = -1, ""
            self.owned = []
            self._rejoin_in(self._until_poll())
        elif error in MOVED:
            self._rejoin_in(self.world.retry_ms)
        else:
            self._end(silent=False)
            if self.on_gave_up is not None:
                self.on_gave_up(self)

    def _rejoin_in(self, ms: int) -> None:
        """Rejoin once, at the next poll."""
        moment = max(self.world.now + ms, self._busy_until)
        if self._rejoin_at < 0 and self.waits_for is None:
            self._rejoin_at = moment
            self.keep_session()
            self._after(moment - self.world.now, self._rejoin)

    def _rejoin(self) -> None:
        if self._rejoin_at < 0 or self.waits_for is not None:
            return
        if self.world.now < self._busy_until:
            self._rejoin_at = -1
            self._rejoin_in(0)
        else:
            self._join()

    def _until_poll(self) -> int:
        return self.world.random.randrange(self.poll_ms + 1)

    def _poll_too_late(self) -> None:
        """max.poll.interval.ms is over: as in Java's consumer, a dynamic member leaves and a static one falls silent."""
        if self.world.now >= self._busy_until or not self.member_id:
            return
        if self.instance is not None:
            self.freeze(self._busy_until - self.world.now)
            return
        self._apply_skipped_heartbeats()
        self.world.leave(self, [Leaver(self.member_id, None, POLL_REASON)])
        self.waits_for = None
        self._rejoin_at = -1
        self._refused(ErrorCode.UNKNOWN_MEMBER_ID)

    # Heartbeats

    def schedule_heartbeat(self) -> None:
        """The group has changed: schedule the next heartbeat, by which the member learns of it."""
        if self.healthy and self.waits_for is None and self._rejoin_at < 0 and self._beat_at < 0 and self.member_id:
            beats = (self.world.now - self._beats_from) // self.heartbeat_ms + 1
            self._beat_at = self._beats_from + beats * self.heartbeat_ms
            self._after(self._beat_at - self.world.now, self._beat)

    def _beat(self) -> None:
        self._beat_at = -1
        if not self.healthy or self.waits_for is not None or not self.member_id:
            return
        self._apply_skipped_heartbeats()
        code = self.world.heartbeat(self.group, self.generation, self.member_id, self.instance)
        if code < 0 or code in MOVED:
            self._after(self.world.retry_ms, self._beat)
        elif code == ErrorCode.NONE:
            self.keep_session()
        elif self._rejoin_at < 0:
            self._refused(code)

    def last_beat(self) -> int:
        """The time of its last regular heartbeat."""
        return self._beats_from + (self.world.now - self._beats_from) // self.heartbeat_ms * self.heartbeat_ms

    def keep_session(self) -> None:
        """Stop the session from expiring: from now on the skipped heartbeats count as sent in time."""
        member = self.world.member(self)
        if member is not None and self.healthy and not member.is_new:
            member.deadline = NEVER

    def _apply_skipped_heartbeats(self) -> None:
        """Set the time of the member's last heartbeat as if the skipped heartbeats, which have no visible effect, had been sent."""
        member = self.world.member(self)
        if member is not None and member.deadline == NEVER and member.join_waiter is None:
            member.seen_ms = max(member.seen_ms, self.last_beat())

    def _fall_silent(self) -> None:
        """Let the session expire, counted from its last regular heartbeat."""
        member = self.world.member(self)
        if member is not None and member.deadline == NEVER and not member.is_new:
            self._apply_skipped_heartbeats()
            self.world.set_deadline(self, member, member.seen_ms + member.session_timeout_ms)

    # Start and end of the process

    def _end(self, *, silent: bool) -> None:
        if silent:
            self._fall_silent()
        self.world.client_ended(self)
        self.alive = self.settled = False
        self.life += 1
        self.waits_for = None
        self._rejoin_at = self._beat_at = -1
        self.owned = []

    def lost_connection(self) -> None:
        """The coordinator stopped: send pending requests again."""
        if self.alive and self.waits_for is not None:
            self.waits_for = None
            self._rejoin_in(self.world.retry_ms)
        elif self.alive:
            self._after(self.world.retry_ms + self.world.random.randrange(1000), self._beat)

    def later(self, ms: int, step: Callable[[PendingRequest], None], request_sent: PendingRequest) -> None:
        self._after(ms, lambda: step(request_sent) if self.waits_for is request_sent else None)

    def _after(self, ms: int, step: Callable[[], None]) -> None:
        """Run `step` after `ms`, unless the process has ended then; if it is frozen, when it resumes."""
        life = self.life
        world = self.world

        def run() -> None:
            if self.life != life:
                return
            if world.now < self._frozen_until:
                world.at(self._frozen_until, run)
            else:
                step()

        world.at(max(world.now + ms, self._frozen_until), run)
