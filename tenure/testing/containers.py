"""A broker with test control in a container, for testcontainers: `pip install tenure[testcontainers]`.

    with TenureContainer("tenure", topics={"orders": 6}) as container:
        kafka = container.kafka  # what `Broker` is, with all its verbs
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any, Self

from testcontainers.core.container import DockerContainer

from .cluster import Cluster
from .control import Control
from .settings import given_settings

KAFKA_PORT = 9092
CONTROL_PORT = 9310
START_SECONDS = 60.0
PAUSE_SECONDS = 0.05
LOG_CHARACTERS = 2_000  # of a container that has ended


class TenureContainer(DockerContainer):
    """The image that `docker/` builds. `kafka` is its cluster, advertised at the port that Docker chose."""

    kafka: Cluster

    def __init__(self, image: str = "tenure", *, topics: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None, **options: Any) -> None:
        """`options`: of `DockerContainer`."""
        super().__init__(image, **options)
        self.token = secrets.token_urlsafe(18)
        self._topics = topics
        self.with_exposed_ports(KAFKA_PORT, CONTROL_PORT)
        self.with_env("TENURE_TEST_TOKEN", self.token)
        self.with_command(
            ["serve", "--profile", "test", "--test-control", f"0.0.0.0:{CONTROL_PORT}", "--test-control-anywhere", *given_settings(settings)]
        )

    def start(self) -> Self:
        """Start it, and return when it serves under its address."""
        super().start()
        host = self.get_container_host_ip()
        control = Control(f"http://{host}:{self.get_exposed_port(CONTROL_PORT)}", self.token)
        self._wait(control)
        document = control.post("/v1/clusters/default/advertise", {"address": f"{host}:{self.get_exposed_port(KAFKA_PORT)}"})
        self.kafka = Cluster(control, document)
        self.kafka.make_topics(self._topics)
        return self

    def _wait(self, control: Control) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                control.get("/v1/clusters/default")
                return
            except OSError as error:  # also of a port that Docker forwards to nobody yet
                self._raise_if_ended()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the broker in the container does not answer after {START_SECONDS:g} s: {error}") from error
            time.sleep(PAUSE_SECONDS)

    def _raise_if_ended(self) -> None:
        container = self.get_wrapped_container()
        container.reload()
        if container.status in ("exited", "dead"):
            raise RuntimeError(f"the broker in the container has ended: {container.logs().decode(errors='replace')[-LOG_CHARACTERS:]}")

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        if hasattr(self, "kafka"):
            self.kafka.control.close_all()
        super().stop(force, delete_volume)

    def get_bootstrap_server(self) -> str:
        """The address for clients, under the name that the container of Kafka has for it."""
        return self.kafka.bootstrap
