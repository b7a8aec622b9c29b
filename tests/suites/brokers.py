"""The broker that a suite runs against: this one, or Apache Kafka, with the same settings."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kafka_process import free_ports, kafka_folder, running_kafka
from tests.nodes.cluster import Nodes
from tests.oracle import find_jars
from tests.running import broker
from tests.suites.suite import Suite, SuiteError


@contextmanager
def started(suite: Suite, name: str, report: Path, count: int = 1) -> Iterator[int]:
    """The port of a broker with an empty data directory that is removed afterwards; of the first node, if there are several."""
    with tenure_nodes(suite, report, count) if count > 1 else {"tenure": tenure, "kafka": kafka}[name](suite, report) as port:
        yield port


@contextmanager
def tenure(suite: Suite, report: Path) -> Iterator[int]:
    settings = [f"--set={name}={value}" for name, value in suite.settings.items()]
    with tempfile.TemporaryDirectory(prefix="tenure-suite-", ignore_cleanup_errors=True) as folder:
        port = suite.port or free_ports(1)[0]
        with broker("--listen", f"127.0.0.1:{port}", "--advertise", f"{suite.host}:{port}", "--data", f"{folder}/data", *settings) as running:
            try:
                yield running.port
            finally:
                alive = running.process.poll() is None
                running.stop()
                (report / "broker.log").write_text(running.errors() + "\n")
        if not alive:
            raise SuiteError(f"the broker ended while the suite ran; see {report / 'broker.log'}")


@contextmanager
def tenure_nodes(suite: Suite, report: Path, count: int) -> Iterator[int]:
    settings = [f"{name}={value}" for name, value in suite.settings.items() if name != "node.id"]
    with tempfile.TemporaryDirectory(prefix="tenure-suite-", ignore_cleanup_errors=True) as folder:
        nodes = Nodes(Path(folder) / "data", count, *settings, first_port=suite.port, host=suite.host, proxied_port=suite.proxied_port)
        try:
            nodes.start()
            yield nodes.clients_port
            assert nodes.supervisor is not None
            nodes.stop()
            ended = [line for line in nodes.lines if line["event"] == "node has ended and is started again"]
        finally:
            if nodes.supervisor is not None:
                (report / "broker.log").write_text(nodes.supervisor.errors() + "\n")
            nodes.close()
        if ended:
            raise SuiteError(f"a node ended while the suite ran; see {report / 'broker.log'}")


@contextmanager
def kafka(suite: Suite, report: Path) -> Iterator[int]:
    if isinstance(jars := find_jars(), str):
        raise SuiteError(jars)
    port = suite.port or free_ports(1)[0]
    config = {"advertised.listeners": f"PLAINTEXT://{suite.host}:{port}", **suite.settings, **suite.kafka_settings}
    settings = {name.replace(".", "_"): value for name, value in config.items()}
    with kafka_folder(port, **settings) as (folder, _), running_kafka(folder, port):
        try:
            yield port
        finally:
            (report / "broker.log").write_bytes((folder / "output").read_bytes())
