"""Detects that a process has ended: possible only from the same machine since its boot, in the same PID namespace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
STARTED_AT: Final = 19  # index of the start time among the fields after the command in /proc/PID/stat
DEAD: Final = ("Z", "X")


def mark() -> str:
    """Text by which another process can detect that this one has ended; "" where the system has no /proc."""
    started = _started(os.getpid())
    place = _place()
    return f"{place} {os.getpid()} {started}" if started and place else ""


def has_ended(marked: str) -> bool:
    """Whether the process with this mark has certainly ended; False where this process cannot decide it."""
    place, _, process = marked.rpartition(" ")[0].rpartition(" ")
    if not place or place != _place() or not process.isdigit():
        return False
    return _started(int(process)) != marked.rpartition(" ")[2]


def _place() -> str:
    """The machine's boot id and the PID namespace."""
    try:
        return f"{BOOT_ID.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(process: int) -> str:
    """The start time of the process; "" if it does not run."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in DEAD else words[STARTED_AT]
