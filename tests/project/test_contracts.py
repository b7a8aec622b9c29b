"""The known import cycles are the only ones, and each import contract of pyproject.toml reports a violation that is made in a copy."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import ROOT

pytestmark = pytest.mark.once  # imports do not depend on the Python version

PACKAGES = ("protocol", "coordinator", "storage", "history", "secured", "broker", "pipeline", "cli", "tenure", "project", "bench", "docs", "simulator")
# Groups of modules that implement an idea together: each needs the others at least for its types.
KNOWN_CYCLES = [
    {"coordinator.classic.group", "coordinator.notes", "coordinator.policies.hooks", "coordinator.step_output"},
    {"pipeline.virtual.client", "pipeline.virtual.partition", "pipeline.virtual.world"},
    {"simulator.cluster_node", "simulator.peer_links"},
    {"simulator.loop", "simulator.machine", "simulator.network", "simulator.node"},
    {"storage.log", "storage.opening", "storage.turn_log"},
]

VIOLATIONS = {
    "storage/errors.py": "import coordinator.hold",
    "history/__init__.py": "import storage.log",
    "coordinator/hold.py": "import time",
    "coordinator/classic/join.py": "import coordinator.policies.roster",
    "protocol/framing.py": "import kio",
    "broker/runtime/clock.py": "import cli",
    "broker/net/dispatch.py": "import tenure.start",
    "broker/groups/notes.py": "import pyarrow",
    "broker/api/fetch.py": "import broker.faults.book",
    "tenure/testing/control.py": "import protocol.wire",
    "broker/topics/partitions.py": "import structlog",
    "broker/topics/retention.py": "import storage.log",
    "broker/stores/owned.py": "import broker.topics.registry",
    "cli/arguments.py": "import protocol.wire",
    "cli/client/words.py": "import cli.serve",
    "simulator/world.py": "import docs.page",
    "tenure/start.py": "import project.licences",
}


def test_every_contract_fails_on_its_violation(tmp_path: Path) -> None:
    for package in ("protocol", "coordinator", "storage", "history", "secured", "broker", "pipeline", "cli", "tenure", "simulator", "docs", "project"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name, line in VIOLATIONS.items():
        with (tmp_path / name).open("a") as source:
            source.write(f"\n{line}\n")
    # -P, and the copy first in sys.path: the environment's own entry would import from the checkout.
    run = "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-P", "-c", run], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Contracts: 0 kept" in done.stdout
    for name, line in VIOLATIONS.items():
        importer = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        assert f"{importer} -> {line.removeprefix('import ')}" in done.stdout


def test_there_are_no_import_cycles_but_the_known_ones() -> None:
    """Imports in functions do not count; imports only for type checking do."""
    assert cycles({name: imported(path) for name, path in modules().items()}) == KNOWN_CYCLES


def test_a_cycle_is_found_without_the_modules_that_lead_to_it() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"d", "other"}, "d": {"b"}, "e": {"e2"}, "e2": set()}) == [{"b", "c", "d"}]


def modules() -> dict[str, Path]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__"): path for path in paths}


def imported(path: Path) -> set[str]:
    """The modules, and names that may be modules, that a file imports outside of functions."""
    imports: set[str] = set()
    statements = list(ast.parse(path.read_text()).body)
    for statement in statements:
        match statement:
            case ast.If() | ast.Try():
                statements += statement.body
            case ast.Import(names=names):
                imports |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), names=names):
                imports |= {module} | {f"{module}.{alias.name}" for alias in names}
    return imports


def cycles(imports: dict[str, set[str]]) -> list[set[str]]:
    """The groups of modules that reach each other."""
    reached = {name: {neighbour for neighbour in names if neighbour in imports and not is_package_of(neighbour, name)} for name, names in imports.items()}
    for middle in reached:
        for names in reached.values():
            if middle in names:
                names |= reached[middle]
    groups = {frozenset({name} | {neighbour for neighbour in names if name in reached[neighbour]}) for name, names in reached.items() if name in names}
    return sorted((set(group) for group in groups if len(group) > 1), key=min)


def is_package_of(package: str, module: str) -> bool:
    return module.startswith(f"{package}.")
