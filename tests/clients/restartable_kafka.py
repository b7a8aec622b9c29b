"""Apache Kafka that is started, stopped or killed, and started again on the same directory."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import BinaryIO

from tests.kafka_process import CLUSTER_ID, LOGGING, PROPERTIES, STOP_SECONDS, await_listening, free_ports
from tests.oracle import JAVA, kafka_jars, run_java

ORDERLY_STOP_SECONDS = 30
# The settings with which tests run our broker: no initial delay, short sessions, few partitions.
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100", "offsets.topic.num.partitions": "3"}


class RestartableKafka:
    def __init__(self, folder: Path, **settings: str) -> None:
        """Formats `folder`; its logs will be in `data` below it. Skips the test where Kafka cannot be had."""
        self._jars = kafka_jars()
        self._folder = folder
        self.data = folder / "data"
        self.port, controller = free_ports(2)
        folder.mkdir(parents=True, exist_ok=True)
        config = SETTINGS | {key.replace("_", "."): value for key, value in settings.items()}
        more = "".join(f"{key}={value}\n" for key, value in config.items())
        (folder / "server.properties").write_text(PROPERTIES.format(node=1, port=self.port, controller=controller, folder=folder) + more)
        (folder / "log4j2.properties").write_text(LOGGING)
        run_java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", folder / "server.properties", cwd=folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._output: BinaryIO | None = None

    def start(self) -> None:
        logging = f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}"
        command = [*JAVA, "-XX:+UseSerialGC", logging, "-cp", f"{self._jars}/*", "kafka.Kafka", str(self._folder / "server.properties")]
        self._output = (self._folder / "output").open("ab")
        self._process = subprocess.Popen(command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output)
        await_listening(self._process, self.port, self._folder / "output")

    def stop(self) -> None:
        """Stop in order: Kafka flushes every log and marks it clean."""
        self._end(signal.SIGTERM, ORDERLY_STOP_SECONDS)

    def kill(self) -> None:
        self._end(signal.SIGKILL, STOP_SECONDS)

    def _end(self, number: signal.Signals, seconds: float) -> None:
        if self._process is None:
            return
        try:
            self._process.send_signal(number)
            self._process.wait(seconds)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait(STOP_SECONDS)
            self._process = None
            if self._output is not None:
                self._output.close()

    def output(self) -> str:
        """The log of Kafka, which has only errors."""
        return (self._folder / "output").read_text()

    def __enter__(self) -> RestartableKafka:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
