"""Settings of groups of the consumer protocol: those of the broker, and those that one group may have of its own."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from coordinator.consumer.assignors import ASSIGNORS

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
    assignors: tuple[str, ...] = tuple(ASSIGNORS)  # the first is used when no member asks for one
    max_size: int = (1 << 31) - 1
    regex_refresh_interval_ms: int = 600_000
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    # The bounds of a group's own values.
    min_session_timeout_ms: int = 45_000
    max_session_timeout_ms: int = 60_000
    min_heartbeat_interval_ms: int = 5_000
    max_heartbeat_interval_ms: int = 15_000
    min_assignment_interval_ms: int = 0
    max_assignment_interval_ms: int = 15_000


CONSUMER_DEFAULTS: Final = ConsumerConfig()


class GroupSetting(NamedTuple):
    """A setting that a group may have of its own."""

    name: str
    sentence: str

    @property
    def field(self) -> str:
        """Of `ConsumerConfig`."""
        return self.name.removeprefix("consumer.").replace(".", "_")

    @property
    def broker_name(self) -> str:
        """The setting that all other groups have."""
        return f"group.{self.name}"

    def of(self, config: ConsumerConfig) -> int:
        value: int = getattr(config, self.field)
        return value

    def bounds(self, config: ConsumerConfig) -> tuple[int, int]:
        return getattr(config, f"min_{self.field}"), getattr(config, f"max_{self.field}")


SESSION_TIMEOUT: Final = GroupSetting("consumer.session.timeout.ms", "A member that is not heard for so long is removed.")
HEARTBEAT_INTERVAL: Final = GroupSetting("consumer.heartbeat.interval.ms", "How often members send a heartbeat.")
ASSIGNMENT_INTERVAL: Final = GroupSetting("consumer.assignment.interval.ms", "The least time between two computed assignments.")
GROUP_SETTINGS: Final = {setting.name: setting for setting in (ASSIGNMENT_INTERVAL, HEARTBEAT_INTERVAL, SESSION_TIMEOUT)}


def settings_problems(config: ConsumerConfig, texts: Mapping[str, str]) -> list[str]:
    """Why a group may not have these settings, which `GROUP_SETTINGS` has, a sentence each. `config`: that of the broker."""
    problems: list[str] = []
    for name, text in texts.items():
        low, high = GROUP_SETTINGS[name].bounds(config)
        value = number(text)
        if value is None or not low <= value <= high:
            problems.append(f"{name}: {text!r} is not a number of milliseconds from {low} to {high}")
    if problems:
        return problems
    own = config_of_group(config, texts)
    if own.heartbeat_interval_ms >= own.session_timeout_ms:
        problems.append(f"{HEARTBEAT_INTERVAL.name} ({own.heartbeat_interval_ms}) must be less than {SESSION_TIMEOUT.name} ({own.session_timeout_ms})")
    return problems


def config_of_group(config: ConsumerConfig, texts: Mapping[str, str]) -> ConsumerConfig:
    """The settings of a group that has these of its own. A value beyond the bounds, which may have changed since it was set, counts as the nearest bound."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        setting = GROUP_SETTINGS.get(name)
        value = number(text)
        if setting is not None and value is not None:
            low, high = setting.bounds(config)
            values[setting.field] = min(max(value, low), high)
    return config._replace(**values) if values else config


def number(text: str) -> int | None:
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None
