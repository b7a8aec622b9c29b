"""AlterReplicaLogDirs: all logs are in the single data directory and cannot be moved."""

from __future__ import annotations

import os

from broker.api.parts import Parts
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Authorizer, Operation, cluster_allowed
from broker.topics.registry import Topics
from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def route(parts: Parts) -> Route:
    handler = AlterReplicaLogDirs(parts.topics, parts.authorizer, parts.data_path)
    return Route(AlterReplicaLogDirsRequest, handler.handle, refuse)


class AlterReplicaLogDirs:
    def __init__(self, topics: Topics, authorizer: Authorizer, data_directory: str) -> None:
        self._topics = topics
        self._authorizer = authorizer
        self._directory = os.path.abspath(data_directory)

    def handle(self, call: Call, request: AlterReplicaLogDirsRequest) -> Response:
        if not cluster_allowed(self._authorizer, call, Operation.ALTER):
            return refuse(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        wanted: dict[str, dict[int, str]] = {}  # the last of several folders for a partition counts
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
        topic = self._topics.by_name.get(name)
        if path != self._directory:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if topic is None or not 0 <= index < topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE


def refuse(request: AlterReplicaLogDirsRequest, version: int, error: int) -> Response:
    results = [
        AlterReplicaLogDirTopicResult(topic.name, [AlterReplicaLogDirPartitionResult(index, error) for index in topic.partitions])
        for folder in request.dirs
        for topic in folder.topics
    ]
    return AlterReplicaLogDirsResponse(results=results)
