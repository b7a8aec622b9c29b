"""Records of groups with a newer protocol than the classic one. Those of KIP-848 are read (`epochs.py`); of KIP-932 and KIP-1071 they are only recognized."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, assert_never

from coordinator.consumer.changes import (
    GONE,
    Change,
    EpochChange,
    ExpressionChange,
    HoldingChange,
    OldTopicsChange,
    ProfileChange,
    TargetChange,
    TargetEpochChange,
)
from coordinator.consumer.facts import change_of
from history.note_records import GroupRecord
from protocol.errors import ProtocolError
from protocol.messages.consumer_offsets import GroupMetadataKey
from protocol.messages.kinds import CONSUMER_OFFSETS
from protocol.records import read_key, version_of

CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"

# By the versions of their records' keys. Each key begins with the group.
KIND_OF_KEY: Final = {
    **dict.fromkeys((*range(3, 9), 16), CONSUMER),
    **dict.fromkeys(range(9, 16), SHARE),
    **dict.fromkeys(range(17, 25), STREAMS),
}
PROPOSALS: Final = {CONSUMER: "KIP-848", SHARE: "KIP-932", STREAMS: "KIP-1071"}


class NewerRecord(NamedTuple):
    """A record of a group in a newer protocol. `epoch`: of the coordinator that wrote it; `change`: what it says, None: it is not understood."""

    kind: str
    offset: int
    at_ms: int
    epoch: int = -1
    change: Change | None = None


def read_newer_record(kind: str, offset: int, at_ms: int, epoch: int, key: bytes, value: bytes | None) -> NewerRecord:
    return NewerRecord(kind, offset, at_ms, epoch, _change_in(key, value) if kind == CONSUMER else None)


def _change_in(key: bytes, value: bytes | None) -> Change | None:
    try:
        decoded = read_key(CONSUMER_OFFSETS, key)
        if decoded is None:
            return None
        return change_of(decoded, value) or OldTopicsChange()
    except ProtocolError:
        return None


def newer_kind(key: bytes) -> str | None:
    """The kind of groups whose records have such a key; None: a key of the classic protocol, or of a later one. Raises ProtocolError."""
    return KIND_OF_KEY.get(version_of(key))


def newer_group(key: bytes) -> str:
    """The group in a key of KIND_OF_KEY. Raises ProtocolError."""
    return GroupMetadataKey.decode(key, 2, GroupMetadataKey.VERSIONS[1])[0].group


def understood(newer: Iterable[NewerRecord]) -> bool:
    """Whether all of these say what they change, and some say more than that something is gone: compaction may have left only that."""
    return all(record.change is not None for record in newer) and any(_sets_something(record.change) for record in newer if record.change is not None)


def _sets_something(change: Change) -> bool:
    match change:
        case ProfileChange(_, value) | TargetChange(_, value) | HoldingChange(_, value) | ExpressionChange(_, value):
            return value is not None
        case EpochChange(epoch, _) | TargetEpochChange(epoch, _):
            return epoch != GONE
        case OldTopicsChange():
            return False
    assert_never(change)


def beside_newer(group_records: Sequence[GroupRecord], newer: Sequence[NewerRecord]) -> list[GroupRecord]:
    """The records, with `taken_over` and `newer_since_ms`: a group that changes to a newer protocol gets a tombstone, although it goes on."""
    offsets = [record.offset for record in newer]
    told = understood(newer)
    # For each record the index of the first newer one after it; at the beginning, that of the first one at all.
    following = [0, *(bisect(offsets, record.offset) for record in group_records), len(newer)]
    return [
        record._replace(
            taken_over=record.stored is None and here < following[at + 2],
            newer_since_ms=newer[before].at_ms if before < here and record.stored is not None else -1,
            newer_told=told,
        )
        for at, (record, before, here) in enumerate(zip(group_records, following, following[1:], strict=False))
    ]
