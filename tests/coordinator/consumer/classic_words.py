"""The classic protocol in programs: names for the member ids that a coordinator hands out, subscriptions and assignments, and answers as dicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from protocol.records import read_assignment, with_version

CLIENT = "client"  # the client id of all members
TIMEOUT = 60_000

Partitions = Mapping[str, Sequence[int]]


class Identities:
    """A name stands for the newest id that its member was given, `NAME~1` for the first one before that. Other members choose their ids: their names."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self.names: dict[str, str] = {}

    def id_of(self, name: str) -> str:
        return self.ids.get(name, name)

    def name_of(self, id: str) -> str:
        return self.names.get(id) or (f"{id} itself" if id in self.ids else id)

    def give(self, name: str, id: str) -> None:
        before = self.ids.get(name)
        if before == id or not id:
            return
        if before is not None:
            earlier = next(f"{name}~{number}" for number in range(1, len(self.ids) + 2) if f"{name}~{number}" not in self.ids)
            self.ids[earlier], self.names[before] = before, earlier
        self.ids[name], self.names[id] = id, name


def fresh_part(id: str, instance: str | None) -> str:
    """What was random in an id that the coordinator gave."""
    prefix = f"{CLIENT if instance is None else instance}-"
    return id.removeprefix(prefix)


def subscription(topics: Sequence[str], owned: Partitions, version: int, rack: str | None) -> bytes:
    parts = [ConsumerProtocolSubscriptionTopicPartition(topic, list(numbers)) for topic, numbers in owned.items()]
    return with_version(ConsumerProtocolSubscription(list(topics), None, parts, -1, rack), version)


def assignment(partitions: Partitions, user_data: bytes | None = None) -> bytes:
    return with_version(ConsumerProtocolAssignment([ConsumerProtocolAssignmentTopicPartition(name, list(numbers)) for name, numbers in partitions.items()], user_data), 1)


def read(data: bytes) -> dict[str, list[int]] | None:
    """The partitions by topic; None: no bytes."""
    if not data:
        return None
    return dict(sorted((part.topic, sorted(part.partitions)) for part in read_assignment(data).assigned_partitions))


def join_answer(identities: Identities, reply: Any, member_id: str, member_ids: Iterable[str]) -> dict[str, Any]:
    if reply.error:
        return {"error": int(reply.error), "member": identities.name_of(member_id)}
    return {
        "error": 0,
        "member": identities.name_of(member_id),
        "generation": reply.generation,
        "type": reply.protocol_type,
        "protocol": reply.protocol_name,
        "leader": identities.name_of(reply.leader),
        "members": sorted(identities.name_of(id) for id in member_ids),
        "skip": reply.skip_assignment,
    }


def sync_answer(reply: Any, assigned: bytes) -> dict[str, Any]:
    if reply.error:
        return {"error": int(reply.error)}
    return {"error": 0, "type": reply.protocol_type, "protocol": reply.protocol_name, "assigned": read(assigned)}
