"""Records of groups with a newer protocol than the classic one (KIP-848, KIP-932, KIP-1071): they are recognized, and not understood."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from typing import Final, NamedTuple

from history.note_records import GroupRecord
from protocol.messages.consumer_offsets import GroupMetadataKey
from protocol.records import version_of

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
    """A record of a group in a newer protocol."""

    kind: str
    offset: int
    at_ms: int


def newer_kind(key: bytes) -> str | None:
    """The kind of groups whose records have such a key; None: a key of the classic protocol, or of a later one. Raises ProtocolError."""
    return KIND_OF_KEY.get(version_of(key))


def newer_group(key: bytes) -> str:
    """The group in a key of KIND_OF_KEY. Raises ProtocolError."""
    return GroupMetadataKey.decode(key, 2, GroupMetadataKey.VERSIONS[1])[0].group


def beside_newer(group_records: Sequence[GroupRecord], newer: Sequence[NewerRecord]) -> list[GroupRecord]:
    """The records, with `taken_over` and `newer_since_ms`: a group that changes to a newer protocol gets a tombstone, although it goes on."""
    offsets = [record.offset for record in newer]
    # For each record the index of the first newer one after it; at the beginning, that of the first one at all.
    following = [0, *(bisect(offsets, record.offset) for record in group_records), len(newer)]
    return [
        record._replace(
            taken_over=record.stored is None and here < following[at + 2],
            newer_since_ms=newer[before].at_ms if before < here and record.stored is not None else -1,
        )
        for at, (record, before, here) in enumerate(zip(group_records, following, following[1:], strict=False))
    ]
