"""librdkafka's own tests, in C and C++: the npm package of Confluent's JavaScript client bundles the whole source."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from tests.suites.results import Result, Test, Tests, first_line
from tests.suites.suite import Run, Suite, SuiteError, call, unpack, watch

PACKAGE, VERSION = "@confluentinc/kafka-javascript", "1.10.1"
LIBRDKAFKA = "2.15.1"
BUILD_SECONDS = 3600
SECONDS = 5400

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
        script.chmod(0o755)  # npm forgets who may be executed
    call(["./configure", "--disable-lz4-ext", "--disable-regex-ext"], source)
    call(["make", "-j2", "libs"], source, seconds=BUILD_SECONDS)
    call(["make", "-j2", "-C", "tests", "test-runner"], source, seconds=BUILD_SECONDS)


def run(run: Run) -> Tests:
    report, log = run.report / "report.json", run.report / "log"
    settings = run.report / "test.conf"
    settings.write_text(f"metadata.broker.list=127.0.0.1:{run.port}\ntest.topic.random=true\n")
    # Quick, without those that need no broker and those that librdkafka itself expects to fail.
    command = ["./test-runner", "-p3", "-Q", "-L", "-K"]
    watch(
        command,
        run.folder / "source" / "tests",
        log,
        seconds=SECONDS,
        RDKAFKA_TEST_CONF=str(settings),
        TEST_REPORT=str(report),
        TEST_KAFKA_VERSION="4.3.1",
        CI="",
        **({"TESTS": run.only} if run.only else {}),
    )
    if not report.exists():
        raise SuiteError(f"the suite wrote no report; see {log}")
    why = {name: first_line(text) for name, text in WHY.findall(log.read_text(errors="replace"))}
    found = json.loads(report.read_text())["tests"]
    return {
        name: Test(STATES[test["state"]], why.get(name, test.get("extra", "")), test["duration"])
        for name, test in found.items()
        if name != "<MAIN>"
    }


SUITE = Suite(
    name="librdkafka",
    client="librdkafka",
    version=LIBRDKAFKA,
    source=f"bundled in {PACKAGE} {VERSION} on npm",
    fetch=fetch,
    run=run,
    settings={"num.partitions": "4"},
)
