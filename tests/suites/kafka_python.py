"""kafka-python's integration tests, from its source package, run by a Python environment of their own."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from tests.suites.results import Tests, junit
from tests.suites.suite import ALLOW_EVERYONE, ROOT, Run, Suite, SuiteError, call, run_suite, unpack

VERSION = re.search(r"^kafka-python==(\S+)", (ROOT / "requirements" / "development.txt").read_text(), re.MULTILINE)
PACKAGES = ("pytest==9.2.0", "pytest-mock==3.17.0", "pytest-timeout==2.4.0", "py==1.11.0")
SECONDS = 1800  # a run without failures takes a minute, but a failing test may wait five minutes

# The Kafka version that the client infers from a broker's APIs, as its test_kafka_version_infer expects it.
READS_AS = {"tenure": "4.0", "kafka": "4.3"}


def fetch(folder: Path) -> None:
    call([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "kafka-python", f"kafka-python=={SUITE.version}"], folder)
    archives = list(folder.glob("kafka_python-*.tar.gz"))
    if len(archives) != 1:
        raise SuiteError(f"{folder} has {len(archives)} source packages of kafka-python")
    unpack(archives[0], folder / "source")
    # The tests import each other from a package `test`. The source package lacks its `__init__.py`, and one module that they import.
    for extra_test in (Path(__file__).parent / "beside" / "kafka_python").glob("*.py"):
        if (folder / "source" / "test" / extra_test.name).exists():
            raise SuiteError(f"the source package has {extra_test.name} itself now: remove our copy of it")
        shutil.copy(extra_test, folder / "source" / "test")
    shutil.rmtree(folder / "source" / "kafka")  # so that tests import the installed client, not this copy
    call([sys.executable, "-m", "venv", "environment"], folder)
    call(["environment/bin/pip", "install", "-q", f"{archives[0]}[lz4,snappy,zstd]", *PACKAGES], folder)


def run(run: Run) -> Tests:
    report = run.report / "junit.xml"
    command: list[str | Path] = [run.folder / "environment/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["-o", "log_level=INFO", f"--junitxml={report}", "test/integration", *(["-k", run.only] if run.only else [])]
    run_suite(
        command,
        run.folder / "source",
        run.report / "log",
        seconds=SECONDS,
        KAFKA_URI=f"PLAINTEXT://127.0.0.1:{run.port}",
        KAFKA_VERSION=READS_AS[run.broker],
        KAFKA_ROOT=str(run.folder),  # must be set, but is not used if KAFKA_URI is
        PYTHONPATH="",
    )
    if not report.exists():
        raise SuiteError(f"the suite wrote no report; see {run.report / 'log'}")
    return junit(report)


SUITE = Suite(
    name="kafka-python",
    client="kafka-python",
    version=VERSION[1] if VERSION else "",
    source="its source package on PyPI",
    fetch=fetch,
    run=run,
    # Settings of the fixtures' own servers: the first broker is 0, topics have four partitions, sessions may be a second.
    settings={"node.id": "0", "num.partitions": "4", "group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"},
    kafka_settings=ALLOW_EVERYONE,
)
