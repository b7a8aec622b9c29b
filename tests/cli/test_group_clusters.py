"""tenure group on clusters as old as Kafka 2.4, on several brokers, and on brokers that load or do not answer."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack

import pytest

from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from tests.cli.admin import Admin
from tests.cli.conftest import Tenure, with_bootstrap
from tests.cli.fake_brokers import FakeBroker, metadata_of, old_cluster
from tests.cli.group_history import entries_of
from tests.cli.group_members import group_members

pytestmark = pytest.mark.once

RELEASES = [(2, 4), (2, 8), (3, 3), (3, 9)]


@pytest.mark.parametrize("release", RELEASES)
def test_group_commands_work_on_old_clusters(bootstrap: str, admin: Admin, tenure: Tenure, release: tuple[int, int]) -> None:
    group, topic = f"old-{release[0]}-{release[1]}", f"aged-{release[0]}-{release[1]}"
    with ExitStack() as stack:
        old = stack.enter_context(old_cluster(bootstrap, release))
        options = ("--bootstrap", old.address)
        admin.create_topic(topic, counts=(10, 10), begins={})
        admin.commit(group, {(topic, 0): 4})
        members = stack.enter_context(group_members(bootstrap, group, [topic]))
        members.settle({"a": {topic: [0]}, "b": {topic: [1]}}, static=["a", "b"])
        (listed,) = [
            group_row for group_row in json.loads(tenure("group", "list", "--state", "Stable", "--json", *options).out)["groups"] if group_row["group"] == group
        ]
        assert (listed["state"], listed["type"], listed["members"], listed["static_members"]) == ("Stable", "classic", 2, 2)
        assert group not in tenure("group", "list", "--state", "Empty", *options).out.split()
        described = tenure("group", "describe", group, "nope", *options)
        assert (described.code, described.err) == (66, "tenure: there is no group nope\n")
        assert described.out.splitlines()[1] == "2 members (static); 2 partitions, lag 6"
        assert members.ids["a"] in tenure("group", "members", group, *options).out
        removed = tenure("group", "remove-member", group, "--instance", "b", "--reason", "scaled in", *options)
        assert removed.code == 0
        assert ("accepts no reasons" in removed.err) is (release < (3, 2))
        assert removed.out.splitlines()[-1] == f"removed b from group {group}: it rebalances now"
        assert tenure("group", "remove-member", group, "--all", *options).code == 0
        assert tenure("group", "delete", group, *options).out.splitlines()[-1] == f"deleted group {group}"
        assert entries_of(with_bootstrap(old.address, tenure), group, 1)[0]["cause"] == "new_member"


def test_a_cluster_that_cannot_remove_members_is_named(bootstrap: str, tenure: Tenure) -> None:
    with group_members(bootstrap, "ancient", ["t"]) as members:
        members.settle({"a": {}}, static=["a"])
        with old_cluster(bootstrap) as old:
            old.versions = {**old.versions, 13: (0, 2)}
            done = tenure("group", "remove-member", "ancient", "--instance", "a", "--bootstrap", old.address)
        assert done.code == 76
        assert "LeaveGroup" in done.err
        assert members.heartbeat("a") == 0


def test_groups_of_all_brokers_are_listed_and_a_silent_broker_is_named(tenure: Tenure) -> None:
    with FakeBroker() as first, FakeBroker() as second, socket.create_server(("127.0.0.1", 0)) as closed:
        closed_port = closed.getsockname()[1]
        closed.close()

        def listing(name: str) -> object:
            return lambda request, version: ListGroupsResponse(groups=[ListedGroup(name, "consumer", "Empty", "classic")])

        def metadata(request: object, version: int) -> MetadataResponse:
            ports = [first.port, second.port, closed_port]
            return MetadataResponse(
                brokers=[MetadataResponseBroker(at, "127.0.0.1", port) for at, port in enumerate(ports)], controller_id=0
            )

        def find_coordinators(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
            return FindCoordinatorResponse(
                coordinators=[Coordinator(key, int(key[-1]), "127.0.0.1", 1) for key in request.coordinator_keys]
            )

        def describing(request: DescribeGroupsRequest, version: int) -> DescribeGroupsResponse:
            return DescribeGroupsResponse(groups=[DescribedGroup(0, None, name, "Empty", "consumer", "") for name in request.groups])

        for broker, name in ((first, "g-0"), (second, "g-1")):
            broker.answers |= {
                MetadataRequest.API_KEY: metadata,
                ListGroupsRequest.API_KEY: listing(name),
                FindCoordinatorRequest.API_KEY: find_coordinators,
                DescribeGroupsRequest.API_KEY: describing,
            }
        done = tenure("group", "list", "--bootstrap", first.address, "--timeout", "2")
        assert done.code == 75
        assert [line.split()[0] for line in done.out.splitlines()] == ["GROUP", "g-0", "g-1"]
        assert done.err.count("\n") == 1
        assert f":{closed_port}" in done.err
        assert done.err.endswith("its groups are missing here\n")


def test_a_loading_broker_is_retried(tenure: Tenure) -> None:
    errors = [14, 15, 0]
    with FakeBroker() as broker:
        broker.answers |= {
            MetadataRequest.API_KEY: metadata_of(broker),
            ListGroupsRequest.API_KEY: lambda request, version: ListGroupsResponse(error_code=errors.pop(0)),
        }
        done = tenure("group", "list", "--bootstrap", broker.address)
        assert (done.code, done.out) == (0, "there are no groups\n")
        errors[:] = [14] * 50
        done = tenure("group", "list", "--bootstrap", broker.address, "--timeout", "0.5")
        assert (done.code, "still loading" in done.err) == (75, True)


def test_a_refused_deletion_is_reported_for_each_group(tenure: Tenure) -> None:
    """A member joined between the description and the deletion."""
    with FakeBroker() as broker:
        broker.answers |= {
            MetadataRequest.API_KEY: metadata_of(broker),
            FindCoordinatorRequest.API_KEY: lambda request, version: FindCoordinatorResponse(
                coordinators=[Coordinator(key, 0, broker.host, broker.port) for key in request.coordinator_keys]
            ),
            DescribeGroupsRequest.API_KEY: lambda request, version: DescribeGroupsResponse(
                groups=[DescribedGroup(0, None, name, "Empty", "consumer", "") for name in request.groups]
            ),
            OffsetFetchRequest.API_KEY: lambda request, version: OffsetFetchResponse(
                groups=[OffsetFetchResponseGroup(group.group_id) for group in request.groups]
            ),
            DeleteGroupsRequest.API_KEY: lambda request, version: DeleteGroupsResponse(
                results=[DeletableGroupResult(name, 68 if name == "b" else 0) for name in request.groups_names]
            ),
        }
        done = tenure("group", "delete", "a", "b", "--bootstrap", broker.address)
        assert done.code == 1
        assert done.out.splitlines()[-1] == "deleted group a"
        assert done.err == "tenure: group b: has members; stop them first, or remove them (tenure group remove-member)\n"


@pytest.mark.parametrize("refused_by", [FindCoordinatorRequest, DescribeGroupsRequest])
def test_a_forbidden_group_is_listed_and_hides_no_other(tenure: Tenure, refused_by: type) -> None:
    """A user who may describe the cluster lists all groups, and may describe some of them. Kafka refuses to find the coordinator of the others."""
    secret_coordinator, secret_group = (30, 0) if refused_by is FindCoordinatorRequest else (0, 30)
    with FakeBroker() as broker:
        broker.answers |= {
            MetadataRequest.API_KEY: metadata_of(broker),
            ListGroupsRequest.API_KEY: lambda request, version: ListGroupsResponse(
                groups=[ListedGroup(name, "consumer", "Stable", "classic") for name in ("open", "secret", "secret-too")]
            ),
            FindCoordinatorRequest.API_KEY: lambda request, version: FindCoordinatorResponse(
                coordinators=[
                    Coordinator(key, 0, broker.host, broker.port, secret_coordinator if key.startswith("secret") else 0) for key in request.coordinator_keys
                ]
            ),
            DescribeGroupsRequest.API_KEY: lambda request, version: DescribeGroupsResponse(
                groups=[DescribedGroup(secret_group if name.startswith("secret") else 0, None, name, "Stable", "consumer", "range") for name in request.groups]
            ),
            OffsetFetchRequest.API_KEY: lambda request, version: OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group.group_id) for group in request.groups]),
        }
        options = ("--bootstrap", broker.address)
        done = tenure("group", "list", *options)
        reason = "this user may not use the group"
        assert (done.code, done.err) == (77, f"tenure: group secret and 1 other listed without members: {reason}\n")
        assert [line.split()[:6] for line in done.out.splitlines()[1:]] == [
            ["open", "Stable", "classic", "range", "0", "0"],
            ["secret", "Stable", "classic", "-", "-", "-"],
            ["secret-too", "Stable", "classic", "-", "-", "-"],
        ]
        document = json.loads(tenure("group", "list", "--json", *options).out)
        assert [(group["group"], group["members"], group["error"] and group["error"]["code"]) for group in document["groups"]] == [
            ("open", 0, None),
            ("secret", None, "group-authorization-failed"),
            ("secret-too", None, "group-authorization-failed"),
        ]
        assert document["error"]["code"] == "group-authorization-failed"
        described = tenure("group", "describe", "secret", "open", *options)
        assert (described.code, described.err) == (77, f"tenure: group secret: {reason}\n")
        assert described.out.startswith("open: Stable")
        assert tenure("group", "describe", "secret", *options) == (77, "", f"tenure: group secret: {reason}\n")
