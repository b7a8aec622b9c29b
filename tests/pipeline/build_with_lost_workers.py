"""A driver whose cluster loses a Python worker and an executor.

Run it with `python -P -m tests.pipeline.build_with_lost_workers MASTER PYTHON DATA OUT MARKS`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pipeline import ingest as ingesting
from pipeline.build import build
from pipeline.inputs import Inputs
from pipeline.progress import Progress
from pipeline.runner import SparkRunner
from pipeline.samples import record_directories
from pipeline.session import session
from pipeline.warehouse import Warehouse


def main() -> None:
    master, python, *folders = sys.argv[1:]
    data, out, marks = map(Path, folders)
    write_rows = ingesting.write_rows

    def write_rows_then_kill(task: Any) -> Any:
        """Write the rows; then kill the Python worker of the first task that gets here, and the whole executor of the second."""
        wrote = write_rows(task)
        process = os.getpid()
        for victim in ("worker", "executor"):
            try:
                os.close(os.open(f"{marks}/{victim}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                for _ in range(2):  # a worker is a child of a daemon, which is a child of the executor
                    process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
                continue
            os.kill(process, signal.SIGKILL)
        return wrote

    ingesting.write_rows = write_rows_then_kill
    quiet = Progress()
    settings = {"spark.pyspark.python": python, "spark.executor.memory": "500m"}
    with Warehouse.open(out, create=True).locked(), session(master, settings) as spark:
        warehouse, runner = Warehouse(out), SparkRunner(spark, quiet)
        inputs = Inputs.of([str(data)])
        ingesting.ingest(warehouse, runner, inputs, quiet)
        record_directories(warehouse, inputs)
        build(warehouse, runner)


if __name__ == "__main__":
    main()
