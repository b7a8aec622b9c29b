"""Fast paths for a repeated heartbeat, and for a repeated commit that differs only in its offsets.

Both check the member and its generation again only when the group has changed (`Group.version`). A request that the fast path
does not accept goes to `Shard.heartbeat` or `Shard.commit`, which returns the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator.calls import Commit
from coordinator.classic.group import Group
from coordinator.classic.member import Member
from coordinator.classic.rules import ROWS
from coordinator.committed import TopicOffsets
from coordinator.facts import encode_after_offset, offset_key, offset_key_prefix
from coordinator.hold import RECORD_OVERHEAD_BYTES, Held
from coordinator.shard import Shard
from coordinator.states import EMPTY
from protocol.batch_writing import CUT_BYTES as OFFSET_BYTES  # big-endian, in requests as in records
from protocol.batch_writing import make_record_form

_VERSION: Final = b"\0\3"  # the start of the value, before the offset
_NO_GROUP: Final = Group("", 0, 0)
_NO_MEMBER: Final = Member("", "", None, "", "", 0, 0, ())
_NEVER_CHECKED: Final = -1  # no version of a group

# Results of RepeatedCommit.try_accept.
STORED: Final = 0  # the reply is held
STORED_FIRST: Final = 1  # the reply is held, and the commit is the first of a batch, which the shard's driver must take
FALLBACK: Final = 2  # nothing has changed, and `Shard.commit` must decide


class RepeatedHeartbeat:
    """A heartbeat of one member in one generation, and the group's version when it was last checked."""

    __slots__ = ("_generation", "_group", "_group_id", "_instance_id", "_member", "_member_id", "_version")

    def __init__(self, group_id: str, generation: int, member_id: str, instance_id: str | None) -> None:
        # `try_accept` uses the first three, which compiled code stores side by side.
        self._group: Group = _NO_GROUP
        self._version = _NEVER_CHECKED  # of the group when the heartbeat was last accepted
        self._member: Member = _NO_MEMBER
        self._group_id = group_id
        self._generation = generation
        self._member_id = member_id
        self._instance_id = instance_id

    def try_accept(self, now: int) -> bool:
        """Accept the heartbeat if the group is unchanged; on False nothing has changed, and `accept_slow` does the checks."""
        return self._group.version == self._version and self._member.renew_session(now)

    def accept_slow(self, shard: Shard, now: int) -> int:
        """Run `Shard.heartbeat` and return its error code. The shard's driver must check its deadlines afterwards."""
        code = shard.heartbeat(self._group_id, self._generation, self._member_id, self._instance_id, now)
        group = shard.groups.get(self._group_id)  # None: a classic member of a group that has changed to the consumer protocol
        if not code and group is not None:
            self._group = group
            self._member = group.members[self._member_id]
            self._version = group.version
        return code


class RepeatedCommit:
    """An OffsetCommit, of a member or a standalone consumer, that is repeated with only its offsets changed.

    Its records are encoded once, except the offsets and the commit time. The offsets stay undecoded in the request frame until they are read.
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

    def __init__(self, commit: Commit, positions: Sequence[int], frame_bytes: int) -> None:
        """`commit` was just stored completely, and its request has no retention time.

        `positions`: where the frame of a repeat has the offsets, in the order of the partitions.
        """
        self.group_id = commit.group_id
        self.generation = commit.generation
        self.member_id = commit.member_id
        self.instance_id = commit.instance_id
        self.topics: list[tuple[str, tuple[int, ...]]] = []
        afters: list[bytes] = []  # the bytes between each offset and the time
        keys: list[bytes] = []
        for topic, partitions in commit.topics:
            prefix = offset_key_prefix(commit.group_id, topic)
            self.topics.append((topic, tuple([partition.partition_index for partition in partitions])))
            for partition in partitions:
                keys.append(offset_key(prefix, partition.partition_index))
                afters.append(encode_after_offset(partition.committed_leader_epoch, (partition.committed_metadata or "").encode()))
        self._form = make_record_form(keys, _VERSION, afters, positions, frame_bytes)
        self.records = len(keys)
        fixed = RECORD_OVERHEAD_BYTES + len(_VERSION) + OFFSET_BYTES + 8
        self.size = sum([fixed + len(key) + len(after) for key, after in zip(keys, afters, strict=True)])
        self._version = _NEVER_CHECKED  # of the group when the commit was last allowed
        self._group: Group = _NO_GROUP
        self._member: Member | None = None
        # The newest repeat.
        self._frame = b""
        self._wall = 0

    def try_accept(self, shard: Shard, frame: bytes, reply: Held, now: int, wall: int) -> int:
        """Store the offsets in this frame and hold the reply; FALLBACK if `Shard.commit` must decide."""
        group = self._group
        if group.version != self._version:
            if not self._is_allowed(shard):
                return FALLBACK
            group = self._group
        member = self._member
        if member is not None and not member.renew_session(now):
            return FALLBACK
        self._frame = frame
        self._wall = wall
        if group.newest_undecoded is not self:
            group.add_undecoded(self)
        return STORED_FIRST if shard.hold.emit_repeat(self._form, frame, self.size, wall, reply) else STORED

    def _is_allowed(self, shard: Shard) -> bool:
        group = shard.groups.get(self.group_id)
        if group is None or ROWS[group.state].commit:
            return False
        member = group.members.get(self.member_id)
        if member is None:
            if self.generation >= 0 or group.state is not EMPTY:
                return False
        elif self.generation != group.generation or (self.instance_id is not None and member.instance_id != self.instance_id):
            return False
        self._group = group
        self._member = member
        self._version = group.version
        return True

    def close(self) -> None:
        """Called when no repeat will follow: the group keeps only the offsets."""
        self._group.decode_commit(self)

    def fold(self, offsets: dict[str, TopicOffsets]) -> None:
        """Decode the newest commit into the group's `offsets`."""
        values = self._form.values(self._frame, self._wall)
        at = 0
        for topic, partitions in self.topics:
            stored = offsets.get(topic)
            if stored is None:  # its offsets were deleted meanwhile
                stored = offsets[topic] = TopicOffsets(offset_key_prefix(self.group_id, topic))
            end = at + len(partitions)
            stored.values.update(zip(partitions, values[at:end], strict=True))
            at = end
