"""Three brokers of Apache Kafka, of which some are frozen or killed: each command answers within its timeout, with what is known and no more."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest

from cli.arguments import addresses
from cli.client import Cluster
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests.cli.conftest import CommandResult, Tenure
from tests.kafka_cluster import KafkaCluster, kafka_cluster
from tests.running import wait_until

pytestmark = pytest.mark.kafka

GROUPS = 24
TIMEOUT = 5
SPARE = 8  # seconds beyond the timeout, on a machine that runs other tests meanwhile
HEALTHY_SECONDS = 120


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    with kafka_cluster(3, controllers=3, group_initial_rebalance_delay_ms="0", default_replication_factor="3") as brokers:
        yield brokers


@pytest.fixture
def ask(kafka: KafkaCluster, tenure: Tenure) -> Callable[..., CommandResult]:
    """Run a command with a timeout, and check that it ends in time."""

    def run(*words: str, timeout: float = TIMEOUT) -> CommandResult:
        began = time.monotonic()
        result = tenure(*words, "--timeout", f"{timeout:g}", "--bootstrap", kafka.addresses)
        assert time.monotonic() - began < timeout + SPARE, (words, result)
        return result

    return run


@pytest.fixture(autouse=True)
def healthy(kafka: KafkaCluster, ask: Callable[..., CommandResult]) -> None:
    """Topics `whole`, replicated, and `single`, without replicas, and groups in all partitions of __consumer_offsets."""
    wait_until(lambda: ask("cluster", timeout=30).code == 0, HEALTHY_SECONDS, 0.5)
    if "whole" not in ask("topic", "list", timeout=30).out:
        assert ask("topic", "create", "whole", "--partitions", "6", "--replication-factor", "3", timeout=30).code == 0
        assert ask("topic", "create", "single", "--partitions", "6", "--replication-factor", "1", timeout=30).code == 0
        with Cluster(addresses(kafka.addresses), 30) as cluster:
            for number in range(GROUPS):
                topics = [OffsetCommitRequestTopic(name, [OffsetCommitRequestPartition(0, 0)]) for name in ("whole", "single")]
                cluster.send_to_coordinator(f"g{number}", OffsetCommitRequest(f"g{number}", -1, "", topics=topics))
    wait_until(lambda: ask("cluster", timeout=30).code == 0, HEALTHY_SECONDS, 0.5)


ALL = {f"g{number}" for number in range(GROUPS)}


def names(result: CommandResult) -> set[str]:
    """The listed groups, without that of another test."""
    return {entry["group"] for entry in json.loads(result.out)["groups"]} & ALL


def test_a_frozen_broker_leaves_no_answer_half_and_whole_in_its_look(kafka: KafkaCluster, ask: Callable[..., CommandResult]) -> None:
    (single,) = json.loads(ask("topic", "describe", "single", "--json", timeout=30).out)["topics"]
    led = sum(row["leader"] == 3 for row in single["partitions"])  # usually two of six
    kafka.freeze(3)
    try:
        view = ask("cluster", "--json")
        assert view.code == 1  # before the broker is fenced
        known = json.loads(view.out)
        assert [broker["reachable"] for broker in known["brokers"]] == [True, True, False]
        assert known["topics"]["total"] == 3
        listed = ask("group", "list", "--json")
        assert (listed.code == 75) == (names(listed) != ALL), listed
        contents = ask("topic", "list", "--long", "--json")
        unknown = {topic["name"]: topic["unknown_partitions"] for topic in json.loads(contents.out)["topics"]}
        assert (contents.code, unknown["single"]) == (75, led)
        # After it, all of its groups and replicated partitions have moved.
        complete = ask("group", "list", "--json", timeout=30)
        assert (complete.code, names(complete), complete.err) == (0, ALL, "")
        fenced = ask("cluster", "--json")
        assert fenced.code == 1
        known = json.loads(fenced.out)
        assert [broker["fenced"] for broker in known["brokers"]] == [False, False, True]
        assert known["topics"]["leaderless_partitions"] == led
        assert known["groups"]["total"] >= GROUPS
        assert known["topics"]["under_replicated_partitions"] > 6
        described = ask("topic", "describe", "whole")
        assert (described.code, described.err) == (0, "")
    finally:
        kafka.thaw(3)


def test_without_a_quorum_what_is_known_is_shown(kafka: KafkaCluster, ask: Callable[..., CommandResult]) -> None:
    kafka.freeze(2)
    kafka.freeze(3)
    try:
        view = ask("cluster")
        assert view.code == 1
        assert view.out.splitlines()[2].split() == ["controller", "unknown"]
        assert "tenure: the controller is unknown: " in view.err
        assert "may have taken effect" not in view.err
        assert [line.split()[-1] for line in view.out.splitlines()[-3:]] == ["up", "here", "here"]
        deleted = ask("group", "delete", *sorted(ALL), "--json")
        assert (deleted.code, {entry["deleted"] for entry in json.loads(deleted.out)["groups"]}) == (69, {False})
        created = ask("topic", "create", "new")
        assert created.code in (69, 75)
        assert ask("consume", "whole", "--from-beginning", "--no-follow").code in (69, 75)
        assert ask("topic", "list").code == 0
    finally:
        kafka.thaw(2)
        kafka.thaw(3)


def test_a_rebalance_that_another_member_holds_up_ends_consume_at_its_timeout(kafka: KafkaCluster, ask: Callable[..., CommandResult]) -> None:
    """The other member joins, and then neither synchronizes nor joins again for its rebalance timeout."""
    with Cluster(addresses(kafka.addresses), 30) as cluster:

        def join(member: str) -> JoinGroupRequest:
            return JoinGroupRequest("held", 45_000, 300_000, member, None, "consumer", [JoinGroupRequestProtocol("range", b"\0\0\0\0\0\1\0\5whole\xff\xff\xff\xff")])

        member = cluster.send_to_coordinator("held", join("")).member_id
        assert cluster.send_to_coordinator("held", join(member)).error_code == 0
        result = ask("consume", "whole", "--group", "held")
    assert (result.code, result.out) == (75, "")
    assert "tenure: group held is rebalancing: " in result.err


def test_each_group_has_a_result_when_one_coordinator_is_frozen(kafka: KafkaCluster, ask: Callable[..., CommandResult]) -> None:
    listed = {entry["group"]: entry["coordinator"] for entry in json.loads(ask("group", "list", "--json", timeout=30).out)["groups"]}
    wanted = [next(group for group, coordinator in sorted(listed.items()) if group in ALL and coordinator == number) for number in {*listed.values()}]
    frozen = listed[wanted[0]]
    kafka.freeze(frozen)
    try:
        result = ask("group", "describe", *wanted, timeout=8)
        assert result.code in (0, 75)  # 0: another broker has taken its groups over already
        if result.code == 75:
            assert f"tenure: group {wanted[0]}: " in result.err
        assert all(f"{group}: Empty" in result.out for group in wanted[1:])
    finally:
        kafka.thaw(frozen)
