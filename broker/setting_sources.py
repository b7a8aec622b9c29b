"""Where the value of a setting comes from: a topic's own, what somebody gave the broker, or the default.

As DescribeConfigs shows it: the value that counts first, then what would count without it.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.config import RETENTION, ROLL, ROLL_JITTER, Config, shown
from broker.known_settings import KNOWN
from broker.settings import ALIASES, SETTINGS
from broker.topic_settings import BROKER_FIELDS, TOPIC_SETTINGS
from broker.topics import Topic

# As DescribeConfigs numbers them.
TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5

HONOURED = {setting.name: setting for setting in SETTINGS}
_UNITS = {names[0]: names for names in (RETENTION, ROLL, ROLL_JITTER)}  # the finest first: of several that is the one that counts
# Broker settings that topics have too, though they have no effect here.
_SHOWN_ONLY = {
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "local.retention.bytes": ("log.local.retention.bytes",),
    "local.retention.ms": ("log.local.retention.ms",),
    "min.insync.replicas": ("min.insync.replicas",),
    "preallocate": ("log.preallocate",),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
}


class Source(NamedTuple):
    name: str
    value: str | None
    source: int


class SettingSources:
    """What topics and the broker are told about their settings. All of a broker's stand from its start to its end."""

    def __init__(self, config: Config, node_id: int, data_directory: str) -> None:
        self._given = config.given
        self._own = {"node.id": str(node_id), "broker.id": str(node_id), "log.dirs": data_directory, "log.dir": data_directory}
        names = {name: _broker_names(field.replace("_", ".")) for name, field in BROKER_FIELDS.items()} | _SHOWN_ONLY
        self._behind_topics: dict[str, tuple[Source, ...]] = {}
        self._defaults: dict[str, tuple[str, int]] = {}
        for name, setting in TOPIC_SETTINGS.items():
            behind = [source for broker_name in names.get(name, ()) for source in self.of_broker(broker_name) if source.value is not None]
            behind.sort(key=lambda source: source.source)
            self._behind_topics[name] = tuple(behind)
            effective = shown(getattr(config, BROKER_FIELDS[name])) if name in BROKER_FIELDS else setting.default
            self._defaults[name] = (effective, behind[0].source if behind else DEFAULT)

    def of_topic(self, topic: Topic, name: str) -> tuple[Source, ...]:
        """The first one counts; it has the topic's name for the setting, the broker's have the broker's."""
        behind = self._behind_topics[name]
        own = topic.settings.get(name)
        return (Source(name, own, TOPIC), *behind) if own is not None else behind

    def in_topic(self, topic: Topic, name: str) -> tuple[str, int]:
        """The value that counts, in the topic's unit, and where it comes from."""
        own = topic.settings.get(name)
        return (own, TOPIC) if own is not None else self._defaults[name]

    def of_broker(self, name: str) -> tuple[Source, ...]:
        """What was given, and the default."""
        given = self._own.get(name)
        if given is None:
            given = self._given.get(ALIASES.get(name, name))
        default = Source(name, _default(name), DEFAULT)
        if given is None:
            return (default,)
        return (Source(name, given, STATIC_BROKER),) if default.value is None else (Source(name, given, STATIC_BROKER), default)


def _broker_names(finest: str) -> tuple[str, ...]:
    return _UNITS.get(finest, (finest,))


def _default(name: str) -> str | None:
    setting = HONOURED.get(name)
    # Of a setting in several units one has a default, and that is the coarsest.
    if setting is not None and not any(name in names[:-1] for names in _UNITS.values()):
        return shown(setting.default)
    default = KNOWN[name][1] if name in KNOWN else None
    return None if default == "-" else default
