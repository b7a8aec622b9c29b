"""Errors of logs and data directories, and their descriptions for people."""

from __future__ import annotations

import errno
from typing import ClassVar


class AppendFailed(Exception):
    """An append or flush failed; the log is unchanged, or unusable until a repair."""


class Fenced(AppendFailed):
    """The log has a new owner at a newer epoch."""


class Undecided(AppendFailed):
    """It is unknown whether the append is in the log: a remote store did not answer."""


class DamagedLog(Exception):
    """Bytes in the middle of a log are damaged. The log does not open, since damage is never skipped silently."""

    UNIT: ClassVar[str] = "byte"  # of positions
    REMEDY: ClassVar[str] = "restore the file from a backup, or move it and all later segments of its folder away to go on with the records before the damage"

    def __init__(self, path: str, position: int, reason: str, unit: str = "", remedy: str = "") -> None:
        """`unit` and `remedy`: in place of those of the class, for modules that are not compiled and so cannot derive a class from this one."""
        super().__init__(f"{path} is damaged at {unit or self.UNIT} {position}: {reason}; {remedy or self.REMEDY}")
        self.path = path
        self.position = position
        self.reason = reason


class DamagedTurns(DamagedLog):
    """A turn log, which has second copies of unflushed batches, is damaged, and this log may lack some of these batches."""

    REMEDY: ClassVar[str] = "restore the data directory from a backup, or stop the broker and move the file out of the directory to go on with what the log has"


class DirectoryUnusable(Exception):
    """The data directory cannot be made, read or written."""


class DirectoryLocked(Exception):
    """Another process uses the data directory."""


class DirectoryForeign(Exception):
    """The data directory belongs to another broker or cluster, was written by a newer version, or is a folder of another data directory."""


def describe_error(error: Exception, folder: str) -> str:
    """Describe the error in one line."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the disk of {folder} is full"
    if isinstance(error, DamagedLog):
        return str(error)
    return f"{folder}: {(error.strerror if isinstance(error, OSError) else None) or error}"
