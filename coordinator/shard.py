"""One partition of __consumer_offsets: its groups, who speaks to them, and what the log says of them.

A group is an actor: nothing but its shard calls it, one call at a time, run to the end. Each call below is one step: it
changes memory at once, and what it produced (facts, replies, notes) goes to the hold when it is over.
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

GROUPS_AT_ONCE: Final = 50  # opened in one go; of ten members each that is a few milliseconds

# Notes of one step, and the number of the last fact it emitted, 0 when it emitted none.
NoteSink = Callable[[list[Note], int], None]


class HeldNotes:
    """Notes leave as replies do, and are dropped where a reply would be refused."""

    __slots__ = ("_notes", "_stamp", "_told")

    def __init__(self, told: NoteSink, notes: list[Note], stamp: int) -> None:
        self._told = told
        self._notes = notes
        self._stamp = stamp

    def release(self) -> None:
        self._told(self._notes, self._stamp)

    def fail(self, error: int) -> None:
        pass


class Shard:
    """`stalled` says that the log is slow: the answer before may be late, so a deadline that ends now is put off, once.

    A member that gives no sign of life in the further session either is gone, however slow the log is.
    """

    def __init__(self, config: GroupConfig, fresh_id: Callable[[], str], told: NoteSink | None = None) -> None:
        self._config = config
        self._size_max = config.group_max_size
        self._fresh_id = fresh_id
        self._told = told
        self.groups: dict[str, Group] = {}
        self.clear()

    # Time.

    @property
    def wake_at(self) -> int:
        """A lower bound on the next deadline; waking early is harmless."""
        return self.deadlines.wake_at

    def advance(self, now: int, wall: int, steady_ms: int) -> None:
        """Do what is due. Each deadline is a step of its own.

        `steady_ms`: the wall time from which on the clock has run steadily. -1: it was set, and nothing is deleted by time yet.
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
        """Groups and offsets that nobody came back for, some at a time."""
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
        if self.stalled and not pending.extended:  # its owner may not have been told it yet
            pending.extended = True
            self._out.deadlines.set(pending, self._out.now + pending.session_timeout_ms)
            return
        expire_pending(self._out, self.groups[pending.group_id], pending.id)

    def _end_step(self) -> None:
        """Hand over what the step produced: a reply is stamped with every fact that its shard has emitted by then."""
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
            if self._told is not None:
                hold.reply(HeldNotes(self._told, notes, hold.emitted if facts else 0))

    # Members.

    def join(self, request: JoinRequest, waiter: JoinWaiter, now: int, wall: int) -> None:
        """JoinGroup. The waiter is answered at once or when others have joined."""
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
        """A JoinGroup was seen that may come again as the same object: whether it need not be looked at then.

        It says what is known of its member, and that was found right when it was taken.
        """
        group = self.groups.get(request.group_id)
        member = group.members.get(request.member_id) if group is not None else None
        if (
            group is None
            or member is None
            or member.is_new  # and may never come back
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
        # Whoever offers what it offered before has been looked at then.
        if member is None or member.protocols != request.protocols or group.protocol_type != request.protocol_type:
            if offers_protocol_twice(request) or not group.accepts(request.protocol_type, request.protocols):
                return out.refuse_join(waiter, id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if not storable(request.client_id, request.client_host, request.protocol_type, *[name for name, _ in request.protocols]):
                return out.refuse_join(waiter, "", ErrorCode.UNKNOWN_SERVER_ERROR)
        if not id:
            return self._join_without_id(group, request, waiter)
        if id in group.pending:
            if request.instance_id is not None:  # such ids are handed to dynamic members alone
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
        """SyncGroup. The waiter is answered at once or when the leader has brought the assignments."""
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
        """Heartbeat: its code. Nothing is emitted, scheduled or made on the way."""
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
        """Its session begins anew. A deadline that moves later needs no scheduling."""
        gap = now - member.seen_ms
        member.seen_ms = now
        if gap * 3 > member.session_timeout_ms:
            self._heartbeat_gaps.add(self._out, member, gap, now)
        member.deadline = deadline = now + member.session_timeout_ms
        if deadline < member.scheduled_at:
            self._out.deadlines.reschedule(member)

    def leave(self, group_id: str, leavers: list[Leaver], now: int, wall: int) -> list[int]:
        """LeaveGroup: one code for each, and one rebalance for all."""
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
        """OffsetCommit: the code for all partitions; those in `commit.too_large` get error 12 all the same."""
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
                if group.offsets:  # of before its tombstone
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
        """OffsetDelete: an error for the whole, or one code for each."""
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
        """Topics were deleted, each at its moment: nobody asks again for what was committed up to then."""
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

    # Life: a shard is replayed from its log, serves, and is given up; then it may be replayed again.

    def clear(self) -> None:
        """Forget everything, the replies that wait included: `abandon` comes before where there may be some."""
        self.hold = Hold(self._config.batch_bytes_max)
        self._end_groups()
        self.stalled = False
        self._leftovers: dict[str, dict[str, TopicOffsets]] = {}  # offsets of groups that a tombstone ended without them
        self._out = Outcome(self._config, self._fresh_id)
        self.deadlines = self._out.deadlines
        self._sweep = expiry.Sweep()
        self._heartbeat_gaps = HeartbeatGaps()
        self._refusals = CommitRefusals()
        self._replay = Replay(self.groups, self._leftovers)

    def _end_groups(self) -> None:
        for group in self.groups.values():
            group.end()
        self.groups.clear()

    def replay(self, facts: Iterable[Fact]) -> None:
        """Fold stored facts, in the order of the log. ProtocolError: they cannot be understood."""
        self._replay.fold(facts)

    def open_groups(self, time: Callable[[], tuple[int, int]]) -> Iterator[None]:
        """After the last fact was replayed: groups and sessions begin, some at a time, so that a loop can go on in between.

        `time` answers the monotonic and the wall time, as other calls get them.
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
        """No longer the coordinator, for now or for good: whoever is parked is sent to look for it anew."""
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
        for waiter in self._out.replies:  # of a step that never came to its end
            waiter.fail(ErrorCode.NOT_COORDINATOR)
        self._end_groups()
        self.deadlines = self._out.deadlines = Deadlines()
        self._out.replies.clear()
        self._out.facts.clear()
        self._out.notes.clear()
