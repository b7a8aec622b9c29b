"""The load generators and the floor, compiled if their sources are newer than the binaries."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).resolve().parent
ROOT = SOURCES.parent
BUILD = ROOT / "build" / "bench"
COMPILE_SECONDS = 60


class BuildError(Exception):
    """A load generator cannot be built; the message is the reason, in one line."""


class Tools(NamedTuple):
    kgload: Path
    kgdata: Path
    kgfloor: Path


def tools() -> Tools:
    if sys.platform != "linux":
        raise BuildError("the load generator needs Linux (epoll); only rows that need no load generator are measured")
    BUILD.mkdir(parents=True, exist_ok=True)
    return Tools(_built("kgload"), _built("kgdata"), _built("kgfloor"))


def _compiler() -> str:
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        raise BuildError("no C compiler found (cc, gcc or clang, or CC=...): the load generator cannot be built")
    return compiler


def _built(name: str) -> Path:
    program = BUILD / name
    newest = max(source.stat().st_mtime for source in (SOURCES / f"{name}.c", *SOURCES.glob("*.h")))
    if program.exists() and program.stat().st_mtime > newest:
        return program
    compiler = _compiler()
    # Compile to a temporary name, and rename: concurrent compilations cannot leave an incomplete program.
    fresh = BUILD / f"{name}.{os.getpid()}"
    command = [*compiler.split(), "-O2", "-g", "-Wall", "-Wextra", "-o", str(fresh), str(SOURCES / f"{name}.c")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{compiler} cannot compile {name}.c: {error}") from None
    if done.returncode != 0:
        complaint = (done.stderr or done.stdout).strip().splitlines()
        reason = next((line for line in complaint if "error" in line), complaint[0] if complaint else f"exit {done.returncode}")
        raise BuildError(f"{compiler} cannot compile {name}.c: {reason}")
    fresh.replace(program)
    return program
