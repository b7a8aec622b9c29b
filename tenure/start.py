"""The start of the command: puts Tenure's packages first on the import path, whatever PYTHONPATH and the folder hold.

Tenure's packages have common names (`storage`, `cli`, `protocol`). In a checkout they are folders beside this one. A wheel keeps
them in `tenure/_inside/`, where nobody else's import finds them, and only Tenure's own processes look there.
"""

from __future__ import annotations

import os
import sys


def packages_folder() -> str:
    """The folder that holds Tenure's packages."""
    here = os.path.dirname(os.path.abspath(__file__))
    inside = os.path.join(here, "_inside")
    return inside if os.path.isdir(inside) else os.path.dirname(here)


def use_own_packages() -> None:
    """Make `import storage` and the like import Tenure's packages, in this process only."""
    folder = packages_folder()
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)


def main() -> int:
    use_own_packages()
    from cli import main as run

    return run()
