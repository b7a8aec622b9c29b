"""Detects that another process has ended, if it ran on the same machine, since the same boot, and in the same PID namespace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
STARTED_AT: Final = 19  # index of the start time among the fields after the command in /proc/PID/stat
DEAD: Final = ("Z", "X")


def own_process_mark() -> str:
    """Text by which another process can detect that this one has ended; "" where the system has no /proc."""
    fields = _fields(os.getpid())
    boot_and_namespace = _boot_and_namespace()
    return f"{boot_and_namespace} {os.getpid()} {fields[STARTED_AT]}" if fields and boot_and_namespace else ""


def has_ended(marked: str) -> bool:
    """Whether the process with this mark has certainly ended; False where this process cannot decide it."""
    boot_and_namespace, _, process = marked.rpartition(" ")[0].rpartition(" ")
    if not boot_and_namespace or boot_and_namespace != _boot_and_namespace() or not process.isdigit():
        return False
    fields = _fields(int(process))
    if not fields:
        return not _may_exist(int(process))
    return fields[0] in DEAD or fields[STARTED_AT] != marked.rpartition(" ")[2]


def _may_exist(process: int) -> bool:
    """Whether a process without readable `/proc` entry may run: /proc may hide those of other users (hidepid)."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _boot_and_namespace() -> str:
    """The machine's boot id and the PID namespace."""
    try:
        return f"{BOOT_ID.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _fields(process: int) -> list[str]:
    """The fields after the command in /proc/PID/stat; none if it cannot be read."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
