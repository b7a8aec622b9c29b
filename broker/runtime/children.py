"""How Tenure starts a Python process of its own: with its own packages first on the import path."""

from __future__ import annotations

import contextlib
import os
import sys
from asyncio.subprocess import Process
from pathlib import Path

FOLDER = str(Path(__file__).resolve().parents[2])  # of all our packages


def child_command(module: str) -> tuple[str, ...]:
    """-P: the folder in which the process starts is not on its import path."""
    return (sys.executable, "-P", "-m", module)


def child_environment() -> dict[str, str]:
    """The user's PYTHONPATH may hold a package called `storage` too, and dependencies: ours stands before it."""
    given = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{FOLDER}{os.pathsep}{given}" if given else FOLDER}


def set_niceness(process: Process, niceness: int) -> None:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, niceness)


async def end_child(process: Process) -> None:
    """Kill it if it still runs, and wait for it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.stdin is not None:
        process.stdin.close()
