"""The situations that kfake's own fault tests put a client into, on a controlled cluster: what is selected fails, the rest is served.

kfake decides by the error whether a request is served before it fails; here `apply: before` says so. Of its tests, those of transactions, share
groups, ACLs and quotas have no counterpart: no such request is served.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tenure.testing import Cluster, ControlError, NotReached
from tests.running import Client
from tests.support.produce_batches import plain_batch
from tests.testing.groups import COMMIT, Static

TOPIC = 2  # the type of a resource
LATEST, EARLIEST = -1, -2


@pytest.fixture
def client(kafka: Cluster) -> Iterator[Client]:
    with Client(int(kafka.bootstrap.rpartition(":")[2]), client_id="app") as connected:
        yield connected


def listed(client: Client, topic: str, timestamp: int = LATEST) -> tuple[int, int]:
    """Error and offset of partition 0."""
    reply = client.ask(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, timestamp)])]), 7)
    partition = reply.topics[0].partitions[0]
    return partition.error_code, partition.offset


def produced(client: Client, topic: str, partition: int = 0, **producer: int) -> tuple[int, int]:
    """Error and first offset of one record."""
    data = [TopicProduceData(topic, [PartitionProduceData(partition, plain_batch(**producer))])]
    answered = client.ask(ProduceRequest(None, -1, 1_000, data), 9).responses[0].partition_responses[0]
    return answered.error_code, answered.base_offset


def committed(client: Client, group: str, offset: int, partitions: int = 3) -> list[int]:
    """The errors of a commit by nobody in particular, for each partition."""
    parts = [OffsetCommitRequestPartition(partition, offset) for partition in range(partitions)]
    reply = client.ask(OffsetCommitRequest(group, -1, "", None, -1, [OffsetCommitRequestTopic("orders", parts)]), COMMIT)
    return [partition.error_code for partition in reply.topics[0].partitions]


def test_one_partition_fails_and_the_others_are_written(kafka: Cluster, client: Client) -> None:
    kafka.topic("orders", 3)
    with kafka.fault(api="Produce", topic="orders", partitions=[2], error="POLICY_VIOLATION", count=-1):
        assert [produced(client, "orders", partition)[0] for partition in range(3)] == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert [len(kafka.records("orders", partition)) for partition in range(3)] == [1, 1, 0]


def test_a_group_fails_in_each_partition_of_its_commit_and_another_group_in_none(kafka: Cluster, client: Client) -> None:
    kafka.topic("orders", 3)
    fault = kafka.fault(group="billing", error="NOT_COORDINATOR", count=-1)
    assert committed(client, "billing", 1) == [ErrorCode.NOT_COORDINATOR] * 3
    assert committed(client, "other", 1) == [0] * 3
    assert fault.hits == 1


def test_the_heartbeat_of_one_group_fails(kafka: Cluster) -> None:
    kafka.topic("orders")
    billing, other = Static(kafka, "billing", "b"), Static(kafka, "other", "o")
    assert (billing.join(), other.join()) == (0, 0)
    with kafka.fault(api="Heartbeat", group="billing", error="COORDINATOR_LOAD_IN_PROGRESS", count=-1) as fault:
        assert billing.heartbeat() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert other.heartbeat() == 0
        assert fault.hits == 1
    billing.close()
    other.close()


def test_the_requests_of_one_instance_fail(kafka: Cluster) -> None:
    """By instance, by member and by client id: what kfake has no selector for."""
    first, second = Static(kafka, "billing", "billing-1"), Static(kafka, "shipping", "shipping-1")
    assert (first.join(), second.join()) == (0, 0)
    for selector in ({"instance": "billing-1"}, {"member": first.id}, {"client_id": "client-billing-*"}):
        with kafka.fault(selector, api="Heartbeat", error="NOT_COORDINATOR"):
            assert (second.heartbeat(), first.heartbeat(), first.heartbeat()) == (0, ErrorCode.NOT_COORDINATOR, 0)
    first.close()
    second.close()


def test_one_group_of_a_description_fails(kafka: Cluster, client: Client) -> None:
    with kafka.fault(group="billing", error="GROUP_AUTHORIZATION_FAILED", count=-1):
        reply = client.ask(DescribeGroupsRequest(["billing", "other"]), 5)
    assert {group.group_id: group.error_code for group in reply.groups} == {"billing": ErrorCode.GROUP_AUTHORIZATION_FAILED, "other": 0}


def test_the_error_of_a_whole_fetch_does_not_wait_for_records(kafka: Cluster, client: Client) -> None:
    kafka.topic("orders")
    request = FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=[FetchPartition(0, partition_max_bytes=1 << 20)])])
    with kafka.fault(api="Fetch", top_level=True, error="FETCH_SESSION_TOPIC_ID_ERROR"):
        begin = time.monotonic()
        reply = client.ask(request, 12)
        assert time.monotonic() - begin < 5
    answered = [partition.error_code for topic in reply.responses for partition in topic.partitions]  # up to version 12 Kafka repeats it for each partition
    assert (reply.error_code, answered) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, [ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR])


def test_a_transactional_id_selects_the_requests_that_name_it(kafka: Cluster, client: Client) -> None:
    with kafka.fault(transactional_id="x", error="PRODUCER_FENCED"):
        assert client.ask(InitProducerIdRequest(None, 1_000), 3).error_code == 0
        assert client.ask(InitProducerIdRequest("x", 1_000), 3).error_code == ErrorCode.PRODUCER_FENCED
    for api in ("EndTxn", "AddPartitionsToTxn", "TxnOffsetCommit"):
        with pytest.raises(ControlError, match="does not serve"):
            kafka.fault(api=api, transactional_id="x", error="PRODUCER_FENCED")


def test_one_of_several_coordinators_is_not_found(kafka: Cluster, client: Client) -> None:
    with kafka.fault(group="billing", error="COORDINATOR_NOT_AVAILABLE"):
        reply = client.ask(FindCoordinatorRequest("", 0, ["billing", "other"]), 4)
    assert {each.key: each.error_code for each in reply.coordinators} == {"billing": ErrorCode.COORDINATOR_NOT_AVAILABLE, "other": 0}


def test_one_of_several_resources_fails(kafka: Cluster, client: Client) -> None:
    for name in ("orders", "refunds"):
        kafka.topic(name)
    with kafka.fault(resource="orders", error="INVALID_CONFIG"):
        reply = client.ask(DescribeConfigsRequest([DescribeConfigsResource(TOPIC, name) for name in ("orders", "refunds")]), 4)
    assert {each.resource_name: each.error_code for each in reply.results} == {"orders": ErrorCode.INVALID_CONFIG, "refunds": 0}


def test_a_request_without_the_selected_thing_is_served_and_counted_as_a_near_miss(kafka: Cluster) -> None:
    member = Static(kafka, "billing", "b")
    assert member.join() == 0
    fault = kafka.fault(topic="orders", error="UNKNOWN_SERVER_ERROR", count=-1, may_not_fire=True)
    assert member.heartbeat() == 0
    assert fault.report["hits"] == 0
    assert fault.report["nearest_misses"][-1]["why"] == "it names no topics"
    member.close()


def test_a_budget_is_of_requests_and_a_removal_ends_a_fault_without_one(kafka: Cluster, client: Client) -> None:
    kafka.topic("orders")
    once = kafka.fault(api="ListOffsets", topic="orders", error="POLICY_VIOLATION")
    assert [listed(client, "orders")[0] for _ in range(2)] == [ErrorCode.POLICY_VIOLATION, 0]
    assert once.remove()["hits"] == 1
    forever = kafka.fault(api="ListOffsets", topic="orders", error="POLICY_VIOLATION", count=-1)
    assert {listed(client, "orders")[0] for _ in range(3)} == {ErrorCode.POLICY_VIOLATION}
    assert forever.remove()["hits"] == 3
    assert listed(client, "orders")[0] == 0


def test_rules_of_kcl_fake_fail_after_the_work_where_kfake_does(kafka: Cluster, client: Client) -> None:
    kafka.topic("orders")
    kafka.control.post(f"/v1/clusters/{kafka.id}/faults", {"rules": [{"keys": ["OffsetCommit"], "group": "billing", "error": "REQUEST_TIMED_OUT"}]})
    assert committed(client, "billing", 7, 1) == [ErrorCode.REQUEST_TIMED_OUT]
    assert kafka.group("billing").committed("orders") == 7


def test_of_several_faults_the_first_one_answers(kafka: Cluster, client: Client) -> None:
    """Also as kfake writes them: `rules`, numbers of APIs, `err`."""
    for name in ("orders", "refunds"):
        kafka.topic(name)
    rules = [
        {"keys": ["2"], "topic": "orders", "err": "POLICY_VIOLATION", "count": -1},
        {"keys": [2], "topic": "orders", "err": "INVALID_REQUEST", "count": -1},
        {"keys": [2], "topic": "refunds", "err": "NOT_ENOUGH_REPLICAS", "count": -1},
    ]
    reports = kafka.control.post(f"/v1/clusters/{kafka.id}/faults", {"rules": rules})["faults"]
    assert (listed(client, "orders")[0], listed(client, "refunds")[0]) == (ErrorCode.POLICY_VIOLATION, ErrorCode.NOT_ENOUGH_REPLICAS)
    hits = {report["id"]: report["hits"] for report in kafka.end_faults()}
    assert [hits[report["id"]] for report in reports] == [1, 0, 1]
    assert (listed(client, "orders")[0], listed(client, "refunds")[0]) == (0, 0)


def test_errors_are_answered_one_after_the_other(kafka: Cluster, client: Client) -> None:
    """librdkafka's mock cluster takes errors as a stack for an API: here a fault for each, in this order."""
    kafka.topic("orders")
    names = ("NOT_LEADER_OR_FOLLOWER", "UNKNOWN_SERVER_ERROR", "REQUEST_TIMED_OUT")
    for name in names:
        kafka.fault(api="ListOffsets", error=name)
    assert [listed(client, "orders")[0] for _ in range(4)] == [*(ErrorCode[name] for name in names), 0]


def test_a_commit_that_times_out_was_stored(kafka: Cluster, client: Client) -> None:
    kafka.topic("orders")
    with kafka.fault(api="OffsetCommit", group="billing", error="REQUEST_TIMED_OUT", apply="before"):
        assert committed(client, "billing", 7, 1) == [ErrorCode.REQUEST_TIMED_OUT]
    assert kafka.group("billing").committed("orders") == 7


def test_a_deletion_of_records_that_times_out_has_deleted_them(kafka: Cluster, client: Client) -> None:
    kafka.topic("orders")
    kafka.write("orders", "a", "b", "c")
    with kafka.fault(api="DeleteRecords", topic="orders", error="REQUEST_TIMED_OUT", apply="before"):
        reply = client.ask(DeleteRecordsRequest([DeleteRecordsTopic("orders", [DeleteRecordsPartition(0, 2)])], 1_000), 2)
    assert reply.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert listed(client, "orders", EARLIEST) == (0, 2)


def test_a_change_of_settings_that_times_out_is_made(kafka: Cluster, client: Client) -> None:
    kafka.topic("orders")
    change = AlterConfigsResource(TOPIC, "orders", [AlterableConfig("max.message.bytes", 0, "999999")])
    with kafka.fault(api="IncrementalAlterConfigs", resource="orders", error="REQUEST_TIMED_OUT", apply="before"):
        assert client.ask(IncrementalAlterConfigsRequest([change]), 1).responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    reply = client.ask(DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "orders", ["max.message.bytes"])]), 4)
    assert [(each.name, each.value) for each in reply.results[0].configs] == [("max.message.bytes", "999999")]


def test_a_deletion_of_a_group_that_times_out_has_deleted_it(kafka: Cluster, client: Client) -> None:
    kafka.topic("orders")
    assert committed(client, "billing", 1, 1) == [0]
    with kafka.fault(api="DeleteGroups", group="billing", error="REQUEST_TIMED_OUT", apply="before"):
        assert client.ask(DeleteGroupsRequest(["billing"]), 2).results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert kafka.groups() == []


def test_a_topic_whose_creation_times_out_is_there(kafka: Cluster, client: Client) -> None:
    with kafka.fault(api="CreateTopics", topic="orders", error="REQUEST_TIMED_OUT", apply="before"):
        assert client.ask(CreateTopicsRequest([CreatableTopic("orders", 1, 1)], 1_000), 5).topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert kafka.topics() == {"orders": 1}


@pytest.mark.parametrize("error", ["REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_record_that_timed_out_and_is_sent_again_is_there_once_if_the_producer_is_idempotent(kafka: Cluster, client: Client, error: str, idempotent: bool) -> None:
    kafka.topic("orders")
    producer: dict[str, int] = {}
    if idempotent:
        made = client.ask(InitProducerIdRequest(None, 1_000), 3)
        producer = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch, "base_sequence": 0}
    with kafka.fault(api="Produce", topic="orders", error=error, apply="before"):
        assert produced(client, "orders", **producer)[0] == ErrorCode[error]
    assert produced(client, "orders", **producer) == (0, 0 if idempotent else 1)
    assert len(kafka.records("orders")) == (1 if idempotent else 2)


def test_waiting_for_a_fault(kafka: Cluster, client: Client) -> None:
    kafka.topic("orders")
    fault = kafka.fault(api="ListOffsets", topic="orders", error="POLICY_VIOLATION", count=2)
    with pytest.raises(NotReached, match="0 times and not 1"):
        fault.wait(timeout=0.05)
    reports: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: reports.append(fault.wait()))
    waiting.start()
    listed(client, "orders")
    waiting.join(10)
    assert reports[0]["hits"] == 1
    assert fault.wait()["hits"] == 1, "a hit of before is enough"
    listed(client, "orders")
    assert fault.wait(2)["left"] == 0
    assert listed(client, "orders")[0] == 0


def test_a_fault_installed_while_a_request_is_held_meets_the_next_one(kafka: Cluster, client: Client) -> None:
    kafka.topic("orders")
    held = kafka.fault(api="ListOffsets", hold=True)
    codes: list[int] = []
    asking = threading.Thread(target=lambda: codes.append(listed(client, "orders")[0]))
    asking.start()
    held.wait()
    kafka.fault(api="ListOffsets", topic="orders", error="POLICY_VIOLATION")
    held.release()
    asking.join(10)
    assert codes == [0]
    assert listed(client, "orders")[0] == ErrorCode.POLICY_VIOLATION
