"""Creates a virtual environment from the locks: `python project/install.py .venv`. Needs only the standard library.

`--serving` installs only the packages that `tenure serve` needs, a tenth of all; a later run without the option adds the others. `--analyze`
adds the packages of `tenure analyze`, half a gigabyte, `--analyze newest` with the newest PySpark. A second run changes nothing: a stamp in the environment, written last, names its
locks. If a lock has changed, the environment is incomplete or its Python was moved, the program creates the environment again.
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
ANALYZE_NEWEST = ROOT / "requirements" / "analyze-newest.txt"
STAMP = "tenure.json"
WHEELS = "serving-wheels"  # packages that tests/project installs into an empty environment, without a package index
OLDEST = (3, 11)
LOCKED = ("--require-hashes", "--only-binary=:all:", "--no-deps")
FROM_SOURCE = ("--no-build-isolation", "--no-binary=pyspark")  # PySpark is published only as source
REDIRECTING = ("PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT")


LAUNCHER = "#!/bin/sh\nexec {python} -P -m tenure \"$@\"\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a virtual environment from the locks.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--this-python", action="store_true", help="create it again if it was created with another Python")
    parser.add_argument("--serving", action="store_true", help="only the packages that serving needs")
    parser.add_argument("--analyze", nargs="?", const="oldest", choices=("oldest", "newest"), help="also the packages of `tenure analyze`, with this PySpark")
    options = parser.parse_args()
    if sys.version_info[:2] < OLDEST:
        print(f"setup: needs Python 3.11 or newer, and {sys.executable} is {sys.version.split()[0]}", file=sys.stderr)
        return 1
    if options.folder.is_symlink():  # it may be the environment of another checkout, which creating it again would empty
        print(f"setup: {options.folder} is a link to {options.folder.resolve()}: remove the link, and run this again", file=sys.stderr)
        return 1
    with DEVELOPMENT.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a concurrent run waits, and then finds a complete environment
        try:
            analyze = {None: None, "oldest": ANALYZE, "newest": ANALYZE_NEWEST}[options.analyze]
            bring_up_to_date(options.folder.absolute(), options.this_python, development=not options.serving, analyze=analyze)
            write_bytecode(options.folder.absolute())
        except subprocess.CalledProcessError as error:
            print(f"setup: {' '.join(map(str, error.cmd))} failed (exit code {error.returncode})", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("setup: interrupted", file=sys.stderr)
            return 130
    return 0


def bring_up_to_date(folder: Path, this_python: bool, development: bool, analyze: Path | None) -> None:
    installed = stamp(folder)
    if installed is None or installed["serving"] != lock_of(folder, SERVING) or (this_python and installed["python"] != python()):
        installed = create(folder)
    requested = {"development": DEVELOPMENT if development else None, "analyze": analyze}
    locks = {name: lock for name, lock in requested.items() if lock is not None}
    if any(installed[name] not in ("", lock_of(folder, lock)) for name, lock in locks.items()):
        installed = create(folder)  # remove packages that only the old lock has
    for name, lock in locks.items():
        digest = lock_of(folder, lock)
        if installed[name] != digest:
            {"development": install_development, "analyze": install_analyze}[name](folder, lock)
            installed[name] = digest
            write_stamp(folder, installed)


def create(folder: Path) -> dict[str, str]:
    """Create an environment with the packages for serving; return its stamp."""
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


def install_development(folder: Path, lock: Path) -> None:
    print(f"setup: {folder.name}, from {lock.relative_to(ROOT)} (once; it takes a minute or two)", flush=True)
    (folder / STAMP).unlink(missing_ok=True)
    pip(folder, "install", *LOCKED, "--find-links", str(folder / WHEELS), "--requirement", str(lock))
    pip(folder, "check")


def install_analyze(folder: Path, lock: Path) -> None:
    print(f"setup: {folder.name}, from {lock.relative_to(ROOT)} (once; half a gigabyte, some minutes)", flush=True)
    (folder / STAMP).unlink(missing_ok=True)
    blocks = re.split(r"^(?=\w)", lock.read_text(), flags=re.MULTILINE)
    wheels = folder / "analyze-wheels.txt"
    wheels.write_text("".join(block for block in blocks if not block.startswith("pyspark==")))
    pip(folder, "install", *LOCKED, "--requirement", str(wheels))
    pip(folder, "install", *LOCKED, *FROM_SOURCE, "--requirement", str(lock))
    wheels.unlink()


def install_project(folder: Path) -> None:
    """Install in place: a .pth file names the checkout, so that Python imports its sources, and compiled modules beside them."""
    (site_packages,) = folder.glob("lib/python3.*/site-packages")
    (site_packages / "tenure.pth").write_text(f"{ROOT}\n")
    launcher = folder / "bin" / "tenure"
    launcher.write_text(LAUNCHER.format(python=shlex.quote(str(folder / "bin" / "python"))))
    launcher.chmod(0o755)


def write_bytecode(folder: Path) -> None:
    """Compile all modules to bytecode now: with PYTHONDONTWRITEBYTECODE every start would compile them again, and take 0.5 s instead of 0.2."""
    packages = [str(path.parent) for path in sorted(ROOT.glob("*/__init__.py"))]
    subprocess.run([str(folder / "bin" / "python"), "-I", "-m", "compileall", "-qq", *packages], check=False, stdin=subprocess.DEVNULL)


def lock_of(folder: Path, lock: Path) -> str:
    """A digest of the lock and the folder, since an environment does not work in another folder."""
    return hashlib.sha256(f"{folder} {LAUNCHER}".encode() + lock.read_bytes()).hexdigest()


def python() -> str:
    return f"{sys.version.split()[0]} {Path(sys.base_prefix).resolve()}"


def stamp(folder: Path) -> dict[str, str] | None:
    """The stamp of a complete environment; None if the environment is incomplete or does not run."""
    try:
        content = json.loads((folder / STAMP).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.keys() != {"serving", "development", "analyze", "python"}:
        return None
    if not os.access(folder / "bin" / "python", os.X_OK) or not os.access(folder / "bin" / "tenure", os.X_OK):
        return None
    return content


def write_stamp(folder: Path, made: dict[str, str]) -> None:
    (folder / STAMP).write_text(json.dumps(made, indent=1) + "\n")


def pip(folder: Path, verb: str, *arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in REDIRECTING}
    command = [str(folder / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", verb]
    subprocess.run([*command, *arguments], check=True, env=environment, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
