"""A pytest plugin for `make compiled-test`: imports every compiled module before any test does, and refuses what is not compiled.

Without it the tests would pass as happily on the plain sources, which stand on the import path too.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

from setup import compiled_modules

FOLDER = Path(os.environ["COMPILED"]).resolve()


def pytest_report_header() -> str:
    names = [name.removesuffix(".py").replace("/", ".") for name in compiled_modules(FOLDER)]
    for name in names:
        origin = Path(str(import_module(name).__file__))
        if origin.suffix != ".so" or not origin.is_relative_to(FOLDER):
            raise RuntimeError(f"{name} comes from {origin}, which is not compiled in {FOLDER}")
    return f"compiled: all {len(names)} modules of {FOLDER.name} that setup.py names"
