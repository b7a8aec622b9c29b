"""The settings a topic may have: Kafka's names, defaults and limits.

A setting that has no effect here yet is kept and shown like any other: tools that create topics name many.
"""

from __future__ import annotations

from dataclasses import dataclass

_INT = (-(1 << 31), (1 << 31) - 1)
_LONG = (-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True, slots=True)
class TopicSetting:
    name: str
    kind: str  # int, long, double, boolean, string, list, replicas
    default: str
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    also: int | None = None  # one value outside the limits that is allowed nevertheless

    def problem(self, value: str) -> str | None:
        """What Kafka says of a value that it refuses, or None."""
        said = f"Invalid value {value} for configuration {self.name}"
        match self.kind:
            case "boolean":
                return None if value.strip().lower() in ("true", "false") else f"{said}: Expected value to be either true or false"
            case "string":
                return None if value in self.choices else f"{said}: String must be one of: {', '.join(self.choices)}"
            case "list":
                for item in value.split(","):
                    if item.strip() not in self.choices:
                        return f"Invalid value {item.strip()} for configuration {self.name}: String must be one of: {', '.join(self.choices)}"
                return None
            case "replicas":
                return None if _throttled_replicas(value) else f"{said}: [partitionId]:[brokerId],[partitionId]:[brokerId],... or *"
        number = _number(self.kind, value.strip())
        if number is None:
            return f"{said}: Not a number of type {self.kind.upper()}"
        if number == self.also:
            return None
        if self.least is not None and number < self.least:
            return f"{said}: Value must be at least {self.least:g}" if self.least < 1e6 else f"{said}: Value must be at least {self.least:.0f}"
        if self.most is not None and number > self.most:
            return f"{said}: Value must be no more than {self.most:g}"
        return None


def _number(kind: str, text: str) -> float | None:
    try:
        if kind == "double":
            return float(text)
        number = int(text)
    except ValueError:
        return None
    low, high = _INT if kind == "int" else _LONG
    return number if low <= number <= high else None


def _throttled_replicas(value: str) -> bool:
    if value.strip() in ("", "*"):
        return True
    return all(
        len(pair) == 2 and pair[0].strip().isdecimal() and pair[1].strip().isdecimal()
        for pair in (item.split(":") for item in value.split(","))
    )


_LONG_MAX = str(_LONG[1])

TOPIC_SETTINGS: dict[str, TopicSetting] = {
    setting.name: setting
    for setting in (
        TopicSetting("cleanup.policy", "list", "delete", choices=("compact", "delete")),
        TopicSetting("compression.gzip.level", "int", "-1", 1, 9, also=-1),
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


def settings_problem(settings: dict[str, str | None]) -> str | None:
    """The first thing wrong with a topic's settings, or None."""
    nulls = sorted(name for name, value in settings.items() if value is None)
    if nulls:
        return f"Null value not supported for topic configs: {', '.join(nulls)}"
    for name, value in settings.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            return f"Unknown topic config name: {name}"
        problem = setting.problem(value or "")
        if problem is not None:
            return problem
    return None
