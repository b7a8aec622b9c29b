"""The failure of a command: one line, an exit code, and with --json an object for scripts."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

from broker.logging.secrets import hide


class Exit(IntEnum):
    """Exit codes of the commands that talk to a cluster; the numbers are those of sysexits.h where it has one."""

    DONE = 0
    REFUSED = 1  # the cluster refused, a part failed, or the user declined
    USAGE = 64
    DAMAGED = 65  # the input is invalid
    MISSING = 66  # no such group, topic, member or file
    UNREACHABLE = 69  # no broker answers, or its listener requires TLS or SASL
    SOFTWARE = 70  # a defect of this command
    PLATFORM = 71
    OUTPUT = 74  # standard output cannot be written
    AGAIN = 75  # a coordinator loads, or there was no coordinator or leader within the timeout
    UNSUPPORTED = 76  # the cluster does not serve the API in a usable version
    FORBIDDEN = 77
    CONFIG = 78
    INTERRUPTED = 130


# The `code` in --json of errors that have no more exact code.
KINDS: Final[dict[int, str]] = {
    Exit.REFUSED: "refused",
    Exit.USAGE: "usage",
    Exit.DAMAGED: "damaged",
    Exit.MISSING: "not-found",
    Exit.UNREACHABLE: "unreachable",
    Exit.SOFTWARE: "defect",
    Exit.PLATFORM: "platform",
    Exit.OUTPUT: "input-output",
    Exit.AGAIN: "not-now",
    Exit.UNSUPPORTED: "unsupported",
    Exit.FORBIDDEN: "forbidden",
    Exit.CONFIG: "configuration",
    Exit.INTERRUPTED: "interrupted",
}
HINTS: Final[dict[int, str]] = {
    Exit.UNREACHABLE: "start a broker there, or name the address of one with --bootstrap",
    Exit.SOFTWARE: "TENURE_DEBUG=1 shows where",
    Exit.AGAIN: "try again, or wait longer with --timeout",
}
# More exact codes. Errors of the cluster have Kafka's name for them as code, unless listed here.
UNKNOWN_GROUP: Final = "unknown-group"
UNKNOWN_TOPIC: Final = "unknown-topic"
UNKNOWN_MEMBER: Final = "unknown-member"
UNKNOWN_PARTITION: Final = "unknown-partition"
NOT_READY: Final = "not-ready"
UNDECODED: Final = re.compile(r"[\udc80-\udcff]|\\udc([89a-f][0-9a-f])")


def readable(text: str) -> str:
    """The text with bytes that are not UTF-8 as \\xNN. Python keeps such bytes of the command line as surrogates, \\udcNN in a repr()."""
    return UNDECODED.sub(lambda match: f"\\x{match[1] or f'{ord(match[0]) & 0xFF:02x}'}", text)


class Failure(Exception):
    """The problem and its remedy in one line. For scripts: `kind` is the kind of error, `hint` the remedy."""

    def __init__(self, exit_code: int, line: str, *, kind: str | None = None, hint: str | None = None) -> None:
        self.line = hide(readable(line))
        super().__init__(self.line)
        self.exit_code = exit_code
        self.kind = kind or KINDS.get(exit_code, "failed")
        self.hint = hide(hint) if hint else HINTS.get(exit_code)

    def with_line(self, line: str) -> Failure:
        """A copy of the failure with another line."""
        return Failure(self.exit_code, line, kind=self.kind, hint=self.hint)

    def document(self) -> dict[str, str | None]:
        """The JSON object of the error."""
        return {"code": self.kind, "message": self.line, "hint": self.hint}


def in_part(problem: Failure) -> Failure:
    """The failure of a part of a command that has done the others: a broker that cannot be reached is then one that does not answer now."""
    return Failure(Exit.AGAIN, problem.line, kind=problem.kind, hint=problem.hint) if problem.exit_code == Exit.UNREACHABLE else problem
