"""Records the log of a real Kafka with consumer groups, which `kafka_written` keeps: `python -m tests.history.kafka_log` (needs Java and Maven).

Group `tills`: two members join, one gives half of its partitions up late; a static one goes away (-2) and is back; the topic grows; a member falls
silent; all leave. Group `audit`: subscribed by a regular expression, and a member that never gives up what it was told to.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

from tests.coordinator.consumer.kafka_player import KafkaPlayer
from tests.oracle import NEWEST_VERSION, kafka_jars
from tests.sequences.worlds import await_coordinator

WRITTEN = Path(__file__).parent / "kafka_written"
SESSION_MS = 4_000
SETTINGS = {
    "group_consumer_assignment_interval_ms": "0",
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_min_heartbeat_interval_ms": "100",
    "group_consumer_heartbeat_interval_ms": "1000",
    "group_consumer_session_timeout_ms": str(SESSION_MS),
    "offsets_topic_num_partitions": "1",
    "offsets_topic_segment_bytes": "1048576",
}
TOPIC = "sales"


class Members:
    """Members of one group, each with its epoch and partitions."""

    def __init__(self, player: KafkaPlayer) -> None:
        self.player = player
        self.owned: dict[str, dict[str, list[int]]] = {}
        self.epochs: dict[str, int] = {}

    def join(self, id: str, **more: object) -> None:
        answer = self.player.beat(id, 0, timeout=more.pop("timeout", 60_000), owned={}, **{"topics": [TOPIC], **more})  # type: ignore[arg-type]
        assert not answer["error"], answer
        self.epochs[id], self.owned[id] = answer["epoch"], answer["assigned"]

    def beat(self, *ids: str, keeps: bool = False) -> None:
        """A heartbeat of each; it acknowledges at once what it was told to give up, unless it keeps it."""
        for id in ids:
            answer = self.player.beat(id, self.epochs[id], owned=self.owned[id])
            assert not answer["error"], answer
            self.epochs[id] = answer["epoch"]
            if answer["assigned"] is not None and not keeps:
                self.owned[id] = answer["assigned"]
            time.sleep(0.02)

    def commit(self, id: str) -> None:
        assert not self.player.commit(id, self.epochs[id], self.owned[id])["error"]

    def go(self, id: str, epoch: int = -1, instance: str | None = None) -> None:
        assert not self.player.beat(id, epoch, instance)["error"]


def play_tills(port: int) -> None:
    player = KafkaPlayer(port, "tills")
    player.topic(TOPIC, 4)
    await_coordinator(player.client, player.group)
    members = Members(player)
    members.join("ada")
    members.commit("ada")
    time.sleep(1)
    members.join("bob-1", instance="bob")
    members.beat("ada", keeps=True)  # told to give up two partitions; it needs a second and a half
    members.owned["ada"] = {TOPIC: [0, 1, 2, 3]}
    members.beat("ada", "bob-1", keeps=True)
    time.sleep(1.5)
    members.owned["ada"] = player.look()["members"]["ada"]["target"]
    members.beat("ada", "bob-1", "bob-1")
    for id in ("ada", "bob-1"):
        members.commit(id)
    time.sleep(0.5)
    members.go("bob-1", -2, "bob")
    time.sleep(0.7)
    members.join("bob-2", instance="bob")
    members.beat("ada", "bob-2")
    player.topic(TOPIC, 6)
    members.beat("ada", "bob-2", "ada", "bob-2")
    members.join("cyd")
    members.beat("ada", "bob-2", "ada", "bob-2", "cyd")
    for _ in range(SESSION_MS // 1_000 + 1):
        time.sleep(1)
        members.beat("ada", "bob-2")
    members.beat("ada", "bob-2", "ada", "bob-2")
    members.go("ada")
    members.beat("bob-2")
    members.go("bob-2", instance="bob")
    player.close()


def play_audit(port: int) -> None:
    player = KafkaPlayer(port, "audit")
    player.topic("log-a", 2)
    player.topic("log-b", 2)
    members = Members(player)
    members.join("eve", topics=[], regex="log-.*", timeout=2_000)
    time.sleep(0.5)
    members.beat("eve", "eve")
    members.join("fay", topics=["log-a", "log-b"])
    for _ in range(2):
        members.beat("eve", keeps=True)
        members.beat("fay")
        time.sleep(1.2)
    members.beat("fay", "fay")
    player.close()


def main() -> None:
    version = NEWEST_VERSION
    os.environ.setdefault("KAFKA_JARS", str(kafka_jars(version)))
    from tests.kafka_process import kafka_folder, running_kafka

    with kafka_folder(**SETTINGS) as (folder, port):
        with running_kafka(folder, port):
            play_tills(port)
            play_audit(port)
            time.sleep(1)
        shutil.rmtree(WRITTEN, ignore_errors=True)
        source = folder / "data" / "__consumer_offsets-0"
        target = WRITTEN / source.name
        target.mkdir(parents=True)
        shutil.copy(source / "partition.metadata", target)
        shutil.copy(source / f"{0:020}.log", target)
        print(sum(path.stat().st_size for path in target.iterdir()), "bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
