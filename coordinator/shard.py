"""A shard: the coordinator of one partition of __consumer_offsets and its groups.

A group is an actor: only its shard calls it, one call at a time, run to the end. Each call below is one step: it changes
memory at once, and at its end the facts, replies and notes go to the hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from coordinator import admin, expiry, identity, offsets
from coordinator.calls import (
    Commit,
    Description,
    JoinReply,
    JoinRequest,
    JoinWaiter,
    Leaver,
    ListedGroup,
    SyncReply,
    SyncRequest,
    SyncWaiter,
)
from coordinator.config import GroupConfig
from coordinator.deadlines import Deadlines
from coordinator.facts import group_image, group_key, storable
from coordinator.group import Group, TopicOffsets
from coordinator.hold import Fact, Hold
from coordinator.join import add, has_room, offers_protocol_twice, remove_over_size, require_member_id
from coordinator.leave import remove_leavers
from coordinator.member import Member, Pending
from coordinator.notes import Cause, Note
from coordinator.outcome import Outcome
from coordinator.rebalance import end_join_phase, end_sync_phase, expire_pending, expire_session, prepare
from coordinator.replay import Replay, open_group
from coordinator.rules import ROWS
from coordinator.states import PREPARING
from coordinator.sync import names_other_protocol
from coordinator.tallies import CommitRefusals, HeartbeatGaps
from protocol.errors import ErrorCode

NONE: Final = ErrorCode.NONE
UNKNOWN_MEMBER_ID: Final = ErrorCode.UNKNOWN_MEMBER_ID

GROUPS_AT_ONCE: Final = 50  # groups opened in one go: a few milliseconds with ten members each

# Takes the notes of one step and the number of its last fact, 0 if it emitted none.
NoteSink = Callable[[list[Note], int], None]


class HeldNotes:
    """Notes are held as replies are, and dropped when the log fails."""

    __slots__ = ("_note_sink", "_notes", "_stamp")

    def __init__(self, note_sink: NoteSink, notes: list[Note], stamp: int) -> None:
        self._note_sink = note_sink
        self._notes = notes
        self._stamp = stamp

    def release(self) -> None:
        self._note_sink(self._notes, self._stamp)

    def fail(self, error: int) -> None:
        pass


class Shard:
    """While `stalled`, the log is slow and replies may be late: a deadline that comes is extended, once.

    A member that is silent in the extra session too is removed, however slow the log is.
    """

    def __init__(self, config: GroupConfig, fresh_id: Callable[[], str], note_sink: NoteSink | None = None) -> None:
        self._config = config
        self._size_max = config.group_max_size
        self._fresh_id = fresh_id
        self._note_sink = note_sink
        self.groups: dict[str, Group] = {}
        self.clear()

    # Time.

    @property
    def wake_at(self) -> int:
        """A lower bound on the next deadline; waking early is harmless."""
        return self.deadlines.wake_at

    def advance(self, now: int, wall: int, steady_ms: int) -> None:
        """Handle all deadlines that have come, each in a separate step.

        `steady_ms`: the wall time since which the clock runs steadily. -1: it was set recently, so nothing is deleted by time yet.
        """
        out = self._out
        out.now = now
        out.wall = wall
        while (item := out.deadlines.pop(now)) is not None:
            if item is self._sweep:
                self._expire(steady_ms)
                continue
            if isinstance(item, Group):
                self._group_deadline(item)
            elif isinstance(item, Member):
                self._member_deadline(item)
            elif isinstance(item, Pending):
                self._pending_deadline(item)
            elif isinstance(item, (HeartbeatGaps, CommitRefusals)):
                item.add_notes(out, self.groups)
            self._end_step()

    def _expire(self, steady_ms: int) -> None:
        """Run one part of the sweep for expired offsets and groups."""
        for _ in expiry.sweep(self._out, self.groups, self._sweep, steady_ms):
            self._end_step()

    def _group_deadline(self, group: Group) -> None:
        out = self._out
        if group.state is PREPARING:
            end_join_phase(out, group)
        elif self.stalled and group.extended_at_ms != group.phase_start_ms:
            group.extended_at_ms = group.phase_start_ms
            out.deadlines.set(group, out.now + group.rebalance_timeout_ms)
        else:
            end_sync_phase(out, group)

    def _member_deadline(self, member: Member) -> None:
        if self.stalled and member.extended_at_ms != member.seen_ms:
            member.extended_at_ms = member.seen_ms
            self._out.restart_session(member)
        else:
            expire_session(self._out, self.groups[member.group_id], member)

    def _pending_deadline(self, pending: Pending) -> None:
        if self.stalled and not pending.extended:  # the reply with the id may still be held
            pending.extended = True
            self._out.deadlines.set(pending, self._out.now + pending.session_timeout_ms)
            return
        expire_pending(self._out, self.groups[pending.group_id], pending.id)

    def _end_step(self) -> None:
        """Hand the outcome to the hold: a reply waits for all facts its shard has emitted so far."""
        out = self._out
        hold = self.hold
        facts = out.facts
        if facts:
            hold.emit(facts, out.facts_bytes)
            out.facts = []
            out.facts_bytes = 0
        if out.replies:
            answers, out.replies = out.replies, []
            for waiter in answers:
                hold.reply(waiter)
        if out.notes:
            notes, out.notes = out.notes, []
            if self._note_sink is not None:
                hold.reply(HeldNotes(self._note_sink, notes, hold.emitted if facts else 0))

    # Members.

    def join(self, request: JoinRequest, waiter: JoinWaiter, now: int, wall: int) -> None:
        """JoinGroup. The waiter gets its reply at once or when the other members have joined."""
        out = self._out
        out.now = now
        out.wall = wall
        group = self.groups.get(request.group_id)
        member = group.members.get(request.member_id) if group is not None else None
        if group is None or member is None or member.repeatable_join is not request or group.parked_joins >= self._size_max:
            self._join(request, waiter)
        else:
            self._rejoin(group, member, request, waiter)
        self._end_step()

    def will_repeat(self, request: JoinRequest) -> bool:
        """Whether this JoinGroup can skip the checks when the same object is passed again.

        True if it repeats what the member joined with, which was checked then.
        """
        group = self.groups.get(request.group_id)
        member = group.members.get(request.member_id) if group is not None else None
        if (
            group is None
            or member is None
            or member.is_new  # may never rejoin
            or member.protocols != request.protocols
            or member.session_timeout_ms != request.session_timeout_ms
            or member.rebalance_timeout_ms != request.rebalance_timeout_ms
            or group.protocol_type != request.protocol_type
            or (request.instance_id is not None and member.instance_id != request.instance_id)
        ):
            return False
        request.protocols = member.protocols
        member.repeatable_join = request
        return True

    def _join(self, request: JoinRequest, waiter: JoinWaiter) -> None:
        out = self._out
        id = request.member_id
        config = out.config
        if not request.group_id:
            return out.refuse_join(waiter, id, ErrorCode.INVALID_GROUP_ID)
        if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
            return out.refuse_join(waiter, id, ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self.groups.get(request.group_id)
        if group is None:
            if id:
                return out.refuse_join(waiter, id, ErrorCode.UNKNOWN_MEMBER_ID)
            if not storable(request.group_id):
                return out.refuse_join(waiter, "", ErrorCode.UNKNOWN_SERVER_ERROR)
            group = self._create(request.group_id)
            group.last_image = group_image(group, (), None, None)
            out.facts.append((group_key(group.id), group.last_image))
        if not has_room(group, request, config.group_max_size):
            remove_over_size(out, group, id)
            return out.refuse_join(waiter, "", ErrorCode.GROUP_MAX_SIZE_REACHED)
        member = group.members.get(id)
        # An unchanged offer was checked before.
        if member is None or member.protocols != request.protocols or group.protocol_type != request.protocol_type:
            if offers_protocol_twice(request) or not group.accepts(request.protocol_type, request.protocols):
                return out.refuse_join(waiter, id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if not storable(request.client_id, request.client_host, request.protocol_type, *[name for name, _ in request.protocols]):
                return out.refuse_join(waiter, "", ErrorCode.UNKNOWN_SERVER_ERROR)
        if not id:
            return self._join_without_id(group, request, waiter)
        if id in group.pending:
            if request.instance_id is not None:  # only dynamic members get pending ids
                return out.refuse_join(waiter, "", ErrorCode.UNKNOWN_SERVER_ERROR)
            return add(out, group, request, waiter, id)
        instance = request.instance_id
        if member is None or (instance is not None and member.instance_id != instance):
            return out.refuse_join(waiter, id, identity.refusal(group, id, instance))
        return self._rejoin(group, member, request, waiter)

    def _rejoin(self, group: Group, member: Member, request: JoinRequest, waiter: JoinWaiter) -> None:
        rule = ROWS[group.state].rejoin
        if not callable(rule):
            return self._out.refuse_join(waiter, member.id, rule)
        return rule(self._out, group, member, request, waiter)

    def _join_without_id(self, group: Group, request: JoinRequest, waiter: JoinWaiter) -> None:
        out = self._out
        instance = request.instance_id
        new_id = f"{request.client_id if instance is None else instance}-{out.fresh_id()}"
        if not storable(new_id):
            return out.refuse_join(waiter, "", ErrorCode.UNKNOWN_SERVER_ERROR)
        if instance is None:
            if request.needs_member_id:
                return require_member_id(out, group, request, waiter, new_id)
        elif instance in group.statics:
            rule = ROWS[group.state].static_return
            if isinstance(rule, ErrorCode):
                return out.refuse_join(waiter, "", rule)
            return rule(out, group, group.members[group.statics[instance]], request, waiter, new_id)
        return add(out, group, request, waiter, new_id)

    def sync(self, request: SyncRequest, waiter: SyncWaiter, now: int, wall: int) -> None:
        """SyncGroup. The waiter gets its reply at once or when the leader has sent the assignments."""
        out = self._out
        out.now = now
        out.wall = wall
        error = self._sync(out, request, waiter)
        if error:
            out.refuse_sync(waiter, error)
        self._end_step()

    def _sync(self, out: Outcome, request: SyncRequest, waiter: SyncWaiter) -> int:
        group = self.groups.get(request.group_id)
        if group is None:
            return UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        member = group.members.get(request.member_id)
        instance = request.instance_id
        if member is None or (instance is not None and member.instance_id != instance):
            return identity.refusal(group, request.member_id, instance)
        if request.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        differs = request.protocol_name != group.protocol_name or request.protocol_type != group.protocol_type
        if differs and names_other_protocol(group, request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        rule = ROWS[group.state].sync
        if not callable(rule):
            return rule
        rule(out, group, member, request, waiter)
        return NONE

    def heartbeat(self, group_id: str, generation: int, member_id: str, instance_id: str | None, now: int) -> int:
        """Heartbeat: its error code. Emits no facts and ends no step."""
        group = self.groups.get(group_id)
        if group is None:
            return UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
        member = group.members.get(member_id)
        if member is None or (instance_id is not None and member.instance_id != instance_id):
            return identity.refusal(group, member_id, instance_id)
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self.refresh_session(member, now)
        return ROWS[group.state].heartbeat

    def refresh_session(self, member: Member, now: int) -> None:
        """Restart the member's session, after a gap in its heartbeats too."""
        if member.renew_session(now):
            return
        gap = now - member.seen_ms
        member.seen_ms = now
        if gap * 3 > member.session_timeout_ms:
            self._heartbeat_gaps.add(self._out, member, gap, now)
        self._out.deadlines.set(member, now + member.session_timeout_ms)

    def leave(self, group_id: str, leavers: list[Leaver], now: int, wall: int) -> list[int]:
        """LeaveGroup: an error code for each leaver, and one rebalance for all."""
        group = self.groups.get(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leavers)
        out = self._out
        out.now = now
        out.wall = wall
        codes, cause, about = remove_leavers(out, group, leavers)
        if cause is not None:
            ROWS[group.state].after_leave(out, group, cause, about)
        self._end_step()
        return codes

    def _create(self, group_id: str) -> Group:
        group = self.groups[group_id] = Group(group_id, self._out.now, self._out.wall)
        group.offsets = self._leftovers.pop(group_id, {})
        return group

    # Offsets.

    def commit(self, commit: Commit, now: int, wall: int) -> int:
        """OffsetCommit: the error code for all partitions, except that those in `commit.too_large` get error 12."""
        out = self._out
        out.now = now
        out.wall = wall
        error = self._commit(commit)
        if error and commit.group_id in self.groups:
            self._refusals.add(out, (commit.group_id, error, commit.member_id, commit.instance_id))
        self._end_step()
        return error

    def _commit(self, commit: Commit) -> int:
        out = self._out
        group = self.groups.get(commit.group_id)
        if group is None:
            if commit.generation >= 0:
                return commit.missing_group_error
            if not storable(commit.group_id):
                return ErrorCode.UNKNOWN_SERVER_ERROR
            group = self._create(commit.group_id)
            error = offsets.store(out, group, commit)
            if error:
                del self.groups[group.id]
                if group.offsets:  # they outlived the group's tombstone
                    self._leftovers[group.id] = group.offsets
            return error
        member = group.members.get(commit.member_id)
        instance = commit.instance_id
        if (
            member is None
            or commit.generation != group.generation
            or commit.generation < 0
            or (instance is not None and member.instance_id != instance)
        ):
            error = offsets.refusal(group, commit)
            if error:
                return error
        refused = ROWS[group.state].commit
        if refused:
            return refused
        if member is not None:
            self.refresh_session(member, out.now)
        return offsets.store(out, group, commit)

    def delete_offsets(self, group_id: str, wanted: list[tuple[str, int]], now: int, wall: int) -> tuple[int, list[int]]:
        """OffsetDelete: an error for the whole request, or a code for each partition."""
        group = self.groups.get(group_id)
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, []
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, []
        self._out.now = now
        self._out.wall = wall
        answer = admin.delete_offsets(self._out, group, wanted)
        self._end_step()
        return answer

    def forget_topics(self, deleted: dict[str, int], now: int, wall: int) -> None:
        """Drop the offsets of deleted topics that were committed up to each topic's deletion time."""
        self._out.now = now
        self._out.wall = wall
        for group in self.groups.values():
            if not deleted.keys().isdisjoint(group.offsets):
                for _ in admin.forget_topics(self._out, group, deleted):
                    self._end_step()
                self._end_step()

    # Administration.

    def describe(self, group_id: str) -> Description:
        return admin.describe(self.groups.get(group_id))

    def listed(self) -> list[ListedGroup]:
        return [admin.listed(group) for group in self.groups.values()]

    def delete(self, group_id: str, now: int, wall: int) -> int:
        """DeleteGroups of one group: its code."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        self._out.now = now
        self._out.wall = wall
        error = admin.delete(self._out, self.groups, group)
        self._end_step()
        return error

    # Life cycle: replayed from its log, serving, abandoned; then it may be replayed again.

    def clear(self) -> None:
        """Forget everything, waiting replies included: call `abandon` first if there may be some."""
        self.hold = Hold(self._config.batch_bytes_max)
        self._end_groups()
        self.stalled = False
        self._leftovers: dict[str, dict[str, TopicOffsets]] = {}  # group id -> offsets that outlived the group's tombstone
        self._out = Outcome(self._config, self._fresh_id)
        self.deadlines = self._out.deadlines
        self._sweep = expiry.Sweep()
        self._heartbeat_gaps = HeartbeatGaps()
        self._refusals = CommitRefusals()
        self._replay = Replay(self.groups, self._leftovers)

    def _end_groups(self) -> None:
        for group in self.groups.values():
            group.invalidate()
        self.groups.clear()

    def replay(self, facts: Iterable[Fact]) -> None:
        """Fold stored facts, in log order. Raises ProtocolError on records that cannot be read."""
        self._replay.fold(facts)

    def open_groups(self, time: Callable[[], tuple[int, int]]) -> Iterator[None]:
        """After replay, set up groups and begin sessions; yields at times, so that the event loop can run in between.

        `time` returns the monotonic and the wall time.
        """
        strings: dict[str, str] = {}

        def shared(text: str) -> str:
            return strings.setdefault(text, text)

        out = self._out
        for number, group in enumerate(list(self.groups.values())):
            if number % GROUPS_AT_ONCE == GROUPS_AT_ONCE - 1:
                yield
            out.now, out.wall = time()
            open_group(group, shared)
            for member in group.members.values():
                member.seen_ms = out.now
                out.restart_session(member)
            if len(group.members) > out.config.group_max_size:
                prepare(out, group, Cause.OVER_MAX_SIZE)
        out.now, out.wall = time()
        self._replay = Replay(self.groups, self._leftovers)
        expiry.plan(out, self._sweep)
        self._end_step()

    def abandon(self) -> None:
        """Stop being the coordinator: parked requests get NOT_COORDINATOR, and their clients look it up again."""
        for group in self.groups.values():
            for member in group.members.values():
                if member.join is not None:
                    member.join.member_id = member.id
                    member.join.reply = JoinReply(ErrorCode.NOT_COORDINATOR)
                    member.join.release()
                if member.sync is not None:
                    member.sync.assignment = b""
                    member.sync.reply = SyncReply(ErrorCode.NOT_COORDINATOR)
                    member.sync.release()
                member.join = member.sync = None
        for waiter in self._out.replies:  # of a step that raised
            waiter.fail(ErrorCode.NOT_COORDINATOR)
        self._end_groups()
        self.deadlines = self._out.deadlines = Deadlines()
        self._out.replies.clear()
        self._out.facts.clear()
        self._out.notes.clear()
