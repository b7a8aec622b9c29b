"""The mutations that no test can detect, each with the reason: `project/mutants_equivalent.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from project.mutants.mutations import Key, mutations_of
from project.mutants.running import ROOT

EQUIVALENT = ROOT / "project" / "mutants_equivalent.toml"
FIELDS: dict[str, type | tuple[type, ...]] = {"file": str, "function": str, "line": str, "change": (str, list), "reason": str}


class WrongList(Exception):
    """The list is malformed; the message is one line."""


def equivalents(path: Path = EQUIVALENT) -> dict[Key, str]:
    """The listed mutations with their reasons; raises WrongList."""
    reasons: dict[Key, str] = {}
    try:
        entries = tomllib.loads(path.read_text()).get("equivalent", [])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WrongList(f"{path.name}: {error}") from error
    for entry in entries:
        for key in keys_of(path, entry):
            if key in reasons:
                raise WrongList(f"{path.name}: {described(key)} is listed twice")
            reasons[key] = entry["reason"]
    return reasons


def keys_of(path: Path, entry: dict[str, Any]) -> list[Key]:
    wrong = [name for name, kind in FIELDS.items() if not isinstance(entry.get(name), kind)]
    unknown = [name for name in entry if name not in FIELDS]
    if wrong or unknown or not (entry["reason"] and entry["change"]):
        raise WrongList(f"{path.name}: not of the form file, function, line, change, reason: {entry}")
    changes = entry["change"] if isinstance(entry["change"], list) else [entry["change"]]
    return [Key(entry["file"], entry["function"], entry["line"], change) for change in changes]


def stale(listed: dict[Key, str], root: Path = ROOT) -> Iterator[Key]:
    """The listed mutations that no longer exist."""
    by_file: dict[str, list[Key]] = {}
    for key in listed:
        by_file.setdefault(key.file, []).append(key)
    for file, keys in by_file.items():
        source = root / file
        existing = {mutation.key for mutation in mutations_of(file, source.read_text())[1]} if source.is_file() else set()
        yield from (key for key in keys if key not in existing)


def described(key: Key) -> str:
    return f"{key.file} {key.function}: {key.line}: {key.change}"


def problems(path: Path = EQUIVALENT, root: Path = ROOT) -> list[str]:
    """The problems of the list, as lines."""
    try:
        listed = equivalents(path)
    except WrongList as error:
        return [str(error)]
    return [f"{path.name}: no such mutation: {described(key)}" for key in stale(listed, root)]
