"""The pytest plugin in a project of its own: what its fixtures give, and what a failed test's report tells."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.testing import Process
from tests.running import ROOT, environment, wait_until
from tests.testing.project import PLUGIN, Done, Project

pytestmark = pytest.mark.once  # a pytest of its own

# The tests of a project, by file. They are run once; each test below looks at one file.
TESTS = {
    "test_clusters": '''
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
''',
    "test_histories": '''
def test_one(kafka_session):
    kafka_session.member = Static(kafka_session, "billing", "billing-1")
    assert kafka_session.member.join() == 0
    assert len(kafka_session.group("billing").rebalances) == 1

def test_other(kafka_session):
    assert kafka_session.group("billing").rebalances == []
    assert kafka_session.member.join() == 0
    assert kafka_session.group("billing").last_rebalance.cause == "leader-rejoined"
    kafka_session.member.close()
''',
    "test_story": '''
def test_told(kafka):
    member = Static(kafka, "billing", "billing-1")
    assert member.join() == 0
    kafka.group("billing").member(instance="billing-1").expire()
    try:
        with kafka.no_rebalance("billing"):
            assert member.heartbeat() == 25
            assert Static(kafka, "billing", "billing-2").join() == 0
    finally:
        member.close()
''',
    "test_faults": '''
def test_silent(kafka):
    kafka.fault(api="Heartbeat", client_id="other", error="NOT_COORDINATOR")
    assert ask(kafka) == 0

def test_fired(kafka):
    kafka.fault(api="ApiVersions", error="NOT_COORDINATOR")
    assert ask(kafka) == 16

def test_meant(kafka):
    kafka.fault(api="Heartbeat", drop=True, may_not_fire=True)
''',
    "test_async": '''
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
''',
    "test_wrong": '''
@pytest.mark.kafka(topic={"orders": 6})
def test_argument(kafka): ...

@pytest.mark.kafka(settings={"group.max.sise": 6})
def test_setting(kafka): ...
''',
}
LEAKING = '''
def test_leaks(kafka):
    kafka.leaked = Static(kafka, "g", "leaky")
    assert kafka.leaked.join() == 0
'''
LEAK_TOLD = "test_leaking.py::test_leaks: 1 connection of client client-leaky is still open"
NUMBERED = '''
@pytest.mark.parametrize("number", range(6))
def test_it(kafka, tenure, number):
    kafka.topic("orders", number + 1)
    assert kafka.topics() == {"orders": number + 1}
    assert ask(kafka) == 0
    print(f"broker {tenure.control.url} {tenure.process is None} of {__import__('os').environ.get('PYTEST_XDIST_WORKER')}")
'''


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    project = Project(tmp_path_factory.mktemp("project"))
    for name, text in TESTS.items():
        project.write(text, name)
    return project.run()


def test_each_test_has_a_cluster_of_its_own(done: Done) -> None:
    done.all_passed("test_clusters", 6)


def test_histories_of_a_shared_cluster_begin_with_each_test(done: Done) -> None:
    done.all_passed("test_histories", 2)


def test_async_verbs(done: Done) -> None:
    done.all_passed("test_async", 1)


def test_a_failed_test_tells_the_groups_story(done: Done) -> None:
    report = done.report_of("test_told")
    assert "0 rebalances were expected, and 1 happened" in report
    told = report[report.index("- tenure -") :]
    for words in ("group billing:", "billing-1 joined the empty group", "sent no heartbeat", "billing-2 joined the empty group", "the last", "Heartbeat v4 of client-billing-1: UNKNOWN_MEMBER_ID"):
        assert words in told


def test_a_fault_that_never_fired_fails_its_test(done: Done) -> None:
    assert done.outcomes("test_faults") == {"test_silent": "ERROR", "test_fired": "PASSED", "test_meant": "PASSED"}
    assert "fault 1 never fired, and no request came near it" in done.report_of("test_silent")


def test_a_wrong_marker_is_named(done: Done) -> None:
    assert done.outcomes("test_wrong") == {"test_argument": "ERROR", "test_setting": "ERROR"}
    assert "takes topics= and settings=, not topic" in done.report_of("test_argument")
    assert "group.max.size" in done.report_of("test_setting")


def brokers(done: Done) -> list[tuple[str, str, str]]:
    """Of each numbered test: its broker, whether that is another's, its worker."""
    return re.findall(r"^broker (\S+) (True|False) of (\S+)$", done.text, re.MULTILINE)


def test_beside_other_plugins(project: Project) -> None:
    """Two workers of pytest-xdist, and pytest-randomly: each worker has a broker, and connections left open are listed."""
    project.write(NUMBERED)
    project.write(LEAKING, "test_leaking")
    done = project.run("-n", "2", "--randomly-seed", "7", "-rP", others=True)
    assert "7 passed" in done.text, done.text
    assert LEAK_TOLD in done.text
    seen = brokers(done)
    assert {shared for _, shared, _ in seen} == {"False"}
    assert len({broker for broker, _, _ in seen}) == len({worker for _, _, worker in seen})


def test_workers_may_share_a_broker(project: Project) -> None:
    project.write(NUMBERED)
    done = project.run("-p", "xdist", "-n", "2", "--tenure-shared", "-rP")
    assert "6 passed" in done.text, done.text
    assert [len(set(column)) for column in zip(*brokers(done), strict=True)] == [1, 1, 2]
    assert brokers(done)[0][1] == "True"


def test_connections_left_open_are_a_failure_where_that_is_asked_for(project: Project) -> None:
    project.write(LEAKING, "test_leaking")
    done = project.run("--tenure-strict")
    assert "1 passed, 1 error" in done.text, done.text
    assert LEAK_TOLD not in done.text
    assert "client-leaky" in done.report_of("test_leaks")


def test_a_broker_that_runs_already_and_has_a_version(project: Project, process: Process) -> None:
    project.write(NUMBERED)
    project.write(LEAKING, "test_leaking")
    url, version = process.control.address, process.control.get("/v1")["version"]
    named = project.run("--tenure", url, "--tenure-version", version, "-rP")
    for done in (named, project.run("--tenure-version", version.rpartition(".")[0], "-rP", TENURE_CONTROL=url)):
        assert "7 passed" in done.text, done.text
        assert {broker[:2] for broker in brokers(done)} == {(process.control.url, "True")}
        assert LEAK_TOLD in done.text
    for arguments, told in (
        (("--tenure", url, "--tenure-version", version[:-1]), f"the broker has version {version}"),
        (("--tenure", process.control.url), "the token is missing"),
    ):
        done = project.run(*arguments)
        assert done.code == 4
        assert told in done.text


def test_an_image_is_started_in_this_machine_s_network(project: Project, tmp_path: Path) -> None:
    """A `docker` that runs the installed broker with the arguments of the image."""
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f'#!/bin/sh\ntest "$1 $2 $3 $4 $5 $6" = "run --rm --interactive --network host tenure:1" || exit 3\nshift 6\nexec {sys.executable} -P -m tenure "$@"\n')
    docker.chmod(0o755)
    project.write("def test_it(kafka): assert ask(kafka) == 0\n")
    done = project.run("--tenure-image", "tenure:1", PATH=f"{docker.parent}{os.pathsep}{os.environ['PATH']}")
    assert "1 passed" in done.text, done.text
    missing = project.run("--tenure-image", "tenure:1", PATH="/nowhere")
    assert missing.code == 4
    assert "the image tenure:1 needs Docker, and no `docker` is on PATH" in missing.text


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


def test_loading_it_costs_nothing() -> None:
    code = (
        "import sys, time, pytest; begin = time.process_time(); import pytest_tenure.plugin; "
        "sys.exit(time.process_time() - begin > 0.03 or any(name.startswith('tenure') for name in sys.modules))"
    )
    inherited = environment()
    inherited["PYTHONPATH"] = os.pathsep.join([inherited["PYTHONPATH"], str(PLUGIN)])
    assert subprocess.run([sys.executable, "-P", "-c", code], env=inherited, check=False, timeout=60).returncode == 0


def test_killed_runs_leave_no_process_behind(tmp_path: Path) -> None:
    """kill -9 of the process that started a broker ends the broker."""
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
    wait_until(lambda: not any(map(alive, brokers)), 20, 0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
