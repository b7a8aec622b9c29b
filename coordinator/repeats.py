"""What a consumer sends for hours, and nearly all of a broker's work: the same heartbeat, and the same commit with other offsets.

So they take few steps. Whether they may be is asked when something has changed in the group (`Group.version`), and where the
answer is no longer a plain yes they go the usual way (`Shard.heartbeat`, `Shard.commit`), which knows why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator.calls import Commit
from coordinator.facts import after_offset, offset_key, offset_key_prefix
from coordinator.group import Group, TopicOffsets
from coordinator.hold import RECORD_OVERHEAD_BYTES, Held
from coordinator.member import Member
from coordinator.rules import ROWS
from coordinator.shard import Shard
from coordinator.states import EMPTY
from protocol.batch_writing import CUT_BYTES as OFFSET_BYTES  # big-endian, in requests as in records
from protocol.batch_writing import form_of, moment_end

_VERSION: Final = b"\0\3"  # how the value begins, before the offset
_NOBODYS: Final = Group("", 0, 0)
_NOBODY: Final = Member("", "", None, "", "", 0, 0, ())

# What became of a commit: its reply is held; the same, and whoever drives the shard has to look at it; or nothing at all.
KEPT: Final = 0
STEP: Final = 1
OTHERWISE: Final = 2


class RepeatedHeartbeat:
    """Who beats, and as member of which generation."""

    __slots__ = ("_generation", "_group", "_group_id", "_instance_id", "_member", "_member_id", "_version")

    def __init__(self, group_id: str, generation: int, member_id: str, instance_id: str | None) -> None:
        self._group_id = group_id
        self._generation = generation
        self._member_id = member_id
        self._instance_id = instance_id
        # As the group stood when it was last accepted.
        self._version = object()
        self._group: Group = _NOBODYS
        self._member: Member = _NOBODY

    def again(self, now: int) -> bool:
        """Accept it, where it is as plain as the last time; else nothing has happened, and `ask` knows more."""
        if self._group.version is not self._version:
            return False
        member = self._member
        timeout = member.session_timeout_ms
        if (now - member.seen_ms) * 3 > timeout:
            return False
        member.seen_ms = now
        member.deadline = now + timeout  # later than it was, so it need not be scheduled_at anew (`Shard.refresh_session`)
        return True

    def ask(self, shard: Shard, now: int) -> int:
        """Its code. Whoever drives the shard has to look at it."""
        code = shard.heartbeat(self._group_id, self._generation, self._member_id, self._instance_id, now)
        if not code:
            self._group = group = shard.groups[self._group_id]
            self._member = group.members[self._member_id]
            self._version = group.version
        return code


class RepeatedCommit:
    """Who commits, what, and all that is the same each time.

    Everything but offsets and time is made once. The offsets stay in the request that brought them until the log wants them,
    and until somebody reads them.
    """

    __slots__ = (
        "_form",
        "_frame",
        "_group",
        "_member",
        "_version",
        "_wall",
        "generation",
        "group_id",
        "instance_id",
        "member_id",
        "records",
        "size",
        "topics",
    )

    def __init__(self, commit: Commit, places: Sequence[int], frame_bytes: int) -> None:
        """`commit` was stored just now, whole, and has no retention of its own.

        Each offset is at its place in the frames that bring it again, in the order of the partitions.
        """
        self.group_id = commit.group_id
        self.generation = commit.generation
        self.member_id = commit.member_id
        self.instance_id = commit.instance_id
        self.topics: list[tuple[str, tuple[int, ...]]] = []
        afters: list[bytes] = []  # what comes between each offset and the time
        keys: list[bytes] = []
        for topic, partitions in commit.topics:
            prefix = offset_key_prefix(commit.group_id, topic)
            self.topics.append((topic, tuple([one.partition_index for one in partitions])))
            for one in partitions:
                keys.append(offset_key(prefix, one.partition_index))
                afters.append(after_offset(one.committed_leader_epoch, (one.committed_metadata or "").encode()))
        self._form = form_of(keys, _VERSION, afters, places, frame_bytes)
        self.records = len(keys)
        fixed = RECORD_OVERHEAD_BYTES + len(_VERSION) + OFFSET_BYTES + 8
        self.size = sum([fixed + len(key) + len(after) for key, after in zip(keys, afters, strict=True)])
        # As the group stood when this was last found to be allowed.
        self._version = object()
        self._group: Group = _NOBODYS
        self._member: Member | None = None
        # The newest of its kind.
        self._frame = b""
        self._wall = 0

    def again(self, shard: Shard, frame: bytes, reply: Held, now: int, wall: int) -> int:
        """Store the offsets in this frame, and hold the reply; OTHERWISE where that may not be, or is not as plain as before."""
        group = self._group
        if group.version is not self._version:
            if not self._may_be(shard, now):
                return OTHERWISE
            group = self._group
        member = self._member
        if member is not None:
            timeout = member.session_timeout_ms
            if (now - member.seen_ms) * 3 > timeout:
                return OTHERWISE
            member.seen_ms = now
            member.deadline = now + timeout  # later than it was, so it need not be scheduled_at anew (`Shard.refresh_session`)
        self._frame = frame
        self._wall = wall
        if group.newest is not self:
            group.keep(self)
        hold = shard.hold
        if wall is not hold.wall:  # mostly it is, of several in one turn
            hold.wall = wall
            hold.end = moment_end(wall)
        room = hold.room - self.size
        if room < 0 and hold.records:
            hold.begin_batch()
            room = hold.room - self.size
        hold.room = room
        before = hold.records
        hold.records = self._form.write(hold.parts, frame, hold.end, before)
        hold.emitted = emitted = hold.emitted + self.records
        hold.held.append((emitted, reply))
        return KEPT if before else STEP

    def _may_be(self, shard: Shard, now: int) -> bool:
        group = shard.groups.get(self.group_id)
        if group is None or ROWS[group.state].commit:
            return False
        member = group.members.get(self.member_id)
        if member is None:
            if self.generation >= 0 or group.state is not EMPTY:
                return False
        elif self.generation != group.generation or (self.instance_id is not None and member.instance_id != self.instance_id):
            return False
        elif now + member.session_timeout_ms < member.scheduled_at:
            return False  # its session has become shorter, or is not counted: it has to be scheduled_at anew
        self._group = group
        self._member = member
        self._version = group.version
        return True

    def forgotten(self) -> None:
        """It will not be sent again: its group keeps the offsets alone."""
        self._group.let_go(self)

    def fold(self, offsets: dict[str, TopicOffsets]) -> None:
        """Put the newest ones to those of the group."""
        values = self._form.values(self._frame, self._wall)
        at = 0
        for topic, partitions in self.topics:
            stored = offsets.get(topic)
            if stored is None:  # what was kept of it was deleted meanwhile
                stored = offsets[topic] = TopicOffsets(offset_key_prefix(self.group_id, topic))
            behind = at + len(partitions)
            stored.values.update(zip(partitions, values[at:behind], strict=True))
            at = behind
