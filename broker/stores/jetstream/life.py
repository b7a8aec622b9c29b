"""Whether a process has ended, as far as another one can be sure of it: on the same running machine, among the same process ids."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
STARTED_AT: Final = 19  # of the words behind the command in /proc/PID/stat
DEAD: Final = ("Z", "X")


def mark() -> str:
    """What others need to find out whether this process has ended; "" where the system does not tell."""
    started = _started(os.getpid())
    place = _place()
    return f"{place} {os.getpid()} {started}" if started and place else ""


def has_ended(marked: str) -> bool:
    """Whether the process with this mark has certainly ended; False also where nobody here can know."""
    place, _, process = marked.rpartition(" ")[0].rpartition(" ")
    if not place or place != _place() or not process.isdigit():
        return False
    return _started(int(process)) != marked.rpartition(" ")[2]


def _place() -> str:
    """The machine since its boot, and the namespace of process ids."""
    try:
        return f"{BOOT_ID.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(process: int) -> str:
    """When the process was started; "" if there is none."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in DEAD else words[STARTED_AT]
