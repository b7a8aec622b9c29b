"""Clients in Go: their modules hold their tests, and `go test` runs them from a copy of the module."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.suites.results import Tests, go_json
from tests.suites.suite import ALLOW_EVERYONE, Run, Suite, SuiteError, call, run_suite

SECONDS = 2400
APART_SECONDS = 60
FLAGS = "-mod=mod"  # some modules' go.mod requires a later release of Go


def fetcher(module: str, version: str, *packages: str) -> Callable[[Path], None]:
    """A function that fetches a Go module and builds its tests. `packages`: compiler flags, then the packages to build."""
    def fetch(folder: Path) -> None:
        module_info = json.loads(call(["go", "mod", "download", "-json", f"{module}@{version}"], folder))
        source = folder / "source"
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(module_info["Dir"], source)
        for path in (source, *source.rglob("*")):  # files of the module cache are read-only
            path.chmod(path.stat().st_mode | 0o200)
        call(["go", "test", "-count=1", "-run=^$", *(packages or ["./..."])], source, GOFLAGS=FLAGS)  # builds

    return fetch


def go_test(run: Run, log: str, seconds: int, arguments: list[str], environment: Mapping[str, str]) -> Tests:
    """Run `go test`; its output goes to the file `log` of the report."""
    command = ["go", "test", "-json", "-count=1", f"-timeout={seconds}s", *arguments]
    run_suite(command, run.folder / "source", run.report / log, seconds=seconds + 60, GOFLAGS=FLAGS, **environment)
    with (run.report / log).open(errors="replace") as lines:
        return go_json(lines)


def runner(packages: str, environment: Callable[[Run], Mapping[str, str]], apart: Mapping[str, str]) -> Callable[[Run], Tests]:
    """`apart`: by kind of broker, a pattern of tests that would end the whole run, as they wait for ever for an unsupported feature,
    or panic. They run last, for at most a minute.
    """

    def run(run: Run) -> Tests:
        log = run.report / "log"
        alone = apart.get(run.broker)
        runs = [("log", SECONDS, ["-run", run.only] if run.only else ["-skip", alone] if alone else [])]
        if alone and not run.only:
            runs.append(("log.apart", APART_SECONDS, ["-run", alone]))
        tests: Tests = {}
        for name, seconds, options in runs:
            tests |= go_test(run, name, seconds, [*options, packages], environment(run))
        if not tests:
            raise SuiteError(f"no test ran; see {log}")
        return tests

    return run


FRANZ_GO = "v1.22.2"
KAFKA_GO = "v0.4.51"

FRANZ_GO_SUITE = Suite(
    name="franz-go",
    client="franz-go",
    version=FRANZ_GO,
    source="its Go module",
    fetch=fetcher("github.com/twmb/franz-go", FRANZ_GO),
    # 20,000 records through each chain of groups: the suite's default of 500,000 needs more than two cores.
    run=runner(
        "./pkg/kgo",
        lambda run: {"KGO_SEEDS": f"127.0.0.1:{run.port}", "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": os.environ.get("KGO_TEST_RECORDS", "20000")},
        {"tenure": "^TestTxnEtl$"},  # transactions are not served
    ),
    settings={"group.initial.rebalance.delay.ms": "0"},
)

KAFKA_GO_SUITE = Suite(
    name="kafka-go",
    client="segmentio/kafka-go",
    version=KAFKA_GO,
    source="its Go module",
    fetch=fetcher("github.com/segmentio/kafka-go", KAFKA_GO),
    run=runner(
        ".",
        lambda run: {"KAFKA_VERSION": "4.3.1", "KAFKA_SKIP_NETTEST": "1"},
        dict.fromkeys(("tenure", "kafka"), "^TestReaderConsumerGroup$/^(consumer_group_commits_on_close|verify_offset_committed.*)$"),
    ),
    settings={"message.max.bytes": "200000000", "group.initial.rebalance.delay.ms": "0"},
    kafka_settings=ALLOW_EVERYONE,
    host="localhost",  # host and port are fixed in its tests
    port=9092,
)
