"""Names of streams and subjects in the engine."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG, REGISTRY_LOG
from storage import LogId

_INTERNAL: Final = {CONSUMER_OFFSETS: "groups", NOTES_LOG: "notes", REGISTRY_LOG: "registry"}


class Place(NamedTuple):
    """The stream and subject of a log."""

    name: str  # for log lines and errors
    stream: str
    subject: str


class Names:
    """The names of one cluster."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.meta_stream = f"TENURE-{cluster}-meta"
        self.meta_subject = f"tenure.{cluster}.meta"
        self.topics_subject = f"tenure.{cluster}.topic"

    def internal(self, id: LogId) -> Place:
        kind = _INTERNAL[id.name]
        return Place(str(id), f"TENURE-{self.cluster}-{kind}-{id.partition}", f"tenure.{self.cluster}.{kind}.{id.partition}")

    def topic(self, id: LogId, topic_id: bytes) -> Place:
        """Named by the topic's id: a new topic of the same name has another stream."""
        hexed = topic_id.hex()
        return Place(str(id), f"TENURE-{self.cluster}-topic-{hexed}-{id.partition}", f"{self.topics_subject}.{hexed}.{id.partition}")

    def node_key(self, node: int) -> str:
        return f"{self.meta_subject}.node.{node}"

    def owner_key(self, place: Place) -> str:
        return f"{self.meta_subject}.owner.{place.stream}"

    @property
    def format_key(self) -> str:
        return f"{self.meta_subject}.format"
