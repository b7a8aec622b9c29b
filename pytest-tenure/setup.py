"""The client of the test control is the folder `tenure/testing` of this repository: it is packaged here too, for environments without `tenure`."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "tenure" / "testing"
BUNDLED = HERE / "pytest_tenure" / "_testing"

if SOURCE.is_dir():  # in a checkout; a source distribution has the copy
    shutil.rmtree(BUNDLED, ignore_errors=True)
    shutil.copytree(SOURCE, BUNDLED, ignore=shutil.ignore_patterns("__pycache__"))

setup(packages=["pytest_tenure", "pytest_tenure._testing"])
