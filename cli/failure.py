"""How a command ends that could not do what it was asked for: one line, and an exit code that scripts can tell apart."""

from __future__ import annotations

from enum import IntEnum


class EXIT(IntEnum):
    """Exit codes of the commands that talk to a cluster; the numbers are those of sysexits.h where it has one."""

    DONE = 0
    REFUSED = 1  # the cluster said no, or a part of it failed, or the user said no
    USAGE = 64
    DAMAGED = 65  # what was given to read makes no sense
    MISSING = 66  # no such group, topic, member or file
    UNREACHABLE = 69  # nobody answers, or not in Kafka's protocol without TLS and SASL
    SOFTWARE = 70  # a defect of ours
    OUTPUT = 74  # standard output takes no more
    AGAIN = 75  # loading, or no coordinator or leader within the timeout
    LACKING = 76  # the cluster has no such API, or not in a version that can do it
    FORBIDDEN = 77


class Failure(Exception):
    """What is wrong and what to do about it, in one line."""

    def __init__(self, code: int, line: str) -> None:
        super().__init__(line)
        self.code = code
        self.line = line
