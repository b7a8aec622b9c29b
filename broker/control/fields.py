"""The fields of calls to the test control: read, checked and described from one declaration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class Refused(Exception):
    """A call that is not carried out: HTTP status, what is wrong, and the remedy."""

    def __init__(self, status: int, error: str, hint: str = "", **more: Any) -> None:
        super().__init__(error)
        self.status = status
        self.document = {"error": error, **({"hint": hint} if hint else {}), **more}


TEXT: Final = "string"
WHOLE: Final = "integer"
FLAG: Final = "boolean"
OBJECT: Final = "object"
LIST: Final = "array"
ANY: Final = ""
MS_MAX: Final = 10 * 366 * 86_400_000
WAIT_MS: Final = 10_000
DECIMAL: Final = re.compile(r"-?[0-9]{1,19}")


class Field(NamedTuple):
    name: str
    kind: str
    text: str
    default: Any = None
    required: bool = False
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()


def timeout_field(default: int = WAIT_MS) -> Field:
    return Field("timeout_ms", WHOLE, "how long to wait at most", default, least=0, most=600_000)


def read_fields(fields: tuple[Field, ...], given: Mapping[str, Any], *, as_text: bool = False) -> dict[str, Any]:
    """The values of all fields, by name. `as_text`: they come from a query, where everything is text. Raises Refused."""
    known = {field.name for field in fields}
    for name in given:
        if name not in known:
            from difflib import get_close_matches

            close = get_close_matches(name, known, 1, 0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(sorted(known)) or 'no fields'}"
            raise Refused(400, f"there is no field {name!r} here", hint)
    return {field.name: read_field(field, given[field.name], as_text) if field.name in given else absent(field) for field in fields}


def absent(field: Field) -> Any:
    if field.required:
        raise Refused(400, f"{field.name} is missing", f"{field.name}: {field.text}")
    return field.default


def read_field(field: Field, value: Any, as_text: bool) -> Any:
    if as_text and field.kind == WHOLE and isinstance(value, str) and DECIMAL.fullmatch(value):
        value = int(value)
    elif as_text and field.kind == FLAG and value in ("true", "false", ""):
        value = value != "false"
    elif as_text and field.kind == LIST:
        value = [part for part in value.split(",") if part]
    if value is None and not field.required:
        return field.default
    types: dict[str, tuple[type, ...]] = {TEXT: (str,), WHOLE: (int,), FLAG: (bool,), OBJECT: (dict,), LIST: (list,), ANY: (object,)}
    if not isinstance(value, types[field.kind]) or (field.kind == WHOLE and isinstance(value, bool)):
        raise Refused(400, f"{field.name}: {shown(value)} is no {field.kind}", f"{field.name}: {field.text}")
    if field.choices and value not in field.choices:
        raise Refused(400, f"{field.name}: {shown(value)} is none of {', '.join(field.choices)}", field.text)
    if isinstance(value, int) and field.kind == WHOLE:
        if field.least is not None and value < field.least:
            raise Refused(400, f"{field.name}: {value} is less than {field.least}")
        if field.most is not None and value > field.most:
            raise Refused(400, f"{field.name}: {value} is more than {field.most}")
    return value


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def schema_of(fields: tuple[Field, ...]) -> dict[str, Any]:
    """The fields as a JSON schema, for OpenAPI."""
    properties: dict[str, Any] = {}
    for field in fields:
        schema: dict[str, Any] = {"description": field.text}
        if field.kind:
            schema["type"] = field.kind
        if field.kind == LIST:
            schema["items"] = {}
        if field.default is not None:
            schema["default"] = field.default
        if field.choices:
            schema["enum"] = list(field.choices)
        if field.least is not None:
            schema["minimum"] = field.least
        if field.most is not None:
            schema["maximum"] = field.most
        properties[field.name] = schema
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": required} if (required := [field.name for field in fields if field.required]) else {}),
    }
