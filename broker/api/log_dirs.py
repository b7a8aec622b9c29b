"""DescribeLogDirs: how large the logs are, and how much room the disk has."""

from __future__ import annotations

import os

from broker.api.serving import Serving
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Operation
from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


class LogDirHandlers:
    """DescribeLogDirs."""

    def __init__(self, serving: Serving, data_directory: str) -> None:
        self._serving = serving
        self._directory = os.path.abspath(data_directory)

    def routes(self) -> list[Route]:
        return [Route(APIS[DescribeLogDirsRequest.API_KEY], self.describe, refuse_describe)]

    def describe(self, call: Call, request: DescribeLogDirsRequest) -> Response:
        serving = self._serving
        if not serving.may_all(call, Operation.DESCRIBE):
            return refuse_describe(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        wanted: dict[str, dict[int, None]] = {}
        if request.topics is None:
            wanted = {topic.name: dict.fromkeys(range(topic.partitions)) for topic in serving.topics.listed()}
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
        """What is still to be opened has no size that is known."""
        topic = self._serving.topics.by_name.get(name)
        if topic is None:
            return []
        partitions = self._serving.partitions_of(topic)
        found = []
        for index in indices:
            if not 0 <= index < len(partitions):
                continue
            partition = partitions[index]
            if partition.opened:
                found.append(DescribeLogDirsPartition(index, partition.log.size, 0, False))
            elif self._serving.partitions.has_nothing(partition):
                found.append(DescribeLogDirsPartition(index, 0, 0, False))
        return found

    def _room(self) -> tuple[int, int]:
        try:
            disk = os.statvfs(self._directory)
        except OSError:
            return -1, -1
        return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize


def refuse_describe(request: DescribeLogDirsRequest, version: int, error: int) -> Response:
    return DescribeLogDirsResponse(error_code=error)
