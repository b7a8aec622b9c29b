"""Creates a virtual environment from the locks: `python -m project.install .venv`. Needs only the standard library.

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
import shlex
import subprocess
import sys
import time
from pathlib import Path

from project.installers import Installer, choose, create, pins
from project.progress import Failed

ROOT = Path(__file__).resolve().parents[1]
SERVING = ROOT / "requirements" / "serving.txt"
DEVELOPMENT = ROOT / "requirements" / "development.txt"
ANALYZE = ROOT / "requirements" / "analyze.txt"
ANALYZE_NEWEST = ROOT / "requirements" / "analyze-newest.txt"
STAMP = "tenure.json"
OLDEST = (3, 11)
SERVES = ("protocol", "coordinator", "storage", "history", "secured", "broker", "cli", "tenure")  # the packages of `tenure serve`
FROM_SOURCE = ("--no-build-isolation", "--no-binary=pyspark")  # PySpark is published only as source


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
        except Failed as error:
            print(f"{error.output.rstrip()}\nsetup: {error}", file=sys.stderr)
            return 1
        except subprocess.CalledProcessError as error:
            print(f"setup: {' '.join(map(str, error.cmd))} failed (exit code {error.returncode})", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("setup: interrupted", file=sys.stderr)
            return 130
    return 0


def bring_up_to_date(folder: Path, this_python: bool, development: bool, analyze: Path | None) -> None:
    """Install what the environment lacks."""
    requested = {"development": DEVELOPMENT if development else None, "analyze": analyze}
    locks = {name: (lock, lock_of(folder, lock)) for name, lock in requested.items() if lock is not None}
    installed = stamp(folder)
    if (
        installed is None
        or installed["serving"] != lock_of(folder, SERVING)
        or (this_python and installed["python"] != python())
        or any(installed[name] not in ("", digest) for name, (_, digest) in locks.items())  # remove packages that only the old lock has
    ):
        installed = None
    missing = [name for name, (_, digest) in locks.items() if installed is None or installed[name] != digest]
    if installed is None or missing:
        begin = time.monotonic()
        installer = choose(DEVELOPMENT if missing else None)
        if installed is None:
            installed = new_environment(folder, installer)
        for name in missing:
            lock, digest = locks[name]
            {"development": install_development, "analyze": install_analyze}[name](folder, lock, installer)
            installed[name] = digest
            write_stamp(folder, installed)
        print(f"setup: {folder.name} is ready after {time.monotonic() - begin:.1f} s", flush=True)


def new_environment(folder: Path, installer: Installer) -> dict[str, str]:
    """Create an environment with the packages for serving; return its stamp."""
    print(f"setup: {folder.name} with Python {sys.version.split()[0]}: {what(SERVING)}, with {installer.name}", flush=True)
    (folder / STAMP).unlink(missing_ok=True)  # first, so that an interrupted installation does not count as complete
    create(folder)
    installer.install(folder, SERVING)
    (site_packages,) = folder.glob("lib/python3.*/site-packages")
    compile_to_bytecode(folder, "-x", "/site-packages/pip/", str(site_packages))  # uv leaves it to the first start
    install_project(folder)
    made = {"serving": lock_of(folder, SERVING), "development": "", "analyze": "", "python": python()}
    write_stamp(folder, made)
    return made


def install_development(folder: Path, lock: Path, installer: Installer) -> None:
    print(f"setup: {folder.name}: {what(lock)}, with {installer.name} (once)", flush=True)
    (folder / STAMP).unlink(missing_ok=True)
    installer.install(folder, lock)
    installer.check(folder)


def install_analyze(folder: Path, lock: Path, installer: Installer) -> None:
    print(f"setup: {folder.name}: {what(lock)}, with {installer.name} (once; half a gigabyte, some minutes)", flush=True)
    (folder / STAMP).unlink(missing_ok=True)
    blocks = pins(lock)
    for name, packages, options in (
        ("analyze-wheels.txt", [block for name, block in blocks.items() if name != "pyspark"], ()),
        ("analyze-sources.txt", [blocks["pyspark"]], FROM_SOURCE),
    ):
        part = folder / name
        part.write_text("".join(packages))
        installer.install(folder, part, *options)
        part.unlink()


def what(lock: Path) -> str:
    return f"{len(pins(lock))} packages of {lock.relative_to(ROOT)}"


def install_project(folder: Path) -> None:
    """Install in place: a .pth file names the checkout, so that Python imports its sources, and compiled modules beside them."""
    (site_packages,) = folder.glob("lib/python3.*/site-packages")
    (site_packages / "tenure.pth").write_text(f"{ROOT}\n")
    launcher = folder / "bin" / "tenure"
    launcher.write_text(LAUNCHER.format(python=shlex.quote(str(folder / "bin" / "python"))))
    launcher.chmod(0o755)


def write_bytecode(folder: Path) -> None:
    """Compile what serves to bytecode now, so that the first start is as fast as the next.

    With PYTHONDONTWRITEBYTECODE all packages: no start would write theirs.
    """
    everything = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    packages = [str(path.parent) for path in sorted(ROOT.glob("*/__init__.py")) if everything or path.parent.name in SERVES]
    compile_to_bytecode(folder, *packages)


def compile_to_bytecode(folder: Path, *arguments: str) -> None:
    subprocess.run([str(folder / "bin" / "python"), "-I", "-m", "compileall", "-qq", *arguments], check=False, stdin=subprocess.DEVNULL)


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


if __name__ == "__main__":
    sys.exit(main())
