"""DescribeLogDirs: the sizes of logs and the free space of the disk."""

from __future__ import annotations

import os
from typing import Final

from broker.api.described_partitions import described_partitions
from broker.api.parts import BrokerParts
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.security.authorizer import Operation, cluster_allowed
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from protocol.wire import Steps

PARTITIONS_PER_STEP: Final = 4


def route(parts: BrokerParts) -> Route:
    return Route(DescribeLogDirsRequest, parts.long_requests.handler(DescribeLogDirs(parts).handle), error_response)


class DescribeLogDirs:
    def __init__(self, parts: BrokerParts) -> None:
        self._topics = parts.topics
        self._partitions = parts.partitions
        self._authorizer = parts.authorizer
        self._directory = os.path.abspath(parts.data_path)

    def handle(self, call: Call, request: DescribeLogDirsRequest) -> Steps[Response]:
        if not cluster_allowed(self._authorizer, call, Operation.DESCRIBE):
            return error_response(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        indexes_by_topic: dict[str, dict[int, None] | None] = {}  # None: all partitions
        if request.topics is None:
            indexes_by_topic = {topic.name: None for topic in self._topics.listed()}
        else:
            for topic in request.topics:
                indexes = indexes_by_topic.setdefault(topic.topic, {})
                assert indexes is not None
                indexes.update(dict.fromkeys(topic.partitions))
                yield LOOKUP_COST
        topics = []
        for name, requested in indexes_by_topic.items():
            sizes = yield from self._sizes(name, requested)
            if sizes:
                topics.append(DescribeLogDirsTopic(name, sizes))
        total, usable = self._disk_space()
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(0, self._directory, topics, total, usable)])

    def _sizes(self, name: str, indexes: dict[int, None] | None) -> Steps[list[DescribeLogDirsPartition]]:
        """The sizes of the partitions' logs, 0 for a log that was never written; without other logs that are not open."""
        yield LOOKUP_COST
        topic = self._topics.by_name.get(name)
        if topic is None:
            return []
        partitions = described_partitions(self._partitions, topic)
        sizes = []
        for number, index in enumerate(range(len(partitions)) if indexes is None else indexes):
            if number % PARTITIONS_PER_STEP == 0:
                yield LOOKUP_COST
            if not 0 <= index < len(partitions):
                continue
            partition = partitions[index]
            if partition.opened:
                sizes.append(DescribeLogDirsPartition(index, partition.log.size, 0, False))
            elif self._partitions.was_never_written(partition):
                sizes.append(DescribeLogDirsPartition(index, 0, 0, False))
        return sizes

    def _disk_space(self) -> tuple[int, int]:
        try:
            disk = os.statvfs(self._directory)
        except OSError:
            return -1, -1
        return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize


def error_response(request: DescribeLogDirsRequest, version: int, error: int) -> Response:
    return DescribeLogDirsResponse(error_code=error)
