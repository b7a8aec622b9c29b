"""`tenure group` on Apache Kafka: real consumers, both protocols, compared with the output of its own tools."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.cli.admin import Admin
from tests.cli.conftest import Tenure
from tests.kafka_process import kafka
from tests.oracle import run_java
from tests.running import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schema files in a deprecated way
    from kafka import KafkaConsumer

pytestmark = [pytest.mark.kafka, pytest.mark.once]

PATIENCE_SECONDS = 60
POLL_MS = 1_000  # with a shorter poll, kafka-python 3.0.12 may hang while joining


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:  # overrides the fixture of conftest.py, which starts our broker
    with kafka(group_initial_rebalance_delay_ms="0") as port:
        with Admin(port) as admin:
            admin.create_topic("orders", counts=(10, 10, 10, 10), begins={})
        yield f"127.0.0.1:{port}"


@contextmanager
def consumers(bootstrap: str, group: str, *names: str, static: bool = True) -> Iterator[dict[str, Callable[[], None]]]:
    """Runs kafka-python consumers that poll; yields a function for each name, which stops that consumer."""
    with ExitStack() as stack:
        stops: dict[str, Callable[[], None]] = {}
        for name in names:
            stopped = threading.Event()
            consumer = KafkaConsumer(
                "orders",
                bootstrap_servers=bootstrap,
                group_id=group,
                client_id=name,
                group_instance_id=name if static else None,
                auto_offset_reset="earliest",
                session_timeout_ms=45_000,
                heartbeat_interval_ms=300,
                auto_commit_interval_ms=300,
            )

            def poll(consumer: KafkaConsumer = consumer, stopped: threading.Event = stopped) -> None:
                while not stopped.is_set():
                    consumer.poll(timeout_ms=POLL_MS)
                consumer.close()

            thread = threading.Thread(target=poll, daemon=True)
            thread.start()

            def stop(stopped: threading.Event = stopped, thread: threading.Thread = thread) -> None:
                stopped.set()
                thread.join(30)

            stack.callback(stop)
            stops[name] = stop
        yield stops


def described(client_command: Tenure, group: str) -> dict[str, Any]:
    done = client_command("group", "describe", group, "--json")
    return dict(json.loads(done.out)["groups"][0]) if done.code == 0 else {}


def await_settled(client_command: Tenure, group: str, members: int) -> dict[str, Any]:
    """The group, once it has so many members, all partitions are assigned, and all offsets are committed."""

    def describe_settled() -> dict[str, Any] | None:
        now = described(client_command, group)
        return now if now.get("state") == "Stable" and now["members"] == members and now["lag"] == 0 and len(now["partitions"]) == 4 else None

    return wait_until(describe_settled, PATIENCE_SECONDS, pause=0.2)


def test_a_running_static_consumer_is_removed(bootstrap: str, client_command: Tenure) -> None:
    with consumers(bootstrap, "billing", "w1", "w2") as stops:
        group = await_settled(client_command, "billing", 2)
        assert (group["type"], group["protocol"], group["static_members"]) == ("classic", "range", 2)
        stops["w2"]()  # a static member sends no LeaveGroup when it closes: its seat stays
        assert described(client_command, "billing")["static_members"] == 2
        dry = client_command("group", "remove-member", "billing", "--instance", "w2", "--dry-run")
        assert "  orders 2,3: from w2 to w1" in dry.out.splitlines()
        done = client_command("group", "remove-member", "billing", "--instance", "w2", "--reason", "scaled in")
        assert (done.code, done.err) == (0, "")
        def taken_over() -> dict[str, Any] | None:
            """The group once all offsets are committed: a member commits partitions that it took over a moment later."""
            now = await_settled(client_command, "billing", 1)
            return now if all(row["committed_offset"] is not None for row in now["partitions"]) else None

        after = wait_until(taken_over, 20, pause=0.2)
        assert {row["instance_id"] for row in after["partitions"]} == {"w1"}
        repeated = client_command("group", "remove-member", "billing", "--instance", "w2")
        assert (repeated.code, repeated.err) == (66, "tenure: group billing has no instance w2; it has w1; nothing was changed\n")
        theirs = run_java(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            "--bootstrap-server",
            bootstrap,
            "--describe",
            "--group",
            "billing",
        )
        rows = [line.split() for line in theirs.splitlines() if line.startswith("billing")]
        ours = [
            [row["topic"], str(row["partition"]), str(row["committed_offset"]), str(row["end_offset"]), str(row["lag"])]
            for row in after["partitions"]
        ]
        assert sorted(row[1:6] for row in rows) == ours
        refused = client_command("group", "delete", "billing")
        assert (refused.code, "has 1 member" in refused.err) == (1, True)
        listed = client_command("group", "list", "--state", "stable")
        assert "billing" in listed.out
    assert client_command("group", "remove-member", "billing", "--all").code == 0
    assert client_command("group", "members", "billing").out == "group billing has no members (state Empty)\n"
    assert client_command("group", "delete", "billing").code == 0
    assert client_command("group", "describe", "billing").code == 66


def test_history_of_a_kafka_directory_shows_only_stored_rebalances(bootstrap: str, client_command: Tenure) -> None:
    with consumers(bootstrap, "noted", "n-1"):
        wait_until(lambda: described(client_command, "noted").get("state") == "Stable", PATIENCE_SECONDS, pause=0.2)
        done = client_command("group", "history", "noted", "--json")
    assert done.code == 0, done.err
    entries = json.loads(done.out)["entries"]
    assert [(entry["kind"], entry["from_generation"], entry["to_generation"], entry["cause"], entry["noted"]) for entry in entries] == [
        ("rebalance", number, number + 1, None, False) for number in range(len(entries))
    ]
    assert (entries[0]["inferred"]["cause"], entries[0]["inferred"]["confidence"]) == ("formation", "strong")


def test_a_group_of_kip_848_is_described_by_its_own_api(bootstrap: str, client_command: Tenure) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": bootstrap, "group.id": "modern", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    seated = confluent_kafka.Consumer(settings | {"group.instance.id": "seat", "client.id": "seated"})
    unrelated = confluent_kafka.Consumer(settings | {"client.id": "other"})
    stopped = threading.Event()

    def poll() -> None:
        while not stopped.is_set():
            seated.poll(0.05)
            unrelated.poll(0.05)

    for consumer in (seated, unrelated):
        consumer.subscribe(["orders"])
    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        group = await_settled(client_command, "modern", 2)
        assert (group["type"], group["protocol"], group["static_members"]) == ("consumer", "uniform", 1)
        assert isinstance(group["epoch"], int)
        members = json.loads(client_command("group", "members", "modern", "--json").out)["members"]
        assert {member["instance_id"] for member in members} == {"seat", None}
        assert sum(len(part["partitions"]) for member in members for part in member["assigned"]) == 4
        listed = json.loads(client_command("group", "list", "--type", "consumer", "--json").out)["groups"]
        assert [(group["group"], group["members"]) for group in listed] == [("modern", 2)]
        history = client_command("group", "history", "modern")
        assert (history.code, history.err) == (0, "")
        assert all(client in history.out for client in ("seat", "other", "moved"))
        done = client_command("group", "remove-member", "modern", "--instance", "seat")
        assert (done.code, done.err) == (0, "")
    finally:
        stopped.set()
        thread.join(10)
        seated.close()
        unrelated.close()


def test_a_share_group_is_named_as_such(bootstrap: str, client_command: Tenure) -> None:
    run_java(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer", "--bootstrap-server", bootstrap, "--topic", "orders", "--group", "shared",
        "--timeout-ms", "3000",
    )  # fmt: skip
    listed = json.loads(client_command("group", "list", "--type", "share", "--json").out)["groups"]
    assert [(group["group"], group["type"], group["members"]) for group in listed] == [("shared", "share", None)]
    assert ", type share," in client_command("group", "describe", "shared").out
    assert "is a share group (KIP-932)" in client_command("group", "history", "shared").err
    for words in (("members", "shared"), ("remove-member", "shared", "--all")):
        done = client_command("group", *words)
        assert (done.code, done.err.startswith("tenure: group shared is a share group")) == (76, True)
