"""A Docker daemon and its Compose, if there are any."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from tests.docker.files import FOLDER, Dockerfile
from tests.running import ROOT

BASE = os.environ.get("DOCKER_BASE") or Dockerfile(FOLDER / "Dockerfile").base
BUILD_SECONDS = 900


def docker(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=timeout, check=False)


@functools.cache
def why_no_docker() -> str:
    """The reason why no image can be built on this machine; "" if one can."""
    try:
        answer = docker("version", "--format", "{{.Server.Version}}", timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"needs Docker: {error}"
    if answer.returncode:
        return f"needs a Docker daemon: {answer.stderr.strip()}"
    if docker("image", "inspect", BASE).returncode:
        pulled = docker("pull", BASE, timeout=300)
        if pulled.returncode:
            return f"needs the base image {BASE}, or another one named by DOCKER_BASE: {pulled.stderr.strip()}"
    return ""


@functools.cache
def compose_command() -> list[str]:
    """The command of Compose: the Docker plugin, else docker-compose, else []."""
    if shutil.which("docker") and docker("compose", "version").returncode == 0:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else []


def compose_or_skip() -> list[str]:
    if why_no_docker():
        pytest.skip(why_no_docker())
    if not compose_command():
        pytest.skip("needs Compose: Debian's docker-compose, or Docker's compose plugin")
    return compose_command()


class DockerServices:
    """The services of a compose file as containers, in a project of their own."""

    def __init__(self, file: Path, **variables: str) -> None:
        self.project = f"tenure-{uuid4().hex[:12]}"
        self._command = [*compose_or_skip(), "--file", str(file), "--project-name", self.project]
        self._environment = os.environ | {"BASE": BASE} | variables

    def compose(self, *words: str) -> str:
        done = subprocess.run(
            [*self._command, *words], env=self._environment, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def up(self, *services: str) -> None:
        self.compose("up", "--build", "--detach", *services)

    def restart(self, service: str) -> None:
        self.compose("restart", service)

    def stop(self, service: str) -> int:
        self.compose("stop", service)
        return int(docker("inspect", "--format", "{{.State.ExitCode}}", self.container(service)).stdout)

    def container(self, service: str) -> str:
        """The id of the service's container, found by Compose's labels, as not every Compose lists stopped containers."""
        labels = [f"--filter=label=com.docker.compose.{label}" for label in (f"project={self.project}", f"service={service}")]
        (container,) = docker("ps", "--all", "--quiet", *labels).stdout.split()
        return container

    def lines(self, service: str) -> list[str]:
        logs = docker("logs", self.container(service))
        return (logs.stdout + logs.stderr).splitlines()

    def down(self) -> None:
        self.compose("down", "--volumes")


def remove(image: str) -> None:
    docker("image", "rm", image)


def build(name: str) -> None:
    built = docker("build", "--file", str(FOLDER / "Dockerfile"), "--tag", name, f"--build-arg=BASE={BASE}", str(ROOT), timeout=BUILD_SECONDS)
    assert built.returncode == 0, built.stdout + built.stderr


def port_of(container: str) -> int:
    """The port of this machine mapped to the container's 9092."""
    match = re.search(r":(\d+)$", docker("port", container, "9092/tcp").stdout, re.MULTILINE)
    assert match
    return int(match[1])
