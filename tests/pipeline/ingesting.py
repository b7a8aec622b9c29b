"""A run that a test kills: `python -m tests.pipeline.ingesting DATA OUT MARKS` ingests slowly without Spark, and adds a file to MARKS for each chunk."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pipeline.jobs
from pipeline.chunks import build_chunk
from pipeline.jobs import Inputs, PlainEngine, Steps
from pipeline.progress import Progress
from pipeline.tables import Tables

SECONDS = 1.0


def main() -> None:
    data, out, marks = map(Path, sys.argv[1:])

    def build_slowly(*arguments: Any) -> Any:
        """Write the files of a chunk, and then keep the process alive for a while, so that the test can kill it."""
        built = build_chunk(*arguments)
        (marks / str(time.monotonic_ns())).touch()
        time.sleep(SECONDS)
        return built

    pipeline.jobs.build_chunk = build_slowly  # type: ignore[attr-defined,assignment]
    PlainEngine(Progress()).round(Tables.open(out, create=True), Inputs.of([str(data)]), Steps(builds=False))


if __name__ == "__main__":
    main()
