"""docs/testing.md: runs the fixture, the tests and the CI job of the page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docker import daemon
from tests.docker.files import FOLDER, TESTS, compose_file
from tests.project.listings import listing_named
from tests.running import ROOT, environment

PAGE = ROOT / "docs" / "testing.md"
LINES_MAX = 30
# An additional test that writes the address of its broker to a file, because the page's tests do not print the address.
ADDRESSES = """


def test_whose_broker_this_is(kafka, worker_id, tmp_path_factory):
    (tmp_path_factory.getbasetemp().parent / f"broker-of-{worker_id}").write_text(kafka)
"""
STANDING_IN = '#!/bin/sh\nPYTHONPATH={root} exec {python} -P -m tests.docker.standing_in "$@"\n'
# A script named `docker`, which translates to this machine's Docker, its Compose (perhaps of 2021) and its base image.
REAL = """#!/bin/sh
case $1 in
  build) shift; exec {docker} build --build-arg "BASE=$BASE" "$@" ;;
  compose) shift; exec {compose} -p {project} "$@" ;;
esac
exec {docker} "$@"
"""


def test_the_page_shows_the_files_of_the_docker_folder() -> None:
    for file in sorted((FOLDER / "tests").glob("*.py")):
        assert listing_named(PAGE, file.name) == file.read_text()


def test_the_fixture_has_at_most_thirty_lines() -> None:
    assert len(listing_named(PAGE, "conftest.py").splitlines()) <= LINES_MAX


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with tests written as on the page."""
    folder = tmp_path / "project"
    (folder / "tests").mkdir(parents=True)
    for name in ("conftest.py", "test_orders.py"):
        (folder / "tests" / name).write_text(listing_named(PAGE, name))
    return folder


def run_tests(project: Path, *options: str, path: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of the example project in a child process; its brokers keep their temporary files in `brokers`."""
    (project / "brokers").mkdir()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={project / 'temporary'}", *options, "tests"]
    plain = environment(PYTHONWARNINGS="", PATH=path, TMPDIR=str(project / "brokers"), **more)
    return subprocess.run(command, cwd=project, env=plain, capture_output=True, text=True, timeout=120, check=False)


def with_tenure() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.mark.clients
def test_every_xdist_worker_has_its_broker_and_all_are_stopped(project: Path) -> None:
    for number in range(2):
        (project / "tests" / f"test_{number}.py").write_text(ADDRESSES)
    done = run_tests(project, "-n", "2", "--dist", "loadfile", path=with_tenure())
    assert (done.returncode, " 4 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    addresses = {file.name: file.read_text() for file in (project / "temporary").glob("broker-of-*")}
    assert addresses.keys() == {"broker-of-gw0", "broker-of-gw1"}
    assert len(set(addresses.values())) == 2
    assert not list((project / "brokers").glob("tenure-*")), "a broker stopped in order removes its data"


@pytest.mark.clients
def test_a_failing_test_is_shown_with_the_brokers_log(project: Path) -> None:
    (project / "tests" / "test_orders.py").write_text("def test_that_fails(kafka):\n    assert kafka == 'elsewhere'\n")
    done = run_tests(project, path=with_tenure())
    assert done.returncode == 1
    assert '"event": "listening"' in done.stdout


@pytest.mark.once
def test_without_a_broker_the_run_ends_with_one_line(project: Path) -> None:
    done = run_tests(project, path="/nowhere")
    assert done.returncode == 1
    assert "Exit: no `tenure` on PATH, and KAFKA=HOST:PORT names no broker" in done.stdout + done.stderr


@pytest.fixture
def checkout(project: Path) -> Path:
    """The project as its CI job checks it out: with a compose file, and with Tenure in a folder."""
    (project / "tenure").symlink_to(ROOT)
    project_file: dict[str, Any] = compose_file(TESTS, {"BASE": daemon.BASE})
    # A reader's project has `build: .`; here the tests of docker/tests are built.
    project_file["services"]["tests"]["build"]["context"] = "tenure"
    (project / "compose.test.yaml").write_text(yaml.safe_dump(project_file))
    return project


def job() -> list[dict[str, Any]]:
    document = yaml.safe_load(listing_named(PAGE, "integration.yaml"))
    (only,) = document["jobs"].values()
    steps: list[dict[str, Any]] = only["steps"]
    return steps


def test_each_step_of_the_ci_job_does_one_thing() -> None:
    assert yaml.safe_load(listing_named(PAGE, "integration.yaml")).keys() == {"name", True, "jobs"}  # YAML 1.1 reads the key `on` as True
    assert all(len({"run", "uses"} & step.keys()) == 1 and step.keys() <= {"name", "uses", "with", "run", "if"} for step in job())


def run_job(checkout: Path, docker: str) -> tuple[int, list[str], str]:
    """Run the steps of the CI job, with `if` evaluated as by GitHub. The first exit code that is not 0, the steps that ran, and their output."""
    shims = checkout / "bin"
    shims.mkdir()
    (shims / "docker").write_text(docker)
    (shims / "docker").chmod(0o755)
    plain = {"PATH": os.pathsep.join([str(shims), os.environ["PATH"]]), "HOME": str(checkout), "BASE": daemon.BASE}
    plain |= {name: value for name, value in os.environ.items() if name.startswith("DOCKER_")}
    failed, ran, output = 0, [], ""
    for step in job():
        runs = {"failure()": failed != 0, "always()": True}.get(step.get("if", ""), not failed)
        if "run" in step and runs:
            ran.append(step["name"])
            done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=checkout, env=plain, capture_output=True, text=True, timeout=900, check=False)
            failed, output = failed or done.returncode, output + done.stdout + done.stderr
    return failed, ran, output


@pytest.fixture(params=["here", "in Docker"])
def docker(request: pytest.FixtureRequest) -> Iterator[str]:
    """The script that the CI job finds as `docker`."""
    if request.param == "here":
        yield STANDING_IN.format(root=ROOT, python=sys.executable)
        return
    program, *words = daemon.compose_or_skip()
    compose = " ".join([shutil.which(program) or program, *words])  # by its path, since `docker` will be this script
    project = f"tenure-job-{os.getpid()}"
    yield REAL.format(docker=shutil.which("docker"), compose=compose, project=project)
    for joined in "_-":  # the image names of the older and the newer Compose
        daemon.remove(f"{project}{joined}tests")


@pytest.mark.clients
def test_the_ci_job_runs_the_tests_beside_a_broker(checkout: Path, docker: str) -> None:
    code, ran, output = run_job(checkout, docker)
    assert (code, ran) == (0, ["Tenure", "tests", "end"]), output
    assert "test_orders.py .." in output
    assert "2 passed" in output


@pytest.mark.clients
def test_the_ci_job_fails_with_the_tests_and_shows_the_broker(checkout: Path, docker: str) -> None:
    file = checkout / "compose.test.yaml"
    wrong = textwrap.dedent("""
        import sys
        sys.exit("the tests failed")
    """)
    document = yaml.safe_load(file.read_text())
    document["services"]["tests"]["command"] = ["python3", "-c", wrong]
    file.write_text(yaml.safe_dump(document))
    code, ran, output = run_job(checkout, docker)
    assert (code, ran) == (1, ["Tenure", "tests", "what the broker said", "end"]), output
    assert "the tests failed" in output
