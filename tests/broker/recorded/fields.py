"""The fields of replies in the versions that were recorded; what only newer versions have is left out."""

from __future__ import annotations

from typing import Final

from protocol.message import field_names

NEWER: Final = {
    "DeletableGroupResult": {"error_message"},
    "DescribeLogDirsResult": {"is_cordoned"},
    "OffsetCommitResponseTopic": {"topic_id"},
    "OffsetFetchResponseTopics": {"topic_id"},
    "TopicProduceResponse": {"topic_id"},
}


def recorded_fields(kind: type) -> list[str]:
    newer = NEWER.get(kind.__name__, set())
    return [name for name in field_names(kind) if name not in newer]
