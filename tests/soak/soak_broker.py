"""The broker of the soak: one directory and one port, and a process that is started and killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.kafka_process import free_ports
from tests.running import Broker, Client, environment

SETTINGS = (
    "group.initial.rebalance.delay.ms=50",
    "group.min.session.timeout.ms=100",
    "offsets.topic.num.partitions=4",
    "offsets.topic.segment.bytes=50000",  # small segments, so that some kills happen during a roll
    "offsets.flush.interval.ms=20",
    "log.format=console",
)
# A line of log.format=console has time, level, message.
COMPLAINT = re.compile(r"\S+ (error|critical) |.*(Traceback|Exception)")
VERIFY = (sys.executable, "-P", "-m", "tenure", "log", "verify", "--json")


class SoakBroker:
    def __init__(self, data: Path) -> None:
        self.data = data
        (self.port,) = free_ports(1)
        self.complaints: list[str] = []
        self.start_seconds: list[float] = []
        self._broker: Broker | None = None

    def _arguments(self, settings: tuple[str, ...]) -> list[str]:
        arguments = ["--data", str(self.data), "--listen", f"127.0.0.1:{self.port}"]
        for setting in (*SETTINGS, *settings):
            arguments += ["--set", setting]
        return arguments

    def start(self, *settings: str) -> None:
        self._broker = Broker(*self._arguments(settings))
        self.start_seconds.append(self._broker.started_after)

    def start_and_kill(self, after_seconds: float, *settings: str) -> None:
        """Start the broker and kill it after this time, perhaps before it can serve clients."""
        process = subprocess.Popen(
            (sys.executable, "-P", "-m", "tenure", "serve", *self._arguments(settings)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
            cwd=os.sep,
        )
        time.sleep(after_seconds)
        process.kill()
        process.wait()

    def kill(self) -> None:
        broker = self._broker
        assert broker is not None
        ended = broker.process.poll()
        broker.kill()
        if ended is not None:
            self.complaints += [f"the broker ended by itself with {ended}", *broker.lines[-20:]]
        else:
            self._collect(broker)
        self._broker = None
        self._verify()

    def stop(self) -> int:
        """An orderly stop."""
        assert self._broker is not None
        code = self._broker.stop()
        self._collect(self._broker)
        self.kill_if_alive()
        return code

    def _collect(self, broker: Broker) -> None:
        self.complaints += [line for line in broker.lines if COMPLAINT.match(line)]

    def _verify(self) -> None:
        """Run `tenure log verify` on the data directory after a kill."""
        done = subprocess.run((*VERIFY, str(self.data)), capture_output=True, text=True, env=environment(), cwd=os.sep, check=False)
        if done.returncode:
            problems = [line for line in done.stdout.splitlines() if '"level": "problem"' in line]
            self.complaints += [f"tenure log verify ended with {done.returncode}", *(problems or [done.stderr])]

    def kill_if_alive(self) -> None:
        if self._broker is not None:
            self._broker.kill()
            self._broker = None

    def create_topic(self, name: str, partitions: int) -> None:
        with Client(self.port) as client:
            reply = client.ask(CreateTopicsRequest([CreatableTopic(name, partitions, 1)]), 5)
            assert reply.topics[0].error_code == 0, reply
