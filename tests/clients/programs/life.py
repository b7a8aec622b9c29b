"""The life of a group member, the same for every client: read commands, poll, process, commit, report.

Commands come as lines of JSON on standard input, events go as lines of JSON to standard output; the first command is `start`
with the settings. The member is a careful application: it commits only after processing, and retries as long as the client
reports a retriable error. The program ends with its standard input, so that no test leaves a member behind.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

POLL_SECONDS = 0.1
COMMIT_RETRY_SECONDS = 20.0  # how long a commit is retried: longer than a restart of a broker
RETRY_SECONDS = 0.1


class Settings(NamedTuple):
    bootstrap: str
    name: str  # also the client id
    group: str
    topics: list[str]
    instance: str | None = None
    assignor: str = "range"
    session_ms: int = 60_000  # longer than a test
    heartbeat_ms: int = 200
    poll_interval_ms: int = 60_000
    protocol: str = "classic"  # or "consumer" (KIP-848): the coordinator has the timeouts and the assignor
    pattern: str = ""  # a regular expression that the broker resolves, in place of `topics`; with "consumer" only


class Record(NamedTuple):
    topic: str
    partition: int
    offset: int
    value: str


class CommitRefused(Exception):
    """The commit was refused; if `retriable`, a retry may succeed."""

    def __init__(self, error: Exception, retriable: bool, name: str = "") -> None:
        super().__init__(str(error))
        self.retriable = retriable
        self.name = name or type(error).__name__


class Refused(Exception):
    """Report that the client has failed, and the reason."""

    def __init__(self, error: BaseException, name: str = "") -> None:
        super().__init__(str(error))
        self.name = name or type(error).__name__


class Consumer(Protocol):
    def poll(self, seconds: float) -> Sequence[Record]:
        """Return the next records. Raises Refused."""

    def commit(self, positions: dict[tuple[str, int], int]) -> None:
        """Commit synchronously. Raises CommitRefused."""

    def unsubscribe(self) -> None: ...
    def close(self) -> None: ...


def report(event: str, **more: object) -> None:
    print(json.dumps({"event": event, "at": time.time()} | more), flush=True)


def report_partitions(event: str, partitions: Iterable[Any]) -> None:
    report(event, partitions=sorted([partition.topic, partition.partition] for partition in partitions))


def positions_behind(records: Iterable[Record]) -> dict[tuple[str, int], int]:
    return {(record.topic, record.partition): record.offset + 1 for record in records}


def report_records(records: Sequence[Record]) -> None:
    report("records", records=records)


def report_committed(positions: dict[tuple[str, int], int]) -> None:
    report("committed", positions=[[topic, partition, offset] for (topic, partition), offset in sorted(positions.items())])


def report_error(error: Refused) -> None:
    report("error", name=error.name, text=str(error))


def report_commit_refused(refused: CommitRefused) -> None:
    report("commit_refused", name=refused.name, text=str(refused))


def read_commands() -> queue.SimpleQueue[dict[str, Any]]:
    """Commands from standard input, as they arrive."""
    commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            commands.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return commands


def settings_of(command: dict[str, Any]) -> Settings:
    assert command.pop("do") == "start"
    return Settings(**command)


def commit_with_retries(consumer: Consumer, positions: dict[tuple[str, int], int]) -> None:
    until = time.monotonic() + COMMIT_RETRY_SECONDS
    while True:
        try:
            consumer.commit(positions)
        except CommitRefused as refused:
            if refused.retriable and time.monotonic() < until:
                time.sleep(RETRY_SECONDS)
                continue
            report_commit_refused(refused)
        else:
            report_committed(positions)
        return


def live(make: Callable[[Settings], Consumer], poll_seconds: float = POLL_SECONDS) -> None:
    """Run a member of a client that polls. `pause`: stop polling, as an application that processes for too long; `close`: leave the group."""
    commands = read_commands()
    consumer = make(settings_of(commands.get()))
    report("started")
    polling = True
    while True:
        while not polling or not commands.empty():
            word = commands.get()["do"]
            match word:
                case "pause" | "resume":
                    polling = word == "resume"
                case "unsubscribe":
                    consumer.unsubscribe()
                case "close":
                    consumer.close()
                    report("closed")
                    return
            report("did", word=word)
        try:
            records = consumer.poll(poll_seconds)
        except Refused as error:
            report_error(error)
            polling = False
            continue
        if records:
            report_records(records)
            commit_with_retries(consumer, positions_behind(records))
