"""What can go wrong with logs, in words for people."""

from __future__ import annotations

import errno
from typing import ClassVar


class AppendFailed(Exception):
    """An append or flush that did not happen; the log is as it was before, or unusable until it is recovered."""


class Fenced(AppendFailed):
    """Somebody else owns the log now, at a newer epoch."""


class Undecided(AppendFailed):
    """Nobody can tell yet whether the append is in the log: a store beyond this machine did not answer."""


class DamagedLog(Exception):
    """Bytes in the middle of a log are not what was written. Nothing is skipped silently: the log does not open."""

    GO_ON: ClassVar[str] = "restore the file from a backup, or move it and all later segments of its folder away to go on with what is before it"

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {reason}; {self.GO_ON}")
        self.path = path
        self.position = position
        self.reason = reason


class DamagedTurns(DamagedLog):
    """A log of turns is damaged, and this log may lack what it had."""

    GO_ON: ClassVar[str] = "restore the data directory from a backup, or stop the broker and move the file out of the directory to go on with what the log has"


class DirectoryUnusable(Exception):
    """The data directory cannot be made, read or written."""


class DirectoryLocked(Exception):
    """Another process uses the data directory."""


class DirectoryForeign(Exception):
    """The data directory belongs to another broker or cluster, or was written by a newer version."""


def describe_error(error: Exception, folder: str) -> str:
    """Why, in words for people."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the disk of {folder} is full"
    if isinstance(error, DamagedLog):
        return str(error)
    return f"{folder}: {(error.strerror if isinstance(error, OSError) else None) or error}"
