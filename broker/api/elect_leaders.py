"""ElectLeaders: each partition has a single replica, its leader, so no election is ever needed."""

from __future__ import annotations

from broker.api.parts import BrokerParts
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.security.authorizer import Operation, cluster_allowed
from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from protocol.wire import Steps

PREFERRED, UNCLEAN = 0, 1
PREFERRED_ONLY_VERSION = 0  # the version in which every election is for the preferred leader


def route(parts: BrokerParts) -> Route:
    return Route(ElectLeadersRequest, parts.long_requests.handler(ElectLeaders(parts).handle), error_response)


class ElectLeaders:
    def __init__(self, parts: BrokerParts) -> None:
        self._topics = parts.topics
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: ElectLeadersRequest) -> Steps[Response]:
        if not cluster_allowed(self._authorizer, call, Operation.ALTER):
            return error_response(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if request.timeout_ms <= 0:
            return _no_election(request, call.version, ErrorCode.REQUEST_TIMED_OUT, None)
        if call.version > PREFERRED_ONLY_VERSION and request.election_type not in (PREFERRED, UNCLEAN):
            return _no_election(request, call.version, ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
        if request.topic_partitions is None:  # a reply for all partitions lists only failed elections
            all_topics = []
            for name in [topic.name for topic in self._topics.listed()]:
                yield LOOKUP_COST
                all_topics.append(ReplicaElectionResult(name, []))
            return ElectLeadersResponse(replica_election_results=all_topics)
        results = []
        for requested in request.topic_partitions:
            partitions: list[PartitionResult] = []
            results.append(ReplicaElectionResult(requested.topic, partitions))
            yield LOOKUP_COST
            for index in requested.partitions:
                partitions.append(self._election_result(requested.topic, index))
                yield LOOKUP_COST
        return ElectLeadersResponse(replica_election_results=results)

    def _election_result(self, name: str, index: int) -> PartitionResult:
        topic = self._topics.by_name.get(name)
        if topic is None:
            return PartitionResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
        if not 0 <= index < topic.partition_count:
            return PartitionResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
        return PartitionResult(index, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED.message)


def _no_election(request: ElectLeadersRequest, version: int, error: int, message: str | None) -> Response:
    results = [
        ReplicaElectionResult(topic.topic, [PartitionResult(index, error, message) for index in topic.partitions])
        for topic in request.topic_partitions or []
    ]
    return ElectLeadersResponse(error_code=error if version > PREFERRED_ONLY_VERSION else ErrorCode.NONE, replica_election_results=results)


def error_response(request: ElectLeadersRequest, version: int, error: int) -> Response:
    return _no_election(request, version, error, ErrorCode(error).message)
