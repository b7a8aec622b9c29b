"""The process in which a log is cleaned: `python -P -m storage.cleaner FOLDER`, started by the log's owner.

It reads one line of JSON from standard input, cleans (compaction.py), and prints one line of JSON. It only adds new files; the
owner moves them into place. It exits when standard input closes, which means that the owner's process has ended: another process may
then own the folder. This module is not compiled, since Python cannot run a compiled module with -m.
"""

from __future__ import annotations

import gc
import json
import select
import sys
from typing import Any

from storage.compaction import Compaction
from storage.disk import Disk, OsDisk
from storage.errors import DamagedLog
from storage.swap import CleanedSegment, ClosedSegment

ABANDONED = 3


def request_line(folder: str, segments: list[ClosedSegment], end: int, producers: dict[int, int] | None = None, **settings: int | str) -> bytes:
    """The line that `main` reads; `settings` are those of Compaction."""
    pairs = None if producers is None else list(producers.items())
    return json.dumps({"folder": folder, "segments": segments, "end": end, "producers": pairs, **settings}).encode() + b"\n"


class Report:
    """The line that `main` prints, parsed."""

    def __init__(self, line: bytes) -> None:
        """Raises ValueError if the line is not a report."""
        try:
            report: dict[str, Any] = json.loads(line)
            self.cleaned = [CleanedSegment(base, size, end, tuple(replaces)) for base, size, end, replaces in report["cleaned"]]
            self.clean_to = int(report["clean_to"])
            self.bytes_before = int(report["bytes_before"])
            self.bytes_after = int(report["bytes_after"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a report of a cleaning: {line[:100]!r}") from error


def job_of(disk: Disk, line: bytes) -> Compaction:
    """Create the compaction that a `request_line` describes."""
    request = json.loads(line)
    segments = [ClosedSegment(base, size) for base, size in request.pop("segments")]
    if request["producers"] is not None:
        request["producers"] = dict(request["producers"])
    return Compaction(disk, request.pop("folder"), segments, request.pop("end"), **request)


def report_line(job: Compaction) -> bytes:
    """The line for `Report`, when the job is complete."""
    report = {"cleaned": job.cleaned, "clean_to": job.clean_to, "bytes_before": job.bytes_before, "bytes_after": job.bytes_after}
    return json.dumps(report).encode()


def main() -> int:
    gc.disable()  # the one large dictionary of bytes and numbers has no cycles
    job = job_of(OsDisk(), sys.stdin.buffer.readline())
    try:
        for _ in job.steps():
            if owner_has_ended():
                return ABANDONED
    except (OSError, DamagedLog) as error:
        print(error, file=sys.stderr)
        return 1
    print(report_line(job).decode(), flush=True)
    return 0


def owner_has_ended() -> bool:
    readable, _, _ = select.select([sys.stdin.buffer], [], [], 0)
    return bool(readable) and not sys.stdin.buffer.read(1)


if __name__ == "__main__":
    sys.exit(main())
