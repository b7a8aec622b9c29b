"""`tenure cluster`: an overview of a cluster; and with several brokers, which are up, behind, fenced or unreachable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cli.client import Cluster
from cli.client.releases import SINCE, matching_release
from cli.groups.everywhere import OFFSETS
from cli.nodes import NodeStatus
from protocol.message import Message
from protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
)
from protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tests.cli.conftest import Tenure
from tests.cli.fake_brokers import FakeBroker, metadata_of, old_cluster, versions_of

pytestmark = pytest.mark.once  # no dependence on the Python version

METADATA, LIST, DESCRIBE = 3, 16, 60


def test_a_tenure_broker_is_recognized(client_command: Tenure, bootstrap: str) -> None:
    result = client_command("cluster")
    lines = result.out.splitlines()
    assert (result.code, result.err) == (0, "")
    assert lines[1] == "software    Tenure, which serves what Kafka 4.3 or later does"
    assert lines[2] == "controller  broker 1"
    assert lines[-2:] == ["BROKER  HOST        PORT  RACK  STATE", f"     1  127.0.0.1  {bootstrap.rpartition(':')[2]}  -     controller"]


@pytest.mark.parametrize("missing", [0, 1])
def test_groups_are_not_counted_while_a_partition_has_no_node(client_command: Tenure, cluster: Cluster, missing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    owned = len(cluster.topics([OFFSETS])[OFFSETS].partitions) - missing
    monkeypatch.setattr("cli.cluster_view.node_status", lambda cluster, id: NodeStatus(False, True, owned, 0, True, None, None, [], [], None))
    result = client_command("cluster")
    assert result.code == (75 if missing else 0)
    assert ("groups      unknown" in result.out) == bool(missing)


def test_groups_that_a_broker_cannot_read_are_not_counted(client_command: Tenure, bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.health.probe", lambda *_: (2, "is not ready: partition 9 (cannot be read: damaged)"))
    warning = f"{bootstrap} is not ready: partition 9 (cannot be read: damaged): groups are not counted"
    result = client_command("cluster")
    assert (result.code, result.err) == (1, f"tenure: {warning}\n")
    assert "groups      unknown" in result.out.splitlines()
    value = json.loads(client_command("cluster", "--json").out)
    assert (value["groups"], value["warnings"], value["error"]["message"]) == (None, [warning], warning)


def test_json_has_the_same_values_with_numbers_as_numbers(client_command: Tenure, bootstrap: str) -> None:
    value = json.loads(client_command("cluster", "--json", "--versions").out)
    port = int(bootstrap.rpartition(":")[2])
    assert value["tenure"] is True
    assert value["release"] == "4.3"
    assert value["controller_id"] == 1
    assert value["brokers"] == [
        {
            "id": 1,
            "host": "127.0.0.1",
            "port": port,
            "rack": None,
            "controller": True,
            "fenced": False,
            "reachable": True,
            "problem": None,
            "release": "4.3",
            "node": None,
        }
    ]
    assert {"key": 3, "name": "Metadata", "min_version": 0, "max_version": 13} in value["versions"]
    assert value["warnings"] == []


# In the APIs that this broker serves, 3.6 and the releases after 4.0 do not differ from the release before.
@pytest.mark.parametrize("release", sorted({(2, 4), *SINCE.values()} - {(3, 6), (4, 1), (4, 2), (4, 3)}))
def test_the_release_of_an_old_cluster_is_shown(tenure: Tenure, bootstrap: str, release: tuple[int, int]) -> None:
    with old_cluster(bootstrap, release) as old:
        result = tenure("cluster", "--bootstrap", old.address)
        assert f"Kafka {release[0]}.{release[1]}" in result.out.splitlines()[1]
        assert (result.code, result.err) == (0, "")


def test_releases_before_2_4_are_not_distinguished() -> None:
    assert matching_release({3: (0, 8), 18: (0, 2)}) is None
    assert matching_release(versions_of((2, 4))) == (2, 4)


@pytest.fixture
def broker_pair() -> Iterator[tuple[FakeBroker, FakeBroker]]:
    """Brokers 0 and 1 with a topic of two partitions, and two groups on each broker."""
    with FakeBroker() as first, FakeBroker() as second:
        for broker in (first, second):
            broker.answers = {
                METADATA: metadata_of(first, second, topics=orders((0, [0, 1]), (1, [0, 1]))),
                LIST: lists("Stable", "Empty"),
                DESCRIBE: describes(),
            }
        yield first, second


def orders(*partitions: tuple[int, list[int]]) -> Any:
    """The topic `orders` with partitions of these leaders and replicas in sync, which all have the replicas 0 and 1."""
    entries = [MetadataResponsePartition(0 if leader >= 0 else 5, at, leader, 1, [0, 1], isr) for at, (leader, isr) in enumerate(partitions)]

    def topics(request: Any) -> list[MetadataResponseTopic]:
        topics = [MetadataResponseTopic(0, "orders", bytes(16), False, entries)]
        return topics if request.topics is None else [MetadataResponseTopic(3, topic.name, bytes(16), False, []) for topic in request.topics]

    return topics


def lists(*states: str) -> Any:
    return lambda request, version: ListGroupsResponse(groups=[ListedGroup(f"g-{state}", "consumer", state) for state in states])


def describes(*fenced: DescribeClusterBroker) -> Any:
    def answer(request: Any, version: int) -> Message:
        return DescribeClusterResponse(cluster_id="fake", controller_id=0, brokers=list(fenced))

    return answer


def test_several_brokers_are_counted_together(tenure: Tenure, broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    result = tenure("cluster", "--bootstrap", broker_pair[1].address)
    assert (result.code, result.err) == (0, "")
    assert [line.split(None, 1) for line in result.out.splitlines()[:5]] == [
        ["cluster", "fake"],
        ["software", "looks like a Kafka before 2.4"],
        ["controller", "broker 0"],
        ["topics", "1 with 2 partitions"],
        ["groups", "4 (2 Empty, 2 Stable)"],
    ]
    assert [line.split()[-1] for line in result.out.splitlines()[-2:]] == ["controller", "up"]


def test_partitions_without_leader_or_replicas_are_exit_code_1(tenure: Tenure, broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    for broker in broker_pair:
        broker.answers[METADATA] = metadata_of(*broker_pair, topics=orders((0, [0]), (-1, [])))
    result = tenure("cluster", "--bootstrap", broker_pair[0].address)
    assert (result.code, result.err) == (1, "tenure: 1 partition has no leader\ntenure: 2 partitions have replicas that are not in sync\n")
    assert [line.split(None, 1) for line in result.out.splitlines()[5:7]] == [
        ["leaderless", "1 partition"],
        ["behind", "2 partitions with replicas that are not in sync"],
    ]
    value = json.loads(tenure("cluster", "--bootstrap", broker_pair[0].address, "--json").out)
    assert (value["topics"]["leaderless_partitions"], value["topics"]["under_replicated_partitions"]) == (1, 2)
    assert value["error"]["code"] == "refused"


@pytest.mark.parametrize(("leader", "error", "text"), [(1, 0, "broker 1"), (3000, 0, "node 3000, which is no broker"), (0, 29, "-")])
def test_the_controller_comes_from_the_quorum_not_from_metadata(
    tenure: Tenure, broker_pair: tuple[FakeBroker, FakeBroker], leader: int, error: int, text: str
) -> None:
    def answer(request: Any, version: int) -> Message:
        part = DescribeQuorumResponsePartitionData(0, leader_id=leader)
        return DescribeQuorumResponse(error, topics=[DescribeQuorumResponseTopicData("__cluster_metadata", [part])])

    for broker in broker_pair:
        broker.answers[DescribeQuorumRequest.API_KEY] = answer
    result = tenure("cluster", "--bootstrap", broker_pair[0].address)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[2].split(None, 1) == ["controller", text]
    assert [line.split()[-1] for line in result.out.splitlines()[-2:]] == ["up", "controller" if text == "broker 1" else "up"]


@pytest.mark.parametrize(("answer", "reason"), [
    (lambda request, version: None, " s"),  # does not answer DescribeQuorum within 0.4 s
    (lambda request, version: DescribeQuorumResponse(41), "the quorum: the controller has moved; try again"),
    (lambda request, version: quorum_led_by(-1), "the quorum has no leader at the moment"),
])  # fmt: skip
def test_all_else_is_shown_while_nobody_knows_the_controller(tenure: Tenure, broker_pair: tuple[FakeBroker, FakeBroker], answer: Any, reason: str) -> None:
    for broker in broker_pair:
        broker.answers[DescribeQuorumRequest.API_KEY] = answer
    result = tenure("cluster", "--bootstrap", broker_pair[0].address, "--timeout", "1")
    assert result.code == 75
    assert result.err.startswith("tenure: the controller is unknown: ")
    assert result.err.endswith(f"{reason}\n")
    assert "may have taken effect" not in result.err
    assert [line.split(None, 1) for line in result.out.splitlines()[2:5]] == [
        ["controller", "unknown"],
        ["topics", "1 with 2 partitions"],
        ["groups", "4 (2 Empty, 2 Stable)"],
    ]
    assert [line.split()[-1] for line in result.out.splitlines()[-2:]] == ["up", "up"]
    value = json.loads(tenure("cluster", "--bootstrap", broker_pair[0].address, "--timeout", "1", "--json").out)
    assert (value["controller_id"], value["groups"]["total"], value["error"]["code"]) == (None, 4, "not-controller" if "moved" in reason else "unreachable" if reason == " s" else "not-now")


def quorum_led_by(leader: int) -> DescribeQuorumResponse:
    partition = DescribeQuorumResponsePartitionData(0, leader_id=leader)
    return DescribeQuorumResponse(0, topics=[DescribeQuorumResponseTopicData("__cluster_metadata", [partition])])


def test_brokers_of_two_releases_are_distinguished(tenure: Tenure, broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    for broker, release in zip(broker_pair, ((2, 8), (3, 9)), strict=True):
        broker._offered_versions = {key: span for key, span in versions_of(release).items() if key in (3, 16, 18, 35, 47, 1)}
    result = tenure("cluster", "--bootstrap", broker_pair[0].address)
    assert result.out.splitlines()[1] == "software    looks like Kafka 2.8 to 3.9"
    assert [line.split("  ")[-1].strip() for line in result.out.splitlines()[-3:]] == ["LOOKS LIKE", "Kafka 2.8", "Kafka 3.9"]


def test_a_broker_out_of_reach_is_shown_and_is_exit_code_1(tenure: Tenure, broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[1].host = "broker.invalid\x1b[31m"
    result = tenure("cluster", "--bootstrap", broker_pair[0].address, "--timeout", "2")
    assert result.code == 1
    assert "not reachable from here" in result.out.splitlines()[-1]
    assert "broker.invalid\\x1b[31m" in result.out.splitlines()[-1]
    assert result.err.startswith("tenure: broker 1 cannot be reached at its advertised address: broker.invalid\\x1b[31m:")
    assert "\x1b" not in result.out + result.err
    assert "groups      unknown" in result.out


def test_a_fenced_broker_is_shown_if_the_cluster_reports_it(tenure: Tenure, broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[0].answers[DESCRIBE] = describes(DescribeClusterBroker(7, "gone", 9092, "rack-a", True))
    result = tenure("cluster", "--bootstrap", broker_pair[0].address)
    assert (result.code, result.err) == (1, "tenure: broker 7 is fenced: the cluster hears nothing of it\n")
    assert result.out.splitlines()[-1].split() == ["7", "gone", "9092", "rack-a", "fenced"]
    value = json.loads(tenure("cluster", "--bootstrap", broker_pair[0].address, "--json").out)
    assert [(broker["id"], broker["fenced"], broker["reachable"]) for broker in value["brokers"]] == [(0, False, True), (1, False, True), (7, True, False)]


def test_without_the_right_to_list_groups_the_brokers_are_shown(tenure: Tenure, broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[1].answers[LIST] = lambda request, version: ListGroupsResponse(error_code=31)
    result = tenure("cluster", "--bootstrap", broker_pair[0].address)
    assert (result.code, result.err) == (77, "tenure: groups are not counted: broker 1: this user has no permission for this in the cluster\n")
    assert "groups      unknown" in result.out
