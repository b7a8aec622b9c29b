"""Starts the command `tenure`: puts Tenure's packages first on the import path, before PYTHONPATH and the current folder.

Tenure's packages have common names (`storage`, `cli`, `protocol`). In a checkout they are siblings of this folder. A wheel has them in
`tenure/_inside/`: there only Tenure's own processes find them, and they cannot hide another package of the same name.
"""

from __future__ import annotations

import os
import sys


def packages_folder() -> str:
    """The folder of Tenure's packages."""
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
