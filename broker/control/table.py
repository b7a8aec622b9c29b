"""All verbs of the test control, by path; and what describes them: the list for people, and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from broker.control.fields import schema_of
from broker.control.verb import Verb
from broker.control.verbs import broker, clusters, faults, groups, topics, waiting

VERBS: Final = (*clusters.VERBS, *faults.VERBS, *groups.VERBS, *broker.VERBS, *topics.VERBS, *waiting.VERBS)
ERRORS: Final = {
    "400": "the call is wrong: the answer says what, and the remedy",
    "401": "the token is missing or wrong",
    "404": "there is no such cluster, group, member, topic or fault",
    "408": "what was waited for has not come; the answer says the state that was reached",
    "409": "it is not possible now",
}


def find(verbs: Sequence[Verb], method: str, path: str) -> tuple[Verb | None, dict[str, str], list[str]]:
    """The verb of a path, the variable parts of the path, and the methods that the path has."""
    parts = path.strip("/").split("/")
    methods = []
    for verb in verbs:
        pattern = verb.path.strip("/").split("/")
        if len(pattern) != len(parts):
            continue
        values = {name[1:-1]: part for name, part in zip(pattern, parts, strict=True) if name.startswith("{")}
        if all(name.startswith("{") or name == part for name, part in zip(pattern, parts, strict=True)):
            if verb.method == method:
                return verb, values, []
            methods.append(verb.method)
    return None, {}, methods


def listed(verbs: Sequence[Verb], version: str) -> dict[str, Any]:
    """Every verb with an example."""
    return {
        "version": version,
        "verbs": [
            {
                "call": f"{verb.method} {verb.path}",
                "does": verb.text,
                "fields": {field.name: field.text for field in verb.fields},
                **({"example": verb.example} if verb.example is not None else {}),
            }
            for verb in verbs
        ],
        "errors": ERRORS,
    }


def openapi(verbs: Sequence[Verb], version: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for verb in verbs:
        names = [part[1:-1] for part in verb.path.split("/") if part.startswith("{")]
        parameters: list[dict[str, Any]] = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
        operation: dict[str, Any] = {"summary": verb.text, "operationId": operation_id(verb)}
        if verb.method == "GET":
            properties = schema_of(verb.fields)
            required = properties.get("required", [])
            parameters += [
                {"name": name, "in": "query", "required": name in required, "schema": schema} for name, schema in properties["properties"].items()
            ]
        elif verb.raw:
            operation["requestBody"] = {"content": {"application/json": {"schema": {}, "example": verb.example}}}
        elif verb.fields:
            operation["requestBody"] = {"content": {"application/json": {"schema": schema_of(verb.fields), "example": verb.example or {}}}}
        if parameters:
            operation["parameters"] = parameters
        operation["responses"] = {"200": {"description": "done", "content": {"application/json": {"schema": {"type": "object"}}}}} | {
            status: {"description": text} for status, text in ERRORS.items()
        }
        paths.setdefault(verb.path, {})[verb.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tenure test control", "version": version},
        "security": [{"token": []}],
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "paths": paths,
    }


def operation_id(verb: Verb) -> str:
    words = [part.strip("{}") for part in verb.path.split("/") if part and part not in ("v1", "{cluster}")]
    return "_".join([verb.method.lower(), *words])
