"""Runs tasks one after the other in this process, or on Spark. Tasks are values; the work is a module-level function."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar

from pipeline.progress import Progress

T = TypeVar("T")
R = TypeVar("R")

_REASON: Final = re.compile(r"most recent failure: (?:Lost task \S+ in stage \S+ \(.*?\): )?([^\n]+)")


class SparkFailed(Exception):
    """Spark gave a job up; the text is the reason, in one line."""


class Runner(Protocol):
    def run(self, what: str, work: Callable[[T], R], tasks: Sequence[T], size: Callable[[T], int], unit: str = "records") -> list[R]:
        """Run the tasks; return results in their order. `what`, `size` (of a task) and `unit` are for the progress display."""


class SequentialRunner:
    """Runs tasks without Spark."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def run(self, what: str, work: Callable[[T], R], tasks: Sequence[T], size: Callable[[T], int], unit: str = "records") -> list[R]:
        results: list[R] = []
        if not tasks:
            return results
        done = 0
        with self._progress.showing(what, sum(map(size, tasks)), lambda: done, unit):
            for task in tasks:
                results.append(work(task))
                done += size(task)
        return results


class SparkRunner:
    """Runs each task as a task of Spark, which repeats failed ones. `session` is a SparkSession."""

    def __init__(self, session: Any, progress: Progress) -> None:
        self.session = session
        self._progress = progress

    def run(self, what: str, work: Callable[[T], R], tasks: Sequence[T], size: Callable[[T], int], unit: str = "records") -> list[R]:
        if not tasks:
            return []
        context = self.session.sparkContext
        done = context.accumulator(0)
        numbered = [(number, task, size(task)) for number, task in enumerate(tasks)]
        numbered.sort(key=lambda entry: -entry[2])  # largest first, so that no long task remains at the end

        def call(entry: tuple[int, T, int]) -> tuple[int, R]:
            number, task, records = entry
            result = work(task)
            done.add(records)
            return number, result

        with self._progress.showing(what, sum(entry[2] for entry in numbered), lambda: int(done.value), unit):
            try:
                results = _interruptible(context, lambda: context.parallelize(numbered, len(numbered)).map(call).collect())
            except Exception as error:
                raise SparkFailed(f"Spark gave up {what}: {_failure_reason(str(error))}") from error
        return [result for _, result in sorted(results, key=lambda entry: int(entry[0]))]


def _interruptible(context: Any, job: Callable[[], Any]) -> Any:
    """Run a job of Spark in a thread: Ctrl-C interrupts only the main thread, and must not interrupt a call to the JVM."""
    with ThreadPoolExecutor(1) as waiting:
        result = waiting.submit(job)
        try:
            return result.result()
        except BaseException:
            context.cancelAllJobs()
            raise


def _failure_reason(text: str) -> str:
    """The exception of the worker in a mixed Python and Java traceback, or Spark's message about the last attempt."""
    _, separator, trace = text.rpartition("Traceback (most recent call last):")
    if separator:
        text = next((line for line in trace.splitlines() if line and not line[0].isspace()), text)
    elif match := _REASON.search(text):
        text = match[1]
    return " ".join(text.split())[:300]
