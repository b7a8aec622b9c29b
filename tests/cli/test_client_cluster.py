"""The broker that gets each request in a cluster of several, and brokers that stop, move or do not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cli.arguments import addresses
from cli.client import Cluster, Exit, Failure, Limits, patience, pool
from protocol.message import Message
from protocol.messages.create_topics import CreatableTopic, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from protocol.messages.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from tests.cli.fake_brokers import Close, FakeBroker, Listener, metadata_of

pytestmark = pytest.mark.once  # no dependence on the Python version

METADATA, FIND, LIST, DESCRIBE, CREATE, DELETE, OFFSETS = 3, 10, 16, 15, 19, 42, 2


@pytest.fixture(autouse=True)
def shorten_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE_SECONDS", 0.002)


@pytest.fixture
def broker_pair() -> Iterator[tuple[FakeBroker, FakeBroker]]:
    """Brokers 0 and 1, of which 0 is the controller; group g is coordinated by 1."""
    with FakeBroker() as first, FakeBroker() as second:
        for number, broker in enumerate((first, second)):
            broker.answers = {
                METADATA: metadata_of(first, second),
                FIND: coordinator_is(second, 1),
                LIST: lists(f"of-{number}"),
                DESCRIBE: describes(),
                CREATE: creates(),
                DELETE: deletes(),
            }
        yield first, second


def coordinator_is(broker: FakeBroker, id: int, *errors: int) -> Callable[[Any, int], Message]:
    """An answer to FindCoordinator: first these errors, one for each request, then broker `id`."""
    errors_left = list(errors)

    def answer(request: Any, version: int) -> Message:
        error = errors_left.pop(0) if errors_left else 0
        keys = request.coordinator_keys if version >= 4 else [request.key]
        coordinators = [Coordinator(key, -1 if error else id, broker.host, broker.port, error, None) for key in keys]
        return FindCoordinatorResponse(0, coordinators, error, None, coordinators[0].node_id, broker.host, broker.port)

    return answer


def lists(*names: str) -> Callable[[Any, int], Message]:
    return lambda request, version: ListGroupsResponse(groups=[ListedGroup(name, "consumer", "Stable", "classic") for name in names])


def describes(*errors: int) -> Callable[[Any, int], Message]:
    errors_left = list(errors)

    def answer(request: Any, version: int) -> Message:
        error = errors_left.pop(0) if errors_left else 0
        return DescribeGroupsResponse(groups=[DescribedGroup(error, None, name, "Stable", "consumer", "range", []) for name in request.groups])

    return answer


def creates(*errors: int) -> Callable[[Any, int], Message]:
    errors_left = list(errors)

    def answer(request: Any, version: int) -> Message:
        error = errors_left.pop(0) if errors_left else 0
        return CreateTopicsResponse(topics=[CreatableTopicResult(topic.name, error_code=error) for topic in request.topics])

    return answer


def deletes() -> Callable[[Any, int], Message]:
    return lambda request, version: DeleteGroupsResponse(results=[DeletableGroupResult(name, 0) for name in request.groups_names])


def silent(request: Any, version: int) -> None:
    return None


def close_at_once(request: Any, version: int) -> None:
    raise Close


def once(first: Callable[[Any, int], Any], then: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    answers = [first]
    return lambda request, version: (answers.pop() if answers else then)(request, version)


def cluster_of(*brokers: Listener, timeout: float = 5) -> Cluster:
    return Cluster(addresses(",".join(broker.address for broker in brokers)), timeout)


def count_requests(broker: FakeBroker, *kind: type[Message]) -> int:
    return sum(isinstance(request, kind) for request, _ in broker.requests)


NEW_TOPIC = CreateTopicsRequest([CreatableTopic("t", 1, 1)])


def test_the_cluster_is_described_from_metadata(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    with cluster_of(broker_pair[0]) as cluster:
        assert cluster.id == "fake"
        assert cluster.controller_id == 0
        assert [(broker.id, broker.port) for broker in cluster.brokers.values()] == [(0, broker_pair[0].port), (1, broker_pair[1].port)]
        assert count_requests(broker_pair[0], MetadataRequest) == 1


def test_requests_go_to_the_coordinator_the_controller_or_every_broker(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    with cluster_of(broker_pair[1]) as cluster:
        cluster.send_to_coordinator("g", DescribeGroupsRequest(["g"]))
        cluster.send_to_controller(NEW_TOPIC)
        assert {id: reply.groups[0].group_id for id, reply in cluster.ask_all_brokers(ListGroupsRequest()).items()} == {0: "of-0", 1: "of-1"}
    assert [count_requests(broker, DescribeGroupsRequest) for broker in broker_pair] == [0, 1]
    assert [count_requests(broker, CreateTopicsRequest) for broker in broker_pair] == [1, 0]


def test_a_coordinator_is_looked_up_once(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    with cluster_of(broker_pair[0]) as cluster:
        for _ in range(3):
            cluster.send_to_coordinator("g", DescribeGroupsRequest(["g"]))
    assert sum(count_requests(broker, FindCoordinatorRequest) for broker in broker_pair) == 1


@pytest.mark.parametrize("error", [14, 15, 16])
def test_a_moving_or_loading_coordinator_is_retried(broker_pair: tuple[FakeBroker, FakeBroker], error: int) -> None:
    broker_pair[1].answers[DESCRIBE] = describes(error, error)
    broker_pair[0].answers[FIND] = coordinator_is(broker_pair[1], 1, 15)
    with cluster_of(broker_pair[0]) as cluster:
        assert cluster.send_to_coordinator("g", DescribeGroupsRequest(["g"])).groups[0].error_code == 0
    assert count_requests(broker_pair[1], DescribeGroupsRequest) == 3
    assert count_requests(broker_pair[0], FindCoordinatorRequest) == 4


def test_a_missing_coordinator_is_a_retriable_failure_within_the_timeout(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[1].answers[DESCRIBE] = describes(*[14] * 1000)
    with cluster_of(broker_pair[0], timeout=0.3) as cluster, pytest.raises(Failure) as raised:
        cluster.send_to_coordinator("g", DescribeGroupsRequest(["g"]))
    assert raised.value.exit_code == Exit.AGAIN
    assert raised.value.line == "group g: its coordinator is still loading; try again, or wait longer with --timeout"


def test_an_unauthorized_group_is_reported_as_forbidden(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[0].answers[FIND] = coordinator_is(broker_pair[1], 1, 30)
    with cluster_of(broker_pair[0]) as cluster, pytest.raises(Failure) as raised:
        cluster.send_to_coordinator("g", DescribeGroupsRequest(["g"]))
    assert (raised.value.exit_code, raised.value.line) == (Exit.FORBIDDEN, "group g: this user may not use the group")


def test_errors_of_other_groups_in_a_reply_cause_no_retry(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[1].answers[DELETE] = lambda request, version: DeleteGroupsResponse(
        results=[DeletableGroupResult("g", 0), DeletableGroupResult("other", 16)]
    )
    with cluster_of(broker_pair[0]) as cluster:
        assert len(cluster.send_to_coordinator("g", DeleteGroupsRequest(["g", "other"])).results) == 2
    assert count_requests(broker_pair[1], DeleteGroupsRequest) == 1


def test_coordinators_of_many_groups_are_found_in_one_request(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    with cluster_of(broker_pair[0]) as cluster:
        assert cluster.coordinators(["a", "b", "a", "c"]) == {1: ["a", "b", "c"]}
    assert count_requests(broker_pair[0], FindCoordinatorRequest) == 1


def test_coordinators_of_an_old_cluster_are_found_one_by_one(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[0]._offered_versions = {**broker_pair[0].versions, FIND: (0, 3)}
    with cluster_of(broker_pair[0]) as cluster:
        assert cluster.coordinators(["a", "b"]) == {1: ["a", "b"]}
    assert count_requests(broker_pair[0], FindCoordinatorRequest) == 2


def test_a_controller_that_moved_is_looked_up_again(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[0].answers[CREATE] = creates(*[41] * 100)
    broker_pair[0].answers[METADATA] = once(metadata_of(*broker_pair, controller=0), metadata_of(*broker_pair, controller=1))
    with cluster_of(broker_pair[0]) as cluster:
        assert cluster.send_to_controller(NEW_TOPIC).topics[0].error_code == 0
    assert [count_requests(broker, CreateTopicsRequest) for broker in broker_pair] == [1, 1]


def test_a_cluster_without_a_controller_is_a_retriable_failure(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[0].answers[METADATA] = metadata_of(*broker_pair, controller=-1)
    with cluster_of(broker_pair[0], timeout=1) as cluster, pytest.raises(Failure) as raised:
        cluster.send_to_controller(NEW_TOPIC)
    assert "has no controller at the moment" in raised.value.line


# Topics


def topic(*leaders: int, error: int = 0) -> MetadataResponseTopic:
    return MetadataResponseTopic(error, "t", bytes(16), False, [MetadataResponsePartition(0, at, leader) for at, leader in enumerate(leaders)])


def test_the_leader_of_a_partition_comes_from_metadata_and_is_remembered(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[0].answers[METADATA] = metadata_of(*broker_pair, topics=lambda request: [topic(0, 1)])
    with cluster_of(broker_pair[0]) as cluster:
        assert [cluster.leader("t", 0), cluster.leader("t", 1)] == [0, 1]
        requests = [request for request, _ in broker_pair[0].requests if isinstance(request, MetadataRequest)]
    assert len(requests) == 1
    assert not requests[0].allow_auto_topic_creation


def test_a_leader_election_is_waited_for(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    answers = [topic(-1), topic(error=5), topic(1)]
    broker_pair[0].answers[METADATA] = metadata_of(*broker_pair, topics=lambda request: [answers.pop(0) if len(answers) > 1 else answers[0]])
    with cluster_of(broker_pair[0]) as cluster:
        assert cluster.leader("t", 0) == 1


def test_a_missing_leader_is_a_retriable_failure(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    for broker in broker_pair:  # both, as the client asks the second one if the first is slow
        broker.answers[METADATA] = metadata_of(*broker_pair, topics=lambda request: [topic(-1)])
    with cluster_of(broker_pair[0], timeout=0.2) as cluster, pytest.raises(Failure) as raised:
        cluster.leader("t", 0)
    assert (raised.value.exit_code, raised.value.line) == (Exit.AGAIN, "topic t partition 0: no leader at the moment; try again")


def test_an_unknown_partition_is_reported_at_once(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[0].answers[METADATA] = metadata_of(*broker_pair, topics=lambda request: [topic(0)])
    begin = time.monotonic()
    with cluster_of(broker_pair[0]) as cluster, pytest.raises(Failure) as raised:
        cluster.leader("t", 7)
    assert raised.value.exit_code == Exit.MISSING
    assert time.monotonic() - begin < 4


# Brokers that do not answer


def test_the_next_address_is_tried_when_the_first_is_dead(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    with Listener() as nobody:
        dead = nobody.address
    with Cluster(addresses(f"{dead},{broker_pair[1].address}"), 5) as cluster:
        assert cluster.id == "fake"


def test_the_next_address_is_tried_when_the_first_is_silent(broker_pair: tuple[FakeBroker, FakeBroker], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "ATTEMPT_SECONDS", 0.1)
    with FakeBroker({18: silent}) as first, cluster_of(first, broker_pair[1]) as cluster:
        assert cluster.id == "fake"


def test_the_next_broker_is_asked_when_the_first_is_silent(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[0].answers[LIST] = silent
    with cluster_of(*broker_pair, timeout=1.5) as cluster:
        assert cluster.id == "fake"
        assert cluster.send_to_any(ListGroupsRequest()).groups[0].group_id == "of-1"


def test_all_unreachable_brokers_are_named_in_one_line() -> None:
    with Listener() as first, Listener() as second_listener:
        names = [first.address, second_listener.address]
    with Cluster(addresses(",".join(names)), 5) as cluster, pytest.raises(Failure) as raised:
        cluster.send_to_any(ListGroupsRequest())
    refused = "connection refused (is a broker running there?)"
    assert raised.value.exit_code == Exit.UNREACHABLE
    assert raised.value.line == f"no broker answers: {names[0]}: {refused}; {names[1]}: {refused}"


def test_a_connection_closed_while_idle_is_reopened(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    with cluster_of(broker_pair[0]) as cluster:
        cluster.send_to_controller(NEW_TOPIC)
        broker_pair[0].hang_up()
        time.sleep(0.02)
        cluster.send_to_controller(NEW_TOPIC)
    assert count_requests(broker_pair[0], CreateTopicsRequest) == 2


def test_read_requests_are_retried_after_a_lost_connection(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[1].answers[DESCRIBE] = once(close_at_once, describes())
    with cluster_of(broker_pair[0]) as cluster:
        assert cluster.send_to_coordinator("g", DescribeGroupsRequest(["g"])).groups[0].error_code == 0
    assert count_requests(broker_pair[1], DescribeGroupsRequest) == 2


def test_changing_requests_are_not_retried_after_a_lost_connection(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[1].answers[DELETE] = once(close_at_once, deletes())
    with cluster_of(broker_pair[0]) as cluster, pytest.raises(Failure) as raised:
        cluster.send_to_coordinator("g", DeleteGroupsRequest(["g"]))
    assert raised.value.exit_code == Exit.UNREACHABLE
    assert raised.value.line == (
        f"{broker_pair[1].address} closed the connection before it answered DeleteGroups; it may have taken effect: check before trying again"
    )
    assert count_requests(broker_pair[1], DeleteGroupsRequest) == 1


def test_a_coordinator_that_died_is_looked_up_again(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    with cluster_of(broker_pair[0]) as cluster:
        cluster.send_to_coordinator("g", DescribeGroupsRequest(["g"]))
        broker_pair[1].close()
        broker_pair[0].answers[FIND] = coordinator_is(broker_pair[0], 0)
        assert cluster.send_to_coordinator("g", DescribeGroupsRequest(["g"])).groups[0].error_code == 0
    assert count_requests(broker_pair[0], DescribeGroupsRequest) == 1


def test_a_call_is_retried_until_another_broker_has_taken_over(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    with cluster_of(broker_pair[0], timeout=0.2) as cluster:
        cluster.send_to_coordinator("g", DescribeGroupsRequest(["g"]))
        broker_pair[1].close()
        cluster.limits = Limits(10, 0.2)
        moved_at = time.monotonic() + 0.6
        before, after = broker_pair[0].answers[FIND], coordinator_is(broker_pair[0], 0)
        broker_pair[0].answers[FIND] = lambda request, version: (before if time.monotonic() < moved_at else after)(request, version)
        assert cluster.send_to_coordinator("g", DescribeGroupsRequest(["g"])).groups[0].error_code == 0


def test_a_retried_call_waits_for_each_broker_only_for_the_timeout(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[1].answers[DESCRIBE] = silent
    broker_pair[0].answers[FIND] = once(coordinator_is(broker_pair[1], 1), coordinator_is(broker_pair[0], 0))
    with cluster_of(broker_pair[0], timeout=0.2) as cluster:
        cluster.limits = Limits(10, 0.2)
        assert cluster.send_to_coordinator("g", DescribeGroupsRequest(["g"])).groups[0].error_code == 0
    assert count_requests(broker_pair[1], DescribeGroupsRequest) == 1


def test_without_any_reachable_broker_a_call_fails_at_once() -> None:
    with Listener() as listener:
        listener.close()
        began = time.monotonic()
        with cluster_of(listener, timeout=5) as cluster:
            cluster.limits = Limits(45, 5)
            with pytest.raises(Failure) as raised:
                cluster.topics(["t"])
    assert raised.value.exit_code == Exit.UNREACHABLE
    assert time.monotonic() - began < 4


def test_a_separate_client_knows_the_brokers_beyond_its_bootstrap_servers(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    with cluster_of(broker_pair[0]) as cluster:
        cluster.topics(None)
        broker_pair[0].close()
        with cluster.separate_client() as separate:
            assert separate.send_to_any(ListGroupsRequest()).groups[0].group_id == "of-1"


def test_an_unreachable_advertised_address_is_named(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[1].host = "broker.invalid"
    with cluster_of(broker_pair[0]) as cluster, pytest.raises(Failure) as raised:
        cluster.send_to_broker(1, ListGroupsRequest())
    assert raised.value.exit_code == Exit.UNREACHABLE
    assert raised.value.line.startswith("broker 1 cannot be reached at its advertised address: broker.invalid:")


def test_a_single_broker_is_contacted_at_its_bootstrap_address() -> None:
    with FakeBroker() as alone:
        answer = metadata_of(alone)
        alone.answers = {LIST: lists("g"), METADATA: answer}
        address = alone.address
        alone.host = "broker.invalid"
        with Cluster(addresses(address), 5) as cluster:
            assert cluster.ask_all_brokers(ListGroupsRequest())[0].groups[0].group_id == "g"
            with pytest.raises(Failure, match=r"broker.invalid:\d+: unknown host name"):
                cluster.apis_at_advertised_address(0)


def test_unreachable_brokers_are_named_with_the_replies_of_the_others(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[1].close()
    missing: dict[int, Failure] = {}
    with cluster_of(broker_pair[0], timeout=0.4) as cluster:
        assert list(cluster.ask_all_brokers(ListGroupsRequest(), missing=missing)) == [0]
        assert list(missing) == [1]
        with pytest.raises(Failure) as raised:
            cluster.ask_all_brokers(ListGroupsRequest())
    assert raised.value.exit_code == Exit.UNREACHABLE


def test_a_silent_broker_is_reported_within_the_timeout(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[1].answers[LIST] = silent
    begin = time.monotonic()
    with cluster_of(broker_pair[0], timeout=0.3) as cluster, pytest.raises(Failure) as raised:
        cluster.send_to_broker(1, ListGroupsRequest())
    assert time.monotonic() - begin < 2
    assert raised.value.line == f"{broker_pair[1].address} does not answer ListGroups within 0.3 s"


def test_a_late_reply_is_not_used_for_the_next_request(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[1].answers[LIST] = once(silent, lists("second"))
    with cluster_of(broker_pair[0], timeout=5) as cluster:
        with pytest.raises(Failure):
            cluster.send_to_broker(1, ListGroupsRequest(), timeout=0.1)
        assert cluster.send_to_broker(1, ListGroupsRequest()).groups[0].group_id == "second"


def test_an_undecodable_reply_is_reported(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[1].answers[LIST] = lambda request, version: b"\0\0"
    with cluster_of(broker_pair[0]) as cluster, pytest.raises(Failure) as raised:
        cluster.send_to_broker(1, ListGroupsRequest())
    assert raised.value.line.startswith(f"{broker_pair[1].address}: its reply to ListGroups is invalid (")


def test_a_broker_with_only_newer_versions_needs_a_newer_command(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[1]._offered_versions = {**broker_pair[1].versions, LIST: (90, 99)}
    with cluster_of(broker_pair[0]) as cluster, pytest.raises(Failure) as raised:
        cluster.send_to_broker(1, ListGroupsRequest())
    assert raised.value.exit_code == Exit.UNSUPPORTED
    assert raised.value.line.endswith("serves ListGroups only in versions 90 to 99, this command knows versions 0 to 5: use a newer tenure")


def test_with_a_timeout_of_0_a_dead_broker_is_not_waited_for(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    with cluster_of(broker_pair[0], timeout=30) as cluster:
        assert cluster.id == "fake"
        broker_pair[1].close()
        begin = time.monotonic()
        with pytest.raises(Failure) as raised:
            cluster.send_to_broker(1, ListGroupsRequest(), retry=False)
    assert time.monotonic() - begin < 10
    assert raised.value.exit_code == Exit.UNREACHABLE


def test_a_broker_restarted_at_another_address_is_found(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    with cluster_of(broker_pair[0]) as cluster, FakeBroker({LIST: lists("moved")}) as moved:
        assert cluster.send_to_broker(1, ListGroupsRequest()).groups[0].group_id == "of-1"
        broker_pair[1].close()
        broker_pair[0].answers[METADATA] = metadata_of(broker_pair[0], moved)
        moved.answers[METADATA] = metadata_of(broker_pair[0], moved)
        assert cluster.send_to_broker(1, ListGroupsRequest()).groups[0].group_id == "moved"


def test_groups_of_a_lost_coordinator_are_requested_from_the_next(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    def ask(broker_id: int, groups: list[str]) -> dict[str, int]:
        assert cluster.version(DESCRIBE, broker_id) >= 0
        return {group.group_id: broker_id for group in cluster.send_to_broker(broker_id, DescribeGroupsRequest(groups)).groups}

    with cluster_of(broker_pair[0]) as cluster:
        assert cluster.by_coordinator(["g", "h"], ask) == {"g": 1, "h": 1}
        broker_pair[1].close()
        broker_pair[0].answers[FIND] = once(coordinator_is(broker_pair[1], 1), coordinator_is(broker_pair[0], 0))
        assert cluster.by_coordinator(["g", "h"], ask) == {"g": 0, "h": 0}


def test_groups_without_a_reachable_coordinator_are_reported_within_the_timeout(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[1].close()
    begin = time.monotonic()
    with cluster_of(broker_pair[0], timeout=0.3) as cluster, pytest.raises(Failure) as raised:
        cluster.by_coordinator(["g"], lambda broker_id, groups: {"g": cluster.send_to_broker(broker_id, DescribeGroupsRequest(groups))})
    assert time.monotonic() - begin < 3
    assert raised.value.line.startswith("broker 1 cannot be reached at its advertised address: ")


def test_api_versions_of_an_unreachable_broker_fail_with_one_line(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker_pair[1].close()
    with cluster_of(broker_pair[0], timeout=0.2) as cluster, pytest.raises(Failure, match="broker 1 cannot be reached"):
        cluster.version(DESCRIBE, 1)
    with cluster_of(broker_pair[1], timeout=0.2) as cluster, pytest.raises(Failure, match="connection refused"):
        cluster.version(DESCRIBE)


def test_a_request_follows_the_leader_of_its_partition(broker_pair: tuple[FakeBroker, FakeBroker]) -> None:
    """From a broker that does not lead any more, and from a dead one."""
    leaders = [0]
    for number, broker in enumerate(broker_pair):
        broker.answers[METADATA] = metadata_of(*broker_pair, topics=lambda request: [topic(leaders[0])])
        broker.answers[OFFSETS] = led_by(leaders, number)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0)])])
    with cluster_of(*broker_pair) as cluster:
        assert cluster.send_to_leader("t", 0, request).topics[0].partitions[0].offset == 0
        leaders[0] = 1
        assert cluster.send_to_leader("t", 0, request).topics[0].partitions[0].offset == 1
        broker_pair[1].close()
        broker_pair[0].answers[METADATA] = once(broker_pair[0].answers[METADATA], metadata_of(*broker_pair, topics=lambda request: [topic(0)]))
        broker_pair[0].answers[OFFSETS] = led_by([0], 0)
        assert cluster.send_to_leader("t", 0, request).topics[0].partitions[0].offset == 0


def led_by(leaders: list[int], number: int) -> Callable[[Any, int], Message]:
    """An answer to ListOffsets of broker `number`: its number as the offset, if it leads."""

    def answer(request: Any, version: int) -> Message:
        error = 0 if leaders[0] == number else 6
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [ListOffsetsPartitionResponse(0, error, -1, number)])])

    return answer
