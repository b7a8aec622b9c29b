"""Several Apache Kafka brokers as processes, each of which can be killed, frozen and started again."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kafka_process import CLUSTER_ID, LOGGING, PROPERTIES, STOP_SECONDS, await_listening, free_ports
from tests.oracle import JAVA, kafka_jars, run_java

HEAP = "-Xmx256m"
START_SECONDS = 240  # all brokers start at once, perhaps on two busy cores
# Everyone may do everything that no entry is about, so that the brokers need no users of their own: a test denies single operations.
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "allow.everyone.if.no.acl.found": "true"}


class KafkaCluster:
    """Brokers 1, 2 and so on, at `ports` in this order; the first `controllers` of them are the quorum too."""

    def __init__(self, folder: Path, count: int, controllers: int, authorizer: bool, settings: dict[str, str]) -> None:
        free = free_ports(count + controllers)
        self.ports = free[:count]
        self._folder = folder
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        (folder / "log4j2.properties").write_text(LOGGING)
        controller_ports = dict(enumerate(free[count:], 1))
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in controller_ports.items())
        for number, port in enumerate(self.ports, 1):
            home = folder / str(number)
            home.mkdir()
            listeners = f"PLAINTEXT://127.0.0.1:{port}"
            more = {
                "node.id": number,
                "broker.rack": f"rack-{number}",
                "process.roles": "broker,controller" if number in controller_ports else "broker",
                "controller.quorum.voters": voters,
                "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_ports[number]}" if number in controller_ports else listeners,
                "offsets.topic.replication.factor": count,
                "offsets.topic.num.partitions": 6,
                **(AUTHORIZER if authorizer else {}),
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
            written = PROPERTIES.format(node=number, port=port, controller=0, folder=home)
            (home / "server.properties").write_text(written + "".join(f"{name}={value}\n" for name, value in more.items()))
            run_java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", home / "server.properties", cwd=home)

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.ports[number - 1]}"

    @property
    def addresses(self) -> str:
        """All brokers, as --bootstrap takes them."""
        return ",".join(self.address(number) for number in range(1, len(self.ports) + 1))

    def start(self) -> None:
        """Start all brokers, at once, and wait until each listens."""
        for number in range(1, len(self.ports) + 1):
            self._run(number)
        for number in range(1, len(self.ports) + 1):
            self._await(number)

    def restart(self, number: int) -> None:
        """Start a killed broker again, with its data and its port, and wait until it listens."""
        self._run(number)
        self._await(number)

    def kill(self, number: int) -> None:
        process = self._processes.pop(number)
        process.kill()  # which ends a frozen process too
        process.wait(STOP_SECONDS)

    def freeze(self, number: int) -> None:
        """Stop its process: its connections stay open, and nothing is answered."""
        self._processes[number].send_signal(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        self._processes[number].send_signal(signal.SIGCONT)

    def deny(self, operation: str, *resource: str) -> None:
        """Deny everybody an operation: `deny("Describe", "--group", "billing")`. Asks for `authorizer`."""
        arguments = ["--bootstrap-server", self.addresses, "--add", "--deny-principal", "User:ANONYMOUS", "--operation", operation, *resource]
        run_java("org.apache.kafka.tools.AclCommand", *arguments)

    def stop(self) -> None:
        for number in list(self._processes):
            self.kill(number)

    def _run(self, number: int) -> None:
        options = ["-XX:+UseSerialGC", HEAP, f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}", "-cp", f"{kafka_jars()}/*"]
        with self._output(number).open("ab") as output:
            command = [*JAVA, *options, "kafka.Kafka", str(self._folder / str(number) / "server.properties")]
            self._processes[number] = subprocess.Popen(command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def _await(self, number: int) -> None:
        await_listening(self._processes[number], self.ports[number - 1], self._output(number), START_SECONDS)

    def _output(self, number: int) -> Path:
        return self._folder / f"output{number}"


@contextmanager
def kafka_cluster(count: int, /, *, controllers: int = 1, authorizer: bool = False, **settings: str) -> Iterator[KafkaCluster]:
    """Start `count` brokers. Skips the test if Kafka is not available. Settings have underscores for dots."""
    kafka_jars()
    with tempfile.TemporaryDirectory(prefix="tenure-kafka-", ignore_cleanup_errors=True) as name:
        cluster = KafkaCluster(Path(name), count, controllers, authorizer, settings)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
