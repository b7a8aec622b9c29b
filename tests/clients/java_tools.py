"""Kafka's command line tools, by the names of their scripts, one after the other in one JVM."""

from __future__ import annotations

import base64
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.clients.each import java_probe

SOURCE = Path(__file__).parent / "java" / "Tools.java"
SECONDS = 90  # for each tool; the slowest wait for a group to settle
CLASSES = {
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line that is not empty."""
        return [line.split() for line in self.out.splitlines() if line.strip()]


class Tools:
    """The JVM in which the tools run. If a tool hangs, the JVM is ended, and later tests fail."""

    def __init__(self, probe: subprocess.Popen[str]) -> None:
        self._probe = probe

    def run(self, script: str, *arguments: str | int | Path, stdin: str = "") -> CommandResult:
        assert self._probe.stdin
        assert self._probe.stdout
        words = [CLASSES[script], stdin, *map(str, arguments)]
        self._probe.stdin.write(" ".join(base64.b64encode(word.encode()).decode() for word in words) + "\n")
        self._probe.stdin.flush()
        guard = threading.Timer(SECONDS, self._probe.kill)
        guard.start()
        answer = self._probe.stdout.readline()
        guard.cancel()
        assert answer, f"{script} {' '.join(map(str, arguments))} did not end within {SECONDS} s, or took the JVM along"
        code, out, err = answer.rstrip("\n").split(" ")
        return CommandResult(int(code), base64.b64decode(out).decode(), base64.b64decode(err).decode())


@contextmanager
def java_tools(folder: Path) -> Iterator[Tools]:
    """Skips the test where there is no Java, or no Maven to fetch Kafka's jars with."""
    with java_probe(folder, SOURCE) as probe:
        yield Tools(probe)
