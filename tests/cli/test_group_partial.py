"""`tenure group list` and `group delete` while a coordinator is dead, frozen or being replaced: what is known is told by group, and nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from protocol.message import Message
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from tests.cli.conftest import CommandResult, Tenure
from tests.cli.fake_brokers import FakeBroker

pytestmark = pytest.mark.once  # no dependence on the Python version

OFFSETS = "__consumer_offsets"


class Groups:
    """Brokers 0, 1 and 2. Group a-N is in partition N of __consumer_offsets, which broker `leaders[N]` leads; `alive` are in the metadata."""

    def __init__(self, brokers: list[FakeBroker]) -> None:
        self.brokers = brokers
        self.alive = [0, 1, 2]
        self.leaders = [0, 1, 2]
        for number, broker in enumerate(brokers):
            broker.answers = {
                MetadataRequest.API_KEY: self._metadata,
                FindCoordinatorRequest.API_KEY: self._find,
                ListGroupsRequest.API_KEY: self._lists(number),
                DescribeGroupsRequest.API_KEY: self._describe,
                OffsetFetchRequest.API_KEY: lambda request, version: OffsetFetchResponse(
                    groups=[OffsetFetchResponseGroup(group.group_id, []) for group in request.groups]
                ),
                DeleteGroupsRequest.API_KEY: lambda request, version: DeleteGroupsResponse(
                    results=[DeletableGroupResult(name, 0) for name in request.groups_names]
                ),
            }

    def _metadata(self, request: Any, version: int) -> Message:
        entries = [MetadataResponseBroker(number, self.brokers[number].host, self.brokers[number].port) for number in self.alive]
        partitions = [MetadataResponsePartition(0 if leader >= 0 else 5, at, leader, 0, [0, 1, 2], [0]) for at, leader in enumerate(self.leaders)]
        names = [topic.name for topic in request.topics or []]
        topics = [
            MetadataResponseTopic(0, name, bytes(16), True, partitions) if name == OFFSETS else MetadataResponseTopic(3, name, bytes(16), False, [])
            for name in names
        ]
        return MetadataResponse(brokers=entries, cluster_id="fake", controller_id=0, topics=topics)

    def _find(self, request: Any, version: int) -> Message:
        found = [(key, self.leaders[int(key[-1])]) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=[Coordinator(key, id, "", 0, 15 if id < 0 else 0, None) for key, id in found])

    def _lists(self, number: int) -> Any:
        def answer(request: Any, version: int) -> Message:
            return ListGroupsResponse(groups=[ListedGroup(f"a-{at}", "consumer", "Empty", "classic") for at, leader in enumerate(self.leaders) if leader == number])

        return answer

    def _describe(self, request: Any, version: int) -> Message:
        return DescribeGroupsResponse(groups=[DescribedGroup(0, None, name, "Empty", "consumer", "") for name in request.groups])

    def freeze(self, number: int, *kinds: type[Message]) -> None:
        for kind in kinds:
            self.brokers[number].answers[kind.API_KEY] = lambda request, version: None  # type: ignore[attr-defined]


@pytest.fixture
def groups() -> Iterator[Groups]:
    with FakeBroker() as first, FakeBroker() as second, FakeBroker() as third:
        yield Groups([first, second, third])


@pytest.fixture
def ask(tenure: Tenure, groups: Groups) -> Tenure:
    def run(*arguments: str, stdin: str | bytes = "") -> CommandResult:
        return tenure(*arguments, "--bootstrap", groups.brokers[0].address, stdin=stdin)

    return run


def names(result: CommandResult) -> list[str]:
    return [line.split()[0] for line in result.out.splitlines()[1:]]


def test_groups_that_other_brokers_have_taken_over_are_not_missing(ask: Tenure, groups: Groups) -> None:
    groups.brokers[2].close()
    began = time.monotonic()
    answer = groups.brokers[0].answers[MetadataRequest.API_KEY]

    def fenced_later(request: Any, version: int) -> Any:
        if time.monotonic() - began > 1:
            groups.alive, groups.leaders = [0, 1], [0, 1, 1]
        return answer(request, version)

    for broker in groups.brokers[:2]:
        broker.answers[MetadataRequest.API_KEY] = fenced_later
    result = ask("group", "list", "--timeout", "20")
    assert (result.code, result.err, names(result)) == (0, "", ["a-0", "a-1", "a-2"])
    assert time.monotonic() - began < 15


def test_a_dead_broker_that_coordinates_no_group_is_not_missed(ask: Tenure, groups: Groups) -> None:
    groups.leaders = [0, 1, 0]
    groups.brokers[2].close()
    result = ask("group", "list", "--timeout", "20")
    assert (result.code, result.err, names(result)) == (0, "", ["a-0", "a-1", "a-2"])


def test_groups_of_a_partition_without_a_leader_are_missed_although_all_brokers_answer(ask: Tenure, groups: Groups) -> None:
    groups.alive, groups.leaders = [0, 1], [0, 1, -1]
    result = ask("group", "list", "--timeout", "0.5")
    assert (result.code, names(result)) == (75, ["a-0", "a-1"])
    assert result.err == f"tenure: 1 partition of {OFFSETS} has no leader at the moment: the groups there are missing here\n"
    value = json.loads(ask("group", "list", "--timeout", "0.5", "--json").out)
    assert (value["complete"], value["error"]["code"]) == (False, "not-now")


def test_a_frozen_coordinator_is_named_within_the_timeout(ask: Tenure, groups: Groups) -> None:
    groups.freeze(1, *(kind for kind in (ListGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest)))
    began = time.monotonic()
    result = ask("group", "list", "--timeout", "1")
    assert time.monotonic() - began < 4
    assert (result.code, names(result)) == (75, ["a-0", "a-2"])
    assert result.err.startswith(f"tenure: {groups.brokers[1].address} does not answer ListGroups")
    assert result.err.endswith(": its groups are missing here\n")


# group delete


def deleted(result: CommandResult) -> dict[str, bool | None]:
    return {entry["group"]: entry["deleted"] for entry in json.loads(result.out)["groups"]}


def test_each_group_has_a_result_when_one_coordinator_freezes_before_its_answer(ask: Tenure, groups: Groups) -> None:
    groups.freeze(1, DeleteGroupsRequest)
    result = ask("group", "delete", "a-0", "a-1", "a-2", "--timeout", "0.5")
    assert (result.code, result.out.splitlines()[-1]) == (75, "deleted 2 groups: a-0, a-2")
    line = f"group a-1: {groups.brokers[1].address} does not answer DeleteGroups within 0.5 s; it may have taken effect: check before trying again"
    assert result.err == f"tenure: {line}\n"
    in_json = ask("group", "delete", "a-0", "a-1", "a-2", "--timeout", "0.5", "--json")
    assert deleted(in_json) == {"a-0": True, "a-1": None, "a-2": True}
    assert [entry["error"] and entry["error"]["code"] for entry in json.loads(in_json.out)["groups"]] == [None, "unreachable", None]


def test_a_group_that_was_not_even_asked_for_is_known_not_to_be_deleted(ask: Tenure, groups: Groups) -> None:
    groups.freeze(1, DeleteGroupsRequest)
    groups.leaders = [0, 1, 1]
    result = ask("group", "delete", "a-0", "a-1", "a-2", "--timeout", "0.5", "--json")
    assert deleted(result) == {"a-0": True, "a-1": None, "a-2": False}
    assert "group a-2 was not deleted: " in result.err


def test_nothing_is_deleted_while_a_group_cannot_be_looked_at(ask: Tenure, groups: Groups) -> None:
    groups.freeze(1, DescribeGroupsRequest)
    result = ask("group", "delete", "a-0", "a-1", "a-2", "--timeout", "0.5")
    assert (result.code, result.out) == (69, "nothing was deleted\n")
    assert result.err.startswith(f"tenure: group a-1 was not deleted: {groups.brokers[1].address} does not answer DescribeGroups")
    assert not any(isinstance(request, DeleteGroupsRequest) for broker in groups.brokers for request, _ in broker.requests)


# Commands that read several groups


@pytest.mark.parametrize("command", [("describe",), ("offsets", "show")])
def test_groups_whose_coordinator_does_not_answer_are_named_beside_the_others(ask: Tenure, groups: Groups, command: tuple[str, ...]) -> None:
    groups.leaders = [0, 1, 1]
    groups.freeze(1, DescribeGroupsRequest, OffsetFetchRequest)
    result = ask("group", *command, "a-0", "a-1", "a-2", "--timeout", "1")
    assert result.code == 75
    assert result.out.startswith("a-0")
    assert result.err.startswith(f"tenure: groups a-1 and a-2: {groups.brokers[1].address} does not answer ")
    assert len(result.err.splitlines()) == 1
    assert ask("group", *command, "a-1", "--timeout", "0.5").code == 69


def test_groups_are_listed_although_nobody_tells_their_coordinators(ask: Tenure, groups: Groups) -> None:
    for number in range(3):
        groups.freeze(number, FindCoordinatorRequest)
    result = ask("group", "list", "--timeout", "0.5")
    assert (result.code, names(result)) == (75, ["a-0", "a-1", "a-2"])
    assert "tenure: group a-0 and 2 others listed without members: " in result.err
