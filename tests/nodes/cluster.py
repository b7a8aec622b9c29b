"""Several nodes under one supervisor (`tenure serve --nodes N`), to be killed one by one."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from protocol.batch import build_facts
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.running import Broker, Client, environment, wait_until

BROKER_RESOURCE = 4  # resource type in DescribeConfigs
METADATA_VERSION, FIND_COORDINATOR_VERSION, OFFSET_FETCH_VERSION, PRODUCE_VERSION = 12, 4, 8, 9
DESCRIBE_NEWER_VERSION = 1
DESCRIBE_GROUPS_VERSION, DESCRIBE_CONFIGS_VERSION, LIST_OFFSETS_VERSION = 5, 4, 6
LATEST = -1
SETTLED_SECONDS = 60.0
SERVICE_SECONDS = 30.0
Line = dict[str, Any]


def consecutive_ports(count: int) -> int:
    """The first of `count` consecutive free ports."""
    while True:
        first = random.randrange(20_000, 32_000 - count)
        with ExitStack() as opened, suppress(OSError):
            for port in range(first, first + count):
                opened.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


class Nodes:
    """The supervisor and its nodes; their ports stay the same over restarts."""

    def __init__(self, data: Path, count: int, *settings: str, first_port: int = 0, host: str = "127.0.0.1", proxied_port: int = 0) -> None:
        """`host`: the address that the nodes advertise.

        `proxied_port`: a second listener for clients advertises this port (`clients_port`).
        """
        self.data = data
        self.ids = range(1, count + 1)
        self.first_port = first_port or consecutive_ports(count)
        self.clients_port = self.first_port
        self.supervisor: Broker | None = None
        listeners = ["--listen", f"127.0.0.1:{self.first_port}", "--advertise", f"{host}:{self.first_port}"]
        if proxied_port:
            self.first_port = consecutive_ports(2 * count)
            self.clients_port = self.first_port + count
            listeners = [f"--set=listeners=NODES://127.0.0.1:{self.first_port},CLIENTS://127.0.0.1:{self.clients_port}"]
            listeners += [f"--set=advertised.listeners=NODES://127.0.0.1:{self.first_port},CLIENTS://{host}:{proxied_port}"]
        self._arguments = ["--nodes", str(count), *listeners, "--data", str(data)]
        self._arguments += [word for setting in settings for word in ("--set", setting)]

    def start(self) -> None:
        self.supervisor = Broker(*self._arguments)
        self.await_settled()

    @property
    def lines(self) -> list[Line]:
        """The log lines of the supervisor and of all nodes so far."""
        assert self.supervisor is not None
        return [json.loads(line) for line in list(self.supervisor.lines) if line.startswith("{")]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.port(id)}" for id in self.ids)

    def port(self, id: int) -> int:
        return self.first_port + id - 1

    def client(self, id: int) -> Client:
        return Client(self.port(id))

    def pid(self, id: int) -> int:
        """The process id of the node's newest process."""
        return next(int(line["pid"]) for line in reversed(self.lines) if line["event"] == "node is started" and line["node"] == id)

    def kill(self, *ids: int) -> None:
        self.signal(signal.SIGKILL, *ids)

    def signal(self, number: signal.Signals, *ids: int) -> None:
        for pid in [self.pid(id) for id in ids]:
            os.kill(pid, number)

    def drain(self, id: int) -> None:
        command = [sys.executable, "-P", "-m", "tenure", "node", "drain", str(id), "--bootstrap", self.bootstrap, "--timeout", "30"]
        subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL, check=True, timeout=SETTLED_SECONDS)

    def stop(self) -> int:
        assert self.supervisor is not None
        return self.supervisor.stop()

    def close(self) -> None:
        if self.supervisor is not None:
            self.supervisor.kill()  # the nodes end with their supervisor

    # The log lines and status of the nodes.

    def status(self, id: int) -> dict[str, str]:
        """The `status.*` entries of a node; empty while it does not answer."""
        try:
            with self.client(id) as client:
                reply = client.ask(DescribeConfigsRequest([DescribeConfigsResource(BROKER_RESOURCE, str(id), None)]), DESCRIBE_CONFIGS_VERSION)
        except OSError:
            return {}
        return {config.name: config.value for config in reply.results[0].configs if config.name.startswith("status.")}

    def is_settled(self, *without: int) -> bool:
        """Whether all nodes know each other, and each log is served by the node that should have it."""
        live_ids = [id for id in self.ids if id not in without]
        statuses = [self.status(id) for id in live_ids]
        return all(status.get("status.settled") == "true" and status["status.live.nodes"] == ",".join(map(str, live_ids)) for status in statuses)

    def await_settled(self, *without: int) -> None:
        wait_until(lambda: self.is_settled(*without), SETTLED_SECONDS, 0.05, lambda: [self.status(id) for id in self.ids])

    def controller(self) -> int:
        return next(id for id in self.ids if self.status(id).get("status.controller") == "true")

    def coordinator(self, group: str, node: int | None = None) -> int:
        """The group's coordinator, according to `node` or any node that answers; -1 while there is none."""
        for id in self.ids if node is None else (node,):
            with suppress(OSError), self.client(id) as client:
                (coordinator,) = client.ask(FindCoordinatorRequest(coordinator_keys=[group]), FIND_COORDINATOR_VERSION).coordinators
                if not coordinator.error_code:
                    return int(coordinator.node_id)
        return -1

    def described(self, group: str) -> DescribedGroup | None:
        """The group as its coordinator describes it; None while it has no coordinator."""
        with suppress(OSError):
            coordinator = self.coordinator(group)
            if coordinator in self.ids:
                with self.client(coordinator) as client:
                    group_reply: DescribedGroup = client.ask(DescribeGroupsRequest([group]), DESCRIBE_GROUPS_VERSION).groups[0]
                return None if group_reply.error_code else group_reply
        return None

    def described_newer(self, group: str) -> Any:
        """A group of the consumer protocol; None while it has no coordinator."""
        with suppress(OSError):
            coordinator = self.coordinator(group)
            if coordinator in self.ids:
                with self.client(coordinator) as client:
                    (found,) = client.ask(ConsumerGroupDescribeRequest([group]), DESCRIBE_NEWER_VERSION).groups
                return None if found.error_code else found
        return None

    def rebalances(self, group: str) -> list[str]:
        """The logged causes of rebalances, without rejoins of leaders: kafka-python's leader rejoins when it learns of a topic."""
        lines = [line for line in self.lines if line["event"] == "group" and line["group"] == group and line["to"] == "preparing"]
        return [line["cause"] for line in lines if line["cause"] != "leader_rejoined"]

    def builds(self) -> set[str]:
        """The builds that the nodes log at their start: compiled or plain, and the Python version."""
        return {line["build"] for line in self.lines if line["event"] == "listening"}

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The offsets of a group; empty while its coordinator does not answer."""
        with suppress(OSError):
            coordinator = self.coordinator(group)
            if coordinator in self.ids:
                with self.client(coordinator) as client:
                    group_reply = client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)]), OFFSET_FETCH_VERSION).groups[0]
                return {(topic.name, partition.partition_index): partition.committed_offset for topic in group_reply.topics for partition in topic.partitions}
        return {}

    def ends(self, id: int, topic: str, partitions: int) -> dict[int, int]:
        """The end offsets of those partitions of the topic that the node leads."""
        partitions_asked = [ListOffsetsPartition(partition, -1, LATEST) for partition in range(partitions)]
        with self.client(id) as client:
            (topic_reply,) = client.ask(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, partitions_asked)]), LIST_OFFSETS_VERSION).topics
        return {partition.partition_index: partition.offset for partition in topic_reply.partitions if not partition.error_code}


class ServiceProbe:
    """Measures how long partitions of a topic and groups were without service, as seen by a client of the live nodes."""

    def __init__(self, nodes: Nodes, topic: str, partitions: int, groups: int = 12) -> None:
        self._nodes = nodes
        self._topic = topic
        self._partitions = range(partitions)
        self._groups = [f"probe-{number}" for number in range(groups)]
        self._asked_nodes: list[int] = []

    def seconds(self, killed: tuple[int, ...], frozen: tuple[int, ...] = ()) -> float:
        """The seconds from now until each partition accepts a record and each group returns its offsets; `frozen` nodes get no requests."""
        begin = time.monotonic()
        survivor = next(id for id in self._nodes.ids if id not in (*killed, *frozen))
        self._asked_nodes = [id for id in self._nodes.ids if id not in frozen]
        partitions, groups = set(self._partitions), set(self._groups)
        while partitions or groups:
            assert time.monotonic() < begin + SERVICE_SECONDS, (partitions, groups, self._nodes.status(survivor))
            leaders = self._leaders(survivor)
            partitions = {partition for partition in partitions if not self._stored(leaders.get(partition, -1), partition)}
            groups = {group for group in groups if not self._fetched(self._nodes.coordinator(group, survivor), group)}
            if partitions or groups:
                time.sleep(0.005)
        return time.monotonic() - begin

    def _leaders(self, node: int) -> dict[int, int]:
        with self._nodes.client(node) as client:
            (topic,) = client.ask(MetadataRequest([MetadataRequestTopic(name=self._topic)], False), METADATA_VERSION).topics
        return {partition.partition_index: partition.leader_id for partition in topic.partitions}

    def _stored(self, leader: int, partition: int) -> bool:
        if leader not in self._asked_nodes:
            return False
        data = [PartitionProduceData(partition, build_facts([(b"key", b"value")], int(time.time() * 1000)))]
        with suppress(OSError), self._nodes.client(leader) as client:
            reply = client.ask(ProduceRequest(None, -1, 1_000, [TopicProduceData(self._topic, data)]), PRODUCE_VERSION)
            return not reply.responses[0].partition_responses[0].error_code
        return False

    def _fetched(self, coordinator: int, group: str) -> bool:
        if coordinator not in self._asked_nodes:
            return False
        with suppress(OSError), self._nodes.client(coordinator) as client:
            reply = client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)]), OFFSET_FETCH_VERSION)
            return not reply.groups[0].error_code
        return False
