"""The image: the steps of docker/Dockerfile, run in this environment; and the image itself if a Docker daemon answers.

`DOCKER_BASE=NAME` builds on another base than the Dockerfile's. On a network with its own certificate authority the build
needs docker/certificates.pem (docker/README.md).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import VERSION
from project.distribution import OUTSIDE, PACKAGES
from project.install import DEVELOPMENT
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.docker.daemon import docker, port_of
from tests.docker.files import FOLDER, Dockerfile
from tests.kafka_process import free_ports
from tests.running import ROOT, Client, broker, environment, wait_until

DOCKERFILE = Dockerfile(FOLDER / "Dockerfile")
SETTINGS = ("TENURE_LISTENERS", "TENURE_ADVERTISED_LISTENERS", "TENURE_LOG_DIRS")
HEALTHY_SECONDS = 20
STOP_SECONDS = 5  # Docker kills a container ten seconds after the stop
CANNOT_WRITE = 73
# A separate program, as warnings at the import of kafka-python would be errors in this process.
SEND = "import kafka, sys; print(kafka.KafkaProducer(bootstrap_servers=sys.argv[1]).send('orders', b'order').get(10).offset)"

Run = Callable[..., str]


def test_the_images_command_serves_and_its_health_command_finds_it_ready(tmp_path: Path) -> None:
    here = {"0.0.0.0:9092": "127.0.0.1:0", "127.0.0.1:9092": "127.0.0.1:0", "/data": str(tmp_path / "data")}
    settings = {name: value for name, value in DOCKERFILE.environment().items() if name.startswith("TENURE_")}
    mapped: dict[str, Any] = {name: settings[name].replace(container_path, place) for (container_path, place), name in zip(here.items(), SETTINGS, strict=True)}
    assert settings.keys() == set(SETTINGS)
    assert not mapped.items() & settings.items()
    serve, *arguments = DOCKERFILE.words("CMD")
    assert serve == "serve"
    with broker(*arguments, **mapped) as started:
        assert advertised(started.port) == ("127.0.0.1", started.port)
        mapped["TENURE_LISTENERS"] = f"PLAINTEXT://127.0.0.1:{started.port}"
        command = [sys.executable, "-P", "-m", "tenure", *DOCKERFILE.words("HEALTHCHECK")[1:]]
        done = subprocess.run(command, env=environment(**mapped), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert started.stop() == 0
    assert list((tmp_path / "data").iterdir())


def advertised(port: int) -> tuple[str, int]:
    with Client(port) as client:
        (node,) = client.ask(MetadataRequest([]), 9).brokers
    return node.host, node.port


def test_the_image_exposes_checks_and_stores_as_its_settings_name() -> None:
    settings = DOCKERFILE.environment()
    assert settings["TENURE_LISTENERS"] == f"PLAINTEXT://0.0.0.0:{DOCKERFILE.last('EXPOSE')}"
    assert settings["TENURE_LOG_DIRS"] == DOCKERFILE.last("VOLUME")
    assert DOCKERFILE.words("HEALTHCHECK")[0] == DOCKERFILE.words("ENTRYPOINT")[0]
    assert settings["PATH"].split(":")[0] == str(Path(DOCKERFILE.words("ENTRYPOINT")[0]).parent)
    assert int(DOCKERFILE.last("USER").split(":")[0]) > 0


def test_the_entry_point_is_the_projects_command() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    (entry_point,) = DOCKERFILE.words("ENTRYPOINT")
    assert Path(entry_point).name in scripts


def test_the_build_tools_of_the_wheel_are_locked_with_hashes() -> None:
    (loop,) = re.findall(r"(for name in .*? done) >building.txt", re.sub(r"\\\n", " ", DOCKERFILE.text))
    command = loop.replace("development.txt", str(DEVELOPMENT))
    cut = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    pinned = r"([a-z-]+)==\S+ \\\n(?:    --hash=sha256:[0-9a-f]{64} \\\n)*    --hash=sha256:[0-9a-f]{64}\n(?:    #.*\n)*"
    assert re.fullmatch(f"(?:{pinned})*", cut)
    assert [*re.findall(pinned, cut)][:2] == ["setuptools", "mypy"]
    assert len(re.findall(pinned, cut)) == len(loop.partition(" in ")[2].partition(";")[0].split())


def test_the_build_gets_every_file_of_the_wheel() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {"pyproject.toml", "setup.py", "README.md", *declared["license-files"], *PACKAGES, *(name.split("/")[0] for name in OUTSIDE)}
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert needed <= sent
    assert set(DOCKERFILE.all("COPY")[0].replace("pe[m]", "pem").split()[:-1]) <= sent


@pytest.fixture
def volume(image: str) -> Iterator[str]:
    """The name of a volume that is removed after the containers."""
    name = f"{image}-data"
    yield name
    docker("volume", "rm", name)


@pytest.fixture
def run(image: str, volume: str) -> Iterator[Run]:
    """Start a container of the image in the background, with a health check every second; returns its name."""
    names: list[str] = []

    def start(*options: str) -> str:
        names.append(f"{image}-{len(names)}")
        started = docker("run", "--detach", "--name", names[-1], "--publish", "127.0.0.1::9092", "--health-interval", "1s", *options, image)
        assert started.returncode == 0, started.stderr
        return names[-1]

    yield start
    for name in names:
        docker("rm", "--force", "--volumes", name)


def inspect(container: str, template: str) -> str:
    return docker("inspect", "--format", "{{" + template + "}}", container).stdout.strip()


def healthy(container: str) -> int:
    """Wait until Docker reports the container healthy; returns its port on this machine."""
    until = time.monotonic() + HEALTHY_SECONDS
    while (state := inspect(container, ".State.Health.Status")) != "healthy":
        assert time.monotonic() < until, f"{state}: {docker('logs', container)}"
        time.sleep(0.1)
    return port_of(container)


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


@pytest.mark.clients
def test_a_container_becomes_healthy_stops_in_order_and_its_volume_keeps_the_topics(run: Run, volume: str) -> None:
    first = run("--volume", f"{volume}:/data")
    port = healthy(first)
    assert advertised(port) == ("127.0.0.1", 9092)
    assert create(port, "orders") == 0
    stop(first)
    assert "orders" in topics(healthy(run("--volume", f"{volume}:/data")))
    docker("rm", "--force", first)


@pytest.mark.clients
def test_a_container_answers_after_less_than_a_second_of_work(run: Run) -> None:
    """By its processor time, as other tests run at the same time."""
    container = run("--health-interval=1h")
    wait_until(lambda: docker("logs", container).stdout.startswith("listening "), HEALTHY_SECONDS)
    assert advertised(port_of(container)) == ("127.0.0.1", 9092)
    ticks = docker("exec", container, "cat", "/proc/1/stat").stdout.rpartition(") ")[2].split()[11:13]
    assert sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK") < 1


@pytest.mark.clients
@pytest.mark.parametrize(
    "options", ["--user=12345:54321", "--read-only", "--user=12345 --read-only --cap-drop=ALL --security-opt=no-new-privileges"]
)
def test_the_image_serves_as_any_user_and_with_a_read_only_root(run: Run, options: str) -> None:
    container = run(*options.split())
    assert create(healthy(container), "orders") == 0
    stop(container)


@pytest.mark.clients
@pytest.mark.parametrize("mode", [0o755, 0o000])
def test_an_unwritable_volume_is_reported_in_one_line_with_user_and_path_and_an_exit_code(run: Run, tmp_path: Path, mode: int) -> None:
    user, folder = os.getuid() + 4242, tmp_path / "volume"
    folder.mkdir()
    folder.chmod(mode)
    container = run("--user", str(user), "--volume", f"{folder}:/data")
    assert docker("wait", container).stdout.strip() == str(CANNOT_WRITE)
    (line,) = [line for line in docker("logs", container).stderr.splitlines() if not line.startswith("{")]
    assert line.startswith("tenure: data directory /data: Permission denied; ")
    assert f"runs as user {user}, and /data belongs to user {os.getuid()} (mode {mode:o})" in line


@pytest.mark.clients
def test_a_read_only_volume_is_reported_in_one_line_too(run: Run, tmp_path: Path) -> None:
    container = run("--volume", f"{tmp_path}:/data:ro")
    assert docker("wait", container).stdout.strip() == str(CANNOT_WRITE)
    (line,) = [line for line in docker("logs", container).stderr.splitlines() if not line.startswith("{")]
    assert line.startswith("tenure: data directory /data: ")
    assert "this process runs as user 1000" in line


@pytest.mark.clients
def test_address_and_settings_are_set_by_variables(run: Run) -> None:
    container = run("--env", "TENURE_ADVERTISED_LISTENERS=PLAINTEXT://kafka.example.com:19092", "--env", "TENURE_NUM_PARTITIONS=3")
    port = healthy(container)
    assert advertised(port) == ("kafka.example.com", 19092)
    with Client(port) as client:
        (topic,) = client.ask(MetadataRequest([MetadataRequestTopic(name="orders")], allow_auto_topic_creation=True), 9).topics
        assert len(topic.partitions) == 3


@pytest.mark.clients
def test_a_container_alone_serves_a_client_on_this_machine(image: str) -> None:
    """`docker run -p 9092:9092 IMAGE`, on a free port: the client gets the address that it connected to."""
    (port,) = free_ports(1)
    name = f"{image}-alone"
    address = f"TENURE_ADVERTISED_LISTENERS=PLAINTEXT://127.0.0.1:{port}"
    assert docker("run", "--detach", "--name", name, "--publish", f"{port}:9092", "--health-interval=1s", "--env", address, image).returncode == 0
    try:
        healthy(name)
        sent = subprocess.run([sys.executable, "-P", "-c", SEND, f"127.0.0.1:{port}"], capture_output=True, text=True, timeout=30, check=False)
        assert sent.stdout == "0\n", sent.stderr
        assert docker("exec", name, "tenure", "health").stdout == "127.0.0.1:9092 is ready\n"
    finally:
        docker("rm", "--force", "--volumes", name)


@pytest.mark.clients
def test_the_image_has_the_project_and_no_build_tool(image: str) -> None:
    assert docker("run", "--rm", image, "--version").stdout.startswith(f"tenure {VERSION} (compiled, Python 3.")
    look = "import importlib.metadata as m, pathlib; print(sorted(d.name for d in m.distributions()), *pathlib.Path('/').glob('build*'))"
    held = docker("run", "--rm", "--entrypoint", "/opt/tenure/bin/python", image, "-I", "-c", look).stdout.strip()
    assert held == "['cramjam', 'google-crc32c', 'librt', 'structlog', 'tenure', 'uvloop']"
