"""Settings of groups of the consumer protocol."""

from __future__ import annotations

from typing import Final, NamedTuple

# At least this long passes between two resolutions of a group's expressions, so that a new topic is seen after it at the latest.
RESOLUTION_INTERVAL_MS: Final = 10_000


class ConsumerConfig(NamedTuple):
    """Names, units and defaults are Kafka's, without `group.consumer.`."""

    enabled: bool = True  # whether `group.coordinator.rebalance.protocols` has the protocol
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    assignors: tuple[str, ...] = ("uniform", "range")  # the first is used when no member asks for one
    max_size: int = (1 << 31) - 1
    regex_refresh_interval_ms: int = 600_000


CONSUMER_DEFAULTS: Final = ConsumerConfig()
