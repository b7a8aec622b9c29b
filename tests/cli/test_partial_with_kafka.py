"""Answers in part on Apache Kafka: three brokers, one of which is frozen or killed, and a group and a topic that the user may not read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import CommandResult, Tenure
from tests.kafka_cluster import KafkaCluster, kafka_cluster
from tests.running import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.once]

SECONDS = 60
PATIENT = ("--timeout", "30")
BRIEF = ("--timeout", "3")
GROUP = "reader"  # it has committed 0 for each partition of `orders`, which has one replica, and of `payments`, which has three
RECORDS = "".join(f"{number}\n" for number in range(30))
# Why a partition is unknown, before and after the broker that is asked has learned that the leader has gone.
REASONS = ("the broker that leads it cannot be reached; try again\n", "no leader at the moment; try again\n")


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    with kafka_cluster(3, authorizer=True) as cluster:
        yield cluster


@pytest.fixture
def command(kafka: KafkaCluster, tenure: Tenure) -> Tenure:
    return lambda *words, stdin="": tenure(*words, "--bootstrap", kafka.addresses, stdin=stdin)


@pytest.fixture
def filled(kafka: KafkaCluster, command: Tenure) -> Tenure:
    """The command, once both topics have their records, and all brokers serve."""
    if "payments" not in command("topic", "list", *PATIENT).out:
        wait_until(lambda: len(json.loads(command("cluster", "--json").out).get("brokers", [])) == 3, SECONDS, pause=0.2)
        for topic, replicas in (("orders", 1), ("payments", 3)):
            created = command("topic", "create", topic, "--partitions", "3", "--replication-factor", str(replicas), *PATIENT)
            assert (created.code, created.err) == (0, "")
            for partition in range(3):
                assert command("produce", topic, "--partition", str(partition), *PATIENT, stdin=RECORDS).code == 0
    reset = answer_with(command, 0, "group", "offsets", "reset", GROUP, "--to-earliest", "--topic", "orders", "--topic", "payments", "--yes", *PATIENT)
    assert reset.err == ""
    answer_with(command, 0, "group", "describe", GROUP, *PATIENT)
    done, group = described(command, *PATIENT)
    assert (done.code, group["lag"], group["unknown_partitions"]) == (0, 180, 0)
    return command


def described(command: Tenure, *words: str) -> tuple[CommandResult, dict[str, Any]]:
    """The answer, and its group; empty while the group's coordinator does not answer."""
    done = command("group", "describe", GROUP, "--json", *words)
    return done, (json.loads(done.out).get("groups") or [{}])[0]


def answer_with(command: Tenure, code: int, *words: str) -> CommandResult:
    """The answer, once its exit code is this one."""

    def answer() -> CommandResult | None:
        done = command(*words)
        return done if done.code == code else None

    return wait_until(answer, SECONDS, pause=0.2)


def test_a_total_is_a_lower_bound_while_a_broker_is_frozen(kafka: KafkaCluster, filled: Tenure) -> None:
    kafka.freeze(3)
    try:
        wait_until(lambda: described(filled, *BRIEF)[1], SECONDS)
        done, group = described(filled, *BRIEF)
        assert (done.code, group["lag"], "is unknown" in done.err) == (75, None, True)
        assert group["unknown_partitions"] >= 1
    finally:
        kafka.thaw(3)
    wait_until(lambda: described(filled, *BRIEF)[1].get("lag") == 180, SECONDS)


def test_what_a_killed_broker_led_alone_is_named_and_the_rest_is_done(kafka: KafkaCluster, filled: Tenure) -> None:
    kafka.kill(3)
    wait_until(lambda: described(filled, *BRIEF)[1].get("unknown_partitions") == 1, SECONDS)  # those with three replicas have other leaders by then
    topic = json.loads(filled("topic", "describe", "orders", "--json", *BRIEF).out)["topics"][0]
    (lost,) = [row["partition"] for row in topic["partitions"] if row["leader"] not in (1, 2)]
    done = filled("group", "describe", GROUP, *BRIEF)
    assert "lag at least 150 (1 partition unknown)" in done.out
    assert (done.code, done.err) in [(75, f"tenure: the lag of orders:{lost} is unknown: {reason}") for reason in REASONS]
    partly = filled("group", "offsets", "reset", GROUP, "--to-latest", "--topic", "orders", "--yes", *BRIEF)
    assert (partly.code, partly.err) in [(75, f"tenure: orders:{lost} not set: {reason}") for reason in REASONS]
    assert partly.out.splitlines()[-1].startswith(f"set 2 partitions of group {GROUP}: orders:")
    read = filled("consume", "orders", "--from", "earliest", "--until", "end", *BRIEF)
    assert (read.code, len(read.out.split()), read.err) in [(75, 60, f"tenure: orders:{lost} not read: {reason}") for reason in REASONS]
    kafka.restart(3)
    whole = answer_with(filled, 0, "consume", "orders", "--from", "earliest", "--until", "end", *BRIEF)
    assert (len(whole.out.split()), whole.err) == (90, "")


def test_what_this_user_may_not_read_is_said_and_hides_nothing_else(kafka: KafkaCluster, filled: Tenure) -> None:
    assert filled("group", "offsets", "reset", "secret", "--to-earliest", "--topic", "payments", "--yes", *PATIENT).code == 0
    kafka.deny("Describe", "--group", "secret")
    listed = answer_with(filled, 77, "group", "list", *PATIENT)
    assert listed.err == "tenure: group secret listed without members: this user may not use the group\n"
    rows = {line.split()[0]: line.split()[4:6] for line in listed.out.splitlines()}
    assert (rows[GROUP], rows["secret"]) == (["0", "0"], ["-", "-"])
    shown = filled("group", "describe", "secret", GROUP, *PATIENT)
    assert (shown.code, shown.err, shown.out.startswith(f"{GROUP}: Empty")) == (77, "tenure: group secret: this user may not use the group\n", True)
    kafka.deny("Read", "--topic", "__consumer_offsets")
    history = answer_with(filled, 77, "group", "history", GROUP, *PATIENT)
    assert history.out == ""
    assert "this user may not read __consumer_offsets, which has the history of groups; allow Read on it" in history.err
