"""A real Apache Kafka to compare with, if Java and Kafka's jars are available: one node of minimal size."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.machine import pinned
from bench.servers import Server, ServerError, environment, served_versions, stop

START_SECONDS = 90.0
FORMAT_SECONDS = 60.0
STOP_SECONDS = 60.0  # with thousands of partitions stopping is slow
CLUSTER = "dGVudXJlLWJlbmNoLTEyMw"  # any 16 bytes, as Kafka writes them

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
socket.listen.backlog.size=4096
"""
LOGGING = """\
appender.out.type=Console
appender.out.name=out
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
"""


@contextmanager
def kafka(jars: Path, core: int | None, *settings: str) -> Iterator[Server]:
    """Kafka on a temporary data directory. `settings`: NAME=VALUE."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-bench-kafka-"))
    try:
        with kafka_on(folder, jars, core, *settings) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def kafka_on(folder: Path, jars: Path, core: int | None, *more: str) -> Iterator[Server]:
    """Kafka on a directory. A new directory is formatted first; the time from `born` to the first reply excludes this."""
    java = shutil.which("java")
    if java is None:
        raise ServerError("there is no java")
    port, controller = free_ports()
    settings, logging = folder / "server.properties", folder / "log4j2.properties"
    settings.write_text(PROPERTIES.format(port=port, controller=controller, data=folder / "data") + "".join(f"{setting}\n" for setting in more))
    logging.write_text(LOGGING)
    run = [java, "-Xmx512m", f"-Dlog4j2.configurationFile={logging}", "-cp", f"{jars}/*"]
    if not (folder / "data").exists():
        formatting = [*run, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)]
        try:
            subprocess.run(formatting, check=True, capture_output=True, timeout=FORMAT_SECONDS, env=environment())
        except subprocess.SubprocessError as error:
            raise ServerError(f"Kafka's directory could not be formatted: {error}") from None
    born = time.monotonic()
    with pinned(core), (folder / "out").open("w") as out:
        process = subprocess.Popen(
            [*run, "kafka.Kafka", str(settings)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, text=True, env=environment(), cwd=os.sep,
        )  # fmt: skip
    try:
        await_answer(process, port)
        yield Server(process, port, born)
    finally:
        stop(process, STOP_SECONDS)


def await_answer(process: subprocess.Popen[str], port: int) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            served_versions(port, seconds=5)
        except (OSError, ServerError):
            time.sleep(0.02)
        else:
            return
    raise ServerError(f"Kafka did not answer within {START_SECONDS:.0f} s; exit {process.poll()}")


def free_ports() -> tuple[int, int]:
    """Two free ports: Kafka cannot report a port that it chose itself."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
