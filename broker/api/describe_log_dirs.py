"""DescribeLogDirs: the sizes of logs and the free space of the disk."""

from __future__ import annotations

import os

from broker.api.described_partitions import described_partitions
from broker.api.parts import Parts
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Authorizer, Operation, cluster_allowed
from broker.topics.partitions import Partitions
from broker.topics.registry import Topics
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def route(parts: Parts) -> Route:
    handler = DescribeLogDirs(parts.topics, parts.partitions, parts.authorizer, parts.data_path)
    return Route(DescribeLogDirsRequest, handler.handle, refuse)


class DescribeLogDirs:
    def __init__(self, topics: Topics, partitions: Partitions, authorizer: Authorizer, data_directory: str) -> None:
        self._topics = topics
        self._partitions = partitions
        self._authorizer = authorizer
        self._directory = os.path.abspath(data_directory)

    def handle(self, call: Call, request: DescribeLogDirsRequest) -> Response:
        if not cluster_allowed(self._authorizer, call, Operation.DESCRIBE):
            return refuse(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        wanted: dict[str, dict[int, None]] = {}
        if request.topics is None:
            wanted = {topic.name: dict.fromkeys(range(topic.partitions)) for topic in self._topics.listed()}
        else:
            for asked in request.topics:
                wanted.setdefault(asked.topic, {}).update(dict.fromkeys(asked.partitions))
        topics = []
        for name, indices in wanted.items():
            found = self._sizes(name, indices)
            if found:
                topics.append(DescribeLogDirsTopic(name, found))
        total, usable = self._room()
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(0, self._directory, topics, total, usable)])

    def _sizes(self, name: str, indices: dict[int, None]) -> list[DescribeLogDirsPartition]:
        """The sizes of the partitions' logs, without logs that are not opened yet."""
        topic = self._topics.by_name.get(name)
        if topic is None:
            return []
        partitions = described_partitions(self._partitions, topic)
        found = []
        for index in indices:
            if not 0 <= index < len(partitions):
                continue
            partition = partitions[index]
            if partition.opened:
                found.append(DescribeLogDirsPartition(index, partition.log.size, 0, False))
            elif self._partitions.has_nothing(partition):
                found.append(DescribeLogDirsPartition(index, 0, 0, False))
        return found

    def _room(self) -> tuple[int, int]:
        try:
            disk = os.statvfs(self._directory)
        except OSError:
            return -1, -1
        return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize


def refuse(request: DescribeLogDirsRequest, version: int, error: int) -> Response:
    return DescribeLogDirsResponse(error_code=error)
