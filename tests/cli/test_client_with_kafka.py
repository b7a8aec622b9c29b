"""The client against Apache Kafka: its controller, and a cluster of several brokers. test_secured_with_kafka.py: its secured listeners."""

from __future__ import annotations

import json
import time

import pytest

from tests.cli.conftest import Tenure, with_bootstrap
from tests.kafka_cluster import kafka_cluster
from tests.kafka_process import kafka_folder, running_kafka
from tests.running import wait_until

pytestmark = pytest.mark.kafka

SECONDS = 60


def test_a_controller_is_named_in_one_line_at_once(tenure: Tenure) -> None:
    with kafka_folder() as (folder, port), running_kafka(folder, port):
        quorum = next(line for line in (folder / "server.properties").read_text().splitlines() if line.startswith("controller.quorum.voters="))
        address = f"127.0.0.1:{quorum.rpartition(':')[2]}"
        begin = time.monotonic()
        result = tenure("cluster", "--bootstrap", address, "--timeout", "8")
        assert time.monotonic() - begin < 8
        assert result == (69, "", f"tenure: {address} is no broker (a KRaft controller, perhaps): name a listener for clients\n")


def test_a_cluster_of_three_works_with_one_broker_down(tenure: Tenure) -> None:
    with kafka_cluster(3) as kafka:
        names = [f"127.0.0.1:{port}" for port in kafka.ports]
        wait_until(lambda: len(brokers(with_bootstrap(names[1], tenure))) == 3, SECONDS, pause=0.2)
        assert [(broker["id"], broker["rack"], broker["reachable"]) for broker in brokers(with_bootstrap(names[1], tenure))] == [
            (number, f"rack-{number}", True) for number in (1, 2, 3)
        ]
        created = tenure("topic", "create", "orders", "--partitions", "6", "--replication-factor", "3", "--bootstrap", names[2])
        assert (created.code, created.err) == (0, "")
        groups = [f"group-{number}" for number in range(6)]  # over six partitions of the offsets topic, two on each broker
        for group in groups:
            reset = tenure("group", "offsets", "reset", group, "--to-latest", "--topic", "orders", "--bootstrap", names[0], "--timeout", "30", "--yes")
            assert (reset.code, reset.err) == (0, "")
        listed = json.loads(tenure("group", "list", "--bootstrap", names[1], "--json").out)["groups"]
        assert sorted(group["group"] for group in listed) == groups
        assert tenure("cluster", "--bootstrap", names[1]).out.splitlines()[2].split() == ["controller", "broker", "1"]
        kafka.kill(3)
        dead_first = f"{names[2]},{names[0]}"
        description = tenure("topic", "describe", "orders", "--bootstrap", dead_first, "--timeout", str(SECONDS))
        assert (description.code, description.err) == (0, "")  # it waits until the partitions have new leaders
        lines = "".join(f"{number}:{number}\n" for number in range(60))
        sent = tenure("produce", "orders", "--key-separator", ":", "--bootstrap", dead_first, "--timeout", str(SECONDS), stdin=lines)
        assert (sent.code, sent.err, sent.out.splitlines()[0]) == (0, "", "60 records written to orders:")
        described = tenure("group", "describe", *groups, "--bootstrap", dead_first, "--timeout", str(SECONDS))
        assert described.code == 0, described.err
        wait_until(lambda: all(broker["reachable"] == (broker["id"] != 3) for broker in brokers(with_bootstrap(dead_first, tenure))), SECONDS, pause=0.2)
        listing = tenure("cluster", "--bootstrap", dead_first, "--timeout", str(SECONDS))
        assert listing.out.splitlines()[-1].split()[3:5] in (["rack-3", "fenced"], ["rack-3", "not"])


def brokers(client_command: Tenure) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = json.loads(client_command("cluster", "--timeout", "20", "--json").out)["brokers"]
    return listed
