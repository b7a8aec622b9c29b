"""A driver whose cluster loses a Python worker and an executor.

Run it with `python -P -m tests.pipeline.build_with_lost_workers MASTER PYTHON DATA OUT MARKS`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pipeline.inputs import Inputs
from pipeline.jobs import Steps
from pipeline.progress import Progress
from pipeline.session import session
from pipeline.spark_engine import SparkEngine
from pipeline.tables import Tables


def killing(marks: Path) -> Any:
    """The function of the chunks; the first worker that has made one is killed, and then the whole executor of the second."""

    def of(pickled: bytes) -> Any:
        def run(rows: Any) -> Any:
            from pipeline.spark_engine import run_chunk

            done = run_chunk(pickled, rows)
            process = os.getpid()
            for victim in ("worker", "executor"):
                try:
                    os.close(os.open(f"{marks}/{victim}", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    for _ in range(2):  # a worker is a child of a daemon, which is a child of the executor
                        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
                    continue
                os.kill(process, signal.SIGKILL)
            return done

        return run

    return of


def main() -> None:
    import pyspark_koffsets

    master, python, *folders = sys.argv[1:]
    data, out, marks = map(Path, folders)
    pyspark_koffsets.chunk_function = killing(marks)
    settings = {"spark.pyspark.python": python, "spark.executor.memory": "500m"}
    with session(master, settings) as spark:
        SparkEngine(spark, Progress()).round(Tables.open(out, create=True), Inputs.of([str(data)]), Steps())


if __name__ == "__main__":
    main()
