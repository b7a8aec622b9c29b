"""A commit that comes again: the same partitions and metadata from the same member, and other offsets.

A consumer sends it for hours, and more of a broker's work is this than anything else but heartbeats: so it takes few steps.
Everything but offsets and time is made once; whether it may be is asked of the group each time, and where the answer is no
longer a plain yes the commit goes the usual way (`Shard.commit`), which knows why.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from coordinator.calls import Commit
from coordinator.facts import after_offset, offset_key, offset_key_prefix
from coordinator.group import Group
from coordinator.hold import RECORD_OVERHEAD_BYTES, Held
from coordinator.rules import ROWS
from coordinator.shard import Shard
from coordinator.states import EMPTY
from protocol.batch_writing import form_of

OFFSET_BYTES: Final = 8  # big-endian, in requests as in records
_VERSION: Final = b"\0\3"  # how the value begins, before the offset
_TIME: Final = Struct(">q").pack


@lru_cache(256)
def _cutter(value_bytes: int, count: int) -> Struct:
    return Struct(f"{value_bytes}s" * count)


class RepeatedCommit:
    """Who commits, what, and all that is the same each time."""

    __slots__ = ("_after", "_afters", "_alike", "_cut", "_only", "_topic", "form", "generation", "group_id", "instance_id", "member_id", "size", "topics")

    def __init__(self, commit: Commit) -> None:
        """`commit` was stored just now, whole, and has no retention of its own."""
        self.group_id = commit.group_id
        self.generation = commit.generation
        self.member_id = commit.member_id
        self.instance_id = commit.instance_id
        self.topics: list[tuple[str, tuple[int, ...]]] = []
        self._afters: list[bytes] = []  # what comes between each offset and the time
        keys: list[bytes] = []
        for topic, partitions in commit.topics:
            prefix = offset_key_prefix(commit.group_id, topic)
            self.topics.append((topic, tuple([one.partition_index for one in partitions])))
            for one in partitions:
                keys.append(offset_key(prefix, one.partition_index))
                self._afters.append(after_offset(one.committed_leader_epoch, (one.committed_metadata or "").encode()))
        sizes = [len(_VERSION) + OFFSET_BYTES + len(after) + 8 for after in self._afters]
        self.form = form_of(keys, sizes)
        self.size = sum(sizes) + sum([RECORD_OVERHEAD_BYTES + len(key) for key in keys])
        self._alike = all(after == self._afters[0] for after in self._afters)
        self._cut = _cutter(sizes[0], len(keys)).unpack
        self._after = self._afters[0]
        if self._alike:
            del self._afters[1:]
        self._only = self.topics[0][1][0] if len(keys) == 1 else -1  # the one partition, of the one topic
        self._topic = self.topics[0][0]

    def again(self, shard: Shard, offsets: Sequence[bytes], reply: Held, now: int) -> bool:
        """Store it with these offsets, and hold its reply; False, and nothing has happened, where that may not be any more."""
        group = shard.groups.get(self.group_id)
        if group is None or ROWS[group.state].commit:
            return False
        member = group.members.get(self.member_id)
        if member is None:
            if self.generation >= 0 or group.state is not EMPTY:
                return False
        elif self.generation != group.generation or (self.instance_id is not None and member.instance_id != self.instance_id):
            return False
        if self._only >= 0:  # as most commits are
            stored = group.offsets.get(self._topic)
            if stored is None:
                return False
            value = b"".join((_VERSION, offsets[0], self._after, _TIME(now)))
            stored.values[self._only] = value
            values: Sequence[bytes] = (value,)
        else:
            for topic, _ in self.topics:
                if topic not in group.offsets:
                    return False
            values = self._store(group, offsets, now)
        group.offsets_mark = object()
        if member is not None:
            shard.lives(member, now)
        shard.hold.emit_values(self.form, values, self.size, reply)
        return True

    def _store(self, group: Group, offsets: Sequence[bytes], now: int) -> Sequence[bytes]:
        """Keep the offsets; their values, in the order of the request."""
        values = self._values(offsets, now)
        at = 0
        for topic, partitions in self.topics:
            behind = at + len(partitions)
            group.offsets[topic].values.update(zip(partitions, values[at:behind], strict=True))
            at = behind
        return values

    def _values(self, offsets: Sequence[bytes], now: int) -> Sequence[bytes]:
        time = _TIME(now)
        if not self._alike:
            return [_VERSION + offset + after + time for offset, after in zip(offsets, self._afters, strict=True)]
        # One join and one cut for all of them.
        behind = self._after + time
        return self._cut(_VERSION + (behind + _VERSION).join(offsets) + behind)
