"""Settings of groups of the consumer protocol."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

# At least this long passes between two resolutions of a group's expressions, so that a new topic is seen after it at the latest.
RESOLUTION_INTERVAL_MS: Final = 10_000


class MigrationPolicy(Enum):
    """Whether a group with members may pass from one protocol to the other. An empty group always may."""

    DISABLED = "disabled"  # nor may members of the two protocols share a group
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class ConsumerConfig(NamedTuple):
    """Names, units and defaults are Kafka's, without `group.consumer.`."""

    enabled: bool = True  # whether `group.coordinator.rebalance.protocols` has the protocol
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    assignors: tuple[str, ...] = ("uniform", "range")  # the first is used when no member asks for one
    max_size: int = (1 << 31) - 1
    regex_refresh_interval_ms: int = 600_000
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL


CONSUMER_DEFAULTS: Final = ConsumerConfig()
