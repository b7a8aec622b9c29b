"""The archives of `make dist`, built from a copy of this checkout, and environments with the wheel in them.

In `make compiled-test` the wheel is the compiled one of the copy under test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from project.install import SERVING
from project.installers import pins
from tests.running import PACKAGES, ROOT, environment

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
    copy_packages(folder, pins(SERVING))
    install(folder, wheel_of(archives))
    return folder


def copy_packages(target_environment: Path, names: Iterable[str]) -> None:
    """Packages of this environment, copied into the other one: no package index is asked."""
    (site_packages,) = target_environment.glob("lib/python3.*/site-packages")
    for name in names:
        for file in distribution(name).files or ():
            if ".." not in file.parts:
                target = site_packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(file.locate()), target)


def install(target_environment: Path, wheel: Path) -> None:
    """`pip install` of a wheel, with dependency checks, which find a package that is missing."""
    pip = [sys.executable, "-I", "-m", "pip", "--python", str(target_environment / "bin" / "python"), "--disable-pip-version-check", "install", "--quiet"]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}  # without PYTHONPATH, whose packages would count as installed
    subprocess.run([*pip, "--no-index", str(wheel)], env=plain, check=True)


def plugin_wheel(folder: Path) -> Path:
    """The wheel of pytest-tenure, built from a copy of its folder and of the library for tests."""
    for name in ("pytest-tenure", "tenure/testing"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "_testing"))
    command = [sys.executable, "-I", "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", "wheels", "./pytest-tenure"]
    done = subprocess.run(command, cwd=folder, env=environment(PYTHONWARNINGS="default"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (folder / "wheels").iterdir()
    return wheel
