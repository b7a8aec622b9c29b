"""What somebody without a checkout does: in an empty folder with nothing but the wheel, as the pages say, with the machine's package index.

`pip install`, a broker, three static members of which one restarts, the history of their group; then the extra that a first `tenure analyze`
names, and the report on a directory that Apache Kafka has written, without Spark. Both together take less than three minutes; here their processor time
counts, as other tests run at the same time.
"""

from __future__ import annotations

import faulthandler
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.kafka_dump import KAFKA_WRITTEN
from tests.project.archives import wheel_of
from tests.running import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.once]

PROCESSOR_SECONDS = 80  # of each of the two
STEP_SECONDS = 240
NO_INDEX = re.compile(r"No matching distribution|ConnectionError|NewConnectionError|Could not fetch URL|ReadTimeout|No route to host")
INSTANCES = ("billing-1", "billing-2", "billing-3")
# With this test run's own Python, which has kafka-python.
MEMBER = """
import sys
from kafka import KafkaConsumer
reader = KafkaConsumer("orders", bootstrap_servers=sys.argv[1], group_id="billing", group_instance_id=sys.argv[2], auto_offset_reset="earliest")
while not reader.assignment():
    reader.poll(timeout_ms=100)
print("assigned", *sorted(partition for _, partition in reader.assignment()), flush=True)
while True:
    reader.poll(timeout_ms=1000)
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(archives: Path, tmp_path: Path) -> Run:
    """Runs a program in a folder with the wheel and an empty environment, which is first on PATH."""
    shutil.copy(wheel_of(archives), tmp_path)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TENURE_", "VIRTUAL_ENV"))}
    plain["PATH"] = f"{tmp_path}/venv/bin:{plain['PATH']}"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [shutil.which(words[0], path=plain["PATH"]) or words[0], *words[1:]]
        return subprocess.run(command, cwd=tmp_path, env=plain, capture_output=True, text=True, timeout=STEP_SECONDS, check=False)

    assert run(sys.executable, "-m", "venv", "venv").returncode == 0
    return run


@pytest.fixture(scope="session", autouse=True)
def building_without_a_limit() -> None:
    """For the fixture `archives`, which a first test here waits for."""
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def quick(archives: Path) -> Iterator[None]:
    """Also ends the time limit of pytest for a whole test: here each step has its own, and each may wait for the network."""
    faulthandler.cancel_dump_traceback_later()
    before = processor_seconds()
    yield
    assert processor_seconds() - before < PROCESSOR_SECONDS


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def install(run: Run, what: str) -> None:
    done = run("pip", "install", "--quiet", what)
    if done.returncode and NO_INDEX.search(done.stderr):
        pytest.skip("needs a package index, of which the machine's pip knows")
    assert done.returncode == 0, done.stderr


class Members:
    """Processes with a consumer each; what they print goes to files."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, instance: str) -> None:
        command = [sys.executable, "-I", "-c", MEMBER, self._bootstrap, instance]
        with (self._folder / instance).open("w") as output:
            self._processes[instance] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def assigned(self, instance: str) -> str:
        """Wait for its partitions."""
        path = self._folder / instance
        return wait_until(lambda: line if (line := path.read_text()).endswith("\n") else "", STEP_SECONDS, 0.1, path.read_text)

    def kill(self, instance: str) -> None:
        process = self._processes.pop(instance)
        process.kill()
        process.wait()

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        for instance in list(self._processes):
            self.kill(instance)


def test_the_wheel_serves_static_members_and_tells_their_history(run: Run, tmp_path: Path) -> None:
    (wheel,) = tmp_path.glob("*.whl")
    install(run, str(wheel))
    serve = [str(tmp_path / "venv/bin/tenure"), "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(serve, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True) as server:
        try:
            assert server.stdout is not None
            history = history_after_a_restart(run, server.stdout.readline().split()[-1], tmp_path)
        finally:
            server.terminate()
    assert re.search(r"billing-2 returned after .* and kept its seat: no rebalance", history), history


def history_after_a_restart(run: Run, bootstrap: str, folder: Path) -> str:
    """The history of a group, after a static member was killed and has its partition again."""
    to = ("--bootstrap", bootstrap)
    assert run("tenure", "topic", "create", "orders", "--partitions", "3", *to).returncode == 0
    with Members(bootstrap, folder) as members:
        for instance in INSTANCES:
            members.start(instance)
        before = {instance: members.assigned(instance) for instance in INSTANCES}
        assert all(line.startswith("assigned ") for line in before.values()), before
        members.kill("billing-2")
        members.start("billing-2")
        assert members.assigned("billing-2") == before["billing-2"]
        return wait_until(lambda: shown if "returned" in (shown := run("tenure", "group", "history", "billing", *to).stdout) else "", STEP_SECONDS, 0.5)


def test_the_extra_that_analyze_names_is_enough_for_a_report_on_a_kafka(run: Run, tmp_path: Path) -> None:
    (wheel,) = tmp_path.glob("*.whl")
    install(run, str(wheel))
    shutil.copytree(KAFKA_WRITTEN, tmp_path / "kafka")
    analysis = ("tenure", "analyze", "run", "--offsets", "kafka", "--out", "analysis", "--report", "report.html")
    refused = run(*analysis)
    assert refused.returncode == 76
    assert "pip install 'tenure[analyze]'" in refused.stderr
    install(run, f"{wheel}[analyze]")
    done = run(*analysis)
    assert done.returncode == 0, done.stderr
    assert "<html" in (tmp_path / "report.html").read_text()
    assert run("python", "-c", "import pyspark").returncode == 1
