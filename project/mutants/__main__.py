"""`make mutants` judges all mutations; with ARGS="coordinator storage/log.py" or "--sample 150" fewer. "--show ID" prints one."""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from project.mutants.mutations import Mutation, mutations_of
from project.mutants.report import Report
from project.mutants.results import KEPT, Results, Sources, digest, write_atomically
from project.mutants.running import OPTIONS, ROOT, TEST_SECONDS_MAX, Coverage, Job, Runner, Verdict, use_hypothesis

# Tests must kill at least KILLED_PERCENT_MIN of the mutations of JUDGED; some 4 % change nothing that a test could see. Those of FAST_PATHS are counted, without a minimum.
JUDGED = (
    "coordinator",
    "storage",
    "broker/runtime/turn.py",
    "broker/runtime/contain.py",
    "broker/groups/journal.py",
    "broker/groups/group_journal.py",
    "broker/groups/shards.py",
    "broker/cluster",
    "broker/stores",
    "broker/supervisor.py",
)
# Left out of folders: the tests of these start servers of NATS.
NOT_JUDGED = "broker/stores/jetstream/"
FAST_PATHS = (
    "coordinator/repeats.py",
    "broker/fastpath/commit.py",
    "broker/fastpath/offset_fetch.py",
    "broker/fastpath/heartbeat.py",
    "broker/fastpath/rejoin.py",
    "broker/fastpath/produce.py",
    "broker/groups/held_replies.py",
)
KILLED_PERCENT_MIN = 86
TEST_FOLDERS = ("tests/coordinator", "tests/storage", "tests/broker", "tests/stores")
# A test file with one of these imports is left out: it starts processes, whose lines are not traced.
STARTS_PROCESSES = ("from tests.running import", "from tests.support.restartable import", "from tests.soak", "from tests.kafka_process import")
# The time budget for the tests of one mutation, the most promising first.
SECONDS_OF_TESTS = 6.0

Trees = dict[str, tuple[ast.Module, list[Mutation]]]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("paths", nargs="*", help="files and folders (all that are judged, and the fast paths)")
    parser.add_argument("--sample", type=int, metavar="N", help="only N random mutations of the judged files")
    parser.add_argument("--seed", help="the random seed of the sample (the commit)")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
    parser.add_argument("--at-least", type=float, default=KILLED_PERCENT_MIN, metavar="PERCENT", help="the minimum share of killed mutations (default: %(default)s)")
    parser.add_argument("--fresh", action="store_true", help="ignore cached verdicts")
    parser.add_argument("--list", action="store_true", help="only list the mutations")
    parser.add_argument("--show", metavar="ID", help="only show one mutation")
    options = parser.parse_args(arguments)
    files = files_of(options.paths or [*JUDGED, *FAST_PATHS])
    trees = {file: mutations_of(file, (ROOT / file).read_text()) for file in files}
    mutations = [mutation for _, found in trees.values() for mutation in found]
    if options.list or options.show:
        return show(trees, mutations, options.show)
    if compiled := [file for file in files if list((ROOT / file).parent.glob(f"{Path(file).stem}.*.so"))]:
        print(f"mutants: {compiled[0]} is compiled: `make uncompile` first", file=sys.stderr)
        return 2
    if options.sample:
        judged = [mutation for mutation in mutations if mutation.key.file not in FAST_PATHS]
        mutations = Random(options.seed or commit()).sample(judged, min(options.sample, len(judged)))
    report = Report()
    work = Work(trees, mutations, report, Results(fresh=options.fresh))
    use_hypothesis()
    code = pytest.main([*OPTIONS, *tests_to_collect()], plugins=[Runner(work, options.workers)])
    if not work.done:
        print(f"mutants: pytest ended with {code!r}", file=sys.stderr)
        return 2
    return report.end(options.at_least / 100, FAST_PATHS)


def files_of(paths: list[str]) -> list[str]:
    files: dict[str, None] = {}
    for path in paths:
        full_path = ROOT / path
        sources = sorted(full_path.rglob("*.py")) if full_path.is_dir() else [full_path]
        files |= dict.fromkeys([str(source.relative_to(ROOT)) for source in sources])
    return [file for file in files if file in paths or not file.startswith(NOT_JUDGED)]


def commit() -> str:
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "0"


def show(trees: Trees, mutations: list[Mutation], id: str | None) -> int:
    for mutation in mutations:
        key = mutation.key
        if id is None or key.id == id:
            print(f"{key.id} {key.file}:{mutation.number} {key.function}: {key.line}    {key.change}")
        if key.id == id:
            tree, _ = trees[key.file]
            before = ast.unparse(tree)
            mutation.apply()
            print(*difflib.unified_diff(before.splitlines(), ast.unparse(tree).splitlines(), lineterm="", n=4), sep="\n")
            mutation.undo()
    return 0


def tests_to_collect() -> list[str]:
    tests = [str(path.relative_to(ROOT)) for folder in TEST_FOLDERS for path in sorted((ROOT / folder).rglob("test_*.py"))]
    return [test for test in tests if not any(words in (ROOT / test).read_text() for words in STARTS_PROCESSES)]


class Work:
    """Runs in pytest in place of the tests: judges each mutation by the tests that may detect it."""

    def __init__(self, trees: Trees, mutations: list[Mutation], report: Report, results: Results) -> None:
        self.trees = trees
        self.mutations = mutations
        self.report = report
        self.results = results
        self.done = False
        self.touched: dict[str, Coverage] = {}
        self.by_line: dict[tuple[str, int], list[str]] = {}
        self.by_file: dict[str, list[str]] = {}
        self.killers: dict[tuple[str, int], list[str]] = {}  # function -> tests that killed its mutations, the newest first

    def __call__(self, runner: Runner) -> None:
        began = time.monotonic()
        self.touched = self._touched(runner)
        for test, touched in self.touched.items():
            if touched.seconds > TEST_SECONDS_MAX:
                continue
            for file, lines in touched.lines.items():
                self.by_file.setdefault(file, []).append(test)
                for line in lines:
                    self.by_line.setdefault((file, line), []).append(test)
        print(f"{len(self.touched)} tests touch the code ({time.monotonic() - began:.0f} s)", flush=True)
        runner.judge(self._jobs(), self._judged)
        self.results.save()
        self.done = True

    def _touched(self, runner: Runner) -> dict[str, Coverage]:
        """The lines that each test touches: cached for unchanged test files, unless the code under test has changed."""
        files = list(dict.fromkeys([*files_of([*JUDGED, *FAST_PATHS]), *self.trees]))
        sources = Sources()
        folders = ("tests", "coordinator", "storage", "broker", "protocol")
        other_files = [str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py") if not path.name.startswith("test_")]
        state = digest(sources.combined_digest(other_files), *files)
        cache_file = KEPT / "touched.json"
        known: dict[str, Any] = json.loads(cache_file.read_text()) if cache_file.exists() else {}
        by_file: dict[str, list[str]] = {}
        for test in runner.items:
            by_file.setdefault(test.partition("::")[0], []).append(test)
        states = {file: f"{state} {sources.digest_of(file)}" for file in by_file}
        new = [file for file in by_file if file not in known or known[file][0] != states[file]]
        traced = runner.trace_coverage([test for file in new for test in by_file[file]], files)
        for file in new:
            known[file] = [states[file], {test: traced[test] for test in by_file[file] if test in traced}]
        write_atomically(cache_file, json.dumps(known))
        return {test: Coverage(*coverage) for file in by_file for test, coverage in known[file][1].items()}

    def _jobs(self) -> Iterator[Job]:
        for mutation in self.mutations:
            known = self.results.known(mutation, self._tests(mutation))
            if known is not None:
                self.report.add(mutation, known)
            else:
                yield Job(mutation, self.trees[mutation.key.file][0], self.touched, self._tests)

    def _judged(self, job: Job, verdict: Verdict) -> None:
        mutation = job.mutation
        tests = self._tests(mutation)
        self.results.keep(mutation, tests, verdict)
        self.report.add(mutation, verdict)
        if verdict.by:
            killers = self.killers.setdefault(position_of(mutation), [])
            if verdict.by in killers:
                killers.remove(verdict.by)
            killers.insert(0, verdict.by)

    def _tests(self, mutation: Mutation) -> list[str]:
        """The tests that touch the mutated lines, within the time budget, the most promising first.

        For code that runs at import, these are all tests that touch the file or its folder. The most promising are tests that killed other
        mutations of the function, then those named like the file, then those of its folder.
        """
        file = mutation.key.file
        folder, stem = file.rpartition("/")[0], Path(file).stem
        budget = SECONDS_OF_TESTS
        if mutation.outer is None:  # code that runs at import: any test that touches the file, or its folder, may detect the mutation
            same_folder = [test for path, tests in self.by_file.items() if path.startswith(f"{folder}/") for test in tests]
            candidates = dict.fromkeys([*self.by_file.get(file, ()), *same_folder])
            budget *= 4
        else:
            first, last = mutation.lines
            candidates = dict.fromkeys([test for line in range(first, last + 1) for test in self.by_line.get((file, line), ())])
            if not candidates and mutation.parent is mutation.outer.args:  # the default of a parameter: take the tests that run the body
                body = range(mutation.outer.body[0].lineno, (mutation.outer.end_lineno or 0) + 1)
                candidates = dict.fromkeys([test for line in body for test in self.by_line.get((file, line), ())])
        killers = {test: number for number, test in enumerate(self.killers.get(position_of(mutation), ())[:20])}

        turns: dict[str, int] = {}  # by these, tests of different files alternate, since tests of one file are similar
        turn: dict[str, int] = {}
        for test in sorted(candidates, key=lambda test: digest(test)):
            name = test.partition("::")[0]
            turn[test] = turns[name] = turns.get(name, 0) + 1

        def distance(test: str) -> tuple[int, bool, bool, int]:
            return killers.get(test, 99), stem not in test, f"tests/{folder}/" not in test, turn[test]

        ordered = sorted(candidates, key=distance)
        seconds = 0.0
        for number, test in enumerate(ordered):
            seconds += self.touched[test].seconds
            if seconds > budget:
                return ordered[:number]
        return ordered


def position_of(mutation: Mutation) -> tuple[str, int]:
    return mutation.key.file, mutation.outer.lineno if mutation.outer is not None else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
