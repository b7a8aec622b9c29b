"""The library for tests is the folder `tenure/testing` of this repository: it is packaged here too, for environments without `tenure`."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "tenure" / "testing"
BUNDLED = HERE / "pytest_tenure" / "_testing"

if SOURCE.is_dir():  # in a checkout; a source distribution has the copy
    shutil.rmtree(BUNDLED, ignore_errors=True)
    shutil.copytree(SOURCE, BUNDLED, ignore=shutil.ignore_patterns("__pycache__"))
    atexit.register(shutil.rmtree, BUNDLED, ignore_errors=True)

folder = tempfile.mkdtemp(prefix="pytest-tenure-build-")
atexit.register(shutil.rmtree, folder, ignore_errors=True)
setup(packages=["pytest_tenure", "pytest_tenure._testing"], options={"build": {"build_base": folder}})
