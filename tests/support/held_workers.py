"""Worker threads that do nothing until a test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from broker.runtime.workers import Job, Workers


class HeldWorkers(Workers):
    """Keeps the jobs; `run` does the oldest in a thread of its own, and delivers its result in the caller's."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.jobs.append((work, done))

    def close(self) -> None: ...

    def run(self) -> None:
        work, done = self.jobs.pop(0)
        done(_in_thread(work))


def _in_thread(work: Callable[[], Any]) -> Any:
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]
