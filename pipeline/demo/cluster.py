"""The simulated cluster: growing topics, and services that consume them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from coordinator import partition_of
from pipeline.demo.topics import DAY_MS, Topic
from pipeline.virtual import Client, World
from protocol.messages.coordinator_notes import EndOffsets, PartitionEnds

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
START_MS: Final = 1_760_918_400_000  # a Monday, 00:00 UTC


@dataclass(slots=True)
class Deploy:
    """A rolling restart of a service."""

    group: str
    name: str
    start_ms: int
    end_ms: int
    restarted: int
    static: bool


@dataclass(slots=True)
class Stuck:
    """A partition whose consumer is stuck."""

    group: str
    topic: str
    partition: int
    since_ms: int
    committed: int
    how: str


@dataclass(slots=True)
class Cluster:
    """`membership` overrides the membership of all members: "static", "dynamic", or "" for no override. `commits` False: simulate only rebalances.
    `hostile`: two groups more, whose names no page and no terminal may take literally.
    """

    world: World
    days: float
    commits: bool = True
    membership: str = ""
    hostile: bool = False
    topics: dict[str, Topic] = field(default_factory=dict)
    services: dict[str, Service] = field(default_factory=dict)
    deploys: list[Deploy] = field(default_factory=list)
    stuck: list[Stuck] = field(default_factory=list)
    remarks: list[dict[str, Any]] = field(default_factory=list)  # other scripted events, with their times
    _noted: dict[tuple[str, int], tuple[dict[int, tuple[int, int]], int]] = field(default_factory=dict)  # by topic and epoch: the end offsets in the last note, and its time

    @property
    def end_ms(self) -> int:
        return self.world.start_ms + int(self.days * DAY_MS)

    def moment(self, day: int, hour: int, minute: int = 0) -> int:
        return self.world.start_ms + day * DAY_MS + hour * HOUR_MS + minute * MINUTE_MS

    def at(self, moment: int, step: Callable[..., object], *arguments: object) -> None:
        """Schedule a step, unless it is after the end, so that a shorter simulation equals the beginning of a longer one."""
        if moment < self.end_ms:
            self.world.at(moment, step, *arguments)

    def topic(self, name: str, partitions: int, per_s: float, retention_ms: int = 7 * DAY_MS) -> Topic:
        topic = self.topics[name] = Topic(name, partitions, per_s, self.world.start_ms, retention_ms)
        return topic

    def service(self, group: str, topics: Mapping[str, int], count: int, **settings: Any) -> Service:
        service = self.services[group] = Service(self, group, topics, **settings)
        service.scale(count)
        return service

    def remark(self, what: str, group: str | None, from_ms: int, to_ms: int, **details: Any) -> None:
        if from_ms < self.end_ms:
            self.remarks.append({"what": what, "group": group, "from_ms": from_ms, "to_ms": to_ms} | details)

    def note_ends(self, every_ms: int) -> None:
        """Write end offset notes for changed topics, in the notes partition that the topic's name hashes to."""
        now = self.world.now
        for topic in self.topics.values():
            partition = self.world.partitions[partition_of(topic.name, len(self.world.partitions))]
            if partition.shard is None:
                continue
            last_ends, last_ms = self._noted.get((topic.name, partition.epoch), ({}, -1))
            ends = {number: (topic.log_start(number, now), topic.end(number, now)) for number in range(topic.partitions)}
            changed = [PartitionEnds(number, *both) for number, both in ends.items() if last_ends.get(number) != both]
            if changed:
                partition.add_note(EndOffsets(topic.name, changed, last_ms))
            self._noted[topic.name, partition.epoch] = ends, now
        self.at(now + every_ms, self.note_ends, every_ms)


class Service:
    """The processes of one group. Each reads at most `per_s` records a second and partition, and commits its position."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Mapping[str, int],
        *,
        name: str = "",
        static: bool = False,
        per_s: float = 1_000,
        commit_ms: int = 180_000,
        shared_client_id: str | None = None,
        hosts: str = "/10.1.0.{}",
        **settings: Any,
    ) -> None:
        self.cluster = cluster
        self.group = group
        self.name = name or group
        self.topics = dict(topics)
        self.static = {"static": True, "dynamic": False, "": static}[cluster.membership]
        self.pods: list[Client] = []
        self.stuck: set[tuple[str, int]] = set()
        self._per_ms = per_s / 1000
        self._commit_ms = commit_ms
        self._shared_client_id = shared_client_id
        self._hosts = hosts
        self._settings = settings
        self._read: dict[tuple[str, int], tuple[int, int]] = {}  # the position, and its time

    # Events

    def scale(self, count: int) -> None:
        while len(self.pods) < count:
            self.pods.append(self._pod(len(self.pods)))
        for number, pod in enumerate(self.pods):
            if number < count and not pod.alive:
                pod.start()
            elif number >= count:
                pod.stop()

    def scale_at(self, moment: int, count: int) -> None:
        self.cluster.at(moment, self.scale, count)

    def deploy(self, moment: int, name: str, *, away_ms: tuple[int, int], every_ms: int = 40_000, new_hosts: bool = False) -> None:
        """Restart the processes one by one."""
        cluster = self.cluster
        if moment >= cluster.end_ms:
            return
        deploy_record = Deploy(self.group, name, moment, moment, 0, self.static)
        cluster.deploys.append(deploy_record)
        for number, pod in enumerate(list(self.pods)):
            cluster.at(moment + number * every_ms, self._restart, pod, deploy_record, away_ms, f"/10.2.{moment // HOUR_MS % 200}.{number}" if new_hosts else None)

    def _restart(self, pod: Client, deploy: Deploy, away_ms: tuple[int, int], host: str | None) -> None:
        if pod.alive:
            away = self.cluster.world.random.randrange(*away_ms)
            pod.restart(away, host=host)
            deploy.restarted += 1
            deploy.end_ms = self.cluster.world.now + away

    def block_partition(self, moment: int, topic: str, partition: int) -> None:
        """Block a partition from that moment on, as by a record that cannot be processed: its consumer commits the same offset again and again."""

        def stick() -> None:
            self.stuck.add((topic, partition))
            position = self._read_until(topic, partition)
            self.cluster.stuck.append(Stuck(self.group, topic, partition, self.cluster.world.now, position, "commits the same offset again"))

        self.cluster.at(moment, stick)

    # Consumption

    def _pod(self, number: int, name: str = "", instance: str | None = None) -> Client:
        name = name or f"{self.name}-{number}"
        pod = self.cluster.world.client(
            self.group,
            name,
            topics=self.topics,
            instance=(instance or name) if self.static else None,
            client_id=self._shared_client_id or name,
            host=self._hosts.format(number + 10),
            **self._settings,
        )
        if self.cluster.commits:
            pod.on_revoked = self.commit
            self.cluster.world.at(self.cluster.world.now + (number + 1) * self._commit_ms // 40, self._commit_periodically, pod)
        return pod

    def add(self, number: int, name: str, instance: str | None = None) -> Client:
        """Add a process with a unique name."""
        pod = self._pod(number, name, instance)
        self.pods.append(pod)
        return pod

    def _commit_periodically(self, pod: Client) -> None:
        if pod.working:
            self.commit(pod)
        self.cluster.at(self.cluster.world.now + self._commit_ms, self._commit_periodically, pod)

    def commit(self, pod: Client) -> None:
        offsets: dict[str, list[tuple[int, int]]] = {}
        for topic, partition in pod.owned:
            offsets.setdefault(topic, []).append((partition, self._read_until(topic, partition)))
        if offsets:
            pod.commit(offsets)

    def _read_until(self, topic: str, partition: int) -> int:
        """The offset up to which the service has read the partition.

        It advances at the service's reading rate, at most to the end offset, and stands still for a stuck partition.
        """
        now = self.cluster.world.now
        log = self.cluster.topics[topic]
        position, at = self._read.get((topic, partition), (log.end(partition, now), now))
        if (topic, partition) not in self.stuck:
            position = max(min(log.end(partition, now), position + int((now - at) * self._per_ms)), position)
        self._read[topic, partition] = position, now
        return position
