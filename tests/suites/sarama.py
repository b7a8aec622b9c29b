"""Sarama's functional tests, from a copy of its Go module: five brokers, each behind a proxy (toxiproxy) that the tests cut and slow."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Final

from tests.kafka_process import free_ports
from tests.running import wait_until
from tests.suites.go_clients import fetcher, go_test
from tests.suites.results import Tests
from tests.suites.suite import Run, Suite, SuiteError, call

SARAMA: Final = "v1.61.1"
TOXIPROXY: Final = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
NODES: Final = 5
PROXIED_PORT: Final = 29091  # the port of the first broker's proxy; the tests fix this and the names of the proxies
SECONDS: Final = 2400

_fetch_module = fetcher("github.com/IBM/sarama", SARAMA, "-tags=functional", "-exec=true", ".")  # do not run its TestMain


def fetch(folder: Path) -> None:
    _fetch_module(folder)
    call(["go", "install", TOXIPROXY], folder, GOBIN=str(folder / "bin"))


def functional_tests(source: Path) -> str:
    """A pattern of the tests that need brokers; the package has more tests."""
    names = [name for file in sorted(source.glob("functional_*_test.go")) for name in re.findall(r"^func (Test\w+)\(t ", file.read_text(), re.MULTILINE)]
    return f"^({'|'.join(names)})$"


def run(run: Run) -> Tests:
    (port,) = free_ports(1)
    proxies = [
        {"name": f"kafka{id}", "listen": f"127.0.0.1:{PROXIED_PORT + id - 1}", "upstream": f"127.0.0.1:{run.port + id - 1}", "enabled": True}
        for id in range(1, NODES + 1)
    ]
    config = run.report / "proxies.json"
    config.write_text(json.dumps(proxies))
    with (run.report / "toxiproxy.log").open("wb") as output:
        command: list[str | Path] = [run.folder / "bin" / "server", "-host", "127.0.0.1", "-port", str(port), "-config", config]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            wait_until(lambda: "Started proxy" in (run.report / "toxiproxy.log").read_text(), 10.0)
            if process.poll() is not None:
                raise SuiteError(f"toxiproxy ended; see {run.report / 'toxiproxy.log'}")
            environment = {"TOXIPROXY_ADDR": f"http://127.0.0.1:{port}", "KAFKA_VERSION": "4.0.0"}
            return go_test(run, "log", SECONDS, ["-tags=functional", "-run", run.only or functional_tests(run.folder / "source"), "."], environment)
        finally:
            process.kill()
            process.wait(10)


SUITE = Suite(
    name="sarama",
    client="Sarama",
    version=SARAMA,
    source="its Go module",
    fetch=fetch,
    run=run,
    # The settings of the module's own docker-compose.yml.
    settings={"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0"},
    host="127.0.0.1",
    nodes=NODES,
    proxied_port=PROXIED_PORT,
)
