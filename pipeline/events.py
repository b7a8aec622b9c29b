"""The input of the fold: group records and notes, decoded and sorted by group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from history import GroupRecord, NoteRecord, read_group_record, read_note_record
from history.compared import MemberIdentity, identity_of
from history.newer import NewerRecord, beside_newer, newer_group, newer_kind, read_newer_record, understood
from pipeline.rows import Coverage, NewerGroup, NoteRow
from protocol.errors import ProtocolError
from protocol.message import Part, field_names
from protocol.messages.consumer_offsets import GroupMetadataKey
from protocol.messages.coordinator_notes import MemberJoin, StaticReplaced
from protocol.messages.kinds import NoteKind
from protocol.records import read_offsets_key

OFFSETS: Final = "offsets"
NOTES: Final = "notes"
COMPACTED: Final = "compacted"


class Raw(NamedTuple):
    """The columns of a bronze record that the fold needs."""

    log: str
    partition: int
    offset: int
    append_ms: int
    leader_epoch: int
    key: bytes | None
    value: bytes | None


class NoteAt(NamedTuple):
    """A note with its partition and offset."""

    partition: int
    offset: int
    record: NoteRecord


class Events(NamedTuple):
    """The events of one group, each kind in log order, with notes about the coordinator of its partition.

    The group "" has only notes about coordinators and end offsets.
    """

    notes: Sequence[NoteAt]
    group_records: Sequence[GroupRecord]
    unreadable: Sequence[int] = ()  # offsets of the group's unreadable records
    newer: Sequence[NewerRecord] = ()
    epochs_ms: Mapping[int, int] = {}  # when the first record of each coordinator epoch was appended to the log, by any group
    partition: int = 0  # of its records


Epochs: TypeAlias = Mapping[int, Mapping[int, int]]  # by partition of __consumer_offsets and coordinator epoch: when its first record was appended


def epochs_of(rows: pa.Table) -> Epochs:
    """Of one cluster, from rows of the state `epochs`."""
    first: dict[tuple[int, int], tuple[int, int]] = {}
    for partition, epoch, offset, at_ms in zip(*(rows[name].to_pylist() for name in ("partition", "epoch", "offset", "append_ms")), strict=True):
        first[partition, epoch] = min((offset, at_ms), first.get((partition, epoch), (offset, at_ms)))
    epochs: dict[int, dict[int, int]] = {}
    for (partition, epoch), (_, at_ms) in first.items():
        epochs.setdefault(partition, {})[epoch] = at_ms
    return epochs


def events_of(records: Iterable[Raw], epochs: Epochs | None = None) -> dict[str, Events]:
    """The events of all groups in these records, with the notes about coordinators of their partitions. `epochs`: as far as other groups' records tell."""
    notes: dict[str, list[NoteAt]] = {}
    group_records: dict[str, list[GroupRecord]] = {}
    unreadable: dict[str, list[int]] = {}
    newer: dict[str, list[NewerRecord]] = {}
    coordinator: dict[int, list[NoteAt]] = {}
    own_epochs: dict[int, dict[int, tuple[int, int]]] = {}  # the offset and time of the first record
    homes: dict[str, int] = {}
    for record in records:
        try:
            if record.log == NOTES:
                note_record = read_note_record(record.key, record.value)
                if note_record is None:
                    continue
                noted = NoteAt(record.partition, record.offset, note_record)
                notes.setdefault(note_record.group, []).append(noted)
                homes[note_record.group] = record.partition
                if not note_record.group and note_record.header.kind == NoteKind.COORDINATOR:
                    coordinator.setdefault(record.partition, []).append(noted)
                continue
            first = record.offset, record.append_ms
            of_partition = own_epochs.setdefault(record.partition, {})
            of_partition[record.leader_epoch] = min(first, of_partition.get(record.leader_epoch, first))
            if record.key is None:
                continue
            kind = newer_kind(record.key)
            if kind is not None:
                group = newer_group(record.key)
                newer.setdefault(group, []).append(read_newer_record(kind, record.offset, record.append_ms, record.leader_epoch, record.key, record.value))
                homes[group] = record.partition
                continue
            decoded_key = read_offsets_key(record.key)
        except ProtocolError:
            continue
        if not isinstance(decoded_key, GroupMetadataKey):
            continue
        group_records.setdefault(decoded_key.group, [])
        homes[decoded_key.group] = record.partition
        try:
            group_record = read_group_record(decoded_key.group, record.offset, record.append_ms, record.leader_epoch, record.key, record.value)
        except ProtocolError:
            unreadable.setdefault(decoded_key.group, []).append(record.offset)
            continue
        if group_record is not None:
            group_records[decoded_key.group].append(group_record)
    epochs_ms = {partition: {epoch: at_ms for epoch, (_, at_ms) in of_partition.items()} for partition, of_partition in own_epochs.items()}
    for partition, of_partition_ms in (epochs or {}).items():
        epochs_ms[partition] = {**epochs_ms.get(partition, {}), **of_partition_ms}
    events_by_group: dict[str, Events] = {}
    for group in sorted({*notes, *group_records, *newer}):
        group_notes, home = notes.get(group, []), homes[group]
        if group:
            group_notes = sorted([*group_notes, *coordinator.get(home, ())], key=lambda note: (note.partition, note.offset))
        own_records = sorted(group_records.get(group, []), key=lambda group_record: group_record.offset)
        newer_records = sorted(newer.get(group, []), key=lambda newer_record: newer_record.offset)
        events_by_group[group] = Events(
            group_notes, beside_newer(own_records, newer_records), unreadable.get(group, ()), newer_records, epochs_ms.get(home, {}), home
        )
    return events_by_group


def newer_rows(cluster: str, group: str, events: Events) -> list[NewerGroup]:
    rows: list[NewerGroup] = []
    if not events.newer or understood(events.newer):
        return rows
    for kind in sorted({record.kind for record in events.newer}):
        records = [record for record in events.newer if record.kind == kind]
        times = [record.at_ms for record in records]
        rows.append(NewerGroup(cluster, group, kind, len(records), records[-1].offset, min(times), max(times)))
    return rows


class Holes:
    """The offset ranges of a log with missing records."""

    def __init__(self, coverage: Iterable[Coverage], unreadable: Iterable[int] = ()) -> None:
        rows = [row for row in coverage if row.log == OFFSETS]
        self._holes = [(row.from_offset, row.to_offset, row.why) for row in rows if not row.complete]
        self._holes += [(offset, offset, "unreadable") for offset in unreadable]
        self.begin = min((row.from_offset for row in rows), default=0)

    def between(self, after: int, before: int) -> set[str]:
        """The reasons for missing offsets between two existing ones."""
        reasons = {reason for first, last, reason in self._holes if first < before and last > after}
        if after < 0 and self.begin > 0:
            reasons.add("retention")
        return reasons


def horizon_ms(coverage: Iterable[Coverage], now_ms: int) -> int:
    """The time up to which both logs have been read."""
    ends: dict[str, int] = {}
    for row in coverage:
        ends[row.log] = max(ends.get(row.log, -1), row.to_ms if row.to_ms is not None else -1)
    return min([now_ms, *(end for end in ends.values() if end >= 0)])


class MemberIdentities:
    """The client id, host and instance id of each member id, from any note or record of the group."""

    def __init__(self, events: Events) -> None:
        self._known: dict[str, MemberIdentity] = {}
        for noted in events.notes:
            body = noted.record.body
            if isinstance(body, MemberJoin):
                self._known.setdefault(body.member_id, MemberIdentity(body.member_id, body.instance_id, body.client_id, body.host))
            elif isinstance(body, StaticReplaced):
                self._known.setdefault(body.new_id, MemberIdentity(body.new_id, body.instance_id, body.client_id, body.host))
        for group_record in events.group_records:
            for member in group_record.stored.members if group_record.stored is not None else ():
                if member.member_id not in self._known:
                    self._known[member.member_id] = identity_of(member)

    def identity_of(self, member_id: str, instance_id: str | None = None) -> MemberIdentity:
        known = self._known.get(member_id)
        return known if known is not None else MemberIdentity(member_id, instance_id, "", "")


def note_rows(cluster: str, group: str, notes: Iterable[NoteAt]) -> list[NoteRow]:
    return [_note_row(cluster, note) for note in notes if note.record.group == group]


def _note_row(cluster: str, noted: NoteAt) -> NoteRow:
    header, body = noted.record.header, noted.record.body
    return NoteRow(
        cluster,
        noted.partition,
        noted.offset,
        header.ts,
        noted.record.group,
        header.kind,
        NoteKind(header.kind).name.lower(),
        header.seq,
        header.coordinator_epoch,
        header.generation,
        header.state,
        header.offsets_log_offset,
        header.dropped,
        json.dumps(_plain(body), ensure_ascii=False, separators=(",", ":")),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Part):
        return {name: _plain(getattr(value, name)) for name in field_names(type(value))}
    if isinstance(value, (list, tuple)):
        return [_plain(element) for element in value]
    return value.hex() if isinstance(value, bytes) else value
