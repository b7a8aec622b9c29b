"""Makes a virtual environment from the lock: `python project/install.py .venv`. Needs the standard library only.

A second run changes nothing: a stamp inside the environment, written last, says what it was made of. With another lock, with
half an environment or with a Python that has moved away, it is made anew.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVING = ROOT / "requirements" / "serving.txt"
DEVELOPMENT = ROOT / "requirements" / "development.txt"
STAMP = "tenure.json"
WHEELS = "serving-wheels"  # what tests/project installs into an empty environment, without asking a package index again
SUPPORTED = ((3, 11), (3, 13))
REDIRECTING = ("PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT")


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a virtual environment from the development lock.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--this-python", action="store_true", help="make it anew when it was made with another Python")
    options = parser.parse_args()
    if not SUPPORTED[0] <= sys.version_info[:2] <= SUPPORTED[1]:
        print(f"setup: the lock holds for Python 3.11 to 3.13, and {sys.executable} is {sys.version.split()[0]}", file=sys.stderr)
        return 1
    with DEVELOPMENT.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two makes at once: the second waits and finds the work done
        try:
            make_ready(options.folder.absolute(), options.this_python)
        except subprocess.CalledProcessError as error:
            print(f"setup: {' '.join(map(str, error.cmd))} failed (exit code {error.returncode})", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("setup: interrupted", file=sys.stderr)
            return 130
    return 0


def make_ready(folder: Path, this_python: bool) -> None:
    wanted, had = {"locks": locks(folder), "project": project(), "python": python()}, stamp(folder)
    if not this_python and had is not None:
        wanted["python"] = had["python"]
    if had == wanted:
        return
    if had is None or any(had[part] != wanted[part] for part in ("locks", "python")):
        wanted["python"] = python()
        install_lock(folder)
    install_project(folder)
    (folder / STAMP).write_text(json.dumps(wanted, indent=1) + "\n")


def locks(folder: Path) -> str:
    """What is installed and where: the commands of an environment that was moved do not find their Python."""
    return hashlib.sha256(str(folder).encode() + SERVING.read_bytes() + DEVELOPMENT.read_bytes()).hexdigest()


def project() -> str:
    """What the installed project is made of: its own code is used in place, its metadata and command are not."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    parts = [declared["build-system"], declared["project"], declared["tool"]["setuptools"]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def python() -> str:
    return f"{sys.version.split()[0]} {Path(sys.base_prefix).resolve()}"


def stamp(folder: Path) -> dict[str, str] | None:
    """What a complete environment was made of; None where there is none, or where it would not run."""
    try:
        found = json.loads((folder / STAMP).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.keys() != {"locks", "project", "python"} or found["project"] is None:
        return None
    if not os.access(folder / "bin" / "python", os.X_OK) or not os.access(folder / "bin" / "tenure", os.X_OK):
        return None
    return found


def install_lock(folder: Path) -> None:
    print(f"setup: {folder.name} with Python {sys.version.split()[0]}, from {DEVELOPMENT.relative_to(ROOT)} (once; it takes a minute or two)", flush=True)
    (folder / STAMP).unlink(missing_ok=True)  # first: what is interrupted from here on must not pass for complete
    venv.create(folder, clear=True, with_pip=True, symlinks=True)
    locked = ["--require-hashes", "--only-binary=:all:", "--no-deps"]
    wheels = str(folder / WHEELS)
    pip(folder, "download", *locked, "--dest", wheels, "--requirement", str(SERVING))
    pip(folder, "install", *locked, "--find-links", wheels, "--requirement", str(DEVELOPMENT))
    pip(folder, "check")


def install_project(folder: Path) -> None:
    """In place, by a line with the checkout's path: what mypyc has built beside the sources is found like the sources."""
    (folder / STAMP).unlink(missing_ok=True)
    in_place = ["--no-build-isolation", "--no-deps", "--config-settings", "editable_mode=compat", "--editable", str(ROOT)]
    pip(folder, "install", *in_place)


def pip(folder: Path, verb: str, *arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in REDIRECTING}
    command = [str(folder / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", verb]
    subprocess.run([*command, *arguments], check=True, env=environment, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
