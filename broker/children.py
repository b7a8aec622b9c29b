"""How Tenure starts a Python process of its own: with its own packages first on the import path."""

from __future__ import annotations

import os
import sys
from pathlib import Path

FOLDER = str(Path(__file__).resolve().parents[1])  # of all our packages


def child_command(module: str) -> tuple[str, ...]:
    """-P: the folder in which the process starts is not on its import path."""
    return (sys.executable, "-P", "-m", module)


def child_environment() -> dict[str, str]:
    """The user's PYTHONPATH may hold a package called `storage` too, and dependencies: ours stands before it."""
    given = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{FOLDER}{os.pathsep}{given}" if given else FOLDER}
