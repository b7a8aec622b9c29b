"""Consumer groups as state machines without I/O: each call gets the time as an argument and runs to its end."""

from coordinator.calls import (
    Commit,
    DescribedMember,
    Description,
    JoinReply,
    JoinRequest,
    JoinWaiter,
    Leaver,
    ListedGroup,
    StoredOffset,
    SyncReply,
    SyncRequest,
    SyncWaiter,
)
from coordinator.config import GroupConfig
from coordinator.facts import read_offset
from coordinator.group_partition import partition_of
from coordinator.hold import Fact, Held, Hold, ReplyParts, facts_bytes
from coordinator.notes import Note
from coordinator.shard import Shard

__all__ = [
    "Commit",
    "DescribedMember",
    "Description",
    "Fact",
    "GroupConfig",
    "Held",
    "Hold",
    "JoinReply",
    "JoinRequest",
    "JoinWaiter",
    "Leaver",
    "ListedGroup",
    "Note",
    "ReplyParts",
    "Shard",
    "StoredOffset",
    "SyncReply",
    "SyncRequest",
    "SyncWaiter",
    "facts_bytes",
    "partition_of",
    "read_offset",
]
