"""A setting of the broker as metadata of a field of `Config`: its kind, default, limits and text.

A field takes its default and its row from one of the functions below, which are named after Kafka's types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, fields
from typing import Any, Final, NamedTuple, TypeVar

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
ROWS: Final = "settings"  # the key in a field's metadata

Value = bool | int | float | str | tuple[str, ...]
V = TypeVar("V", bound=Value)


class Setting(NamedTuple):
    """One setting. `kind` is boolean, int, long, double, string or list; `low` and `high` are inclusive.

    With `choices`, the value (or each entry of a list) must be one of them.
    """

    name: str
    kind: str
    default: Value
    doc: str
    low: int = 0
    high: int = INT_MAX
    choices: tuple[str, ...] = ()
    unit: str = ""
    flag: str = ""  # of `tenure serve`, which sets it too
    alias: str = ""  # Kafka's second name

    @property
    def field(self) -> str:
        return self.name.replace(".", "_")


def boolean(default: bool, doc: str) -> bool:
    return _row("boolean", default, doc)


def integer(default: int, doc: str, *, low: int = 0, high: int = INT_MAX, unit: str = "", flag: str = "", alias: str = "") -> int:
    return _row("int", default, doc, low=low, high=high, unit=unit, flag=flag, alias=alias)


def long(default: int, doc: str, *, low: int = 0, unit: str = "") -> int:
    return _row("long", default, doc, low=low, high=LONG_MAX, unit=unit)


def double(default: float, doc: str, *, low: int = 0, high: int = INT_MAX) -> float:
    return _row("double", default, doc, low=low, high=high)


def string(default: str, doc: str, *, choices: tuple[str, ...] = (), flag: str = "") -> str:
    return _row("string", default, doc, choices=choices, flag=flag)


def strings(default: tuple[str, ...], doc: str, *, choices: tuple[str, ...] = (), flag: str = "", alias: str = "") -> tuple[str, ...]:
    return _row("list", default, doc, choices=choices, flag=flag, alias=alias)


def parsed(setting: object) -> Any:
    """A setting whose field has another type than its value: the broker makes one from the other at the start."""
    return setting


def several(rows: Sequence[Setting]) -> Any:
    """One field for settings that another table declares."""
    return field(metadata={ROWS: tuple(rows)})


def _row(kind: str, default: V, doc: str, **more: Any) -> V:
    made: V = field(metadata={ROWS: (Setting("", kind, default, doc, **more),)})
    return made


def settings_of(config: type[Any]) -> Iterator[Setting]:
    """The settings in the fields of `config`, in order: by default a field is called as its setting, with underscores for dots."""
    for each in fields(config):
        for row in each.metadata.get(ROWS, ()):
            yield row if row.name else row._replace(name=each.name.replace("_", "."))


def format_setting(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(value)
    return str(value)
