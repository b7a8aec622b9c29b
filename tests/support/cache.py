"""`.cache`: what tests fetch or build once and keep, among it jars from Maven."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache"


class Unavailable(Exception):
    """A file that tests need cannot be fetched or built; the message has the reason."""


def run_maven(user: str, goal: str, *options: str, folder: Path, timeout_s: float) -> None:
    """Run a goal of the `pom.xml` in `folder`. A failure raises Unavailable; its message begins with `user`, the purpose of the files."""
    command = ["mvn", "-q", "-B", goal, *options]
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{user}: mvn did not finish in {timeout_s:g} s") from None
    if done.returncode != 0:
        raise Unavailable(f"{user}: mvn could not fetch it: {(done.stdout + done.stderr).strip()[:300]}")


def cached(folder: Path, make: Callable[[Path], Path]) -> Path:
    """Return `folder`, a folder of the cache. If it is missing, `make` builds its content below a temporary folder and returns the path to rename.

    If several processes need the folder at once, one builds it and the others wait.
    """
    if not folder.is_dir():
        cache = folder.parent
        cache.mkdir(exist_ok=True)
        lock = os.open(cache, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                with tempfile.TemporaryDirectory(dir=cache) as temporary:
                    make(Path(temporary)).rename(folder)
        finally:
            os.close(lock)
    return folder
