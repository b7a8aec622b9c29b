"""Run the child process that compacts the closed segments of one log (storage/cleaner.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from broker.runtime.children import child_environment, end_child, set_niceness, write_input
from storage.cleaner import Report

REPORT_BYTES_MAX = 1 << 24

# The command, the folder, the request, the process's niceness and its time limit in seconds.
RunCleaner = Callable[[tuple[str, ...], str, bytes, int, float], Coroutine[Any, Any, Report]]


class CleaningFailed(Exception):
    """The compaction failed without any change; it is repeated later."""


async def run_cleaner(command: tuple[str, ...], folder: str, request: bytes, niceness: int, limit_seconds: float) -> Report:
    """Run the process and return its report. Raises CleaningFailed, or ValueError for a malformed report.

    `folder` is on the command line only for process listings.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, folder, stdin=pipe, stdout=pipe, stderr=pipe, limit=REPORT_BYTES_MAX, env=child_environment()
    )
    try:
        set_niceness(process, niceness)
        async with asyncio.timeout(limit_seconds):
            assert process.stdout is not None
            assert process.stderr is not None
            write_input(process, request)  # stdin stays open: the cleaner exits when stdin closes, for example because the broker died
            line, error_output = await asyncio.gather(process.stdout.read(), process.stderr.read())
            code = await process.wait()
    except TimeoutError:
        raise CleaningFailed(f"it took longer than {limit_seconds:g} s") from None
    finally:
        await end_child(process)
    if code:
        last_line = error_output.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise CleaningFailed(last_line or (f"killed by signal {-code}" if code < 0 else f"exit code {code}"))
    return Report(line)
