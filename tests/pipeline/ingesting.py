"""A driver that a test kills: `python -m tests.pipeline.ingesting DATA OUT MARKS` ingests slowly on Spark; each task adds its process id to MARKS."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from pipeline import ingest as ingesting
from pipeline.progress import Progress
from pipeline.runner import SparkRunner
from pipeline.warehouse import Warehouse
from tests.spark.session import session

SECONDS = 1.0
real = ingesting.write_rows


def write_slowly(task: Any) -> Any:
    """Write the rows, and then keep the process alive for a while, so that the test can kill it."""
    wrote = real(task)
    Path(os.environ["MARKS"], str(os.getpid())).touch()
    time.sleep(SECONDS)
    return wrote


def main() -> None:
    data, out, marks = map(Path, sys.argv[1:])
    os.environ["MARKS"] = str(marks)
    ingesting.write_rows = write_slowly
    quiet = Progress()
    with session([], marks.parent) as spark:
        warehouse = Warehouse.open(out, create=True)
        with warehouse.locked():
            ingesting.ingest(warehouse, SparkRunner(spark, quiet), ingesting.Inputs.of([str(data)]), quiet)


if __name__ == "__main__":
    main()
