"""The administrator: creates topics; deletes topics, groups, offsets and members while clients use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from coordinator.states import PREPARING
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.leave_group import MemberIdentity
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from simulator.client import Client, ClientConnection, Process, Request
from simulator.commit import Commit
from simulator.consumer import Consumer
from simulator.epoch_plan import PARTITIONS_MAX
from simulator.plan import GroupPlan
from simulator.promises import GroupPartition, Offsets
from simulator.scene import Scene
from simulator.topics import Removals
from simulator.world import MS, SECOND, Broken, Promise

ADDRESS: Final = "10.9.9.9"
PAUSE_NS: Final = 100 * MS
REQUEST_NS: Final = 30 * SECOND
TRIES: Final = 40
LATEST: Final = -1
# Actions on a group.
DESCRIBE, DELETE_GROUP, DELETE_OFFSETS, REMOVE_MEMBER, RETIRE, RESET_OFFSETS = range(6)
DELETIONS: Final = (DELETE_GROUP, DELETE_OFFSETS, RETIRE)
RESET_VERSION: Final = 7
DELETED: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
ADMINISTRATION: Final = Promise("administration", "requests of the administrator with valid settings are accepted")
TOPICS: Final = Promise("topics", "a topic whose deletion was acknowledged is gone")
SAFE_DELETIONS: Final = Promise("deletions", "a group with members is not deleted, nor are offsets of topics that they consume")


class Administrator(Client):
    def __init__(self, scene: Scene, consumers: Sequence[Consumer]) -> None:
        super().__init__(scene.world, "administrator")
        self._scene = scene
        self._consumers = consumers

    def _wire(self) -> ClientConnection | None:
        return self._scene.lookups.connect(self.name, ADDRESS)

    # Topics.

    def create_topics(self) -> Process:
        yield from self.create(self._scene.topics.partitions)

    def create(self, topics: dict[str, int]) -> Process:
        scene = self._scene
        pending = dict(topics)
        while pending:
            wire = self._wire()
            if wire is None:
                yield PAUSE_NS
                continue
            settings = [CreatableTopicConfig(*setting) for setting in scene.plan.topic_settings]
            creations = [
                CreatableTopic(name, partitions, 1, None, settings if name.startswith("data") else None) for name, partitions in pending.items()
            ]
            request = wire.send(CreateTopicsRequest(creations, 10_000, False), 5, REQUEST_NS)
            yield request
            if not request.lost:
                for result in request.reply.topics:
                    if result.error_code == ErrorCode.INVALID_CONFIG:
                        raise Broken(ADMINISTRATION, str(result.error_message))
                    if result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        pending.pop(result.name, None)
                        scene.records.created(result.name)
                        scene.topics.created.add(result.name)
            wire.close()
            yield PAUSE_NS

    def delete_topic(self) -> Process:
        """Delete a topic that clients use, check that it is gone, and recreate it under the same name."""
        scene = self._scene
        if not scene.topics.created:
            return
        name = self.world.random.choice(sorted(scene.topics.created))
        partitions = scene.topics.partitions[name]
        self.world.trace(f"administrator: deletes topic {name}", "node")
        self.world.count("topic deleted", 1)
        scene.topics.created.discard(name)
        while (deletion := scene.topics.deletion_of(name)) is None:
            yield PAUSE_NS
        scene.topics.deleted.add(name)
        scene.records.deleted(name)
        removals = self._removals([partition for partition in self._all_partitions() if partition[1] == name])
        is_deleted = False
        while not is_deleted:
            wire = self._wire()
            if wire is not None:
                request = wire.send(*deletion, REQUEST_NS)
                yield request
                is_deleted = not request.lost and request.reply.responses[0].error_code in DELETED
                wire.close()
            yield PAUSE_NS
        scene.topics.was_deleted(name, removals, request.reply.responses[0].error_code)
        yield from self._check_deleted(name)
        yield self.world.random.choice(scene.topics.recreation_pauses)
        yield from self.create({name: partitions})
        self.world.trace(f"administrator: topic {name} is recreated", "node")

    def _all_partitions(self) -> list[GroupPartition]:
        scene = self._scene
        epochs = scene.plan.epochs
        partitions = [partition for group in scene.plan.groups for partition in self._partitions(group)]
        if epochs is not None:
            partitions += [(group.name, topic, number) for group in epochs.groups for topic in scene.topics.partitions for number in range(PARTITIONS_MAX)]
        return partitions

    def _partitions(self, group: GroupPlan) -> list[GroupPartition]:
        return [(group.name, topic, number) for topic, partitions in group.settings.topics for number in range(partitions)]

    def _check_deleted(self, name: str) -> Process:
        wire = self._wire()
        if wire is None:
            return
        request = wire.send(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, LATEST)])]), 5, REQUEST_NS)
        yield request
        if not request.lost and name not in request.unknown_topics and request.reply.topics[0].partitions[0].error_code == ErrorCode.NONE:
            raise Broken(TOPICS, f"{name} exists, although its deletion was acknowledged", name)
        wire.close()

    # Groups.

    def act(self) -> Process:
        """One action on one group."""
        scene, random = self._scene, self.world.random
        wire = self._wire()
        if wire is None:
            return
        group = random.choice(scene.plan.groups)
        action = random.randrange(RETIRE + 1)
        if scene.plan.offset_resets and action in DELETIONS:
            action = RESET_OFFSETS
        if action == RETIRE:
            yield from self._retire(group)
        wire = yield from scene.lookups.find_coordinator(wire, group.name)
        if wire is None:
            return
        if action == DESCRIBE:
            request = wire.send(DescribeGroupsRequest([group.name], False), 5, REQUEST_NS)
            yield request
        elif action == DELETE_GROUP:
            yield from self._delete_group(wire, group)
        elif action == DELETE_OFFSETS:
            yield from self._delete_offsets(wire, group)
        elif action == RESET_OFFSETS:
            yield from self._reset_offsets(wire, group)
        elif action == REMOVE_MEMBER and group.static:
            names = [f"i{random.randrange(group.static)}" for _ in range(random.choice((1, 1, 3)))]
            yield from self._remove_members(wire, group.name, list(dict.fromkeys(names)))
        elif action == RETIRE:
            for _ in range(TRIES):
                if self.world.chance(0.3):
                    yield from self._delete_offsets(wire, group)
                request = yield from self._delete_group(wire, group)
                if request.lost or request.reply.results[0].error_code != ErrorCode.NON_EMPTY_GROUP:
                    break
                yield 3 * PAUSE_NS
        wire.close()

    def remove_member(self, group: str, instance: str) -> Process:
        """Remove a static member by its instance id."""
        wire = self._wire()
        if wire is not None:
            wire = yield from self._scene.lookups.find_coordinator(wire, group)
        if wire is not None:
            yield from self._remove_members(wire, group, [instance])
            wire.close()

    def _remove_members(self, wire: ClientConnection, group: str, instances: list[str]) -> Process:
        self.world.trace(f"administrator: removes {', '.join(instances)} of {group}", group)
        yield from self._scene.replies.leave(wire, group, [MemberIdentity("", instance, "removed") for instance in instances])

    def _retire(self, group: GroupPlan) -> Process:
        """Close every member of the group with LeaveGroup, and restart the members later."""
        self.world.trace(f"administrator: closes every member of {group.name}", group.name)
        for consumer in self._consumers:
            if consumer.group == group.name:
                consumer.close(True)
                self.world.after(self.world.between(SECOND, 20 * SECOND), consumer.restart)
        yield 3 * PAUSE_NS

    def _delete_group(self, wire: ClientConnection, group: GroupPlan) -> Any:
        scene = self._scene
        removals = self._removals(self._partitions(group))
        scene.generations.may_begin_again(group.name)
        in_memory = scene.coordinators.find(group.name)
        request = wire.send(DeleteGroupsRequest([group.name]), 2, REQUEST_NS)
        self._when_settled(request, removals, lambda reply: self._scene.topics.removed(removals, reply.results[0].error_code))
        yield request
        deleted = not request.lost and request.reply.results[0].error_code == ErrorCode.NONE
        if deleted and in_memory is not None and in_memory.members and scene.coordinators.served_since(group.name, request.sent):
            raise Broken(SAFE_DELETIONS, f"{group.name} was deleted, although it had members", group.name)
        return request

    def _members_of(self, group: GroupPlan) -> object:
        """An object that changes whenever the members change; None: no members."""
        in_memory = self._scene.coordinators.find(group.name)
        return in_memory.version if in_memory is not None and in_memory.members else None

    def _consumers_of(self, group: GroupPlan) -> object:
        """As `_members_of`, but None in a join phase: new subscriptions take effect at its end."""
        in_memory = self._scene.coordinators.find(group.name)
        return self._members_of(group) if in_memory is not None and in_memory.state is not PREPARING else None

    def _reset_offsets(self, wire: ClientConnection, group: GroupPlan) -> Process:
        """Commit offsets without a generation, as admin tools do. Only a group without members accepts such a commit."""
        scene = self._scene
        if not scene.offsets.surely_has(group.name, scene.plan.retention_ns):
            scene.generations.may_begin_again(group.name)
        owned = [(topic, number) for _, topic, number in self._partitions(group)]
        commit = Commit(group.name, -1, "", None, owned, RESET_VERSION)
        values = scene.offsets.send(commit.partitions)
        members = self._members_of(group)
        request = wire.send(commit.message, commit.version, REQUEST_NS, commit.encode(values))

        def settled(reply: Any) -> None:
            codes = commit.codes(reply) or [ErrorCode.NONE] * len(values) if reply is not None and not scene.course.is_void(request) else [None] * len(values)
            for partition, value, code in zip(commit.partitions, values, codes, strict=True):
                self._scene.topics.removed([(partition, value)], code)
            if ErrorCode.NONE in codes and members is not None and self._members_of(group) is members:
                raise Broken(Offsets.promise, f"{group.name} accepts a commit without a generation, although it has members", group.name)

        request.when_settled(settled)
        yield request

    def _delete_offsets(self, wire: ClientConnection, group: GroupPlan) -> Process:
        scene = self._scene
        removals = self._removals(self._partitions(group))
        by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for (_, topic, number), _ in removals:
            by_topic.setdefault(topic, []).append(OffsetDeleteRequestPartition(number))
        consumed = self._consumers_of(group) if scene.plan.policies is None else None
        request = wire.send(OffsetDeleteRequest(group.name, [OffsetDeleteRequestTopic(topic, parts) for topic, parts in by_topic.items()]), 0, REQUEST_NS)

        def settled(reply: Any) -> None:
            if reply.error_code:
                self._scene.topics.removed(removals, reply.error_code)
                return
            codes = {(topic.name, each.partition_index): each.error_code for topic in reply.topics for each in topic.partitions}
            if consumed is not None and self._consumers_of(group) is consumed and ErrorCode.NONE in codes.values():
                raise Broken(SAFE_DELETIONS, f"offsets of {group.name} are deleted, although its members consume the topic", group.name)
            for partition, removal in removals:
                self._scene.topics.removed([(partition, removal)], codes.get((partition[1], partition[2])))

        self._when_settled(request, removals, settled)
        yield request

    def _when_settled(self, request: Request, removals: Removals, answered: Any) -> None:
        def settled(reply: Any) -> None:
            if reply is None or self._scene.course.is_void(request):
                self._scene.topics.removed(removals, None)
            else:
                answered(reply)

        request.when_settled(settled)

    def _removals(self, partitions: list[GroupPartition]) -> Removals:
        return [(partition, self._scene.offsets.send_removal(partition)) for partition in partitions]
