"""OffsetCommit: whether the member may commit, and what is stored."""

from __future__ import annotations

from coordinator.calls import Commit
from coordinator.classic import identity
from coordinator.classic.group import Group
from coordinator.committed import OffsetsOwner, TopicOffsets
from coordinator.facts import PARTITION, PLAIN_OFFSET, expiring_offset_value, offset_key_prefix, offset_value, storable
from coordinator.hold import BATCH_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES, Fact
from coordinator.states import State
from coordinator.step_output import StepOutput
from protocol.errors import ErrorCode


def check(group: Group, commit: Commit) -> int:
    """Return the error of a commit whose ids or generation are wrong, else 0. The group's state is checked afterwards (`rules.py`)."""
    if commit.generation < 0 and group.state == State.EMPTY:
        return ErrorCode.NONE  # tools that reset the offsets of an empty group commit without a generation
    error = identity.check_ids(group, commit.member_id, commit.instance_id)
    if not error and commit.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def store(out: StepOutput, group: OffsetsOwner, commit: Commit) -> int:
    """Store the offsets of an allowed commit, except those with too long metadata. If the rest does not fit into one batch, store none."""
    now = out.wall
    retention_ms = commit.retention_ms
    expire_ms = -1
    if retention_ms != -1:
        expire_ms = (now + retention_ms + (1 << 63)) % (1 << 64) - (1 << 63)  # overflows as a Java long does
    metadata_max = out.config.offset_metadata_max_bytes
    facts: list[Fact] = []
    changes: list[tuple[dict[int, bytes], int, bytes]] = []
    new_topics: dict[str, TopicOffsets] = {}
    size = BATCH_OVERHEAD_BYTES
    size_max = out.config.batch_bytes_max
    for topic, partitions in commit.topics:
        stored = group.offsets.get(topic) or new_topics.get(topic)
        if stored is None:
            if not storable(topic):
                return ErrorCode.UNKNOWN_SERVER_ERROR
            stored = new_topics[topic] = TopicOffsets(offset_key_prefix(group.id, topic))
        prefix = stored.key_prefix
        values = stored.values
        fixed = RECORD_OVERHEAD_BYTES + len(prefix) + 4
        for committed in partitions:
            metadata = committed.committed_metadata
            if not metadata and retention_ms == -1:  # nearly always
                value = PLAIN_OFFSET(3, committed.committed_offset, committed.committed_leader_epoch, 0, now)
            else:
                if metadata and metadata_too_long(metadata, metadata_max):
                    if commit.too_large is None:
                        commit.too_large = set()
                    commit.too_large.add((topic, committed.partition_index))
                    continue
                data = (metadata or "").encode()
                if retention_ms == -1:
                    value = offset_value(committed.committed_offset, committed.committed_leader_epoch, data, now)
                else:
                    value = expiring_offset_value(committed.committed_offset, data, now, expire_ms)
            partition = committed.partition_index
            changes.append((values, partition, value))
            facts.append((prefix + PARTITION(partition), value))
            size += fixed + len(value)
            if size > size_max:
                return ErrorCode.UNKNOWN_SERVER_ERROR
    for values, partition, value in changes:
        values[partition] = value
    if new_topics:
        group.offsets.update({topic: stored for topic, stored in new_topics.items() if stored.values})
    group.invalidate_offsets()
    out.facts = facts
    out.facts_bytes = size - BATCH_OVERHEAD_BYTES
    return ErrorCode.NONE


def metadata_too_long(metadata: str, units_max: int) -> bool:
    """Whether the metadata exceeds the limit, counted in UTF-16 units as Java does."""
    size = len(metadata)
    return size > units_max or (2 * size > units_max and not metadata.isascii() and len(metadata.encode("utf-16-le")) > 2 * units_max)


def forget_offset(group: OffsetsOwner, topic: str, partition: int) -> None:
    stored = group.offsets[topic]
    del stored.values[partition]
    if not stored.values:
        del group.offsets[topic]
    group.invalidate_offsets()
