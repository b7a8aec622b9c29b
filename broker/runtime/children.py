"""Start Python child processes with Tenure's packages first on the import path."""

from __future__ import annotations

import contextlib
import os
import sys
from asyncio.subprocess import Process
from pathlib import Path

PACKAGES_FOLDER = str(Path(__file__).resolve().parents[2])


def child_command(module: str) -> tuple[str, ...]:
    """The command line that runs a module. -P keeps the child's working directory off its import path."""
    return (sys.executable, "-P", "-m", module)


def child_environment() -> dict[str, str]:
    """The environment with Tenure's folder before the user's PYTHONPATH, which may hold another package called `storage`."""
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{PACKAGES_FOLDER}{os.pathsep}{inherited}" if inherited else PACKAGES_FOLDER}


def set_niceness(process: Process, niceness: int) -> None:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, niceness)


def write_input(process: Process, data: bytes) -> None:
    """Write to the child's standard input, unless the child has ended: uvloop, unlike asyncio, then raises a RuntimeError."""
    assert process.stdin is not None
    if not process.stdin.is_closing():
        process.stdin.write(data)


async def end_child(process: Process) -> None:
    """Kill the process if it still runs, and wait for it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.stdin is not None:
        process.stdin.close()
