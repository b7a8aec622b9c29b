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
    """The reason why something that tests use cannot be had."""


def run_maven(user: str, goal: str, *options: str, folder: Path, timeout_s: float) -> None:
    """Run a goal of the `pom.xml` in `folder`. Raises Unavailable, with the name of the `user` of what it fetches."""
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
    """`folder`, in the cache. If it is missing, `make` returns the complete one, which it made in the temporary folder that it is given.

    Of several processes at once, one makes it and the others wait.
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
