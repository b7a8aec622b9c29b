"""Checks large batches apart from the broker's loop: `python -m broker.topics.batch_checker_process`, started and ended by the broker (batch_checker.py).

It reads jobs from its input and writes a result for each to its output, one at a time, until the input ends. Both are lengths
with marshalled tuples: the two ends are one Python and one version of this code.
"""

from __future__ import annotations

import marshal
import signal
import sys
from struct import Struct
from typing import Any, BinaryIO, Final

from broker.topics.batch_checks import Checked, Limits, RecordError, Refusal, TooMuchWork, check
from broker.topics.settings import LogSettings
from protocol.errors import ErrorCode

SIZE: Final = Struct(">Q")

CHECKED, REFUSED, TOO_MUCH, FAILED = range(4)


class CheckFailed(Exception):
    """A batch of which nothing is known, for a reason that lies in the broker."""


Outcome = Checked | Refusal | TooMuchWork | CheckFailed


def packed(*fields: Any) -> bytes:
    data = marshal.dumps(fields)
    return SIZE.pack(len(data)) + data


def job_bytes(data: bytes, settings: tuple[Any, ...], now: int, name: str, limits: Limits, seconds: float) -> bytes:
    return packed(data, settings, now, name, tuple(limits), seconds)


def result_bytes(outcome: Outcome) -> bytes:
    if isinstance(outcome, Checked):
        return packed(CHECKED, *outcome)
    if isinstance(outcome, Refusal):
        records = [tuple(one) for one in outcome.records]
        return packed(REFUSED, int(outcome.error), outcome.message, records, outcome.start_told)
    return packed(TOO_MUCH) if isinstance(outcome, TooMuchWork) else packed(FAILED, str(outcome))


def outcome_of(data: bytes) -> Outcome:
    """Of what follows the size of a result."""
    kind, *fields = marshal.loads(data)
    if kind == CHECKED:
        return Checked(*fields)
    if kind == REFUSED:
        error, message, records, start_told = fields
        return Refusal(ErrorCode(error), message, [RecordError(*one) for one in records], start_told)
    return TooMuchWork() if kind == TOO_MUCH else CheckFailed(*fields)


def check_job(fields: tuple[Any, ...]) -> Outcome:
    data, settings, now, name, limits, _ = fields
    try:
        return check(data, 0, len(data), LogSettings(*settings), now, name, Limits(*limits))
    except (Refusal, TooMuchWork) as outcome:
        return outcome
    except Exception as error:  # also MemoryError: the next batch may be a smaller one
        return CheckFailed(repr(error))


def serve(source: BinaryIO, target: BinaryIO) -> None:
    while len(size := source.read(SIZE.size)) == SIZE.size:
        data = source.read(SIZE.unpack(size)[0])
        fields = marshal.loads(data)
        del data
        # The broker ends who takes longer; should it be gone itself, the alarm does.
        signal.setitimer(signal.ITIMER_REAL, fields[-1])
        result = result_bytes(check_job(fields))
        signal.setitimer(signal.ITIMER_REAL, 0)
        del fields
        target.write(result)
        target.flush()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is for the broker, which ends us
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
