"""A setting of topics, and Kafka's messages about wrong values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from broker.settings.config import SUPPORTED
from broker.settings.setting import INT_MAX, LONG_MAX, format_setting

ROW: Final = "setting"  # the key in a field's metadata
_INT = (-(1 << 31), (1 << 31) - 1)
_LONG = (-(1 << 63), (1 << 63) - 1)
SPACE = "".join(map(chr, range(33)))  # the characters that Java's `trim` removes
_PARTITION_AND_BROKER = re.compile(r"(?:[0-9]+:[0-9]+)?")


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """One setting: its default as text, Kafka's limits, and the text of DescribeConfigs."""

    name: str
    kind: str  # int, long, double, boolean, string, list, replicas
    default: str
    doc: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    extra_value: int | None = None  # one more valid value, outside the limits
    broker: str = ""  # the broker setting that has the default

    def problem(self, value: str) -> str | None:
        """Kafka's message for an invalid value, or None. Surrounding space is ignored."""
        unstripped, value = value, value.strip(SPACE)
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
        value = value.strip(SPACE)
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

    def value_of(self, text: str) -> Any:
        """The effective value, of a valid text."""
        match self.kind:
            case "boolean":
                return text.strip(SPACE).lower() == "true"
            case "list" | "replicas":
                return tuple(items_of(text.strip(SPACE)))
            case "int" | "long":
                return int(text)
            case "double":
                return float(text)
        return text.strip(SPACE)

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
    return [item.strip(SPACE) for item in value.split(",")] if value else []


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


def row(kind: str, default: str, doc: str, minimum: int | None = None, maximum: int | None = None, **more: Any) -> Any:
    """A field that a topic's setting fills: the setting takes its name from the field."""
    return field(metadata={ROW: TopicSetting("", kind, default, doc, minimum, maximum, **more)})


def of_broker(name: str, doc: str, *, minimum: int | None = None, extra_value: int | None = None) -> Any:
    """A field like `row`, whose kind, default and limits are those of the broker setting `name`."""
    same = SUPPORTED[name]
    low = high = None
    if same.kind in ("int", "long", "double"):
        low = None if same.low < -LONG_MAX else same.low
        high = None if same.high in (INT_MAX, LONG_MAX) else same.high
    low = low if minimum is None else minimum
    return row(same.kind, format_setting(same.default), doc, low, high, choices=same.choices, extra_value=extra_value, broker=name)


def settings_by_field(values: type[Any]) -> Iterator[tuple[str, TopicSetting]]:
    """The names and settings of the fields made by `row` and `of_broker`."""
    for each in fields(values):
        if ROW in each.metadata:
            yield each.name, replace(each.metadata[ROW], name=each.name.replace("_", "."))
