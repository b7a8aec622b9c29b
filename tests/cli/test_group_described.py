"""Groups as described by clusters: both protocols, other types, and unreadable ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cli.arguments import addresses
from cli.client import Cluster
from cli.groups.described import describe
from protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    TopicPartitions,
)
from protocol.messages.consumer_group_describe import DescribedGroup as ModernGroup
from protocol.messages.consumer_group_describe import Member as ModernMember
from protocol.messages.consumer_protocol import ConsumerProtocolSubscription, ConsumerProtocolSubscriptionTopicPartition
from protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from protocol.records import with_version
from tests.cli.conftest import Tenure
from tests.cli.fake_brokers import FakeBroker, metadata_of
from tests.cli.group_members import assignment

pytestmark = pytest.mark.once

OWNED = ConsumerProtocolSubscription(["t"], None, [ConsumerProtocolSubscriptionTopicPartition("t", [0, 1, 2])])
CLASSIC = {
    "cooperative": ("consumer", DescribedGroupMember("m1", None, "c", "/10.0.0.1", with_version(OWNED, 1), assignment({"t": [0, 1]}))),
    "connect": ("connect", DescribedGroupMember("m2", None, "worker", "/10.0.0.2", b"\0\1\2", b"\0\1\3")),
    "strange": ("consumer", DescribedGroupMember("m3", None, "c", "/10.0.0.3", b"\0\0\xff", b"")),
}
MODERN = ModernMember(
    "m4", "seat", None, 7, "c4", "/10.0.0.4", ["t"], "t-.*",
    Assignment([TopicPartitions(b"\1" * 16, "t", [0])]), Assignment([TopicPartitions(b"\1" * 16, "t", [0, 1])]),
)  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[FakeBroker]:
    """Three classic groups, one of KIP-848, a share group, and a group whose coordinator moves during the request."""
    moves = [16]

    def classic(request: Any, version: int) -> DescribeGroupsResponse:
        groups = []
        for name in request.groups:
            if name == "moving" and moves:
                groups.append(DescribedGroup(moves.pop(), None, name))
            elif name == "moving":
                groups.append(DescribedGroup(0, None, name, "Empty", "consumer"))
            elif name in CLASSIC:
                groups.append(DescribedGroup(0, None, name, "Stable", CLASSIC[name][0], "some", [CLASSIC[name][1]]))
            else:
                groups.append(DescribedGroup(69, "not found", name, "Dead"))
        return DescribeGroupsResponse(groups=groups)

    def modern(request: Any, version: int) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(
            groups=[
                ModernGroup(0, None, name, "Reconciling", 8, 8, "uniform", [MODERN]) if name == "modern" else ModernGroup(69, "no", name)
                for name in request.group_ids
            ]
        )

    def committed(request: Any, version: int) -> OffsetFetchResponse:
        topics = [OffsetFetchResponseTopics("t", [OffsetFetchResponsePartitions(0, 5)])]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group.group_id, topics if group.group_id == "flow" else []) for group in request.groups])

    def ends(request: Any, version: int) -> ListOffsetsResponse:
        offset = 9 if request.topics[0].partitions[0].timestamp == -1 else 0
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [ListOffsetsPartitionResponse(0, offset=offset)])])

    def topics(request: Any) -> list[MetadataResponseTopic]:
        return [MetadataResponseTopic(0, "t", bytes(15) + b"\1", False, [MetadataResponsePartition(0, 0, 0, 0, [0], [0])])] if request.topics else []

    with FakeBroker() as broker:
        broker.answers |= {
            MetadataRequest.API_KEY: metadata_of(broker, topics=topics),
            FindCoordinatorRequest.API_KEY: lambda request, version: FindCoordinatorResponse(
                coordinators=[Coordinator(key, 0, broker.host, broker.port) for key in request.coordinator_keys]
            ),
            DescribeGroupsRequest.API_KEY: classic,
            ConsumerGroupDescribeRequest.API_KEY: modern,
            ListGroupsRequest.API_KEY: lambda request, version: ListGroupsResponse(
                groups=[
                    ListedGroup("shared", "share", "Stable", "share"),
                    ListedGroup("once-shared", "share", "Empty", "share"),
                    ListedGroup("flow", "streams", "Reconciling", "streams"),
                ]
            ),
            OffsetFetchRequest.API_KEY: committed,
            ListOffsetsRequest.API_KEY: ends,
            OffsetDeleteRequest.API_KEY: lambda request, version: OffsetDeleteResponse(),
        }
        yield broker


def test_groups_of_all_types_are_described_together(cluster: FakeBroker) -> None:
    with Cluster(addresses(cluster.address), 5) as client:
        groups = describe(client, ["modern", "cooperative", "connect", "shared", "nope", "moving", "strange"])
    assert list(groups) == ["modern", "cooperative", "connect", "shared", "nope", "moving", "strange"]
    modern, cooperative, connect, shared, nope, moving, strange = groups.values()
    assert nope is None
    assert modern is not None
    assert (modern.type, modern.state, modern.epoch, modern.static_count, modern.cooperative) == ("consumer", "Reconciling", 8, 1, True)
    (member,) = modern.members
    assert (member.member_key, member.host, member.topics, member.epoch) == ("seat", "10.0.0.4", ("/t-.*/", "t"), 7)
    assert (member.assigned, member.target) == ((("t", 0),), (("t", 0), ("t", 1)))
    assert cooperative is not None
    assert cooperative.members[0].assigned == (("t", 0), ("t", 1))
    assert cooperative.members[0].owned == (("t", 0), ("t", 1), ("t", 2))
    assert connect is not None
    assert (connect.protocol_type, connect.members[0].topics, connect.members[0].assigned) == ("connect", None, None)
    assert strange is not None
    assert (strange.members[0].topics, strange.members[0].assigned) == (None, None)
    assert shared is not None
    assert (shared.type, shared.readable) == ("share", False)
    assert moving is not None
    assert moving.state == "Empty"


def test_assigned_and_still_owned_partitions_are_shown(cluster: FakeBroker, tenure: Tenure) -> None:
    output = tenure("group", "members", "cooperative", "--bootstrap", cluster.address).out.splitlines()
    assert output[0].split()[-2:] == ["PARTITIONS", "OWNED"]
    assert output[1].endswith("2  t 0,1       t 0-2")
    output = tenure("group", "members", "modern", "--bootstrap", cluster.address).out.splitlines()
    assert output[0].split()[-2:] == ["PARTITIONS", "TARGET"]
    output = tenure("group", "members", "connect", "--bootstrap", cluster.address).out.splitlines()
    assert output[1].split() == ["-", "m2", "worker", "10.0.0.2", "-", "-", "-"]


def test_a_share_group_is_named_as_such(cluster: FakeBroker, tenure: Tenure) -> None:
    done = tenure("group", "members", "shared", "--bootstrap", cluster.address)
    assert (done.code, done.out) == (76, "")
    assert done.err.startswith("tenure: group shared is a share group (Stable)")


def test_share_and_streams_groups_are_shown_with_their_known_fields(cluster: FakeBroker, tenure: Tenure) -> None:
    def ask(*arguments: str) -> tuple[int, str, str]:
        done = tenure("group", *arguments, "--bootstrap", cluster.address)
        return done.code, done.out, done.err

    code, out, err = ask("describe", "flow")
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == [
        "this command cannot show the members of a streams group; 1 partition, lag 4",
        "",
        "TOPIC  PARTITION  COMMITTED  END  LAG",
        "t              0          5    9    4",
    ]
    assert ask("delete", "flow", "--dry-run") == (1, "", "tenure: streams group flow has members (Reconciling): stop them first\n")
    assert ask("delete", "shared", "--dry-run") == (1, "", "tenure: share group shared has members (Stable): stop them first\n")
    code, out, err = ask("delete", "once-shared", "--dry-run")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "once-shared is a share group: its progress is deleted with it"
    code, out, err = ask("offsets", "delete", "shared", "--topic", "t", "--dry-run")
    assert (code, out) == (1, "")
    assert "which commits no offsets" in err
