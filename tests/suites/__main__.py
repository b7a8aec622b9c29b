"""`python -m tests.suites NAME`: fetches a client's test suite, runs it against a broker, and compares it with the known failures."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from importlib import import_module
from pathlib import Path

from broker.runtime.build import compiled
from tests.suites import brokers
from tests.suites.known import judge, known
from tests.suites.results import Result, Tests, count
from tests.suites.suite import CACHE, Run, Suite, SuiteError, fetched

SUITES = {
    "franz-go": "go_clients:FRANZ_GO_SUITE",
    "kafka-go": "go_clients:KAFKA_GO_SUITE",
    "kafka-python": "kafka_python:SUITE",
    "librdkafka": "librdkafka:SUITE",
    "librdkafka-consumer": "librdkafka:CONSUMER_SUITE",
    "rust-rdkafka": "rust_rdkafka:SUITE",
    "sarama": "sarama:SUITE",
}


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    module, _, name = SUITES[options.name].partition(":")
    suite: Suite = getattr(import_module(f"tests.suites.{module}"), name)
    count = max(options.nodes, suite.nodes)
    if options.kafka and count > 1:
        parser().error(f"{options.name} needs {count} brokers")
    broker = "kafka" if options.kafka else "tenure"
    broker_kind = "tenure-compiled" if not options.kafka and compiled() else broker
    if count > 1:
        broker_kind += f"-{count}-nodes"
    report = CACHE / "reports" / f"{suite.name}-{broker_kind}"
    try:
        folder = fetched(suite)
        shutil.rmtree(report, ignore_errors=True)
        report.mkdir(parents=True)
        begin = time.monotonic()
        with brokers.started(suite, broker, report, count) as port:
            tests = suite.run(Run(folder, port, broker, options.only, report))
    except SuiteError as error:
        print(f"{options.name}: {error}", file=sys.stderr)
        return 1
    wrong = judge(tests, known(suite.name, kafka=options.kafka, nodes=count > 1), complete_run=not options.only)
    show(suite, broker_kind, tests, wrong, report, time.monotonic() - begin, every=options.verbose)
    return 1 if wrong else 0


def parser() -> argparse.ArgumentParser:
    suite_parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    suite_parser.add_argument("name", choices=sorted(SUITES))
    suite_parser.add_argument("--kafka", action="store_true", help="against Apache Kafka instead of this broker (needs Java)")
    suite_parser.add_argument("--nodes", type=int, default=1, metavar="N", help="against so many nodes instead of one broker (docs/nodes.md)")
    suite_parser.add_argument("--only", default="", metavar="WORDS", help="a part of the suite, in the words of its own runner")
    suite_parser.add_argument("--verbose", action="store_true", help="every failure and skip, also those that are known")
    return suite_parser


def show(suite: Suite, broker: str, tests: Tests, wrong: list[str], report: Path, seconds: float, *, every: bool) -> None:
    if every:
        for name, test in sorted(tests.items()):
            if test.result is not Result.PASSED:
                print(f"{test.result}  {name}  {test.text}")
    for line in wrong:
        print(line, file=sys.stderr)
    counts = ", ".join(f"{number} {result}" for result, number in count(tests).items())
    verdict = "NOT as known" if wrong else "as known"
    print(f"{suite.client} {suite.version} against {broker}: {counts}, in {seconds:.0f} s: {verdict}; log: {report / 'log'}")


if __name__ == "__main__":
    sys.exit(main())
