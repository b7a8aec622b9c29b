"""The pytest plugin in a project of its own: what its fixtures give, and what a failed test's report tells."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.testing import Process
from tests.running import ROOT, environment

pytestmark = pytest.mark.once  # a pytest of its own and a broker of its own for each

PLUGIN = ROOT / "pytest-tenure"
SOCKET = '''
import pytest
from tests.testing.groups import Static
from tests.running import Client
from protocol.messages.api_versions import ApiVersionsRequest

def ask(kafka, client_id="app"):
    client = Client(int(kafka.bootstrap.rpartition(":")[2]), client_id=client_id)
    try:
        return client.ask(ApiVersionsRequest("t", "1"), 3).error_code
    finally:
        client.socket.close()
'''


class Project:
    """A folder with tests, run by a pytest of its own, with the plugin loaded by its name as an entry point would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pytest.ini").write_text("[pytest]\naddopts = -p pytest_tenure.plugin --strict-markers -p no:cacheprovider\n")

    def write(self, text: str, name: str = "test_it.py") -> None:
        (self.folder / name).write_text(SOCKET + text)

    def run(self, *arguments: str, seconds: float = 180, **more: str) -> subprocess.CompletedProcess[str]:
        inherited = environment()
        inherited["PYTHONPATH"] = os.pathsep.join([inherited["PYTHONPATH"], str(PLUGIN), str(ROOT)])
        inherited.pop("PYTHONWARNINGS")
        command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:randomly", f"--rootdir={self.folder}", *arguments]
        return subprocess.run(command, cwd=self.folder, env=inherited | more, capture_output=True, text=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_each_test_has_a_cluster_of_its_own(project: Project) -> None:
    project.write('''
seen = set()

@pytest.mark.kafka(topics={"orders": 6})
class TestMarked:
    def test_topics(self, kafka):
        assert kafka.topics() == {"orders": 6}
        seen.add(kafka.bootstrap)

    @pytest.mark.kafka(topics={"refunds": 2}, settings={"group.max.size": 1})
    def test_more(self, kafka):
        assert kafka.topics() == {"orders": 6, "refunds": 2}
        first, second = Static(kafka, "g", "1"), Static(kafka, "g", "2")
        assert (first.join(), second.join()) == (0, 81)
        first.close(), second.close()
        seen.add(kafka.bootstrap)

def test_empty(kafka):
    assert kafka.topics() == {}
    assert len(seen) == 2

def test_shared(kafka_session, kafka_names, kafka_module):
    name = kafka_names("orders")
    kafka_session.topic(name)
    assert name in kafka_session.topics()
    assert kafka_module.bootstrap != kafka_session.bootstrap

def test_purged(kafka_session):
    assert kafka_session.topics() == {}

def test_factory(tenure_factory):
    assert tenure_factory(topics={"a": 1}, num_partitions=3).topics() == {"a": 1}
''')
    done = project.run()
    assert "6 passed" in done.stdout, done.stdout + done.stderr


def test_a_failed_test_tells_the_groups_story(project: Project) -> None:
    project.write('''
def test_it(kafka):
    member = Static(kafka, "billing", "billing-1")
    assert member.join() == 0
    kafka.group("billing").member(instance="billing-1").expire()
    try:
        with kafka.no_rebalance("billing"):
            assert member.heartbeat() == 25
            assert Static(kafka, "billing", "billing-2").join() == 0
    finally:
        member.close()
''')
    done = project.run()
    assert "1 failed" in done.stdout, done.stdout + done.stderr
    told = done.stdout[done.stdout.index("- tenure -") :]
    for words in ("group billing:", "billing-1 joined the empty group", "sent no heartbeat", "billing-2 joined the empty group", "the last", "Heartbeat v4 of client-billing-1: UNKNOWN_MEMBER_ID"):
        assert words in told, done.stdout
    assert re.search(r"0 rebalances were expected, and 1 happened", done.stdout)


def test_a_fault_that_never_fired_fails_its_test(project: Project) -> None:
    project.write('''
def test_silent(kafka):
    kafka.fault(api="Heartbeat", client_id="other", error="NOT_COORDINATOR")
    assert ask(kafka) == 0

def test_fired(kafka):
    kafka.fault(api="ApiVersions", error="NOT_COORDINATOR")
    assert ask(kafka) == 16

def test_meant(kafka):
    kafka.fault(api="Heartbeat", drop=True, may_not_fire=True)
''')
    done = project.run()
    assert "3 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "fault 1 never fired, and no request came near it" in done.stdout


def test_left_over_connections(project: Project) -> None:
    project.write('''
def test_leaks(kafka):
    kafka.leaked = Static(kafka, "g", "leaky")
    assert kafka.leaked.join() == 0
''')
    told = "test_it.py::test_leaks: 1 connection of client client-leaky is still open"
    for workers in ([], ["-n", "1"]):
        done = project.run(*workers)
        assert "1 passed" in done.stdout
        assert told in done.stdout
    done = project.run("--tenure-strict")
    assert "1 passed, 1 error" in done.stdout
    assert told not in done.stdout
    assert "client-leaky" in done.stdout


def test_async_verbs(project: Project) -> None:
    project.write('''
import asyncio

def test_it(kafka_async):
    async def run():
        await kafka_async.topic("orders", 3)
        assert await kafka_async.topics() == {"orders": 3}
        async with kafka_async.fault(api="ApiVersions", error="NOT_COORDINATOR"):
            assert await asyncio.to_thread(ask, kafka_async) == 16
        async with kafka_async.no_rebalance("g"):
            pass
    asyncio.run(run())
''')
    done = project.run()
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("plugins", [["-n", "2"], ["-p", "randomly"]], ids=["xdist", "random order"])
def test_beside_other_plugins(project: Project, plugins: list[str]) -> None:
    project.write('''
@pytest.mark.parametrize("number", range(6))
def test_it(kafka, number):
    kafka.topic("orders", number + 1)
    assert kafka.topics() == {"orders": number + 1}
    assert ask(kafka) == 0
''')
    arguments = plugins if plugins[0] == "-n" else []
    done = project.run(*arguments)
    assert "6 passed" in done.stdout, done.stdout + done.stderr


def test_workers_may_share_a_broker(project: Project) -> None:
    project.write('''
@pytest.mark.parametrize("number", range(4))
def test_it(kafka, tenure, number, worker_id):
    assert tenure.process is None
    assert ask(kafka) == 0
    print(f"broker {tenure.control.url} of {worker_id}")
''')
    done = project.run("-n", "2", "--tenure-shared", "-rP")
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("broker ")]
    assert (len({line[1] for line in lines}), len({line[3] for line in lines})) == (1, 2)


def test_a_version_may_be_asked_for(project: Project, process: Process) -> None:
    project.write("def test_it(kafka): assert ask(kafka) == 0\n")
    version = process.control.get("/v1")["version"]
    for wanted in (version, version.rpartition(".")[0]):
        assert "1 passed" in project.run("--tenure", process.control.address, "--tenure-version", wanted).stdout
    other = project.run("--tenure", process.control.address, "--tenure-version", version[:-1])
    assert other.returncode == 4
    assert f"the broker has version {version}" in other.stdout + other.stderr


def test_an_image_is_started_in_this_machine_s_network(project: Project, tmp_path: Path) -> None:
    """A `docker` that runs the installed broker with the arguments of the image."""
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f'#!/bin/sh\ntest "$1 $2 $3 $4 $5 $6" = "run --rm --interactive --network host tenure:1" || exit 3\nshift 6\nexec {sys.executable} -P -m tenure "$@"\n')
    docker.chmod(0o755)
    project.write("def test_it(kafka): assert ask(kafka) == 0\n")
    done = project.run("--tenure-image", "tenure:1", PATH=f"{docker.parent}{os.pathsep}{os.environ['PATH']}")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    missing = project.run("--tenure-image", "tenure:1", PATH="/nowhere")
    assert missing.returncode == 4
    assert "the image tenure:1 needs Docker, and no `docker` is on PATH" in missing.stdout + missing.stderr


def test_histories_of_a_shared_cluster_begin_with_each_test(project: Project) -> None:
    project.write('''
def test_one(kafka_session):
    kafka_session.member = Static(kafka_session, "billing", "billing-1")
    assert kafka_session.member.join() == 0
    assert len(kafka_session.group("billing").rebalances) == 1

def test_other(kafka_session):
    assert kafka_session.group("billing").rebalances == []
    assert kafka_session.member.join() == 0
    assert kafka_session.group("billing").last_rebalance.cause == "leader-rejoined"
    kafka_session.member.close()
''')
    done = project.run()
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_broker_that_runs_already(project: Project, process: Process) -> None:
    project.write('''
def test_it(kafka, tenure):
    assert tenure.process is None
    assert ask(kafka) == 0
''')
    url = process.control.address
    assert "1 passed" in project.run("--tenure", url).stdout
    assert "1 passed" in project.run(TENURE_CONTROL=url).stdout
    wrong = project.run("--tenure", process.control.url)
    assert wrong.returncode == 4
    assert "the token is missing" in wrong.stdout + wrong.stderr


def test_without_a_broker_one_line_says_how_to_install_one(project: Project, tmp_path: Path) -> None:
    """The plugin's own copy of the library, in an environment that has no `tenure`."""
    alone = tmp_path / "alone"
    alone.mkdir()
    package = alone / "pytest_tenure"
    package.mkdir()
    for name in ("__init__.py", "plugin.py"):
        (package / name).write_text((PLUGIN / "pytest_tenure" / name).read_text())
    bundled = package / "_testing"
    bundled.mkdir()
    for source in (ROOT / "tenure" / "testing").glob("*.py"):
        (bundled / source.name).write_text(source.read_text())
    (alone / "tenure.py").write_text("raise ImportError('not here')\n")
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_it.py").write_text("def test_it(kafka): ...\n")
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "pytest_tenure.plugin", "-p", "no:cacheprovider", f"--rootdir={tests}", str(tests)]
    environ = {"PATH": "/nowhere", "PYTHONPATH": str(alone), "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tests, env=environ, capture_output=True, text=True, timeout=180, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "no broker is installed: `pip install tenure` into this environment, or `pipx install tenure` beside it" in done.stdout + done.stderr


def test_a_wrong_marker_is_named(project: Project) -> None:
    project.write('''
@pytest.mark.kafka(topic={"orders": 6})
def test_it(kafka): ...

@pytest.mark.kafka(settings={"group.max.sise": 6})
def test_setting(kafka): ...
''')
    done = project.run()
    assert "2 errors" in done.stdout, done.stdout + done.stderr
    assert "takes topics= and settings=, not topic" in done.stdout
    assert "group.max.size" in done.stdout


def test_loading_it_costs_nothing(project: Project) -> None:
    code = (
        "import sys, time, pytest; begin = time.process_time(); import pytest_tenure.plugin; "
        "sys.exit(time.process_time() - begin > 0.03 or any(name.startswith('tenure') for name in sys.modules))"
    )
    inherited = environment()
    inherited["PYTHONPATH"] = os.pathsep.join([inherited["PYTHONPATH"], str(PLUGIN)])
    assert subprocess.run([sys.executable, "-P", "-c", code], env=inherited, check=False, timeout=60).returncode == 0


def test_killed_runs_leave_no_process_behind(tmp_path: Path) -> None:
    """kill -9 of the process that started a broker ends the broker."""
    import signal
    import time

    script = tmp_path / "run.py"
    script.write_text("from tenure.testing import Broker\nimport sys, time\nkafka = Broker()\nprint(kafka.process.pid, flush=True)\ntime.sleep(600)\n")
    children = [
        subprocess.Popen([sys.executable, "-P", str(script)], env=environment(), stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL) for _ in range(3)
    ]
    brokers = []
    for child in children:
        assert child.stdout is not None
        brokers.append(int(child.stdout.readline()))
        child.send_signal(signal.SIGKILL)
        child.wait(10)
        child.stdout.close()
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in brokers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
