"""The import contracts of pyproject.toml fire: each is broken once in a copy of the sources."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.running import ROOT

BREAKING = {
    "storage/errors.py": "import coordinator.hold",
    "history/__init__.py": "import storage.log",
    "coordinator/hold.py": "import time",
    "protocol/framing.py": "import kio",
    "broker/runtime/clock.py": "import cli",
    "broker/net/dispatch.py": "import tenure.start",
    "broker/groups/notes.py": "import pyarrow",
    "broker/topics/retention.py": "import storage.log",
    "broker/stores/owned.py": "import broker.topics.registry",
    "cli/arguments.py": "import protocol.wire",
    "cli/client/words.py": "import cli.serve",
}


def test_every_contract_notices_what_breaks_it(tmp_path: Path) -> None:
    for package in ("protocol", "coordinator", "storage", "history", "broker", "pipeline", "cli", "tenure"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name, line in BREAKING.items():
        with (tmp_path / name).open("a") as source:
            source.write(f"\n{line}\n")
    # -P and the copy in front: the environment's own line leads to the checkout
    run = "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-P", "-c", run], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Contracts: 0 kept" in done.stdout
    for name, line in BREAKING.items():
        importer = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        assert f"{importer} -> {line.removeprefix('import ')}" in done.stdout
