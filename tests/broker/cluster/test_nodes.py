"""Several nodes over one data directory, served in the loop of the test, behind real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from broker.cluster.messages import NODE_API
from broker.cluster.routing import Routing
from broker.cluster.status import status
from broker.cluster_wiring import ClusterBroker
from broker.internal_topics import REGISTRY_LOG_ID
from broker.runtime.start import StartError
from broker.topics.leaders import NO_NODE
from broker.topics.registry import PRODUCER_IDS_PER_BLOCK
from coordinator import partition_of
from protocol.batch import build_facts
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.in_loop import AsyncClient, InLoopBroker

pytestmark = [pytest.mark.asyncio, pytest.mark.once]

OFFSETS_PARTITIONS = 8
SECONDS = 30  # generous: other work may take the processors
SLOW_SECONDS = 0.15


class Nodes:
    """Nodes by id, and a client of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.served: dict[int, InLoopBroker] = {}
        self.clients: dict[int, AsyncClient] = {}

    async def start(self, *ids: int, settled: bool = True, **settings: object) -> None:
        for id in ids:
            served = self.served[id] = InLoopBroker(self.folder)
            await served.start(
                **{"node_id": id, "cluster_nodes": 3, "offsets_topic_num_partitions": OFFSETS_PARTITIONS, "num_partitions": 3} | settings
            )
            self.clients[id] = await served.connect()
        if settled:
            await self.settle()

    async def stop(self, *ids: int) -> None:
        for id in ids:
            await self.served.pop(id).stop()
            del self.clients[id]

    def broker(self, id: int) -> ClusterBroker:
        broker = self.served[id].server.broker
        assert isinstance(broker, ClusterBroker)
        return broker

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not holds():
                await asyncio.sleep(0.01)

    async def settle(self) -> None:
        """Wait until every log is served by the node that should have it."""
        await self.until(lambda: all(self.is_settled(id) for id in self.served))

    def is_settled(self, id: int) -> bool:
        broker = self.broker(id)
        cluster = broker.cluster
        partitions_by_topic = {topic.name: topic.partition_count for topic in broker.topics.listed()}
        return (
            cluster.settled
            and len(cluster.routing.endpoints("PLAINTEXT")) == len(self.served)
            and all(partitions_by_topic == {topic.name: topic.partition_count for topic in self.broker(peer_id).topics.listed()} for peer_id in self.served)
        )

    @property
    def controller(self) -> int:
        return next(iter(self.served.values())).server.broker.cluster.routing.controller  # type: ignore[attr-defined, no-any-return]

    @property
    def follower(self) -> int:
        return next(id for id in self.served if id != self.controller)

    async def create(self, id: int, name: str, partitions: int = 6) -> None:
        request = CreateTopicsRequest([CreatableTopic(name, partitions, 1)], 5_000)
        reply = await self.clients[id].ask(request, 7)
        assert [topic.error_code for topic in reply.topics] == [0]
        await self.settle()

    async def leaders(self, id: int, name: str) -> list[int]:
        reply = await self.clients[id].ask(MetadataRequest([MetadataRequestTopic(name=name)], False), 12)
        (topic,) = reply.topics
        return [partition.leader_id for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)]

    async def coordinator(self, group: str, id: int = 0) -> int:
        reply = await self.clients[id or next(iter(self.clients))].ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
        (coordinator,) = reply.coordinators
        return coordinator.node_id  # type: ignore[no-any-return]


@pytest_asyncio.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    nodes = Nodes(tmp_path / "data")
    yield nodes
    await nodes.stop(*nodes.served)


@pytest_asyncio.fixture
async def three(nodes: Nodes) -> Nodes:
    await nodes.start(1, 2, 3)
    return nodes


def produce_request(name: str, partition: int, value: bytes = b"value") -> ProduceRequest:
    batch = build_facts([(b"key", value)], 1_000)
    return ProduceRequest(None, -1, 1_000, [TopicProduceData(name, [PartitionProduceData(partition, batch)])])


def fetch_request(name: str, partition: int, version: int, topic_id: bytes = bytes(16), epoch: int = -1) -> FetchRequest:
    fetch_partition = FetchPartition(partition=partition, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic=name, topic_id=topic_id, partitions=[fetch_partition])
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic], session_epoch=-1)


async def join(client: AsyncClient, group: str, instance: str, member: str = "") -> tuple[str, int]:
    """A static member that is the leader of its group; its id and generation."""
    request = JoinGroupRequest(group, 20_000, 20_000, member, instance, "consumer", [JoinGroupRequestProtocol("range", b"")])
    joined = await client.ask(request, 7)
    assert not joined.error_code
    synced = await client.ask(
        SyncGroupRequest(
            group, joined.generation_id, joined.member_id, instance, "consumer", "range", [SyncGroupRequestAssignment(joined.member_id, b"all")]
        ),
        5,
    )
    assert not synced.error_code
    return joined.member_id, joined.generation_id


async def test_every_node_names_the_same_nodes_controller_leaders_and_coordinators(three: Nodes) -> None:
    await three.create(1, "topic")
    answers = []
    for id, client in three.clients.items():
        cluster = await client.ask(DescribeClusterRequest(), 1)
        answers.append(
            (
                cluster.cluster_id,
                cluster.controller_id,
                [(broker.broker_id, broker.port) for broker in cluster.brokers],
                await three.leaders(id, "topic"),
                [await three.coordinator(f"group-{number}", id) for number in range(20)],
            )
        )
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][2] == [(id, three.served[id].port) for id in (1, 2, 3)]
    assert len(set(answers[0][3])) > 1
    assert set(answers[0][4]) == {1, 2, 3}


async def quorum_of(client: AsyncClient) -> DescribeQuorumResponse:
    request = DescribeQuorumRequest([DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])])
    reply: DescribeQuorumResponse = await client.ask(request, 2)
    return reply


async def test_every_node_names_the_controller_as_leader_of_the_quorum(three: Nodes) -> None:
    for moves in range(2):
        for client in three.clients.values():
            reply = await quorum_of(client)
            (partition,) = reply.topics[0].partitions
            assert (partition.error_code, partition.leader_id) == (0, three.controller)
            assert partition.leader_epoch == three.broker(three.controller).cluster.routing.leader_epoch(REGISTRY_LOG_ID)
            assert [voter.replica_id for voter in partition.current_voters] == sorted(three.served)
            assert [(node.node_id, node.listeners[0].port) for node in reply.nodes] == [(id, three.served[id].port) for id in sorted(three.served)]
        await three.stop(three.controller)
        await three.settle()
        assert moves or three.controller != partition.leader_id


async def test_a_quorum_without_a_controller_has_no_leader_yet(three: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Routing, "controller", NO_NODE)
    (partition,) = (await quorum_of(three.clients[1])).topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, NO_NODE)


async def test_topics_are_created_and_deleted_through_any_node(three: Nodes) -> None:
    for id in three.clients:
        await three.create(id, f"by-{id}")
    for id, client in three.clients.items():
        deleted = await client.ask(DeleteTopicsRequest([DeleteTopicState(f"by-{id % 3 + 1}")], timeout_ms=5_000), 6)
        assert [response.error_code for response in deleted.responses] == [0]
    await three.until(lambda: not any("by-" in path.name and "delete" not in path.name for path in three.folder.iterdir()))
    for client in three.clients.values():
        assert [topic.name for topic in (await client.ask(MetadataRequest(None), 12)).topics] == ["__consumer_offsets"]


@pytest.mark.plain  # compiled stores cannot be patched
@pytest.mark.parametrize("through", ["controller", "follower"])
async def test_a_topic_is_created_while_the_controller_changes(three: Nodes, monkeypatch: pytest.MonkeyPatch, through: str) -> None:
    """The owner of the registry has not opened it yet, or releases it already: that node cannot write, but must not refuse the request."""
    loop = asyncio.get_running_loop()
    client, before = three.clients[getattr(three, through)], three.controller
    for id in three.served:
        store = three.broker(id).cluster._store
        for name in ("release", "acquire"):
            monkeypatch.setattr(store, name, partial(loop.call_later, SLOW_SECONDS, getattr(store, name)))
    for id in three.served:
        three.broker(id).cluster.members.drain(before, True)
    for number in range(8):
        reply = await client.ask(CreateTopicsRequest([CreatableTopic(f"topic-{number}", 1, 1)], 5_000), 7)
        assert [(topic.error_code, topic.error_message) for topic in reply.topics] == [(0, None)]
        await asyncio.sleep(SLOW_SECONDS / 3)
    await three.settle()
    assert three.controller != before


def delay(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delay messages between nodes and the opening of logs. No log changes its owner meanwhile."""
    monkeypatch.setattr("broker.cluster.propagation.LATE_SECONDS", SECONDS)
    monkeypatch.setattr("broker.cluster.ownership.GRACE_MS", 1_000 * SECONDS)
    loop = asyncio.get_running_loop()
    for id in nodes.served:
        cluster = nodes.broker(id).cluster
        for owner, name in ((cluster.peers, "send"), (cluster.partitions, "acquire")):
            monkeypatch.setattr(owner, name, partial(loop.call_later, SLOW_SECONDS, getattr(owner, name)))


@pytest.mark.parametrize("change", ["created", "auto-created", "grown"])
@pytest.mark.parametrize("through", ["controller", "follower"])
async def test_a_new_topic_is_known_on_every_node_at_once(three: Nodes, monkeypatch: pytest.MonkeyPatch, change: str, through: str) -> None:
    client = three.clients[getattr(three, through)]
    if change == "grown":
        await three.create(1, "topic", 1)
    delay(three, monkeypatch)
    if change == "created":
        await client.ask(CreateTopicsRequest([CreatableTopic("topic", 6, 1)], 5_000), 7)
    elif change == "grown":
        await client.ask(CreatePartitionsRequest([CreatePartitionsTopic("topic", 6, None)], 5_000), 3)
    else:
        await client.ask(MetadataRequest([MetadataRequestTopic(name="topic")], True), 12)
    named = [await three.leaders(id, "topic") for id in three.served]
    assert named[0] == named[1] == named[2]
    assert len(named[0]) == (3 if change == "auto-created" else 6)
    for partition, leader in enumerate(named[0]):
        stored = await three.clients[leader].ask(produce_request("topic", partition), 9)
        assert stored.responses[0].partition_responses[0].error_code == 0


async def test_a_replication_factor_up_to_the_number_of_nodes_is_accepted_and_is_1(three: Nodes) -> None:
    topics = [CreatableTopic(f"times-{replicas}", 2, replicas) for replicas in (3, 4)]
    reply = await three.clients[three.follower].ask(CreateTopicsRequest(topics, 5_000), 7)
    assert [(topic.error_code, topic.replication_factor) for topic in reply.topics] == [(0, 1), (ErrorCode.INVALID_REPLICATION_FACTOR, -1)]
    metadata = await three.clients[1].ask(MetadataRequest([MetadataRequestTopic(name="times-3")], False), 12)
    assert [len(partition.replica_nodes) for partition in metadata.topics[0].partitions] == [1, 1]


async def test_a_deleted_topic_is_gone_on_every_node_at_once(three: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    await three.create(1, "topic")
    delay(three, monkeypatch)
    await three.clients[three.controller].ask(DeleteTopicsRequest([DeleteTopicState("topic")], timeout_ms=5_000), 6)
    for client in three.clients.values():
        reply = await client.ask(MetadataRequest([MetadataRequestTopic(name="topic")], False), 12)
        assert reply.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_frozen_node_holds_up_a_new_topic_for_a_second_only(three: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(three.broker(three.follower).cluster, "handle", lambda call, request: None)
    three.broker(three.follower).dispatch.add_routes(three.broker(three.follower).cluster.route())
    for name in ("one", "two"):
        reply = await three.clients[three.controller].ask(CreateTopicsRequest([CreatableTopic(name, 6, 1)], 5_000), 7)
        assert reply.topics[0].error_code == 0


async def test_a_recreated_topic_begins_empty(three: Nodes) -> None:
    for _ in range(3):
        await three.create(three.follower, "topic", 3)
        for partition, leader in enumerate(await three.leaders(1, "topic")):
            for offset in range(2):
                reply = await three.clients[leader].ask(produce_request("topic", partition), 9)
                part = reply.responses[0].partition_responses[0]
                assert (part.error_code, part.base_offset) == (0, offset)
        await three.clients[three.follower].ask(DeleteTopicsRequest([DeleteTopicState("topic")], timeout_ms=5_000), 6)


async def commit(nodes: Nodes, group: str, topic: str, offset: int) -> None:
    request = OffsetCommitRequest(group, -1, "", topics=[OffsetCommitRequestTopic(topic, [OffsetCommitRequestPartition(0, offset)])])
    reply = await nodes.clients[await nodes.coordinator(group)].ask(request, 8)
    assert not reply.topics[0].partitions[0].error_code


async def committed(nodes: Nodes, group: str, topic: str) -> int:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(topic, [0])])])
    reply = await nodes.clients[await nodes.coordinator(group)].ask(request, 8)
    return reply.groups[0].topics[0].partitions[0].committed_offset  # type: ignore[no-any-return]


async def test_all_nodes_forget_the_offsets_of_a_deleted_topic(three: Nodes) -> None:
    groups = [f"group-{number}" for number in range(12)]
    await three.create(1, "topic")
    await three.create(1, "other")
    for group in groups:
        await commit(three, group, "topic", 7)
        await commit(three, group, "other", 8)
    await three.clients[three.follower].ask(DeleteTopicsRequest([DeleteTopicState("topic")], timeout_ms=5_000), 6)
    await three.until(lambda: not any(three.broker(id).topics.deleted for id in three.served))
    assert {await committed(three, group, "topic") for group in groups} == {-1}
    assert {await committed(three, group, "other") for group in groups} == {8}


async def test_the_next_controller_completes_a_deletion(three: Nodes) -> None:
    groups = [f"group-{number}" for number in range(12)]
    await three.create(1, "topic")
    for group in groups:
        await commit(three, group, "topic", 7)
    deleting_node = three.controller
    three.broker(deleting_node).deletions.report = lambda ids, partition: None  # type: ignore[attr-defined]
    await three.clients[three.follower].ask(DeleteTopicsRequest([DeleteTopicState("topic")], timeout_ms=5_000), 6)
    assert three.broker(deleting_node).topics.deleted
    await three.stop(deleting_node)
    await three.settle()
    await three.until(lambda: not any(three.broker(id).topics.deleted for id in three.served))
    assert {await committed(three, group, "topic") for group in groups} == {-1}


async def test_a_topic_is_created_by_a_metadata_request_to_any_node(three: Nodes) -> None:
    reply = await three.clients[three.follower].ask(MetadataRequest([MetadataRequestTopic(name="new")], True), 12)
    assert [(topic.name, topic.error_code, len(topic.partitions)) for topic in reply.topics] == [("new", 0, 3)]
    await three.settle()
    assert set(await three.leaders(three.follower, "new")) <= {1, 2, 3}


async def test_a_wrong_node_refuses_records_and_names_the_leader(three: Nodes) -> None:
    await three.create(1, "topic")
    leader = (await three.leaders(1, "topic"))[0]
    wrong = three.clients[leader % 3 + 1]
    epoch = three.broker(leader).partitions.find("topic", 0).leader_epoch  # type: ignore[union-attr]
    old = await wrong.ask(produce_request("topic", 0), 9)
    assert old.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    new = await wrong.ask(produce_request("topic", 0), 10)
    part = new.responses[0].partition_responses[0]
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (leader, epoch)
    assert [(end.node_id, end.port) for end in new.node_endpoints] == [(leader, three.served[leader].port)]
    topic_id = three.broker(leader).topics.by_name["topic"].id
    by_id = produce_request("topic", 0)
    by_id.topic_data[0].topic_id = topic_id
    newest = await wrong.ask(by_id, 13)
    assert newest.responses[0].topic_id == topic_id
    assert newest.responses[0].partition_responses[0].current_leader == part.current_leader
    assert newest.node_endpoints == new.node_endpoints
    read = await wrong.ask(fetch_request("", 0, 16, topic_id), 16)
    refused = read.responses[0].partitions[0]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (leader, epoch)
    assert [(end.node_id, end.port) for end in read.node_endpoints] == [(leader, three.served[leader].port)]
    stored = await three.clients[leader].ask(produce_request("topic", 0), 10)
    assert stored.responses[0].partition_responses[0].error_code == 0
    assert not stored.node_endpoints


async def test_a_wrong_node_is_not_the_coordinator(three: Nodes) -> None:
    coordinator = await three.coordinator("group")
    wrong = three.clients[coordinator % 3 + 1]
    for request, version in ((HeartbeatRequest("group", 1, "member"), 4), (JoinGroupRequest("group", 20_000, 20_000, "", None, "consumer"), 7)):
        assert (await wrong.ask(request, version)).error_code == ErrorCode.NOT_COORDINATOR
    await join(three.clients[coordinator], "group", "instance")


async def test_the_logs_of_a_stopped_node_are_served_by_the_others_at_newer_epochs(three: Nodes) -> None:
    await three.create(1, "topic")
    leaders = await three.leaders(1, "topic")
    for partition, leader in enumerate(leaders):
        assert not (await three.clients[leader].ask(produce_request("topic", partition), 9)).responses[0].partition_responses[0].error_code
    epochs = {partition: three.broker(leader).partitions.find("topic", partition).leader_epoch for partition, leader in enumerate(leaders)}  # type: ignore[union-attr]
    old_controller = three.controller
    await three.stop(old_controller)
    await three.settle()
    assert three.controller != old_controller
    for partition, leader in enumerate(await three.leaders(three.follower, "topic")):
        assert leader != old_controller
        read = await three.clients[leader].ask(fetch_request("topic", partition, 11), 11)
        assert b"value" in read.responses[0].partitions[0].records
        epoch = three.broker(leader).partitions.find("topic", partition).leader_epoch  # type: ignore[union-attr]
        assert (epoch > epochs[partition]) == (leaders[partition] != leader)
    await three.create(three.follower, "after")


async def test_a_member_keeps_its_seat_and_its_offsets_when_its_coordinator_moves(three: Nodes) -> None:
    await three.create(1, "topic")
    first = await three.coordinator("group")
    member, generation = await join(three.clients[first], "group", "instance")
    beat = HeartbeatRequest("group", generation, member, "instance")
    commit = OffsetCommitRequest(
        "group", generation, member, "instance", topics=[OffsetCommitRequestTopic("topic", [OffsetCommitRequestPartition(0, 7)])]
    )
    assert not (await three.clients[first].ask(commit, 8)).topics[0].partitions[0].error_code
    for _ in range(3):
        assert not (await three.clients[first].ask(beat, 4)).error_code
    three.broker(first).cluster.members.drain(first, True)
    for id in three.served:
        three.broker(id).cluster.members.drain(first, True)
    await three.until(lambda: all(three.is_settled(id) for id in three.served))
    assert (await three.clients[first].ask(beat, 4)).error_code == ErrorCode.NOT_COORDINATOR
    second = await three.coordinator("group")
    assert second != first
    for _ in range(3):
        assert not (await three.clients[second].ask(beat, 4)).error_code
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("group", topics=[OffsetFetchRequestTopics("topic", [0])])])
    reply = await three.clients[second].ask(fetch, 8)
    assert reply.groups[0].topics[0].partitions[0].committed_offset == 7
    for id in three.served:
        three.broker(id).cluster.members.drain(first, False)
    await three.settle()
    assert await three.coordinator("group") == first
    for _ in range(3):
        assert not (await three.clients[first].ask(beat, 4)).error_code
        assert (await three.clients[second].ask(beat, 4)).error_code == ErrorCode.NOT_COORDINATOR


async def test_a_parked_join_is_answered_when_its_coordinator_moves(three: Nodes) -> None:
    first = await three.coordinator("group")
    await join(three.clients[first], "group", "one")
    parked = await three.served[first].connect()
    parked.send((JoinGroupRequest("group", 20_000, 20_000, "", "two", "consumer", [JoinGroupRequestProtocol("range", b"")]), 7))
    journal = three.broker(first).shards.journals[partition_of("group", OFFSETS_PARTITIONS)]
    await three.until(lambda: len(journal.shard.groups["group"].members) == 2)
    for id in three.served:
        three.broker(id).cluster.members.drain(first, True)
    assert (await parked.reply()).error_code == ErrorCode.NOT_COORDINATOR


async def test_a_draining_node_owns_nothing_and_a_restart_ends_the_draining(three: Nodes) -> None:
    await three.create(1, "topic")
    peer_id = three.follower
    for id in three.served:
        three.broker(id).cluster.members.drain(peer_id, True)
    await three.settle()
    assert not three.broker(peer_id).cluster.ownership.owned()
    await three.stop(peer_id)
    await three.start(peer_id)
    assert three.broker(peer_id).cluster.ownership.owned()


async def test_a_node_reports_whether_it_is_draining(three: Nodes) -> None:
    first, second, third = three.served
    three.broker(first).cluster.members.drain(second, True)  # only the first node has this request, as if its message to the others had been lost
    three.broker(third).cluster.members.drain(third, True)
    await three.until(lambda: status(three.broker(first).cluster, three.broker(first).clock)["status.draining.nodes"] == str(third))
    await three.until(lambda: status(three.broker(second).cluster, three.broker(second).clock)["status.draining.nodes"] == str(third))


async def producer_ids(client: AsyncClient, count: int) -> list[int]:
    replies = [await client.ask(InitProducerIdRequest(None, 1_000, -1, -1), 4) for _ in range(count)]
    assert not any(reply.error_code for reply in replies)
    return [reply.producer_id for reply in replies]


async def test_every_node_hands_out_producer_ids_of_a_block_of_its_own(three: Nodes) -> None:
    ids = {id: await producer_ids(client, 20) for id, client in three.clients.items()}
    assert all(block == list(range(block[0], block[0] + 20)) for block in ids.values())
    assert {block[0] % PRODUCER_IDS_PER_BLOCK for block in ids.values()} == {0}
    assert len({block[0] for block in ids.values()}) == 3
    old_controller = three.controller
    await three.stop(old_controller)
    for id, client in three.clients.items():
        assert await producer_ids(client, 1) == [ids[id][-1] + 1]  # from the block of ids that the node has, as the controller is down
    await three.start(old_controller)
    assert (await producer_ids(three.clients[old_controller], 1))[0] >= max(map(max, ids.values()))


async def ended(client: AsyncClient, client_epoch: int, epoch: int) -> tuple[int, int, int]:
    """The reply to OffsetForLeaderEpoch for `epoch` from a client that knows `client_epoch`: error, epoch and end offset."""
    requested = OffsetForLeaderTopic("topic", [OffsetForLeaderPartition(0, client_epoch, epoch)])
    (topic,) = (await client.ask(OffsetForLeaderEpochRequest(-1, [requested]), 4)).topics
    (part,) = topic.partitions
    return part.error_code, part.leader_epoch, part.end_offset


async def test_ends_of_leader_epochs_survive_changes_of_owner(three: Nodes) -> None:
    await three.create(1, "topic", 1)
    epochs: list[int] = []  # the epochs of owners that appended records; `ends`: their end offsets
    ends: list[int] = []
    for number in range(4):
        (leader,) = await three.leaders(1, "topic")
        partition = three.broker(leader).partitions.find("topic", 0)
        assert partition is not None
        epoch = partition.leader_epoch
        client = three.clients[leader]
        assert await ended(client, epoch, epoch) == (0, epoch, ends[-1] if ends else 0)  # the new owner has appended nothing yet
        wrong_epochs = [(client_epoch, ErrorCode.FENCED_LEADER_EPOCH) for client_epoch in range(epoch)] + [(epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH)]
        for client_epoch, error in wrong_epochs:
            assert (await ended(client, client_epoch, epoch))[0] == error
            read = await client.ask(fetch_request("topic", 0, 11, epoch=client_epoch), 11)
            assert read.responses[0].partitions[0].error_code == error
        wrong = three.clients[leader % 3 + 1]
        assert (await ended(wrong, epoch, epoch))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if number != 1:  # one owner appends no record
            for _ in range(number + 1):
                assert not (await client.ask(produce_request("topic", 0), 9)).responses[0].partition_responses[0].error_code
            epochs.append(epoch)
            ends.append((ends[-1] if ends else 0) + number + 1)
        for client_epoch, end in zip(epochs, ends, strict=True):
            assert await ended(client, epoch, client_epoch) == (0, client_epoch, end)
        for id in three.served:
            three.broker(id).cluster.members.drain(leader, True)
            for peer_id in set(three.served) - {leader}:
                three.broker(id).cluster.members.drain(peer_id, False)
        await three.until(lambda: all(three.is_settled(id) for id in three.served))
    assert epochs == sorted(set(epochs))


async def test_settings_of_topics_and_policies_of_groups_are_changed_through_any_node(three: Nodes) -> None:
    await three.create(1, "topic")
    group = "group"
    for id, client in three.clients.items():
        changes = [AlterConfigsResource(2, "topic", [AlterableConfig("retention.ms", 0, str(id))])]
        reply = await client.ask(IncrementalAlterConfigsRequest(changes), 1)
        assert [response.error_code for response in reply.responses] == [0]
        policy = [AlterConfigsResource(32, group, [AlterableConfig("registration.timeout.ms", 0, str(1_000 + id))])]
        reply = await client.ask(IncrementalAlterConfigsRequest(policy), 1)
        assert [(response.error_code, response.error_message) for response in reply.responses] == [(0, None)]
        resources = [DescribeConfigsResource(2, "topic", ["retention.ms"]), DescribeConfigsResource(32, group, ["registration.timeout.ms"])]
        described = await client.ask(DescribeConfigsRequest(resources[:1]), 4)
        assert described.results[0].configs[0].value == str(id)
        described = await client.ask(DescribeConfigsRequest(resources[1:]), 4)
        assert [config.value for config in described.results[0].configs if config.name == "registration.timeout.ms"] == [str(1_000 + id)]


async def test_a_node_shows_what_it_owns(three: Nodes) -> None:
    await three.create(1, "topic")
    owned = 0
    for id, client in three.clients.items():
        reply = await client.ask(DescribeConfigsRequest([DescribeConfigsResource(4, str(id), None)]), 4)
        status = {config.name: config.value for config in reply.results[0].configs if config.name.startswith("status.")}
        owned += int(status["status.topics.partitions"])
        assert status["status.live.nodes"] == "1,2,3"
        assert status["status.controller"] == str(id == three.controller).lower()
    assert owned == 6


async def test_requests_between_nodes_are_not_offered_to_clients(three: Nodes) -> None:
    reply = await three.clients[1].ask(ApiVersionsRequest("client", "1"), 3)
    assert NODE_API not in [api.api_key for api in reply.api_keys]


async def test_several_nodes_serve_the_directory_of_one_broker_and_not_the_other_way(nodes: Nodes, tmp_path: Path) -> None:
    alone = InLoopBroker(nodes.folder)
    await alone.start(offsets_topic_num_partitions=OFFSETS_PARTITIONS)
    client = await alone.connect()
    await client.ask(CreateTopicsRequest([CreatableTopic("topic", 6, 1)], 5_000), 7)
    for partition in range(6):
        await client.ask(produce_request("topic", partition), 9)
    member, generation = await join(client, "group", "instance")
    await alone.stop()
    await nodes.start(1, 2, 3)
    for partition, leader in enumerate(await nodes.leaders(1, "topic")):
        read = await nodes.clients[leader].ask(fetch_request("topic", partition, 11), 11)
        assert b"value" in read.responses[0].partitions[0].records
    coordinator = await nodes.coordinator("group")
    assert not (await nodes.clients[coordinator].ask(HeartbeatRequest("group", generation, member, "instance"), 4)).error_code
    with pytest.raises(StartError):
        await InLoopBroker(nodes.folder).start()


async def test_two_processes_with_one_id_do_not_serve(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.stores.shared.START_SECONDS", 0.1)
    await nodes.start(1)
    with pytest.raises(StartError, match=r"node 1 of data directory .* is already running"):
        await InLoopBroker(nodes.folder).start(node_id=1, cluster_nodes=3)


