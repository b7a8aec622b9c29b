"""Plays a program to Apache Kafka, or to a broker of ours, with the answers in the form of `programs.py`.

Kafka's coordinator hears of topics a moment later, and resolves expressions in a thread of its own: the player waits for both.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatRequestTopicPartitions
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.consumer.classic_words import (
    CLIENT,
    TIMEOUT,
    Identities,
    assignment,
    fresh_part,
    join_answer,
    read,
    subscription,
    sync_answer,
)
from tests.coordinator.consumer.programs import Answer, Named, Step
from tests.running import Client

TOPICS_S = 1.0  # until the coordinator knows of a change of topics that Metadata shows
RESOLUTION_S = 0.5  # until the expressions of a group are resolved
SHOWN_S = 5
PARKED_S = 0.3  # without a reply, a JoinGroup or SyncGroup is parked
QUIET_S = 0.1  # until the replies that a step releases have come

# The settings under which the core and Kafka agree on time.
SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "5",
    "group.min.session.timeout.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.migration.policy": "disabled",
}


class Waiting(NamedTuple):
    """A JoinGroup or SyncGroup on a connection of its own."""

    name: str
    kind: str
    client: Client
    request: Any
    version: int
    step: Step

    def has_reply(self, seconds: float) -> bool:
        return bool(select.select([self.client.socket], [], [], seconds)[0])


class KafkaPlayer:
    def __init__(self, port: int, group: str, topics_s: float = TOPICS_S, resolution_s: float = RESOLUTION_S) -> None:
        """`topics_s` and `resolution_s`: how long to wait after a change of topics, and after a heartbeat of a program with expressions."""
        self._topics_s = topics_s
        self._resolution_s = resolution_s
        self.port = port
        self.client = Client(port, client_id=CLIENT)
        self.identities = Identities()
        self.waiting: list[Waiting] = []
        self.group = group
        self.names: dict[bytes, str] = {}
        self.ids: dict[str, list[str]] = {}
        self.expressions = False
        self.began = time.monotonic()

    @property
    def moment(self) -> int:
        return round((time.monotonic() - self.began) * 1_000)

    def close(self) -> None:
        for waiting in self.waiting:
            waiting.client.socket.close()
        self.client.socket.close()

    def play(self, step: Step) -> Answer:
        if step["do"] in ("classic_join", "classic_sync"):
            return self._ask(step)
        answer: Answer = getattr(self, step["do"])(**{name: value for name, value in step.items() if name != "do"})
        self.expressions = self.expressions or bool(step.get("regex"))
        if self.expressions and step["do"] == "beat":
            time.sleep(self._resolution_s)
        return answer

    # Topics and time.

    def topic(self, name: str, partitions: int) -> Answer:
        if any(known == name for known in self.names.values()) and self._partitions(name):
            reply = self.client.ask(CreatePartitionsRequest([CreatePartitionsTopic(name, partitions)], 5_000), 2)
            assert not any(result.error_code for result in reply.results), reply
        else:
            reply = self.client.ask(CreateTopicsRequest([CreatableTopic(name, partitions, 1)], 5_000), 7)
            assert not any(topic.error_code for topic in reply.topics), reply
            id = reply.topics[0].topic_id
            self.names[id] = name
            self.ids.setdefault(name, []).append(id.hex())
        self._await_shown(name, partitions)
        return {}

    def _partitions(self, name: str) -> int:
        return len(self.client.ask(MetadataRequest([MetadataRequestTopic(name=name)], False), 7).topics[0].partitions)

    def _await_shown(self, name: str, partitions: int) -> None:
        until = time.monotonic() + SHOWN_S
        while self._partitions(name) != partitions:
            assert time.monotonic() < until, f"{name} has not {partitions} partitions after {SHOWN_S} s"
            time.sleep(0.02)
        time.sleep(self._topics_s)

    def drop(self, name: str) -> Answer:
        assert not self.client.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=5_000), 3).responses[0].error_code
        self._await_shown(name, 0)
        return {}

    def drop_all(self) -> None:
        """Free the names of the program."""
        left = [name for name in self.ids if self._partitions(name)]
        if left:
            self.client.ask(DeleteTopicsRequest(topic_names=left, timeout_ms=5_000), 3)
            for name in left:
                self._await_shown(name, 0)

    def wait(self, ms: int) -> Answer:
        time.sleep(ms / 1_000)
        return {}

    # Requests.

    def beat(
        self,
        member: str,
        epoch: int,
        instance: str | None = None,
        rack: str | None = None,
        timeout: int = -1,
        topics: Sequence[str] | None = None,
        regex: str | None = None,
        assignor: str | None = None,
        owned: Named | None = None,
        v: int = 1,
        group: str | None = None,
    ) -> Answer:
        listed = None
        if owned is not None:
            listed = [ConsumerGroupHeartbeatRequestTopicPartitions(self.id_of(name), list(each)) for name, each in owned.items()]
        names = None if topics is None else list(topics)
        id = self.group if group is None else group
        request = ConsumerGroupHeartbeatRequest(id, self.identities.id_of(member), epoch, instance, rack, timeout, names, regex, assignor, listed)
        reply = self.client.ask(request, v)
        if reply.error_code:
            return {"error": reply.error_code}
        assigned = None if reply.assignment is None else self.named(reply.assignment.topic_partitions)
        return {"error": 0, "member": self.identities.name_of(reply.member_id), "epoch": reply.member_epoch, "interval": reply.heartbeat_interval_ms, "assigned": assigned}

    def commit(self, member: str, epoch: int, partitions: Named, instance: str | None = None, v: int = 9) -> Answer:
        topics = [
            OffsetCommitRequestTopic(name, [OffsetCommitRequestPartition(number, 7, committed_metadata="") for number in each]) for name, each in partitions.items()
        ]
        reply = self.client.ask(OffsetCommitRequest(self.group, epoch, self.identities.id_of(member), instance, topics=topics), v)
        codes = {partition.error_code for topic in reply.topics for partition in topic.partitions}
        return {"error": codes.pop() if len(codes) == 1 else sorted(codes)}

    def fetch(self, member: str | None, epoch: int) -> Answer:
        id = None if member is None else self.identities.id_of(member)
        reply = self.client.ask(OffsetFetchRequest([OffsetFetchRequestGroup(self.group, id, epoch, None)]), 9).groups[0]
        offsets = sorted([topic.name, partition.partition_index] for topic in reply.topics for partition in topic.partitions)
        return {"error": reply.error_code, "offsets": offsets}

    def delete_offsets(self, partitions: Named) -> Answer:
        topics = [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(number) for number in each]) for name, each in partitions.items()]
        reply = self.client.ask(OffsetDeleteRequest(self.group, topics), 0)
        codes = {(topic.name, part.partition_index): part.error_code for topic in reply.topics for part in topic.partitions}
        return {"error": reply.error_code, "codes": [codes[name, number] for name, each in partitions.items() for number in each if codes]}

    def delete(self) -> Answer:
        return {"error": self.client.ask(DeleteGroupsRequest([self.group]), 2).results[0].error_code}

    def leave(self, members: Sequence[tuple[str, str | None]]) -> Answer:
        reply = self.client.ask(LeaveGroupRequest(self.group, members=[MemberIdentity(self.identities.id_of(member), instance) for member, instance in members]), 5)
        assert not reply.error_code, reply
        return {"codes": [member.error_code for member in reply.members]}

    def classic_beat(self, member: str, epoch: int, instance: str | None = None) -> Answer:
        return {"error": self.client.ask(HeartbeatRequest(self.group, epoch, self.identities.id_of(member), instance), 4).error_code}

    # JoinGroup and SyncGroup.

    def _ask(self, step: Step) -> Answer:
        arguments = {name: value for name, value in step.items() if name not in ("do", "fresh")}
        request, version = getattr(self, f"_{step['do']}")(**arguments)
        waiting = Waiting(step["name"], step["do"].removeprefix("classic_"), Client(self.port, client_id=CLIENT), request, version, step)
        waiting.client.send(request, version)
        if waiting.has_reply(PARKED_S):
            return self._hear(waiting)
        self.waiting.append(waiting)
        return {"parked": True}

    def _classic_join(
        self,
        name: str,
        topics: Sequence[str],
        owned: Named | None = None,
        new: bool = False,
        instance: str | None = None,
        rack: str | None = None,
        protocols: Sequence[str] = ("range",),
        sv: int = 1,
        timeout: int = TIMEOUT,
        session: int = TIMEOUT,
        v: int = 9,
        type: str = "consumer",
        damaged: bool = False,
    ) -> tuple[Any, int]:
        metadata = subscription(topics, owned or {}, sv, rack)[: 7 if damaged else None]
        offers = [JoinGroupRequestProtocol(protocol, metadata) for protocol in protocols]
        return JoinGroupRequest(self.group, session, timeout, "" if new else self.identities.id_of(name), instance, type, offers), v

    def _classic_sync(
        self,
        name: str,
        generation: int,
        assignments: dict[str, Named] | None = None,
        instance: str | None = None,
        type: str | None = "consumer",
        protocol: str | None = "range",
        user_data: bool = False,
    ) -> tuple[Any, int]:
        of_members = [
            SyncGroupRequestAssignment(self.identities.id_of(member), assignment(each, b"x" if user_data else None))
            for member, each in (assignments or {}).items()
        ]
        return SyncGroupRequest(self.group, generation, self.identities.id_of(name), instance, type, protocol, of_members), 5

    def _hear(self, waiting: Waiting) -> Answer:
        reply = waiting.client.receive(waiting.request, waiting.version)
        waiting.client.socket.close()
        shown = SimpleNamespace(error=reply.error_code, protocol_type=reply.protocol_type, protocol_name=reply.protocol_name)
        if waiting.kind == "sync":
            return sync_answer(shown, reply.assignment)
        if waiting.step.get("new") and reply.member_id:
            waiting.step["fresh"] = fresh_part(reply.member_id, waiting.step.get("instance"))
        self.identities.give(waiting.name, reply.member_id)
        shown.generation, shown.leader, shown.skip_assignment = reply.generation_id, reply.leader, reply.skip_assignment
        return join_answer(self.identities, shown, reply.member_id, [member.member_id for member in reply.members])

    def _learn_fresh(self, step: Step, ids: Sequence[str]) -> None:
        """The id of a member whose JoinGroup is parked, if only one can be it."""
        fresh = [part for id in ids if id not in self.identities.names and (part := fresh_part(id, step.get("instance"))) != id]
        if len(fresh) == 1:
            step["fresh"] = fresh[0]

    def _arrived(self) -> Answer:
        arrived: list[Any] = []
        quiet = QUIET_S
        while ready := [waiting for waiting in self.waiting if waiting.has_reply(quiet)]:
            self.waiting = [waiting for waiting in self.waiting if waiting not in ready]
            arrived += [[waiting.name, waiting.kind, self._hear(waiting)] for waiting in ready]
        return {"arrived": sorted(arrived, key=str)} if arrived else {}

    def _look_at_classic(self) -> Answer:
        shown = self.client.ask(DescribeGroupsRequest([self.group]), 5).groups[0]
        for waiting in self.waiting:
            if waiting.step.get("new") and "fresh" not in waiting.step:
                self._learn_fresh(waiting.step, [member.member_id for member in shown.members])
        members = {
            self.identities.name_of(member.member_id): {"instance": member.group_instance_id, "assigned": read(member.member_assignment)}
            for member in shown.members
        }
        return {"state": shown.group_state, "protocol": shown.protocol_data, "members": dict(sorted(members.items()))}

    def look(self) -> Answer:
        arrived = self._arrived() if self.waiting else {}
        view = self.client.ask(ConsumerGroupDescribeRequest([self.group]), 1).groups[0]
        groups = self.client.ask(ListGroupsRequest(), 5).groups
        shown = next(([group.group_type, group.protocol_type, group.group_state] for group in groups if group.group_id == self.group), None)
        if view.error_code:
            classic = {} if shown is None or shown[1:] == ["", "Empty"] else {"classic": self._look_at_classic()}
            return {"error": view.error_code, "listed": shown, **classic, **arrived}
        members = {
            self.identities.name_of(member.member_id): {
                "epoch": member.member_epoch,
                "instance": member.instance_id,
                "rack": member.rack_id,
                "topics": sorted(member.subscribed_topic_names),
                "regex": member.subscribed_topic_regex,
                "assigned": self.named(member.assignment.topic_partitions),
                "target": self.named(member.target_assignment.topic_partitions),
                **({"classic": True} if member.member_type == 0 else {}),
            }
            for member in view.members
        }
        return {
            "error": 0,
            "listed": shown,
            "state": view.group_state,
            "epoch": view.group_epoch,
            "target_epoch": view.assignment_epoch,
            "assignor": view.assignor_name,
            "members": dict(sorted(members.items())),
            **arrived,
        }

    # Names of topics.

    def id_of(self, name: str) -> bytes:
        return next((id for id, known in reversed(self.names.items()) if known == name), b"no such topic".ljust(16, b"\0"))

    def named(self, partitions: Sequence[Any]) -> dict[str, list[int]]:
        named = {self.names[topic.topic_id]: sorted(topic.partitions) for topic in partitions}
        return dict(sorted(named.items()))
