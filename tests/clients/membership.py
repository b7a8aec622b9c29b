"""A group of real clients over a broker that can be stopped and killed: its seats, its rebalances, and the records that it lost or read twice."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

import confluent_kafka

from protocol.messages.heartbeat import HeartbeatRequest
from protocol.records import read_assignment
from tests.clients.members import AWAIT_SECONDS, JAVA_CLIENT, ClientKind, Event, Member, MemberProcess, TopicPartition, python_host
from tests.running import Client
from tests.support.restartable import RestartableBroker, create_topic, described, stored_offsets

TOPIC = "orders"
FEED_SECONDS = 0.005  # between two messages
QUIET_SECONDS = 0.3  # how long a group must be as expected before it counts as settled
LOG_SECONDS = 10.0
HEARD_SECONDS = 5.0
OLD_HEARTBEAT = 1  # this version has no instance id

Seats = dict[str, tuple[str, frozenset[TopicPartition]]]  # by instance id or client id: member id, and partitions


class Feed:
    """A producer that continues whatever happens to the broker; `sent` has its acknowledged messages."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self.sent: dict[str, TopicPartition] = {}  # partition of each acknowledged value
        self._partitions = partitions
        self._numbers = count()
        self._refused: list[str] = []
        self._running: threading.Thread | None = None
        self._stopping = threading.Event()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, "reconnect.backoff.max.ms": 200, "log_level": 0}
        )

    def send_some(self, messages: int) -> None:
        """Send messages, and wait until they are acknowledged."""
        for _ in range(messages):
            self._send_one()
        self._flush()

    def begin(self, pause_seconds: float = FEED_SECONDS) -> None:
        self._stopping.clear()
        self._running = threading.Thread(target=self._run, args=(pause_seconds,), daemon=True)
        self._running.start()

    def end(self) -> None:
        if self._running is not None:
            self._stopping.set()
            self._running.join()
            self._running = None
            self._flush()

    def close(self) -> None:
        """Stop; messages that were not sent are dropped."""
        self._stopping.set()
        if self._running is not None:
            self._running.join()
        self._producer.purge()
        self._producer.flush(1)

    def _run(self, pause_seconds: float) -> None:
        while not self._stopping.wait(pause_seconds):
            self._send_one()
            self._producer.poll(0)

    def _send_one(self) -> None:
        number = next(self._numbers)
        value, partition = str(number), number % self._partitions
        self.sent[value] = (TOPIC, partition)
        self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._delivered)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._refused.append(str(error))

    def _flush(self) -> None:
        assert self._producer.flush(AWAIT_SECONDS) == 0
        assert not self._refused, self._refused[:3]


class Group:
    """One group on a separate broker. Members are named after their instance id, with a number for each start."""

    def __init__(self, folder: Path, jvm: Callable[[bool], MemberProcess], partitions: int = 6, **settings: str) -> None:
        self.name = "workers"
        self.restartable = RestartableBroker(folder / "data", *(f"{name.replace('_', '.')}={value}" for name, value in settings.items()))
        self.restartable.start()
        self.partition_count = partitions
        create_topic(self.port, TOPIC, partitions)
        self.members: list[Member] = []
        self.feed = Feed(self.bootstrap, partitions)
        self._folder = folder
        self._jvm = jvm
        self._lines: list[str] = []  # log lines of brokers that have ended
        self._hosts: list[MemberProcess] = []

    @property
    def port(self) -> int:
        return self.restartable.port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def partitions(self) -> set[TopicPartition]:
        return {(TOPIC, partition) for partition in range(self.partition_count)}

    # The broker.

    def stop_broker(self) -> None:
        assert self.restartable.broker is not None
        broker = self.restartable.broker
        self.restartable.stop()
        self._lines += broker.lines

    def kill_broker(self) -> None:
        assert self.restartable.broker is not None
        broker = self.restartable.broker
        self.restartable.kill()
        self._lines += broker.lines

    def start_broker(self) -> None:
        self.restartable.start()

    # Its members.

    def start(self, kind: ClientKind, instance: str | None = None, alone: bool = False, **settings: object) -> Member:
        life = sum(1 for member in self.members if member.instance == instance)
        name = f"{instance or kind.name}-{life}"
        shared = kind is JAVA_CLIENT and not alone
        if kind is JAVA_CLIENT:
            host = self._jvm(alone)
        else:
            host = python_host(kind, self._folder / f"{name}.errors")
        if not shared:
            self._hosts.append(host)
        member = Member(kind, host, name, instance, not shared)
        self.members.append(member)
        options = {"bootstrap": self.bootstrap, "group": self.name, "topics": [TOPIC], "instance": instance}
        member.do("start", **(options | settings))
        return member

    def describe(self) -> tuple[str, Seats]:
        """The group's state, and the member id and partitions of each seat, as the coordinator describes them."""
        group = described(self.port, self.name)
        seats: Seats = {}
        for member in group.members:
            assigned = read_assignment(bytes(member.member_assignment)).assigned_partitions if member.member_assignment else ()
            partitions = frozenset((topic.topic, partition) for topic in assigned for partition in topic.partitions)
            seats[member.group_instance_id or member.client_id] = (member.member_id, partitions)
        return group.group_state, seats

    def await_settled(self, *members: Member) -> None:
        """Wait until the group is stable with exactly these members, all partitions are assigned, and each member knows its assignment."""
        until = time.monotonic() + AWAIT_SECONDS
        since = 0.0
        while True:
            state, seats = self.describe()
            if not self._in_their_seats(state, seats, members):
                since = 0.0
            elif since == 0.0:
                since = time.monotonic()
            elif time.monotonic() > since + QUIET_SECONDS:
                break
            assert time.monotonic() < until, (state, seats, members, [member.events[-5:] for member in members], self.state_changes()[-5:])
            self.check_alive()
            time.sleep(0.02)
        self.generation()
        for member in members:
            member.steady_from = len(member.events)

    def _in_their_seats(self, state: str, seats: Seats, members: tuple[Member, ...]) -> bool:
        if state != "Stable" or seats.keys() != {member.name_in_replies for member in members}:
            return False
        owners = Counter(partition for _, partitions in seats.values() for partition in partitions)
        return owners == Counter(self.partitions) and all(member.partitions == seats[member.name_in_replies][1] for member in members)

    def check_alive(self) -> None:
        for member in self.members:
            member.check_alive()

    def go_through_restarts(self, members: Sequence[Member], end: Callable[[Group], None]) -> None:
        """The broker ends twice and is started again, while members consume what is sent all the while."""
        self.feed.begin()
        for _ in range(2):
            for member in members:
                member.await_progress()
            end(self)
            self.start_broker()
        for member in members:
            member.await_progress()
        self.feed.end()
        self.await_consumed()

    # Events.

    def state_changes(self) -> list[dict[str, Any]]:
        """Every logged state change of this group, by all broker processes of the test."""
        running = self.restartable.broker.lines if self.restartable.broker is not None else []
        lines = map(json.loads, [line for line in [*self._lines, *running] if '"event": "group"' in line])
        return [line for line in lines if line["group"] == self.name]

    def rebalances(self) -> list[str]:
        """The causes of rebalances, without rejoins of leaders: kafka-python's leaders rejoin when they learn of a topic."""
        return [line["cause"] for line in self.state_changes() if line["to"] == "preparing" and line["cause"] != "leader_rejoined"]

    def disturbances(self) -> dict[str, list[Event]]:
        return {member.name: noticed for member in self.members if (noticed := member.disturbances())}

    def generation(self) -> int:
        """The newest generation in the broker's log lines, once a heartbeat of every member in that generation succeeds.

        The broker writes its log lines a moment after its replies.
        """
        until = time.monotonic() + LOG_SECONDS
        _, seats = self.describe()
        with Client(self.port) as client:
            while True:
                number: int = self.state_changes()[-1]["generation"]
                beats = [HeartbeatRequest(self.name, number, member_id) for member_id, _ in seats.values()]
                codes = [client.ask(beat, OLD_HEARTBEAT).error_code for beat in beats]
                if not any(codes):
                    return number
                assert time.monotonic() < until, (number, codes, seats)
                time.sleep(0.02)

    # The fate of the messages.

    def await_consumed(self) -> None:
        """Wait until all sent records have been consumed and committed."""
        until = time.monotonic() + AWAIT_SECONDS
        ends = Counter(self.feed.sent.values())
        while True:
            committed = {partition: offset for partition, (offset, _) in stored_offsets(self.port, self.name).items()}
            if all(committed.get(partition) == end for partition, end in ends.items()):
                break
            missing = {partition: (committed.get(partition), end) for partition, end in ends.items() if committed.get(partition) != end}
            assert time.monotonic() < until, (missing, self.members, [member.events[-4:] for member in self.members])
            self.check_alive()
            time.sleep(0.05)
        # The members' output arrives through pipes, perhaps later.
        until = time.monotonic() + HEARD_SECONDS
        while self.lost() and time.monotonic() < until:
            time.sleep(0.02)

    def seen(self) -> Counter[str]:
        return Counter(value for member in self.members for event in member.events_named("records") for _, _, _, value in event["records"])

    def lost(self) -> set[str]:
        return self.feed.sent.keys() - self.seen().keys()

    def seen_twice(self) -> set[str]:
        return {value for value, times in self.seen().items() if times > 1}

    def seen_twice_without_need(self) -> set[str]:
        """Records that were read again after an acknowledged commit had passed them. Records of a member that was killed
        before its commit, and of a fenced member whose commit was refused, do not count."""
        past_events: list[Event] = []
        for member in self.members:
            events = member.events_named("records", "committed", "commit_refused")
            past_events += [event for event, then in zip_longest(events, events[1:]) if then is None or then["event"] != "commit_refused"]
        committed: dict[TopicPartition, int] = {}
        wrong: set[str] = set()
        for event in sorted(past_events, key=lambda event: event["at"]):
            for topic, partition, offset in event.get("positions", ()):
                committed[topic, partition] = max(offset, committed.get((topic, partition), 0))
            wrong |= {value for topic, partition, offset, value in event.get("records", ()) if offset < committed.get((topic, partition), 0)}
        return wrong

    def close(self) -> None:
        self.feed.close()
        for member in self.members:
            member.end()
        for host in self._hosts:
            host.kill()
        self.restartable.__exit__()

