"""Clusters as old as Kafka 2.4: requests use their versions, and missing APIs are named."""

from __future__ import annotations

import pytest

from cli.arguments import addresses
from cli.client import Cluster, Exit, Failure
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.metadata import MetadataRequest
from tests.cli.fake_brokers import old_cluster

pytestmark = pytest.mark.once  # no dependence on the Python version

RELEASES = [(2, 4), (2, 8), (3, 3), (3, 9)]


@pytest.mark.parametrize("release", RELEASES)
def test_every_request_uses_a_version_of_the_cluster(bootstrap: str, release: tuple[int, int]) -> None:
    with old_cluster(bootstrap, release) as old, Cluster(addresses(old.address), 5) as cluster:
        assert cluster.id
        assert list(cluster.brokers) == [cluster.controller_id]
        assert cluster.ask_all_brokers(ListGroupsRequest())[cluster.controller_id].error_code == 0
        assert cluster.send_to_coordinator("old", DescribeGroupsRequest(["old"])).groups[0].group_id == "old"
        assert cluster.coordinators(["a", "b", "old"]) == {cluster.controller_id: ["a", "b", "old"]}
        assert cluster.topics(["not-there"])["not-there"].error == 3
        versions = dict(old.requests)
        assert versions[MetadataRequest.API_KEY] == min(old.versions[3][1], 13)
        assert versions[FindCoordinatorRequest.API_KEY] == min(old.versions[10][1], 6)
        assert versions[ListGroupsRequest.API_KEY] == min(old.versions[16][1], 5)


def test_a_missing_api_is_named_with_the_first_release_that_has_it(bootstrap: str) -> None:
    with old_cluster(bootstrap) as old, Cluster(addresses(old.address), 5) as cluster:
        assert cluster.version(ConsumerGroupDescribeRequest.API_KEY) == -1
        with pytest.raises(Failure) as raised:
            cluster.send_to_any(ConsumerGroupDescribeRequest(["g"]))
        assert raised.value.exit_code == Exit.UNSUPPORTED
        assert raised.value.line == f"{old.address} does not serve ConsumerGroupDescribe; Kafka 3.8 and later do"


def test_a_too_old_version_is_named_with_the_first_release_that_suffices(bootstrap: str) -> None:
    with old_cluster(bootstrap) as old, Cluster(addresses(old.address), 5) as cluster:
        request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(group_instance_id="a")])
        assert cluster.send_to_coordinator("g", request, oldest=3).error_code == 0
        with pytest.raises(Failure) as raised:
            cluster.send_to_coordinator("g", request, oldest=5)
        assert raised.value.exit_code == Exit.UNSUPPORTED
        assert raised.value.line.endswith("serves LeaveGroup only in versions 0 to 4, this needs version 5; Kafka 3.2 and later have it")
