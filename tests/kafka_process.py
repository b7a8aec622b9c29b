"""Apache Kafka as a process: one node, on free ports of 127.0.0.1, with a temporary directory."""

from __future__ import annotations

import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.oracle import JAVA, kafka_jars, run_java

START_SECONDS = 60
STOP_SECONDS = 10
CLUSTER_ID = "dGVudXJlLW9yYWNsZS0wMQ"

PROPERTIES = """
process.roles=broker,controller
node.id={node}
controller.quorum.voters={node}@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""

LOGGING = """
rootLogger.level=error
rootLogger.appenderRef.stderr.ref=stderr
appender.stderr.type=Console
appender.stderr.name=stderr
appender.stderr.target=SYSTEM_ERR
appender.stderr.layout.type=PatternLayout
appender.stderr.layout.pattern=%p %c %m%n
"""


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that were free a moment ago: for programs that need a port before they start."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


@contextmanager
def kafka(classes: Path | None = None, /, **settings: str) -> Iterator[int]:
    """Start Kafka; yields its port. Skips the test if Kafka is not available. Settings have underscores for dots; `classes`: a
    folder with classes that settings name."""
    with kafka_folder(**settings) as (folder, port), running_kafka(folder, port, classes):
        yield port


@contextmanager
def kafka_folder(port: int = 0, /, **settings: str) -> Iterator[tuple[Path, int]]:
    """A folder in which a Kafka can be started repeatedly, and its port: a free one, or the given one."""
    kafka_jars()
    with tempfile.TemporaryDirectory(prefix="tenure-kafka-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        free, controller = free_ports(2)
        port = port or free
        properties = folder / "server.properties"
        node = settings.pop("node_id", "1")
        more = "".join(f"{key.replace('_', '.')}={value}\n" for key, value in settings.items())
        properties.write_text(PROPERTIES.format(node=node, port=port, controller=controller, folder=folder) + more)
        (folder / "log4j2.properties").write_text(LOGGING)
        run_java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", properties, cwd=folder)
        yield folder, port


@contextmanager
def running_kafka(folder: Path, port: int, classes: Path | None = None) -> Iterator[None]:
    """Run the Kafka of this folder, and kill it at the end."""
    path = f"{kafka_jars()}/*" if classes is None else f"{kafka_jars()}/*:{classes}"
    command = [*JAVA, "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}", "-cp", path]
    with (folder / "output").open("w+b") as output:
        process = subprocess.Popen(
            [*command, "kafka.Kafka", str(folder / "server.properties")], cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            await_listening(process, port, folder / "output")
            yield
        finally:
            process.send_signal(signal.SIGKILL)  # its data is not needed any more
            process.wait(STOP_SECONDS)


def await_listening(process: subprocess.Popen[bytes], port: int, output: Path, seconds: float = START_SECONDS) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert process.poll() is None, f"Kafka ended with {process.returncode}: {output.read_text()}"
            assert time.monotonic() < until, f"Kafka does not listen after {seconds} s: {output.read_text()}"
            time.sleep(0.05)
