"""Exit codes of `tenure serve`, the error that carries one, and signals received before the loop runs."""

from __future__ import annotations

import errno
import os
from enum import IntEnum


class ExitCode(IntEnum):
    """Codes of sysexits.h where one fits, so that 1 and 2 stay free for `tenure health`."""

    OK = 0  # stopped in order, by SIGTERM, SIGINT or SIGHUP
    USAGE = 64  # the command line cannot be understood
    DATA = 65  # the data directory has data that this version cannot serve
    LISTEN = 69  # an address cannot be bound: in use, not of this machine, or a name that does not resolve
    SOFTWARE = 70  # a defect of ours; the log has the traceback
    PLATFORM = 71  # this system is not supported
    DIRECTORY = 73  # the data directory cannot be created or written
    DISK = 74  # reading or writing failed
    LOCKED = 75  # another process holds the data directory or has taken the node id; a later start may succeed
    CONFIG = 78  # a setting is wrong


# The environment variable that gives a node the supervisor's process id: the supervisor may end before the node calls `getppid`.
SUPERVISOR = "SUPERVISOR_OF_NODE"
SUPERVISED = SUPERVISOR in os.environ
# Read early, so that a parent that ends during the start is noticed (broker/runtime/parent.py).
PARENT_PID = int(os.environ.pop(SUPERVISOR, 0)) or os.getppid()
# A stop signal received before the event loop handles signals; `StopRequest.handle_signals` then processes it.
early_stop_signals: list[int] = []


def remember_signal(number: int, frame: object) -> None:
    """The signal handler until the event loop runs. It only stores the signal: an exception could interrupt an import."""
    if early_stop_signals:
        os._exit(128 + number)  # the second signal ends the process at once
    early_stop_signals.append(number)


class StartError(Exception):
    """The broker cannot start: one line for people, and the exit code for scripts."""

    def __init__(self, message: str, code: ExitCode) -> None:
        super().__init__(message)
        self.code = code


class StoppedEarly(Exception):
    """A stop was requested while the broker waited for another node, before it could serve."""


def describe_permissions(error: BaseException | None) -> str:
    """For a permission error, the user of the process and the owner of the path: in containers the user is often wrong."""
    if not isinstance(error, OSError) or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ""
    line = f"; this process runs as user {os.geteuid()}"
    if error.errno == errno.EROFS or not error.filename:
        return line
    path = os.path.abspath(error.filename)
    while not os.path.lexists(path):  # for a path that cannot be created, its nearest existing parent
        path = os.path.dirname(path)
    status = os.stat(path, follow_symlinks=False)
    return f"{line}, and {path} belongs to user {status.st_uid} (mode {status.st_mode & 0o7777:o})"
