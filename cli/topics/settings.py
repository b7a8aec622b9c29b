"""Settings of topics as DescribeConfigs reports them, with their sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cli.client import check
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

if TYPE_CHECKING:
    from cli.client import Cluster
    from cli.shown import Screen

SIZE: Final = re.compile(r"(\d{1,12}) ?([KMGT])i?B?", re.ASCII | re.IGNORECASE)
TOPIC: Final = 2  # a resource's type
OWN: Final = 1  # config source: the value was set for the topic itself
DEFAULT: Final = 5
SOURCES: Final = {
    OWN: "topic",
    2: "broker (dynamic)",
    3: "cluster (dynamic)",
    4: "broker (static)",
    DEFAULT: "default",
}


class Setting(NamedTuple):
    name: str
    value: str | None  # None: sensitive, so the broker does not send it
    source: int
    sensitive: bool
    inherited: str | None  # the value that applies if the topic's own one is removed

    @property
    def is_default(self) -> bool:
        return self.source == DEFAULT

    @property
    def is_own(self) -> bool:
        return self.source == OWN

    @property
    def source_name(self) -> str:
        return SOURCES.get(self.source, f"source {self.source}")


def similar_names(names: Iterable[str]) -> str:
    """A suggestion for unknown names of settings; "" if there is none."""
    from difflib import get_close_matches

    from broker.topics.settings import TOPIC_SETTINGS

    near = [match for name in names if name not in TOPIC_SETTINGS for match in get_close_matches(name, list(TOPIC_SETTINGS), 1, 0.7)]
    return f"; did you mean {', '.join(near)}?" if near else ""


def value_meant(settings: Iterable[tuple[str, str | None]]) -> str:
    """A suggestion for a value with a unit, such as retention.ms=7d or segment.bytes=1GB; "" if there is none."""
    from cli.groups.offset_formats import parse_duration

    for name, value in settings:
        size = SIZE.fullmatch(value or "")
        if name.endswith(".bytes") and size:
            return f"; did you mean {int(size[1]) << 10 * ' KMGT'.index(size[2].upper())}?"
        if name.endswith(".ms") and value:
            try:
                return f"; did you mean {parse_duration(value)}?"
            except ValueError:
                continue
    return ""


def topic_settings(cluster: Cluster, topics: Sequence[str]) -> dict[str, dict[str, Setting]]:
    """The settings of each topic, by name, from any broker."""
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, topic) for topic in topics], include_synonyms=True)
    settings: dict[str, dict[str, Setting]] = {}
    for result in cluster.send_to_any(request).results:
        check(result.error_code, f"settings of topic {result.resource_name}", result.error_message)
        settings[result.resource_name] = {
            config.name: Setting(
                config.name,
                config.value,
                config.config_source,
                config.is_sensitive,
                next((synonym.value for synonym in config.synonyms if synonym.source != OWN), None),
            )
            for config in sorted(result.configs, key=lambda config: config.name)
        }
    return settings


def setting_document(setting: Setting) -> dict[str, Any]:
    return {
        "name": setting.name,
        "value": None if setting.sensitive else setting.value,
        "source": setting.source_name,
        "sensitive": setting.sensitive,
        "without_it": setting.inherited if setting.is_own else None,
    }


def setting_table(screen: Screen, settings: Sequence[dict[str, Any]]) -> None:
    """A table of the documents of settings."""
    screen.table(["SETTING", "VALUE", "SET BY", "OTHERWISE"], [setting_row(setting) for setting in settings])


def setting_row(setting: dict[str, Any]) -> list[object]:
    value = "(hidden)" if setting["sensitive"] else "(empty)" if setting["value"] == "" else setting["value"]
    return [setting["name"], value, setting["source"], setting["without_it"]]
