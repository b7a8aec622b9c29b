"""Dockerfiles and compose files, parsed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.running import ROOT

FOLDER = ROOT / "docker"
EXAMPLE = FOLDER / "compose.yaml"
TESTS = FOLDER / "compose.test.yaml"
CLUSTER = FOLDER / "compose.cluster.yaml"


class Dockerfile:
    """A parsed Dockerfile, of which the last stage counts, and in it the last occurrence of each instruction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text()
        # Lines continued by a backslash are joined; comments between such lines are removed.
        self._lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", self.text, flags=re.MULTILINE)).splitlines()

    def all(self, instruction: str) -> list[str]:
        return [line.removeprefix(instruction).strip() for line in self._lines if line.startswith(f"{instruction} ")]

    def last(self, instruction: str) -> str:
        return self.all(instruction)[-1]

    def words(self, instruction: str) -> list[str]:
        """The words of an instruction, which must have exec form: in shell form the shell, not the process, would get SIGTERM."""
        command: list[str] = json.loads(re.sub(r"^[^\[]*", "", self.last(instruction)))
        return command

    def environment(self) -> dict[str, str]:
        return dict(setting.split("=", 1) for line in self.all("ENV") for setting in line.split())

    @property
    def base(self) -> str:
        match = re.search(r"^ARG BASE=(.*)$", self.text, re.MULTILINE)
        assert match
        return match[1]


def compose_file(path: Path, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The parsed file, with ${NAME:-default} replaced by the variable or the default, as Compose does it."""
    values = variables or {}
    text = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda match: values.get(match[1]) or match[2], path.read_text())
    assert "$" not in text, "another form of a variable: teach it to this function"
    document: dict[str, Any] = yaml.safe_load(text)
    return document
