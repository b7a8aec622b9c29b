"""Makes a virtual environment from the locks: `python project/install.py .venv`. Needs the standard library only.

With `--serving` it holds what `tenure` itself needs, a tenth of the whole, and a later run without that adds the rest; `--analyze`
adds what `tenure analyze` needs, half a gigabyte. A second run changes nothing: a stamp inside the environment, written last, says what it was made of. With another lock, with half an
environment or with a Python that has moved away, it is made anew.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVING = ROOT / "requirements" / "serving.txt"
DEVELOPMENT = ROOT / "requirements" / "development.txt"
ANALYZE = ROOT / "requirements" / "analyze.txt"
STAMP = "tenure.json"
WHEELS = "serving-wheels"  # packages that tests/project installs into an empty environment, without a package index
OLDEST = (3, 11)
LOCKED = ("--require-hashes", "--only-binary=:all:", "--no-deps")
FROM_SOURCE = ("--no-build-isolation", "--no-binary=pyspark")  # no wheel of it is published
REDIRECTING = ("PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT")


LAUNCHER = "#!/bin/sh\nexec {python} -P -m tenure \"$@\"\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a virtual environment from the locks.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--this-python", action="store_true", help="make it anew when it was made with another Python")
    parser.add_argument("--serving", action="store_true", help="what serving needs is enough")
    parser.add_argument("--analyze", action="store_true", help="what `tenure analyze` needs as well")
    options = parser.parse_args()
    if sys.version_info[:2] < OLDEST:
        print(f"setup: needs Python 3.11 or newer, and {sys.executable} is {sys.version.split()[0]}", file=sys.stderr)
        return 1
    with DEVELOPMENT.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two concurrent runs of make, the second waits and finds the work done
        try:
            make_ready(options.folder.absolute(), options.this_python, development=not options.serving, analyze=options.analyze)
            write_bytecode(options.folder.absolute())
        except subprocess.CalledProcessError as error:
            print(f"setup: {' '.join(map(str, error.cmd))} failed (exit code {error.returncode})", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("setup: interrupted", file=sys.stderr)
            return 130
    return 0


def make_ready(folder: Path, this_python: bool, development: bool, analyze: bool) -> None:
    had = stamp(folder)
    if had is None or had["serving"] != lock_of(folder, SERVING) or (this_python and had["python"] != python()):
        had = create(folder)
    wanted = {name: lock_of(folder, lock) for name, lock, asked in (("development", DEVELOPMENT, development), ("analyze", ANALYZE, analyze)) if asked}
    if any(had[name] not in ("", made_of) for name, made_of in wanted.items()):
        had = create(folder)  # no packages of another lock may remain
    for name, made_of in wanted.items():
        if had[name] != made_of:
            {"development": install_development, "analyze": install_analyze}[name](folder)
            had[name] = made_of
            write_stamp(folder, had)


def create(folder: Path) -> dict[str, str]:
    """Create an environment for serving; return its stamp."""
    print(f"setup: {folder.name} with Python {sys.version.split()[0]}, from {SERVING.relative_to(ROOT)}", flush=True)
    (folder / STAMP).unlink(missing_ok=True)  # first, so that an interrupted installation does not count as complete
    venv.create(folder, clear=True, with_pip=True, symlinks=True)
    wheels = str(folder / WHEELS)
    pip(folder, "download", *LOCKED, "--dest", wheels, "--requirement", str(SERVING))
    pip(folder, "install", *LOCKED, "--no-index", "--find-links", wheels, "--requirement", str(SERVING))
    install_project(folder)
    made = {"serving": lock_of(folder, SERVING), "development": "", "analyze": "", "python": python()}
    write_stamp(folder, made)
    return made


def install_development(folder: Path) -> None:
    print(f"setup: {folder.name}, from {DEVELOPMENT.relative_to(ROOT)} (once; it takes a minute or two)", flush=True)
    (folder / STAMP).unlink(missing_ok=True)
    pip(folder, "install", *LOCKED, "--find-links", str(folder / WHEELS), "--requirement", str(DEVELOPMENT))
    pip(folder, "check")


def install_analyze(folder: Path) -> None:
    print(f"setup: {folder.name}, from {ANALYZE.relative_to(ROOT)} (once; half a gigabyte, some minutes)", flush=True)
    (folder / STAMP).unlink(missing_ok=True)
    blocks = re.split(r"^(?=\w)", ANALYZE.read_text(), flags=re.MULTILINE)
    wheels = folder / "analyze-wheels.txt"
    wheels.write_text("".join(block for block in blocks if not block.startswith("pyspark==")))
    pip(folder, "install", *LOCKED, "--requirement", str(wheels))
    pip(folder, "install", *LOCKED, *FROM_SOURCE, "--requirement", str(ANALYZE))
    wheels.unlink()


def install_project(folder: Path) -> None:
    """In place, by a line with the checkout's path: modules built by mypyc beside the sources are found like the sources."""
    (site_packages,) = folder.glob("lib/python3.*/site-packages")
    (site_packages / "tenure.pth").write_text(f"{ROOT}\n")
    launcher = folder / "bin" / "tenure"
    launcher.write_text(LAUNCHER.format(python=shlex.quote(str(folder / "bin" / "python"))))
    launcher.chmod(0o755)


def write_bytecode(folder: Path) -> None:
    """Without it every start compiles all modules again where PYTHONDONTWRITEBYTECODE is set: 0.5 s instead of 0.2."""
    packages = [str(path.parent) for path in sorted(ROOT.glob("*/__init__.py"))]
    subprocess.run([str(folder / "bin" / "python"), "-I", "-m", "compileall", "-qq", *packages], check=False, stdin=subprocess.DEVNULL)


def lock_of(folder: Path, lock: Path) -> str:
    """A digest of the lock and the folder: an environment does not work after a move."""
    return hashlib.sha256(f"{folder} {LAUNCHER}".encode() + lock.read_bytes()).hexdigest()


def python() -> str:
    return f"{sys.version.split()[0]} {Path(sys.base_prefix).resolve()}"


def stamp(folder: Path) -> dict[str, str] | None:
    """The stamp of a complete environment; None if it is missing or does not run."""
    try:
        found = json.loads((folder / STAMP).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.keys() != {"serving", "development", "analyze", "python"}:
        return None
    if not os.access(folder / "bin" / "python", os.X_OK) or not os.access(folder / "bin" / "tenure", os.X_OK):
        return None
    return found


def write_stamp(folder: Path, made: dict[str, str]) -> None:
    (folder / STAMP).write_text(json.dumps(made, indent=1) + "\n")


def pip(folder: Path, verb: str, *arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in REDIRECTING}
    command = [str(folder / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", verb]
    subprocess.run([*command, *arguments], check=True, env=environment, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
