"""`python -m bench.converge`: what it costs until the groups of the consumer protocol have taken over a topic that has grown.

Ten thousand members of a hundred groups read one topic. Each time it grows, each member sends heartbeats, round after round, until all members of its
group own what the new target gives them. The figure is the processor time of the server from the first heartbeat after the growth to the last.
With --kafka also Apache Kafka, in turn, after as many growths to warm up.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.kafka import kafka
from bench.machine import choose_cores, pinned
from bench.servers import Server, broker
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatRequestTopicPartitions
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.running import Client

BEAT_VERSION: Final = 1
TOPIC: Final = "grows"
REBALANCE_MS: Final = 300_000
NOT_YET: Final = (14, 15, 16)  # the coordinator is loading, or not known
TIMEOUT_SECONDS: Final = 120.0
OF_KAFKA_AT_MOST: Final = 0.6
SESSION_MS: Final = 900_000  # members say nothing while the other server is measured
SETTINGS: Final = (
    "group.consumer.assignment.interval.ms=0",
    "group.consumer.max.size=100000",
    f"group.consumer.session.timeout.ms={SESSION_MS}",
    f"group.consumer.max.session.timeout.ms={SESSION_MS}",
)


class Member:
    def __init__(self, group: str, number: int) -> None:
        self.group = group
        self.id = f"{group}-{number:06d}"
        self.epoch = 0
        self.owns: list[Any] | None = []  # what it has to report; None: nothing new
        self.partitions = 0

    def words(self) -> ConsumerGroupHeartbeatRequest:
        joins = self.epoch == 0
        owned, self.owns = self.owns, None
        return ConsumerGroupHeartbeatRequest(
            self.group, self.id, self.epoch, rebalance_timeout_ms=REBALANCE_MS if joins else -1, subscribed_topic_names=[TOPIC] if joins else None, topic_partitions=owned
        )

    def hear(self, reply: Any) -> None:
        if reply.error_code in NOT_YET and self.epoch == 0:
            self.owns = []
            return
        if reply.error_code:
            raise SystemExit(f"converge: {self.id} was refused: {reply.error_code} {reply.error_message}")
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            given = reply.assignment.topic_partitions
            self.owns = [ConsumerGroupHeartbeatRequestTopicPartitions(topic.topic_id, topic.partitions) for topic in given]
            self.partitions = sum(len(topic.partitions) for topic in given)


class Groups:
    """All members of a server, a connection for each group."""

    def __init__(self, server: Server, groups: int, members: int, partitions: int) -> None:
        self.server = server
        self.partitions = partitions
        self.growths: list[float] = []
        self._groups = [[Member(f"g{group}", number) for number in range(members // groups)] for group in range(groups)]
        self._admin = connected(server.port)
        self._links = [connected(server.port) for _ in range(groups)]
        made = self._admin.ask(CreateTopicsRequest([CreatableTopic(TOPIC, partitions, 1)], 60_000), 5)
        if made.topics[0].error_code:
            raise SystemExit(f"converge: no topic: {made.topics[0].error_code}")
        for group in range(groups):  # which creates __consumer_offsets
            self._admin.ask(FindCoordinatorRequest(coordinator_keys=[f"g{group}"]), 4)
        time.sleep(5.0)
        self.converge()

    def grow(self, by: int) -> None:
        """One growth, measured."""
        self.partitions += by
        grown = self._admin.ask(CreatePartitionsRequest([CreatePartitionsTopic(TOPIC, self.partitions)], 60_000), 3)
        if grown.results[0].error_code:
            raise SystemExit(f"converge: the topic did not grow: {grown.results[0].error_code}")
        time.sleep(2.0)  # the new partitions are made
        begun = cpu_seconds(self.server.pid)
        self.converge()
        self.growths.append(cpu_seconds(self.server.pid) - begun)

    def converge(self) -> int:
        """Heartbeats of the groups that have not converged, in rounds; returns the number of heartbeats."""
        waiting = list(range(len(self._groups)))
        until = time.monotonic() + TIMEOUT_SECONDS
        beats = 0
        while waiting:
            if time.monotonic() > until:
                raise SystemExit(f"converge: {len(waiting)} groups have not converged in {TIMEOUT_SECONDS:g} s")
            sent = [(number, member, member.words()) for number in waiting for member in self._groups[number]]
            for number, _, words in sent:
                self._links[number].send(words, BEAT_VERSION)
            for number, member, words in sent:
                member.hear(self._links[number].receive(words, BEAT_VERSION))
            beats += len(sent)
            waiting = [number for number in waiting if not self._has_converged(self._groups[number])]
        return beats

    def _has_converged(self, group: list[Member]) -> bool:
        whole = sum(member.partitions for member in group) == self.partitions and len({member.epoch for member in group}) == 1
        return whole and all(member.owns is None for member in group)


def connected(port: int) -> Client:
    client = Client(port, client_id="converge")
    client.socket.settimeout(TIMEOUT_SECONDS)
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def cpu_seconds(pid: int) -> float:
    """Of the whole process, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.converge", description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--members", type=int, default=10_000, help="of all groups together")
    parser.add_argument("--partitions", type=int, default=1_000, help="of the topic at first (1,000)")
    parser.add_argument("--by", type=int, default=100, help="partitions that a growth adds (100)")
    parser.add_argument("--growths", type=int, default=5, help="measured growths (5)")
    parser.add_argument("--warm-up", type=int, default=10, help="growths before them (10)")
    parser.add_argument("--kafka", type=lambda text: Path(text).resolve(), metavar="JARS", help="measure Apache Kafka too, from this folder of jars")
    parser.add_argument("--check", action="store_true", help=f"more than {OF_KAFKA_AT_MOST:g} of Kafka's is a failure")
    options = parser.parse_args()
    cores = choose_cores()
    with ExitStack() as stack:
        servers = {"ours": stack.enter_context(broker(cores.server, *SETTINGS))}
        if options.kafka is not None:
            servers["kafka"] = stack.enter_context(kafka(options.kafka, cores.server, *SETTINGS))
        with pinned(cores.generator):
            groups = {name: Groups(server, options.groups, options.members, options.partitions) for name, server in servers.items()}
            for number in range(options.warm_up + options.growths):
                for each in groups.values():
                    each.grow(options.by)
                print(f"growth {number + 1}: " + ", ".join(f"{name} {each.growths[-1]:.2f} s" for name, each in groups.items()), file=sys.stderr)
    costs = {name: median(each.growths[-options.growths :]) for name, each in groups.items()}
    print(", ".join(f"{name}: {cost:.2f} s of CPU" for name, cost in costs.items()))
    if "kafka" not in costs:
        return 0
    ratio = costs["ours"] / costs["kafka"]
    print(f"ours / kafka: {ratio:.2f}, at most {OF_KAFKA_AT_MOST:g}")
    return int(options.check and ratio > OF_KAFKA_AT_MOST)


if __name__ == "__main__":
    sys.exit(main())
