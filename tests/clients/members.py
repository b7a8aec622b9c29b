"""Members of groups by real clients, each a process that can be killed: the commands sent to them and the events that they report.

Java members share a JVM, except a member that is to be killed: `alone`. The programs are in `programs/` and in
`java/MemberProbe.java`; all understand the commands
of `programs/life.py`. Producers, which belong to no group, run in such processes too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.oracle import JAVA
from tests.running import environment
from tests.support.cache import CACHE, cached

JAVA_SOURCES = Path(__file__).parent / "java"
MEMBER_PROBE, PRODUCER_PROBE = "MemberProbe", "ProducerProbe"
AWAIT_SECONDS = 40.0  # a busy machine starts five interpreters and a JVM in that time
END_SECONDS = 10.0
COMPILE_SECONDS = 120
JAVA_RELEASE = "11"  # the oldest that Kafka's clients run on

Event = dict[str, Any]
TopicPartition = tuple[str, int]  # topic and partition


class ClientKind(NamedTuple):
    """A client, and its differences from the others."""

    name: str
    program: str  # a module of Python; empty: Java
    cooperative: bool  # whether the client has cooperative-sticky
    fenced: str | None  # the error of the older of two processes with the same instance id; None: it takes the seat back

    def __str__(self) -> str:
        return self.name


KAFKA_PYTHON = ClientKind("kafka-python", "kafka_python_member", True, "FencedInstanceIdError")
AIOKAFKA = ClientKind("aiokafka", "aiokafka_member", False, None)
CONFLUENT = ClientKind("confluent-kafka", "confluent_member", True, "_FENCED|FENCED_INSTANCE_ID")
JAVA_CLIENT = ClientKind("java", "", True, "FencedInstanceIdException")
KINDS = (KAFKA_PYTHON, AIOKAFKA, CONFLUENT, JAVA_CLIENT)


class Listener(Protocol):
    name: str

    def add_event(self, event: Event) -> None: ...


class MemberProcess:
    """A process with members; its output lines are passed to the members that they name."""

    def __init__(self, command: Sequence[str | Path], errors: Path) -> None:
        self._errors = errors
        with errors.open("w") as stream:
            self.process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                env=environment(PYTHONWARNINGS="ignore"),
            )
        self._members: dict[str, Listener] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def add(self, member: Listener) -> None:
        self._members[member.name] = member

    def write(self, command: Event) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            member = self._members[event["member"]] if "member" in event else next(iter(self._members.values()))
            member.add_event(event)

    def output(self) -> str:
        """The standard error of the process so far."""
        return self._errors.read_text()

    def kill(self) -> None:
        """Kill -9, after reading all previous output."""
        self.process.kill()
        self.process.wait(END_SECONDS)
        self._reader.join(END_SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # the process had ended before it read a buffered command
                    stream.close()


class Member:
    """One process of a member; a restart begins another `Member`."""

    def __init__(self, kind: ClientKind, host: MemberProcess, name: str, instance: str | None, owns_host: bool) -> None:
        self.kind = kind
        self.name = name
        self.instance = instance
        self.events: list[Event] = []
        self.partitions: set[TopicPartition] = set()  # its current assignment
        self.over = False
        self.steady_from = 0  # the number of its first event after the group had settled
        self._closed_from: int | None = None
        self._host = host
        self._owns_host = owns_host
        self._event_added = threading.Condition()
        host.add(self)

    @property
    def name_in_replies(self) -> str:
        """The name by which tests find this member in the coordinator's replies: the instance id, or the client id of the first process."""
        return self.instance or self.name

    def __repr__(self) -> str:
        return f"{self.name} ({self.kind}): {sorted(self.partitions)}"

    def add_event(self, event: Event) -> None:
        with self._event_added:
            partitions = {(topic, partition) for topic, partition in event.get("partitions", ())}
            match event["event"]:
                case "assigned":
                    self.partitions |= partitions
                case "revoked" | "lost":
                    self.partitions -= partitions
            self.events.append(event)
            self._event_added.notify_all()

    def do(self, word: str, **more: object) -> None:
        self._host.write({"do": word, "name": self.name} | more)

    def do_and_wait(self, word: str) -> None:
        """Send a command to the member, and wait until it is done."""
        since = len(self.events)
        self.do(word)
        self.await_event(lambda event: event["event"] == "did" and event["word"] == word, since=since)

    def disturbances(self) -> list[Event]:
        """What this member's application would notice between the last settled state of the group and the end of the member."""
        meanwhile = list(self.events)[self.steady_from : self._closed_from]
        lost = [event for event in meanwhile if event["event"] in ("revoked", "lost") and event["partitions"]]
        return lost + [event for event in meanwhile if event["event"] in ("error", "commit_refused")]

    def events_named(self, *names: str, since: int = 0) -> list[Event]:
        return [event for event in list(self.events)[since:] if event["event"] in names]

    def check_alive(self) -> None:
        if not self.over:
            assert self._host.process.poll() is None, f"{self!r} has ended: {self.events[-10:]}; {self._host.output()[-2000:]}"

    def await_event(self, matches: Callable[[Event], bool], since: int = 0) -> Event:
        until = time.monotonic() + AWAIT_SECONDS
        with self._event_added:
            while True:
                for event in self.events[since:]:
                    if matches(event):
                        return event
                since = len(self.events)
                remaining_s = until - time.monotonic()
                assert remaining_s > 0, f"{self!r} never reported it: {self.events[-10:]}; {self._host.output()[-2000:]}"
                self.check_alive()
                self._event_added.wait(min(remaining_s, 1.0))

    def await_progress(self) -> None:
        """Wait until the member has consumed and committed a new record."""
        since = len(self.events)
        records = self.await_event(lambda event: event["event"] == "records", since)
        self.await_event(lambda event: event["event"] == "committed" and event["at"] >= records["at"], since)

    def await_error(self) -> str:
        name: str = self.await_event(lambda event: event["event"] in ("error", "commit_refused"))["name"]
        return name

    def close(self) -> None:
        """Close the consumer, as an application does that ends in order."""
        since = self._closed_from = len(self.events)
        self.do("close")
        self.await_event(lambda event: event["event"] == "closed", since)
        self.over = True
        if self._owns_host:
            assert self._host.process.wait(END_SECONDS) == 0, self._host.output()
            self._host.kill()

    def kill(self) -> None:
        assert self._owns_host, f"{self!r} shares a JVM"
        self.over = True
        self._host.kill()
        self._closed_from = len(self.events)

    def end(self) -> None:
        """End the member in whatever state it is, at the end of a test."""
        if self.over:
            return
        self.over = True
        if self._owns_host:
            self._host.kill()
        else:
            self.do("close")


def python_host(kind: ClientKind, errors: Path) -> MemberProcess:
    return MemberProcess([sys.executable, "-P", "-m", f"tests.clients.programs.{kind.program}"], errors)


def python_producer_host(kind: ClientKind, errors: Path) -> MemberProcess:
    return MemberProcess([sys.executable, "-P", "-m", "tests.clients.programs.producer", kind.name], errors)


def compiled_probe(jars: Path) -> Path:
    """The folder of the probes' classes, compiled again when a source changes."""
    sources = [JAVA_SOURCES / f"{name}.java" for name in (MEMBER_PROBE, PRODUCER_PROBE)]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()

    def compile_into(folder: Path) -> Path:
        command = ["javac", "--release", JAVA_RELEASE, "-cp", f"{jars}/*", "-d", str(folder / "classes"), *map(str, sources)]
        subprocess.run(command, check=True, timeout=COMPILE_SECONDS)
        (folder / "classes" / "log4j2.properties").write_text("rootLogger.level=off\n")
        return folder / "classes"

    return cached(CACHE / f"member-probe-{digest[:16]}", compile_into)


def java_host(jars: Path, classes: Path, errors: Path, program: str = MEMBER_PROBE) -> MemberProcess:
    options = ["-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={classes / 'log4j2.properties'}", "-cp", f"{classes}:{jars}/*"]
    return MemberProcess([*JAVA, *options, program], errors)
