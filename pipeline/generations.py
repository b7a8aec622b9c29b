"""Group metadata records as rows: one for the group, and one for each member."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from history import GroupRecord
from history.consumer import partitions_of, topics_of
from history.inferred import is_replacement, join_phase_end_ms
from pipeline.events import Holes
from pipeline.rows import Generation, Member
from protocol.messages.consumer_offsets import GroupMetadataValue, MemberMetadata

NO_GENERATION = -1  # of a tombstone


def generation_rows(cluster: str, group: str, group_records: Sequence[GroupRecord], holes: Holes) -> list[Generation]:
    rows = []
    before: GroupRecord | None = None
    for record in group_records:
        rows.append(_generation(cluster, group, before, record, holes))
        before = record
    return rows


def _generation(cluster: str, group: str, before: GroupRecord | None, record: GroupRecord, holes: Holes) -> Generation:
    stored = record.stored
    if stored is None:
        return Generation(cluster, group, NO_GENERATION, record.offset, record.at_ms, None, None, None, None, None, 0, 0, None, True, True, False)
    replaced = before is not None and is_replacement(before, record)
    settled = not replaced and record.generation > 0
    contiguous = not holes.between(before.offset if before is not None else -1, record.offset)
    aborted = max(record.generation - max(before.generation if before is not None else 0, 0) - 1, 0) if settled and contiguous and record.newer_since_ms < 0 else None
    return Generation(
        cluster,
        group,
        record.generation,
        record.offset,
        record.at_ms,
        stored.current_state_timestamp if stored.current_state_timestamp >= 0 else None,
        record.at_ms - join_phase_end_ms(record) if settled and stored.current_state_timestamp >= 0 else None,
        stored.protocol_type or None,
        stored.protocol or None,
        stored.leader or None,
        len(stored.members),
        sum(member.group_instance_id is not None for member in stored.members),
        aborted,
        not stored.members,
        False,
        replaced and bool(stored.members),
    )


def member_rows(cluster: str, group: str, group_records: Sequence[GroupRecord]) -> list[Member]:
    rows: list[Member] = []
    for record in group_records:
        stored = record.stored
        if stored is not None:
            rows += [_member(cluster, group, record, stored, member) for member in sorted(stored.members, key=lambda metadata: metadata.member_id)]
    return rows


def _member(cluster: str, group: str, record: GroupRecord, stored: GroupMetadataValue, member: MemberMetadata) -> Member:
    return Member(
        cluster,
        group,
        record.generation,
        record.offset,
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout,
        member.rebalance_timeout,
        list(topics_of(stored, member) or ()),
        list(partitions_of(stored, member) or ()),
        crc32(member.subscription),
        crc32(member.assignment),
    )
