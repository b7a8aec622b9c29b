"""AlterReplicaLogDirs: all logs are in the single data directory and cannot be moved."""

from __future__ import annotations

import os

from broker.api.parts import BrokerParts
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.security.authorizer import Operation, cluster_allowed
from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from protocol.wire import Steps


def route(parts: BrokerParts) -> Route:
    return Route(AlterReplicaLogDirsRequest, parts.long_requests.handler(AlterReplicaLogDirs(parts).handle), error_response)


class AlterReplicaLogDirs:
    def __init__(self, parts: BrokerParts) -> None:
        self._topics = parts.topics
        self._authorizer = parts.authorizer
        self._directory = os.path.abspath(parts.data_path)

    def handle(self, call: Call, request: AlterReplicaLogDirsRequest) -> Steps[Response]:
        if not cluster_allowed(self._authorizer, call, Operation.ALTER):
            return error_response(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        paths_by_topic: dict[str, dict[int, str]] = {}  # of several folders for one partition, the last counts
        for folder in request.dirs:
            for topic in folder.topics:
                paths_by_topic.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, folder.path))
                yield LOOKUP_COST
        results = []
        for name, paths in paths_by_topic.items():
            partitions: list[AlterReplicaLogDirPartitionResult] = []
            results.append(AlterReplicaLogDirTopicResult(name, partitions))
            yield LOOKUP_COST
            for index, path in paths.items():
                partitions.append(AlterReplicaLogDirPartitionResult(index, self._move_error(name, index, path)))
                yield LOOKUP_COST
        return AlterReplicaLogDirsResponse(results=results)

    def _move_error(self, name: str, index: int, path: str) -> ErrorCode:
        topic = self._topics.by_name.get(name)
        if path != self._directory:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if topic is None or not 0 <= index < topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE


def error_response(request: AlterReplicaLogDirsRequest, version: int, error: int) -> Response:
    results = [
        AlterReplicaLogDirTopicResult(topic.name, [AlterReplicaLogDirPartitionResult(index, error) for index in topic.partitions])
        for folder in request.dirs
        for topic in folder.topics
    ]
    return AlterReplicaLogDirsResponse(results=results)
