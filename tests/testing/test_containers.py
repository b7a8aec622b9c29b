"""The container for testcontainers: with a Docker that starts the image's command as a process, and with a real one where there is a daemon."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from typing import IO, Any

import pytest

from tests.docker.files import FOLDER, Dockerfile
from tests.kafka_process import free_ports
from tests.running import environment
from tests.testing.groups import Static

testcontainers = pytest.importorskip("testcontainers.core.container", reason="testcontainers is not installed for this Python")
from testcontainers.core.config import ConnectionMode  # noqa: E402

from tenure.testing.containers import TenureContainer  # noqa: E402

pytestmark = pytest.mark.once
IMAGE = Dockerfile(FOLDER / "Dockerfile")


class Played:
    """A container: the process that the image's entrypoint would be, with the image's environment. A port of it is one of this machine."""

    id = short_id = "played"

    def __init__(self, command: list[str], variables: dict[str, str], ports: dict[str, Any]) -> None:
        (program,) = IMAGE.words("ENTRYPOINT")
        assert program.rpartition("/")[2] == "tenure"
        assert set(IMAGE.all("EXPOSE")) <= set(ports)
        self.ports = dict(zip(ports, free_ports(len(ports)), strict=True))
        inside = {name: value for name, value in IMAGE.environment().items() if name != "PATH"} | variables
        self._environment = environment(**{name: self._here(value) for name, value in inside.items()}, PYTHONWARNINGS="")
        self._command = [sys.executable, "-P", "-m", "tenure", *map(self._here, command)]
        self.process: subprocess.Popen[bytes] | None = None
        self.lines: list[bytes] = []

    def _here(self, text: str) -> str:
        """An address of the container as one of this machine."""
        return re.sub(r"(0\.0\.0\.0|127\.0\.0\.1):(\d+)", lambda match: f"127.0.0.1:{self.ports[match[2]]}", text)

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()

    def _read(self, output: IO[bytes]) -> None:
        with output:
            for line in output:
                self.lines.append(line)

    @property
    def status(self) -> str:
        assert self.process is not None
        return "running" if self.process.poll() is None else "exited"

    def reload(self) -> None: ...

    def logs(self) -> bytes:
        return b"".join(self.lines)

    def remove(self, force: bool, v: bool) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class PlayedDocker:
    """What testcontainers asks of Docker."""

    def __init__(self) -> None:
        self.client = self
        self.containers: list[Played] = []

    def create(self, image: str, *, command: list[str], environment: dict[str, str], ports: dict[str, Any], **rest: Any) -> Played:
        assert image == "tenure:test"
        self.containers.append(Played(command, environment, ports))
        return self.containers[-1]

    def start(self, container: Played) -> None:
        container.start()

    def get_connection_mode(self) -> ConnectionMode:
        return ConnectionMode.docker_host

    def host(self) -> str:
        return "localhost"

    def port(self, container_id: str, port: int) -> str:
        return str(self.containers[-1].ports[str(port)])

    def close(self) -> None: ...


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> PlayedDocker:
    played = PlayedDocker()
    monkeypatch.setattr(testcontainers, "DockerClient", lambda **options: played)
    monkeypatch.setattr(testcontainers.c, "_ryuk_disabled", True)
    return played


def check(container: TenureContainer) -> None:
    """It is one cluster in memory, reached at the ports that were chosen, with all verbs."""
    kafka = container.kafka
    assert container.get_bootstrap_server() == kafka.bootstrap == f"{container.get_container_host_ip()}:{container.get_exposed_port(9092)}"
    assert kafka.topics() == {"orders": 6}
    member = Static(kafka, "billing", "billing-1")
    assert member.join() == 0
    with kafka.fault(api="OffsetCommit", group="billing", error="REQUEST_TIMED_OUT", apply="before"):
        assert member.commit("orders", 3) == 7
    member.close()
    kafka.kill()
    assert kafka.group("billing").committed("orders") == 3
    kafka.group("billing").member(instance="billing-1").expire()
    assert kafka.group("billing").last_rebalance.cause == "session-expired"
    kafka.reset()
    assert (kafka.topics(), kafka.bootstrap) == ({}, container.get_bootstrap_server())


def test_it_is_a_cluster_at_the_ports_that_were_chosen(docker: PlayedDocker) -> None:
    with TenureContainer("tenure:test", topics={"orders": 6}, settings={"group.max.size": 1}) as container:
        check(container)
        one, other = Static(container.kafka, "g", "1"), Static(container.kafka, "g", "2")
        assert (one.join(), other.join()) == (0, 81)
        one.close()
        other.close()
    process = docker.containers[0].process
    assert process is not None
    assert process.returncode is not None


def test_each_has_a_token_of_its_own(docker: PlayedDocker) -> None:
    assert TenureContainer("tenure:test").token != TenureContainer("tenure:test").token


def test_a_broker_that_ends_is_told(docker: PlayedDocker) -> None:
    with pytest.raises(RuntimeError, match=r"has ended: .*group\.max\.sise"):
        TenureContainer("tenure:test", settings={"group.max.sise": 1}).start()
    docker.containers[0].remove(True, True)


def test_a_real_container(image: str) -> None:
    """Skipped, with the reason, without a Docker daemon."""
    with TenureContainer(image, topics={"orders": 6}) as container:
        check(container)
