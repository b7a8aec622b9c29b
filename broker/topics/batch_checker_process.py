"""The child process that checks large batches: `python -m broker.topics.batch_checker_process` (see batch_checker.py).

It reads jobs from standard input and writes the result of each to standard output, until the input ends. A job or result is a length and
a marshalled tuple: broker and child run the same Python and the same version of this code.
"""

from __future__ import annotations

import marshal
import signal
import sys
from struct import Struct
from typing import Any, BinaryIO, Final

from broker.topics.batch_checks import BatchRefused, Checked, CheckLimits, RecordError, TooMuchWork, check
from broker.topics.settings import LogSettings
from protocol.errors import ErrorCode

SIZE: Final = Struct(">Q")

CHECKED, REFUSED, TOO_MUCH, FAILED = range(4)


class CheckFailed(Exception):
    """The batch could not be checked, for a reason in the broker."""


CheckResult = Checked | BatchRefused | TooMuchWork | CheckFailed


def packed(*fields: Any) -> bytes:
    data = marshal.dumps(fields)
    return SIZE.pack(len(data)) + data


def job_bytes(data: bytes, settings: tuple[Any, ...], now: int, name: str, limits: CheckLimits, seconds: float) -> bytes:
    return packed(data, settings, now, name, tuple(limits), seconds)


def result_bytes(outcome: CheckResult) -> bytes:
    if isinstance(outcome, Checked):
        return packed(CHECKED, *outcome)
    if isinstance(outcome, BatchRefused):
        records = [tuple(record) for record in outcome.records]
        return packed(REFUSED, int(outcome.error), outcome.message, records, outcome.with_start)
    return packed(TOO_MUCH) if isinstance(outcome, TooMuchWork) else packed(FAILED, str(outcome))


def outcome_of(data: bytes) -> CheckResult:
    """Decode the bytes after the size of a result."""
    kind, *fields = marshal.loads(data)
    if kind == CHECKED:
        return Checked(*fields)
    if kind == REFUSED:
        error, message, records, with_start = fields
        return BatchRefused(ErrorCode(error), message, [RecordError(*record) for record in records], with_start)
    return TooMuchWork() if kind == TOO_MUCH else CheckFailed(*fields)


def check_job(fields: tuple[Any, ...]) -> CheckResult:
    data, settings, now, name, limits, _ = fields
    try:
        return check(data, 0, len(data), LogSettings(*settings), now, name, CheckLimits(*limits))
    except (BatchRefused, TooMuchWork) as outcome:
        return outcome
    except Exception as error:  # also MemoryError: the next batch may be smaller
        return CheckFailed(repr(error))


def serve(source: BinaryIO, target: BinaryIO) -> None:
    while len(size := source.read(SIZE.size)) == SIZE.size:
        data = source.read(SIZE.unpack(size)[0])
        fields = marshal.loads(data)
        del data
        # The broker kills this process at the time limit of the job; the alarm does so if the broker is gone.
        signal.setitimer(signal.ITIMER_REAL, fields[-1])
        result = result_bytes(check_job(fields))
        signal.setitimer(signal.ITIMER_REAL, 0)
        del fields
        target.write(result)
        target.flush()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is for the broker, which ends this process
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
