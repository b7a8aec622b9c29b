"""One partition of __consumer_offsets: its Shard, its two logs, and the true history of its groups."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from coordinator import JoinRequest, Note, Shard
from coordinator.classic.group import Group
from coordinator.deadlines import NEVER
from coordinator.notes import Cause, ShardChange
from coordinator.states import State
from history import NoteRecord
from history.causes import SpellEnd
from pipeline.virtual.truth import Change, GroupHistory
from protocol.batch import facts_of
from protocol.message import Message
from protocol.messages.coordinator_notes import CoordinatorChange, NoteHeader
from protocol.messages.kinds import KIND_OF_NOTE

if TYPE_CHECKING:
    from pipeline.virtual.client import Client, PendingRequest
    from pipeline.virtual.world import World

GATHER_MS: Final = 200  # how long the broker collects notes before it writes them
LOAD_MS: Final = 5


class VirtualCoordinator:
    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.epoch = 0
        self.shard: Shard | None = Shard(world.config, self._fresh_id, self._collect_notes)
        self.loses_notes = False  # whether notes cannot be written, as on a full disk
        # The batches that a restarted coordinator loads, in log order; of commits to the same partitions only the newest.
        self._batches: dict[Hashable, bytes] = {}
        self._histories: dict[str, GroupHistory] = {}
        self._owners: dict[str, tuple[Client, int | None]] = {}  # by member id: the client, and the restart that ended it
        self._seq = 0
        self._lost = 0
        self._notes: list[NoteRecord] = []
        self._end_stamp = 0
        self._end_offset = -1

    @property
    def wake_at(self) -> int:
        return self.shard.wake_at if self.shard is not None else NEVER

    def history(self, group: str) -> GroupHistory:
        existing = self._histories.get(group)
        if existing is None:
            existing = self._histories[group] = GroupHistory()
        return existing

    def _fresh_id(self) -> str:
        return str(UUID(int=self.world.random.getrandbits(128), version=4))

    # Requests

    def join(self, client: Client, request: JoinRequest, pending: PendingRequest) -> bool:
        shard = self.shard
        if shard is None:
            return False
        now = self.world.now
        group = shard.groups.get(request.group_id)
        member = group.members.get(request.member_id) if group is not None else None
        if member is not None:
            cause = Cause.LEADER_REJOINED if member.protocols == request.protocols else Cause.MEMBER_METADATA_CHANGED
        elif group is not None and request.instance_id in group.static_members:
            cause = Cause.STATIC_DURING_COMPLETING if group.state is State.COMPLETING else Cause.STATIC_PROTOCOL_CHANGED
        else:
            cause = Cause.NEW_MEMBER
        shard.join(request, pending, now, now)
        self.end_step(request.group_id, cause, client)
        return True

    def advance(self) -> None:
        shard = self.shard
        assert shard is not None
        now = self.world.now
        overdue = {id: group.state for id, group in shard.groups.items() if group.deadline <= now}
        known = set(shard.groups)
        shard.advance(now, now, self.world.start_ms)
        self.append()
        for id in known:
            group = shard.groups.get(id)
            if group is None or self.history(id).differs(group):
                state = overdue.get(id)
                if state is None:
                    self._update_history(id, Cause.SESSION_EXPIRED, None, "expired")
                else:
                    self._update_history(id, Cause.SYNC_TIMEOUT if state is not State.PREPARING else Cause.JOIN_TIMEOUT, None, "evicted")

    def end_step(self, group: str, cause: Cause | None, client: Client | None, removal: SpellEnd = "expired") -> None:
        """`cause`: of a rebalance that begins; None: the step should begin none."""
        self.append()
        self._update_history(group, cause, client, removal)

    def append(self, commit: Hashable = None) -> None:
        """Write the facts of the step to the log. `commit`: if all facts are offset commits, a name for their partitions;
        for a restarted coordinator later commits with that name replace them.
        """
        shard = self.shard
        assert shard is not None
        hold = shard.hold
        while hold.has_untaken:
            before = hold.taken
            batch = hold.take_batch(self.world.now)
            facts = hold.taken - before
            name = commit or len(self._batches)
            self._batches.pop(name, None)
            self._batches[name] = bytes(batch)
            offset = self.world.recorder.append(self.number, batch, facts, self.world.now, self.epoch)
            self._end_stamp = hold.taken
            self._end_offset = offset + facts - 1
            hold.confirm(hold.taken)

    # History

    def _update_history(self, group_id: str, cause: Cause | None, client: Client | None, removal: SpellEnd) -> None:
        history = self.history(group_id)
        assert self.shard is not None
        group = self.shard.groups.get(group_id)
        if group is None:
            if history.last_version is not None:
                history.forget(self.world.now)
            return
        if not history.differs(group):
            return
        changes = self._changes(history, group, client, removal)
        if client is None and changes:
            client = self._owners[changes[0].member_id][0] if changes[0].member_id in self._owners else None
        trigger, follows = (client.name, client.revoking) if client is not None else (None, False)
        history.update(group, self.world.now, cause, trigger, self.world.why, changes, follows)
        for group_client in self.world.clients.get(group_id, ()):
            group_client.schedule_heartbeat()

    def _changes(self, history: GroupHistory, group: Group, client: Client | None, how: SpellEnd) -> list[Change]:
        now = self.world.now
        joined_changes: list[Change] = []
        left_changes: list[Change] = []
        for id, instance, joined in history.diff(group):
            if joined:
                assert client is not None, "members come by JoinGroup only"
                self._owners[id] = client, None
                self.world.client_joined(client)
                joined_changes.append(Change(now, "joined", client.name, id, instance, client.restart_number))
            else:
                owner, restart = self._owners.get(id, (None, None))
                left_changes.append(Change(now, how, owner.name if owner is not None else "", id, instance, restart))
        replaced = {change.instance_id for change in joined_changes if change.instance_id is not None} & {change.instance_id for change in left_changes}
        joined_changes = [change._replace(what="replaced") if change.instance_id in replaced else change for change in joined_changes]
        return [change for change in left_changes if change.instance_id not in replaced or change.instance_id is None] + joined_changes

    def remember_owner(self, client: Client) -> None:
        if client.member_id:
            self._owners[client.member_id] = client, client.restart_number

    # Notes

    def _collect_notes(self, notes: list[Note], stamp: int) -> None:
        offset = self._end_offset - (self._end_stamp - stamp) if stamp else -1
        for note in notes:
            self._collect_note(note.group_id, note.at_ms, note.body, offset, note.generation, note.state, note.dropped, note.counted_from, note.number)

    def add_note(self, body: Message) -> None:
        """Add a note about the partition or the cluster."""
        self._collect_note("", self.world.now, body, -1, 0, 0, 0, -1, -1)

    def _collect_note(
        self,
        group: str,
        at_ms: int,
        body: Message,
        offset: int,
        generation: int,
        state: int,
        dropped: int,
        counted_from: int,
        number: int,
    ) -> None:
        if self.loses_notes:
            self._lost += 1
            return
        if self._notes and self._notes[0].at_ms + GATHER_MS <= at_ms:
            self.write_notes()
        header = NoteHeader(KIND_OF_NOTE[type(body)], at_ms, self._seq, self.epoch, generation, state, offset, dropped + self._lost, counted_from, number)
        self._seq += 1
        self._lost = 0
        self._notes.append(NoteRecord(group, header, body))

    def write_notes(self) -> None:
        notes, self._notes = self._notes, []
        if notes:
            self.world.recorder.write_notes(self.number, notes, notes[0].at_ms + GATHER_MS)

    # Restarts

    def stop(self, orderly: bool) -> None:
        shard = self.shard
        assert shard is not None, "it is down already"
        now = self.world.now
        if orderly:
            shard.abandon()
            self._add_coordinator_note(ShardChange.UNLOADED, 0)
        elif self._notes and self._notes[0].at_ms + GATHER_MS > now:
            self._notes = []
        self.write_notes()
        self.shard = None
        self._lost = 0
        for history in self._histories.values():
            history.interrupt(now)

    def load(self, what: ShardChange) -> None:
        self.epoch += 1
        self._seq = 0
        self._end_stamp, self._end_offset = 0, -1
        shard = self.shard = Shard(self.world.config, self._fresh_id, self._collect_notes)
        facts = [fact for batch in self._batches.values() for fact in facts_of(batch)]
        shard.replay(facts)
        for _ in shard.open_groups(lambda: (self.world.now, self.world.now)):
            pass
        if facts:
            self._add_coordinator_note(what, len(facts))
        for id, group in shard.groups.items():
            self.history(id).resume(group)
        self.append()

    def _add_coordinator_note(self, what: ShardChange, replayed: int) -> None:
        assert self.shard is not None or what is ShardChange.UNLOADED
        groups = len(self.shard.groups) if self.shard is not None else 0
        self.add_note(CoordinatorChange(what, self.epoch, LOAD_MS if replayed else 0, groups, replayed))
