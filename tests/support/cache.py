"""`.cache`: what tests fetch or build once and keep."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache"


def cached(folder: Path, make: Callable[[Path], Path]) -> Path:
    """`folder`, in the cache. If it is missing, `make` returns the complete one, which it made in the temporary folder that it is given.

    Of several processes at once, one makes it and the others wait.
    """
    if not folder.is_dir():
        cache = folder.parent
        cache.mkdir(exist_ok=True)
        (cache / ".gitignore").write_text("*\n")
        lock = os.open(cache, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                with tempfile.TemporaryDirectory(dir=cache) as temporary:
                    make(Path(temporary)).rename(folder)
        finally:
            os.close(lock)
    return folder
