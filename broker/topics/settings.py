"""Topic settings with Kafka's names, defaults and limits.

Settings without effect are stored and shown too, since tools that create topics set many of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.settings.config import SUPPORTED, Config
from broker.settings.setting import LONG_MAX, format_setting
from broker.topics.setting import SPACE, TopicSetting, of_broker, settings_by_field

PRODUCER: Final = "producer"  # compression.type: batches keep the compression of their producers
LOG_APPEND_TIME: Final = "LogAppendTime"

_NO_TIERS = "There is no tiered storage here: this is stored and shown, but has no effect."
_ONE_COPY = "There is one copy of the data here: this is stored and shown, but has no effect."
_SYSTEM_FLUSHES = "Topic data is flushed by the operating system here, at orderly stops and when a segment is closed: this is stored and shown, but has no effect."

# The settings that are stored and shown, and have no effect here.
SHOWN_ONLY: Final = (
    TopicSetting("flush.messages", "long", str(LONG_MAX), _SYSTEM_FLUSHES, 1, broker="log.flush.interval.messages"),
    TopicSetting("flush.ms", "long", str(LONG_MAX), _SYSTEM_FLUSHES, 0, broker="log.flush.interval.ms"),
    TopicSetting("follower.replication.throttled.replicas", "replicas", "", _ONE_COPY),
    TopicSetting(
        "index.interval.bytes", "int", "4096",
        "The bytes of log between two entries of its index. Stored and shown; the distance here is Kafka's default.", 0, broker="log.index.interval.bytes",
    ),
    TopicSetting("leader.replication.throttled.replicas", "replicas", "", _ONE_COPY),
    TopicSetting("local.retention.bytes", "long", "-2", _NO_TIERS, -2, broker="log.local.retention.bytes"),
    TopicSetting("local.retention.ms", "long", "-2", _NO_TIERS, -2, broker="log.local.retention.ms"),
    TopicSetting("min.insync.replicas", "int", "1", _ONE_COPY, 1, broker="min.insync.replicas"),
    TopicSetting(
        "preallocate", "boolean", "false",
        "Whether segment files are created at full size. Stored and shown; files grow as they are written here.", broker="log.preallocate",
    ),
    TopicSetting("remote.log.copy.disable", "boolean", "false", _NO_TIERS),
    TopicSetting("remote.log.delete.on.disable", "boolean", "false", _NO_TIERS),
    TopicSetting("remote.storage.enable", "boolean", "false", _NO_TIERS),
    TopicSetting(
        "segment.index.bytes", "int", "10485760",
        "The largest index of a segment. Stored and shown; indexes grow with their segments here.", 4, broker="log.index.size.max.bytes",
    ),
    TopicSetting("unclean.leader.election.enable", "boolean", "false", _ONE_COPY, broker="unclean.leader.election.enable"),
)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The effective values of a topic's settings, each under its name with underscores for dots. -1 means no limit."""

    # What follows from the settings.
    compact: bool
    delete: bool
    log_append_time: bool
    # The settings.
    cleanup_policy: tuple[str, ...] = of_broker(
        "log.cleanup.policy",
        "The treatment of old data: 'delete' drops whole segments by age and size, 'compact' keeps the newest record of each key. "
        "Both may be set.",
    )
    compression_gzip_level: int = of_broker(
        "compression.gzip.level",
        "The level of gzip where compression.type is gzip: 1 to 9, or -1 for the library's own choice.", minimum=1, extra_value=-1,
    )
    compression_lz4_level: int = of_broker("compression.lz4.level", "The level of lz4 where compression.type is lz4.")
    compression_type: str = of_broker(
        "compression.type",
        "How batches are stored: 'producer' keeps their compression, 'uncompressed' removes it, a codec recompresses them.",
    )
    compression_zstd_level: int = of_broker("compression.zstd.level", "The level of zstd where compression.type is zstd.")
    delete_retention_ms: int = of_broker(
        "log.cleaner.delete.retention.ms",
        "How long a tombstone is kept after the compaction that applied it, so that slow consumers see it.",
    )
    file_delete_delay_ms: int = of_broker(
        "log.segment.delete.delay.ms",
        "How long the files of dropped segments stay on the disk under another name.",
    )
    max_compaction_lag_ms: int = of_broker(
        "log.cleaner.max.compaction.lag.ms",
        "A log whose records wait longer than this for compaction is compacted, whatever their number.",
    )
    max_message_bytes: int = of_broker("message.max.bytes", "The largest batch that is accepted from a producer, as compressed.")
    message_timestamp_after_max_ms: int = of_broker(
        "log.message.timestamp.after.max.ms",
        "How far a record's timestamp may be ahead of the broker's clock before the record is refused.",
    )
    message_timestamp_before_max_ms: int = of_broker(
        "log.message.timestamp.before.max.ms",
        "How far a record's timestamp may be behind the broker's clock before the record is refused.",
    )
    message_timestamp_type: str = of_broker(
        "log.message.timestamp.type",
        "Whether records keep the time set by their producer or get the time of their append.",
    )
    min_cleanable_dirty_ratio: float = of_broker(
        "log.cleaner.min.cleanable.ratio",
        "The dirty ratio above which a log is compacted: bytes appended since the last compaction, divided by all its bytes.",
    )
    min_compaction_lag_ms: int = of_broker("log.cleaner.min.compaction.lag.ms", "Records younger than this are not removed by compaction.")
    retention_bytes: int = of_broker(
        "log.retention.bytes",
        "How large the log of one partition may become before its oldest segments are dropped, where cleanup.policy has delete. "
        "-1 is no limit.",
    )
    retention_ms: int = of_broker(
        "log.retention.ms",
        "How old the newest record of a segment may become before the segment is dropped, where cleanup.policy has delete. "
        "-1 is no limit.",
    )
    segment_bytes: int = of_broker(
        "log.segment.bytes",
        "The size at which a segment is closed and the next one begun; whole segments are dropped and compacted.",
    )
    segment_jitter_ms: int = of_broker(
        "log.roll.jitter.ms",
        "A random time up to this is subtracted from segment.ms for each segment, so that not all close at once.",
    )
    segment_ms: int = of_broker("log.roll.ms", "The age at which a segment is closed even if it is not full.")


FIELDS: Final = dict(settings_by_field(LogSettings))
TOPIC_SETTINGS: Final = {setting.name: setting for setting in sorted((*FIELDS.values(), *SHOWN_ONLY), key=lambda setting: setting.name)}


def broker_defaults(config: Config) -> dict[str, str]:
    """The broker's defaults of topic settings, by the topic's name of the setting."""
    honoured = ((name, SUPPORTED.get(setting.broker)) for name, setting in TOPIC_SETTINGS.items())
    return {name: format_setting(getattr(config, broker.field)) for name, broker in honoured if broker is not None}


def log_settings(topic_settings: Mapping[str, str], defaults: Mapping[str, str]) -> LogSettings:
    """The effective settings of a topic: its own (valid) settings, else the broker's `defaults`, else Kafka's."""
    values: dict[str, Any] = {
        field: setting.value_of(topic_settings.get(setting.name, defaults.get(setting.name, setting.default)))
        for field, setting in FIELDS.items()
    }
    values |= {field: max(values[field], -1) for field in ("retention_ms", "retention_bytes")}
    policies = values["cleanup_policy"]
    return LogSettings(
        compact="compact" in policies,
        delete="delete" in policies,
        log_append_time=values["message_timestamp_type"] == LOG_APPEND_TIME,
        **values,
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
    if settings.get("remote.storage.enable", "false").strip(SPACE).lower() == "true":
        return "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
    minimum, maximum = (int(settings.get(name, TOPIC_SETTINGS[name].default)) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"))
    if minimum > maximum:
        return f"conflict topic config setting min.compaction.lag.ms ({minimum}) > max.compaction.lag.ms ({maximum})"
    return None
