from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from project.install import ANALYZE, ANALYZE_NEWEST, DEVELOPMENT, ROOT, SERVING
from project.site import LOCK as DOCS

LOCKS = [SERVING, DEVELOPMENT, ANALYZE, ANALYZE_NEWEST, DOCS]


def pins(text: str) -> dict[str, set[str]]:
    """Every pin of a lock with its hashes."""
    pinned: dict[str, set[str]] = {}
    name = ""
    for line in text.splitlines():
        if line and line[0] not in " #":
            name = line.split()[0]
            assert re.fullmatch(r"[a-z0-9-]+==[^ ;]+", name), line
            assert name not in pinned, line
            pinned[name] = set()
        elif "--hash=" in line:
            pinned[name].add(line.strip().removesuffix(" \\"))
    return pinned


def extra(declared: dict[str, Any], name: str) -> list[str]:
    """The requirements of an extra, and of the extras that it includes."""
    requirements = declared["project"]["optional-dependencies"][name]
    included = [parsed for parsed in map(Requirement, requirements) if parsed.name == "tenure"]
    own = [requirement for requirement in requirements if Requirement(requirement).name != "tenure"]
    return own + [requirement for parsed in included for inner in parsed.extras for requirement in extra(declared, inner)]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_pin_has_hashes(lock: Path) -> None:
    hashes_by_name = pins(lock.read_text())
    assert hashes_by_name
    assert not [name for name, hashes in hashes_by_name.items() if not hashes]


def test_development_pins_equal_the_serving_pins() -> None:
    serving, development = pins(SERVING.read_text()), pins(DEVELOPMENT.read_text())
    assert serving.items() <= development.items()


def test_every_declared_dependency_is_locked_as_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    serving = declared["project"]["dependencies"]
    development = serving + declared["dependency-groups"]["development"]
    analyze = serving + extra(declared, "spark")
    oldest = analyze + declared["dependency-groups"]["oldest"]
    docs = declared["dependency-groups"]["docs"]
    for lock, requirements in ((SERVING, serving), (DEVELOPMENT, development), (ANALYZE, oldest), (ANALYZE_NEWEST, analyze), (DOCS, docs)):
        locked = dict(name.split("==") for name in pins(lock.read_text()))
        for requirement in map(Requirement, requirements):
            assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), f"{requirement}: make lock"


def test_the_two_analyze_locks_differ_only_in_pyspark() -> None:
    oldest, newest = (dict(name.split("==") for name in pins(lock.read_text())) for lock in (ANALYZE, ANALYZE_NEWEST))
    assert {name for name in oldest | newest if oldest.get(name) != newest.get(name)} <= {"pyspark", "py4j"}


def test_every_dependency_has_its_reason_in_contributing() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    reasons = (ROOT / "CONTRIBUTING.md").read_text()
    groups = declared["dependency-groups"]
    declared_all = declared["project"]["dependencies"] + groups["development"] + groups["docs"] + extra(declared, "connect")
    names = [Requirement(requirement).name for requirement in declared_all]
    assert not [name for name in names if f"| {name} |" not in reasons]


@pytest.mark.parametrize(
    "name", [*(f"requirements/{lock.name}" for lock in LOCKS), "pyproject.toml", "Makefile", ".ci/run"]
)
def test_no_address_of_a_package_index_is_written_down(name: str) -> None:
    assert not re.search(r"://|--(extra-)?index|find-links", (ROOT / name).read_text())
