"""Verdicts of before, which hold while the function and its tests are what they were; and the mutations that change nothing."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from project.mutants.mutations import Key, Mutation
from project.mutants.running import KILLED, ROOT, TIMEOUT, Verdict

EQUIVALENT = ROOT / "project" / "mutants_equivalent.toml"
KEPT = ROOT / "build" / "mutants"


def digest(*texts: str) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()[:16]


class Sources:
    """Digests of files, each read once."""

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}

    def of(self, file: str) -> str:
        if file not in self._digests:
            path = ROOT / file
            self._digests[file] = digest(path.read_text()) if path.exists() else ""
        return self._digests[file]

    def together(self, files: Iterable[str]) -> str:
        return digest(*[f"{file} {self.of(file)}" for file in sorted(files)])


class Results:
    """A file of verdicts, saved now and then, so that a run that was interrupted goes on."""

    def __init__(self, path: Path = KEPT / "verdicts.json", fresh: bool = False) -> None:
        self._path = path
        self._kept: dict[str, list[str]] = {}
        if path.exists() and not fresh:
            self._kept = json.loads(path.read_text())
        self._sources = Sources()
        self._new: dict[str, list[str]] = {}

    def known(self, mutation: Mutation, tests: list[str]) -> Verdict | None:
        """The verdict of before: a killed one needs its test alone, as it was; any other all of its tests."""
        found = self._kept.get(mutation.key.id)
        if found is None:
            return None
        what, by, basis = found
        killed = what in (KILLED, TIMEOUT)
        return Verdict(what, by, 0.0) if basis == self._basis(mutation, [by] if killed and by else tests) else None

    def keep(self, mutation: Mutation, tests: list[str], verdict: Verdict) -> None:
        killed = verdict.what in (KILLED, TIMEOUT)
        basis = self._basis(mutation, [verdict.by] if killed and verdict.by else tests)
        self._new[mutation.key.id] = self._kept[mutation.key.id] = [verdict.what, verdict.by, basis]
        if len(self._new) >= 50:
            self.save()

    def _basis(self, mutation: Mutation, tests: list[str]) -> str:
        files = {test.partition("::")[0] for test in tests}
        return digest(mutation.source, self._sources.together(files))

    def save(self) -> None:
        """Beside what another run has found meanwhile."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kept = json.loads(self._path.read_text()) if self._path.exists() else {}
        whole = self._path.with_suffix(f".{os.getpid()}")
        whole.write_text(json.dumps(kept | self._new, indent=0))
        whole.replace(self._path)
        self._new.clear()


def equivalents(path: Path = EQUIVALENT) -> dict[Key, str]:
    """Mutations that no test can notice, each with the reason."""
    if not path.exists():
        return {}
    found: dict[Key, str] = {}
    for one in tomllib.loads(path.read_text()).get("equivalent", []):
        changes = one["change"] if isinstance(one["change"], list) else [one["change"]]
        for change in changes:
            key = Key(one["file"], one["function"], one["line"], change)
            if key in found or not one["reason"]:
                raise SystemExit(f"mutants: {path.name}: {key} is there twice, or without a reason")
            found[key] = one["reason"]
    return found
