"""Where the copies of partitions are, and who leads them: on one broker there is nothing to choose, and tools are told so.

ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments, AlterReplicaLogDirs, DescribeQuorum.
"""

from __future__ import annotations

import os
from typing import Final

from broker.api.serving import Refused, Serving
from broker.net.dispatch import Call, Response, Route
from broker.runtime.clock import Clock
from broker.runtime.node import Address
from broker.security.authorizer import Operation
from broker.topics.registry import NO_ID
from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

PREFERRED, UNCLEAN = 0, 1
WITHOUT_TYPE = 0  # the version of ElectLeaders in which every election is for the preferred leader

# What Kafka's controllers call the log of what they decide. Here it is the registry of topics, which nobody reads as a topic:
# who asks after the quorum learns who decides, and that the log has no offsets to speak of.
METADATA_TOPIC: Final = "__cluster_metadata"
QUORUM_EPOCH = 1  # a quorum of one elects once


class ReplicaHandlers:
    """What moves copies and leaders between brokers, and between folders of one."""

    def __init__(self, serving: Serving, data_directory: str, clock: Clock) -> None:
        self._serving = serving
        self._directory = os.path.abspath(data_directory)
        self._clock = clock

    def routes(self) -> list[Route]:
        return [
            Route(APIS[ElectLeadersRequest.API_KEY], self.elect, refuse_elect),
            Route(APIS[AlterPartitionReassignmentsRequest.API_KEY], self.reassign, refuse_reassign),
            Route(APIS[ListPartitionReassignmentsRequest.API_KEY], self.reassigning, refuse_reassigning),
            Route(APIS[AlterReplicaLogDirsRequest.API_KEY], self.move, refuse_move),
            Route(APIS[DescribeQuorumRequest.API_KEY], self.quorum, refuse_quorum),
        ]

    # ElectLeaders

    def elect(self, call: Call, request: ElectLeadersRequest) -> Response:
        if not self._serving.may_all(call, Operation.ALTER):
            return refuse_elect(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if request.timeout_ms <= 0:
            return no_election(request, call.version, ErrorCode.REQUEST_TIMED_OUT, None)
        if call.version > WITHOUT_TYPE and request.election_type not in (PREFERRED, UNCLEAN):
            return no_election(request, call.version, ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
        if request.topic_partitions is None:  # of all partitions those are named whose election failed: none
            return ElectLeadersResponse(replica_election_results=[ReplicaElectionResult(topic.name, []) for topic in self._serving.topics.listed()])
        results = [
            ReplicaElectionResult(asked.topic, [self._elected(asked.topic, index) for index in asked.partitions])
            for asked in request.topic_partitions
        ]
        return ElectLeadersResponse(replica_election_results=results)

    def _elected(self, name: str, index: int) -> PartitionResult:
        topic = self._serving.topics.by_name.get(name)
        if topic is None:
            return PartitionResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
        if not 0 <= index < topic.partitions:
            return PartitionResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
        return PartitionResult(index, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED.message)

    # Reassignments

    def reassign(self, call: Call, request: AlterPartitionReassignmentsRequest) -> Response:
        if not self._serving.may_all(call, Operation.ALTER):
            return refuse_reassign(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if request.timeout_ms <= 0:
            return no_reassignment(request, ErrorCode.REQUEST_TIMED_OUT, None)
        responses = [
            ReassignableTopicResponse(asked.name, [self._reassigned(asked.name, partition) for partition in asked.partitions])
            for asked in request.topics
        ]
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None if responses else "",
            responses=responses,
        )

    def _reassigned(self, name: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
        """To stay where one is is no change, and done. Without replicas a reassignment under way is cancelled, and there is none."""
        result = ReassignablePartitionResponse(asked.partition_index, ErrorCode.NONE, None)
        topic = self._serving.topics.by_name.get(name)
        try:
            if topic is None:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
            if not 0 <= asked.partition_index < topic.partitions:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{asked.partition_index}.")
            if asked.replicas is None:
                raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            self._serving.check_replicas(asked.replicas)
        except Refused as why:
            result.error_code, result.error_message = why.error, why.message
        return result

    def reassigning(self, call: Call, request: ListPartitionReassignmentsRequest) -> Response:
        if not self._serving.may_all(call, Operation.DESCRIBE):
            return refuse_reassigning(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return ListPartitionReassignmentsResponse(error_message=None, topics=[])

    # AlterReplicaLogDirs

    def move(self, call: Call, request: AlterReplicaLogDirsRequest) -> Response:
        if not self._serving.may_all(call, Operation.ALTER):
            return refuse_move(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        wanted: dict[str, dict[int, str]] = {}  # of two folders for one partition the last counts
        for folder in request.dirs:
            for topic in folder.topics:
                wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, folder.path))
        results = [
            AlterReplicaLogDirTopicResult(
                name, [AlterReplicaLogDirPartitionResult(index, self._moved(name, index, path)) for index, path in paths.items()]
            )
            for name, paths in wanted.items()
        ]
        return AlterReplicaLogDirsResponse(results=results)

    def _moved(self, name: str, index: int, path: str) -> ErrorCode:
        topic = self._serving.topics.by_name.get(name)
        if path != self._directory:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if topic is None or not 0 <= index < topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    # DescribeQuorum

    def quorum(self, call: Call, request: DescribeQuorumRequest) -> Response:
        if not self._serving.may_all(call, Operation.DESCRIBE):
            return refuse_quorum(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        asked = [(topic.topic_name, [partition.partition_index for partition in topic.partitions]) for topic in request.topics]
        found = self._leader if asked == [(METADATA_TOPIC, [0])] else no_leader
        topics = [DescribeQuorumResponseTopicData(name, [found(index) for index in indices]) for name, indices in asked]
        dialled: Address = call.connection.listener
        nodes = [Node(self._serving.node.id, [Listener(dialled.name, dialled.host, dialled.port)])] if found == self._leader else []
        return DescribeQuorumResponse(topics=topics, nodes=nodes)

    def _leader(self, index: int) -> DescribeQuorumResponsePartitionData:
        now, id = self._clock.wall, self._serving.node.id
        voter = ReplicaState(id, NO_ID, 0, now, now)
        return DescribeQuorumResponsePartitionData(index, ErrorCode.NONE, "", id, QUORUM_EPOCH, 0, [voter], [])


def no_leader(index: int) -> DescribeQuorumResponsePartitionData:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponsePartitionData(index, error, error.message, current_voters=[], observers=[])


def no_election(request: ElectLeadersRequest, version: int, error: int, message: str | None) -> Response:
    results = [
        ReplicaElectionResult(asked.topic, [PartitionResult(index, error, message) for index in asked.partitions])
        for asked in request.topic_partitions or []
    ]
    return ElectLeadersResponse(error_code=error if version > WITHOUT_TYPE else ErrorCode.NONE, replica_election_results=results)


def refuse_elect(request: ElectLeadersRequest, version: int, error: int) -> Response:
    return no_election(request, version, error, ErrorCode(error).message)


def refuse_reassign(request: AlterPartitionReassignmentsRequest, version: int, error: int) -> Response:
    return no_reassignment(request, error, ErrorCode(error).message)


def no_reassignment(request: AlterPartitionReassignmentsRequest, error: int, message: str | None) -> Response:
    responses = [
        ReassignableTopicResponse(
            asked.name, [ReassignablePartitionResponse(partition.partition_index, error, message) for partition in asked.partitions]
        )
        for asked in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=error, error_message=message, responses=responses)


def refuse_reassigning(request: ListPartitionReassignmentsRequest, version: int, error: int) -> Response:
    topics = [
        OngoingTopicReassignment(asked.name, [OngoingPartitionReassignment(index, [], [], []) for index in asked.partition_indexes])
        for asked in request.topics or []
    ]
    return ListPartitionReassignmentsResponse(0, error, ErrorCode(error).message, topics)


def refuse_move(request: AlterReplicaLogDirsRequest, version: int, error: int) -> Response:
    results = [
        AlterReplicaLogDirTopicResult(topic.name, [AlterReplicaLogDirPartitionResult(index, error) for index in topic.partitions])
        for folder in request.dirs
        for topic in folder.topics
    ]
    return AlterReplicaLogDirsResponse(results=results)


def refuse_quorum(request: DescribeQuorumRequest, version: int, error: int) -> Response:
    return DescribeQuorumResponse(error_code=error, error_message=ErrorCode(error).message, topics=[], nodes=[])
