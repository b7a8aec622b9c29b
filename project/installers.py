"""The two programs that install packages into an environment: uv, in a tenth of the time, and pip, which is always there.

uv is one that is on PATH or where its installer puts it, or, for the many packages of development, one that pip fetches into .cache/uv by
the lock. Both check the hashes of a lock. If uv fails, pip does its work, and shows what is wrong if something is.
"""

from __future__ import annotations

import ensurepip
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from project.pip_settings import OnlyPip, for_uv, settings_of_pip
from project.progress import Failed, Progress, run

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "uv"
WHEELS_ONLY = "--only-binary=:all:"
LOCKED = ("--require-hashes", "--no-deps")
PIP_OPTIONS = ("--disable-pip-version-check", "--no-input")
REDIRECTING = ("PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT", "PIP_QUIET", "PIP_VERBOSE")
PIP = "#!/bin/sh\nexec {python} -m pip \"$@\"\n"
FETCH_SECONDS = 15.0  # a network on which uv takes longer gains little by it
ANSWER_SECONDS = 10.0


def create(folder: Path) -> None:
    """Create an empty environment with pip. Its wheel is unpacked, where ensurepip would run it, and compile it and setuptools first."""
    wheel = bundled_pip()
    venv.create(folder, clear=True, with_pip=wheel is None, symlinks=True)
    if wheel is None:
        return
    (site_packages,) = folder.glob("lib/python3.*/site-packages")
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(site_packages)
    for name in ("pip", "pip3"):
        script = folder / "bin" / name
        script.write_text(PIP.format(python=shlex.quote(str(folder / "bin" / "python"))))
        script.chmod(0o755)


class Installer(Protocol):
    @property
    def name(self) -> str: ...

    def install(self, folder: Path, lock: Path, *options: str) -> None:
        """Install what the lock names, from wheels unless there are options."""

    def check(self, folder: Path) -> None:
        """Raise Failed if a package lacks another."""


class Pip:
    name = "pip"

    def install(self, folder: Path, lock: Path, *options: str) -> None:
        command = [*pip_of(folder), "install", *LOCKED, "--progress-bar=off", *(options or [WHEELS_ONLY]), "--requirement", str(lock)]
        run(command, pip_environment(), Progress(len(pins(lock))), package_line="Collecting ")

    def check(self, folder: Path) -> None:
        run([*pip_of(folder), "check"], pip_environment(), Progress())


class Uv:
    name = "uv"

    def __init__(self, path: str, environment: dict[str, str]) -> None:
        self._path = path
        self._environment = environment

    def install(self, folder: Path, lock: Path, *options: str) -> None:
        arguments = [*LOCKED, *(options or [WHEELS_ONLY]), "--requirement", str(lock)]
        self._run(folder, "install", *arguments, packages=len(pins(lock)))

    def check(self, folder: Path) -> None:
        self._run(folder, "check")

    def _run(self, folder: Path, verb: str, *arguments: str, packages: int = 0) -> None:
        python = str(folder / "bin" / "python")
        run([self._path, "--no-progress", "--color=never", "pip", verb, "--python", python, *arguments], self._environment, Progress(packages))


class UvOrPip:
    """uv, and from its first failure on pip."""

    def __init__(self, uv: Installer) -> None:
        self._installer: Installer = uv

    @property
    def name(self) -> str:
        return self._installer.name

    def install(self, folder: Path, lock: Path, *options: str) -> None:
        self._try(lambda installer: installer.install(folder, lock, *options))

    def check(self, folder: Path) -> None:
        self._try(lambda installer: installer.check(folder))

    def _try(self, step: Callable[[Installer], None]) -> None:
        try:
            step(self._installer)
        except Failed as error:
            if isinstance(self._installer, Pip):
                raise
            print(f"setup: uv failed, so pip does it: {last_line(error.output)}", flush=True)
            self._installer = Pip()
            step(self._installer)


def choose(fetch_from: Path | None) -> Installer:
    """uv if there is one, or if pip can fetch it as `fetch_from` locks it; otherwise pip."""
    path = find_uv()
    if path is None and fetch_from is None:
        return Pip()
    try:
        environment = for_uv(settings_of_pip(os.environ, Path.home()), os.environ)
    except OnlyPip as error:
        print(f"setup: with pip, since uv has nothing like pip's setting {error}", flush=True)
        return Pip()
    if path is None and fetch_from is not None:
        path = fetched_uv(fetch_from)
    return Pip() if path is None else UvOrPip(Uv(path, environment))


def find_uv() -> str | None:
    """A uv that runs: PATH may have the shim of one that does not."""
    home = Path.home()
    places = [shutil.which("uv"), *(shutil.which("uv", path=str(folder)) for folder in (home / ".local" / "bin", home / ".cargo" / "bin", CACHE))]
    return next((place for place in places if place is not None and runs(place)), None)


def runs(uv: str) -> bool:
    try:
        return subprocess.run([uv, "--version"], capture_output=True, stdin=subprocess.DEVNULL, timeout=ANSWER_SECONDS, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def fetched_uv(lock: Path) -> str | None:
    """The uv of this lock, fetched by pip into .cache/uv; None if that fails or takes long."""
    wheel = bundled_pip()
    if wheel is None:
        return None
    shutil.rmtree(CACHE, ignore_errors=True)
    CACHE.mkdir(parents=True)
    pin = CACHE / "uv.txt"
    pin.write_text(pins(lock)["uv"])
    command = [sys.executable, "-I", f"{wheel}/pip", *PIP_OPTIONS, "download", *LOCKED, WHEELS_ONLY, "--progress-bar=off", "--dest", str(CACHE)]
    try:
        print("setup: fetching uv, which installs the rest faster", flush=True)
        run([*command, "--requirement", str(pin)], pip_environment(), Progress(), seconds=FETCH_SECONDS)
        (fetched,) = CACHE.glob("uv-*.whl")
        with zipfile.ZipFile(fetched) as opened:
            (name,) = [name for name in opened.namelist() if name.endswith(".data/scripts/uv")]
            (CACHE / "uv").write_bytes(opened.read(name))
        (CACHE / "uv").chmod(0o755)
        fetched.unlink()
    except (Failed, OSError, ValueError, zipfile.BadZipFile):
        print("setup: it could not be fetched, so pip does it", flush=True)
        return None
    return str(CACHE / "uv") if runs(str(CACHE / "uv")) else None


def bundled_pip() -> Path | None:
    """The wheel of pip that comes with this Python, which can also be run."""
    folders = [sysconfig.get_config_var("WHEEL_PKG_DIR"), Path(ensurepip.__file__).parent / "_bundled"]
    return next((wheel for folder in folders if folder for wheel in sorted(Path(folder).glob("pip-*.whl"))), None)


def pip_of(folder: Path) -> Sequence[str]:
    return [str(folder / "bin" / "python"), "-I", "-m", "pip", *PIP_OPTIONS]


def pip_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in REDIRECTING}


def pins(lock: Path) -> dict[str, str]:
    """The lines of each package of a lock; some have several versions, for several Pythons."""
    found: dict[str, str] = {}
    for block in re.split(r"^(?=[a-z0-9])", lock.read_text(), flags=re.MULTILINE)[1:]:
        name = re.split(r"[=\[ ]", block, maxsplit=1)[0]
        found[name] = found.get(name, "") + block
    return found


def last_line(output: str) -> str:
    return (output.strip().splitlines() or ["it printed nothing"])[-1].strip()
