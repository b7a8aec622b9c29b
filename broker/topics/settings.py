"""Topic settings with Kafka's names, defaults and limits.

Settings without effect are stored and shown too, since tools that create topics set many of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from broker.settings.config import Config
from broker.settings.setting import format_setting

_INT = (-(1 << 31), (1 << 31) - 1)
_LONG = (-(1 << 63), (1 << 63) - 1)
_SPACE = "".join(map(chr, range(33)))  # the characters that Java's `trim` removes
_PARTITION_AND_BROKER = re.compile(r"(?:[0-9]+:[0-9]+)?")


@dataclass(frozen=True, slots=True)
class TopicSetting:
    name: str
    kind: str  # int, long, double, boolean, string, list, replicas
    default: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    extra_value: int | None = None  # one more valid value, outside the limits

    def problem(self, value: str) -> str | None:
        """Kafka's message for an invalid value, or None. Surrounding space is ignored."""
        unstripped, value = value, value.strip(_SPACE)
        match self.kind:
            case "boolean":
                return None if value.lower() in ("true", "false") else self._invalid(unstripped, "Expected value to be either true or false")
            case "string":
                return None if value in self.choices else self._invalid(value, f"String must be one of: {', '.join(self.choices)}")
            case "list":
                for item in items_of(value):
                    if not item:
                        return f"Configuration '{self.name}' values must not be empty."
                    if item not in self.choices:
                        return self._invalid(item, f"String must be one of: {', '.join(self.choices)}")
                return None
            case "replicas":
                return self._replicas_problem(items_of(value))
        number = _number(self.kind, value)
        if number is None:
            return self._invalid(unstripped, f"Not a number of type {self.kind.upper()}")
        limit = self._violated_limit(number)
        return self._invalid(number, f"Value must be {limit}") if limit else None

    def normalized(self, value: str) -> str:
        """A valid value in normal form, as it is shown."""
        value = value.strip(_SPACE)
        match self.kind:
            case "boolean":
                return value.lower()
            case "list" | "replicas":
                return ",".join(items_of(value))
            case "int" | "long":
                return str(int(value))
            case "double":
                return str(float(value))
        return value

    def _invalid(self, value: object, expected: str) -> str:
        return f"Invalid value {value} for configuration {self.name}: {expected}"

    def _violated_limit(self, number: float) -> str | None:
        if number == self.extra_value:
            return None
        low = self.minimum is not None and number < self.minimum
        high = self.maximum is not None and number > self.maximum
        if self.extra_value is not None:
            return f"between {self.minimum} and {self.maximum} or equal to {self.extra_value}" if low or high else None
        return f"at least {self.minimum}" if low else f"no more than {self.maximum}" if high else None

    def _replicas_problem(self, items: list[str]) -> str | None:
        if "".join(items) == "*" or all(_PARTITION_AND_BROKER.fullmatch(item) for item in items):
            return None
        shape = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        why = f"{self.name} must be the literal '*' or a list of replicas in the following format: {shape}"
        return self._invalid(f"[{', '.join(items)}]", why)


def items_of(value: str) -> list[str]:
    return [item.strip(_SPACE) for item in value.split(",")] if value else []


def _number(kind: str, text: str) -> float | None:
    if "_" in text or (kind == "double" and not text.isascii()):  # Python reads such text as a number, Kafka does not
        return None
    try:
        if kind == "double":
            return float(text)
        number = int(text)
    except ValueError:
        return None
    low, high = _INT if kind == "int" else _LONG
    return number if low <= number <= high else None


_LONG_MAX = str(_LONG[1])

TOPIC_SETTINGS: dict[str, TopicSetting] = {
    setting.name: setting
    for setting in (
        TopicSetting("cleanup.policy", "list", "delete", choices=("compact", "delete")),
        TopicSetting("compression.gzip.level", "int", "-1", 1, 9, extra_value=-1),
        TopicSetting("compression.lz4.level", "int", "9", 1, 17),
        TopicSetting("compression.type", "string", "producer", choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        TopicSetting("compression.zstd.level", "int", "3", -131072, 22),
        TopicSetting("delete.retention.ms", "long", "86400000", 0),
        TopicSetting("file.delete.delay.ms", "long", "60000", 0),
        TopicSetting("flush.messages", "long", _LONG_MAX, 1),
        TopicSetting("flush.ms", "long", _LONG_MAX, 0),
        TopicSetting("follower.replication.throttled.replicas", "replicas", ""),
        TopicSetting("index.interval.bytes", "int", "4096", 0),
        TopicSetting("leader.replication.throttled.replicas", "replicas", ""),
        TopicSetting("local.retention.bytes", "long", "-2", -2),
        TopicSetting("local.retention.ms", "long", "-2", -2),
        TopicSetting("max.compaction.lag.ms", "long", _LONG_MAX, 1),
        TopicSetting("max.message.bytes", "int", "1048588", 0),
        TopicSetting("message.timestamp.after.max.ms", "long", "3600000", 0),
        TopicSetting("message.timestamp.before.max.ms", "long", _LONG_MAX, 0),
        TopicSetting("message.timestamp.type", "string", "CreateTime", choices=("CreateTime", "LogAppendTime")),
        TopicSetting("min.cleanable.dirty.ratio", "double", "0.5", 0, 1),
        TopicSetting("min.compaction.lag.ms", "long", "0", 0),
        TopicSetting("min.insync.replicas", "int", "1", 1),
        TopicSetting("preallocate", "boolean", "false"),
        TopicSetting("remote.log.copy.disable", "boolean", "false"),
        TopicSetting("remote.log.delete.on.disable", "boolean", "false"),
        TopicSetting("remote.storage.enable", "boolean", "false"),
        TopicSetting("retention.bytes", "long", "-1"),
        TopicSetting("retention.ms", "long", "604800000", -1),
        TopicSetting("segment.bytes", "int", "1073741824", 1048576),
        TopicSetting("segment.index.bytes", "int", "10485760", 4),
        TopicSetting("segment.jitter.ms", "long", "0", 0),
        TopicSetting("segment.ms", "long", "604800000", 1),
        TopicSetting("unclean.leader.election.enable", "boolean", "false"),
    )
}

# The broker settings that are the defaults of topic settings.
BROKER_FIELDS: dict[str, str] = {
    "cleanup.policy": "log_cleanup_policy",
    "compression.gzip.level": "compression_gzip_level",
    "compression.lz4.level": "compression_lz4_level",
    "compression.type": "compression_type",
    "compression.zstd.level": "compression_zstd_level",
    "delete.retention.ms": "log_cleaner_delete_retention_ms",
    "file.delete.delay.ms": "log_segment_delete_delay_ms",
    "max.compaction.lag.ms": "log_cleaner_max_compaction_lag_ms",
    "max.message.bytes": "message_max_bytes",
    "message.timestamp.after.max.ms": "log_message_timestamp_after_max_ms",
    "message.timestamp.before.max.ms": "log_message_timestamp_before_max_ms",
    "message.timestamp.type": "log_message_timestamp_type",
    "min.cleanable.dirty.ratio": "log_cleaner_min_cleanable_ratio",
    "min.compaction.lag.ms": "log_cleaner_min_compaction_lag_ms",
    "retention.bytes": "log_retention_bytes",
    "retention.ms": "log_retention_ms",
    "segment.bytes": "log_segment_bytes",
    "segment.jitter.ms": "log_roll_jitter_ms",
    "segment.ms": "log_roll_ms",
}
PRODUCER = "producer"  # compression.type: batches keep the compression of their producers
LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The effective values of a topic's settings. -1 means no limit."""

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    retention_ms: int
    retention_bytes: int
    compact: bool
    delete: bool
    max_message_bytes: int
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compression: str  # PRODUCER, uncompressed, gzip, snappy, lz4 or zstd
    gzip_level: int
    lz4_level: int
    zstd_level: int
    delete_retention_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    file_delete_delay_ms: int


def broker_defaults(config: Config) -> dict[str, str]:
    """The broker's defaults of topic settings, by the topic's name of the setting."""
    return {name: format_setting(getattr(config, field)) for name, field in BROKER_FIELDS.items()}


def log_settings(topic_settings: Mapping[str, str], defaults: Mapping[str, str]) -> LogSettings:
    """The effective settings of a topic: its own (valid) settings, else the broker's `defaults`, else Kafka's."""

    def text(name: str) -> str:
        value = topic_settings.get(name)
        if value is None:
            value = defaults.get(name)
        return (TOPIC_SETTINGS[name].default if value is None else value).strip(_SPACE)

    def number(name: str) -> int:
        return int(text(name))

    policies = items_of(text("cleanup.policy"))
    return LogSettings(
        segment_bytes=number("segment.bytes"),
        segment_ms=number("segment.ms"),
        segment_jitter_ms=number("segment.jitter.ms"),
        retention_ms=max(number("retention.ms"), -1),
        retention_bytes=max(number("retention.bytes"), -1),
        compact="compact" in policies,
        delete="delete" in policies,
        max_message_bytes=number("max.message.bytes"),
        log_append_time=text("message.timestamp.type") == LOG_APPEND_TIME,
        timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        compression=text("compression.type"),
        gzip_level=number("compression.gzip.level"),
        lz4_level=number("compression.lz4.level"),
        zstd_level=number("compression.zstd.level"),
        delete_retention_ms=number("delete.retention.ms"),
        min_cleanable_dirty_ratio=float(text("min.cleanable.dirty.ratio")),
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
        file_delete_delay_ms=number("file.delete.delay.ms"),
    )


def settings_problem(pairs: list[tuple[str, str | None]]) -> str | None:
    """The first problem of a topic's settings, or None. Of several values for a name, the last counts."""
    nulls = [name for name, value in pairs if value is None]
    if nulls:
        return f"Null value not supported for topic configs: {','.join(nulls)}"
    settings = {name: value for name, value in pairs if value is not None}
    unknown = next((name for name in settings if name not in TOPIC_SETTINGS), None)
    if unknown is not None:
        return f"Unknown topic config name: {unknown}"
    problems = (TOPIC_SETTINGS[name].problem(value) for name, value in settings.items())
    return next(filter(None, problems), None) or _contradiction(settings)


def _contradiction(settings: dict[str, str]) -> str | None:
    if settings.get("remote.storage.enable", "false").strip(_SPACE).lower() == "true":
        return "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
    minimum, maximum = (int(settings.get(name, TOPIC_SETTINGS[name].default)) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"))
    if minimum > maximum:
        return f"conflict topic config setting min.compaction.lag.ms ({minimum}) > max.compaction.lag.ms ({maximum})"
    return None
