"""tenure group on Apache Kafka itself: real consumers, both protocols, and what its own tools say of the same groups."""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.cli.conftest import Tenure
from tests.cli.group_offsets import Yard
from tests.kafka_process import kafka
from tests.oracle import run_java

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of kafka-python's way to read its schemas
    from kafka import KafkaConsumer

pytestmark = [pytest.mark.kafka, pytest.mark.once]

PATIENCE_SECONDS = 60
POLL_MS = 1_000  # shorter ones may make kafka-python 3.0.12 hang in joining


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:  # instead of the broker of ours
    with kafka(group_initial_rebalance_delay_ms="0") as port:
        with Yard(port) as yard:
            yard.topic("orders", counts=(10, 10, 10, 10), begins={})
        yield f"127.0.0.1:{port}"


@contextmanager
def consumers(bootstrap: str, group: str, *names: str, static: bool = True) -> Iterator[dict[str, Callable[[], None]]]:
    """kafka-python consumers, polling; by name, what stops one."""
    with ExitStack() as stack:
        stops = {}
        for name in names:
            over = threading.Event()
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

            def poll(consumer: KafkaConsumer = consumer, over: threading.Event = over) -> None:
                while not over.is_set():
                    consumer.poll(timeout_ms=POLL_MS)
                consumer.close()

            thread = threading.Thread(target=poll, daemon=True)
            thread.start()

            def stop(over: threading.Event = over, thread: threading.Thread = thread) -> None:
                over.set()
                thread.join(30)

            stack.callback(stop)
            stops[name] = stop
        yield stops


def described(tenure: Tenure, bootstrap: str, group: str) -> dict[str, object]:
    done = tenure("group", "describe", group, "--bootstrap", bootstrap, "--json")
    return dict(json.loads(done.out)["groups"][0]) if done.code == 0 else {}


def settled(tenure: Tenure, bootstrap: str, group: str, members: int) -> dict[str, object]:
    """Once so many are there, all partitions are theirs, and everything is committed."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = described(tenure, bootstrap, group)
        if found.get("state") == "Stable" and found["members"] == members and found["lag"] == 0 and len(found["partitions"]) == 4:  # type: ignore[arg-type]
            return found
        assert time.monotonic() < until, found
        time.sleep(0.2)


def test_the_seat_of_a_real_static_consumer_is_removed(bootstrap: str, tenure: Tenure) -> None:
    with consumers(bootstrap, "billing", "w1", "w2") as stops:
        found = settled(tenure, bootstrap, "billing", 2)
        assert (found["type"], found["protocol"], found["static_members"]) == ("classic", "range", 2)
        stops["w2"]()  # a static member that is closed says nothing: its seat stays
        assert described(tenure, bootstrap, "billing")["static_members"] == 2
        dry = tenure("group", "remove-member", "billing", "--instance", "w2", "--dry-run", "--bootstrap", bootstrap)
        assert "  orders 2,3: from w2 to w1" in dry.out.splitlines()
        done = tenure("group", "remove-member", "billing", "--instance", "w2", "--reason", "scaled in", "--bootstrap", bootstrap)
        assert (done.code, done.err) == (0, "")
        until = time.monotonic() + 20
        while True:  # what it has taken over it commits a moment later
            after = settled(tenure, bootstrap, "billing", 1)
            if all(row["committed_offset"] is not None for row in after["partitions"]):  # type: ignore[attr-defined]
                break
            assert time.monotonic() < until, after
            time.sleep(0.2)
        assert {row["instance_id"] for row in after["partitions"]} == {"w1"}  # type: ignore[attr-defined]
        again = tenure("group", "remove-member", "billing", "--instance", "w2", "--bootstrap", bootstrap)
        assert (again.code, again.err) == (66, "tenure: group billing has no instance w2; it has w1; nothing was changed\n")
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
        ]  # type: ignore[attr-defined]
        assert sorted(row[1:6] for row in rows) == ours
        refused = tenure("group", "delete", "billing", "--bootstrap", bootstrap)
        assert (refused.code, "has 1 member" in refused.err) == (1, True)
        listed = tenure("group", "list", "--bootstrap", bootstrap, "--state", "stable")
        assert "billing" in listed.out
    assert tenure("group", "remove-member", "billing", "--all", "--bootstrap", bootstrap).code == 0
    assert tenure("group", "members", "billing", "--bootstrap", bootstrap).out == "group billing has no members (state Empty)\n"
    assert tenure("group", "delete", "billing", "--bootstrap", bootstrap).code == 0
    assert tenure("group", "describe", "billing", "--bootstrap", bootstrap).code == 66


def test_kafka_keeps_no_notes_and_of_a_rebalance_no_more_is_told_than_is_stored(bootstrap: str, tenure: Tenure) -> None:
    with consumers(bootstrap, "noted", "n-1"):
        until = time.monotonic() + PATIENCE_SECONDS
        while described(tenure, bootstrap, "noted").get("state") != "Stable" and time.monotonic() < until:
            time.sleep(0.2)
        done = tenure("group", "history", "noted", "--bootstrap", bootstrap, "--json")
    assert done.code == 0, done.err
    entries = json.loads(done.out)["entries"]
    assert entries
    assert {entry["kind"] for entry in entries} == {"gap"}, "nothing but what the group's record says is known"


def test_a_group_of_kip_848_is_described_by_its_own_api(bootstrap: str, tenure: Tenure) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": bootstrap, "group.id": "modern", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    seated = confluent_kafka.Consumer(settings | {"group.instance.id": "seat", "client.id": "seated"})
    other = confluent_kafka.Consumer(settings | {"client.id": "other"})
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            seated.poll(0.05)
            other.poll(0.05)

    for consumer in (seated, other):
        consumer.subscribe(["orders"])
    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        found = settled(tenure, bootstrap, "modern", 2)
        assert (found["type"], found["protocol"], found["static_members"]) == ("consumer", "uniform", 1)
        assert isinstance(found["epoch"], int)
        members = json.loads(tenure("group", "members", "modern", "--bootstrap", bootstrap, "--json").out)["members"]
        assert {one["instance_id"] for one in members} == {"seat", None}
        assert sum(len(part["partitions"]) for one in members for part in one["assigned"]) == 4
        listed = json.loads(tenure("group", "list", "--bootstrap", bootstrap, "--type", "consumer", "--json").out)["groups"]
        assert [(one["group"], one["members"]) for one in listed] == [("modern", 2)]
        done = tenure("group", "remove-member", "modern", "--instance", "seat", "--bootstrap", bootstrap)
        assert (done.code, done.err) == (0, "")
    finally:
        over.set()
        thread.join(10)
        seated.close()
        other.close()


def test_a_share_group_is_named_as_what_it_is(bootstrap: str, tenure: Tenure) -> None:
    run_java(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer", "--bootstrap-server", bootstrap, "--topic", "orders", "--group", "shared",
        "--timeout-ms", "3000",
    )  # fmt: skip
    listed = json.loads(tenure("group", "list", "--bootstrap", bootstrap, "--type", "share", "--json").out)["groups"]
    assert [(one["group"], one["type"], one["members"]) for one in listed] == [("shared", "share", None)]
    assert ", type share," in tenure("group", "describe", "shared", "--bootstrap", bootstrap).out
    for words in (("members", "shared"), ("remove-member", "shared", "--all")):
        done = tenure("group", *words, "--bootstrap", bootstrap)
        assert (done.code, done.err.startswith("tenure: group shared is a share group")) == (76, True)
