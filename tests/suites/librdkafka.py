"""librdkafka's own tests, in C and C++: the npm package of Confluent's JavaScript client bundles the whole source."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.oracle import JAVA, find_jars
from tests.suites.results import Case, Result, Tests, one_line
from tests.suites.suite import ALLOW_EVERYONE, Run, Suite, SuiteError, call, run_suite, unpack

PACKAGE, VERSION = "@confluentinc/kafka-javascript", "1.10.1"
LIBRDKAFKA = "2.15.1"
BUILD_SECONDS = 3600
SECONDS = 650  # time limit of a numbered test; most take seconds, 0113 ten minutes
AT_ONCE = 3

# The Kafka version to tell the tests: share groups are newer, and not served.
READS_AS = {"tenure": "4.0.0", "kafka": "4.3.1"}

TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-run-class.sh": "",
}

STATES = {"PASSED": Result.PASSED, "FAILED": Result.FAILED, "SKIPPED": Result.SKIPPED, "RUNNING": Result.FAILED, "DNS": Result.SKIPPED}
WHY = re.compile(r'### Test "(\S+?)(?: \(.*?\))?" failed at .*?:\s*(?:###)?\s*\n(.*)')


def fetch(folder: Path) -> None:
    for archive in folder.glob("*.tgz"):
        archive.unlink()
    call(["npm", "pack", "--silent", f"{PACKAGE}@{VERSION}"], folder)
    (archive,) = folder.glob("*.tgz")
    unpack(archive, folder / "package")
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(folder / "package" / "deps" / "librdkafka", source)
    for script in (source / "configure", source / "lds-gen.py", *(source / "mklove" / "modules").iterdir()):
        script.chmod(0o755)  # npm drops the execute permissions
    call(["./configure", "--disable-lz4-ext", "--disable-regex-ext"], source)
    call(["make", "-j2", "libs"], source, seconds=BUILD_SECONDS)
    call(["make", "-j2", "-C", "tests", "test-runner"], source, seconds=BUILD_SECONDS)


def kafka_home(folder: Path) -> Path:
    """The parts of a Kafka installation that the tests use: its tools, to create topics."""
    if isinstance(jars := find_jars(), str):
        raise SuiteError(jars)
    (folder / "bin").mkdir(parents=True)
    (folder / "libs").symlink_to(jars)
    for name, begin in TOOLS.items():
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {" ".join(JAVA)} -cp "{folder}/libs/*:$CLASSPATH" {begin} "$@"\n')
        script.chmod(0o755)
    return folder


def run(run: Run, protocol: str = "classic") -> Tests:
    """Run each test in a process of its own, as a failing test may make later ones wait for ever."""
    (run.report / "test.conf").write_text(f"metadata.broker.list=127.0.0.1:{run.port}\ntest.topic.random=true\n")
    home = kafka_home(run.report / "kafka")
    numbers = sorted({file.name[:4] for file in (run.folder / "source" / "tests").glob("0*-*.c*") if file.name.startswith(run.only)})
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda number: run_number(run, number, home, protocol), numbers))
    (run.report / "log").write_bytes(b"".join((run.report / f"log.{number}").read_bytes() for number in numbers))
    return {name: case for cases in results for name, case in cases.items()}


def run_number(run: Run, number: str, home: Path, protocol: str) -> Tests:
    """Run the tests of this number, except those that need no broker or that librdkafka itself expects to fail.

    Quick mode (`-Q`) is not used: it omits the bodies of many tests and counts them as passed.
    """
    report, log = run.report / f"report.{number}.json", run.report / f"log.{number}"
    run_suite(
        ["./test-runner", "-p1", "-L", "-K"],
        run.folder / "source" / "tests",
        log,
        seconds=SECONDS,
        LD_LIBRARY_PATH="../src:../src-cpp",
        RDKAFKA_TEST_CONF=str(run.report / "test.conf"),
        TEST_REPORT=str(report),
        TESTS=number,
        KAFKA_PATH=str(home),
        BROKERS=f"127.0.0.1:{run.port}",
        TEST_KAFKA_VERSION=READS_AS[run.broker],
        TEST_CONSUMER_GROUP_PROTOCOL=protocol,
        CI="",
    )
    reasons = {name: one_line(text) for name, text in WHY.findall(log.read_text(errors="replace"))}
    if not report.exists():
        return {number: Case(Result.FAILED, f"it crashed, or did not end within {SECONDS} s", SECONDS)}
    return {
        name: Case(STATES[test["state"]], reasons.get(name, ""), test["duration"])
        for name, test in json.loads(report.read_text())["tests"].items()
        if name.startswith(number)
    }


SUITE = Suite(
    name="librdkafka",
    client="librdkafka",
    version=LIBRDKAFKA,
    source=f"bundled in {PACKAGE} {VERSION} on npm",
    fetch=fetch,
    run=run,
    settings={"num.partitions": "4"},
    kafka_settings=ALLOW_EVERYONE,
)
# Its consumers use the consumer protocol (KIP-848).
CONSUMER_SUITE = replace(SUITE, name="librdkafka-consumer", folder_of="librdkafka", run=partial(run, protocol="consumer"))
