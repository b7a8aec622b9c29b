"""Cached verdicts, valid while the function and its tests are unchanged."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from project.mutants.mutations import Mutation
from project.mutants.running import KILLED, ROOT, TIMEOUT, Verdict

KEPT = ROOT / "build" / "mutants"


def digest(*texts: str) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()[:16]


def write_atomically(path: Path, text: str) -> None:
    """Replace a file atomically: a concurrent run may read the file at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new_file = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        new_file.write_text(text)
        new_file.replace(path)
    finally:
        new_file.unlink(missing_ok=True)


class Sources:
    """Digests of files, each read once."""

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}

    def digest_of(self, file: str) -> str:
        if file not in self._digests:
            path = ROOT / file
            self._digests[file] = digest(path.read_text()) if path.exists() else ""
        return self._digests[file]

    def combined_digest(self, files: Iterable[str]) -> str:
        return digest(*[f"{file} {self.digest_of(file)}" for file in sorted(files)])


class Results:
    """A file of verdicts, saved periodically, so that an interrupted run can continue."""

    def __init__(self, path: Path = KEPT / "verdicts.json", fresh: bool = False) -> None:
        self._path = path
        self._saved: dict[str, list[str]] = {}
        if path.exists() and not fresh:
            self._saved = json.loads(path.read_text())
        self._sources = Sources()
        self._new: dict[str, list[str]] = {}

    def known(self, mutation: Mutation, tests: list[str]) -> Verdict | None:
        """The cached verdict, if the function and the killing test (for a mutation that no test killed: all its tests) are unchanged."""
        cached = self._saved.get(mutation.key.id)
        if cached is None:
            return None
        outcome, by, basis = cached
        killed = outcome in (KILLED, TIMEOUT)
        return Verdict(outcome, by, 0.0) if basis == self._basis(mutation, [by] if killed and by else tests) else None

    def keep(self, mutation: Mutation, tests: list[str], verdict: Verdict) -> None:
        killed = verdict.outcome in (KILLED, TIMEOUT)
        basis = self._basis(mutation, [verdict.by] if killed and verdict.by else tests)
        self._new[mutation.key.id] = self._saved[mutation.key.id] = [verdict.outcome, verdict.by, basis]
        if len(self._new) >= 50:
            self.save()

    def _basis(self, mutation: Mutation, tests: list[str]) -> str:
        files = {test.partition("::")[0] for test in tests}
        return digest(mutation.source, self._sources.combined_digest(files))

    def save(self) -> None:
        """Save the new verdicts beside those in the file, which may have new ones of concurrent runs."""
        saved = json.loads(self._path.read_text()) if self._path.exists() else {}
        write_atomically(self._path, json.dumps(saved | self._new, indent=0))
        self._new.clear()
