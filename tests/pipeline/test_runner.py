"""Spark's error for a failed job, in one line."""

from __future__ import annotations

import pytest

from pipeline.progress import Progress
from pipeline.runner import SparkFailed, SparkRunner

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


class Broken:
    """A session whose jobs fail."""

    def __init__(self, text: str) -> None:
        self.sparkContext = self
        self._text = text

    def __getattr__(self, name: str) -> object:
        def anything(*arguments: object) -> object:
            if name == "collect":
                raise RuntimeError(self._text)
            return self

        return anything


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CRASHED, "Spark gave up reading: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"),
        (RAISED, "Spark gave up reading: ModuleNotFoundError: No module named 'numpy'"),
        ("gone\naway", "Spark gave up reading: gone away"),
    ],
)
def test_a_job_that_fails_is_reported_in_one_line(text: str, message: str) -> None:
    with pytest.raises(SparkFailed) as failed:
        SparkRunner(Broken(text), Progress()).run("reading", str, [1], lambda task: 1)
    assert str(failed.value) == message
