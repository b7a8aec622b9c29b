"""The execution of tasks: one after the other in this process, or on Spark. A task is a value, its work a function of a module."""

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
    """A job that Spark gave up, with the reason, in one line."""


class Runner(Protocol):
    def run(self, what: str, work: Callable[[T], R], tasks: Sequence[T], size: Callable[[T], int], unit: str = "records") -> list[R]:
        """The results in the order of the tasks; `size` is the number of records (or another unit) of a task, for the progress display."""


class Sequential:
    """Without Spark: the reference that tests compare with, and a few files on a machine without Java."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def run(self, what: str, work: Callable[[T], R], tasks: Sequence[T], size: Callable[[T], int], unit: str = "records") -> list[R]:
        results: list[R] = []
        if not tasks:
            return results
        done = 0
        with self._progress.of(what, sum(map(size, tasks)), lambda: done, unit):
            for task in tasks:
                results.append(work(task))
                done += size(task)
        return results


class OnSpark:
    """Each task is one of Spark's; Spark repeats failed tasks. `session` is a SparkSession."""

    def __init__(self, session: Any, progress: Progress) -> None:
        self.session = session
        self._progress = progress

    def run(self, what: str, work: Callable[[T], R], tasks: Sequence[T], size: Callable[[T], int], unit: str = "records") -> list[R]:
        if not tasks:
            return []
        context = self.session.sparkContext
        done = context.accumulator(0)
        numbered = [(number, task, size(task)) for number, task in enumerate(tasks)]
        numbered.sort(key=lambda one: -one[2])  # the largest first, so that no long task is left at the end

        def call(one: tuple[int, T, int]) -> tuple[int, R]:
            number, task, records = one
            result = work(task)
            done.add(records)
            return number, result

        with self._progress.of(what, sum(one[2] for one in numbered), lambda: int(done.value), unit):
            try:
                results = _interruptible(context, lambda: context.parallelize(numbered, len(numbered)).map(call).collect())
            except Exception as error:
                raise SparkFailed(f"Spark gave up {what}: {_why(str(error))}") from error
        return [result for _, result in sorted(results, key=lambda one: int(one[0]))]


def _interruptible(context: Any, job: Callable[[], Any]) -> Any:
    """Ctrl-C comes to the main thread; the thread that waits for the JVM must not be interrupted in its connection."""
    with ThreadPoolExecutor(1) as waiting:
        result = waiting.submit(job)
        try:
            return result.result()
        except BaseException:
            context.cancelAllJobs()
            raise


def _why(text: str) -> str:
    """The exception of the worker in a mixed Python and Java traceback, or Spark's message about the last attempt."""
    _, traced, trace = text.rpartition("Traceback (most recent call last):")
    if traced:
        text = next((line for line in trace.splitlines() if line and not line[0].isspace()), text)
    elif found := _REASON.search(text):
        text = found[1]
    return " ".join(text.split())[:300]
