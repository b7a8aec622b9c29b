"""Writes the schema of report.json, from the classes of `rows.py`: `python -m pipeline.report.json_schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from pipeline.report.document import FORMAT
from pipeline.report.savings import Saving
from pipeline.rows import Advice, Coverage, CurvePoint, Deploy, Episode, Gap, Group, Hygiene, MemberSpell, Replaced, Status

FILE = Path(__file__).with_name("report.schema.json")
NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
INTEGER, TEXT, NUMBER = {"type": "integer"}, {"type": "string"}, {"type": "number"}
CONFIDENCE = {"enum": ["exact", "strong", "weak", "none"]}


def schema() -> dict[str, Any]:
    maybe_number = {"type": ["number", "null"]}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "report.json of tenure analyze",
        **_object(
            {
                "format": {"const": FORMAT},
                "tenure": TEXT,
                "clusters": _list(TEXT),
                "from_ms": maybe_number,
                "to_ms": maybe_number,
                "run": INTEGER,
                "summary": _object(
                    {
                        "numbers": _list(_object({"label": TEXT, "low": NUMBER, "value": NUMBER, "unit": TEXT, "confidence": CONFIDENCE})),
                        "causes": {"type": "object", "additionalProperties": INTEGER},
                        "sentences": _list(TEXT),
                    }
                ),
                "savings": _list(_object({"cluster": TEXT, "group": TEXT, **_row(Saving)["properties"]})),
                "first": _list(
                    _object(
                        {
                            "cluster": TEXT,
                            "group": TEXT,
                            "urgency": {"enum": [0, 1, 2, 3]},
                            "title": TEXT,
                            "why": TEXT,
                            "how": TEXT,
                            "confidence": CONFIDENCE,
                            "saves_rebalances_min": maybe_number,
                            "saves_rebalances": maybe_number,
                            "saves_partition_s_min": maybe_number,
                            "saves_partition_s": maybe_number,
                        }
                    )
                ),
                "moments": _list(
                    _object(
                        {
                            "cluster": TEXT,
                            "group": TEXT,
                            "from_ms": INTEGER,
                            "to_ms": INTEGER,
                            "rebalances": INTEGER,
                            "partition_seconds_lost": NUMBER,
                            "causes": {"type": "object", "additionalProperties": INTEGER},
                            "who": {"type": ["string", "null"]},
                            "who_rebalances": INTEGER,
                            "others": INTEGER,
                            "restarted": {"type": ["integer", "null"]},
                            "of_members": {"type": ["integer", "null"]},
                            "cause": TEXT,
                            "evidence": TEXT,
                            "confidence": CONFIDENCE,
                        }
                    )
                ),
                "coverage": _list(_row(Coverage)),
                "not_understood": {"type": "object", "additionalProperties": _object({"groups": INTEGER, "records": INTEGER})},
                "groups": _list(_row(Group)),
                "details": _list(_details()),
                "hygiene": _list(_row(Hygiene)),
                "inputs": {"type": "object", "additionalProperties": INTEGER},
            }
        ),
    }


def _details() -> dict[str, Any]:
    def rows(row: type[Any]) -> dict[str, Any]:
        return _object({"count": INTEGER, "rows": _list(_row(row))})

    return _object(
        {
            "cluster": TEXT,
            "group": TEXT,
            "about": _row(Group),
            "episodes": rows(Episode),
            "deploys": rows(Deploy),
            "replacements": rows(Replaced),
            "spells": rows(MemberSpell),
            "gaps": rows(Gap),
            "curve": _list(_row(CurvePoint)),
            "advice": {"anyOf": [{"type": "null"}, _row(Advice)]},
            "offenders": _list({"type": "object"}),
            "status": rows(Status),
            "lag": {"type": "object"},
        }
    )


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _row(row: type[Any]) -> dict[str, Any]:
    return _object({name: _schema_of_hint(hint) for name, hint in get_type_hints(row).items()})


def _schema_of_hint(hint: Any) -> dict[str, Any]:
    if get_origin(hint) is list:
        return _list(_schema_of_hint(get_args(hint)[0]))
    kinds = get_args(hint) or (hint,)
    return {"type": [NAMES[kind] for kind in kinds] if len(kinds) > 1 else NAMES[kinds[0]]}


def schema_text() -> str:
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(schema_text())
