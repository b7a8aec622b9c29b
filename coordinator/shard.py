"""A shard: the coordinator of one partition of __consumer_offsets and its groups.

A group is an actor: only its shard calls it, one call at a time, run to the end. Each public method is one step: it changes
memory at once, and at its end the facts, replies and notes go to the hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from typing import Final

from coordinator import admin, expiry, offsets
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
from coordinator.classic import identity
from coordinator.classic.group import Group
from coordinator.classic.join import (
    admit_newcomer,
    exceeded_setting,
    has_room,
    offers_protocol_twice,
    refuse_over_limit,
    remove_over_size,
    require_member_id,
)
from coordinator.classic.kept import KeptBytes
from coordinator.classic.leave import remove_leavers
from coordinator.classic.member import Member
from coordinator.classic.rebalance import begin_rebalance, drop_pending, heard_from, settle
from coordinator.classic.rules import ROWS
from coordinator.classic.sync import names_other_protocol
from coordinator.classic.waiting import is_waiting
from coordinator.committed import TopicOffsets
from coordinator.config import GroupConfig
from coordinator.consumer.group import ConsumerGroup
from coordinator.consumer.member import ConsumerTimed
from coordinator.consumer.note_count import UNKNOWN
from coordinator.consumer.offsets import commit_refusal, fetch_refusal
from coordinator.consumer.room import Room
from coordinator.consumer.topics import TopicsView
from coordinator.consumer.views import listed as listed_consumers
from coordinator.deadlines import Deadlines
from coordinator.facts import deletions_fact, group_key, group_value, storable
from coordinator.hold import Fact, Hold, UntilDurable
from coordinator.notes import Cause, Note
from coordinator.policies.door import ShardPolicies
from coordinator.replay import Replay, drop_empty_topics, open_group
from coordinator.states import STABLE
from coordinator.step_output import LimitSink, StepOutput
from coordinator.tallies import CommitRefusals, HeartbeatGaps
from protocol.errors import ErrorCode

NONE: Final = ErrorCode.NONE
UNKNOWN_MEMBER_ID: Final = ErrorCode.UNKNOWN_MEMBER_ID

GROUPS_PER_STEP: Final = 50  # groups opened before `open_groups` yields: a few milliseconds with ten members each

# Called with the notes of one step and the number of its last fact, 0 if it emitted none.
NoteSink = Callable[[list[Note], int], None]


class HeldNotes(UntilDurable):
    """The notes of one step, held like its replies. A failed append drops them; a late append does not."""

    __slots__ = ("_fact_number", "_note_sink", "_notes")

    def __init__(self, note_sink: NoteSink, notes: list[Note], fact_number: int) -> None:
        self._note_sink = note_sink
        self._notes = notes
        self._fact_number = fact_number

    def release(self) -> None:
        self._note_sink(self._notes, self._fact_number)

    def fail(self, error: int) -> None:
        pass


class Shard:
    """The coordinator of one partition."""

    def __init__(
        self,
        config: GroupConfig,
        fresh_id: Callable[[], str],
        note_sink: NoteSink | None = None,
        kept: KeptBytes | None = None,
        limit_sink: LimitSink | None = None,
        topics: TopicsView | None = None,
    ) -> None:
        """`kept`: counts what the groups of all shards keep; without it this shard counts alone. `topics`: the view that all shards share; without it
        only `consumers.change_topics` changes this shard's own."""
        self._config = config
        self.kept = KeptBytes() if kept is None else kept
        self._limit_sink = limit_sink
        self._size_max = config.group_max_size
        self._fresh_id = fresh_id
        self._note_sink = note_sink
        self.groups: dict[str, Group] = {}  # those of the classic protocol; `consumers` has the others
        self._topics = TopicsView() if topics is None else topics
        self._begin()

    # Time.

    @property
    def wake_at(self) -> int:
        """A lower bound on the next deadline; waking early is harmless."""
        return self.deadlines.wake_at

    def advance(self, now: int, wall: int, steady_since_ms: int) -> None:
        """Handle all expired deadlines, each in a separate step.

        `steady_since_ms`: the wall time since which the clock has run steadily; -1: the clock was set recently, so nothing expires by age yet.
        """
        out = self._out
        out.now = now
        out.wall = wall
        while (item := out.deadlines.pop(now)) is not None:
            if item is self._sweep:
                self._expire(steady_since_ms)
                continue
            if isinstance(item, ConsumerTimed):
                item.due(out, self.consumers)
            else:
                item.due(out, self.groups)
            self._end_step()

    def _expire(self, steady_since_ms: int) -> None:
        """Run one step of the sweep for expired offsets and groups."""
        for _ in expiry.run_step(self._out, self.groups, self.consumers, self._sweep, steady_since_ms):
            self._end_step()

    def _end_step(self) -> None:
        """Hand the step's output to the hold: a reply waits for all facts its shard has emitted so far."""
        out = self._out
        hold = self.hold
        facts = out.facts
        if facts:
            hold.emit(facts, out.facts_bytes)
            out.facts = []
            out.facts_bytes = 0
        if out.replies:
            replies, out.replies = out.replies, []
            for waiter in replies:
                hold.hold_reply(waiter)
        if out.notes:
            notes, out.notes = out.notes, []
            if self._note_sink is not None:
                hold.hold_reply(HeldNotes(self._note_sink, notes, hold.emitted if facts else 0))

    # Members.

    def join(self, request: JoinRequest, waiter: JoinWaiter, now: int, wall: int) -> None:
        """Handle a JoinGroup. The waiter gets its reply at once or when the other members have joined."""
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

    def remember_repeatable_join(self, request: JoinRequest) -> bool:
        """Remember this JoinGroup, so that it skips the checks when the same object is passed again.

        False: it is not remembered, because the member is unknown or new, or the request differs from its last checked JoinGroup.
        """
        group = self.groups.get(request.group_id)
        member = group.members.get(request.member_id) if group is not None else None
        if (
            group is None
            or member is None
            or member.is_new  # a new member may never rejoin
            or member.protocols != request.protocols
            or member.session_timeout_ms != request.session_timeout_ms
            or member.rebalance_timeout_ms != request.rebalance_timeout_ms
            or group.protocol_type != request.protocol_type
            or (request.instance_id is not None and member.instance_id != request.instance_id)
        ):
            return False
        request.protocols = member.protocols
        request.connection = None
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
            consumers = self.consumers.of_members(request.group_id)
            if consumers is not None:
                return self.consumers.classic_join(consumers, request, waiter)
            if id:
                return out.refuse_join(waiter, id, ErrorCode.UNKNOWN_MEMBER_ID)
            if not storable(request.group_id):
                return out.refuse_join(waiter, "", ErrorCode.UNKNOWN_SERVER_ERROR)
            door = self.policies.door_of(request.group_id)
            error = door.refusal(out, None, None, request) if door is not None else NONE
            if error:
                return out.refuse_join(waiter, "", error)
            setting = exceeded_setting(out, None, None, request)
            if setting:
                return refuse_over_limit(out, request, waiter, setting)
            group = self._create(request.group_id)
            group.last_record = group_value(group, (), None, None)
            out.facts.append((group_key(group.id), group.last_record))
        policies = group.policies
        if policies is not None:
            error = policies.refusal(out, group, group.members.get(id), request)
            if error:
                return out.refuse_join(waiter, "", error)
        if not has_room(group, request, config.group_max_size):
            remove_over_size(out, group, id)
            return out.refuse_join(waiter, "", ErrorCode.GROUP_MAX_SIZE_REACHED)
        member = group.members.get(id)
        # Unchanged protocols were checked when the member joined.
        if member is None or member.protocols != request.protocols or group.protocol_type != request.protocol_type:
            if offers_protocol_twice(request) or not group.accepts(request.protocol_type, request.protocols):
                return out.refuse_join(waiter, id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if not storable(request.client_id, request.client_host, request.protocol_type, *[name for name, _ in request.protocols]):
                return out.refuse_join(waiter, "", ErrorCode.UNKNOWN_SERVER_ERROR)
            setting = exceeded_setting(out, group, member, request)
            if setting:
                drop_pending(out, group, id)
                return refuse_over_limit(out, request, waiter, setting)
        if not id:
            return self._join_without_id(group, request, waiter)
        if id in group.pending_members:
            if request.instance_id is not None:  # only dynamic members get pending ids
                return out.refuse_join(waiter, "", ErrorCode.UNKNOWN_SERVER_ERROR)
            return admit_newcomer(out, group, request, waiter, id)
        instance = request.instance_id
        if group.newcomers and is_waiting(group, id, instance):
            return admit_newcomer(out, group, request, waiter, id)
        if member is None or (instance is not None and member.instance_id != instance):
            return out.refuse_join(waiter, id, identity.check_ids(group, id, instance))
        return self._rejoin(group, member, request, waiter)

    def _rejoin(self, group: Group, member: Member, request: JoinRequest, waiter: JoinWaiter) -> None:
        heard_from(self._out, group, member, False)
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
        elif instance in group.static_members:
            rule = ROWS[group.state].static_return
            if isinstance(rule, ErrorCode):
                return out.refuse_join(waiter, "", rule)
            return rule(out, group, group.members[group.static_members[instance]], request, waiter, new_id)
        return admit_newcomer(out, group, request, waiter, new_id)

    def sync(self, request: SyncRequest, waiter: SyncWaiter, now: int, wall: int) -> None:
        """Handle a SyncGroup. The waiter gets its reply at once or when the leader has sent the assignments."""
        out = self._out
        out.now = now
        out.wall = wall
        error = self._sync(out, request, waiter)
        if error:
            out.refuse_sync(waiter, error)
        self._end_step()

    def _sync(self, out: StepOutput, request: SyncRequest, waiter: SyncWaiter) -> int:
        group = self.groups.get(request.group_id)
        if group is None:
            consumers = self.consumers.groups.get(request.group_id)
            if consumers is not None:
                return self.consumers.classic_sync(consumers, request, waiter)
            return UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        member = group.members.get(request.member_id)
        instance = request.instance_id
        if member is None or (instance is not None and member.instance_id != instance):
            return identity.check_ids(group, request.member_id, instance) if request.group_id else ErrorCode.INVALID_GROUP_ID
        if request.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        differs = request.protocol_name != group.protocol_name or request.protocol_type != group.protocol_type
        if differs and names_other_protocol(group, request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        heard_from(out, group, member, True)
        rule = ROWS[group.state].sync
        if not callable(rule):
            return rule
        rule(out, group, member, request, waiter)
        return NONE

    def heartbeat(self, group_id: str, generation: int, member_id: str, instance_id: str | None, now: int) -> int:
        """Handle a Heartbeat; return its error code. It emits facts and ends a step only if it ends the member's absence."""
        group = self.groups.get(group_id)
        if group is None:
            consumers = self.consumers.groups.get(group_id)
            if consumers is not None:
                self._set_now(now)
                return self.consumers.classic_heartbeat(consumers, member_id, instance_id, generation)
            return UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
        member = group.members.get(member_id)
        if member is None or (instance_id is not None and member.instance_id != instance_id):
            return identity.check_ids(group, member_id, instance_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self.refresh_session(member, now)
        if member.must_rejoin:
            return ErrorCode.REBALANCE_IN_PROGRESS  # like every reply, held until the group is stored without the removed member
        return ROWS[group.state].heartbeat

    def _set_now(self, now: int) -> None:
        """The caller of a heartbeat passes no wall time."""
        self._out.wall += now - self._out.now
        self._out.now = now

    def refresh_session(self, member: Member, now: int) -> None:
        """Restart the member's session, count a gap in its heartbeats, and end its absence."""
        if member.renew_session(now):
            return
        out = self._out
        self._set_now(now)
        if heard_from(out, self.groups[member.group_id], member, False):
            self._end_step()
            return
        gap = now - member.seen_ms
        member.seen_ms = now
        if gap * 3 > member.session_timeout_ms:
            self._heartbeat_gaps.add(self._out, member, gap, now)
        self._out.deadlines.set(member, now + member.session_timeout_ms)

    def leave(self, group_id: str, leavers: list[Leaver], now: int, wall: int) -> list[int]:
        """Handle a LeaveGroup; return an error code for each leaver. At most one rebalance follows for all of them."""
        out = self._out
        out.now = now
        out.wall = wall
        group = self.groups.get(group_id)
        if group is None:
            refused = self.consumers.leave(group_id, leavers)
            self._end_step()
            return refused
        codes, cause, member, text = remove_leavers(out, group, leavers)
        if cause is not None:
            ROWS[group.state].after_leave(out, group, cause, member, text)
        settle(out, group)
        self._end_step()
        return codes

    def _create(self, group_id: str) -> Group:
        """A new classic group, perhaps in place of a group of the other protocol without members, whose offsets it takes over."""
        group = self.groups[group_id] = Group(group_id, self._out.now, self._out.wall, self.kept)
        group.offsets = self._orphaned_offsets.pop(group_id, {})
        consumers = self.consumers.groups.get(group_id)
        if consumers is not None:
            group.offsets = consumers.offsets
            self._out.facts += self.consumers.tombstones(consumers)
            self.consumers.discard(consumers)
        self.policies.open_group(group)
        return group

    # Offsets.

    def commit(self, commit: Commit, now: int, wall: int) -> int:
        """Handle an OffsetCommit; return the error code of all partitions. Those in `commit.too_large` get OFFSET_METADATA_TOO_LARGE."""
        out = self._out
        out.now = now
        out.wall = wall
        consumers = self.consumers.groups.get(commit.group_id)
        error = self._commit(commit) if consumers is None else self._commit_of_consumer(consumers, commit)
        if error:
            refusal = (commit.group_id, error, commit.member_id, commit.instance_id)
            if consumers is not None:
                member = consumers.members.get(commit.member_id)
                self._refusals.add(out, refusal, commit.generation, UNKNOWN if member is None else member.holding.epoch)
            elif commit.group_id in self.groups:
                self._refusals.add(out, refusal)
        self._end_step()
        return error

    def _commit_of_consumer(self, group: ConsumerGroup, commit: Commit) -> int:
        return commit_refusal(self.consumers, group, commit) or offsets.store(self._out, group, commit)

    def _commit(self, commit: Commit) -> int:
        out = self._out
        group = self.groups.get(commit.group_id)
        if group is None:
            if commit.generation >= 0:
                return commit.unknown_group_error
            if not storable(commit.group_id):
                return ErrorCode.UNKNOWN_SERVER_ERROR
            group = self._create(commit.group_id)
            error = offsets.store(out, group, commit)
            if error:
                del self.groups[group.id]
                if group.offsets:  # offsets that outlived the group's tombstone
                    self._orphaned_offsets[group.id] = group.offsets
            return error
        member = group.members.get(commit.member_id)
        instance = commit.instance_id
        if (
            member is None
            or commit.generation != group.generation
            or commit.generation < 0
            or (instance is not None and member.instance_id != instance)
        ):
            error = offsets.check(group, commit)
            if error:
                return error
        refused = ROWS[group.state].commit
        if refused:
            return refused
        if member is not None:
            self.refresh_session(member, out.now)
        return offsets.store(out, group, commit)

    def delete_offsets(self, group_id: str, partitions: list[tuple[str, int]], now: int, wall: int) -> tuple[int, list[int]]:
        """Handle an OffsetDelete; return the error of the whole request and a code for each partition."""
        group = self.offsets_of(group_id)
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, []
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, []
        self._out.now = now
        self._out.wall = wall
        result = admin.delete_offsets(self._out, group, partitions)
        self._end_step()
        return result

    def all_groups(self) -> Iterator[Group | ConsumerGroup]:
        """Those of both types, of which none may be added or removed meanwhile."""
        return chain(self.groups.values(), self.consumers.groups.values())

    def offsets_of(self, group_id: str) -> Group | ConsumerGroup | None:
        """The group of either type, as the owner of its offsets."""
        return self.groups.get(group_id) or self.consumers.groups.get(group_id)

    def fetch_refusal(self, group_id: str, member_id: str | None, epoch: int) -> int:
        """The error of an OffsetFetch that may name a member and its epoch (from v9), 0 if it may read."""
        consumers = self.consumers.groups.get(group_id)
        return NONE if consumers is None else fetch_refusal(consumers, member_id, epoch)

    def forget_topics(self, deleted: Collection[str], now: int, wall: int) -> None:
        """Delete the offsets of deleted topics."""
        self._out.now = now
        self._out.wall = wall
        for group in list(self.all_groups()):
            if any(topic in group.offsets for topic in deleted):
                for _ in admin.forget_topics(self._out, group, deleted):
                    self._end_step()
                self._end_step()

    def note_deletions(self, number: int, now: int, wall: int) -> None:
        """Note that the offsets of topics deleted up to this number are removed: later offsets belong to newer topics of their names."""
        self._out.now = now
        self._out.wall = wall
        self.deletions_applied = number
        self._out.facts.append(deletions_fact(number))
        self._end_step()

    # Administration.

    def describe(self, group_id: str) -> Description:
        return admin.describe(self.groups.get(group_id))

    def listed_group(self, group_id: str) -> ListedGroup | None:
        group = self.groups.get(group_id)
        if group is not None:
            return admin.listed(group)
        consumers = self.consumers.groups.get(group_id)
        return listed_consumers(consumers) if consumers is not None else None

    def delete(self, group_id: str, now: int, wall: int) -> int:
        """Delete one group; return its error code."""
        group = self.groups.get(group_id)
        consumers = self.consumers.groups.get(group_id)
        self._out.now = now
        self._out.wall = wall
        if group is not None:
            error = admin.delete(self._out, self.groups, group)
        elif consumers is not None:
            error = admin.delete_consumers(self._out, self.consumers, consumers)
        else:
            return ErrorCode.GROUP_ID_NOT_FOUND
        self._end_step()
        return error

    # Life cycle: replayed from its log, serving, abandoned; then it may be replayed again.

    def clear(self) -> None:
        """Reset the shard. Held and parked replies are dropped unanswered: call `abandon` first if there may be any."""
        self._drop_all_groups()
        self._begin()

    def _begin(self) -> None:
        """Everything of a shard without groups."""
        self.hold = Hold(self._config.batch_bytes_max)
        self._orphaned_offsets: dict[str, dict[str, TopicOffsets]] = {}  # group id -> offsets that outlived the group's tombstone
        self._out = StepOutput(self._config, self._fresh_id, self.kept, self._limit_sink)
        self.deadlines = self._out.deadlines
        self._sweep = expiry.Sweep()
        self._heartbeat_gaps = HeartbeatGaps()
        self.deletions_applied = 0  # `note_deletions`
        self.unfounded: list[str] = []  # groups of which the log has assignments of members, but not the members: left out at the last load
        self.policies = ShardPolicies(self._out, self.groups, self._end_step, self._room)
        self.consumers = Room(
            self._out, self.groups, self._topics, self._discard_classic, self.policies.open_group, self._end_step, self.policies.texts, self.policies.kept_ms
        )
        self._refusals = CommitRefusals(self.consumers.groups)
        self._replay = self._begin_replay()

    def _begin_replay(self) -> Replay:
        return Replay(self.groups, self.consumers.groups, self._orphaned_offsets, self.kept, self.policies.fold)

    def _discard_classic(self, group: Group) -> None:
        admin.discard(self._out, self.groups, group)

    def _room(self) -> Room:
        return self.consumers

    def _drop_all_groups(self) -> None:
        for group in self.groups.values():
            group.drop()
        self.groups.clear()
        self.consumers.drop_all()

    def replay(self, facts: Iterable[Fact]) -> None:
        """Apply stored facts, in log order. Raises ProtocolError on records that cannot be read."""
        self._replay.fold(facts)

    def open_groups(self, time: Callable[[], tuple[int, int]]) -> Iterator[None]:
        """After replay, initialize groups and begin sessions; yields at intervals, so that the event loop can run in between.

        `time` returns the monotonic and the wall time.
        """
        strings: dict[str, str] = {}

        def intern(text: str) -> str:
            return strings.setdefault(text, text)

        out = self._out
        self.unfounded = self._replay.take_out_unfounded()
        for number, group in enumerate(list(self.groups.values())):
            if number % GROUPS_PER_STEP == GROUPS_PER_STEP - 1:
                yield
            out.now, out.wall = time()
            open_group(group, intern)
            for member in group.members.values():
                member.seen_ms = out.now
                out.restart_session(member)
            self.policies.open_group(group)
            self._end_step()
            if len(group.members) > out.config.group_max_size and group.state is STABLE:
                begin_rebalance(out, group, Cause.OVER_MAX_SIZE)
        for number, consumers in enumerate(list(self.consumers.groups.values())):
            if number % GROUPS_PER_STEP == GROUPS_PER_STEP - 1:
                yield
            out.now, out.wall = time()
            drop_empty_topics(consumers)
            self.consumers.open_group(consumers)
        out.now, out.wall = time()
        for tombstones in self.policies.leftovers():
            out.facts += tombstones
            self._end_step()
        self.deletions_applied = self._replay.deletions_applied
        self._replay = self._begin_replay()
        expiry.schedule_sweep(out, self._sweep)
        self._end_step()

    def abandon(self) -> None:
        """Stop being the coordinator: parked requests get NOT_COORDINATOR, and their clients look the coordinator up again."""
        for group in self.groups.values():
            for member in group.members.values():
                if member.join_waiter is not None:
                    member.join_waiter.member_id = member.id
                    member.join_waiter.reply = JoinReply(ErrorCode.NOT_COORDINATOR)
                    member.join_waiter.release()
                if member.sync_waiter is not None:
                    member.sync_waiter.assignment = b""
                    member.sync_waiter.reply = SyncReply(ErrorCode.NOT_COORDINATOR)
                    member.sync_waiter.release()
                member.join_waiter = member.sync_waiter = None
            for newcomer in group.newcomers.values():
                newcomer.waiter.member_id = newcomer.id
                newcomer.waiter.reply = JoinReply(ErrorCode.NOT_COORDINATOR)
                newcomer.waiter.release()
            group.newcomers.clear()
        for waiter in self._out.replies:  # of a step that ended in an exception
            waiter.fail(ErrorCode.NOT_COORDINATOR)
        self._drop_all_groups()
        self.deadlines = self._out.deadlines = Deadlines()
        self._out.replies.clear()
        self._out.facts.clear()
        self._out.notes.clear()
