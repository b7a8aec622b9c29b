"""The administrator of groups of the consumer protocol: describes and deletes them, removes static members and offsets, adds partitions and topics."""

from __future__ import annotations

from typing import Any, Final

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from simulator.administrator import ADMINISTRATION, PAUSE_NS, REQUEST_NS, SAFE_DELETIONS, Administrator
from simulator.client import Client, ClientConnection, Process, Request
from simulator.epoch_plan import PARTITIONS_MAX, EpochGroupPlan
from simulator.epoch_watch import EpochWatch
from simulator.promises import GroupPartition
from simulator.scene import Scene
from simulator.topics import Removals
from simulator.world import Broken

ADDRESS: Final = "10.9.9.8"
NAME: Final = "group-administrator"
DESCRIBE, DELETE_GROUP, DELETE_OFFSETS, REMOVE_MEMBERS, CLOSE_ALL = range(5)
STATES: Final = ("Empty", "Assigning", "Reconciling", "Stable")
NEW_TOPICS_MAX: Final = 4
GROWN: Final = (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # it may have grown by an earlier request


class EpochAdministrator(Client):
    def __init__(self, scene: Scene, watch: EpochWatch, administrator: Administrator) -> None:
        """`administrator`: the one that also deletes topics; it does one thing at a time."""
        super().__init__(scene.world, NAME)
        self._scene = scene
        self._watch = watch
        self._administrator = administrator
        self._new_topics = 0

    # Groups.

    def act(self, group: EpochGroupPlan) -> Process:
        """One action on a group."""
        scene, random = self._scene, self.world.random
        wire = scene.lookups.connect(self.name, ADDRESS)
        if wire is not None:
            wire = yield from scene.lookups.find_coordinator(wire, group.name)
        if wire is None:
            return
        action = random.randrange(CLOSE_ALL)
        if action == DESCRIBE:
            yield from self._describe(wire, group)
        elif action == DELETE_GROUP:
            yield from self._delete_group(wire, group)
        elif action == DELETE_OFFSETS:
            yield from self._delete_offsets(wire, group)
        elif group.static:
            yield from self._remove_members(wire, group)
        wire.close()

    def delete(self, group: EpochGroupPlan) -> Process:
        """Delete a group, whose members have just left."""
        wire = self._scene.lookups.connect(self.name, ADDRESS)
        if wire is not None:
            wire = yield from self._scene.lookups.find_coordinator(wire, group.name)
        if wire is not None:
            yield from self._delete_group(wire, group)
            wire.close()

    def _describe(self, wire: ClientConnection, group: EpochGroupPlan) -> Process:
        request = wire.send(ConsumerGroupDescribeRequest([group.name], False), 1, REQUEST_NS)
        yield request
        if request.lost or self._scene.course.is_void(request):
            return
        (described,) = request.reply.groups
        if described.error_code:
            return
        if described.group_state not in STATES or described.assignment_epoch > described.group_epoch:
            raise Broken(ADMINISTRATION, f"{group.name} is described as {described.group_state}, epochs {described.group_epoch} and {described.assignment_epoch}", group.name)
        held: dict[tuple[bytes, int], str] = {}
        for member in described.members:
            for topic in member.assignment.topic_partitions:
                for number in topic.partitions:
                    other = held.setdefault((topic.topic_id, number), member.member_id)
                    if other != member.member_id:
                        raise Broken(self._watch.holders.promise, f"{topic.topic_name}-{number} is described as held by {other} and {member.member_id}", group.name)

    def _remove_members(self, wire: ClientConnection, group: EpochGroupPlan) -> Process:
        names = sorted({f"i{self.world.random.randrange(group.static)}" for _ in range(self.world.random.choice((1, 1, 3)))})
        self.world.trace(f"{self.name}: removes {', '.join(names)} of {group.name}", group.name)
        self._watch.removes(group.name, names)
        request = wire.send(LeaveGroupRequest(group.name, [MemberIdentity("", name, "removed") for name in names]), 5, REQUEST_NS)
        request.when_settled(lambda reply: self._watch.removed(group.name, names))
        yield request

    def _delete_group(self, wire: ClientConnection, group: EpochGroupPlan) -> Process:
        scene, epochs = self._scene, self._watch.epochs
        removals = self._removals(group)
        epochs.may_begin_again(group.name)
        before = scene.coordinators.find_consumers(group.name)
        members = dict(before.members) if before is not None else {}
        request = wire.send(DeleteGroupsRequest([group.name]), 2, REQUEST_NS)

        def answered(reply: Any) -> None:
            code = reply.results[0].error_code
            scene.topics.removed(removals, code)
            stayed = before is not None and before is self._watch.coordinators.find_consumers(group.name)
            if code == ErrorCode.NONE and members and (stayed or before.epoch == epoch):
                raise Broken(SAFE_DELETIONS, f"{group.name} was deleted, although it had members", group.name)

        epoch = before.epoch if before is not None else -1
        self._when_settled(request, removals, group, answered)
        yield request

    def _delete_offsets(self, wire: ClientConnection, group: EpochGroupPlan) -> Process:
        scene = self._scene
        removals = self._removals(group)
        by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for (_, topic, number), _ in removals:
            by_topic.setdefault(topic, []).append(OffsetDeleteRequestPartition(number))
        before = scene.coordinators.find_consumers(group.name)
        version = before.version if before is not None else -1
        subscribed = {topic for topic in by_topic if before is not None and before.subscribes_to(topic)}
        request = wire.send(OffsetDeleteRequest(group.name, [OffsetDeleteRequestTopic(topic, parts) for topic, parts in by_topic.items()]), 0, REQUEST_NS)

        def answered(reply: Any) -> None:
            if reply.error_code:
                scene.topics.removed(removals, reply.error_code)
                return
            codes = {(topic.name, each.partition_index): each.error_code for topic in reply.topics for each in topic.partitions}
            unchanged = before is not None and scene.coordinators.find_consumers(group.name) is before and before.version == version
            deleted = sorted({topic for (topic, _), code in codes.items() if code == ErrorCode.NONE} & subscribed)
            if unchanged and deleted:
                raise Broken(SAFE_DELETIONS, f"offsets of {group.name} for {deleted[0]} are deleted, although its members consume the topic", group.name)
            for partition, removal in removals:
                scene.topics.removed([(partition, removal)], codes.get((partition[1], partition[2])))

        self._when_settled(request, removals, group, answered)
        yield request

    def _when_settled(self, request: Request, removals: Removals, group: EpochGroupPlan, answered: Any) -> None:
        def settled(reply: Any) -> None:
            self._watch.epochs.may_begin_again(group.name)
            if reply is None or self._scene.course.is_void(request):
                self._scene.topics.removed(removals, None)
            else:
                answered(reply)

        request.when_settled(settled)

    def _removals(self, group: EpochGroupPlan) -> Removals:
        return [(partition, self._scene.offsets.send_removal(partition)) for partition in self.partitions(group)]

    def partitions(self, group: EpochGroupPlan) -> list[GroupPartition]:
        return [(group.name, topic, number) for topic in self._watch.topics for number in range(PARTITIONS_MAX)]

    # Topics.

    def grow(self) -> Process:
        """Add partitions to a topic."""
        scene = self._scene
        topics = sorted(topic for topic in self._watch.topics if topic in scene.topics.created)
        if not topics:
            return
        name = self.world.random.choice(topics)
        count = scene.topics.partitions[name] + self.world.random.choice((1, 2))
        if count > PARTITIONS_MAX:
            return
        self.world.trace(f"{self.name}: {name} grows to {count} partitions", "node")
        has_grown = False
        while not has_grown:
            wire = scene.lookups.connect(self.name, ADDRESS)
            if wire is not None:
                request = wire.send(CreatePartitionsRequest([CreatePartitionsTopic(name, count, None)], 10_000, False), 3, REQUEST_NS)
                yield request
                has_grown = not request.lost and request.reply.results[0].error_code in GROWN
                wire.close()
            yield PAUSE_NS
        scene.topics.partitions[name] = count

    def create(self) -> Process:
        """Create a topic that expressions match."""
        if self._new_topics < NEW_TOPICS_MAX:
            name = f"t1{5 + self._new_topics}"
            self._new_topics += 1
            count = self.world.random.choice((1, 3))
            self._watch.topics.append(name)
            self._scene.topics.partitions[name] = count
            yield from self._administrator.create({name: count})
            self.world.trace(f"{self.name}: topic {name} is created", "node")
