"""The sources of a setting's value for DescribeConfigs: the topic, the broker's configuration, the default.

The first source is effective; the next one would be effective without it.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG, NOTES_SEGMENT_BYTES
from broker.settings.config import ALIASES, SUPPORTED, UNITS, Config
from broker.settings.kafka_names import KNOWN
from broker.settings.setting import format_setting
from broker.topics.registry import Topic
from broker.topics.settings import TOPIC_SETTINGS, broker_defaults

# Source codes of DescribeConfigs.
TOPIC, DYNAMIC_BROKER, STATIC_BROKER, DEFAULT = 1, 2, 4, 5

_UNITS = {names[0]: names for names in UNITS}  # the finest unit first; it overrides the others


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: int  # its code in DescribeConfigs


class SettingSources:
    """Values and sources of all topic and broker settings. Broker settings do not change while the broker runs."""

    def __init__(self, config: Config, node_id: int, data_directory: str) -> None:
        self.given = config.given
        # The logs of internal topics are configured by broker settings.
        self._of_internal = {
            CONSUMER_OFFSETS: {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
            NOTES_LOG: {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "segment.bytes": str(NOTES_SEGMENT_BYTES),
                "retention.ms": str(config.notes_retention_ms),
                "retention.bytes": "-1",
            },
        }
        self._own = {"node.id": str(node_id), "broker.id": str(node_id), "log.dirs": data_directory, "log.dir": data_directory}
        self._fallbacks: dict[str, tuple[Synonym, ...]] = {}
        self._defaults: dict[str, tuple[str, int]] = {}
        defaults = broker_defaults(config)
        for name, setting in TOPIC_SETTINGS.items():
            fallbacks = self._fallbacks_of(setting.broker)
            self._fallbacks[name] = fallbacks
            self._defaults[name] = (defaults.get(name, setting.default), fallbacks[0].source if fallbacks else DEFAULT)

    def _fallbacks_of(self, broker_name: str) -> tuple[Synonym, ...]:
        """The values configured in any unit, the finest unit first; then the default of `broker_name`, which settings with several units lack."""
        if not broker_name:
            return ()
        names = _UNITS.get(broker_name, (broker_name,))
        configured = [source for name in names for source in self.broker_sources(name) if source.source != DEFAULT]
        return (*configured, *[source for source in self.broker_sources(broker_name) if source.source == DEFAULT and source.value is not None])

    def topic_sources(self, topic: Topic, name: str) -> tuple[Synonym, ...]:
        """The sources, the effective one first, each under the topic's or the broker's name of the setting."""
        fallbacks = self._fallbacks[name]
        own = self._own_of(topic, name)
        return (Synonym(name, own, TOPIC), *fallbacks) if own is not None else fallbacks

    def topic_value(self, topic: Topic, name: str) -> tuple[str, int]:
        """The effective value, in the topic's unit, and its source."""
        own = self._own_of(topic, name)
        return (own, TOPIC) if own is not None else self._defaults[name]

    def default(self, name: str) -> tuple[str, int]:
        """Value and source for topics without their own value."""
        return self._defaults[name]

    def _own_of(self, topic: Topic, name: str) -> str | None:
        if topic.internal and name in self._of_internal[topic.name]:
            return self._of_internal[topic.name][name]
        own = topic.settings.get(name)
        return None if own is None else TOPIC_SETTINGS[name].normalized(own)

    def broker_sources(self, name: str) -> tuple[Synonym, ...]:
        """The configured value, if any, and the default."""
        value = self._own.get(name)
        if value is None:
            value = self.given.get(ALIASES.get(name, name))
        default = Synonym(name, _default(name), DEFAULT)
        if value is None:
            return (default,)
        return (Synonym(name, value, STATIC_BROKER),) if default.value is None else (Synonym(name, value, STATIC_BROKER), default)


@cache
def _default(name: str) -> str | None:
    setting = SUPPORTED.get(name)
    # Only the coarsest unit of a setting has a default.
    if setting is not None and not any(name in names[:-1] for names in _UNITS.values()):
        return format_setting(setting.default)
    default = KNOWN[name][1] if name in KNOWN else None
    return None if default == "-" else default
