"""How the process ends: the exit codes of `tenure serve` and the error that carries one."""

from __future__ import annotations

import errno
import os
from enum import IntEnum


class ExitCode(IntEnum):
    """sysexits.h where it has a fitting one, so that 1 and 2 stay free for `tenure health`."""

    OK = 0  # stopped in order, by SIGTERM or SIGINT
    USAGE = 64  # the command line cannot be understood
    DATA = 65  # the data directory holds what this version cannot serve
    LISTEN = 69  # an address cannot be listened on: taken, not ours, or a name that leads nowhere
    SOFTWARE = 70  # a defect of ours; the log has the traceback
    PLATFORM = 71  # this system is not supported
    DIRECTORY = 73  # the data directory cannot be made or written
    DISK = 74  # reading or writing failed
    LOCKED = 75  # another process holds the data directory; later it may work
    CONFIG = 78  # a setting is wrong


# Read before anything takes time: a parent that ends later is noticed (broker/runtime/parent.py).
STARTED_BY = os.getppid()
# A stop that was asked for before the event loop could hear it; the loop asks here when it listens.
asked_to_stop: list[int] = []


def remember_signal(number: int, frame: object) -> None:
    """The signal handler of the first moments: raising in the middle of an import would leave things half done."""
    if asked_to_stop:
        os._exit(128 + number)  # asked twice: at once
    asked_to_stop.append(number)


class StartError(Exception):
    """The broker cannot start, in one line for people, and the exit code that says so to a script."""

    def __init__(self, message: str, code: ExitCode) -> None:
        super().__init__(message)
        self.code = code


def for_whom(error: BaseException | None) -> str:
    """Who may not, and whose it is: with containers and volumes it is the user, not the path, that has to be put right."""
    if not isinstance(error, OSError) or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ""
    line = f"; this process runs as user {os.geteuid()}"
    if error.errno == errno.EROFS or not error.filename:
        return line
    path = os.path.abspath(error.filename)
    while not os.path.lexists(path):  # what cannot be made: what it cannot be made in
        path = os.path.dirname(path)
    found = os.stat(path, follow_symlinks=False)
    return f"{line}, and {path} belongs to user {found.st_uid} (mode {found.st_mode & 0o7777:o})"
