"""Settings of the coordinator: limits of groups, retention of offsets."""

from __future__ import annotations

from typing import Final, NamedTuple

from coordinator.consumer.config import CONSUMER_DEFAULTS, ConsumerConfig
from coordinator.policies.declaration import NO_POLICIES, GroupPolicies

# A member that was never part of a generation is removed after this time, even while its JoinGroup is parked (KAFKA-7610).
NEW_MEMBER_TIMEOUT_MS: Final = 300_000

# A group's budget for notes (records that explain its rebalances to people, `notes.py`): its size, the extra for each new member,
# and the time in which it grows by one note.
NOTE_BUDGET_MAX: Final = 200
NOTES_PER_NEW_MEMBER: Final = 4
MS_PER_NOTE: Final = 50

BATCH_BYTES_MAX: Final = 1_048_588  # Kafka's default of max.message.bytes


class GroupConfig(NamedTuple):
    """Settings of groups. Names, units and defaults are Kafka's, except those of the last five fields."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = (1 << 31) - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    # The records that one operation writes must fit into one batch; otherwise the operation is refused before it changes anything.
    batch_bytes_max: int = BATCH_BYTES_MAX
    default_policies: GroupPolicies = NO_POLICIES  # for groups without a value of their own
    # What one member may keep in memory, its assignment apart, and all groups of the node together (`kept.py`).
    group_member_metadata_max_bytes: int = 4 << 20
    groups_metadata_max_bytes: int = 1 << 28
    consumer: ConsumerConfig = CONSUMER_DEFAULTS
