"""The archives of `make dist`, built from a copy of this checkout, and environments with the wheel in them.

In `make compiled-test` the wheel is the compiled one of the copy under test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from project.install import SERVING
from project.installers import pins
from tests.running import PACKAGES, ROOT

IGNORED_FILES = shutil.ignore_patterns(".*", "build", "dist", "data", "*.egg-info", "__pycache__", "*.so")
COMPILED = "COMPILED" in os.environ


def copy_of_the_checkout(folder: Path) -> Path:
    shutil.copytree(ROOT, folder, ignore=IGNORED_FILES)
    return folder


def built(checkout: Path, folder: Path) -> Path:
    """A folder with the wheel and the sdist, from a copy of this checkout with typical leftovers; or with the compiled wheel."""
    if COMPILED:
        return PACKAGES / "dist"
    copy_of_the_checkout(checkout)
    for stray in ("docker/__init__.py", "bench/__init__.py", "protocol/wire.cpython-311.so", "protocol/note.txt"):
        (checkout / stray).parent.mkdir(exist_ok=True)
        (checkout / stray).touch()
    command = [sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", str(folder), "."]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def wheel_of(archives: Path) -> Path:
    (wheel,) = archives.glob("tenure-*.whl")
    return wheel


def environment_with(archives: Path, folder: Path) -> Path:
    """An environment with the wheel and the packages of the serving lock, copied from this one: without a package index."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site_packages,) = folder.glob("lib/python3.*/site-packages")
    for name in pins(SERVING):
        for file in distribution(name).files or ():
            if ".." not in file.parts:
                target = site_packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(file.locate()), target)
    pip = [sys.executable, "-I", "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check", "install", "--quiet"]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}  # without PYTHONPATH, whose packages would count as installed
    # With dependency checks, which find a package that the lock lacks.
    subprocess.run([*pip, "--no-index", str(wheel_of(archives))], env=plain, check=True)
    return folder
