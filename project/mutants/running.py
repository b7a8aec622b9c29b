"""Runs pytest, which collects the tests once, and forks it: to trace the lines that tests touch, and to judge each mutation."""

from __future__ import annotations

import ast
import gc
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from project.mutants.mutations import Mutation
from project.mutants.swapping import NotSwapped, swap

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = [
    *("-q", "--assert=plain", "--tb=no", "--capture=no", "--no-header", "--no-summary"),
    *("-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=0"),
    *("-m", "not (alone or clients or jetstream or kafka or spark)", "-o", "tmp_path_retention_policy=none"),
]
# Slower tests are left out: each would run for every mutation of the code that it touches.
TEST_SECONDS_MAX = 1.0
# Limits for endless loops and memory. CPU_SECONDS_MORE is added to five times the test's duration.
CPU_SECONDS_MORE = 0.5
WALL_SECONDS_MAX = 60.0
MEMORY_BYTES_MAX = 3 << 30
KILLED, SURVIVED, TIMEOUT, UNTOUCHED = "killed", "survived", "timeout", "untouched"


def use_hypothesis() -> None:
    """Let Hypothesis run only a few examples, and the same ones each time."""
    from hypothesis import HealthCheck, settings

    settings.register_profile("mutants", derandomize=True, max_examples=20, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    settings.load_profile("mutants")


class Coverage(NamedTuple):
    """The lines of each file that a test runs, and its duration without tracing."""

    lines: dict[str, list[int]]
    seconds: float


class Verdict(NamedTuple):
    outcome: str
    by: str  # the test that killed the mutation
    seconds: float


class Runner:
    """A pytest plugin that runs `work` instead of the tests."""

    def __init__(self, work: Callable[[Runner], None], workers: int) -> None:
        self._work = work
        self.workers = workers
        self.items: dict[str, pytest.Item] = {}
        self.session: Any = None

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.session = session
        self.items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()
        self._work(self)
        return True

    # In a fork.

    def run_test(self, item: pytest.Item) -> str:
        """Run a test; return passed, failed or skipped."""
        outcome = "passed"
        for report in runtestprotocol(item, log=False, nextitem=None):
            if report.failed:
                return "failed"
            if report.skipped:
                outcome = "skipped"
        return outcome

    def child(self, scratch: str) -> None:
        """Set up a fork: no output, and a separate scratch folder."""
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        factory = self.session.config._tmp_path_factory
        factory._given_basetemp = Path(scratch) / f"p{os.getpid()}"

    # Tracing.

    def trace_coverage(self, tests: list[str], files: list[str]) -> dict[str, Coverage]:
        """The lines that each passing test touches."""
        touched: dict[str, Coverage] = {}
        with tempfile.TemporaryDirectory() as scratch:
            children = []
            for number in range(self.workers):
                pid = os.fork()
                if not pid:
                    self._trace(tests[number :: self.workers], set(files), scratch, Path(scratch) / f"{number}.json")
                children.append((pid, Path(scratch) / f"{number}.json"))
            for pid, result in children:
                os.waitpid(pid, 0)
                for test, (lines, seconds) in json.loads(result.read_text()).items():
                    touched[test] = Coverage(lines, seconds)
        return touched

    def _trace(self, tests: list[str], files: set[str], scratch: str, result: Path) -> None:
        try:
            self.child(scratch)
            names = {str(ROOT / file): file for file in files}
            found: dict[str, tuple[dict[str, list[int]], float]] = {}
            parent = os.getppid()
            for test in tests:
                if os.getppid() != parent:  # the parent process has ended
                    break
                lines: dict[str, set[int]] = {}
                trace = tracer(names, lines)
                sys.settrace(trace)  # trace the first run, as later ones may use cached values
                threading.settrace(trace)
                try:
                    outcome = self.run_test(self.items[test])
                finally:
                    sys.settrace(None)
                    threading.settrace(None)
                begin = time.thread_time()
                self.run_test(self.items[test])
                seconds = time.thread_time() - begin
                if outcome == "passed" and lines:
                    found[test] = {names[path]: sorted(numbers) for path, numbers in lines.items()}, seconds
            result.write_text(json.dumps(found))
        finally:
            os._exit(0)

    # Verdicts.

    def judge(self, jobs: Iterable[Job], done: Callable[[Job, Verdict], None]) -> None:
        """Run each job in a fork, `workers` of them at a time."""
        running: list[Running] = []
        waiting = iter(jobs)
        job = next(waiting, None)
        scratch = tempfile.mkdtemp()
        try:
            while job is not None or running:
                while job is not None and len(running) < self.workers:
                    tests = job.tests()
                    if tests:
                        running.append(self._begin(job, tests, scratch))
                    else:
                        done(job, Verdict(UNTOUCHED, "", 0.0))
                    job = next(waiting, None)
                for run in self._ended(running):
                    running.remove(run)
                    done(run.job, self._verdict(run, scratch))
        finally:
            for run in running:
                os.kill(run.pid, signal.SIGKILL)
                os.waitpid(run.pid, 0)
            shutil.rmtree(scratch, ignore_errors=True)

    def _begin(self, job: Job, tests: list[str], scratch: str) -> Running:
        read_end, write_end = os.pipe()  # shows the end of the child: nothing is written, and the write end closes with the process
        pid = os.fork()
        if not pid:
            os.close(read_end)
            os.set_inheritable(write_end, True)
            self._run_mutant(job, tests, scratch)
        os.close(write_end)
        return Running(job, pid, read_end, time.monotonic())

    def _ended(self, running: list[Running]) -> list[Running]:
        """Wait until at least one run has ended, and return those that have. Kill runs over their time limit."""
        ended: list[Running] = []
        while running and not ended:
            ready, _, _ = select.select([run.pipe for run in running], [], [], 1.0)
            ended = [run for run in running if run.pipe in ready]
            for run in running:
                if run not in ended and time.monotonic() - run.began > WALL_SECONDS_MAX:
                    os.kill(run.pid, signal.SIGKILL)
        return ended

    def _verdict(self, run: Running, scratch: str) -> Verdict:
        os.close(run.pipe)
        code = os.waitstatus_to_exitcode(os.waitpid(run.pid, 0)[1])
        shutil.rmtree(f"{scratch}/p{run.pid}", ignore_errors=True)
        result_file = Path(scratch, str(run.pid))
        last = result_file.read_text() if result_file.exists() else ""
        result_file.unlink(missing_ok=True)
        seconds = time.monotonic() - run.began
        if code == 0:
            return Verdict(SURVIVED, "", seconds)
        return Verdict(KILLED if code > 0 else TIMEOUT, last, seconds)  # below 0: a signal ended the run, for too much time or memory, or a crash

    def _run_mutant(self, job: Job, tests: list[str], scratch: str) -> None:
        """Run the tests on a mutant and end the process: exit code 0 if no test fails."""
        code = 1
        try:
            self.child(scratch)
            try:
                job.swap()
            except NotSwapped:
                self._load(job, tests, scratch)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
            with open(f"{scratch}/{os.getpid()}", "w") as at:
                for test in tests:
                    at.seek(0)
                    at.truncate()
                    at.write(test)
                    at.flush()
                    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS_MORE + 5 * job.touched[test].seconds)  # SIGPROF ends the process
                    if self.run_test(self.items[test]) == "failed":
                        break
                else:
                    code = 0
        finally:
            os._exit(code)

    def _load(self, job: Job, tests: list[str], scratch: str) -> None:
        """Replace this process by one that imports the mutated module."""
        listed = Path(scratch, f"p{os.getpid()}", "tests")
        listed.parent.mkdir()
        listed.write_text("\n".join(tests))
        resource.setrlimit(resource.RLIMIT_CPU, (int(WALL_SECONDS_MAX), int(WALL_SECONDS_MAX)))
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-m", "project.mutants.loading", job.mutation.key.file, job.mutation.key.id, str(listed)])


class Job:
    """One mutation, and the tests that may detect it."""

    def __init__(self, mutation: Mutation, tree: ast.Module, touched: dict[str, Coverage], tests: Callable[[Mutation], list[str]]) -> None:
        self.mutation = mutation
        self.touched = touched
        self._tree = tree
        self._tests = tests

    def tests(self) -> list[str]:
        return self._tests(self.mutation)

    def swap(self) -> None:
        file = self.mutation.key.file
        swap(self._tree, self.mutation, str(ROOT / file), module_of(file))


class Running(NamedTuple):
    job: Job
    pid: int
    pipe: int
    began: float


def module_of(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def tracer(names: dict[str, str], lines: dict[str, set[int]]) -> Callable[[FrameType, str, Any], Any]:
    """A trace function that records the executed lines of these files in `lines`."""

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        path = frame.f_code.co_filename
        if path not in names:
            return None
        executed = lines.setdefault(path, set())
        add = executed.add
        add(frame.f_lineno)

        def local(frame: FrameType, event: str, argument: Any) -> Any:
            add(frame.f_lineno)
            return local

        return local

    return trace
