"""A pytest plugin for `make compiled-test`: imports all modules that setup.py compiles, and fails if one of them is not compiled.

Without this plugin the tests might unnoticed run on the plain sources, which are also on the import path.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import pytest

from setup import compiled_modules

FOLDER = Path(os.environ["COMPILED"]).resolve()
MODULES = [name.removesuffix(".py").replace("/", ".") for name in compiled_modules(FOLDER)]


def pytest_configure() -> None:
    for name in MODULES:
        origin = Path(str(import_module(name).__file__))
        if origin.suffix != ".so" or not origin.is_relative_to(FOLDER):
            raise pytest.UsageError(f"{name} comes from {origin}, which is not compiled in {FOLDER}")


def pytest_report_header() -> str:
    return f"compiled: all {len(MODULES)} modules that setup.py names under {FOLDER}"
