"""The image: what docker/Dockerfile promises, run in this environment; and the image itself where a Docker daemon answers.

`DOCKER_BASE=NAME` builds on another base than the Dockerfile's. On a network with a certificate authority of its own the build
needs docker/certificates.pem (docker/README.md).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from cli import VERSION
from project.distribution import PACKAGES
from project.install import DEVELOPMENT
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest
from tests.running import ROOT, Client, broker, environment

DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
DEFAULT_BASE = re.search(r"^ARG BASE=(.*)$", DOCKERFILE, re.MULTILINE)[1]  # type: ignore[index]
HEALTHY_SECONDS = 20
STOP_SECONDS = 5  # docker waits ten before it kills
CANNOT_WRITE = 73

Run = Callable[..., str]


def last(instruction: str) -> str:
    """What follows the last instruction of this name; it is the one that counts."""
    found: list[str] = re.findall(rf"^{instruction} (.*)$", DOCKERFILE, re.MULTILINE)
    return found[-1]


def command(instruction: str) -> list[str]:
    """The words of an instruction in exec form. In the other form a shell would stand between SIGTERM and the broker."""
    words: list[str] = json.loads(re.sub(r"^[^\[]*", "", last(instruction)))
    return words


def after(flag: str) -> str:
    words = command("CMD")
    return words[words.index(flag) + 1]


def docker(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=timeout, check=False)


def test_the_images_command_serves_and_its_health_command_finds_it_ready(tmp_path: Path) -> None:
    here = {"0.0.0.0:9092": "127.0.0.1:0", "localhost:9092": "localhost:0", "/data": str(tmp_path / "data")}
    serve, *arguments = command("CMD")
    assert (serve, here.keys() - set(arguments)) == ("serve", set())
    with broker(*(here.get(word, word) for word in arguments)) as started:
        _, *health = [f"127.0.0.1:{started.port}" if word == "127.0.0.1:9092" else word for word in command("HEALTHCHECK")]
        asked = subprocess.run([sys.executable, "-P", "-m", "cli", *health], env=environment(), capture_output=True, text=True, check=False)
        assert (asked.returncode, asked.stderr) == (0, "")
        assert advertised(started.port) == ("localhost", started.port)
        assert started.stop() == 0
    assert list((tmp_path / "data").iterdir())


def advertised(port: int) -> tuple[str, int]:
    with Client(port) as client:
        (node,) = client.ask(MetadataRequest([]), 9).brokers
    return node.host, node.port


def test_the_image_exposes_checks_and_stores_what_its_command_says() -> None:
    port = after("--listen").rpartition(":")[2]
    assert (last("EXPOSE"), last("VOLUME")) == (port, after("--data"))
    assert command("HEALTHCHECK")[-1] == f"127.0.0.1:{port}"
    assert command("HEALTHCHECK")[0] == command("ENTRYPOINT")[0]
    assert int(last("USER").split(":")[0]) > 0


def test_the_entry_point_is_the_projects_command() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    (entry_point,) = command("ENTRYPOINT")
    assert Path(entry_point).name in scripts


def test_what_builds_the_wheel_comes_from_the_lock_with_its_hashes() -> None:
    (script,) = re.findall(r"sed -n '([^']+)'", DOCKERFILE)
    cut = subprocess.run(["sed", "-n", script, str(DEVELOPMENT)], capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(r"setuptools==\S+ \\\n(    --hash=sha256:[0-9a-f]{64} \\\n)*    --hash=sha256:[0-9a-f]{64}\n", cut)


def test_the_build_gets_every_file_that_the_wheel_is_made_of() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {"pyproject.toml", "setup.py", declared["readme"], *declared["license-files"], *PACKAGES}
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert wanted <= sent
    assert set(re.search(r"^COPY (.*) \./$", DOCKERFILE, re.MULTILINE)[1].replace("pe[m]", "pem").split()) <= sent  # type: ignore[index]


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The image, built from this checkout; removed at the end."""
    try:
        answer = docker("version", "--format", "{{.Server.Version}}", timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"needs Docker: {error}")
    if answer.returncode:
        pytest.skip(f"needs a Docker daemon: {answer.stderr.strip()}")
    name = f"tenure-test-{uuid4().hex[:12]}"
    base = os.environ.get("DOCKER_BASE") or DEFAULT_BASE
    if docker("image", "inspect", base).returncode:
        pulled = docker("pull", base, timeout=300)
        if pulled.returncode:
            pytest.skip(f"needs the base image {base}, or another one named by DOCKER_BASE: {pulled.stderr.strip()}")
    built = docker("build", "--file", str(ROOT / "docker" / "Dockerfile"), "--tag", name, f"--build-arg=BASE={base}", str(ROOT), timeout=900)
    assert built.returncode == 0, built.stdout + built.stderr
    yield name
    docker("image", "rm", name)


@pytest.fixture
def volume(image: str) -> Iterator[str]:
    """The name of a volume, which goes once the containers are gone."""
    name = f"{image}-data"
    yield name
    docker("volume", "rm", name)


@pytest.fixture
def run(image: str, volume: str) -> Iterator[Run]:
    """Starts a container of the image in the background, checked for health every second; its name."""
    names: list[str] = []

    def start(*options: str) -> str:
        names.append(f"{image}-{len(names)}")
        started = docker("run", "--detach", "--name", names[-1], "--publish", "127.0.0.1::9092", "--health-interval", "1s", *options, image)
        assert started.returncode == 0, started.stderr
        return names[-1]

    yield start
    for name in names:
        docker("rm", "--force", "--volumes", name)


def inspect(container: str, what: str) -> str:
    return docker("inspect", "--format", "{{" + what + "}}", container).stdout.strip()


def healthy(container: str) -> int:
    """Waits until Docker calls it healthy; the port of this machine that leads to it."""
    until = time.monotonic() + HEALTHY_SECONDS
    while (state := inspect(container, ".State.Health.Status")) != "healthy":
        assert time.monotonic() < until, f"{state}: {docker('logs', container)}"
        time.sleep(0.1)
    return int(docker("port", container, "9092/tcp").stdout.splitlines()[0].rpartition(":")[2])


def stop(container: str) -> None:
    begin = time.monotonic()
    docker("stop", container)
    assert (inspect(container, ".State.ExitCode"), time.monotonic() - begin < STOP_SECONDS) == ("0", True), docker("logs", container)


def create(port: int, topic: str) -> int:
    with Client(port) as client:
        (created,) = client.ask(CreateTopicsRequest([CreatableTopic(topic, 1, 1)], 5000), 5).topics
    return int(created.error_code)


def topics(port: int) -> set[str]:
    with Client(port) as client:
        return {topic.name for topic in client.ask(MetadataRequest(None), 9).topics}


@pytest.mark.alone
def test_a_container_becomes_healthy_stops_in_order_and_its_volume_keeps_the_topics(run: Run, volume: str) -> None:
    first = run("--volume", f"{volume}:/data")
    port = healthy(first)
    assert advertised(port) == ("localhost", 9092)
    assert create(port, "orders") == 0
    stop(first)
    assert "orders" in topics(healthy(run("--volume", f"{volume}:/data")))
    docker("rm", "--force", first)


@pytest.mark.alone
@pytest.mark.parametrize(
    "options", ["--user=12345:54321", "--read-only", "--user=12345 --read-only --cap-drop=ALL --security-opt=no-new-privileges"]
)
def test_it_serves_as_any_user_and_with_a_read_only_root(run: Run, options: str) -> None:
    container = run(*options.split())
    assert create(healthy(container), "orders") == 0
    stop(container)


@pytest.mark.alone
def test_a_volume_that_it_may_not_write_is_one_line_and_an_exit_code(run: Run, tmp_path: Path) -> None:
    container = run("--user", str(os.getuid() + 1), "--volume", f"{tmp_path}:/data")
    assert docker("wait", container).stdout.strip() == str(CANNOT_WRITE)
    (line,) = [line for line in docker("logs", container).stderr.splitlines() if not line.startswith("{")]
    assert line.startswith("tenure: ")
    assert "/data" in line


@pytest.mark.alone
def test_the_image_holds_the_project_and_nothing_that_built_it(image: str) -> None:
    assert docker("run", "--rm", image, "--version").stdout == f"tenure {VERSION}\n"
    look = "import importlib.metadata as m, pathlib; print(sorted(d.name for d in m.distributions()), *pathlib.Path('/').glob('build*'))"
    held = docker("run", "--rm", "--entrypoint", "/opt/tenure/bin/python", image, "-I", "-c", look).stdout.strip()
    assert held == "['cramjam', 'google-crc32c', 'structlog', 'tenure', 'uvloop']"
