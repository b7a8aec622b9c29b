"""Names of streams, subjects and keys in JetStream."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG, REGISTRY_LOG
from storage import LogId

_INTERNAL: Final = {CONSUMER_OFFSETS: "groups", NOTES_LOG: "notes", REGISTRY_LOG: "registry"}


class Stream(NamedTuple):
    """The stream that contains a log."""

    log: str  # the log's name, for log lines and errors
    name: str
    subject: str  # of the stream's entries


class ClusterNames:
    """The names of one cluster's streams, subjects and keys."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.meta_stream = f"TENURE-{cluster}-meta"
        self.meta_subject = f"tenure.{cluster}.meta"
        self.node_subject = f"tenure.{cluster}.node"  # no stream has these messages (node_links.py)
        self.topics_subject = f"tenure.{cluster}.topic"

    def internal(self, id: LogId) -> Stream:
        kind = _INTERNAL[id.name]
        return Stream(str(id), f"TENURE-{self.cluster}-{kind}-{id.partition}", f"tenure.{self.cluster}.{kind}.{id.partition}")

    def topic(self, id: LogId, topic_id: bytes) -> Stream:
        """Named by the topic's id: a new topic of the same name has another stream."""
        hexed = topic_id.hex()
        return Stream(str(id), f"TENURE-{self.cluster}-topic-{hexed}-{id.partition}", f"{self.topics_subject}.{hexed}.{id.partition}")

    def node_key(self, node: int) -> str:
        return f"{self.meta_subject}.node.{node}"

    def owner_key(self, stream: Stream) -> str:
        return f"{self.meta_subject}.owner.{stream.name}"

    @property
    def format_key(self) -> str:
        return f"{self.meta_subject}.format"
