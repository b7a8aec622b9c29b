"""Spark's error for a failed job, in one line."""

from __future__ import annotations

import pytest

from pipeline.inputs import BadInput
from pipeline.session import SparkFailed
from pipeline.tables import TablesBusy

pytest.importorskip("pyspark")

from pipeline.spark_engine import failure_of

pytestmark = pytest.mark.spark  # of PySpark, without a JVM

CRASHED = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: \
Lost task 0.3 in stage 0.0 (TID 3) (127.0.0.1 executor driver): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.apply(PythonRunner.scala:624)
"""
RAISED = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 4327, in invoke_udf
    run_process()
    ~~~^^^
ModuleNotFoundError: No module named 'numpy'

\tat org.apache.spark.api.python.BasePythonRunner
"""


KNOWN = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0 in stage 0.0 (TID 0) (127.0.0.1 \
executor driver): org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "packing.py", line 100, in blocks_of
    raise BadInput(f"{split.path}: offset 5: unreadable batch")
pipeline.inputs.BadInput: /data/0.log: offset 5: unreadable batch

\tat org.apache.spark.api.python.BasePythonRunner
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CRASHED, "Spark gave the run up: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"),
        (RAISED, "Spark gave the run up: ModuleNotFoundError: No module named 'numpy'"),
        ("gone\naway", "Spark gave the run up: gone away"),
    ],
)
def test_a_job_that_fails_is_reported_in_one_line(text: str, message: str) -> None:
    failure = failure_of(RuntimeError(text))
    assert type(failure) is SparkFailed
    assert str(failure) == message


def test_an_error_of_the_pipeline_in_a_task_is_that_error() -> None:
    failure = failure_of(RuntimeError(KNOWN))
    assert type(failure) is BadInput
    assert str(failure) == "/data/0.log: offset 5: unreadable batch"
    busy = TablesBusy("another run")
    assert failure_of(busy) is busy
