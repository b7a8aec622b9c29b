"""Kinds of clients: their API versions and habits, and their subscriptions and assignments."""

from __future__ import annotations

from typing import Final, NamedTuple

SESSION_FACTOR: Final = 2  # how many times longer the longer of two session timeouts is, between which a process may change
PROTOCOLS: Final = ("range", "roundrobin")


class Style(NamedTuple):
    """The API versions and habits of a kind of client."""

    name: str
    join: int  # API versions
    sync: int
    heartbeat: int
    commit: int
    fetch: int
    leave: int
    omits_instance: bool = False  # only JoinGroup carries the instance id
    pipelines: bool = False  # sends heartbeats and commits without waiting for replies
    rejoins_when_fenced: bool = False


STYLES: Final = (
    Style("java", 9, 5, 4, 8, 8, 5),
    Style("kafka-python", 5, 3, 3, 7, 5, 3, pipelines=True),
    Style("aiokafka", 5, 3, 1, 2, 3, 1, omits_instance=True),
    Style("librdkafka", 5, 3, 3, 7, 7, 1, pipelines=True),
    Style("franz-go", 7, 4, 4, 8, 7, 5, rejoins_when_fenced=True),
)


class Settings(NamedTuple):
    """Settings of the consumers of one group; times in nanoseconds."""

    session_ns: int
    rebalance_ns: int
    heartbeat_ns: int
    commit_ns: int
    topics: tuple[tuple[str, int], ...]  # with their numbers of partitions


def subscription(topics: list[str], user_data: bytes | None = None) -> bytes:
    parts = [b"\0\1", len(topics).to_bytes(4, "big")]
    for topic in topics:
        parts += [len(topic).to_bytes(2, "big"), topic.encode()]
    parts.append(b"\xff\xff\xff\xff" if user_data is None else len(user_data).to_bytes(4, "big") + user_data)
    return b"".join([*parts, b"\0\0\0\0"])


def assignment(mark: str, partitions: list[tuple[str, int]]) -> bytes:
    """Encode the assignment of one member. `mark`: bytes that the leader gives all members of a generation."""
    return ";".join([mark, *[f"{topic}:{number}" for topic, number in partitions]]).encode()


def read_assignment(data: bytes) -> tuple[str, list[tuple[str, int]]]:
    mark, *entries = data.decode().split(";")
    owned = []
    for entry in entries:
        topic, _, number = entry.rpartition(":")
        owned.append((topic, int(number)))
    return mark, owned
