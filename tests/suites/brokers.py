"""The broker that a suite runs against: this one, or Apache Kafka, with the same settings."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kafka_process import free_ports, kafka_folder, running_kafka
from tests.oracle import find_jars
from tests.running import broker
from tests.suites.suite import Suite, SuiteError


@contextmanager
def started(suite: Suite, name: str, report: Path) -> Iterator[int]:
    """The port of a broker with an empty data directory, which goes with it."""
    with {"tenure": tenure, "kafka": kafka}[name](suite, report) as port:
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
def kafka(suite: Suite, report: Path) -> Iterator[int]:
    if isinstance(jars := find_jars(), str):
        raise SuiteError(jars)
    port = suite.port or free_ports(1)[0]
    given = {"advertised.listeners": f"PLAINTEXT://{suite.host}:{port}", **suite.settings, **suite.kafka_settings}
    settings = {name.replace(".", "_"): value for name, value in given.items()}
    with kafka_folder(port, **settings) as (folder, _), running_kafka(folder, port):
        try:
            yield port
        finally:
            (report / "broker.log").write_bytes((folder / "output").read_bytes())
